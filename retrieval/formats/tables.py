# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Tables, records and notebooks: .csv, .tsv, .json, .jsonl and .ipynb."""

import csv
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from .code import read_lines
from .junk import check_text
from .section import HEADINGS, LONGEST, SHORTEST, Section, SkippedFile, decode


MOST_CELL = 10_000_000  # characters
SEPARATORS = ",;\t|"
NUMBERS = re.compile(r"[\d\s.,:;eE+\-/%()]*")
NUMBER = re.compile(rf"(?=[^\deE]*\d){NUMBERS.pattern}")  # with a digit before any letter
FEW_NUMBERS = 100  # characters; longer lists of numbers are no text
LONGEST_WORD = 300  # characters; longer ones are encoded data
HEADING = re.compile(r"^(#{1,6}) +(\S.*?) *#*$", re.MULTILINE)


def read_csv(data: bytes, file: str) -> Iterator[Section]:
    """
    Yield the rows of a table, several short ones at once. Each row is a line, with the names of the columns if the
    first row that is not empty has them. The separator is the most frequent one in that line.

    Raises:
        SkippedFile: if there are only numbers.
    """
    text = decode(data, file).replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")
    separator = max(SEPARATORS, key=text.lstrip().partition("\n")[0].count)
    csv.field_size_limit(max(csv.field_size_limit(), MOST_CELL))
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    numbers = re.compile(NUMBERS.pattern.replace(";", f";{re.escape(separator)}"))
    if all(numbers.fullmatch(line) for line in lines[1:1000]) and len(lines) > 1:
        raise SkippedFile("only numbers", f"{file} has only numbers.")
    rows = csv.reader(lines, delimiter=separator)
    first = next((row for row in rows if any(map(str.strip, row))), [])
    is_full = len(first) > 1 and 2 * sum(map(bool, map(str.strip, first))) >= len(first)
    has_names = len(lines) > 1 and is_full and not any(map(NUMBER.fullmatch, first))
    return joined(rows_of(rows, [] if has_names else [""] * len(first), first))


def rows_of(rows: Any, names: list[str], first: list[str]) -> Iterator[tuple[int, str]]:
    """Yield the first line and the text of each row of a reader of `csv`."""
    if names:
        yield 1, on_one_line(" | ".join(first))
    end = rows.line_num
    for row in rows:
        if names:
            text = " | ".join(filter(str.strip, row))
        else:
            pairs = zip(first, row, strict=False)
            named = [f"{name}: {cell}" if name.strip() else cell for name, cell in pairs if cell.strip()]
            text = "; ".join([*named, *filter(str.strip, row[len(first) :])])  # cells beyond the columns have no name
        yield end + 1, on_one_line(text)
        end = rows.line_num


def joined(parts: Iterable[tuple[int | str, str]]) -> Iterator[Section]:
    """Join texts, at places, into sections of at least `SHORTEST` characters. Lines are joined if none is between."""
    texts: list[str] = []
    begin: int | str = 0
    size = 0
    for place, text in parts:
        has_gap = isinstance(begin, int) and place != begin + len(texts)
        if texts and (size >= SHORTEST or size + len(text) > LONGEST or has_gap):
            yield Section("\n".join(texts), begin)
            texts, size = [], 0
        begin = begin if texts else place
        texts.append(text)
        size += len(text)
    if texts:
        yield Section("\n".join(texts), begin)


def on_one_line(text: str) -> str:
    return " ".join(text.split())


def read_jsonl(data: bytes, file: str) -> Iterator[Section]:
    """
    Yield the values in lines of JSON, several short ones at once. A line that is no JSON, as the last one of a log may
    be, is read as it is. If the first one is none, the file is read by its lines.
    """
    lines = [(n, line) for n, line in enumerate(decode(data, file).split("\n"), 1) if line.strip()]
    try:
        json.loads(next((line for _, line in lines), "0"))
    except ValueError:
        check_text(data, file, is_by_lines=True)
        return read_lines(data, file)
    return joined((n, on_one_line(flat(value_or_text(line)))) for n, line in lines)


def value_or_text(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return line


def read_json(data: bytes, file: str) -> Iterator[Section]:
    """
    Yield the values of a file of JSON, several short ones at once. Their places are paths, as `users[3].name`. Lines
    of JSON are read as such, and other files, as those with comments, by their lines.
    """
    try:
        value = json.loads(decode(data, file))
    except ValueError:
        return read_jsonl(data, file)
    return joined(pieces(value, ""))


def pieces(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a value that are as large as possible with up to `LONGEST` characters, and their paths."""
    text = flat(value)
    if len(text) <= LONGEST or not isinstance(value, dict | list):
        if text.strip():
            yield path, value if isinstance(value, str) else text
    elif isinstance(value, dict):
        for key, child in value.items():
            for place, piece in pieces(child, f"{path}.{key}" if path else key):
                yield place, piece if isinstance(child, dict | list) else f"{key}: {piece}"
    else:
        for n, child in enumerate(value):
            yield from pieces(child, f"{path}[{n}]")


def flat(value: Any) -> str:
    """Write a value of JSON in one line, without long lists of numbers and encoded data."""
    if isinstance(value, dict):
        found = [(key, flat(child)) for key, child in value.items()]
        return "; ".join(f"{key}: {text}" for key, text in found if text)
    if isinstance(value, list):
        text = ", ".join(filter(None, map(flat, value)))
        return "" if len(text) > FEW_NUMBERS and NUMBERS.fullmatch(text) else text
    if isinstance(value, str):
        return " ".join(word for word in value.split() if len(word) <= LONGEST_WORD)
    return "" if value is None else str(value)


def read_notebook(data: bytes, file: str) -> Iterator[Section]:
    """Yield the cells of a Jupyter notebook, named by the headings above. Outputs are left out."""
    notebook = json.loads(decode(data, file))
    cells = notebook["cells"] if "cells" in notebook else [x for y in notebook["worksheets"] for x in y["cells"]]
    path: list[tuple[int, str]] = []
    for n, cell in enumerate(cells, 1):
        source = cell.get("source", cell.get("input", ""))
        text = source if isinstance(source, str) else "".join(source)
        if cell["cell_type"] == "markdown":
            for signs, heading in HEADING.findall(text):
                path = [*(above for above in path if above[0] < len(signs)), (len(signs), heading)]
        if text.strip() and cell["cell_type"] != "raw":
            yield Section(text, f"cell {n}", HEADINGS.join(heading for _, heading in path) or None)
