# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Arguments of the scripts: those that several scripts have, how they are read, and which contradict each other."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from datasets import IterableDataset
from transformers import HfArgumentParser, TrainingArguments
from transformers.hf_argparser import HfArg

from configuration_lion import PRESETS


RESUME, LAST = "--resume_from_checkpoint", "last"
NOTHING_TO_DO = "There is nothing to do: give --do_train, --do_eval or both."


def option(help: str, default: object = None, **metadata: object) -> Any:
    """Make a field of a dataclass of arguments. `choices` are its values; the default `MISSING` makes it required."""
    return HfArg(help=help, default=default, metadata=metadata)


@dataclass
class ModelArguments:
    model_name_or_path: str | None = option("Folder or Hub name of a model to start from. Not given: from scratch.")
    config_name: str | None = option(f"Configuration to train from scratch: a folder, or one of {', '.join(PRESETS)}.")
    config_overrides: str | None = option("Fields to change, as in hidden_size=128,num_hidden_layers=2.")
    cache_dir: str | None = option("Folder for downloads and prepared data.")
    mixers: list[str] | None = option("Python files that register mixers or feature maps of your own.")
    attn_implementation: str | None = option("Kernel: auto (default), parallel, chunk, rnn or eager.")
    dtype: str | None = option(
        "Number format of the weights. Not given: as saved, or float32.",
        choices=["auto", "bfloat16", "float16", "float32"],
    )
    ignore_mismatched_sizes: bool = option("Initialise weights of other shapes, as for other labels.", False)


@dataclass
class DataArguments:
    """How much data to use."""

    max_train_samples: int | None = option("Use at most this many training examples.")
    max_eval_samples: int | None = option("Use at most this many validation examples.")

    def check(self, model_args: ModelArguments, training_args: TrainingArguments) -> None:
        """Raise a ValueError for arguments that make no sense, before anything is read."""

    def limit(self, split: str, rows):
        """Return the first rows of a list or a dataset, as many as these arguments allow."""
        count = {"train": self.max_train_samples, "validation": self.max_eval_samples}.get(split)
        if count is None:
            return rows
        if isinstance(rows, list):
            return rows[:count]
        return rows.take(count) if isinstance(rows, IterableDataset) else rows.select(range(min(count, len(rows))))


@dataclass
class HubArguments(DataArguments):
    """A dataset of the Hub."""

    dataset_name: str | None = option("A dataset of the Hub, or a folder.")
    dataset_config_name: str | None = option("The configuration of that dataset.")


@dataclass
class FileArguments(DataArguments):
    """Files of the user."""

    train_file: str | None = option("Training data of your own.")
    validation_file: str | None = option("Validation data of your own.")
    predict_file: str | None = option("Data to predict for, with --do_predict.")


def words_of_recipe(path: str) -> list[str]:
    """
    Read a YAML or JSON file of arguments by name, as words of the command line. Values are taken as they are written,
    for the parser to read: YAML has numbers in `2024_01` and `12:30`, and a boolean in `no`. Raises a ValueError if
    the file has something else.
    """
    loader = yaml.SafeLoader(Path(path).read_text(encoding="utf-8"))  # JSON is YAML, too
    recipe = loader.get_single_node()
    if not isinstance(recipe, yaml.MappingNode):
        raise ValueError(f"{path} must hold arguments by name, as in `learning_rate: 1e-4`.")
    loader.flatten_mapping(recipe)
    words = []
    for name, value in recipe.value:
        values = value.value if isinstance(value, yaml.SequenceNode) else [value]
        if value.tag != "tag:yaml.org,2002:null":
            words.append(f"--{name.value}")
            for x in values:
                is_word = isinstance(x, yaml.ScalarNode)
                words.append(x.value if is_word else json.dumps(loader.construct_object(x, deep=True)))
    return words


def parse_arguments(dataclasses: tuple, args: list[str] | None) -> tuple:
    """
    Parse `args`, or the command line if it is `None`. Returns one object per dataclass. The first argument may be a
    JSON or YAML file of arguments by name, which the arguments after it override. Raises a ValueError if the file has
    something else, or a limit is below 1.
    """
    args = sys.argv[1:] if args is None else args
    if args and args[0].endswith((".json", ".yaml", ".yml")) and not args[0].startswith("-"):
        args = words_of_recipe(args[0]) + args[1:]
    parser = HfArgumentParser(dataclasses, conflict_handler="resolve")
    how = "Checkpoint to resume from; without a folder, the last complete one in --output_dir."
    parser.add_argument(RESUME, nargs="?", const=LAST, help=how)
    parser.set_defaults(logging_steps=0.05)  # a share of the steps: short trainings have curves, too
    parsed = parser.parse_args_into_dataclasses(args)
    for group in parsed:
        check_counts(group)
    return parsed


def check_counts(group: Any) -> None:
    """Raise a ValueError if a limit of ours, such as `max_seq_length`, is below 1. transformers has -1 for none."""
    counts = {} if isinstance(group, TrainingArguments) else vars(group)
    for name, value in counts.items():
        if name.startswith("max_") and isinstance(value, int) and value < 1:
            raise ValueError(f"--{name} is {value}; give 1 or more.")


def check_arguments(model_args: ModelArguments, training_args: TrainingArguments, can_predict: bool = False) -> None:
    """Raise a ValueError for arguments that contradict each other. `can_predict`: whether `--do_predict` is work."""
    if not (training_args.do_train or training_args.do_eval or can_predict and training_args.do_predict):
        raise ValueError(NOTHING_TO_DO)
    if (model_args.model_name_or_path is None) == (model_args.config_name is None):
        raise ValueError(
            "Give either --model_name_or_path (go on from trained weights) or --config_name (train from scratch: a "
            f"folder, or a preset such as {next(iter(PRESETS))})."
        )
    if not training_args.do_train and model_args.config_name is not None:
        raise ValueError("--config_name makes untrained weights: to evaluate a model give --model_name_or_path.")
    for name, is_given in (
        ("--eval_do_concat_batches False", not training_args.eval_do_concat_batches),
        ("--batch_eval_metrics", training_args.batch_eval_metrics),
        ("--prediction_loss_only", training_args.prediction_loss_only),
    ):
        if is_given:
            raise ValueError(f"{name} leaves no predictions to measure or write: leave it out.")


def check_paths(**paths: str | None) -> None:
    """Raise a FileNotFoundError for an argument that names a file or a folder which does not exist."""
    for name, path in paths.items():
        if path is not None and not os.path.exists(path):
            raise FileNotFoundError(f"--{name} {path} does not exist.")


def needed_splits(training_args: TrainingArguments) -> dict[str, str]:
    """Return the splits that are needed, each with the option that needs it."""
    works = {"train": "do_train", "validation": "do_eval", "predict": "do_predict"}
    return {split: work for split, work in works.items() if getattr(training_args, work)}


def needed_data(data_args: DataArguments, training_args: TrainingArguments, kind: str) -> dict[str, str]:
    """Return the needed files ("file") or folders ("dir") by split. Raises a ValueError if one is not given."""
    if getattr(data_args, f"predict_{kind}") is not None and not training_args.do_predict:
        raise ValueError(f"Give --do_predict and --predict_{kind} together.")
    found = {split: getattr(data_args, f"{split}_{kind}") for split in needed_splits(training_args)}
    if missing := [split for split, path in found.items() if path is None]:
        raise ValueError(f"--{needed_splits(training_args)[missing[0]]} needs --{missing[0]}_{kind}.")
    return found
