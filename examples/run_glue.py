# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Fine-tune a LION model on a task of the GLUE benchmark with the Trainer, and measure it as the benchmark does; or on a
task of your own.

    python examples/run_glue.py examples/recipes/glue.yaml --task_name rte --model_name_or_path my-lion \
        --output_dir my-rte
    python examples/run_glue.py examples/recipes/glue.yaml --train_file train.csv --validation_file test.csv \
        --model_name_or_path my-lion --output_dir my-classifier

The data is nyu-mll/glue on the Hub, or your own --train_file and --validation_file (.csv, .json, .jsonl or .parquet,
each of its own type) with the columns of the task. Without --task_name they have a column "label", of names, whole
numbers, lists of either (any number of labels for a text) or, to regress on, fractions, and one column of texts, or
two for pairs; --text_columns names them. `--do_predict --predict_file texts.csv` labels texts: it writes
predictions.jsonl.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

import common
import numpy as np
import torch
from data_files import TABLES, FileArguments, check_files, load_files, number_names
from datasets import ClassLabel, Dataset, DatasetDict, List, Value, load_dataset
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
from transformers.tokenization_utils_base import LARGE_INTEGER


@dataclass(frozen=True)
class Task:
    """Columns of the texts, names of the classes (none: a number), and what the benchmark measures."""

    columns: tuple[str, ...]
    labels: tuple[str, ...]
    metrics: tuple[str, ...] = ("accuracy",)
    validation: tuple[str, ...] = ("validation",)
    is_multi_label: bool = False

    @property
    def problem_type(self) -> str:
        """What transformers calls it."""
        if not self.labels:
            return "regression"
        return "multi_label_classification" if self.is_multi_label else "single_label_classification"


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
    "f1_micro": partial(f1_score, average="micro", zero_division=0.0),
    "f1_macro": partial(f1_score, average="macro", zero_division=0.0),
    "matthews_correlation": matthews_corrcoef,
    "pearson": lambda labels, answers: pearsonr(labels, answers).statistic,
    "spearman": lambda labels, answers: spearmanr(labels, answers).statistic,
}


@dataclass
class GlueArguments(FileArguments):
    task_name: str | None = field(
        default=None,
        metadata={
            "help": "A task of GLUE. Not given: inferred from the columns of your data.",
            "choices": list(TASKS),
        },
    )
    text_columns: list[str] | None = field(
        default=None, metadata={"help": "The column of the texts, or the two of pairs, in data of your own."}
    )
    label_column: str = field(default="label", metadata={"help": "The column of the labels, in data of your own."})
    max_seq_length: int | None = field(
        default=None,
        metadata={
            "help": "Tokens per example; the rest is cut off. Not given: as many as this script trained the model "
            "with, or the context length of another model."
        },
    )


def load_data(
    glue_args: GlueArguments, training_args: TrainingArguments, validation: tuple[str, ...], cache_dir: str | None
) -> DatasetDict:
    """The splits that are needed: "train" and those of `validation`."""
    if not (training_args.do_train or training_args.do_eval):
        return DatasetDict()
    files = check_files({"train": glue_args.train_file, validation[0]: glue_args.validation_file}, TABLES)
    if files:
        datasets = load_files(files, cache_dir=cache_dir)
        for split, dataset in datasets.items():
            check_columns(dataset, (glue_args.label_column,), f"{split} data")
            datasets[split] = dataset.rename_columns({glue_args.label_column: "label"})
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
            f"The {name} has no column {' and '.join(missing)}, but {', '.join(dataset.column_names)}: rename "
            "columns, or name that of the labels in --label_column."
        )
    for column in columns:
        values = dataset[column][:]
        if None in values:
            raise ValueError(f"The {name} has no {column!r} in row {values.index(None) + 1}: fill it in.")


def check_kinds(dataset: Dataset, task: Task, name: str, has_labels: bool = True) -> None:
    """Raise a ValueError if columns hold what `task` does not, as a file of another type may; `name` says of which."""
    for column in task.columns:
        if "string" not in (dtype := getattr(dataset.features[column], "dtype", "lists")):
            raise ValueError(
                f"The {name} has {dtype} in the column {column!r}, where texts are read: put them into quotes, in "
                ".jsonl (numbers in .csv have none)."
            )
    if not has_labels:
        return
    feature = dataset.features["label"]
    if task.is_multi_label != isinstance(feature, List):
        kinds = ("one label", "a list of labels") if task.is_multi_label else ("a list of labels", "one label")
        raise ValueError("The {} has {} in each row, the task has {}: use one form.".format(name, *kinds))
    if not task.labels and not getattr(feature, "dtype", "").startswith(("float", "int", "uint")):
        raise ValueError(f"The {name} has the label {dataset[0]['label']!r}, no number, but the task is to regress.")


def find_texts(dataset: Dataset, given: list[str] | None) -> tuple[str, ...]:
    """
    The columns of the texts in data of one's own.

    Args:
        given: `--text_columns`. `None`: columns that a task of GLUE has, or the only one of texts.
    """
    columns = dataset.column_names
    texts = [name for name in columns if name != "label" and "string" in getattr(dataset.features[name], "dtype", "")]
    if given is not None:
        check_columns(dataset, (*given,), "data")
        texts = given
    elif len(texts) > 1:
        known = (("text",), *(task.columns for task in TASKS.values() if len(task.columns) == 2))
        texts = next((names for names in known if {*names} <= {*texts}), texts)
        if len(texts) > 1 and texts not in known:
            raise ValueError(
                f"The data has {len(texts)} columns of texts, {', '.join(texts)}: name the one to read, or two for "
                f"pairs, in --text_columns, as in `--text_columns {texts[0]}`."
            )
    if not 1 <= len(texts) <= 2:
        raise ValueError(
            f"The data has {len(texts)} columns of texts among {', '.join(columns)}: one is read, or two as a pair."
        )
    return tuple(texts)


def find_task(dataset: Dataset, texts: tuple[str, ...], config: PreTrainedConfig, is_train: bool) -> Task:
    """
    The task of one's own data, from its labels; classes that the model has already keep their order.

    Args:
        texts: the columns of the texts.
        is_train: whether the labels are all that there are; if not, they are those of the model.
    """
    known = tuple(config.id2label.values())
    if "label" not in dataset.column_names and not is_train:  # texts to label
        names = () if config.problem_type == "regression" else known
        return Task(texts, names, is_multi_label=config.problem_type == "multi_label_classification")
    feature = dataset.features["label"]
    if getattr(feature, "dtype", "").startswith("float"):
        return Task(texts, (), ("pearson", "spearman"))
    is_multi_label = isinstance(feature, List)
    feature = feature.feature if is_multi_label else feature
    names = known
    if is_train:
        values = chain.from_iterable(dataset["label"]) if is_multi_label else dataset["label"]
        names = feature.names if isinstance(feature, ClassLabel) else [str(x) for x in sorted({*values})]
    names = known if {*names} == {*known} else (*names,)
    metrics = ("f1_micro", "f1_macro", "accuracy") if is_multi_label else ("accuracy",)
    return Task(texts, names, metrics, is_multi_label=is_multi_label)


def number_labels(dataset: Dataset, task: Task, name: str) -> Dataset:
    """The labels of one's own data, names or numbers of the task's, as numbers; `name` is the task's."""
    feature = dataset.features["label"]
    if isinstance(feature, ClassLabel):
        dataset = dataset.cast_column("label", Value("int64"))
        dataset = dataset.map(lambda row: {"name": feature.names[row["label"]]}, remove_columns=["label"])
        dataset = dataset.rename_column("name", "label")
    places = {}
    for row, labels in enumerate(dataset["label"], start=1):
        for label in labels if task.is_multi_label else [labels]:
            places.setdefault(str(label), f"row {row}")
    ids = number_names(places, task.labels, name)

    def number(label) -> int | list[float]:
        if not task.is_multi_label:
            return ids[str(label)]
        chosen = {ids[str(name)] for name in label}
        return [float(i in chosen) for i in range(len(task.labels))]

    dataset = dataset.map(lambda row: {"number": number(row["label"])}, remove_columns=["label"])
    return dataset.rename_column("number", "label")


def measure(task: Task) -> Callable[[EvalPrediction], dict[str, float]]:
    """What the Trainer computes at an evaluation."""

    def compute_metrics(prediction: EvalPrediction) -> dict[str, float]:
        answers, labels = prediction.predictions, prediction.label_ids
        if task.is_multi_label:
            answers, labels = answers > 0, labels > 0.5
        else:
            answers = answers.argmax(axis=-1) if task.labels else answers.reshape(-1)
        return {name: float(METRICS[name](labels, answers)) for name in task.metrics}

    return compute_metrics


def write_predictions(trainer: Trainer, task: Task, dataset: Dataset, rows: Dataset) -> None:
    """
    Label texts: predictions.jsonl in the output folder has each row of the file, and its "label", or "labels" for a
    model of many, with the probability of every label as "scores"; of a regression, "score".
    """
    logits = torch.from_numpy(trainer.predict(dataset).predictions)
    if not task.labels:
        answers = [{"score": value} for value in logits.flatten().tolist()]
    else:
        probabilities = logits.sigmoid() if task.is_multi_label else logits.softmax(-1)
        scores = [dict(zip(task.labels, row, strict=True)) for row in probabilities.tolist()]
        if task.is_multi_label:
            answers = [{"labels": [name for name, p in row.items() if p > 0.5], "scores": row} for row in scores]
        else:
            answers = [{"label": max(row, key=row.get), "scores": row} for row in scores]
    common.save_rows(trainer, (row | answer for row, answer in zip(rows, answers, strict=True)))


def main(args: list[str] | None = None) -> Trainer:
    """Run with these arguments, or those of the command line; returns the Trainer."""
    classes = (common.ModelArguments, GlueArguments, TrainingArguments)
    model_args, glue_args, training_args = common.parse_arguments(classes, args)
    common.check_arguments(model_args, training_args, can_predict=True)
    if model_args.model_name_or_path is None:
        raise ValueError("GLUE is for trained models: give --model_name_or_path.")
    task = TASKS.get(glue_args.task_name)
    if task is None and not (glue_args.train_file or glue_args.validation_file or glue_args.predict_file):
        raise ValueError(f"Give --task_name (one of {', '.join(TASKS)}), or data of your own by --train_file.")
    config = common.load_config(model_args)
    if training_args.do_predict != (glue_args.predict_file is not None):
        raise ValueError("Give --do_predict and --predict_file together.")
    validation = ("validation",) if task is None else task.validation
    datasets = load_data(glue_args, training_args, validation, model_args.cache_dir)
    to_label = None
    if training_args.do_predict:
        files = check_files({"predict": glue_args.predict_file}, TABLES)
        to_label = load_files(files, cache_dir=model_args.cache_dir)["predict"]
    name = f"Task {glue_args.task_name!r}"
    if task is None:
        first = next(iter(datasets.values()), to_label)
        texts = find_texts(first, glue_args.text_columns)
        name, task = "Your task", find_task(first, texts, config, training_args.do_train)
        print(f"Reading {' and '.join(texts)}: {task.problem_type.replace('_', ' ')} {', '.join(task.labels)}".strip())
    for split, dataset in datasets.items():
        check_columns(dataset, (*task.columns, "label"), f"{split} data")
        check_kinds(dataset, task, f"{split} data")
        if task.labels and (glue_args.train_file or glue_args.validation_file):
            datasets[split] = number_labels(dataset, task, name)
    if task.labels:
        config.id2label = dict(enumerate(task.labels))
        config.label2id = {name: i for i, name in enumerate(task.labels)}
    else:
        config.num_labels = 1
    if datasets:  # else the model knows
        config.problem_type = task.problem_type
    checkpoint = common.find_checkpoint(training_args)
    set_seed(training_args.seed)

    tokenizer = AutoTokenizer.from_pretrained(model_args.model_name_or_path, cache_dir=model_args.cache_dir)
    model = common.load_model(AutoModelForSequenceClassification, model_args, config)
    known = tokenizer.model_max_length if tokenizer.model_max_length < LARGE_INTEGER else common.context_length(config)
    length = glue_args.max_seq_length or known
    if training_args.do_train:
        tokenizer.model_max_length = length  # is saved

    def encode(rows: dict[str, list]) -> dict[str, list]:
        return dict(tokenizer(*(rows[name] for name in task.columns), truncation=True, max_length=length))

    def encode_labelled(rows: dict[str, list]) -> dict[str, list]:
        return encode(rows) | {"labels": rows["label"] if task.labels else [float(x) for x in rows["label"]]}

    limits = {"train": glue_args.max_train_samples}
    for split, dataset in datasets.items():
        limit = limits.get(split, glue_args.max_eval_samples)
        dataset = common.limit_samples(dataset, limit)
        datasets[split] = dataset.map(encode_labelled, batched=True, remove_columns=dataset.column_names)
        if cut := sum(len(ids) >= length for ids in datasets[split]["input_ids"]):
            print(f"{split}: {cut} of {len(dataset)} texts are cut off at {length} tokens; see --max_seq_length.")
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

    common.train_and_evaluate(trainer, checkpoint, evaluate)
    if to_label is not None:
        check_columns(to_label, task.columns, "predict data")
        check_kinds(to_label, task, "predict data", has_labels=False)
        encoded = to_label.map(encode, batched=True, remove_columns=to_label.column_names)
        write_predictions(trainer, task, encoded, to_label)
    return trainer


if __name__ == "__main__":
    main()
