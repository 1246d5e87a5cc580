# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What every mixer learns: the same backbone, parameters, steps and data, with one field of the configuration changed.

    python benchmarks/bench_quality.py                   # 3 to 4 hours on a CPU core
    python benchmarks/bench_quality.py --scale gpu       # the sizes of the Long Range Arena
    python benchmarks/bench_quality.py --quick           # a few steps, to see that it runs
    python benchmarks/bench_quality.py --tasks digits --models LION-S LION-S♮ --seeds 3 4 5    # more seeds
    python benchmarks/bench_quality.py --tasks text --set pooling=mean    # all models, configured otherwise
    python benchmarks/bench_quality.py --tasks recall --set steps=2000    # or trained otherwise
    python benchmarks/bench_quality.py --mixers retention.py --models LION-S retention    # a mixer of your own

Every training is a row of `quality.csv` and is not repeated while that is there, so that a stopped run goes on where
it was. `quality_speed.csv` has times and memory of models without `--set` and `--fan_in`.
"""

import argparse
import difflib
import json
import math
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from pathlib import Path

import add_examples  # noqa: F401 (examples/ can be imported from here on)
import numpy as np
import run_mlm
import torch
from docstrings import write_docstrings
from measure import RESULTS, TRAINING_FIELDS, append_rows, in_new_process, interleaved, peak_memory, read_rows, summary
from peers.auto_classes import peer_class
from peers.mamba import MAMBA_PEERS, BidirectionalMamba
from report import write_pages
from reports.names import COLORS
from script_tools.data_files import find_texts
from script_tools.training import accuracy
from tasks.lra import LRA_TASKS, NO_LABEL, PAD_ID, Task, load_task
from tokenization_lion import LionTokenizer
from transformers import AutoTokenizer, Trainer, TrainingArguments, set_seed

from configuration_lion import LionConfig, published_fields
from modeling_lion import (
    LionForImageClassification,
    LionForMaskedLM,
    LionForSequenceClassification,
    LionForTokenClassification,
)
from modeling_lion.mixers.registry import MIXERS


ROOT = Path(__file__).parents[1]


CONFIG_FIELDS = [field.name for field in fields(LionConfig)]
# LIT has no decays: a scan along a curve does not change it.
RECOMMENDED = {name: getattr(LionConfig(), name) for name in published_fields("text") if name != "intermediate_size"}
ROTARY = {"rope_type": "default", "rope_theta": 10000.0}
MODELS = {
    "softmax": {"mixer_type": "softmax"},
    "softmax (rotary)": {
        "mixer_type": "softmax",
        "position_embedding_type": "none",
        "rope_parameters": ROTARY,
    },
    "LION": RECOMMENDED,
    "LION-LIT": {"mixer_type": "lit"},
    "LION-D": {"mixer_type": "decay"},
    "LION-S": {"mixer_type": "selective"},
    "LION-D♮": {"mixer_type": "decay", "patch_order": "snake"},
    "LION-S♮": {"mixer_type": "selective", "patch_order": "snake"},
    "Luna": {"mixer_type": "luna"},
    # The backbone of LION-S; mamba_peers.py replaces its attention.
    "Hydra": {"mixer_type": "selective"},
    "Vim": {"mixer_type": "selective"},
}
# An environment variable, which processes that this one starts read, too: files of mixers from elsewhere.
MIXER_FILES = "LION_MIXERS"
# What peers have in common with LION as recommended, which the models above do not have.
AS_RECOMMENDED = {name: RECOMMENDED[name] for name in ("use_gated_mlp", "pooling")}
TEXT_FIELDS, IMAGE_FIELDS = {"rope_parameters"}, {"patch_order"}  # models with these are for one modality
READ = ("input_ids", "token_type_ids", "attention_mask", "label", "labels", "special_tokens_mask")  # columns of data
METRICS = ("validation_loss", "validation_accuracy", "test_loss", "test_accuracy", "longer_accuracy")


@dataclass(frozen=True)
class Experiment:
    """
    A task and what to train on it.

    Args:
        task: fields of a task of `lra`, or of the masked language modeling here: `length`, `vocab_size`, `max_bytes`.
        config: fields of `LionConfig`, the same for every model.
        steps, batch_size, learning_rate: of the training; a tenth of the steps warms up, then a cosine falls to 0.
        examples: for training; a tenth of them for validation, and for the test.
        longer: evaluate examples of so many times the `length` of the task, too.
        variant: fields of `LionConfig` that replace those of every model, and the `TRAINING_FIELDS` that are not as in
            the experiments of a scale.
        fan_in: initial weights of Hydra and Vim as their authors have them (`use_fan_in`), not those of transformers.
        rms_norm: norms are RMSNorms (`use_rms_norm`).
    """

    task: dict
    config: dict
    steps: int
    batch_size: int = 32
    learning_rate: float = 1e-3
    examples: int = 10_000
    longer: int | None = None
    variant: dict = field(default_factory=dict)
    fan_in: bool = False
    rms_norm: bool = False

    @property
    def variant_name(self) -> str | None:
        """The same for equal fields, in any order; `None` without any, as an empty cell of a table is read."""
        texts = [
            f"{name}={value if isinstance(value, str) else json.dumps(value)}"
            for name, value in sorted(self.variant.items())
        ]
        return " ".join(["fan_in"] * self.fan_in + texts) or None

    def settings(self) -> str:
        """All of it but fields of the configuration that a variant replaces, in one cell of a table."""
        training = {name: getattr(self, name) for name in ("steps", "batch_size", "learning_rate", "examples")}
        training |= {"longer": self.longer} if self.longer else {}
        return " ".join(f"{name}={value}" for name, value in {**self.task, **self.config, **training}.items())


def sizes(hidden_size: int, layers: int, heads: int, **fields) -> dict:
    return {
        "hidden_size": hidden_size,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden_size,  # room for the further projections of Luna
        "norm_position": "pre",
        "hidden_dropout_prob": 0.0,  # trainings are too short to overfit
    } | fields


def tiny(**fields) -> dict:
    """Sizes of a few steps; the MLPs leave room for the projections of Hydra."""
    return sizes(16, 2, 2, intermediate_size=256, **fields)


def last_layer_full(layers: int, modality: str = "text") -> dict:
    """Fields of a LION whose last layer is softmax attention over all tokens, in texts with rotary positions."""
    types = {"layer_types": ["linear_attention"] * (layers - 1) + ["full_attention"]}
    rope = {"rope_parameters": {"linear_attention": None, "full_attention": ROTARY}}
    return types | rope if modality == "text" else types


# Short lists: of up to 200 tokens, 600 steps teach every mixer the first operator and nothing else.
LISTOPS_CPU = {"min_length": 5, "longest": 50, "max_depth": 3, "max_arguments": 5}
LENGTHS_QUICK = {"min_length": 10, "longest": 40, "max_depth": 4, "max_arguments": 5}
# 0.02, the range of BERT's first weights, is for 768 dimensions; with 64 it slows image models down.
IMAGE = {"initializer_range": 0.1}
SCALES: dict[str, dict[str, Experiment]] = {
    # Without retrieval and Pathfinder: after minutes of training, at the sizes below, all models still guess. So they
    # do where Pathfinder's curves have two dashes each and there is one that distracts; and softmax attention does
    # where there is none, in 24 x 24 pixels with patches of 3 (54 % after 1500 steps). What retrieval asks for is
    # there in short texts (shared words tell 70 % of pairs of 128 bytes, 75 % of 256), but it takes words.
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
        "neighbour": Experiment({"length": 32}, sizes(64, 2, 4), steps=500, learning_rate=2e-3, longer=8),
        "recall": Experiment({"length": 64}, sizes(64, 2, 4), steps=600, learning_rate=4e-3),
        "scenes": Experiment(
            {"side": 14, "digits": 1}, sizes(64, 2, 4, patch_size=2, **IMAGE), steps=600, learning_rate=2e-3
        ),
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
        "neighbour": Experiment({"length": 128}, sizes(128, 4, 4), steps=3_000, longer=8),
        "recall": Experiment({"length": 2048}, sizes(128, 2, 4), steps=20_000, examples=100_000),
        "scenes": Experiment({}, sizes(128, 4, 4, patch_size=2, **IMAGE), 20_000, 128, 5e-4, examples=100_000),
    },
    "quick": {
        "mlm": Experiment({"length": 32, "vocab_size": 200, "max_bytes": 60_000}, tiny(), steps=3, batch_size=4),
        "listops": Experiment(LENGTHS_QUICK, tiny(), steps=3, batch_size=4, examples=40),
        "text": Experiment({"longest": 40, "max_bytes": 400_000, "num_packages": 2}, tiny(), 3, 4, examples=40),
        "retrieval": Experiment({"longest": 40, "max_bytes": 400_000}, tiny(), 3, batch_size=4, examples=40),
        "pathfinder": Experiment({}, tiny(patch_size=4, **IMAGE), 3, batch_size=4, examples=40),
        "digits": Experiment({}, tiny(patch_size=2, **IMAGE), 3, batch_size=4, examples=40),
        "neighbour": Experiment({"length": 8}, tiny(), 3, batch_size=4, examples=40, longer=8),
        "recall": Experiment({"length": 20}, tiny(), 3, batch_size=4, examples=40),
        "scenes": Experiment({}, tiny(patch_size=4, **IMAGE), 3, batch_size=4, examples=40),
    },
}
ALL_TASKS = list(SCALES["gpu"])
# Tables of trainings. Docstrings differ from day to day: what is to be compared is trained for one table.
TABLES = ("quality", "hybrids")


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
    task = LRA_TASKS[name](**experiment.task)
    held_out = max(experiment.examples // 10, 20)
    counts = {"train": experiment.examples, "validation": held_out, "test": held_out}
    splits = load_task(task, counts, str(cache_dir))
    if experiment.longer:
        longer = replace(task, length=experiment.longer * task.length)
        # As many tokens as the test split has.
        splits["longer"] = load_task(longer, {"test": max(held_out // experiment.longer, 20)}, str(cache_dir))["test"]
    labels = {"num_labels": len(task.labels)}
    metrics = {"compute_metrics": accuracy}
    if task.per_token:
        config = {
            "vocab_size": task.vocab_size,
            "max_position_embeddings": task.max_length,
            "pad_token_id": PAD_ID,
        }
        model_class, collate = LionForTokenClassification, pad_with_labels
        metrics = {
            "compute_metrics": accuracy,
            "preprocess_logits_for_metrics": run_mlm.most_likely,
        }
    elif task.grid is None:
        # One token more, in front: what the classifier reads, as BERT's [CLS].
        counts_of = {"vocab_size": task.vocab_size + 1, "max_position_embeddings": task.max_length + 1}
        config = counts_of | {"pad_token_id": PAD_ID}
        model_class, collate = LionForSequenceClassification, lambda rows: pad(rows, start_id=task.vocab_size)
    else:
        config = {"modality": "image", "image_size": task.grid, "num_channels": 1}
        model_class, collate = LionForImageClassification, lambda rows: images(rows, task)
    asked = np.array(splits["test"]["labels" if task.per_token else "label"])
    counts = np.bincount(asked[asked != NO_LABEL])
    return Data(model_class, config | labels, splits, collate, metrics, chance=float(counts.max() / counts.sum()))


def docstring_files(cache_dir: Path, max_bytes: int) -> dict[str, str]:
    """`train_file` and `validation_file` with docstrings of this Python."""
    folder = cache_dir / f"docstrings_{max_bytes}"
    files = {f"{split}_file": str(folder / f"{split}.txt") for split in ("train", "validation")}
    if not all(Path(file).exists() for file in files.values()):
        write_docstrings(folder, max_bytes=max_bytes)
    return files


def load_mlm(cache_dir: Path, length: int, vocab_size: int, max_bytes: int) -> Data:
    """Docstrings of this Python, with the tokenizer, the masks and the metrics of run_mlm.py."""
    files = docstring_files(cache_dir, max_bytes)
    folder = Path(files["train_file"]).parent
    data_args = run_mlm.DataTrainingArguments(**files)
    training_args = TrainingArguments(str(folder), do_train=True, do_eval=True, report_to="none")
    texts = run_mlm.load_texts(data_args, training_args, str(cache_dir))
    tokenizer_dir = folder / f"tokenizer_{vocab_size}"
    if not (tokenizer_dir / "tokenizer_config.json").exists():  # one for all, as two trainings may differ
        (column,) = find_texts(texts["train"], "The data")
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
            "compute_metrics": accuracy,
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


def pad_with_labels(rows: list[dict]) -> dict[str, torch.Tensor]:
    """A batch of sequences with a label for each token."""

    def padded(name: str, value: int) -> torch.Tensor:
        rows_of = [torch.tensor(row[name]) for row in rows]
        return torch.nn.utils.rnn.pad_sequence(rows_of, batch_first=True, padding_value=value)

    input_ids = padded("input_ids", PAD_ID)
    mask = (input_ids != PAD_ID).long()
    return {"input_ids": input_ids, "attention_mask": mask, "labels": padded("labels", NO_LABEL)}


def images(rows: list[dict], task: Task) -> dict[str, torch.Tensor]:
    pixels = torch.tensor([row["input_ids"] for row in rows], dtype=torch.float32).view(len(rows), 1, *task.grid)
    return {"pixel_values": pixels / 127.5 - 1, "labels": torch.tensor([row["label"] for row in rows])}


def add_mixers(files: Iterable[str]) -> list[str]:
    """
    Import files that register mixers (`modeling_lion.register_mixer`). Their names are models from then on, and are
    returned.
    """
    before = set(MIXERS)
    for file in files:
        sys.path.insert(0, str(Path(file).resolve().parent))
        import_module(Path(file).stem)
    names = [name for name in MIXERS if name not in before]
    for name in names:
        MODELS[name] = {"mixer_type": name}
        COLORS.setdefault(name, "#6b6b6b")
    return names


def models_of(data: Data, chosen: list[str]) -> list[str]:
    others = TEXT_FIELDS if data.config.get("modality") == "image" else IMAGE_FIELDS
    return [name for name in chosen if not others & MODELS[name].keys()]


def make_config(model: str, experiment: Experiment, data: Data, longer: int = 1) -> LionConfig:
    """
    The configuration of a model: its MLP is made smaller or larger until it has about the parameters of softmax
    without a variant.

    Args:
        longer: positions for an input so many times as long; the rest is as without.
    """
    common = published_fields(data.config.get("modality", "text")) | experiment.config | data.config
    variant = {name: value for name, value in experiment.variant.items() if name not in TRAINING_FIELDS}
    of_model = common | MODELS[model] | variant
    config = LionConfig(**of_model)
    reference = count("softmax", LionConfig(**common | MODELS["softmax"]), data)
    parameters = count(model, config, data, experiment.rms_norm)
    projections = 3 if config.use_gated_mlp else 2
    per_unit = config.num_hidden_layers * (projections * config.hidden_size + projections - 1)
    units = config.intermediate_size + round((reference - parameters) / per_unit)
    if units < 1:
        raise ValueError(f"{model} has more parameters than softmax without any MLP: raise `intermediate_size`.")
    of_model |= {"intermediate_size": units}
    if longer > 1 and config.modality == "image":
        of_model["image_size"] = tuple(round(side * math.sqrt(longer)) for side in config.image_shape)
    elif longer > 1:
        of_model["max_position_embeddings"] = longer * config.context_length
    return LionConfig(**of_model)


def make_model(name: str, config: LionConfig, data: Data) -> torch.nn.Module:
    return (peer_class(name, data.model_class) if name in MAMBA_PEERS else data.model_class)(config)


@torch.no_grad()
def use_fan_in(model: torch.nn.Module) -> None:
    """Give Hydra and Vim the initial weights of their authors, torch's own U(-n^-½, n^-½) for n inputs."""
    for layer in model.base_model.layers:
        if isinstance(layer.attention, BidirectionalMamba):
            for module in layer.attention.modules():
                if isinstance(module, torch.nn.Linear):
                    bound = module.in_features**-0.5
                    torch.nn.init.uniform_(module.weight, -bound, bound)


def use_rms_norm(model: torch.nn.Module) -> None:
    """Give a model RMSNorms in the place of its LayerNorms, new like those."""
    for name, norm in list(model.named_modules()):
        if isinstance(norm, torch.nn.LayerNorm):
            other = torch.nn.RMSNorm(norm.normalized_shape, eps=norm.eps, device=norm.weight.device)
            model.set_submodule(name, other)


def count(name: str, config: LionConfig, data: Data, rms_norm: bool = False) -> int:
    with torch.device("meta"):
        model = make_model(name, config, data)
    if rms_norm:
        use_rms_norm(model)
    return model.num_parameters()


def make_trainer(
    model: torch.nn.Module, seed: int, experiment: Experiment, data: Data, output_dir: Path, **arguments
) -> tuple[Trainer, list[str]]:
    """
    The training of an experiment, and the columns of the data that it reads.

    Args:
        arguments: of the Trainer, in place of those of all trainings here.
    """
    common = {
        "max_steps": experiment.steps,
        "per_device_train_batch_size": experiment.batch_size,
        "per_device_eval_batch_size": 2 * experiment.batch_size,
        "learning_rate": experiment.learning_rate,
        "lr_scheduler_type": "cosine",
        "warmup_steps": max(1, experiment.steps // 10),
        "weight_decay": 0.01,
        "adam_beta2": 0.98,
        "seed": seed,
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": "none",
        "remove_unused_columns": False,
        "dataloader_pin_memory": torch.cuda.is_available(),
        "bf16": torch.cuda.is_available(),
    }
    columns = [name for name in READ if name in data.splits["train"].features]
    trainer = data.trainer_class(
        model=model,
        args=TrainingArguments(str(output_dir / "trainer"), **common | arguments),
        data_collator=data.collate,
        train_dataset=data.splits["train"].select_columns(columns),
        **data.trainer,
    )
    return trainer, columns


def start(model_name: str, seed: int, experiment: Experiment, data: Data) -> torch.nn.Module:
    """A model with its initial weights."""
    set_seed(seed)
    model = make_model(model_name, make_config(model_name, experiment, data), data)
    if experiment.fan_in:
        use_fan_in(model)
    if experiment.rms_norm:
        use_rms_norm(model)
    return model


def train(model_name: str, seed: int, experiment: Experiment, data: Data, output_dir: Path) -> dict:
    """Train one model; columns of a row come back."""
    model = start(model_name, seed, experiment, data)
    trainer, columns = make_trainer(model, seed, experiment, data, output_dir)
    result = trainer.train()
    row = dict.fromkeys(METRICS) | {"chance": data.chance}
    # No position embedding has been learnt for what is longer than in training.
    skipped = {"longer"} if model.config.position_embedding_type == "absolute" else set()
    for split in ("validation", "test", "longer"):
        if split in data.splits.keys() - skipped:
            metrics = trainer.evaluate(data.splits[split].select_columns(columns), metric_key_prefix=split)
            row |= {name: value for name, value in metrics.items() if name in METRICS}
    return row | {"parameters": model.num_parameters(), "train_seconds": result.metrics["train_runtime"]}


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
        inputs = {"input_ids": torch.randint(1, config.vocab_size, (rows, config.context_length))}
    if mode == "train":
        if data.model_class is LionForMaskedLM:
            is_masked = torch.rand(inputs["input_ids"].shape) < 0.15
            inputs["labels"] = torch.where(is_masked, inputs["input_ids"], -100)
        else:
            is_per_token = data.model_class is LionForTokenClassification
            shape = inputs["input_ids"].shape if is_per_token else (rows,)
            inputs["labels"] = torch.randint(config.num_labels, shape)
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


def measure_speed(task: str, names: list[str], experiment: Experiment, data: Data, args: argparse.Namespace) -> None:
    """Time of a training step, and time and memory of inference at four times the length, by model."""
    rows = {name: {"scale": args.scale, "task": task, "model": name} for name in names}
    for mode in ("train", "infer"):
        functions = {name: make_step(name, experiment, data, mode) for name in names}
        for name, seconds in interleaved(functions, args.repeats).items():
            rows[name] |= {f"{mode}_{key}": value for key, value in summary(seconds).items()}
    for name, row in rows.items():
        row["peak_memory_bytes"] = in_new_process(inference_memory, args.scale, task, name, args.cache_dir)
    append_rows(args.output_dir / "quality_speed.csv", list(rows.values()))


def inference_memory(scale: str, task: str, name: str, cache_dir: Path) -> int:
    """Peak memory of one forward pass at four times the length: of a GPU, or else of this process."""
    experiment = SCALES[scale][task]
    make_step(name, experiment, load_data(task, experiment, cache_dir), "infer")()
    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else peak_memory()


def train_once(
    task: str, model: str, seed: int, data: Data, args: argparse.Namespace, initial_decays: str = "default"
) -> None:
    """
    Add a training, of the variant that `args` ask for, to the table unless it is there.

    Raises:
        ValueError: if it is there with other sizes, steps or data.
    """
    training = {name: value for name, value in args.set if name in TRAINING_FIELDS}
    experiment = replace(SCALES[args.scale][task], variant=dict(args.set), fan_in=args.fan_in, **training)
    path, variant = args.output_dir / f"{args.table}.csv", experiment.variant_name
    case = {"scale": args.scale, "task": task, "model": model, "initial_decays": initial_decays, "seed": seed}
    case |= {"variant": variant}
    settings = {"settings": experiment.settings()}
    if found := read_rows(path, **case):
        if found[-1]["settings"] != settings["settings"]:
            raise ValueError(f"{path} is of another experiment ({found[-1]['settings']}): give another --output_dir.")
        return
    print(f"{task}, {model}, initial decays {initial_decays}, variant {variant or 'default'}, seed {seed}", flush=True)
    row = train(model, seed, experiment, data, args.cache_dir)
    append_rows(path, [case | row | settings])
    scores = {name: round(row[name], 3) for name in METRICS if row[name] is not None}
    print(f"    {scores} in {row['train_seconds']:.0f} s", flush=True)


def parse_setting(text: str) -> tuple[str, object]:
    """
    Name and value of `field=value`; values are JSON, or strings.

    Raises:
        argparse.ArgumentTypeError: if neither `LionConfig` nor a training has such a field, or the benchmark sets it.
    """
    name, _, value = text.partition("=")
    known = [*CONFIG_FIELDS, *TRAINING_FIELDS]
    if name not in known or not value:
        near = difflib.get_close_matches(name, known)
        raise argparse.ArgumentTypeError(
            f"{text!r} is not FIELD=VALUE with a field of LionConfig, or one of {', '.join(TRAINING_FIELDS)}"
            + f"; did you mean {' or '.join(near)}?" * bool(near)
        )
    if name == "intermediate_size":
        raise argparse.ArgumentTypeError("`intermediate_size` is chosen so that all models have equal parameters.")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def training_arguments(description: str, tasks: list[str], scales: Iterable[str] = SCALES) -> argparse.ArgumentParser:
    """Arguments of all benchmarks of trainings."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=scales, default="cpu")
    parser.add_argument("--tasks", nargs="+", choices=tasks, help="not given: all of the scale")
    parser.add_argument("--output_dir", type=Path, default=RESULTS, help="folder of the tables")
    parser.add_argument("--cache_dir", type=Path, default=ROOT / "outputs" / "quality_cache", help="prepared data")
    parser.add_argument("--threads", type=int, help="CPU threads; not given: as torch decides")
    return parser


def common_arguments(description: str, models: list[str], seeds: list[int]) -> argparse.ArgumentParser:
    """Arguments of this script and of `bench_decays.py`."""
    parser = training_arguments(description, ALL_TASKS)
    parser.add_argument("--models", nargs="+", choices=models, default=models)
    parser.add_argument("--seeds", type=int, nargs="+", default=seeds)
    parser.set_defaults(set=[], fan_in=False, table="quality")
    return parser


def chosen_tasks(parser: argparse.ArgumentParser, args: argparse.Namespace) -> list[str]:
    """The tasks that were asked for; ends with a message if a scale has not all of them."""
    if missing := set(args.tasks or []) - set(SCALES[args.scale]):
        parser.error(f"scale {args.scale} has no {' and no '.join(sorted(missing))}: use --scale gpu")
    return args.tasks or list(SCALES[args.scale])


def main(args: list[str] | None = None) -> None:
    usual = list(MODELS)
    first = argparse.ArgumentParser(add_help=False)
    first.add_argument("--mixers", nargs="+", default=[])
    files = first.parse_known_args(args)[0].mixers
    if files:
        os.environ[MIXER_FILES] = os.pathsep.join(str(Path(file).resolve()) for file in files)
        add_mixers(files)
    parser = common_arguments(__doc__, list(MODELS), [0, 1, 2])
    parser.set_defaults(models=usual)
    parser.add_argument("--mixers", nargs="+", metavar="FILE", help="files that register mixers, for `--models`")
    parser.add_argument(
        "--set",
        metavar="FIELD=VALUE",
        type=parse_setting,
        action="append",
        help="a field of LionConfig, steps or learning_rate for all chosen models, stored as `variant`; repeatable",
    )
    parser.add_argument("--table", choices=TABLES, default="quality", help="where trainings go; times go with quality")
    parser.add_argument("--fan_in", action="store_true", help="initial weights of Hydra and Vim by fan-in, a variant")
    parser.add_argument("--quick", action="store_true", help="scale quick, one seed; speed of the first task only")
    parser.add_argument("--repeats", type=int, default=7, help="repeats of each timing")
    args = parser.parse_args(args)
    if args.quick:
        args.scale, args.seeds, args.repeats = "quick", args.seeds[:1], 2
    threads = torch.get_num_threads()
    tasks = chosen_tasks(parser, args)
    for task in tasks:
        experiment = SCALES[args.scale][task]
        data = load_data(task, experiment, args.cache_dir)
        names = models_of(data, args.models)
        torch.set_num_threads(args.threads or threads)
        for seed in args.seeds:
            for name in names:
                train_once(task, name, seed, data, args)
        timed = {row["model"] for row in read_rows(args.output_dir / "quality_speed.csv", scale=args.scale, task=task)}
        is_timed = (task == tasks[0] or not args.quick) and not args.set and not args.fan_in
        is_timed = is_timed and args.table == "quality"
        if is_timed and not set(names) <= timed:
            if not torch.cuda.is_available():
                torch.set_num_threads(1)  # CPU time of one thread is disturbed least; a GPU is timed by the clock
            measure_speed(task, names, experiment, data, args)
    torch.set_num_threads(threads)
    write_pages(args.output_dir, args.scale)


add_mixers(filter(None, os.environ.get(MIXER_FILES, "").split(os.pathsep)))
if __name__ == "__main__":
    main()
