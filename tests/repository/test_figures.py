# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Figures on the README and the pages are those of the tables of the benchmarks. Behind a figure stands where it is from:

    0.47<!-- = windows; ModernBERT-base, 6 layers, float32, inference; 8,192 tokens -->

the table that benchmarks/reports/ registers, then the row and the column of its table, separated by "; ". The figure
is one of the numbers in that cell. Where the first two columns of a table name the row, so do their cells: "128, torch
float32".
"""

import importlib
import re
from functools import cache
from pathlib import Path


ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FIGURE = re.compile(r"(\.?[\d.,]*\d)[^\d<]{0,12}<!-- = (.*?) -->", re.DOTALL)
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
# Elsewhere are the tables themselves, notes on trainings of which not all have rows, and versions.
TIED_PAGES = [
    ROOT / "README.md",
    *(x for kind in ("start", "guides", "concepts") for x in (ROOT / "docs" / kind).glob("*.md")),
]
VERSIONS = re.compile(
    r"(?:Python|torch|transformers|huggingface_hub|optimum-\w+|itself|SQuAD|version|below|hand) (?:≥ |\()?[\d.]+"
    r"|or 2\.0|\d{4}\.\d{5}|Apache-2\.0"
)


@cache
def block(name: str) -> str:
    report = importlib.import_module("report")
    return report.TABLES[name].make(report.reader(report.RESULTS))


@cache
def cells(name: str) -> dict[tuple[str, str], list[str]]:
    """The cells of all tables of a block, by row and column."""
    found = {}
    for table in re.findall(r"(?:^\|.*\n?)+", block(name), flags=re.MULTILINE):
        header, _, *rows = ([cell.strip() for cell in line[1:-1].split("|")] for line in table.strip().splitlines())
        labels = 2 if header[1] in ("", "variant") else 1
        for row in rows:
            for column, cell in zip(header[labels:], row[labels:], strict=True):
                found.setdefault((", ".join(x for x in row[:labels] if x), column), []).append(cell)
    return found


def figures(text: str) -> list[tuple[str, str]]:
    """Each figure with the place that it is from, on one line."""
    return [(number, " ".join(place.split())) for number, place in FIGURE.findall(text)]


def check(number: str, place: str) -> str | None:
    """What is wrong with a figure."""
    name, row, column = (place.split("; ") + [""])[:3]
    found = cells(name).get((row, column), [])
    if len(found) != 1:
        return f"{place}: {len(found)} cells"
    shown = number.replace(",", "")
    numbers = [x.replace(",", "") for x in NUMBER.findall(found[0])]
    return None if shown in numbers else f"{place}: the page says {number}, the table {found[0]}"


def test_figures_are_those_of_the_tables():
    wrong, count = [], 0
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        found = figures(text)
        count += len(found)
        assert text.count("<!-- = ") == len(found), page  # each stands behind a number
        wrong += [(page.name, what) for number, place in found if (what := check(number, place))]
    assert wrong == [] and count >= 40


def prose(text: str) -> str:
    """Without code, links, comments and generated tables."""
    text = re.sub(r"^```.*?^```$|<!-- begin.*?<!-- end -->", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"<!--.*?-->|`[^`]*`|\]\([^)]*\)", " ", text, flags=re.DOTALL)


def test_decimal_numbers_have_rows():
    tied = {page.name: FIGURE.sub("", page.read_text(encoding="utf-8")) for page in TIED_PAGES}
    numbers = {
        name: re.findall(r"\d+\.\d+", VERSIONS.sub("", " ".join(prose(text).split()))) for name, text in tied.items()
    }
    assert {name: found for name, found in numbers.items() if found} == {}
