# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
How long heads should remember before training: LION-D and -S trained from several initial decays, all else equal.

    python benchmarks/bench_decays.py                # all four tasks: two hours on a CPU core
    python benchmarks/bench_decays.py --tasks mlm    # one: half an hour

Tasks, sizes and trainings are those of `bench_quality.py`, scale cpu, and so is the way to go on after a stop: each
training leaves a JSON file. `results.md` is the table, of the tasks that were asked for. Its accuracies are those of
the validation split: a default chosen by them leaves the test split for the comparison with other models.
"""

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import patch

import torch
from bench_quality import ROOT, SCALES, check_tasks, load_data, mean_std, models_of, run_path, score, table, train_once

from modeling_lion import LionConfig, modeling_lion
from modeling_lion.mixer_decay import initial_decay_logits


def normal(config: LionConfig) -> torch.Tensor:
    """As in the published code: N(0, 1), a half-life of one token for the median head."""
    return torch.randn(config.num_scans * config.num_attention_heads)


# Of half-lives in tokens; the first is the default. Another one has to be no worse on any task, and better on one.
INITIAL_DECAYS: dict[str, Callable[[LionConfig], torch.Tensor]] = {
    "half a token to the context": initial_decay_logits,
    "1 token to the context": partial(initial_decay_logits, shortest_half_life=1),
    "4 tokens to the context": partial(initial_decay_logits, shortest_half_life=4),
    "1 token to a quarter of the context": partial(initial_decay_logits, shortest_half_life=1, contexts=1 / 4),
    "4 tokens to a quarter of the context": partial(initial_decay_logits, shortest_half_life=4, contexts=1 / 4),
    "16 tokens to 4 contexts": partial(initial_decay_logits, shortest_half_life=16, contexts=4),
    "normal logits": normal,
}
MODELS = ("LION-D", "LION-S")


def main(args: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default="cpu")
    parser.add_argument("--tasks", nargs="+", help="not given: all of the scale")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--output_dir", type=Path, default=Path(__file__).parent / "results" / "initial_decays")
    parser.add_argument("--cache_dir", type=Path, default=ROOT / "outputs" / "quality_cache", help="prepared data")
    args = parser.parse_args(args)
    tasks = args.tasks or list(SCALES[args.scale])
    check_tasks(parser, args.scale, tasks)
    columns: dict[str, list[list[float]]] = {}
    for task in tasks:
        experiment = SCALES[args.scale][task]
        data = load_data(task, experiment, args.cache_dir)
        for model in models_of(data, args.models):
            column = columns[f"{model}, {task}, {'loss' if task == 'mlm' else '%'}"] = []
            for name, initial in INITIAL_DECAYS.items():
                column.append([])
                for seed in args.seeds:
                    path = run_path(args.output_dir, task, f"{model}_{name.replace(' ', '-')}", seed)
                    with patch.object(modeling_lion, "initial_decay_logits", initial):
                        about = {"task": task, "initial_decays": name}
                        result = train_once(path, name, model, seed, experiment, data, args.cache_dir, about)
                    column[-1].append(score(task, result, "validation"))
                print(f"    {name}: {statistics.mean(column[-1]):.3f}", flush=True)
    rows = [
        [name, *(mean_std(scores, 2 if "loss" in column else 1) for column, scores in zip(columns, row, strict=True))]
        for name, *row in zip(INITIAL_DECAYS, *columns.values(), strict=True)
    ]
    text = "\n".join(table(["initial half-lives of the heads", *columns], rows))
    (args.output_dir / "results.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
