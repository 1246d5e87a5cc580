# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The table of `bench_image_sizes.py`: a ViT and its linear forms on images larger than in training."""

from collections import defaultdict
from statistics import median

from measure import latest

from reports.cells import duration, grid, mean_std
from reports.registry import Read, table


@table("image sizes", csv="image_sizes")
def image_sizes(read: Read) -> str:
    cells = defaultdict(list)
    for row in latest(read("image_sizes"), "seed", "settings", "model", "patches").values():
        cells[row["model"], row["patches"]].append(row)
    most_frequent = {row["most_frequent"] for rows in cells.values() for row in rows}
    constant = {"tokens": "", "test %": ", ".join(f"{100 * x:.1f}" for x in sorted(most_frequent))}
    table = {"always the most frequent category": constant} if cells else {}
    for (model, patches), rows in sorted(cells.items(), key=lambda x: x[0][1]):
        mean = lambda name, rows=rows: sum(row[name] for row in rows) / len(rows)
        vit = {row["seed"]: row["median"] for row in cells["ViT", patches]}
        error = f" ({100 * mean('accuracy_error'):.1f})" * (len(rows) == 1)
        table[f"{model}, {patches} × {patches}"] = {
            "tokens": f"{rows[0]['tokens']:,}",
            "test %": mean_std([100 * row["test_accuracy"] for row in rows], 1) + error,
            "same label as the ViT, %": f"{100 * mean('same_as_vit'):.0f}",
            "time of a picture": duration(median(row["median"] for row in rows)),
            "÷ the ViT at that size": f"{median(row['median'] / vit[row['seed']] for row in rows):.2f}",
        }
    return grid(table, "patches")
