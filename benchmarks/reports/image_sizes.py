# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The table of `bench_image_sizes.py`: a ViT and its linear forms on images larger than in training."""

from collections import defaultdict

from measure import latest

from reports.cells import duration, markdown_table, mean_std
from reports.registry import Read, table


@table("image sizes", csv="image_sizes")
def image_sizes(read: Read) -> str:
    cells = defaultdict(list)
    for row in latest(read("image_sizes"), "seed", "settings", "model", "patches").values():
        cells[row["model"], row["patches"]].append(row)
    lines = []
    for (model, patches), rows in sorted(cells.items(), key=lambda x: x[0][1]):
        mean = lambda name, rows=rows: sum(row[name] for row in rows) / len(rows)
        vit = cells["ViT", patches]
        accuracy = mean_std([100 * row["test_accuracy"] for row in rows], 1)
        error = f" ({100 * mean('accuracy_error'):.1f})" * (len(rows) == 1)
        ratio = mean("median") / (sum(row["median"] for row in vit) / len(vit))
        same = f"{100 * mean('same_as_vit'):.0f}"
        size = f"{patches} × {patches} ({rows[0]['tokens']:,})"
        lines.append([model, size, accuracy + error, same, duration(mean("median")), f"{ratio:.2f}"])
    titles = [
        "",
        "patches (tokens)",
        "test %",
        "same label as the ViT, %",
        "time of a picture",
        "÷ the ViT at that size",
    ]
    return markdown_table(titles, lines) if lines else ""
