# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Trained on 512 tokens, tested on up to 16,384: which encoders still find what stands far above.

    python benchmarks/bench_length.py                       # hours of a CPU core; goes on where it was stopped
    python benchmarks/bench_length.py --tasks definitions --models LION "LION, last layer full" --seeds 0
    python benchmarks/bench_length.py --steps 200 --output_dir outputs/mine    # of both stages together
    python benchmarks/bench_length.py --quick               # a few steps, to see that it runs

`definitions` (tasks/generated/definitions.py): names get values in the first quarter of a text and are asked for in
its last quarter. The first stage has short texts, from which all models learn what is asked for in less time.

Models with rotary positions in layers that see all tokens are tested twice, the second time with frequencies that YaRN
(Peng et al., 2023) scales to the length of the test; nothing is trained after that. (Luna has learnt positions, which
end with the length of the training.) Every training is some rows of length.csv, one for each length and scaling.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import torch
from measure import append_rows, torch_threads
from report import begin_run, write_pages
from tasks.generated import TASKS, load_task
from trainings import (
    AS_RECOMMENDED,
    ROTARY,
    Data,
    Experiment,
    comparison_arguments,
    divided,
    is_measured,
    last_layer_full,
    load_data,
    make_trainer,
    reporting,
    sizes,
    start,
    tiny,
)
from transformers import Trainer
from transformers.trainer_callback import PrinterCallback

from modeling_lion import LionConfig


WINDOW = 64  # tokens on each side
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)


# The model of trainings.py for each name and, by the number of layers, fields of its configuration.
MODELS: dict[str, tuple[str, Callable[[int], dict]]] = {
    "LION": ("LION", lambda layers: {}),
    "LION-Delta": ("LION-Delta", lambda layers: {}),
    "LION-Delta, two heads": ("LION-Delta", lambda layers: {"num_attention_heads": 2}),
    "LION, one key head": ("LION", lambda layers: {"num_key_heads": 1}),
    "LION, last layer full": ("LION", last_layer_full),
    # Its linear layers know the order of tokens.
    "LION, last layer full, no positions": (
        "LION",
        lambda layers: last_layer_full(layers) | {"rope_parameters": None},
    ),
    "softmax (rotary)": ("softmax (rotary)", lambda layers: AS_RECOMMENDED),
    # In the place of learnt positions, which longer texts lack.
    "LION-LIT (rotary)": (
        "LION-LIT",
        lambda layers: AS_RECOMMENDED | {"position_embedding_type": "none", "rope_parameters": ROTARY},
    ),
    **{
        name: (name, lambda layers: AS_RECOMMENDED)
        for name in ("LION-D", "LION-S", "local mean", "GLA", "Hydra", "two Mamba-2", "Vim")
    },
    "windows alone": (
        "softmax (rotary)",
        lambda layers: (
            AS_RECOMMENDED
            | {
                "layer_types": ["sliding_attention"] * layers,
                "sliding_window": WINDOW,
                "rope_parameters": {"sliding_attention": ROTARY},
            }
        ),
    ),
}


@dataclass(frozen=True)
class Length:
    """
    A training on short texts, and tests on longer ones.

    Args:
        stages: trainings, one after the other, each with a warmup and a cosine.
        lengths: tokens of the tests; the first are those of the training.
        test_tokens: of a test, in texts of equal length.
    """

    stages: tuple[Experiment, ...]
    lengths: tuple[int, ...] = LENGTHS
    test_tokens: int = 2**16

    def trained_for(self, steps: int | None, times: int) -> "Length":
        """With other steps of all stages together (`divided`)."""
        return replace(self, stages=divided(self.stages, steps, times))

    def settings(self) -> str:
        return " then ".join(stage.settings() for stage in self.stages) + f" test_tokens={self.test_tokens}"


DOCSTRINGS = {"max_bytes": 4_000_000}
CPU, GPU = sizes(64, 2, 4), sizes(256, 4, 4)
SCALES: dict[str, dict[str, Length]] = {
    "cpu": {
        "definitions": Length(
            (
                Experiment({"length": 96} | DOCSTRINGS, CPU, steps=400, learning_rate=4e-3),
                Experiment({"length": 512} | DOCSTRINGS, CPU, steps=100, batch_size=8, learning_rate=4e-3),
            )
        ),
    },
    "gpu": {
        "definitions": Length(
            (
                Experiment({"length": 128}, GPU, steps=4000, learning_rate=1e-3, examples=100_000),
                Experiment({"length": 512}, GPU, steps=4000, learning_rate=1e-3, examples=100_000),
            ),
            test_tokens=2**20,
        ),
    },
    "quick": {
        "definitions": Length(
            (
                Experiment({"length": 96, "max_bytes": 400_000}, tiny(), steps=2, batch_size=4, examples=20),
                Experiment({"length": 128, "max_bytes": 400_000}, tiny(), steps=2, batch_size=4, examples=20),
            ),
            lengths=(128, 256),
            test_tokens=1024,
        ),
    },
}


def scaled_by_yarn(model: torch.nn.Module, trained: int, length: int) -> torch.nn.Module | None:
    """The same weights with rotary frequencies for so many tokens; `None` if no layer sees all with such positions."""
    rope, layer_types = model.config.rope_parameters, model.config.layer_types
    yarn = ROTARY | {"rope_type": "yarn", "factor": length / trained, "original_max_position_embeddings": trained}
    if rope and layer_types is None and model.config.mixer_type == "softmax":
        rope = yarn
    elif rope and rope.get("full_attention"):
        rope = rope | {"full_attention": yarn}
    else:
        return None
    scaled = type(model)(LionConfig.from_dict(model.config.to_dict() | {"rope_parameters": rope}))
    scaled.load_state_dict(model.state_dict())
    return scaled


def quiet(trainer: Trainer) -> Trainer:
    trainer.remove_callback(PrinterCallback)
    return trainer


def train_and_test(name: str, seed: int, task: str, length: Length, cache_dir: Path, report: dict) -> list[dict]:
    """Rows with the accuracy of each length, without and with scaling; `report` has arguments of `reporting`."""
    base, fields = MODELS[name]
    stages = [replace(stage, variant=fields(stage.config["num_hidden_layers"])) for stage in length.stages]
    data = [load_data(task, stage, cache_dir) for stage in stages]
    model = start(base, seed, stages[-1], data[-1])
    begin = time.process_time()
    for stage, of_stage in zip(stages, data, strict=True):
        trainer, columns = make_trainer(model, seed, stage, of_stage, cache_dir, disable_tqdm=True, **report)
        quiet(trainer).train()
    seconds = time.process_time() - begin
    about = {"parameters": model.num_parameters(), "chance": data[-1].chance, "train_cpu_seconds": seconds}
    rows = []
    for tokens in length.lengths:
        scaled = scaled_by_yarn(model, length.lengths[0], tokens) if tokens > length.lengths[0] else None
        for scaling, tested in (("none", model), ("yarn", scaled)):
            if tested is not None:
                found = test(tested, task, tokens, length, stages[-1], data[-1], cache_dir)
                rows.append({"length": tokens, "scaling": scaling} | found | about)
                print(f"    {tokens} tokens, scaling {scaling}: {found['accuracy']:.3f}", flush=True)
    return rows


def test(
    model: torch.nn.Module, task: str, tokens: int, length: Length, stage: Experiment, data: Data, cache_dir: Path
) -> dict:
    """Accuracy, loss and number of labels in texts of so many tokens."""
    texts = load_task(
        TASKS[task](**stage.task | {"length": tokens}), {"test": length.test_tokens // tokens}, str(cache_dir)
    )["test"]
    batch = max(1, stage.batch_size * length.lengths[0] // tokens)
    trainer, columns = make_trainer(
        model, 0, stage, data, cache_dir, per_device_eval_batch_size=batch, disable_tqdm=True
    )
    metrics = quiet(trainer).evaluate(texts.select_columns(columns), metric_key_prefix="test")
    labels = sum(sum(x >= 0 for x in row) for row in texts["labels"])
    return {"accuracy": metrics["test_accuracy"], "loss": metrics["test_loss"], "labels": labels}


def main(args: list[str] | None = None) -> None:
    args = comparison_arguments(args, __doc__, SCALES, MODELS)
    path = args.output_dir / "length.csv"
    begin_run(args)
    with torch_threads(args.threads):
        for task in args.tasks:
            length = SCALES[args.scale][task].trained_for(args.steps, args.times)
            for seed, name in product(args.seeds, args.models):
                case = {"scale": args.scale, "task": task, "model": name, "times": args.times, "seed": seed}
                if is_measured(path, case, length.settings()):
                    continue
                print(f"{task}, {name}, {args.times} times the steps, seed {seed}", flush=True)
                report = reporting(args, task, name, args.times, seed)
                rows = train_and_test(name, seed, task, length, args.cache_dir, report)
                append_rows(path, [case | row | {"settings": length.settings()} for row in rows])
    write_pages(args.output_dir, args.scale)


if __name__ == "__main__":
    main()
