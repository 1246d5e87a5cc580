# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The command `lion search`: the passages of your files, or of a package's documentation, that are nearest to a query.

Only what answers a request imports torch: see background.py.
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
        help="the folder to search, with what is below it, "
        "and what to look for; without a query, lines of the standard input are queries",
    )
    parser.add_argument(
        "--package",
        metavar="NAME",
        help="search the docstrings of an installed package instead, or of the standard library (stdlib)",
    )
    parser.add_argument(
        "--model",
        help="folder of a sentence encoder, or of an adapter of PEFT for one, or a name on "
        "the Hub (default: the checkpoint in a clone of the repository, else all-MiniLM-L6-v2)",
    )
    parser.add_argument("--top", type=int, default=5, help="answers to show (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each query")
    parser.add_argument(
        "--seconds", type=float, help="stop reading after so many; the next call goes on (default: read everything)"
    )
    parser.add_argument(
        "--one_pass",
        action="store_true",
        help="read each text in one pass, with an encoder that was trained for it, and not passage by passage",
    )
    parser.add_argument("--cache_dir", type=Path, help="where vectors are kept (default: the user's cache)")
    parser.add_argument(
        "--keep_minutes",
        type=float,
        default=15,
        help="how long a process in the background keeps the "
        "encoder for the next query; 0 starts none (default: %(default)s)",
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
    request = {name: getattr(args, name) for name in ("package", "top", "seconds", "one_pass")}
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
            if is_in_background:  # for how long, the process was told by the call that started it
                most = "" if args.seconds is None else f", for {args.seconds:g} seconds at most"
                goes_on = f"reading goes on in the background{most}"
            say(f"What was read is kept; {goes_on}.")
            raise
    return 0


def show(query: str, events: Iterable[dict], as_json: bool) -> None:
    """
    Print the answers to a query, and on the standard error what happens until then.
    """
    with Progress() as progress:
        for event in events:
            if "message" in event:
                progress.say(event["message"])
            elif "first" in event and not as_json:
                progress.say("\n".join(["First answers; reading goes on:", *lines_of(query, event["first"])]))
            elif "answers" in event:
                progress.close()
                done, every = event["progress"]
                is_complete = done == every
                end = "" if is_complete else "; call again to read on"
                say(f"Searched {done:,} of {every:,} passages{end}.")
                if as_json:
                    about = {"query": query, "passages": every, "searched": done, "complete": is_complete}
                    print(json.dumps(about | {"answers": event["answers"]}), flush=True)
                else:
                    print("\n".join(lines_of(query, event["answers"])), flush=True)
            elif "progress" in event:
                progress.set(*event["progress"])


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Progress:
    """A bar on the standard error, if that is a terminal, else a line now and then."""

    def __init__(self):
        self.bar = None

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *error) -> None:
        self.close()

    def set(self, done: int, every: int) -> None:
        if self.bar is None:
            if done == every:  # nothing to read
                return
            from tqdm import tqdm

            options = {"desc": "Reading", "unit": " passages", "mininterval": 0.5 if sys.stderr.isatty() else 10}
            self.bar = tqdm(total=every, initial=done, **options)
        self.bar.update(done - self.bar.n)

    def say(self, line: str) -> None:
        if self.bar is None:
            say(line)
        else:
            self.bar.write(line, file=sys.stderr)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def lines_of(query: str, answers: list[dict]) -> Iterator[str]:
    """
    The query; of each answer the score, the place, and the nearest line, with the document's name if the place does
    not say it.
    """
    yield f"  {query}"
    width = max((len(answer["place"]) for answer in answers), default=0)
    for answer in answers:
        is_named = answer["document"] in (answer["place"], answer["line"])
        name = "" if is_named else f"{answer['document']}: "
        yield f"    {answer['score']:.2f}  {answer['place']:{width}}  {name}{shown(answer['line'])}"


def shown(line: str) -> str:
    """A line, or as much of it as fits into a line of the answers."""
    line = " ".join(line.split())
    short = textwrap.shorten(line, WIDTH, placeholder=" …")
    return short if len(short) > WIDTH // 2 or len(line) <= WIDTH else f"{line[: WIDTH - 2]} …"  # few spaces


def asked_queries() -> Iterator[str]:
    """The lines of the standard input, to an empty one or its end; asked for if it is a terminal."""
    prompt = "\nquery (empty to end): " if sys.stdin.isatty() else ""
    with contextlib.suppress(EOFError):
        yield from iter(lambda: input(prompt).strip(), "")


def default_cache() -> Path:
    """The user's folder for what can be made again."""
    from platformdirs import user_cache_path

    return user_cache_path("lion", appauthor=False) / "search"
