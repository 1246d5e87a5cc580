# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Sets in the layout in which ConTEB is published (illuin-conteb on the Hub), read from local files.

A set is a folder with two parts, "documents" and "queries": each a folder of Parquet or JSONL files, or one file or
several with that word at the beginning of their names. A folder "test" within a part, or files whose names begin with
it, are taken alone. Columns:

| part | column | contains |
|---|---|---|
| documents | `chunk_id` | the document and the number of the chunk in it, as "rome_12" |
| documents | `chunk` | its text |
| queries | `chunk_id` | the chunk that answers, or a list with it alone |
| queries | `og_query`, `query` or `question` | the text; of several columns the first of these |
"""

from pathlib import Path

from datasets import load_dataset
from training_lion.scripts.passages import Query, SplitDocument


FORMATS = {".parquet": "parquet", ".jsonl": "json", ".json": "json"}
QUERY_COLUMNS = ("og_query", "query", "question")


def files_of(folder: Path, part: str) -> list[Path]:
    """
    The files of a part of a set.

    Raises:
        FileNotFoundError: if there are none.
    """
    found = [x for x in sorted(folder.rglob("*")) if x.suffix in FORMATS]
    found = [x for x in found if any(y.startswith(part) for y in x.relative_to(folder).parts)]
    if not found:
        endings = ", ".join(FORMATS)
        raise FileNotFoundError(f"{folder} has no files ({endings}) in a folder `{part}` or named {part}*.")
    of_test = [x for x in found if any(y.startswith("test") for y in x.relative_to(folder).parts)]
    return of_test or found


def rows_of(folder: Path, part: str, columns: tuple[tuple[str, ...], ...]) -> list[tuple]:
    """
    The rows of a part, with the first column that is there of each group.

    Raises:
        ValueError: if the columns are others.
    """
    files = files_of(folder, part)
    kind = FORMATS[files[0].suffix]
    table = load_dataset(kind, data_files=[str(x) for x in files if FORMATS[x.suffix] == kind], split="train")
    names = [next((x for x in group if x in table.column_names), None) for group in columns]
    for name, group in zip(names, columns, strict=True):
        if name is None:
            raise ValueError(
                f"{files[0]} has the columns {', '.join(table.column_names)}: name one of them {' or '.join(group)}."
            )
    return list(zip(*(table[name] for name in names), strict=True))


def number_of(chunk_id: str, folder: Path) -> tuple[str, int]:
    """The document of a chunk, and the number of the chunk in it."""
    document, _, number = chunk_id.rpartition("_")
    if not document or not number.isdecimal():
        raise ValueError(f"{folder}: the `chunk_id` {chunk_id!r} is not DOCUMENT_NUMBER, as 'rome_12'.")
    return document, int(number)


def read_set(folder: Path) -> tuple[list[SplitDocument], list[Query]]:
    """
    Read a set. Documents have no names, and their chunks are in the order of their numbers.

    Raises:
        FileNotFoundError: if a part is missing.
        ValueError: if columns or ids are others than this file describes, or a query has no answer, or several.
    """
    chunks: dict[str, dict[int, str]] = {}
    for chunk_id, text in rows_of(folder, "documents", (("chunk_id",), ("chunk",))):
        document, number = number_of(str(chunk_id), folder)
        chunks.setdefault(document, {})[number] = " ".join(str(text).split())
    documents = [SplitDocument("", [of_document[n] for n in sorted(of_document)]) for of_document in chunks.values()]
    places = {(name, number): 0 for name, of_document in chunks.items() for number in sorted(of_document)}
    places = {place: n for n, place in enumerate(places)}
    queries = []
    for answer, text in rows_of(folder, "queries", (("chunk_id",), QUERY_COLUMNS)):
        (answer,) = answer if isinstance(answer, list) and len(answer) == 1 else (answer,)
        place = None if isinstance(answer, list) else places.get(number_of(str(answer), folder))
        if place is None:
            raise ValueError(f"{folder}: the query {text!r} has the answer {answer!r}: give the id of one chunk.")
        queries.append(Query(str(text), "", place))
    if not queries:
        raise ValueError(f"{folder} has no queries.")
    return documents, queries
