# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Which models recall a value that was named before, and tell left from right: tasks of tasks/generated.

    python benchmarks/bench_recall.py                                # ten minutes of a CPU core
    python benchmarks/bench_recall.py --models LION --set num_key_heads=1
    python benchmarks/bench_recall.py --set steps=2000               # or trained otherwise
    python benchmarks/bench_recall.py --models LION --set 'layer_types=["linear_attention", "full_attention"]'
    python benchmarks/bench_recall.py --mixers retention.py --models LION    # a mixer of your own, too
    python benchmarks/bench_recall.py --steps 200 --output_dir outputs/mine
    python benchmarks/bench_recall.py --quick                        # a few steps, to see that it runs

Every training is a row of recall.csv and is not repeated while that is there, so that a stopped run goes on where it
was. bench_search.py searches as much for LION and its peers.
"""

import argparse
import difflib
import json
from dataclasses import fields, replace
from itertools import product

from measure import append_rows, torch_threads
from report import begin_run, write_pages
from trainings import (
    METRICS,
    MODELS,
    TRAINING_FIELDS,
    Data,
    Experiment,
    chosen_tasks,
    is_measured,
    load_data,
    reporting,
    sizes,
    tiny,
    train,
    training_arguments,
)

from configuration_lion import LionConfig
from configuration_lion.registry import MIXERS


CONFIG_FIELDS = [field.name for field in fields(LionConfig)]
# Models for texts.
TEXT_MODELS = [name for name, fields_of_model in MODELS.items() if "patch_order" not in fields_of_model]
SCALES: dict[str, dict[str, Experiment]] = {
    "cpu": {
        "recall": Experiment({"length": 64}, sizes(64, 2, 4), steps=600, learning_rate=4e-3),
        "neighbour": Experiment({"length": 32}, sizes(64, 2, 4), steps=500, learning_rate=2e-3, longer=8),
    },
    "gpu": {
        "recall": Experiment({"length": 2048}, sizes(128, 2, 4), steps=20_000, examples=100_000),
        "neighbour": Experiment({"length": 128}, sizes(128, 4, 4), steps=3_000, longer=8),
    },
    "quick": {
        "recall": Experiment({"length": 20}, tiny(), 3, batch_size=4, examples=40),
        "neighbour": Experiment({"length": 8}, tiny(), 3, batch_size=4, examples=40, longer=8),
    },
}


def train_once(task: str, model: str, seed: int, data: Data, args: argparse.Namespace) -> None:
    """
    Add a training, of the variant that `args` ask for, to the table unless it is there.

    Raises:
        ValueError: if it is there with other sizes, steps or data.
    """
    training = {name: value for name, value in args.set if name in TRAINING_FIELDS}
    base = SCALES[args.scale][task]
    experiment = replace(base, **{"steps": args.steps or base.steps} | training, variant=dict(args.set))
    path, variant = args.output_dir / "recall.csv", experiment.variant_name
    case = {"scale": args.scale, "task": task, "model": model, "seed": seed, "variant": variant}
    settings = {"settings": experiment.settings(model)}
    if is_measured(path, case, settings["settings"]):
        return
    print(f"{task}, {model}, variant {variant or 'default'}, seed {seed}", flush=True)
    report = reporting(args, task, model, variant or "default", seed)
    row = train(model, seed, experiment, data, args.cache_dir, **report)
    append_rows(path, [case | row | settings])
    scores = {name: round(row[name], 3) for name in METRICS if row[name] is not None}
    print(f"    {scores} in {row['train_seconds']:.0f} s", flush=True)


def parse_setting(text: str) -> tuple[str, object]:
    """
    Name and value of `field=value`; values are JSON, or strings.

    Raises:
        argparse.ArgumentTypeError: if neither `LionConfig`, a mixer nor a training has such a field, or the benchmark
            sets it.
    """
    name, _, value = text.partition("=")
    known = [*CONFIG_FIELDS, *(field for mixer in MIXERS.values() for field in mixer.fields), *TRAINING_FIELDS]
    if name not in known or not value:
        near = difflib.get_close_matches(name, known)
        raise argparse.ArgumentTypeError(
            f"{text!r} is not FIELD=VALUE with a field of LionConfig or of a mixer, or one of "
            + ", ".join(TRAINING_FIELDS)
            + f"; did you mean {' or '.join(near)}?" * bool(near)
        )
    if name == "intermediate_size":
        raise argparse.ArgumentTypeError("`intermediate_size` is chosen so that all models have equal parameters.")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def main(args: list[str] | None = None) -> None:
    parser = training_arguments(__doc__, SCALES)
    parser.add_argument(
        "--mixers", nargs="+", default=[], metavar="FILE", help="files that register mixers: models, too"
    )
    first = argparse.ArgumentParser(add_help=False)
    first.add_argument("--mixers", nargs="+", default=[])
    own = parser.add_mixers(first.parse_known_args(parser.with_config(args))[0].mixers)
    parser.add_argument("--models", nargs="+", choices=[*TEXT_MODELS, *own], default=["softmax (rotary)", "LION"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--set",
        metavar="FIELD=VALUE",
        type=parse_setting,
        nargs="+",
        action="extend",
        default=[],
        help="a field of LionConfig, steps or learning_rate for all chosen models, stored as `variant`; repeatable",
    )
    parser.add_argument("--quick", action="store_true", help="scale quick, one seed")
    args = parser.parse_args(args)
    if args.quick:
        args.scale, args.seeds = "quick", args.seeds[:1]
    begin_run(args)
    with torch_threads(args.threads):
        for task in chosen_tasks(parser, args, SCALES):
            data = load_data(task, SCALES[args.scale][task], args.cache_dir)
            for seed, name in product(args.seeds, dict.fromkeys([*args.models, *own])):
                train_once(task, name, seed, data, args)
    write_pages(args.output_dir, args.scale)


if __name__ == "__main__":
    main()
