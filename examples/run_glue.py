# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Fine-tune a LION model on a task of the GLUE benchmark with the Trainer, and measure it as the benchmark does.

    python examples/run_glue.py examples/recipes/glue.yaml --task_name rte --model_name_or_path my-lion \
        --output_dir my-rte

The data is nyu-mll/glue on the Hub, or your own --train_file and --validation_file (.csv, .json, .jsonl) with the
columns of the task.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import common
import numpy as np
from datasets import DatasetDict, load_dataset
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import f1_score, matthews_corrcoef
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    EvalPrediction,
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
    task_name: str = field(metadata={"help": "The task.", "choices": list(TASKS)})
    train_file: str | None = field(default=None, metadata={"help": "Training data of your own: .csv, .json, .jsonl."})
    validation_file: str | None = field(default=None, metadata={"help": "Validation data of your own."})
    max_seq_length: int | None = field(
        default=None, metadata={"help": "Tokens per example. Not given: the configuration's context length."}
    )
    max_train_samples: int | None = field(default=None, metadata={"help": "Use only so many training examples."})
    max_eval_samples: int | None = field(default=None, metadata={"help": "Use only so many validation examples."})


def load_task(glue_args: GlueArguments, training_args: TrainingArguments, cache_dir: str | None) -> DatasetDict:
    """The splits that are needed: "train" and those of `Task.validation`; labels are numbers."""
    task = TASKS[glue_args.task_name]
    files = {"train": glue_args.train_file, task.validation[0]: glue_args.validation_file}
    files = {split: file for split, file in files.items() if file is not None}
    common.check_paths(**{f"{split.split('_')[0]}_file": file for split, file in files.items()})
    if files:
        kind = "csv" if next(iter(files.values())).endswith(".csv") else "json"
        datasets = load_dataset(kind, data_files=files, cache_dir=cache_dir)
    else:
        datasets = load_dataset("nyu-mll/glue", glue_args.task_name, cache_dir=cache_dir)
    needed = ["train"] * training_args.do_train
    if training_args.do_eval:
        needed += [split for split in task.validation if split in datasets] or [task.validation[0]]
    for split in needed:
        if split not in datasets:
            raise ValueError(f"There is no data to read as {split!r}: give --train_file and --validation_file.")
        if missing := [name for name in (*task.columns, "label") if name not in datasets[split].column_names]:
            raise ValueError(
                f"The {split} data of task {glue_args.task_name!r} has no column {' and '.join(missing)}, but "
                f"{', '.join(datasets[split].column_names)}."
            )
    if task.labels and files:  # names or numbers
        ids = {name: i for i, name in enumerate(task.labels)} | {str(i): i for i in range(len(task.labels))}
        if unknown := {str(label) for split in needed for label in datasets[split]["label"]} - ids.keys():
            raise ValueError(
                f"Task {glue_args.task_name!r} has the labels {', '.join(task.labels)}; the data has "
                f"{', '.join(sorted(unknown)[:5])}."
            )
        datasets = datasets.map(lambda row: {"label": ids[str(row["label"])]})
    return DatasetDict({split: datasets[split] for split in needed})


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
    task = TASKS[glue_args.task_name]
    config = common.load_config(model_args)
    if task.labels:
        config.id2label = dict(enumerate(task.labels))
        config.label2id = {name: i for i, name in enumerate(task.labels)}
    else:
        config.num_labels, config.problem_type = 1, "regression"
    checkpoint = common.find_checkpoint(training_args)
    set_seed(training_args.seed)

    datasets = load_task(glue_args, training_args, model_args.cache_dir)
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
