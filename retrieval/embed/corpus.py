# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Read the texts of a corpus (Parquet, JSONL or text files), from its beginning or from a place in it."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ..characters import printable, without_surrogates
from ..documents import TEXT_FILES, SkippedFile, name_of, read_text
from ..folders import HIDDEN, UNREADABLE, skipped_in_words


MANIFEST = "_embed.json"  # in the folder of vectors; readers of Parquet ignore names that begin with "_"
PARQUET, LINES = (".parquet", ".pq"), (".jsonl", ".ndjson")
ROWS_AT_ONCE = 1000  # of a Parquet file in memory


class Columns(NamedTuple):
    """Names of the columns (Parquet) or fields (JSONL) to read. Files may lack the columns of ids and names."""

    text: str = "text"
    id: str = "id"
    name: str = "name"


class Text(NamedTuple):
    """A text of a corpus with its id, and the name to put in front of its passages (`None` for nothing)."""

    id: str
    name: str | None
    text: str


class File(NamedTuple):
    """A file of a corpus: its full path, and a short name, unique in the corpus, with which its ids begin."""

    path: str
    name: str


class Found(NamedTuple):
    """The files of a corpus, and what is in its folders and is not read: paths, and the reason for each."""

    files: list[File]
    skipped: list[tuple[str, str]]


class Place(NamedTuple):
    """Where a text is: the index of its file, and its row (Parquet) or the byte at which its line begins (JSONL)."""

    file: int = 0
    row: int = 0


BEGINNING = Place()


def find_files(sources: Sequence[str | Path], out: Path | None = None) -> Found:
    """
    Return the given files and those in the given folders and their subfolders, each once. In folders, files that are
    hidden, of other kinds or no text are skipped, and those that `lion embed` wrote are left out.

    Args:
        sources: files and folders.
        out: folder of the job, which is left out even if it is a source (as with `corpus/*`).

    Raises:
        FileNotFoundError: if a source is neither a file nor a folder.
        ValueError: if a given file is of another kind, or there is nothing to read.
    """
    kinds = (*PARQUET, *LINES, *TEXT_FILES)
    found: dict[Path, str] = {}
    skipped: dict[Path, str] = {}
    for source in map(Path, sources):
        if source.is_file():
            if source.suffix.lower() not in kinds:
                raise ValueError(f"{source} has none of the endings {', '.join(kinds)}: convert it first.")
            found.setdefault(source.parent.resolve() / source.name, source.name)
        elif source.is_dir():
            inside = [path.relative_to(source) for path in source.rglob("*")]
            vectors = {x.parent for x in inside if x.name == MANIFEST and len(x.parts) > 1}
            for path in sorted(x for x in inside if vectors.isdisjoint(x.parents) and (source / x).is_file()):
                if reason := why_not(source, path, kinds):
                    skipped[source.resolve() / path] = reason
                else:
                    found.setdefault(source.resolve() / path, str(path))
        else:
            raise FileNotFoundError(f"{source} is neither a file nor a folder.")
    if out is not None:
        out = out.resolve()
        found = {path: name for path, name in found.items() if not path.is_relative_to(out)}
        skipped = {path: reason for path, reason in skipped.items() if not path.is_relative_to(out)}
    others = [(str(path), reason) for path, reason in skipped.items() if path not in found]
    if not found:
        raise ValueError(
            f"There is nothing to read: no text ends with {', '.join(kinds)}. {skipped_in_words(others)}".rstrip()
        )
    return Found([File(str(path), printable(name)) for path, name in distinct_names(found).items()], others)


def why_not(folder: Path, path: Path, kinds: tuple[str, ...]) -> str | None:
    """Return why a file in a folder is not read, or `None`."""
    if any(part.startswith((".", "_")) for part in path.parts):
        return HIDDEN
    if path.suffix.lower() not in kinds:
        return "another kind"
    if path.suffix.lower() in TEXT_FILES:
        try:
            read_text(folder / path)
        except SkippedFile as skipped:
            return skipped.reason
        except OSError:
            return UNREADABLE
    return None


def distinct_names(names: dict[Path, str]) -> dict[Path, str]:
    """Make the names of files, by their full paths, unique: equal names get parent folders in front."""
    while True:
        counts = Counter(names.values())
        longer = {
            path: str(Path(*path.parts[-len(Path(name).parts) - 1 :]))
            for path, name in names.items()
            if counts[name] > 1
        }
        if not longer:
            return names
        names = names | longer


def read_texts(
    files: Sequence[File],
    columns: Columns,
    first: Place = BEGINNING,
    say_blank: Callable[[], object] = lambda: None,
) -> Iterator[tuple[Place, Text]]:
    """
    Yield the texts of files, from a place on, without blank ones. A text without an id gets the name of its file,
    followed by its row or byte. Single surrogates become U+FFFD.

    Args:
        say_blank: is called for each blank text.

    Raises:
        ValueError: if a Parquet file has no column of strings named `columns.text`, a line of JSONL is not an object
            with a text, or a file is not a text file.
    """
    for number, file in enumerate(files[first.file :], first.file):
        path, row = Path(file.path), first.row if number == first.file else 0
        suffix = path.suffix.lower()
        if suffix in PARQUET:
            texts = rows_of_parquet(path, row, columns)
        elif suffix in LINES:
            texts = lines_of_jsonl(path, row, columns)
        else:
            text = read_text(path)
            texts = [(None, (text, None, name_of(text, path)))]
        for place, values in texts:
            text, own, name = (None if value is None else without_surrogates(str(value)) for value in values)
            if (text or "").strip():
                default = file.name + ("" if place is None else f":{place}")
                yield Place(number, place or 0), Text(default if own is None else own, name, text)
            else:
                say_blank()


def rows_of_parquet(path: Path, row: int, columns: Columns) -> Iterator[tuple[int, list]]:
    """Yield the values in `columns` of the rows of a Parquet file from a row on, with the number of each row."""
    try:
        opened = pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path} is no Parquet file: {error}") from error
    with opened as file:
        schema, groups, first = file.schema_arrow, range(file.num_row_groups), 0
        if columns.text not in schema.names or not is_text(schema.field(columns.text).type):
            raise ValueError(
                f"{path} has no texts {columns.text!r}; it has {', '.join(schema.names)}: give --text_column."
            )
        while groups and first + (size := file.metadata.row_group(groups[0]).num_rows) <= row:
            groups, first = groups[1:], first + size
        present = [name for name in columns if name in schema.names]
        for batch in file.iter_batches(ROWS_AT_ONCE, row_groups=groups, columns=present) if groups else ():
            rows = batch.slice(max(0, row - first)).to_pylist()
            yield from enumerate(([x.get(name) for name in columns] for x in rows), start=max(row, first))
            first += len(batch)


def is_text(kind: pa.DataType) -> bool:
    """Return whether values of a type are strings."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def lines_of_jsonl(path: Path, byte: int, columns: Columns) -> Iterator[tuple[int, list]]:
    """Yield the values of the fields `columns` of the lines from a byte on, with the first byte of each line."""
    with path.open("rb") as file:
        file.seek(byte)
        for line in file:
            if line.strip():
                try:
                    fields = json.loads(line)
                    if not isinstance(fields[columns.text], str | None):
                        raise TypeError("it is no text")
                except (KeyError, TypeError, ValueError) as error:
                    raise ValueError(
                        f"{path}, byte {byte}: give a JSON object with a text {columns.text!r} (--text_column) in "
                        f"each line; got {line[:80]!r}."
                    ) from error
                yield byte, [fields.get(name) for name in columns]
            byte += len(line)
