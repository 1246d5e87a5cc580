# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Tasks after the Long Range Arena (Tay et al., arXiv 2011.04006), in small: one label for a sequence.

    python benchmarks/bench_lra.py --tasks listops pathfinder    # generated: no data is fetched
    python benchmarks/bench_lra.py --tasks text retrieval        # bytes of manuals (tasks/real_data.py fetches them)
    python benchmarks/bench_lra.py --tasks pathfinder --contestants LION-D --mixers retention.py --output_dir mine
    python benchmarks/bench_lra.py --scale gpu                   # the arena's lengths
    python benchmarks/bench_lra.py --quick

The arena has ListOps of 500 to 2,000 symbols, texts of 4,000 bytes, pairs of 4,000 bytes each and images of 32 × 32
pixels, and trainings of 5,000 to 62,000 steps. On a CPU core, sequences have 256 to 1,024 tokens, and trainings 600 to
1,500 steps; the data of `text` and `retrieval` is ours. Scores are therefore no scores of the arena.

The protocol is in rate_search.py: all models have one shape, and the learning rate is searched. Sequences are pooled
by the mean, and softmax has learnt or rotary positions. Every training is a row of lra.csv and is not repeated.
"""

from argparse import Namespace
from collections import Counter
from dataclasses import replace
from pathlib import Path

import torch
from bench_search import STAGES
from rate_search import RateSearch, chosen_contestants, rate_arguments, run_search
from report import begin_run, write_pages
from reports.lra import REFERENCE
from tasks.byte_texts import VOCAB_SIZE, retrieval_splits, text_splits
from tasks.generated import OF_SEQUENCES, PAD_ID, load_task
from tasks.real_data import digest, prepare
from training_lion.scripts.training import accuracy
from trainings import Data, Experiment, chosen_tasks, pad_with_labels, sizes

from modeling_lion import LionForSequenceClassification


CONTESTANTS = (
    *("softmax (rotary)", "softmax", "LION-LIT", "LION-D", "LION-S", "LION", "LION-Delta", "Luna"),
    *("local mean", "GLA", "Hydra", "two Mamba-2"),
)
OF_BYTES = {"text": text_splits, "retrieval": retrieval_splits}
# The generator of each task.
GENERATED = {"listops": "listops", "pathfinder": "pathfinder", "pathfinder32": "pathfinder"}
CPU, GPU, QUICK = sizes(64, 2, 4), sizes(256, 6, 4), sizes(32, 2, 4, intermediate_size=256)
LARGE = {"length": 1_024, "dashes": 9, "shorter": 3}
SCALES = {
    "cpu": {
        "listops": Experiment({"length": 256, "shortest": 64}, CPU, 1_000),
        "pathfinder": Experiment({"length": 256}, CPU, 1_500),
        "pathfinder32": Experiment(LARGE, CPU, 1_000, 16),
        "text": Experiment({"length": 1_024}, CPU, 600, 16, examples=1_000),
        "retrieval": Experiment({"length": 1_024}, CPU, 600, 16, examples=4_000),
    },
    "gpu": {
        "listops": Experiment({"length": 2_000, "shortest": 500}, GPU, 20_000, examples=96_000),
        "pathfinder": Experiment({"length": 256}, GPU, 20_000, 128, examples=160_000),
        "pathfinder32": Experiment(LARGE, GPU, 60_000, 128, examples=160_000),
        "text": Experiment({"length": 4_096}, GPU, 10_000, examples=10**5),
        "retrieval": Experiment({"length": 8_193}, GPU, 10_000, examples=10**5),
    },
    "quick": {
        "listops": Experiment({"length": 30, "shortest": 6}, QUICK, 3, 4, examples=40),
        "pathfinder": Experiment({"length": 144, "dashes": 3}, QUICK, 3, 4, examples=40),
    },
}


def collate(rows: list[dict]) -> dict[str, torch.Tensor]:
    """A batch of sequences with one label each."""
    padded = pad_with_labels(rows)
    return padded | {"labels": padded["labels"].squeeze(1)}


def load_data(task: str, experiment: Experiment, cache_dir: Path, folder: Path | None = None) -> Data:
    """
    The data that trainings.py trains with.

    Args:
        folder: of `real_data.prepare`, for tasks of bytes.
    """
    length = experiment.task["length"]
    if folder is None:
        made = OF_SEQUENCES[GENERATED[task]](**experiment.task)
        held_out = max(experiment.examples // 10, 20)
        counts = {"train": experiment.examples, "validation": held_out, "test": held_out}
        splits, labels, vocab_size = load_task(made, counts, str(cache_dir)), made.num_labels, made.vocab_size
    else:
        splits, labels = OF_BYTES[task](folder, length, experiment.examples)
        vocab_size = VOCAB_SIZE
    config = {"vocab_size": vocab_size, "max_position_embeddings": length, "pad_token_id": PAD_ID}
    config |= {"num_labels": labels, "pooling": "mean"}
    answers = Counter(x for row in splits["test"]["labels"] for x in row)
    chance = max(answers.values()) / answers.total()
    return Data(LionForSequenceClassification, config, splits, collate, {"compute_metrics": accuracy}, chance=chance)


class LraSearch(RateSearch):
    table = "lra"
    time_of = REFERENCE  # from which differences are told, too
    program = "bench_lra.py"


def make_search(task: str, args: Namespace) -> LraSearch:
    """The search of a task; texts are fetched for those of bytes."""
    experiment, folder = SCALES[args.scale][task], None
    if task in OF_BYTES:
        folder = prepare(args.data, args.archives)
        data = load_data(task, experiment, args.cache_dir, folder)
        experiment = replace(experiment, task=experiment.task | {"data": digest(folder, "documents")})
    else:
        data = load_data(task, experiment, args.cache_dir)
    return LraSearch(task, experiment, data, args)


def main(args: list[str] | None = None) -> None:
    parser = rate_arguments(__doc__, SCALES, list(CONTESTANTS))
    parser.set_defaults(stages=STAGES[:1])
    args = parser.parse_args(args)
    contestants = chosen_contestants(parser, args, list(CONTESTANTS))
    tasks = chosen_tasks(parser, args, SCALES)
    begin_run(args)
    for task in tasks:
        run_search(make_search(task, args), contestants, args)
    write_pages(args.output_dir, args.scale)


if __name__ == "__main__":
    main()
