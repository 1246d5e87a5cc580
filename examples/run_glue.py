# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Fine-tune a LION model on texts and labels with the Trainer: on a task of the GLUE benchmark, measured as the benchmark
does, or on a table of your own (docs/guides/classify.md).

    python examples/run_glue.py examples/recipes/glue.yaml --task_name rte --model_name_or_path my-lion \
        --output_dir my-rte
    python examples/run_glue.py examples/recipes/glue.yaml --train_file train.csv --validation_file test.csv \
        --model_name_or_path my-lion --output_dir my-classifier
    python examples/run_glue.py --model_name_or_path my-classifier --do_predict --predict_file texts.csv \
        --output_dir my-labels
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from datasets import Dataset, load_dataset
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import f1_score, matthews_corrcoef
from training_lion.scripts import arguments, class_names, data_files, models, training
from training_lion.scripts.arguments import option
from transformers import AutoModelForSequenceClassification, EvalPrediction, Trainer, TrainingArguments


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
        """The name of this kind of task in transformers."""
        if not self.labels:
            return "regression"
        return "multi_label_classification" if self.is_multi_label else "single_label_classification"


ENTAILMENT = ("entailment", "not_entailment")
DUPLICATE = ("not_duplicate", "duplicate")
INFERENCE = ("entailment", "neutral", "contradiction")
GLUE_TASKS = {
    "cola": Task(("sentence",), ("unacceptable", "acceptable"), ("matthews_correlation",)),
    "sst2": Task(("sentence",), ("negative", "positive")),
    "mrpc": Task(("sentence1", "sentence2"), ("not_equivalent", "equivalent"), ("accuracy", "f1")),
    "stsb": Task(("sentence1", "sentence2"), (), ("pearson", "spearman")),
    "qqp": Task(("question1", "question2"), DUPLICATE, ("accuracy", "f1")),
    "mnli": Task(("premise", "hypothesis"), INFERENCE, validation=("validation_matched", "validation_mismatched")),
    "qnli": Task(("question", "sentence"), ENTAILMENT),
    "rte": Task(("sentence1", "sentence2"), ENTAILMENT),
}
METRICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "accuracy": lambda labels, answers: np.mean(labels == answers),
    "f1": f1_score,
    "f1_micro": partial(f1_score, average="micro", zero_division=0.0),
    "f1_macro": partial(f1_score, average="macro", zero_division=0.0),
    "matthews_correlation": matthews_corrcoef,
    "pearson": lambda labels, answers: correlation(pearsonr, labels, answers),
    "spearman": lambda labels, answers: correlation(spearmanr, labels, answers),
}


def correlation(function: Callable, labels: np.ndarray, answers: np.ndarray) -> float:
    """Return a correlation, or 0 with a message where it is not defined: all labels or all answers are equal."""
    if min(np.ptp(labels), np.ptp(answers)) > 0:
        return function(labels, answers).statistic
    print("All labels, or all answers, are the same number: their correlation counts as 0.")
    return 0.0


@dataclass
class GlueArguments(arguments.FileArguments):
    task_name: str | None = option("A task of GLUE. Not given: inferred from the columns.", choices=list(GLUE_TASKS))
    text_columns: list[str] | None = option("The column of the texts, or the two of pairs, in data of your own.")
    label_column: str = option("The column of the labels, in data of your own.", "label")
    text_files: str | None = option(data_files.TEXT_FILES_HELP)
    max_seq_length: int | None = option(
        "Tokens per example; the rest is cut off. Not given: as many as this script trained the model with, or the "
        "context length of another model."
    )

    def check(self, model_args: arguments.ModelArguments, training_args: TrainingArguments) -> None:
        if self.task_name is None and not (self.train_file or self.validation_file or self.predict_file):
            raise ValueError(
                f"Give --task_name (one of {', '.join(GLUE_TASKS)}), or data of your own by --train_file."
            )
        if training_args.do_predict != (self.predict_file is not None):
            raise ValueError("Give --do_predict and --predict_file together.")
        if self.text_columns is not None and len(self.text_columns) > 2:
            raise ValueError("--text_columns names more than two: one is read, or two as a pair.")


def load_data(setup: training.Setup) -> dict[str, Dataset]:
    """Load the needed splits from files, or from the benchmark if there are no files to train on or evaluate."""
    glue_args, training_args, cache_dir = setup.data_args, setup.training_args, setup.model_args.cache_dir
    needed, datasets = [*arguments.needed_splits(training_args)], {}
    files = data_files.check_files({split: getattr(glue_args, f"{split}_file") for split in needed}, data_files.TABLES)
    for split, file in files.items():
        dataset, label = data_files.load_files({split: file}, cache_dir=cache_dir)[split], glue_args.label_column
        if split != "predict":
            what, fix = f"--{split}_file {file}", "name the one of the labels by --label_column"
            data_files.check_columns(dataset, (label,), what, fix=fix)
            if label != "label":
                other = [name for name in dataset.column_names if name == "label"]
                dataset = dataset.remove_columns(other).rename_column(label, "label")
        datasets[split] = dataset
    if not (glue_args.train_file or glue_args.validation_file) and needed != ["predict"]:
        benchmark = load_dataset("nyu-mll/glue", glue_args.task_name, cache_dir=cache_dir)
        validation, *more = GLUE_TASKS[glue_args.task_name].validation
        datasets = {**benchmark, "validation": benchmark[validation]} | datasets
        needed += more * training_args.do_eval
    if missing := [split for split in needed if split not in datasets]:
        raise ValueError(f"There is no data to read as {missing[0]!r}: give --train_file and --validation_file.")
    return {split: datasets[split] for split in needed}


def find_task(setup: training.Setup, dataset: Dataset, texts: tuple[str, ...], name: str) -> Task:
    """
    Return the task of the data `name`, whose texts are in the columns `texts`. In training, classes come from the
    data; otherwise from the model, which also says whether it regresses.
    """
    config, is_train = setup.config, setup.training_args.do_train
    kind = None if is_train else config.problem_type
    is_multi_label, is_regression = kind == "multi_label_classification", kind == "regression"
    if kind is None and not is_train:
        is_regression = config.num_labels == 1  # as transformers takes it
    if is_train or setup.training_args.do_eval:  # else the texts are to be labelled
        is_multi_label = isinstance(dataset.features["label"], class_names.LISTS)
        is_regression |= not is_multi_label and class_names.has_fractions(dataset, "label")
    if is_regression:
        return Task(texts, (), ("pearson", "spearman"))
    names = class_names.all_names(dataset, "label", name) if is_train else config.id2label.values()
    if is_train and not is_multi_label and not {*names} <= {*config.id2label.values()}:
        class_names.check_several(names, name)
    metrics = ("f1_micro", "f1_macro", "accuracy") if is_multi_label else ("accuracy",)
    return Task(texts, (*names,), metrics, is_multi_label=is_multi_label)


def benchmark_labels(setup: training.Setup, task: Task) -> tuple[str, ...]:
    """
    Return the labels of a task of the benchmark in its order, as the model writes them; the model may have another
    order. A model without labels gets them. Raises a ValueError if it has others and is not trained.
    """
    config, is_train = setup.config, setup.training_args.do_train
    known = {name.lower(): name for name in config.id2label.values()}
    if known.keys() == {*task.labels}:
        return tuple(known[name] for name in task.labels)
    if not is_train and any(not name.startswith("label_") for name in known):
        labels = ", ".join(config.id2label.values())
        raise ValueError(f"The model has the labels {labels}, the task {', '.join(task.labels)}: train it first.")
    if not is_train:
        print(f"The model's labels have no names; they are taken to be {', '.join(task.labels)}, in this order.")
    class_names.name_labels(config, task.labels)
    return task.labels


def number_labels(
    dataset: Dataset, task: Task, numbers: list[int], count: int, name: str, has_numbers: bool
) -> Dataset:
    """
    Convert the labels of the data `name` for the model: to the number of a class, 0 or 1 for each class, or fractions.
    `numbers` are the model's numbers of the task's classes, among `count`; `has_numbers` is as in `number_names`.
    """
    if task.is_multi_label != isinstance(dataset.features["label"], class_names.LISTS):
        kinds = ("one label", "a list of labels") if task.is_multi_label else ("a list of labels", "one label")
        raise ValueError("{} has {} in each row, the task has {}: use one form.".format(name, *kinds))
    if not task.labels:
        values = class_names.read_numbers(dataset, "label", name)
    else:
        labels = class_names.label_names(dataset, "label", name)
        places = class_names.first_places(labels, (f"{name}, row {row}" for row in range(1, len(labels) + 1)))
        ids = class_names.number_names(places, task.labels, "The task", has_numbers)
        if task.is_multi_label:
            chosen = [{numbers[ids[label]] for label in row} for row in labels]
            values = [[float(i in row) for i in range(count)] for row in chosen]
        else:
            values = [numbers[ids[label]] for label in labels]
    return dataset.remove_columns("label").add_column("label", values)


def measure(prediction: EvalPrediction, task: Task, numbers: list[int]) -> dict[str, float]:
    """Compute the metrics of an evaluation. F1 is that of the task's second class; `numbers` are the model's."""
    answers, labels = prediction.predictions, prediction.label_ids
    if task.is_multi_label:
        answers, labels = answers > 0, labels > 0.5
    else:
        answers = answers.argmax(axis=-1) if task.labels else answers.reshape(-1)
        if "f1" in task.metrics:
            answers, labels = answers == numbers[1], labels == numbers[1]
    return {name: float(METRICS[name](labels, answers)) for name in task.metrics}


def write_predictions(trainer: Trainer, task: Task, dataset: Dataset, rows: Dataset) -> None:
    """
    Label texts. predictions.jsonl in the output folder has each row of the file with its "label" ("labels" if a text
    may have several) and the probability of every label as "scores"; for a regression, with its "score".
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
    training.save_rows(trainer, answers, rows)


def main(args: list[str] | None = None) -> Trainer:
    """Run with these arguments, or those of the command line; returns the Trainer."""
    setup = training.start(GlueArguments, args)
    model_args, glue_args, training_args, config, checkpoint = setup
    is_own, is_train = glue_args.task_name is None, training_args.do_train
    datasets, task = load_data(setup), GLUE_TASKS.get(glue_args.task_name)
    files = {split: getattr(glue_args, f"{split}_file", None) for split in datasets}
    names = {x: f"--{x}_file {file}" if file else f"The {x} data" for x, file in files.items()}
    if is_own:
        split, first = next(iter(datasets.items()))
        pairs = [kind.columns for kind in GLUE_TASKS.values() if len(kind.columns) == 2]
        how = ", or two for pairs, in --text_columns"
        texts = data_files.find_texts(first, names[split], glue_args.text_columns, pairs, how)
        task = find_task(setup, first, texts, names[split])
        print(f"Reading {' and '.join(texts)}: {task.problem_type.replace('_', ' ')} {', '.join(task.labels)}".strip())
    if training_args.label_smoothing_factor and task.problem_type != "single_label_classification":
        raise ValueError("--label_smoothing_factor is for one class for each text: leave it out.")
    order = task.labels
    if not task.labels:
        config.num_labels = 1
    elif not is_own:
        order = benchmark_labels(setup, task)
    elif is_train:
        class_names.set_labels(config, [*order], model_args, "ForSequenceClassification", "training texts", fewest=1)
    known = [class_names.class_name(name) for name in config.id2label.values()]
    numbers, to_label = [known.index(class_names.class_name(name)) for name in order], datasets.get("predict")
    for split, dataset in datasets.items():
        data_files.check_texts(dataset, task.columns, names[split])
        if split != "predict":
            has_numbers = not (is_own and is_train)
            dataset = number_labels(dataset, task, numbers, len(known), names[split], has_numbers)
        if files[split]:
            dataset = data_files.read_text_files(dataset, task.columns, names[split], glue_args.text_files)
        datasets[split] = dataset
    task = replace(task, labels=tuple(config.id2label.values()) if task.labels else ())
    if is_train or training_args.do_eval:  # else the model knows
        config.problem_type = task.problem_type

    tokenizer = models.load_tokenizer(model_args.model_name_or_path, model_args.cache_dir)
    model = models.load_model(AutoModelForSequenceClassification, model_args, config)
    length = models.text_length(model, tokenizer, glue_args.max_seq_length)
    if is_train:
        tokenizer.model_max_length = length  # is saved

    for split, dataset in datasets.items():
        dataset = glue_args.limit(split.partition("_")[0], dataset)
        datasets[split] = data_files.tokenize(dataset, tokenizer, task.columns, length, split)
        if split != "predict":
            datasets[split] = datasets[split].add_column("labels", dataset["label"][:])
    metrics = partial(measure, task=task, numbers=numbers)
    trainer = training.make_trainer(setup, model, datasets, tokenizer, metrics)

    def evaluate(trainer: Trainer) -> dict[str, float]:
        metrics = trainer.evaluate()
        for split in datasets.keys() - {"train", "validation", "predict"}:
            more = trainer.evaluate(datasets[split], metric_key_prefix=split.replace("validation", "eval"))
            metrics |= {name: value for name, value in more.items() if name != "epoch"}
        return metrics

    training.train_and_evaluate(trainer, checkpoint, evaluate)
    if to_label is not None:
        write_predictions(trainer, task, datasets["predict"], to_label)
    return trainer


if __name__ == "__main__":
    main()
