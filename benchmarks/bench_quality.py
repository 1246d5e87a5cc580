# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What every mixer learns: the same backbone, parameters, steps and data, with one field of the configuration changed.

    python benchmarks/bench_quality.py                   # 3 to 4 hours on a CPU core
    python benchmarks/bench_quality.py --scale gpu       # the sizes of the Long Range Arena
    python benchmarks/bench_quality.py --quick           # a few steps, to see that it runs
    python benchmarks/bench_quality.py --readme README.md    # also puts the table between the README's markers

Every training leaves a JSON file in `--output_dir` and is not repeated while that is there, so that a stopped run goes
on where it was. `results.md` is the table, beside plots.
"""

import argparse
import json
import math
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from mamba_peers import MAMBA_PEERS, use_mamba
from measure import interleaved, machine, peak_memory_in_new_process, print_peak_memory, read_json, summary, write_json
from transformers import EvalPrediction, Trainer, TrainingArguments, set_seed


ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples"))

import run_mlm  # noqa: E402
from docstrings import write_docstrings  # noqa: E402
from lra import PAD_ID, TASKS, Task, load_task  # noqa: E402
from tokenization_lion import LionTokenizer  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402

from modeling_lion import (  # noqa: E402
    LionConfig,
    LionForImageClassification,
    LionForMaskedLM,
    LionForSequenceClassification,
)
from modeling_lion.mixer_lit import LitMixer  # noqa: E402


# The first is what times are divided by. LIT has no decays: a scan along a curve does not change it.
MODELS = {
    "softmax": {"mixer_type": "softmax"},
    "LION-LIT": {"mixer_type": "lit"},
    "LION-D": {"mixer_type": "decay"},
    "LION-S": {"mixer_type": "selective"},
    "LION-D♮": {"mixer_type": "decay", "patch_order": "snake"},
    "LION-S♮": {"mixer_type": "selective", "patch_order": "snake"},
    "diagonal": {"mixer_type": "diagonal"},
    "Luna": {"mixer_type": "luna"},
    # The backbone of LION-S; mamba_peers.py replaces its attention.
    "Hydra": {"mixer_type": "selective"},
    "Vim": {"mixer_type": "selective"},
}
# Quoted from the authors (arXiv 2502.16249): SPEC §10.
PUBLISHED = {
    "ImageNet top-1, 86M, %": {
        "softmax": 77.9,
        "softmax, DeiT": 81.8,
        "LION-LIT": 74.7,
        "LION-D": 77.8,
        "LION-S": 76.3,
        "LION-D♮": 80.2,
        "LION-S♮": 79.9,
        "Hydra": 81.0,
        "Vim": 81.9,
    },
    "C4 MLM accuracy, large, %": {
        "softmax": 69.88,
        "LION-LIT": 67.11,
        "LION-D": 68.64,
        "LION-S": 69.16,
        "Hydra": 71.18,
    },
    "GLUE, large": {"softmax": 82.95, "LION-LIT": 80.76, "LION-D": 81.34, "LION-S": 81.58, "Hydra": 81.77},
    "training time, images": {
        "softmax": 1.0,
        "LION-LIT": 0.73,
        "LION-D": 1.39,
        "LION-S": 1.46,
        "Hydra": 2.51,
        "Vim": 10.86,
    },
    "training time, MLM": {"softmax": 1.0, "LION-LIT": 0.95, "LION-D": 1.10, "LION-S": 1.32, "Hydra": 3.13},
}
MARKERS = "<!-- quality: start -->", "<!-- quality: end -->"
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Experiment:
    """
    A task and what to train on it.

    Args:
        task: fields of a task of `lra`, or of the masked language modeling here: `length`, `vocab_size`, `max_bytes`.
        config: fields of `LionConfig`, the same for every model.
        steps, batch_size, learning_rate: of the training; a tenth of the steps warms up, then a cosine falls to 0.
        examples: for training; a tenth of them for validation, and for the test.
    """

    task: dict
    config: dict
    steps: int
    batch_size: int = 32
    learning_rate: float = 1e-3
    examples: int = 10_000


def sizes(hidden_size: int, layers: int, heads: int, **fields) -> dict:
    return {
        "hidden_size": hidden_size,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden_size,  # room for the further projections of Luna
        "norm_position": "pre",
        "hidden_dropout_prob": 0.0,  # trainings are too short to overfit
    } | fields


# Short lists: of up to 200 tokens, 600 steps teach every mixer the first operator and nothing else.
LISTOPS_CPU = {"min_length": 5, "longest": 50, "max_depth": 3, "max_arguments": 5}
LENGTHS_QUICK = {"min_length": 10, "longest": 40, "max_depth": 4, "max_arguments": 5}
# 0.02, the range of BERT's first weights, is for 768 dimensions; with 64 it slows image models down.
IMAGE = {"initializer_range": 0.1}
SCALES: dict[str, dict[str, Experiment]] = {
    # Without retrieval and Pathfinder: after minutes of training, at the sizes below, all models still guess. So they
    # do where Pathfinder's curves have two dashes each and there is one that distracts.
    "cpu": {
        "mlm": Experiment(
            {"length": 128, "vocab_size": 1000, "max_bytes": 8_000_000},
            sizes(96, 3, 4),
            steps=500,
            batch_size=16,
            learning_rate=3e-3,
        ),
        "listops": Experiment(LISTOPS_CPU, sizes(64, 2, 4), steps=1500, learning_rate=2e-3),
        "text": Experiment({"longest": 256, "max_bytes": 8_000_000}, sizes(64, 2, 4), steps=300, learning_rate=2e-3),
        "digits": Experiment({}, sizes(64, 2, 4, patch_size=1, **IMAGE), steps=600, learning_rate=2e-3),
    },
    "gpu": {
        "mlm": Experiment(
            {"length": 512, "vocab_size": 16_000, "max_bytes": 100_000_000},
            sizes(512, 8, 8),
            steps=20_000,
            batch_size=64,
            learning_rate=5e-4,
        ),
        "listops": Experiment({}, sizes(512, 6, 8), 20_000, learning_rate=5e-4, examples=96_000),
        "text": Experiment({}, sizes(256, 4, 4), 20_000, learning_rate=5e-4, examples=25_000),
        "retrieval": Experiment({}, sizes(128, 4, 4), 20_000, learning_rate=5e-4, examples=100_000),
        "pathfinder": Experiment({}, sizes(128, 4, 8, patch_size=1, **IMAGE), 100_000, 128, 5e-4, examples=100_000),
        "digits": Experiment({}, sizes(128, 4, 4, patch_size=1, **IMAGE), steps=3_000),
    },
    "quick": {
        "mlm": Experiment(
            {"length": 32, "vocab_size": 200, "max_bytes": 60_000}, sizes(16, 2, 2), steps=3, batch_size=4
        ),
        "listops": Experiment(LENGTHS_QUICK, sizes(16, 2, 2), steps=3, batch_size=4, examples=40),
        "text": Experiment(
            {"longest": 40, "max_bytes": 400_000, "num_packages": 2}, sizes(16, 2, 2), 3, 4, examples=40
        ),
        "retrieval": Experiment({"longest": 40, "max_bytes": 400_000}, sizes(16, 2, 2), 3, batch_size=4, examples=40),
        "pathfinder": Experiment({}, sizes(16, 2, 2, patch_size=4, **IMAGE), 3, batch_size=4, examples=40),
        "digits": Experiment({}, sizes(16, 2, 2, patch_size=2, **IMAGE), 3, batch_size=4, examples=40),
    },
}
ALL_TASKS = list(SCALES["gpu"])


@dataclass
class Data:
    """Examples by split, how to make a batch of them, and the model and metrics that they need."""

    model_class: type
    config: dict
    splits: dict
    collate: Callable
    trainer: dict = field(default_factory=dict)
    trainer_class: type = Trainer
    chance: float | None = None  # accuracy of the most frequent class


def load_data(name: str, experiment: Experiment, cache_dir: Path) -> Data:
    if name == "mlm":
        return load_mlm(cache_dir=cache_dir, **experiment.task)
    task = TASKS[name](**experiment.task)
    held_out = max(experiment.examples // 10, 20)
    counts = {"train": experiment.examples, "validation": held_out, "test": held_out}
    splits = load_task(task, counts, str(cache_dir))
    labels = {"num_labels": len(task.labels)}
    if task.grid is None:
        # One token more, in front: what the classifier reads, as BERT's [CLS].
        counts_of = {"vocab_size": task.vocab_size + 1, "max_position_embeddings": task.max_length + 1}
        config = counts_of | {"pad_token_id": PAD_ID}
        model_class, collate = LionForSequenceClassification, lambda rows: pad(rows, start_id=task.vocab_size)
    else:
        config = {"modality": "image", "image_size": task.grid, "num_channels": 1}
        model_class, collate = LionForImageClassification, lambda rows: images(rows, task)
    counts = np.bincount(splits["test"]["label"])
    metrics = {"compute_metrics": accuracy}
    return Data(model_class, config | labels, splits, collate, metrics, chance=float(counts.max() / counts.sum()))


def load_mlm(cache_dir: Path, length: int, vocab_size: int, max_bytes: int) -> Data:
    """Docstrings of this Python, with the tokenizer, the masks and the metrics of run_mlm.py."""
    folder = cache_dir / f"docstrings_{max_bytes}"
    files = {f"{split}_file": str(folder / f"{split}.txt") for split in ("train", "validation")}
    if not all(Path(file).exists() for file in files.values()):
        write_docstrings(folder, max_bytes=max_bytes)
    data_args = run_mlm.DataTrainingArguments(**files)
    training_args = TrainingArguments(str(folder), do_train=True, do_eval=True, report_to="none")
    texts = run_mlm.load_texts(data_args, training_args, str(cache_dir))
    tokenizer_dir = folder / f"tokenizer_{vocab_size}"
    if not (tokenizer_dir / "tokenizer_config.json").exists():  # one for all, as two trainings may differ
        column = run_mlm.text_column(texts["train"])
        LionTokenizer.train_from_iterator(iter(texts["train"][column]), vocab_size).save_pretrained(tokenizer_dir)
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_dir)
    splits = {
        split: run_mlm.tokenize(part, tokenizer, data_args, length, training_args) for split, part in texts.items()
    }
    return Data(
        LionForMaskedLM,
        {
            "vocab_size": len(tokenizer),
            "max_position_embeddings": length,
            "pad_token_id": tokenizer.pad_token_id,
        },
        splits,
        run_mlm.DataCollatorForSeededMasking(tokenizer, mlm_probability=0.15, seed=0),
        {
            "compute_metrics": run_mlm.masked_accuracy,
            "preprocess_logits_for_metrics": run_mlm.most_likely,
            "processing_class": tokenizer,
        },
        run_mlm.MlmTrainer,
    )


def pad(rows: list[dict], start_id: int) -> dict[str, torch.Tensor]:
    ids = [torch.tensor([start_id, *row["input_ids"]]) for row in rows]
    input_ids = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=PAD_ID)
    labels = torch.tensor([row["label"] for row in rows])
    return {"input_ids": input_ids, "attention_mask": (input_ids != PAD_ID).long(), "labels": labels}


def images(rows: list[dict], task: Task) -> dict[str, torch.Tensor]:
    pixels = torch.tensor([row["input_ids"] for row in rows], dtype=torch.float32).view(len(rows), 1, *task.grid)
    return {"pixel_values": pixels / 127.5 - 1, "labels": torch.tensor([row["label"] for row in rows])}


def accuracy(prediction: EvalPrediction) -> dict[str, float]:
    return {"accuracy": float(np.mean(prediction.predictions.argmax(axis=-1) == prediction.label_ids))}


def models_of(data: Data, chosen: list[str]) -> list[str]:
    is_image = data.config.get("modality") == "image"
    return [name for name in chosen if is_image or "patch_order" not in MODELS[name]]


def make_config(model: str, experiment: Experiment, data: Data, longer: int = 1) -> LionConfig:
    """
    The configuration of a model: its MLP is made smaller or larger until it has about the parameters of softmax.

    Args:
        longer: positions for an input so many times as long; the rest is as without.
    """
    fields = experiment.config | data.config
    config = LionConfig(**fields | MODELS[model])
    reference = count("softmax", LionConfig(**fields | MODELS["softmax"]), data)
    per_unit = config.num_hidden_layers * (2 * config.hidden_size + 1)
    units = config.intermediate_size + round((reference - count(model, config, data)) / per_unit)
    if units < 1:
        raise ValueError(f"{model} has more parameters than softmax without any MLP: raise `intermediate_size`.")
    fields |= {"intermediate_size": units}
    if longer > 1 and config.modality == "image":
        fields["image_size"] = tuple(round(side * math.sqrt(longer)) for side in config.image_shape)
    elif longer > 1:
        fields["max_position_embeddings"] = longer * config.max_position_embeddings
    return LionConfig(**fields | MODELS[model])


def make_model(name: str, config: LionConfig, data: Data) -> torch.nn.Module:
    model = data.model_class(config)
    return use_mamba(model, name) if name in MAMBA_PEERS else model


def count(name: str, config: LionConfig, data: Data) -> int:
    with torch.device("meta"):
        return make_model(name, config, data).num_parameters()


@torch.no_grad()
def half_lives(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """Per layer the half-life in tokens, log ½ ÷ log λ, of every decay in a batch, `(heads, n)`; [] without decays."""
    found, hooks = [], []

    def keep(module, inputs, output):
        log_decay = output[3]
        if log_decay is not None:
            log_decay = log_decay.double().cpu()
            # From (heads,), (batch, heads, length) or (batch, heads, length, head_dim). λ = 1 is padding, or CLS.
            rows = log_decay[:, None] if log_decay.dim() == 1 else log_decay.transpose(0, 1).flatten(1)
            found.append((math.log(0.5) / rows.clamp(max=-1e-12)).masked_fill(rows == 0, math.nan))

    for module in model.modules():
        if isinstance(module, LitMixer):
            hooks.append(module.register_forward_hook(keep))
    is_training = model.training
    model.eval()
    model(**{name: x.to(model.device) for name, x in batch.items() if name != "labels"})
    model.train(is_training)
    for hook in hooks:
        hook.remove()
    return found


def quantiles(layers: list[torch.Tensor]) -> list[list[list[float]]]:
    """By layer and head the `QUANTILES` of the half-lives."""
    points = torch.tensor(QUANTILES, dtype=torch.float64)
    # A layer of diagonal decays has millions: a sample of them has the same quantiles.
    step = lambda rows: max(1, rows.shape[1] // 100_000)
    return [torch.nanquantile(rows[:, :: step(rows)], points, dim=1).T.tolist() for rows in layers]


def train(model_name: str, seed: int, experiment: Experiment, data: Data, output_dir: Path) -> dict:
    """Train one model; metrics, times and decays come back."""
    set_seed(seed)
    model = make_model(model_name, make_config(model_name, experiment, data), data)
    batch = data.collate([data.splits["validation"][i] for i in range(min(8, len(data.splits["validation"])))])
    before = quantiles(half_lives(model, batch))
    arguments = TrainingArguments(
        str(output_dir / "trainer"),
        max_steps=experiment.steps,
        per_device_train_batch_size=experiment.batch_size,
        per_device_eval_batch_size=2 * experiment.batch_size,
        learning_rate=experiment.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=max(1, experiment.steps // 10),
        weight_decay=0.01,
        adam_beta2=0.98,
        seed=seed,
        save_strategy="no",
        logging_steps=max(1, experiment.steps // 20),
        report_to="none",
        remove_unused_columns=False,
        dataloader_pin_memory=torch.cuda.is_available(),
        bf16=torch.cuda.is_available(),
    )
    columns = [name for name in ("input_ids", "label", "special_tokens_mask") if name in data.splits["train"].features]
    trainer = data.trainer_class(
        model=model,
        args=arguments,
        data_collator=data.collate,
        train_dataset=data.splits["train"].select_columns(columns),
        **data.trainer,
    )
    result = trainer.train()
    metrics = {}
    for split in ("validation", "test"):
        if split in data.splits:
            metrics |= trainer.evaluate(data.splits[split].select_columns(columns), metric_key_prefix=split)
    return {
        "parameters": model.num_parameters(),
        "metrics": {name: value for name, value in metrics.items() if name.endswith(("_loss", "_accuracy"))},
        "train_seconds": result.metrics["train_runtime"],
        "losses": [(entry["step"], entry["loss"]) for entry in trainer.state.log_history if "loss" in entry],
        "half_lives": {"quantiles": QUANTILES, "before": before, "after": quantiles(half_lives(model, batch))},
    }


def make_step(model_name: str, experiment: Experiment, data: Data, mode: str) -> Callable[[], None]:
    """A training step at the length of the training, or a forward pass at four times that, one sequence at a time."""
    longer = 1 if mode == "train" else 4
    torch.manual_seed(0)
    config = make_config(model_name, experiment, data, longer)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = make_model(model_name, config, data).train(mode == "train").to(device)
    rows = experiment.batch_size if mode == "train" else 1
    if config.modality == "image":
        inputs = {"pixel_values": torch.randn(rows, config.num_channels, *config.image_shape)}
    else:
        inputs = {"input_ids": torch.randint(1, config.vocab_size, (rows, config.max_position_embeddings))}
    if mode == "train":
        is_mlm = data.model_class is LionForMaskedLM
        inputs["labels"] = inputs["input_ids"] if is_mlm else torch.randint(config.num_labels, (rows,))
    inputs = {name: x.to(device) for name, x in inputs.items()}

    def step():
        with torch.set_grad_enabled(mode == "train"), torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            outputs = model(**inputs)
        if mode == "train":
            model.zero_grad(set_to_none=True)
            outputs.loss.backward()
        if device == "cuda":
            torch.cuda.synchronize()

    return step


def measure_speed(task: str, names: list[str], experiment: Experiment, data: Data, args: argparse.Namespace) -> dict:
    """By model the time of a training step, and time and memory of inference at four times the length."""
    steps = {mode: {name: make_step(name, experiment, data, mode) for name in names} for mode in ("train", "infer")}
    results = {name: {} for name in names}
    for mode, functions in steps.items():
        for name, seconds in interleaved(functions, args.repeats).items():
            results[name][mode] = summary(seconds)
    for name in names:
        one = ["--scale", args.scale, "--cache_dir", str(args.cache_dir), "--one", task, name]
        results[name]["peak_memory_bytes"] = peak_memory_in_new_process(__file__, *one)
    return results


def one(args: argparse.Namespace) -> None:
    """One forward pass at four times the length; the peak memory is printed last."""
    task, name = args.one
    experiment = SCALES[args.scale][task]
    make_step(name, experiment, load_data(task, experiment, args.cache_dir), "infer")()
    if torch.cuda.is_available():
        print(torch.cuda.max_memory_allocated())
    else:
        print_peak_memory()


def run_path(output_dir: Path, task: str, model: str, seed: int | str) -> Path:
    return output_dir / f"{task}_{model.replace('♮', '-snake')}_seed{seed}.json"


def is_done(path: Path, experiment: Experiment) -> bool:
    """Whether there is a result; a ValueError if it is of other sizes, steps or data."""
    result = read_json(path)
    if result is None:
        return False
    if result["experiment"] != json.loads(json.dumps(asdict(experiment))):
        raise ValueError(f"{path} is of another experiment ({result['experiment']}): give another --output_dir.")
    return True


def train_once(
    path: Path,
    title: str,
    model_name: str,
    seed: int,
    experiment: Experiment,
    data: Data,
    cache_dir: Path,
    about: dict,
) -> dict:
    """The result in `path`, of a training now if it is not there; `about` is its task and whatever else to note."""
    if not is_done(path, experiment):
        print(f"[{title}] {about['task']}, {model_name}, seed {seed}", flush=True)
        result = train(model_name, seed, experiment, data, cache_dir)
        result |= {"model": model_name, "seed": seed, "chance": data.chance, **about}
        write_json(path, result | {"experiment": asdict(experiment)})
        print(f"    {score(about['task'], result):.3f} in {result['train_seconds']:.0f} s", flush=True)
    return read_json(path)


def mean_std(values: list[float], digits: int) -> str:
    if not values:
        return ""
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{spread}"


def score(task: str, result: dict, split: str = "test") -> float:
    """Masked-LM loss in nats, of whose text there is one held-out part, or accuracy in per cent."""
    metrics = result["metrics"]
    return metrics["validation_loss"] if task == "mlm" else 100 * metrics[f"{split}_accuracy"]


def collect(output_dir: Path) -> dict[str, dict]:
    """Everything in an output folder: by task `runs` (by model, a list), `speed` (by model) and `chance`."""
    found = {}
    for task in ALL_TASKS:
        runs = {}
        for name in MODELS:
            paths = sorted(output_dir.glob(run_path(Path(), task, name, "*").name))
            if paths:
                runs[name] = [read_json(path) for path in paths]
        if runs:
            found[task] = {"runs": runs, "speed": read_json(output_dir / f"{task}_speed.json") or {}}
    return found


def table(header: list[str], rows: list[list[str]]) -> Iterator[str]:
    for row in (header, ["---"] * len(header), *rows):
        yield "| " + " | ".join(row) + " |"
    yield ""


def report(found: dict[str, dict], scale: str, pictures: list[str] = ()) -> str:
    """The results as Markdown."""
    lines = []
    tasks = list(found)
    names = [name for name in MODELS if any(name in found[task]["runs"] for task in tasks)]
    seeds = sorted({len(runs) for task in tasks for runs in found[task]["runs"].values()})
    computer, counts = machine(), " or ".join(map(str, seeds))
    lines += [
        f"`make results`, scale {scale}, {counts} seeds: mean ± standard deviation. Within a task "
        "all models have the same backbone, data, steps and learning rate, and parameters within 1 % by the width of "
        f"the MLP. (torch {computer['torch']}, transformers {computer['transformers']}, {computer['cpu']})",
        "",
    ]
    titles = [f"{task}, loss" if task == "mlm" else f"{task}, %" for task in tasks]
    rows = [
        [
            name,
            *(
                mean_std([score(task, run) for run in found[task]["runs"].get(name, [])], 2 if task == "mlm" else 1)
                for task in tasks
            ),
        ]
        for name in names
    ]
    chance = [next(iter(found[task]["runs"].values()))[0].get("chance") for task in tasks]
    rows.append(["most frequent class", *("" if x is None else f"{100 * x:.1f}" for x in chance)])
    lines += table(["held out", *titles], rows)
    timed = [task for task in tasks if found[task]["speed"]]
    for title, cell in (
        ("training step, time ÷ softmax", lambda speed, name: ratio(speed, name, "train")),
        ("inference at 4 × length, time ÷ softmax", lambda speed, name: ratio(speed, name, "infer")),
        ("inference at 4 × length, peak MiB", lambda speed, name: f"{speed[name]['peak_memory_bytes'] / 2**20:,.0f}"),
    ):
        rows = [
            [name, *(cell(found[task]["speed"], name) if name in found[task]["speed"] else "" for task in timed)]
            for name in names
        ]
        if timed:
            lines += table([title, *timed], rows)
    lines += decay_table(found)
    lines += [f"![{Path(picture).stem.replace('_', ' ')}]({picture})\n" for picture in pictures]
    lines += ["Published by the authors of LION:", ""]
    lines += table(
        ["", *PUBLISHED],
        [
            [name, *(str(column.get(name, "")) for column in PUBLISHED.values())]
            for name in dict.fromkeys((*MODELS, *(name for column in PUBLISHED.values() for name in column)))
            if any(name in column for column in PUBLISHED.values())
        ],
    )
    lines += [
        "What can be compared: which mixer is ahead of which, and ratios of time at equal lengths. What cannot: the "
        "numbers themselves, since the published models are 86M to 334M parameters trained on ImageNet and C4; nor "
        "memory, which here is that of the whole process, Python and torch included. Text here is docstrings of the "
        "Python installation, and the digits are scikit-learn's; of the Arena's tasks only ListOps and Pathfinder are "
        "the published kind, and only at scale gpu the published size."
        + (" Retrieval and Pathfinder are left out: minutes of training teach no model anything." * (scale == "cpu")),
        "",
        "Hydra and Vim are not the authors' blocks: each direction is a Mamba2 or Mamba mixer of transformers with "
        "weights of its own, in the backbone of the others (`benchmarks/mamba_peers.py`). Without the kernels of "
        "mamba-ssm, Mamba's scan is that of mambapy, in PyTorch: its time here says nothing of Vim's on a GPU.",
    ]
    return "\n".join(lines) + "\n"


def ratio(speed: dict, name: str, mode: str) -> str:
    if "softmax" not in speed:
        return ""
    return f"{speed[name][mode]['median'] / speed['softmax'][mode]['median']:.2f}"


def decay_table(found: dict[str, dict]) -> list[str]:
    """How far LION-S remembers before and after training."""
    rows = []
    for task in found:
        for run in found[task]["runs"].get("LION-S", [])[:1]:
            values = {when: np.array(run["half_lives"][when]) for when in ("before", "after")}
            spans = {
                when: f"{np.median(x[..., 2]):.1f} ({x[..., 0].min():.1f} to {x[..., -1].max():.0f})"
                for when, x in values.items()
            }
            within = [np.median(np.log2(x[..., -1] / x[..., 0])) for x in values.values()]
            moved = np.abs(np.log2(values["after"][..., 2] / values["before"][..., 2])).mean()
            rows.append([task, *spans.values(), f"{within[0]:.2f} → {within[1]:.2f}", f"{moved:.2f}"])
    if not rows:
        return []
    header = [
        "LION-S, half-life in tokens",
        "before training: median (5 % to 95 %)",
        "after",
        "octaves between tokens",
    ]
    return list(table([*header, "octaves that a head moved"], rows))


def draw(found: dict[str, dict], output_dir: Path) -> list[Path]:
    """Plots of the scores, and of the decays of LION-S before training, in grey, and after it."""
    from pictures import BLUE, GREY, ORANGE, plt, save

    paths = [output_dir / "scores.png"]
    figure, axes = plt.subplots(1, len(found), figsize=(3.2 * len(found), 3.6), squeeze=False)
    for axis, (task, entry) in zip(axes[0], found.items(), strict=True):
        names = list(entry["runs"])
        scores = [[score(task, run) for run in runs] for runs in entry["runs"].values()]
        spread = [statistics.stdev(x) if len(x) > 1 else 0 for x in scores]
        axis.errorbar([statistics.mean(x) for x in scores], names, xerr=spread, fmt="o", color=BLUE)
        chance = next(iter(entry["runs"].values()))[0].get("chance")
        label = "masked-LM loss (less is better)" if chance is None else f"accuracy, % (guessing: {100 * chance:.0f})"
        axis.set(title=task, xlabel=label)
        axis.invert_yaxis()
        axis.grid(alpha=0.25)
    save(figure, paths[0])
    tasks = [task for task in found if "LION-S" in found[task]["runs"]]
    if tasks:
        paths.append(output_dir / "decays.png")
        figure, axes = plt.subplots(1, len(tasks), figsize=(3.2 * len(tasks), 3.6), squeeze=False)
        for axis, task in zip(axes[0], tasks, strict=True):
            lives = found[task]["runs"]["LION-S"][0]["half_lives"]
            for when, color, shift in (("before", GREY, -0.15), ("after", ORANGE, 0.15)):
                heads = np.array(lives[when]).reshape(-1, len(QUANTILES))
                where = np.arange(len(heads)) + shift
                axis.hlines(where, heads[:, 0], heads[:, -1], color=color, linewidth=1.5)
                axis.plot(heads[:, 2], where, "o", color=color, markersize=4)
            axis.set(
                xscale="log",
                title=f"{task}, before and after",
                xlabel="half-life, tokens (5 to 95 %)",
                ylabel="head, layer by layer",
            )
            axis.grid(alpha=0.25)
        save(figure, paths[1])
    return paths


def write_into_readme(readme: Path, text: str) -> None:
    """
    Put `text` between the two `MARKERS` of a Markdown file.

    Raises:
        ValueError: if the file has not each marker once, in order.
    """
    content = readme.read_text(encoding="utf-8")
    start, end = MARKERS
    if content.count(start) != 1 or content.count(end) != 1 or content.index(start) > content.index(end):
        raise ValueError(f"{readme} needs the lines {start} and {end}, once each and in this order.")
    before, after = content.split(start)[0], content.split(end)[1]
    readme.write_text(f"{before}{start}\n{text.strip()}\n{end}{after}", encoding="utf-8")


def check_tasks(parser: argparse.ArgumentParser, scale: str, tasks: list[str]) -> None:
    """Stop with a message if a scale has not all of the tasks."""
    if missing := set(tasks) - set(SCALES[scale]):
        parser.error(f"scale {scale} has no {' and no '.join(sorted(missing))}: use --scale gpu")


def main(args: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default="cpu")
    parser.add_argument("--quick", action="store_true", help="scale quick, one seed; speed of the first task only")
    parser.add_argument("--tasks", nargs="+", choices=ALL_TASKS, help="not given: all of the scale")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--repeats", type=int, default=7, help="of each timing")
    parser.add_argument("--threads", type=int, help="CPU threads; not given: as torch decides")
    parser.add_argument("--output_dir", type=Path, help="not given: benchmarks/results/quality_<scale>")
    parser.add_argument("--cache_dir", type=Path, default=ROOT / "outputs" / "quality_cache", help="prepared data")
    parser.add_argument("--readme", type=Path, help="Markdown file to put the results in, between its markers")
    parser.add_argument("--one", nargs=2, metavar=("TASK", "MODEL"), help=argparse.SUPPRESS)
    args = parser.parse_args(args)
    if args.one:
        torch.set_num_threads(1)
        return one(args)
    if args.quick:
        args.scale, args.seeds, args.repeats = "quick", args.seeds[:1], 2
    threads = torch.get_num_threads()
    output_dir = args.output_dir or Path(__file__).parent / "results" / f"quality_{args.scale}"
    tasks = args.tasks or list(SCALES[args.scale])
    check_tasks(parser, args.scale, tasks)
    for number, task in enumerate(tasks):
        experiment = SCALES[args.scale][task]
        data = load_data(task, experiment, args.cache_dir)
        names = models_of(data, args.models)
        torch.set_num_threads(args.threads or threads)
        for seed in args.seeds:
            for name in names:
                path = run_path(output_dir, task, name, seed)
                title = f"task {number + 1} of {len(tasks)}"
                train_once(path, title, name, seed, experiment, data, args.cache_dir, {"task": task})
        path = output_dir / f"{task}_speed.json"
        if (number == 0 or not args.quick) and not set(names) <= set(read_json(path) or {}):
            if not torch.cuda.is_available():
                torch.set_num_threads(1)  # CPU time of one thread is disturbed least; a GPU is timed by the clock
            write_json(path, measure_speed(task, names, experiment, data, args))
    torch.set_num_threads(threads)
    found = collect(output_dir)
    pictures = draw(found, output_dir)
    (output_dir / "results.md").write_text(report(found, args.scale, [p.name for p in pictures]), encoding="utf-8")
    print(report(found, args.scale))
    if args.readme:
        links = [Path(os.path.relpath(p, args.readme.resolve().parent)).as_posix() for p in pictures]
        write_into_readme(args.readme, report(found, args.scale, links))


if __name__ == "__main__":
    main()
