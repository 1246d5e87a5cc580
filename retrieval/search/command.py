# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The command `lion search`: find the passages of files, or the docstrings of a package, that are nearest to a query.

Only the process that answers requests imports torch: see background.py.
"""

import argparse
import contextlib
import itertools
import json
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..sources import check_folder, default_model
from . import background


WIDTH = 100  # of a line that is shown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "lion search FOLDER [query ...] [options]\n       lion search --package NAME [query ...] [options]"
    parser.add_argument(
        "words",
        nargs="*",
        metavar="FOLDER query",
        help="folder to search (subfolders included), and the query; "
        "without a query, each line of the standard input is one",
    )
    parser.add_argument(
        "--package",
        metavar="NAME",
        help="search the docstrings of an installed package instead, or of the standard library (stdlib)",
    )
    for option, what in (
        ("include", "read only files that match"),
        ("exclude", "leave out files and folders that match"),
    ):
        text = f"{what} this pattern, as in .gitignore; may be given several times"
        parser.add_argument(f"--{option}", action="append", metavar="GLOB", help=text)
    parser.add_argument(
        "--model",
        help="folder of a sentence encoder or of a PEFT adapter, or a name on the Hub "
        "(default: the checkpoint in a clone of the repository, else all-MiniLM-L6-v2)",
    )
    parser.add_argument("--top", type=int, default=5, help="number of answers to show (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each query")
    parser.add_argument(
        "--seconds", type=float, help="stop reading after this time; the next call goes on (default: read everything)"
    )
    parser.add_argument(
        "--one_pass",
        action="store_true",
        help="encode each text in one pass instead of passage by passage, for encoders that were trained for it",
    )
    parser.add_argument("--cache_dir", type=Path, help="folder for vectors (default: the user's cache)")
    parser.add_argument(
        "--keep_minutes",
        type=float,
        default=15,
        help="how long a background process keeps the encoder loaded; 0 starts no process (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    if args.top < 1:
        raise ValueError(f"--top is {args.top}: give at least 1.")
    words = args.words
    if args.package is None and not words:
        raise ValueError("give a folder to search, or --package NAME.")
    folder = None if args.package is not None else str(check_folder(words.pop(0)).resolve())
    given = " ".join(words).strip()
    if words and not given:
        raise ValueError("the query is empty: give words, or leave it out to ask several times.")
    model = args.model or default_model()
    model = str(Path(model).resolve()) if Path(model).is_dir() else model
    request = {name: getattr(args, name) for name in ("package", "top", "seconds", "one_pass", "include", "exclude")}
    request |= {"folder": folder, "cache_dir": str((args.cache_dir or default_cache()).resolve())}
    say(f"Encoder: {model}")
    searcher = None
    if not args.keep_minutes or not background.is_possible():
        from .searcher import Searcher  # imports torch

        searcher = Searcher(model)
    for query in [given] if given else asked_queries():
        asked = request | {"query": query}
        events = background.ask(model, asked, args.keep_minutes) if searcher is None else searcher.answers(asked)
        is_in_background = False
        try:
            with contextlib.closing(events):
                first = next(events)
                is_in_background = searcher is None
                show(query, itertools.chain([first], events), args.json)
        except KeyboardInterrupt:
            goes_on = "the next call goes on from there"
            if is_in_background:  # for as long as the call that started the process told it
                most = "" if args.seconds is None else f", for {args.seconds:g} seconds at most"
                goes_on = f"reading goes on in the background{most}"
            say(f"What was read is kept; {goes_on}.")
            raise
    return 0


def show(query: str, events: Iterable[dict], as_json: bool) -> None:
    """Print the answers to a query. Messages and progress go to the standard error."""
    from tqdm import tqdm

    with contextlib.ExitStack() as stack:
        bar = None
        for event in events:
            done, every = event.get("progress", (0, 0))
            if "message" in event:
                tqdm.write(event["message"], file=sys.stderr)
            elif "first" in event and not as_json:
                lines = ["First answers; reading goes on:", *lines_of(query, event["first"])]
                tqdm.write("\n".join(lines), file=sys.stderr)
            elif "answers" in event:
                stack.close()
                end = "" if done == every else "; call again to read on"
                say(f"Searched {done:,} of {every:,} passages{end}.")
                if as_json:
                    about = {"query": query, "passages": every, "searched": done, "complete": done == every}
                    print(json.dumps(about | {"answers": event["answers"]}), flush=True)
                else:
                    print("\n".join(lines_of(query, event["answers"])), flush=True)
            elif bar is None and done < every:
                options = {"desc": "Reading", "unit": " passages", "mininterval": 0.5 if sys.stderr.isatty() else 10}
                bar = stack.enter_context(tqdm(total=every, initial=done, **options))
            elif bar is not None and done:
                bar.update(done - bar.n)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def lines_of(query: str, answers: list[dict]) -> Iterator[str]:
    """
    Yield the query, then for each answer its score, place and nearest line, with the document's name if neither place
    nor line shows it.
    """
    yield f"  {query}"
    width = max((len(answer["place"]) for answer in answers), default=0)
    for answer in answers:
        is_named = answer["document"] in (answer["place"], answer["line"])
        name = "" if is_named else f"{answer['document']}: "
        yield f"    {answer['score']:.2f}  {answer['place']:{width}}  {name}{shown(answer['line'])}"


def shown(line: str) -> str:
    """Shorten a line to `WIDTH` characters."""
    line = " ".join(line.split())
    short = textwrap.shorten(line, WIDTH, placeholder=" …")
    return short if len(short) > WIDTH // 2 or len(line) <= WIDTH else f"{line[: WIDTH - 2]} …"  # few spaces


def asked_queries() -> Iterator[str]:
    """Yield the lines of the standard input up to an empty one or the end, with a prompt if it is a terminal."""
    prompt = "\nquery (empty to end): " if sys.stdin.isatty() else ""
    with contextlib.suppress(EOFError):
        yield from iter(lambda: input(prompt).strip(), "")


def default_cache() -> Path:
    """Return the folder for vectors in the user's cache."""
    from platformdirs import user_cache_path

    return user_cache_path("lion", appauthor=False) / "search"
