# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
How long heads should remember before training: LION-D and -S trained from several initial decays, all else equal.

    python benchmarks/bench_decays.py                        # half an hour on a CPU core
    python benchmarks/bench_decays.py --tasks mlm listops    # an hour and a half

Tasks, sizes and trainings are those of `bench_quality.py`, scale cpu, and so is the way to go on after a stop: each
training leaves a JSON file. `results.md` is the table.
"""

import argparse
import statistics
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from unittest.mock import patch

import torch
from bench_quality import ROOT, SCALES, is_done, load_data, mean_std, models_of, read, run_path, score, table, train
from measure import write_json

from modeling_lion import LionConfig, modeling_lion
from modeling_lion.mixer_decay import initial_decay_logits


def spread(shortest: float, context_share: float) -> Callable[[LionConfig], torch.Tensor]:
    """Logits of half-lives spread, on a logarithmic scale, from so many tokens to such a share of the context."""

    def logits(config: LionConfig) -> torch.Tensor:
        ends = torch.tensor([context_share * config.context_length, shortest], dtype=torch.float64).log2().tolist()
        half_life = torch.logspace(*ends, config.num_attention_heads, base=2.0, dtype=torch.float64)
        return torch.logit(torch.exp2(-1 / half_life)).float().repeat(config.num_scans)

    return logits


def normal(config: LionConfig) -> torch.Tensor:
    """As in the published code: N(0, 1), a half-life of one token for the median head."""
    return torch.randn(config.num_scans * config.num_attention_heads)


# Of half-lives in tokens; the first is the default, and any other should have to beat it.
INITIAL_DECAYS: dict[str, Callable[[LionConfig], torch.Tensor]] = {
    "4 tokens to the context": initial_decay_logits,
    "1 token to the context": spread(1, 1),
    "half a token to the context": spread(0.5, 1),
    "1 token to a quarter of the context": spread(1, 1 / 4),
    "4 tokens to a quarter of the context": spread(4, 1 / 4),
    "16 tokens to 4 contexts": spread(16, 4),
    "logits from N(0, 1)": normal,
}
MODELS = ("LION-D", "LION-S")


def main(args: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default="cpu")
    parser.add_argument("--tasks", nargs="+", default=["mlm"])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--output_dir", type=Path, default=Path(__file__).parent / "results" / "initial_decays")
    parser.add_argument("--cache_dir", type=Path, default=ROOT / "outputs" / "quality_cache", help="prepared data")
    args = parser.parse_args(args)
    if missing := set(args.tasks) - set(SCALES[args.scale]):
        parser.error(f"scale {args.scale} has no {' and no '.join(sorted(missing))}.")
    columns: dict[str, list[list[float]]] = {}
    for task in args.tasks:
        experiment = SCALES[args.scale][task]
        data = load_data(task, experiment, args.cache_dir)
        for model in models_of(data, args.models):
            column = columns[f"{model}, {task}, {'loss' if task == 'mlm' else '%'}"] = []
            for name, initial in INITIAL_DECAYS.items():
                column.append([])
                for seed in args.seeds:
                    path = run_path(args.output_dir, task, f"{model}_{name.replace(' ', '-')}", seed)
                    if not is_done(path, experiment):
                        print(f"{task}, {model}, {name}, seed {seed}", flush=True)
                        with patch.object(modeling_lion, "initial_decay_logits", initial):
                            result = train(model, seed, experiment, data, args.cache_dir)
                        result |= {"initial_decays": name, "experiment": asdict(experiment)}
                        write_json(path, result)
                    column[-1].append(score(task, read(path)))
                print(f"    {name}: {statistics.mean(column[-1]):.3f}", flush=True)
    rows = [
        [name, *(mean_std(scores, 2) for scores in row)]
        for name, *row in zip(INITIAL_DECAYS, *columns.values(), strict=True)
    ]
    text = "\n".join(table(["initial half-lives of the heads", *columns], rows))
    (args.output_dir / "results.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
