# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
How much each test example changes a score: what intervals over examples are made of (reports/paired.py).

The jackknife (Tukey, 1958) gives example e of n the value n θ - (n - 1) θ_e, where θ is the score and θ_e that of the
other examples. Of an accuracy over examples, it is 1 if e is right and else 0; of every score, the mean of the values
is about the score. Of more than `MOST` examples, neighbours are left out together, as one. A table NAME.csv of
trainings has the values in NAME_examples.csv.
"""

import io
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
from measure import append_rows
from transformers import EvalPrediction


KEYS = ("scale", "task", "contestant", "stage", "trial", "seed")  # which tell a training from others
MOST = 2_000  # values of a training
Record = Callable[[np.ndarray], None]  # gets the values of a training


def jackknife_values(
    metrics: Callable[[EvalPrediction], dict[str, float]], name: str, output, most: int = MOST
) -> np.ndarray:
    """
    The value of each example, or of `most` groups of neighbours, in the order of the dataset.

    Args:
        metrics, name: `compute_metrics` of a Trainer, and the one of its metrics that is the score.
        output: has the `predictions` and `label_ids` of at least two examples.
        most: where neighbours belong together, as pieces of one text, so few that they are in one group.
    """

    def score(is_in: np.ndarray) -> float:
        return metrics(EvalPrediction(output.predictions[is_in], output.label_ids[is_in]))[name]

    count = len(output.label_ids)
    is_in = np.ones(count, dtype=bool)
    groups = np.array_split(np.arange(count), min(count, most))
    others = np.empty(len(groups))
    with redirect_stdout(io.StringIO()):  # run_glue.py tells of correlations that are not defined
        of_all = score(is_in)
        for number, group in enumerate(groups):
            is_in[group] = False
            others[number] = score(is_in)
            is_in[group] = True
    return len(groups) * of_all - (len(groups) - 1) * others


def table_of_examples(path: Path) -> Path:
    return path.with_stem(f"{path.stem}_examples")


def append_values(path: Path, case: dict, values: np.ndarray) -> None:
    """Add the values of a training to the table beside that of the trainings, in half precision and compressed."""
    text = b64encode(zlib.compress(values.astype("<f2").tobytes(), 9)).decode()
    append_rows(table_of_examples(path), [{name: case[name] for name in KEYS} | {"jackknife": text}])


def read_values(text: str) -> np.ndarray:
    return np.frombuffer(zlib.decompress(b64decode(text)), "<f2").astype(np.float64)


def with_values(rows: list[dict], of_examples: list[dict]) -> list[dict]:
    """The rows of trainings, with their values as `jackknife` where the table beside theirs has them."""
    if not of_examples:
        return rows
    case = lambda row: tuple(row[name] for name in KEYS)
    texts = {case(row): row["jackknife"] for row in of_examples}
    return [row | {"jackknife": read_values(texts[case(row)])} if case(row) in texts else row for row in rows]
