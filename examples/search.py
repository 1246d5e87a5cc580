# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Search by meaning: through the documentation of your own Python, or through your own files.

    python examples/search.py "how do I read a zip file"        # the docstrings of the standard library
    python examples/search.py --package torch "smaller learning rate over time"
    python examples/search.py --folder ~/notes                  # .txt, .md and .rst files, docstrings of .py files
    python examples/search.py                                   # asks for one query after the other

The encoder is the LION in checkpoints/lion-minilm-l6, or another sentence encoder in a folder. A text file is read in
passages, each with the file's name in front. Of a docstring the name and the first paragraph are read, and private
names are left out. Embeddings are kept in a file, so that texts are read once. Reading ends after --seconds, or with
Ctrl-C: the next run goes on.
"""

import argparse
import contextlib
import hashlib
import importlib.util
import json
import os
import sysconfig
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import bitsandbytes_log  # noqa: F401 (before transformers)
import torch
from docstrings import docstrings, module_name, python_files, split_paragraphs
from hub_upload_lion.app.search import passages_of, read_text, unit_vectors
from safetensors import safe_open
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from torch import Tensor
from tqdm import tqdm

from modeling_lion.attention.numerics import has_fast_bfloat16
from modeling_lion.layout.passages import LONGEST


MODEL = Path(__file__).parents[1] / "checkpoints" / "lion-minilm-l6"
INDEX_DIR = Path(__file__).parents[1] / "outputs" / "search"
TEXT_FILES = (".txt", ".md", ".rst")
BATCH_CHARACTERS = 4_000  # padding included; what fits into a cache
ROUND = 512  # texts that are sorted by length together
SAVE_EVERY = 15  # seconds
WIDTH = 100  # of a line that is shown
# What turns texts into unit vectors `(number of texts, size)`, float32, on the CPU.
Encode = Callable[[list[str]], Tensor]


class Entry(NamedTuple):
    place: str  # module.function, or file:line
    first_line: str
    text: str  # what is embedded


class Answer(NamedTuple):
    score: float
    place: str
    first_line: str


def files_of_package(package: str | None) -> tuple[list[str], str]:
    """
    The Python files of a package or module, `None` for the standard library, and the folder it is imported from.

    Raises:
        ValueError: if there is no such package, or it has no Python files.
    """
    if package is None:
        folder = os.path.realpath(sysconfig.get_path("stdlib"))
        return python_files([folder]), folder
    found = importlib.util.find_spec(package) if package.isidentifier() else None
    if found is None or found.origin is None or not found.origin.endswith(".py"):
        raise ValueError(f"--package {package}: this Python has no Python files under that name; give an import name.")
    origin = Path(found.origin)
    if not found.submodule_search_locations:
        return [str(origin)], str(origin.parent)
    return python_files([str(origin.parent)]), str(origin.parents[1])


def files_of_folder(folder: str | Path) -> tuple[list[str], str]:
    """
    The Python and text files in a folder and below, without hidden ones and links that lead out of it, and the folder.

    Raises:
        FileNotFoundError: if there is no such folder.
        ValueError: if it has no such files.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"--folder {folder} does not exist, or is no folder: give one with files to search.")
    visible = (
        path for path in folder.rglob("*") if not any(x.startswith(".") for x in path.relative_to(folder).parts)
    )
    root = folder.resolve()
    own = (path for path in visible if path.is_file() and path.resolve().is_relative_to(root))
    files = sorted(str(path) for path in own if path.suffix in (".py", *TEXT_FILES))
    if not files:
        raise ValueError(f"--folder {folder} has no files to search: none ends with .py, {', '.join(TEXT_FILES)}.")
    return files, str(folder)


def entries_of(file: str, folder: str) -> Iterator[Entry]:
    """What can be found in a file: passages of a text, or public names of a Python file that have docstrings."""
    if not file.endswith(".py"):
        try:
            text = read_text(file)
        except (ValueError, OSError) as error:
            print(f"Left out: {error}")
            return
        for place, passage in passages_of(text, os.path.relpath(file, folder)):
            yield Entry(place, shown(passage), f"{Path(file).stem}: {passage}")
        return
    for docstring in docstrings(file, module_name(file, folder)):
        paragraphs = split_paragraphs(docstring.text)
        if paragraphs and not any(part.startswith("_") for part in docstring.name.split(".")):
            yield Entry(docstring.name, shown(docstring.text), f"{docstring.name}: {paragraphs[0][:LONGEST]}")


def shown(text: str) -> str:
    """The first line of a text, or as much of it as fits into a line of the answers."""
    return textwrap.shorten(text.strip().splitlines()[0], WIDTH, placeholder=" …")


def stamp(files: list[str]) -> str:
    """Changes when one of these files does, or the list."""
    stats = [(file, os.stat(file)) for file in files]
    return hashlib.sha256(repr([(file, x.st_mtime_ns, x.st_size) for file, x in stats]).encode()).hexdigest()


class Index:
    """
    Texts and their embeddings, kept in a file.

    Args:
        files, folder: what to search; names of modules and files begin in the folder.
        model: the folder of the encoder. Embeddings are made anew when a file in it changes.
        path: of the file.

    Attributes:
        entries: everything that can be found, the outermost names first.
        vectors: by text, the unit vectors `(size,)` of what has been read, float32.

    Raises:
        ValueError: if there is nothing to search.
    """

    def __init__(self, files: list[str], folder: str, model: str | Path, path: Path):
        self.path = path
        parts = sorted(str(part) for part in Path(model).rglob("*") if part.is_file())
        self.stamps = {"files": stamp(files), "model": stamp(parts)}
        saved, vectors = self.load()
        if saved.get("files") == self.stamps["files"]:
            self.entries = [Entry(*entry) for entry in saved["entries"]]
        else:
            # Names of several definitions, as one for each platform, come once for each text.
            entries = {entry for file in files for entry in entries_of(file, folder)}
            self.entries = sorted(entries, key=lambda entry: (entry.place.count("."), *entry))
        if not self.entries:
            raise ValueError(f"There is nothing to search in {folder}: no text, and no docstring of a public name.")
        texts = {entry.text for entry in self.entries}
        known = vectors.items() if saved.get("model") == self.stamps["model"] else ()
        self.vectors = {text: vector for text, vector in known if text in texts}
        self.read_entries: tuple[list[Entry], Tensor] | None = None

    def load(self) -> tuple[dict, dict[str, Tensor]]:
        """The stamps and entries in the file, and the vectors by text; empty if there is none."""
        if not self.path.is_file():
            return {}, {}
        with safe_open(self.path, "pt") as file:
            saved = json.loads(file.metadata()["index"])
            return saved, dict(zip(saved["texts"], file.get_tensor("vectors"), strict=True))

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        index = self.stamps | {"entries": self.entries, "texts": list(self.vectors)}
        save_file({"vectors": torch.stack(list(self.vectors.values()))}, unfinished, {"index": json.dumps(index)})
        unfinished.replace(self.path)

    def __str__(self) -> str:
        read, all_of_them = len(self.found()[0]), len(self.entries)
        return f"Searching {read:,} of {all_of_them:,} texts{'' if read == all_of_them else '; run again to read on'}."

    def found(self) -> tuple[list[Entry], Tensor]:
        """The entries that have been read, and their vectors `(entries, size)`."""
        if self.read_entries is None:
            entries = [entry for entry in self.entries if entry.text in self.vectors]
            self.read_entries = entries, torch.stack([self.vectors[entry.text] for entry in entries])
        return self.read_entries

    def read(self, encode: Encode, seconds: float, show_progress: bool = True) -> None:
        """
        Embed the texts that are not yet, and save on the way; after so many seconds, or Ctrl-C, no new batch begins,
        but one is read.
        """
        stop, next_save = time.monotonic() + seconds, time.monotonic() + SAVE_EVERY
        missing = list(dict.fromkeys(entry.text for entry in self.entries if entry.text not in self.vectors))
        if not missing:
            return
        self.read_entries = None
        with (
            contextlib.suppress(KeyboardInterrupt),
            tqdm(total=len(missing), desc="Reading", unit=" texts", disable=not show_progress) as progress,
        ):
            for batch in batches(missing):
                self.vectors.update(zip(batch, encode(batch), strict=True))
                progress.update(len(batch))
                if time.monotonic() > stop:
                    break
                if time.monotonic() > next_save:  # so that a run that is killed has read something
                    self.save()
                    next_save = time.monotonic() + SAVE_EVERY
        if not self.vectors:
            raise KeyboardInterrupt
        self.save()

    def search(self, query: str, encode: Encode, top: int = 5) -> list[Answer]:
        """The most similar of what has been read, by cosine, the best first."""
        entries, vectors = self.found()
        scores = vectors @ encode([query])[0]
        best = scores.topk(min(top, len(entries)))
        return [Answer(score, *entries[i][:2]) for score, i in zip(*map(Tensor.tolist, best), strict=True)]


def batches(texts: list[str]) -> Iterator[list[str]]:
    """All texts, those of about the same length together."""
    for first in range(0, len(texts), ROUND):
        batch = []
        for text in sorted(texts[first : first + ROUND], key=len):
            if batch and (len(batch) + 1) * len(text) > BATCH_CHARACTERS:
                yield batch
                batch = []
            batch.append(text)
        yield batch


def check_encoder(folder: str | Path) -> None:
    """Raise a FileNotFoundError if there is no such folder of an encoder."""
    if not Path(folder).is_dir():
        raise FileNotFoundError(
            f"{folder} is no folder: give that of a sentence encoder (--model). The default, "
            "checkpoints/lion-minilm-l6, is part of the repository: run this in a complete checkout."
        )


def load_encoder(folder: str | Path) -> Encode:
    """
    The sentence encoder in a folder.

    Raises:
        FileNotFoundError: if there is no such folder.
    """
    check_encoder(folder)
    # Where the CPU multiplies bfloat16, it reads twice as fast, and 99 % of the nearest neighbours are the same.
    dtype = torch.bfloat16 if not torch.cuda.is_available() and has_fast_bfloat16() else torch.float32
    encoder = SentenceTransformer(str(folder), model_kwargs={"dtype": dtype})
    return lambda texts: unit_vectors(encoder, texts, batch_size=len(texts))


def index_path(folder: Path, source: str, model: str | Path) -> Path:
    """The file for what is searched with a model."""
    name = hashlib.sha256(f"{source} {Path(model).resolve()}".encode()).hexdigest()[:16]
    return folder / f"{name}.safetensors"


def print_answers(query: str, answers: list[Answer]) -> None:
    print(f"\n  {query}")
    width = max(len(answer.place) for answer in answers)
    for answer in answers:
        print(f"    {answer.score:.2f}  {answer.place:{width}}  {answer.first_line}")


def main(args: list[str] | None = None) -> list[Answer]:
    """Run with these arguments, or those of the command line; returns the last answers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("query", nargs="?", help="what to look for; asked for if it is not given")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--package", help="search the docstrings of this package; not given: the standard library")
    what.add_argument("--folder", help="search the files in this folder and below")
    parser.add_argument("--model", default=MODEL, help="folder of the sentence encoder")
    parser.add_argument("--top", type=int, default=5, help="answers to show")
    parser.add_argument("--seconds", type=float, default=45, help="stop reading after so many; the next run goes on")
    parser.add_argument("--index_dir", type=Path, default=INDEX_DIR, help="where embeddings are kept")
    arguments = parser.parse_args(args)
    if arguments.top < 1:
        raise ValueError(f"--top is {arguments.top}: give at least 1.")

    encode = load_encoder(arguments.model)
    if arguments.folder is None:
        files, folder = files_of_package(arguments.package)
    else:
        files, folder = files_of_folder(arguments.folder)
    source = str(Path(folder).resolve()) if arguments.package is None else arguments.package
    path = index_path(arguments.index_dir, source, arguments.model)
    index = Index(files, folder, arguments.model, path)
    index.read(encode, arguments.seconds)
    print(index)

    answers = []
    asked = iter(lambda: input("\nquery (empty to end): ").strip(), "")
    for query in asked if arguments.query is None else [arguments.query]:
        answers = index.search(query, encode, arguments.top)
        print_answers(query, answers)
    return answers


if __name__ == "__main__":
    main()
