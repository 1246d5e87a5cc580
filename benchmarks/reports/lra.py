# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The table of `bench_lra.py`: tasks after the Long Range Arena, in small."""

from reports.paired import about_trials
from reports.real import by_stage, marks_of, score_tables, step_ratios, trainings, with_same_time
from reports.registry import Read, table


REFERENCE = "softmax (rotary)"
TASKS = {
    "listops": "ListOps, test %",
    "pathfinder": "Pathfinder 16 × 16, test %",
    "pathfinder32": "Pathfinder 32 × 32, test %",
    "text": "text, test %",
    "retrieval": "retrieval, test %",
}


@table("lra", csv=("lra", "lra_speed"))
def lra(read: Read) -> str:
    rows = trainings(read, "lra")
    ratios = step_ratios(read("lra_speed"), TASKS)
    scores = with_same_time(by_stage(rows, TASKS, "test_accuracy"), ratios)
    chances = {TASKS[row["task"]]: row["chance"] for row in rows if row["task"] in TASKS}
    marks, trials = marks_of(rows, TASKS), about_trials(rows, TASKS)
    text = score_tables(scores, ratios, marks, trials, REFERENCE, [], {}, REFERENCE)
    told = ", ".join(f"{x.split(', ')[0]} {100 * chances[x]:.1f} %" for x in TASKS.values() if x in chances)
    return f"{text}\n\nThe most frequent answer alone: {told}." if text else ""
