# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Fine-tune a LION model on a task of the GLUE benchmark with the Trainer, and measure it as the benchmark does; or on a
task of your own.

    python examples/run_glue.py examples/recipes/glue.yaml --task_name rte --model_name_or_path my-lion \
        --output_dir my-rte
    python examples/run_glue.py examples/recipes/glue.yaml --train_file train.csv --validation_file test.csv \
        --model_name_or_path my-lion --output_dir my-classifier

The data is nyu-mll/glue on the Hub, or your own --train_file and --validation_file (.csv, .json, .jsonl, .parquet)
with the columns of the task. Without --task_name they have a column "label", of names, whole numbers or, to regress
on, fractions, and one or two columns of texts.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import common
import numpy as np
from data_files import TABLES, check_files, load_files
from datasets import ClassLabel, Dataset, DatasetDict, Value, load_dataset
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import f1_score, matthews_corrcoef
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    EvalPrediction,
    PreTrainedConfig,
    Trainer,
    TrainingArguments,
    set_seed,
)


@dataclass(frozen=True)
class Task:
    """Columns of the texts, names of the classes (none: a number), and what the benchmark measures."""

    columns: tuple[str, ...]
    labels: tuple[str, ...]
    metrics: tuple[str, ...] = ("accuracy",)
    validation: tuple[str, ...] = ("validation",)


ENTAILMENT = ("entailment", "not_entailment")
DUPLICATE = ("not_duplicate", "duplicate")
TASKS = {
    "cola": Task(("sentence",), ("unacceptable", "acceptable"), ("matthews_correlation",)),
    "sst2": Task(("sentence",), ("negative", "positive")),
    "mrpc": Task(("sentence1", "sentence2"), ("not_equivalent", "equivalent"), ("accuracy", "f1")),
    "stsb": Task(("sentence1", "sentence2"), (), ("pearson", "spearman")),
    "qqp": Task(("question1", "question2"), DUPLICATE, ("accuracy", "f1")),
    "mnli": Task(
        ("premise", "hypothesis"),
        ("entailment", "neutral", "contradiction"),
        validation=("validation_matched", "validation_mismatched"),
    ),
    "qnli": Task(("question", "sentence"), ENTAILMENT),
    "rte": Task(("sentence1", "sentence2"), ENTAILMENT),
}
METRICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": lambda labels, answers: np.mean(labels == answers),
    "f1": f1_score,
    "matthews_correlation": matthews_corrcoef,
    "pearson": lambda labels, answers: pearsonr(labels, answers).statistic,
    "spearman": lambda labels, answers: spearmanr(labels, answers).statistic,
}


@dataclass
class GlueArguments:
    task_name: str | None = field(
        default=None,
        metadata={"help": "The task. Not given: what the columns of your own data say.", "choices": list(TASKS)},
    )
    train_file: str | None = field(default=None, metadata={"help": f"Training data of your own: {', '.join(TABLES)}."})
    validation_file: str | None = field(default=None, metadata={"help": "Validation data of your own."})
    max_seq_length: int | None = field(
        default=None, metadata={"help": "Tokens per example. Not given: the configuration's context length."}
    )
    max_train_samples: int | None = field(default=None, metadata={"help": "Use only so many training examples."})
    max_eval_samples: int | None = field(default=None, metadata={"help": "Use only so many validation examples."})


def load_data(
    glue_args: GlueArguments, training_args: TrainingArguments, validation: tuple[str, ...], cache_dir: str | None
) -> DatasetDict:
    """The splits that are needed: "train" and those of `validation`."""
    files = check_files({"train": glue_args.train_file, validation[0]: glue_args.validation_file}, TABLES)
    if files:
        datasets = load_files(files, cache_dir=cache_dir)
    else:
        datasets = load_dataset("nyu-mll/glue", glue_args.task_name, cache_dir=cache_dir)
    needed = ["train"] * training_args.do_train
    if training_args.do_eval:
        needed += [split for split in validation if split in datasets] or [validation[0]]
    for split in needed:
        if split not in datasets:
            raise ValueError(f"There is no data to read as {split!r}: give --train_file and --validation_file.")
    return DatasetDict({split: datasets[split] for split in needed})


def check_columns(dataset: Dataset, columns: tuple[str, ...], name: str) -> None:
    """Raise a ValueError if columns, or values in them, are missing; `name` says of which data."""
    if missing := [column for column in columns if column not in dataset.column_names]:
        raise ValueError(
            f"The {name} has no column {' and '.join(missing)}, but {', '.join(dataset.column_names)}: rename columns."
        )
    for column in columns:
        values = dataset[column][:]
        if None in values:
            raise ValueError(f"The {name} has no {column!r} in row {values.index(None) + 1}: fill it in.")


def find_task(dataset: Dataset, config: PreTrainedConfig, is_train: bool) -> Task:
    """
    The task of one's own data, from its columns and labels; classes that the model has already keep their order.

    Args:
        is_train: whether the labels are all that there are; if not, they are those of the model.

    Raises:
        ValueError: if there is no column "label", or not one or two of texts.
    """
    check_columns(dataset, ("label",), "data")
    feature, columns = dataset.features["label"], dataset.column_names
    texts = [name for name in columns if name != "label" and "string" in getattr(dataset.features[name], "dtype", "")]
    if len(texts) > 2:  # the columns of a task among others
        texts = next((task.columns for task in TASKS.values() if {*task.columns} <= {*texts}), texts)
    if not 1 <= len(texts) <= 2:
        raise ValueError(
            f"The data has {len(texts)} columns of texts ({', '.join(texts)}) among {', '.join(columns)}: leave one, "
            "or two for pairs, or give --task_name."
        )
    if getattr(feature, "dtype", "").startswith("float"):
        return Task((*texts,), (), ("pearson", "spearman"))
    known = tuple(config.id2label.values())
    names = known
    if is_train:
        names = feature.names if isinstance(feature, ClassLabel) else [str(x) for x in sorted({*dataset["label"]})]
    return Task((*texts,), known if {*names} == {*known} else (*names,))


def number_labels(dataset: Dataset, task: Task, name: str) -> Dataset:
    """The labels of one's own data, names or numbers of the task's, as numbers; `name` is the task's."""
    feature = dataset.features["label"]
    if isinstance(feature, ClassLabel):
        dataset = dataset.cast_column("label", Value("int64"))
        dataset = dataset.map(lambda row: {"name": feature.names[row["label"]]}, remove_columns=["label"])
        dataset = dataset.rename_column("name", "label")
    found = {str(label) for label in dataset["label"]}
    ids = {label: i for i, label in enumerate(task.labels)}
    if not found <= ids.keys():
        numbers = {str(i): i for i in range(len(task.labels))}
        ids = numbers if found <= numbers.keys() else ids
    if unknown := found - ids.keys():
        raise ValueError(
            f"{name} has the labels {', '.join(task.labels)}; the data has {', '.join(sorted(unknown)[:5])}."
        )
    dataset = dataset.map(lambda row: {"number": ids[str(row["label"])]}, remove_columns=["label"])
    return dataset.rename_column("number", "label")


def measure(task: Task) -> Callable[[EvalPrediction], dict[str, float]]:
    """What the Trainer computes at an evaluation."""

    def compute_metrics(prediction: EvalPrediction) -> dict[str, float]:
        answers = prediction.predictions
        answers = answers.argmax(axis=-1) if task.labels else answers.reshape(-1)
        return {name: float(METRICS[name](prediction.label_ids, answers)) for name in task.metrics}

    return compute_metrics


def main(args: list[str] | None = None) -> Trainer:
    """Run with these arguments, or those of the command line; returns the Trainer."""
    classes = (common.ModelArguments, GlueArguments, TrainingArguments)
    model_args, glue_args, training_args = common.parse_arguments(classes, args)
    common.check_arguments(model_args, training_args)
    if model_args.model_name_or_path is None:
        raise ValueError("GLUE is for trained models: give --model_name_or_path.")
    task = TASKS.get(glue_args.task_name)
    if task is None and not (glue_args.train_file or glue_args.validation_file):
        raise ValueError(f"Give --task_name (one of {', '.join(TASKS)}), or data of your own by --train_file.")
    config = common.load_config(model_args)
    validation = ("validation",) if task is None else task.validation
    datasets = load_data(glue_args, training_args, validation, model_args.cache_dir)
    name = f"Task {glue_args.task_name!r}"
    if task is None:
        name, task = "Your task", find_task(next(iter(datasets.values())), config, training_args.do_train)
    for split, dataset in datasets.items():
        check_columns(dataset, (*task.columns, "label"), f"{split} data")
        if task.labels and (glue_args.train_file or glue_args.validation_file):
            datasets[split] = number_labels(dataset, task, name)
    if task.labels:
        config.id2label = dict(enumerate(task.labels))
        config.label2id = {name: i for i, name in enumerate(task.labels)}
    else:
        config.num_labels, config.problem_type = 1, "regression"
    checkpoint = common.find_checkpoint(training_args)
    set_seed(training_args.seed)

    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path, cache_dir=model_args.cache_dir)
    model = common.load_model(AutoModelForSequenceClassification, model_args, config)
    length = glue_args.max_seq_length or common.context_length(config)

    def encode(rows: dict[str, list]) -> dict[str, list]:
        encoded = tokenizer(*(rows[name] for name in task.columns), truncation=True, max_length=length)
        return dict(encoded) | {"labels": rows["label"] if task.labels else [float(x) for x in rows["label"]]}

    limits = {"train": glue_args.max_train_samples}
    for split, dataset in datasets.items():
        limit = limits.get(split, glue_args.max_eval_samples)
        dataset = common.limit_samples(dataset, limit)
        datasets[split] = dataset.map(encode, batched=True, remove_columns=dataset.column_names)
    validation = [split for split in datasets if split != "train"]
    trainer = Trainer(
        model=model,
        args=training_args,
        train_dataset=datasets.get("train"),
        eval_dataset=datasets[validation[0]] if validation else None,
        processing_class=tokenizer,
        compute_metrics=measure(task),
        callbacks=common.early_stopping(model_args),
    )

    def evaluate(trainer: Trainer) -> dict[str, float]:
        metrics = trainer.evaluate()
        for split in validation[1:]:
            suffix = split.removeprefix("validation_")
            more = trainer.evaluate(datasets[split], metric_key_prefix=f"eval_{suffix}")
            metrics |= {name: value for name, value in more.items() if name != "epoch"}
        return metrics

    return common.train_and_evaluate(trainer, checkpoint, evaluate)


if __name__ == "__main__":
    main()
