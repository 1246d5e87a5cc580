# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The machine of each table."""

from reports.registry import TABLES, Read, table


@table("machines")
def machines(read: Read) -> str:
    """A line for each machine, version and day, with the names of the tables."""
    found = {}
    for name in sorted({name for shown in TABLES.values() for name in shown.csv}):
        for row in read(name):
            about = f"{row['cpu']} ({row['capability']}), Python {row['python']}, torch {row['torch']}"
            found.setdefault(f"{about}, transformers {row['transformers']}, {row['day']}", {})[name] = None
    return "\n".join(f"- {about}: {', '.join(names)}" for about, names in sorted(found.items()))
