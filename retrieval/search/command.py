# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The command `lion search`: find the passages of files, or the docstrings of a package, that are nearest to a query.

Only the process that answers requests imports torch: see background.py.
"""

import argparse
import contextlib
import itertools
import json
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..characters import without_control, without_surrogates
from ..sources import check_folder, default_model, place_of_package
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
    parser.add_argument("--seconds", type=float, help="answer within this time, from what has been read by then")
    parser.add_argument(
        "--read_all",
        action="store_true",
        help="let the encoder read all passages, and not only the best candidates for the query",
    )
    parser.add_argument("--cache_dir", type=Path, help="folder for vectors (default: the user's cache)")
    parser.add_argument(
        "--keep_minutes",
        type=float,
        default=15,
        help="how long a background process keeps the encoder loaded; 0 starts no process (default: %(default)s)",
    )
    parser.add_argument("--stop", action="store_true", help="end the processes in the background, and do nothing else")


def run(args: argparse.Namespace) -> int:
    begin = time.monotonic()
    if args.stop:
        count = background.stop() if background.is_possible() else 0
        say(f"Ended {count} process{'es' * (count != 1)} in the background.")
        return 0
    if args.top < 1:
        raise ValueError(f"--top is {args.top}: give at least 1.")
    words = args.words
    if args.package is None and not words:
        raise ValueError("give a folder to search, or --package NAME.")
    if args.package is not None:
        check_package(args)
    folder = None if args.package is not None else str(check_folder(words.pop(0)).resolve())
    given = without_surrogates(" ".join(words)).strip()
    if words and not given:
        raise ValueError("the query is empty: give words, or leave it out to ask several times.")
    model = args.model or default_model()
    model = str(Path(model).resolve()) if Path(model).is_dir() else model
    request = {name: getattr(args, name) for name in ("top", "read_all", "include", "exclude")}
    # The process in the background may have other paths.
    request |= {"package": None if args.package is None else place_of_package(args.package)}
    request |= {"folder": folder, "cache_dir": str((args.cache_dir or default_cache()).resolve())}
    say(f"Encoder: {model}")
    searcher, said = None, set()
    for query in [given] if given else itertools.chain([""] * args.read_all, asked_queries()):
        begin = time.monotonic() if begin is None else begin  # the first time counts from the start
        with time_limit(args.seconds, begin):
            if searcher is None and not (args.keep_minutes and background.is_possible()):
                from .searcher import Searcher  # imports torch

                searcher = Searcher(model)
            left = None if args.seconds is None else args.seconds - (time.monotonic() - begin)
            asked = request | {"query": query, "seconds": left}
            events = background.ask(model, asked, args.keep_minutes) if searcher is None else searcher.answers(asked)
            try:
                with contextlib.closing(events):
                    show(query, events, args.json, said)
            except KeyboardInterrupt:
                say("What was read is kept; nothing goes on.")
                raise
        begin = None
    return 0


def check_package(args: argparse.Namespace) -> None:
    """Raise a ValueError if there is a choice of files, or a folder, beside a package."""
    for name in ("include", "exclude"):
        if getattr(args, name):
            raise ValueError(
                f"--{name} {getattr(args, name)[0]} chooses files of a folder: leave it out for --package."
            )
    if len(args.words) > 1 and Path(args.words[0]).is_dir():
        raise ValueError(f"{args.words[0]} is a folder, and --package {args.package} is searched: give one of them.")


@contextlib.contextmanager
def time_limit(seconds: float | None, begin: float) -> Iterator[None]:
    """
    Raise a ValueError in the block one second after the time is over, `seconds` from `begin` on: a step that cannot be
    stopped, such as loading an encoder, takes too long. Does nothing without signals, as on Windows and outside of the
    main thread.
    """
    if (
        seconds is None
        or not hasattr(signal, "setitimer")
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return

    def is_over(*_) -> None:
        raise ValueError(f"there was no answer within {seconds:g} seconds: try again, or give more --seconds.")

    before = signal.signal(signal.SIGALRM, is_over)
    signal.setitimer(signal.ITIMER_REAL, max(0.1, begin + seconds + 1 - time.monotonic()))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def show(query: str, events: Iterable[dict], as_json: bool, said: set[str] | None = None) -> None:
    """Print the answers to a query. Messages, but those that were `said`, and progress go to the standard error."""
    from tqdm import tqdm

    said = set() if said is None else said

    with contextlib.ExitStack() as stack:
        bar = None
        for event in events:
            if "progress" not in event:
                stack.close()
                bar = None
            if "message" in event:
                if event["message"] not in said:
                    say(event["message"])
                said.add(event["message"])
            elif "answers" in event:
                say(f"{event['passages']:,} passages, of which the encoder has read {event['read']:,} so far.")
                if not event["complete"]:
                    say("There was no time for everything: call again, or give more --seconds.")
                if as_json and query:
                    print(json.dumps({"query": query} | event), flush=True)
                elif query:
                    print("\n".join(lines_of(query, event["answers"])), flush=True)
            else:
                (done, every), doing = event["progress"], event["doing"]
                if bar is None or bar.desc != f"{doing}: ":
                    stack.close()
                    unit = {"unit": "B", "unit_scale": True} if doing == "Indexing" else {"unit": " passages"}
                    options = {"delay": 2, "mininterval": 0.5 if sys.stderr.isatty() else 10, "leave": False}
                    bar = stack.enter_context(tqdm(total=every, desc=doing, **options, **unit))
                bar.update(done - bar.n)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def lines_of(query: str, answers: list[dict]) -> Iterator[str]:
    """
    Yield the query, then for each answer its score, place and snippet, with the document's name if neither shows it.
    """
    yield f"  {query}"
    width = max((len(answer["place"]) for answer in answers), default=0)
    for answer in answers:
        is_named = answer["document"] in (None, answer["place"], answer["snippet"])
        name = "" if is_named else f"{answer['document']}: "
        yield without_control(
            f"    {answer['score']:.2f}  {answer['place']:{width}}  {name}{shown(answer['snippet'])}"
        )


def shown(line: str) -> str:
    """Shorten a line to `WIDTH` characters."""
    line = " ".join(line.split())
    short = textwrap.shorten(line, WIDTH, placeholder=" …")
    return short if len(short) > WIDTH // 2 or len(line) <= WIDTH else f"{line[: WIDTH - 2]} …"  # few spaces


def asked_queries() -> Iterator[str]:
    """Yield the lines of the standard input up to an empty one or the end, with a prompt if it is a terminal."""
    prompt = "\nquery (empty to end): " if sys.stdin.isatty() else ""
    with contextlib.suppress(EOFError):
        yield from iter(lambda: without_surrogates(input(prompt)).strip(), "")


def default_cache() -> Path:
    """Return the folder for vectors in the user's cache."""
    from platformdirs import user_cache_path

    return user_cache_path("lion", appauthor=False) / "search"
