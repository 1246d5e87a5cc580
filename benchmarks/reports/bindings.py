# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""A table of `bench_bindings.py`: what names in code refer to, by the distance to where they are bound."""

from collections import defaultdict
from statistics import fmean

from measure import latest

from reports.cells import markdown_table, mean_std
from reports.registry import Read, table


ALL = (None, None)  # of all labels, in place of a range of distances
NAME_ALONE = "the name alone"


def title(low: int | None, high: int | None) -> str:
    """Name the column of a range of distances; `None` for both stands for all labels."""
    if low is None:
        return "all labels"
    return f"< {high:,} tokens" if not low else f"{low:,} to {high:,}" if high < 10**9 else f"≥ {low:,}"


def key(row: dict) -> tuple[str, int, int]:
    """
    Return the encoder, "" for models from scratch, the most files of a package that a training had, and the length of
    texts, for which there is one table.
    """
    return row["encoder"] or "", row["files"], row["tokens"]


def mean_cell(rows: list[dict], cost: str, unit: float, digits: int) -> str:
    """Write the mean of a cost, empty if no row has it."""
    known = [row[cost] for row in rows if row[cost]]
    return f"{fmean(known) / unit:.{digits}f}" if known else ""


def cell(rows: list[dict]) -> str:
    """In per cent: the standard deviation over seeds, or for one seed the standard error over files in brackets."""
    if len(rows) > 1:
        return mean_std([100 * row["accuracy"] for row in rows], 1)
    return f"{100 * rows[0]['accuracy']:.1f} ({100 * rows[0]['accuracy_error']:.1f})"


@table("bindings", csv="bindings", shown="^(?!.*(pieces of 256|pieces of 512, 10 .*trained on|30 × the steps))")
def bindings(read: Read) -> str:
    """Markdown tables, of trainings from scratch and of encoders, for each length of texts; a row for each model."""
    tables = []
    rows = latest(
        [row | ({"trained_tokens": None} if row["model"] == NAME_ALONE else {}) for row in read("bindings")],
        "encoder",
        "files",
        "trained_tokens",
        "tokens",
        "model",
        "times",
        "seed",
        "min_distance",
        "max_distance",
    )
    keys = sorted({key(row) for row in rows.values()})
    for encoder, files, tokens in keys:
        of_length = [row for row in rows.values() if key(row) == (encoder, files, tokens)]
        ranges = sorted({(row["min_distance"], row["max_distance"]) for row in of_length}, key=lambda x: x[0] or -1)
        ranges = sorted({*ranges} - {ALL}) + [ALL]
        models = defaultdict(lambda: defaultdict(list))
        for row in of_length:
            model = row["model"], row["trained_tokens"], row["times"]
            models[model][row["min_distance"], row["max_distance"]].append(row)
        counts = {(row["min_distance"], row["max_distance"]): row["names"] for row in of_length}
        costs = [cost for cost in COSTS if any(row[cost[0]] for row in of_length)]
        lines = [["labels", "", *(f"{counts[x]:,}" for x in ranges), *[""] * len(costs)]]
        shortest = min(row["trained_tokens"] for row in of_length if row["trained_tokens"])
        for (model, trained_tokens, times), cells in sorted(
            models.items(), key=lambda x: -fmean(row["accuracy"] for row in x[1][ALL])
        ):
            found = cells[ALL]
            name = model + f", {times} × the steps" * (times > 1 and model != NAME_ALONE)
            if trained_tokens not in (None, shortest):
                name += f", trained on {trained_tokens:,} tokens"
            seeds = "" if model == NAME_ALONE else str(len(found))
            means = [mean_cell(found, *cost[:3]) for cost in costs]
            lines.append([name, seeds, *(cell(cells[x]) for x in ranges), *means])
        fewest = min(x[1] for x in keys if x[0] == encoder)
        of_files = "" if files == fewest else f", up to {files} files of a package"
        titles = [
            f"{encoder}{', ' if encoder else ''}{tokens:,} tokens{of_files}, test %",
            "seeds",
            *(title(*x) for x in ranges),
            *(x[-1] for x in costs),
        ]
        tables.append(markdown_table(titles, lines))
    return "\n\n".join(tables)


COSTS = (
    ("train_cpu_seconds", 60, 1, "training, CPU minutes"),
    ("memory_bytes", 2**30, 2, "memory of the training, GiB"),
)
