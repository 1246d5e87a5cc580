# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Names of classes and their numbers. Only this module converts names to numbers."""

import math
import re
import unicodedata
from collections.abc import Collection, Iterable

from datasets import ClassLabel, Dataset, LargeList, List
from transformers import PreTrainedConfig

from .arguments import ModelArguments


WHOLE = re.compile(r"[+-]?\d+")
LISTS = (List, LargeList)
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def class_name(value: object) -> str:
    """Normalize the name of a class: "é" may be one character or two, and white space around it does not count."""
    return unicodedata.normalize("NFC", str(value)).strip()


def label_names(dataset: Dataset, column: str, what: str) -> list:
    """
    Return the class names in a column of names, whole numbers or `ClassLabel`: for each row a name, or a list of
    names. Raises a ValueError, which names the row, for any other value.
    """
    feature = dataset.features[column]
    is_list = isinstance(feature, LISTS)
    names = getattr(feature.feature if is_list else feature, "names", None)

    def name(label: object, row: int) -> str:
        if not isinstance(label, str | int) or not class_name(label):
            raise ValueError(f'{what}, row {row}, has the "{column}" {label!r:.80}. Give names or whole numbers.')
        is_none = isinstance(label, int) and (label < 0 if names is None and is_list else label == -100)
        if is_none or names is not None and not 0 <= label < len(names):
            raise ValueError(
                f'{what}, row {row}, has the "{column}" {label}, which is no class: remove the row, or give it one.'
            )
        return class_name(label if names is None else names[label])

    labels = enumerate(dataset[column], start=1)
    return [[name(x, row) for x in label] if is_list else name(label, row) for row, label in labels]


def all_names(dataset: Dataset, column: str, what: str) -> list[str]:
    """Return the names of all classes of a column, in order: of its `ClassLabel`, or those that occur."""
    found, feature = label_names(dataset, column, what), dataset.features[column]
    feature = feature.feature if isinstance(feature, LISTS) else feature
    return feature.names if isinstance(feature, ClassLabel) else in_order(first_places(found, found))


def has_fractions(dataset: Dataset, column: str) -> bool:
    """
    Return whether a column has fractions ("0.5" or 0.5), which are not names of classes. Raises a ValueError for texts
    that may be both, such as only "1.0" and "2.0".
    """
    if "string" in getattr(dataset.features[column], "dtype", ""):
        fractions = [x for x in dataset[column] if NUMBER.fullmatch(x) and not WHOLE.fullmatch(x)]
        if fractions and all(NUMBER.fullmatch(x) and float(x).is_integer() for x in dataset[column]):
            raise ValueError(
                f"The column {column!r} has whole numbers that are written as fractions, such as {fractions[0]}: "
                f"write {int(float(fractions[0]))} if they are classes. To regress, give them as numbers in a .jsonl "
                "or .parquet file."
            )
        return bool(fractions)
    return getattr(dataset.features[column], "dtype", "").startswith("float")


def read_numbers(dataset: Dataset, column: str, what: str) -> list[float]:
    """Read a column of numbers, which may be strings. Raises a ValueError for a value that is not a finite number."""
    numbers = []
    for row, value in enumerate(dataset[column], start=1):
        try:
            numbers.append(float(value))
        except (TypeError, ValueError):
            numbers.append(math.nan)
        if not math.isfinite(numbers[-1]):
            raise ValueError(f"{what} has the {column} {value!r} in row {row}, no number, but the task is to regress.")
    return numbers


def first_places(labels: Iterable, places: Iterable[str]) -> dict[str, str]:
    """Return each name among labels (names or lists of names) with the place where it first occurs."""
    found = {}
    for label, place in zip(labels, places, strict=True):
        for name in label if isinstance(label, list) else [label]:
            found.setdefault(name, place)
    return found


def in_order(names: Iterable[str]) -> list[str]:
    """Sort names: numbers as numbers; tags by the name of the entity, "O" first; others by name."""
    names = list(names)
    if all(WHOLE.fullmatch(name) for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names, key=lambda name: (name != "O", name.partition("-")[::-1] if name[1:2] == "-" else ("", name)))


def number_names(places: dict[str, str], names: Iterable[str], what: str, has_numbers: bool = False) -> dict[str, int]:
    """
    Number the labels of the data by `names`, the classes of `what` in order. `places` has the labels (from
    `label_names`), each with the place where it first occurs. With `has_numbers`, labels may also be numbers of
    classes, if no name is a whole number. Raises a ValueError for a label that is neither, or the name of two classes.
    """
    names = [class_name(name) for name in names]
    ids = {name: i for i, name in enumerate(names)}
    numbers = {str(i): i for i in range(len(names))}
    if has_numbers and places.keys() <= numbers.keys() and not any(map(WHOLE.fullmatch, names)):
        return numbers
    if unknown := sorted(places.keys() - ids.keys()):
        found = ", ".join(f"{name} ({places[name]})" for name in unknown[:5])
        known = ", ".join(names[:10]) + ", …" * (len(names) > 10)
        raise ValueError(f"{what} has the labels {known}; the data has {found}.")
    if doubled := [name for name in places if names.count(name) > 1]:
        raise ValueError(f"{what} has two classes named {doubled[0]}: rename one in id2label of its config.json.")
    return ids


def check_several(names: Collection[str], what: str) -> None:
    """Raise a ValueError if the texts of `what` have one class only."""
    if len(names) == 1:
        raise ValueError(
            f"{what} has one class, {next(iter(names))!r}, in the column 'label': give texts of two or more."
        )


def set_labels(
    config: PreTrainedConfig, names: list[str], model_args: ModelArguments, ending: str, what: str, fewest: int = 2
) -> None:
    """
    Give the model the classes `names` of `what`, unless it is a trained model that knows them all. Raises a ValueError
    if it has other classes and no new task head was asked for, or if there are fewer than `fewest`. Models whose class
    name ends with `ending` have weights for their labels.
    """
    has_weights = any(name.endswith(ending) for name in config.architectures or [ending])
    known = [class_name(name) for name in config.id2label.values()]
    is_trained = model_args.model_name_or_path is not None and has_weights
    unknown = {*names} - {*known}
    if len(names) < fewest and (unknown or len(known) < fewest):
        raise ValueError(
            f"The {what} have one class, {', '.join(names)}: give two or more, or there is nothing to learn."
        )
    if {*known} == {*names} or is_trained and not unknown:
        return
    has_none = known == [f"LABEL_{i}" for i in range(len(known))]
    if is_trained and not has_none and not model_args.ignore_mismatched_sizes:
        raise ValueError(
            f"The model does not have the classes {', '.join(sorted(unknown))} of the {what}. To train a "
            "task head for other labels, give --ignore_mismatched_sizes."
        )
    name_labels(config, names)


def name_labels(config: PreTrainedConfig, names: Iterable[str]) -> None:
    """Number the names, from 0 on, in the configuration."""
    config.id2label = dict(enumerate(names))
    config.label2id = {name: i for i, name in config.id2label.items()}
