# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Cells, Markdown tables and axes."""

import math
import statistics
from collections.abc import Iterable

from reports.names import COLORS, NOTE


WIDE = 20  # points of accuracy: a standard deviation above it hides that seeds are of two kinds


def base_of(name: str) -> str:
    """The model of which a contestant of the stage "one change" is a variant."""
    return name.partition(",")[0]


def of_last_choice(rows: list[dict]) -> list[dict]:
    """
    Rows of searches without seeds of an earlier choice, which further trials have replaced: that of equal steps counts
    for all stages, and for a change of a model that of the model itself.
    """

    def model(row: dict) -> tuple[str, str]:
        name = row["contestant"]
        return row["task"], base_of(name) if row["stage"] == "one change" else name

    choices = {(*model(row), row["stage"]): row["trial"] for row in rows if row["stage"] != "trial"}
    of = lambda row: choices.get((*model(row), "equal steps"), choices.get((*model(row), row["stage"])))
    return [row for row in rows if row["stage"] == "trial" or row["trial"] == of(row)]


def numbers(values: Iterable[float | None]) -> list[float]:
    """The values that are numbers: a training may have diverged."""
    return [x for x in values if x is not None and not math.isnan(x)]


def mean_std(values: Iterable[float | None], digits: int) -> str:
    """Mean ± standard deviation of the values that are numbers."""
    values = numbers(values)
    if not values:
        return ""
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{spread}"


def is_wide(scores: Iterable[float | None]) -> bool:
    """Whether accuracies differ so much that some seeds learnt the task and others did not."""
    scores = numbers(scores)
    return len(scores) > 1 and statistics.stdev(scores) > WIDE


def score_cell(scores: Iterable[float | None]) -> str:
    """Mean and standard deviation of accuracies in per cent, or all, if `is_wide`."""
    scores = numbers(scores)
    return ", ".join(f"{x:.1f}" for x in sorted(scores)) if is_wide(scores) else mean_std(scores, 1)


def about_means(cells: Iterable[Iterable[float | None]]) -> str:
    """A note on a table of `mean_std`, from the scores of each cell: a sentence without its full stop."""
    text, counts = "One seed", {len(numbers(scores)) for scores in cells}
    if several := sorted(counts - {0, 1}):
        low, high = several[0], several[-1]
        text = f"Mean ± standard deviation of {low if low == high else f'{low} to {high}'} seeds"
        text += ", or one seed" * (1 in counts)
    return text


def about_cells(cells: Iterable[Iterable[float | None]]) -> str:
    """A note on a table of `score_cell`, as `about_means`."""
    cells = [numbers(scores) for scores in cells]
    return about_means(cells) + f"; each seed where the deviation is above {WIDE} points" * any(map(is_wide, cells))


def duration(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def number(x: float | None, form: str = ".2f") -> str:
    return "–" if x is None else format(x, form)


def short(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio >= 0.0995 else f"{ratio:.3f}"


def markdown_table(header: list[str], rows: list[list[str]]) -> str:
    first, *lines = ("| " + " | ".join(row) + " |" for row in (header, *rows))
    return "\n".join([first, "|" + "---|" * len(header), *lines])


def print_table(header: list[str], rows: list[list[str]]) -> None:
    print(markdown_table(header, rows))


def grid(rows: dict[str, dict[str, str]], corner: str = "") -> str:
    """A Markdown table of cells by row and column, in the order in which these first come."""
    columns = list(dict.fromkeys(column for cells in rows.values() for column in cells))
    lines = [[name, *(cells.get(column, "") for column in columns)] for name, cells in rows.items()]
    return markdown_table([corner, *columns], lines) if rows else ""


def panel(axis, title: str, xlabel: str, ylabel: str, ticks: list[int], legend: str = "") -> None:
    axis.set(title=title, xlabel=xlabel, ylabel=ylabel)
    axis.set_xticks(ticks, [f"{n:,}" for n in ticks], rotation=45 if len(ticks) > 5 else 0)
    axis.minorticks_off()
    axis.grid(alpha=0.25)
    if legend and axis.lines:
        axis.legend(loc=legend, fontsize=8)


def medians(rows: list[dict], length: str = "length") -> str:
    """A note on times of a figure, and from which length on some are of one run: its minimum is its maximum."""
    single = [row[length] for row in rows if row["min"] == row["max"]]
    return "medians" + (f", some of one run from {min(single):,} tokens on" if single else "")


def footnote(figure, rows: list[dict], text: str) -> None:
    """Below a figure: the threads and CPUs of its rows, and a text."""
    count = lambda n: {1: "one thread", 2: "two threads"}.get(n, f"{n} threads")
    of = sorted({f"{count(row['threads'])} of {row['cpu']} ({row['capability']})" for row in rows})
    figure.supxlabel(f"{' and '.join(of)}; {text}", x=0.995, ha="right", fontsize=8, color=NOTE)


def in_order(models: Iterable[str]) -> list[str]:
    """In the order of the palette, with models of one's own behind it."""
    models = dict.fromkeys(models)
    return [*(name for name in COLORS if name in models), *(name for name in models if name not in COLORS)]
