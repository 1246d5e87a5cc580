# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What `bench_transfer.py` found: teachers and converted models, trained further."""

import math
import statistics
from collections import defaultdict

import numpy as np
from measure import latest

from reports.cells import grid, mean_std
from reports.registry import Read, table
from reports.search import best_trial


BEFORE = ", before"  # the further training


def pack_bits(right: np.ndarray) -> str:
    """Yes or no for every test example, as one cell of a table, which is never read as a number."""
    return f"x{np.packbits(right).tobytes().hex()}"


def unpack_bits(cell: str, count: int) -> np.ndarray:
    return np.unpackbits(np.frombuffer(bytes.fromhex(cell[1:]), np.uint8), count=count)


def best_rate(rows: list[dict]) -> float:
    """The learning rate with which a model was best on the validation split, of the trainings of the first seed."""
    first = min(row["seed"] for row in rows)
    return best_trial([row for row in rows if row["seed"] == first])["learning_rate"]


def transfer_rows(read: Read) -> dict[str, dict[str, dict[int, dict]]]:
    """Rows by task, by model with its stage, and by seed, with the best learning rate."""
    groups, rows = defaultdict(list), read("transfer")
    newest = latest(rows, "task", "model")
    rows = [row for row in rows if row["weights"] == newest[row["task"], row["model"]]["weights"]]
    for row in latest(rows, "task", "model", "learning_rate", "seed").values():
        groups[row["task"], row["model"], row["learning_rate"] > 0].append(row)
    found = defaultdict(dict)
    for (task, model, is_trained), rows in sorted(groups.items(), key=lambda item: item[0][2]):
        rate = best_rate(rows)
        of_seed = {row["seed"]: row for row in rows if row["learning_rate"] == rate}
        found[task][model if is_trained else f"{model}{BEFORE}"] = of_seed
    return found


@table("transfer", csv="transfer")
def transfer(read: Read) -> str:
    tables = []
    for task, models in transfer_rows(read).items():
        rows = {}
        for model, of_seed in models.items():
            accuracies = [100 * row["test_accuracy"] for row in of_seed.values()]
            losses = [row["test_loss"] for row in of_seed.values()]
            rows[model] = {
                "test accuracy, %": mean_std(accuracies, 1),
                "points from the teacher": "",
                "test loss": mean_std(losses, 3),
            }
            teacher = models.get(f"teacher{BEFORE}" if model.endswith(BEFORE) else "teacher", {})
            if not model.startswith("teacher") and of_seed.keys() <= teacher.keys():
                gain, error = difference(of_seed, teacher)
                rows[model]["points from the teacher"] = f"{gain:+.1f}" + (f" ± {error:.1f}" if error else "")
        tables.append(grid(rows, task))
    return "\n\n".join(tables)


def difference(ours: dict[int, dict], theirs: dict[int, dict]) -> tuple[float, float | None]:
    """
    Points of accuracy by which one model is ahead in the seeds of the first one, and the standard error of that over
    the test examples, of each of which the mean over the seeds is taken; `None` if single examples are not known.
    """
    points = [100 * (row["test_accuracy"] - theirs[seed]["test_accuracy"]) for seed, row in ours.items()]
    if any(row["right"] is None for row in ours.values()):
        return statistics.mean(points), None
    bits = lambda row: unpack_bits(row["right"], row["test_examples"]).astype(float)
    by_example = np.mean([bits(row) - bits(theirs[seed]) for seed, row in ours.items()], axis=0)
    return statistics.mean(points), 100 * float(by_example.std()) / math.sqrt(len(by_example))
