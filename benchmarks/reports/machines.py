# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The machine of each table."""

from collections import defaultdict

from reports.registry import TABLES, Read, table


@table("machines")
def machines(read: Read) -> str:
    """A line for each machine and versions, with the first and the last day, and the names of the tables."""
    names, days = defaultdict(dict), defaultdict(set)
    for name in sorted({name for shown in TABLES.values() for name in shown.csv}):
        for row in read(name):
            about = f"{row['cpu']} ({row['capability']}), Python {row['python']}, torch {row['torch']}"
            about += f", transformers {row['transformers']}"
            names[about][name] = None
            days[about].add(row["day"])
    lines = []
    for about, of_table in sorted(names.items()):
        span = " to ".join(sorted({min(days[about]), max(days[about])}))
        lines.append(f"- {about}, {span}: {', '.join(of_table)}")
    return "\n".join(lines)
