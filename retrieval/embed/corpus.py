# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Read a corpus (Parquet, JSONL or text files) in shards. A worker reads one shard, and writes one file for it."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ..documents import TEXT_FILES, name_of, printable, read_text, without_surrogates


MANIFEST = "_embed.json"  # in the folder of vectors; readers of Parquet ignore names that begin with "_"
PARQUET, LINES = (".parquet", ".pq"), (".jsonl", ".ndjson")


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


class Shard(NamedTuple):
    """
    A part of a corpus.

    Attributes:
        files: one Parquet or JSONL file, or several text files.
        first, end: rows of a Parquet file, or bytes of a JSONL file, between which lines begin; 0 for text files.
    """

    files: tuple[File, ...]
    first: int = 0
    end: int = 0


def find_files(sources: Sequence[str | Path], out: Path | None = None) -> list[File]:
    """
    Return the given files and those in the given folders and their subfolders, each once. Hidden files and files that
    `lion embed` wrote are left out.

    Args:
        sources: files and folders.
        out: folder of the job, which is left out even if it is a source (as with `corpus/*`).

    Raises:
        FileNotFoundError: if a source is neither a file nor a folder.
        ValueError: if a given file is of another kind, or there is nothing to read.
    """
    kinds = (*PARQUET, *LINES, *TEXT_FILES)
    found: dict[Path, str] = {}
    for source in map(Path, sources):
        if source.is_file():
            if source.suffix.lower() not in kinds:
                raise ValueError(f"{source} has none of the endings {', '.join(kinds)}: convert it first.")
            found.setdefault(source.parent.resolve() / source.name, source.name)
        elif source.is_dir():
            inside = [path.relative_to(source) for path in source.rglob("*")]
            vectors = {x.parent for x in inside if x.name == MANIFEST and len(x.parts) > 1}
            paths = (x for x in inside if x.suffix.lower() in kinds and vectors.isdisjoint(x.parents))
            visible = (x for x in paths if not any(part.startswith((".", "_")) for part in x.parts))
            for path in sorted(x for x in visible if (source / x).is_file()):
                found.setdefault(source.resolve() / path, str(path))
        else:
            raise FileNotFoundError(f"{source} is neither a file nor a folder.")
    if out is not None:
        out = out.resolve()
        found = {path: name for path, name in found.items() if not path.is_relative_to(out)}
    if not found:
        raise ValueError(f"There is nothing to read: no file ends with {', '.join(kinds)}.")
    return [File(str(path), printable(name)) for path, name in distinct_names(found).items()]


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


def make_shards(files: Sequence[File], columns: Columns, shard_bytes: int) -> list[Shard]:
    """
    Split a corpus into shards of about `shard_bytes` bytes of text. The same files always give the same shards.

    Raises:
        ValueError: if a Parquet file has no column of strings named `columns.text`.
    """
    shards, texts, size = [], [], 0
    for file in files:
        path = Path(file.path)
        suffix = path.suffix.lower()
        if suffix in PARQUET:
            shards += [Shard((file,), *rows) for rows in rows_of_shards(path, columns, shard_bytes)]
        elif suffix in LINES:
            end = path.stat().st_size
            borders = [*range(0, end, shard_bytes), end]
            shards += [Shard((file,), *pair) for pair in zip(borders, borders[1:], strict=False)]
        else:
            texts.append(file)
            size += path.stat().st_size
            if size >= shard_bytes:
                shards.append(Shard(tuple(texts)))
                texts, size = [], 0
    return [*shards, Shard(tuple(texts))] if texts else shards


def rows_of_shards(path: Path, columns: Columns, shard_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield the first row of each shard of a Parquet file and the one behind its last, within one row group."""
    with pq.ParquetFile(path) as file:
        schema, about = file.schema_arrow, file.metadata
        if columns.text not in schema.names or not is_text(schema.field(columns.text).type):
            raise ValueError(
                f"{path} has no texts {columns.text!r}; it has {', '.join(schema.names)}: give --text_column."
            )
        number = schema.names.index(columns.text) if len(schema.names) == about.num_columns else None
        first = 0
        for group in map(about.row_group, range(about.num_row_groups)):
            size = group.total_byte_size if number is None else group.column(number).total_uncompressed_size
            step = max(1, shard_bytes * group.num_rows // max(1, size))
            for begin in range(0, group.num_rows, step):
                yield first + begin, first + min(begin + step, group.num_rows)
            first += group.num_rows


def is_text(kind: pa.DataType) -> bool:
    """Return whether values of a type are strings."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def read_shard(shard: Shard, columns: Columns) -> Iterator[Text]:
    """
    Yield the texts of a shard, without blank ones. A text without an id gets the name of its file, followed by its row
    (Parquet) or the byte at which its line begins (JSONL). Single surrogates become U+FFFD.

    Raises:
        ValueError: if a line of JSONL is not an object with a text, or a file is not a text file.
    """
    for file in shard.files:
        path = Path(file.path)
        suffix = path.suffix.lower()
        if suffix in PARQUET:
            texts = rows_of_parquet(path, shard, columns)
        elif suffix in LINES:
            texts = lines_of_jsonl(path, shard, columns)
        else:
            text = read_text(path)
            texts = [(None, {columns.text: text, columns.name: name_of(text, path)})]
        for place, fields in texts:
            text, own, name = (
                None if (value := fields.get(column)) is None else without_surrogates(str(value)) for column in columns
            )
            if (text or "").strip():
                default = file.name + ("" if place is None else f":{place}")
                yield Text(default if own is None else own, name, text)


def rows_of_parquet(path: Path, shard: Shard, columns: Columns) -> Iterator[tuple[int, dict]]:
    with pq.ParquetFile(path) as file:
        first = group = 0
        while first + file.metadata.row_group(group).num_rows <= shard.first:
            first += file.metadata.row_group(group).num_rows
            group += 1
        present = [name for name in columns if name in file.schema_arrow.names]
        table = file.read_row_group(group, columns=present).slice(shard.first - first, shard.end - shard.first)
    yield from enumerate(table.to_pylist(), start=shard.first)


def lines_of_jsonl(path: Path, shard: Shard, columns: Columns) -> Iterator[tuple[int, dict]]:
    """Yield the objects in lines that begin in a shard, each with the byte at which its line begins."""
    with path.open("rb") as file:
        if shard.first:
            file.seek(shard.first - 1)
            file.readline()  # the end of a line of the shard before
        while (place := file.tell()) < shard.end:
            line = file.readline()
            if not line.strip():
                continue
            try:
                fields = json.loads(line)
                if not isinstance(fields[columns.text], str | None):
                    raise TypeError("it is no text")
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(
                    f"{path}, byte {place}: give a JSON object with a text {columns.text!r} (--text_column) in each "
                    f"line; got {line[:80]!r}."
                ) from error
            yield place, fields
