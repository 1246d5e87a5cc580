# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Results of the paper and of the authors' blog, as they were published."""

from reports.cells import grid
from reports.registry import Read, table


@table("published", is_measured=False)
def published(read: Read) -> str:
    rows = read("published")
    return grid({row.pop("model"): {name: "" if x is None else str(x) for name, x in row.items()} for row in rows})
