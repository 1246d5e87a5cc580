# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What the Trainer scripts share: arguments, checks before training, training and the files that it writes."""

import base64
import copy
import json
import math
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path

import bitsandbytes_log  # noqa: F401 (before transformers)
import torch
import yaml
from data_files import class_name
from datasets import IterableDataset
from pictures import draw_log
from torch.utils.data import DataLoader
from transformers import (
    AutoConfig,
    EarlyStoppingCallback,
    EvalPrediction,
    HfArgumentParser,
    PreTrainedConfig,
    PreTrainedModel,
    Trainer,
    TrainingArguments,
)
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import TrainerCallback, TrainerState
from transformers.trainer_utils import has_length, sort_checkpoints

import modeling_lion  # noqa: F401  (the Auto classes and pipelines know LION from here on)
from configuration_lion import PRESETS, LionConfig, lion_preset


RESUME, LAST = "--resume_from_checkpoint", "last"


@dataclass
class ModelArguments:
    model_name_or_path: str | None = field(
        default=None, metadata={"help": "Folder or Hub name of a model to start from. Not given: train from scratch."}
    )
    config_name: str | None = field(
        default=None,
        metadata={"help": f"Configuration to train from scratch: a folder, or one of {', '.join(PRESETS)}."},
    )
    config_overrides: str | None = field(
        default=None, metadata={"help": "Fields to change, as in hidden_size=128,num_hidden_layers=2."}
    )
    cache_dir: str | None = field(default=None, metadata={"help": "Folder for downloads and prepared data."})
    attn_implementation: str | None = field(
        default=None, metadata={"help": "Kernel: auto (default), parallel, chunk, rnn or eager."}
    )
    dtype: str | None = field(
        default=None,
        metadata={
            "help": "Number format of the weights. Not given: as saved, or float32.",
            "choices": ["auto", "bfloat16", "float16", "float32"],
        },
    )
    ignore_mismatched_sizes: bool = field(
        default=False, metadata={"help": "Initialise weights whose shapes differ, such as a head for other labels."}
    )
    early_stopping_patience: int | None = field(
        default=None, metadata={"help": "Stop after this many evaluations without progress."}
    )


@dataclass
class DataArguments:
    """Arguments of the data that the scripts share."""

    dataset_name: str | None = field(default=None, metadata={"help": "A dataset of the Hub, or a folder."})
    dataset_config_name: str | None = field(default=None, metadata={"help": "The configuration of that dataset."})
    max_train_samples: int | None = field(default=None, metadata={"help": "Use at most so many training examples."})
    max_eval_samples: int | None = field(default=None, metadata={"help": "Use at most so many validation examples."})
    preprocessing_num_workers: int | None = field(default=None, metadata={"help": "Processes that prepare the data."})


def parse_arguments(dataclasses: tuple, args: list[str] | None) -> tuple:
    """
    One object per dataclass, from `args` or the command line (`None`). The first may be a JSON or YAML file of
    arguments by name, which the arguments after it override.

    Raises:
        ValueError: if the file holds no arguments, or ones that do not exist.
    """
    args = with_resume(sys.argv[1:] if args is None else args)
    if args and args[0].endswith((".json", ".yaml", ".yml")):
        recipe = yaml.safe_load(Path(args[0]).read_text(encoding="utf-8"))  # JSON is YAML, too
        if not isinstance(recipe, dict):
            raise ValueError(f"{args[0]} must hold arguments by name, as in `learning_rate: 1e-4`.")
        words = []
        for name, value in recipe.items():
            if value is not None:
                values = value if isinstance(value, list) else [value]
                words += [f"--{name}", *(json.dumps(x) if isinstance(x, dict) else str(x) for x in values)]
        args = words + args[1:]
    parser = HfArgumentParser(dataclasses)
    parser.set_defaults(logging_steps=0.05)  # a share of the steps: short trainings have curves, too
    return parser.parse_args_into_dataclasses(args)


def with_resume(args: list[str]) -> list[str]:
    """A bare `--resume_from_checkpoint` says "last"."""
    words = []
    for word, following in zip(args, [*args[1:], "--"], strict=True):
        is_bare = word == RESUME and following.startswith("--")
        words += [word, LAST] if is_bare else [word]
    return words


class OrderedTrainer(Trainer):
    """A Trainer that evaluates and predicts every row, in order, whatever the arguments of the training are."""

    def get_eval_dataloader(self, *args, **kwargs) -> DataLoader:
        return self.in_order(super().get_eval_dataloader, *args, **kwargs)

    def get_test_dataloader(self, *args, **kwargs) -> DataLoader:
        return self.in_order(super().get_test_dataloader, *args, **kwargs)

    def in_order(self, make: Callable[..., DataLoader], *args, **kwargs) -> DataLoader:
        asked, self.args = self.args, copy.copy(self.args)
        self.args.train_sampling_strategy, self.args.dataloader_drop_last = "random", False
        try:
            return make(*args, **kwargs)
        finally:
            self.args = asked


class EpochCallback(TrainerCallback):
    """
    Count the epochs of training in the tensor `epoch`, which seeds the random changes of the data. (Counting steps
    would be wrong: the DataLoader prefetches batches.) The tensor is in shared memory, for the DataLoader's workers.
    """

    def __init__(self, epoch: torch.Tensor):
        self.epoch = epoch

    def on_train_begin(self, args, state, control, train_dataloader, **kwargs):
        # Without a length, as when streaming, the Trainer resumes in epoch 0, whatever `state.epoch` is.
        done = int(state.epoch or 0) if has_length(train_dataloader) else 0
        self.epoch.fill_(done - 1)

    def on_epoch_begin(self, args, state, control, **kwargs):
        self.epoch.add_(1)


def check_arguments(model_args: ModelArguments, training_args: TrainingArguments, can_predict: bool = False) -> None:
    """Raise a ValueError for arguments that contradict each other. `can_predict`: whether `--do_predict` is work."""
    if not (training_args.do_train or training_args.do_eval or can_predict and training_args.do_predict):
        raise ValueError("There is nothing to do: give --do_train, --do_eval or both.")
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
    if model_args.early_stopping_patience is not None and not training_args.load_best_model_at_end:
        raise ValueError(
            "--early_stopping_patience needs --load_best_model_at_end True with --eval_strategy and --save_strategy "
            "(both steps, or both epoch), so that the best weights are there to stop at."
        )


def check_paths(**paths: str | None) -> None:
    """Raise a FileNotFoundError for an argument that names a file or a folder which does not exist."""
    for name, path in paths.items():
        if path is not None and not os.path.exists(path):
            raise FileNotFoundError(f"--{name} {path} does not exist.")


def last_whole_checkpoint(folder: str | Path) -> str | None:
    """
    The newest complete checkpoint, if there is one: the trainer's state is written last. transformers'
    `get_last_checkpoint` also finds incomplete ones, from which training cannot resume.
    """
    if not os.path.isdir(folder):
        return None
    for checkpoint in reversed(sort_checkpoints(str(folder))):
        if is_whole(checkpoint):
            return checkpoint
        print(f"{checkpoint} is incomplete: the training was stopped while it was written. It is ignored.")
    return None


def is_whole(checkpoint: str | Path) -> bool:
    """Whether a checkpoint was written to the end."""
    try:
        TrainerState.load_from_json(os.path.join(checkpoint, TRAINER_STATE_NAME))
    except (FileNotFoundError, json.JSONDecodeError):
        return False
    return True


def asked_checkpoint(training_args: TrainingArguments) -> str | None:
    """
    The checkpoint of `--resume_from_checkpoint`: a folder, or for "last" the newest complete one in the output folder.

    Raises:
        ValueError: if it is no folder or incomplete, or if there is no complete one.
    """
    asked, output_dir = training_args.resume_from_checkpoint, training_args.output_dir
    if not asked:
        return None
    if asked.lower() in (LAST, "true"):
        if (checkpoint := last_whole_checkpoint(output_dir)) is None:
            raise ValueError(f"{RESUME}: --output_dir {output_dir} has no complete checkpoint. Leave the option out.")
        return checkpoint
    if not os.path.isdir(asked):
        raise ValueError(
            f"{RESUME} {asked} is no folder. Leave out the name to go on from the last one in --output_dir."
        )
    if not is_whole(asked):
        whole = last_whole_checkpoint(Path(asked).parent)
        raise ValueError(
            f"{RESUME} {asked} is incomplete: the training was stopped while it was written. "
            + ("There is no complete one beside it." if whole is None else f"Go on from {whole}.")
        )
    return asked


def find_checkpoint(training_args: TrainingArguments) -> str | None:
    """The checkpoint to go on from: the one that was asked for, else the last one in the output folder."""
    if not training_args.do_train:
        return None
    if training_args.resume_from_checkpoint:
        return asked_checkpoint(training_args)
    checkpoint = last_whole_checkpoint(training_args.output_dir)
    if checkpoint is not None:
        print(f"Going on from {checkpoint}. To start from scratch, change --output_dir or empty it.")
    return checkpoint


def check_same_model(checkpoint: str, config: PreTrainedConfig) -> None:
    """
    Raise a ValueError if the model of `checkpoint` differs from `config` in its labels or in a field of its class.

    Fields that do not change the result (`chunk_size`), or that the Trainer takes from the tokenizer, may differ.
    """
    names = {f.name for f in fields(config)} - {f.name for f in fields(PreTrainedConfig)} | {"id2label"}
    names = {name for name in names if name != "chunk_size" and not name.endswith("_token_id")}
    # As JSON, where a tuple and a list are the same.
    saved, asked = (
        json.loads(c.to_json_string(use_diff=False)) for c in (AutoConfig.from_pretrained(checkpoint), config)
    )
    if different := [name for name in sorted(names) if saved.get(name) != asked.get(name)]:
        changes = ", ".join(f"{name} {saved.get(name)} (now {asked.get(name)})" for name in different)
        raise ValueError(
            f"{checkpoint} is of another model: {changes}. To go on from it, ask for the model as before; to train "
            "the new one, give another --output_dir, or empty it, and leave out --resume_from_checkpoint."
        )


def load_config(model_args: ModelArguments) -> PreTrainedConfig:
    """
    The configuration that the arguments describe.

    Raises:
        ValueError: if an override names no field or has a bad value, or the fields do not fit together.
    """
    overrides = model_args.config_overrides
    if overrides is not None and not all("=" in part for part in overrides.split(",")):
        raise ValueError(f"--config_overrides is {overrides!r}; write field=value,field=value.")
    if model_args.config_name in PRESETS:
        # Passed to the constructor, since defaults of other fields depend on them.
        fields = {}
        if overrides is not None:
            parsed = LionConfig()
            parsed.update_from_string(overrides)
            fields = overridden(parsed, overrides)
        return lion_preset(model_args.config_name, **fields)
    name = model_args.model_name_or_path or model_args.config_name
    try:
        config = ordered_labels(AutoConfig.from_pretrained(name, cache_dir=model_args.cache_dir), name)
    except OSError as error:
        folder = Path(name)
        beside = [x.name for x in folder.parent.iterdir()] if folder.parent.is_dir() else []
        similar = get_close_matches(folder.name, [*beside, *PRESETS], 1)
        meant = f" Did you mean {similar[0]}?" if similar else ""
        raise ValueError(
            f"There is no configuration {name!r}: give a folder that has a config.json, a name on the Hub, or, to "
            f"--config_name, a preset, as {next(iter(PRESETS))}; --help lists them.{meant}"
        ) from error
    if overrides is not None:
        parsed = copy.deepcopy(config)
        parsed.update_from_string(overrides)
        config = type(config).from_dict(config.to_dict(), **overridden(parsed, overrides))
        config.validate()
    return config


def ordered_labels(config: PreTrainedConfig, name: str) -> PreTrainedConfig:
    """
    The configuration with its labels in the order of their numbers, which config.json may have in another.

    Raises:
        ValueError: if they are not numbered from 0 on.
    """
    config.id2label = dict(sorted(config.id2label.items()))
    if [*config.id2label] != [*range(len(config.id2label))]:
        raise ValueError(f"id2label in config.json of {name} has the numbers {[*config.id2label]}: count from 0 on.")
    return config


def overridden(config: PreTrainedConfig, overrides: str) -> dict[str, object]:
    """The fields that `overrides` names, "field=value,field=value", with their values in `config`."""
    return {name: getattr(config, name) for name in (part.split("=")[0] for part in overrides.split(","))}


def accuracy(prediction: EvalPrediction) -> dict[str, float]:
    """Of logits, against class numbers."""
    return {"accuracy": float((prediction.predictions.argmax(axis=-1) == prediction.label_ids).mean())}


def context_length(config: PreTrainedConfig) -> int:
    """Tokens of a text of the configured length, of a LION or a model of transformers."""
    return config.context_length if isinstance(config, LionConfig) else config.max_position_embeddings


def longest_text(config: PreTrainedConfig) -> int | None:
    """Tokens that the model has positions for, `None` without a limit, of a LION or a model of transformers."""
    return config.longest_text if isinstance(config, LionConfig) else config.max_position_embeddings


def load_model(auto_class: type, model_args: ModelArguments, config: PreTrainedConfig) -> PreTrainedModel:
    """The model of these arguments: trained weights, or new ones of this configuration."""
    options = {}
    if model_args.attn_implementation is not None:
        options["attn_implementation"] = model_args.attn_implementation
    if model_args.dtype is not None:
        options["dtype"] = model_args.dtype if model_args.dtype == "auto" else getattr(torch, model_args.dtype)
    if model_args.model_name_or_path is None:
        if options.get("dtype") == "auto":
            del options["dtype"]
        return auto_class.from_config(config, **options)
    return auto_class.from_pretrained(
        model_args.model_name_or_path,
        config=config,
        cache_dir=model_args.cache_dir,
        ignore_mismatched_sizes=model_args.ignore_mismatched_sizes,
        **options,
    )


def set_labels(
    config: PreTrainedConfig, names: list[str], model_args: ModelArguments, head: str, what: str = "training images"
) -> None:
    """
    Give the model the classes `names`, unless it is a trained one that knows them all.

    Args:
        head: the end of the names of classes of models that have trained weights for the labels of `config`.
        what: has these classes; for the message.

    Raises:
        ValueError: if it is a trained one that has other classes, and no new head was asked for.
    """
    has_head = any(name.endswith(head) for name in config.architectures or [head])
    known = [class_name(name) for name in config.id2label.values()]
    if {*known} == {*names}:
        return
    if model_args.model_name_or_path is not None and has_head:
        has_none = known == [f"LABEL_{i}" for i in range(len(known))]
        unknown = set(names) - set(known)
        if not unknown:
            return
        if not (has_none or model_args.ignore_mismatched_sizes):
            raise ValueError(
                f"The model does not have the classes {', '.join(sorted(unknown))} of the {what}. To train a head for "
                "other labels, give --ignore_mismatched_sizes."
            )
    config.id2label = dict(enumerate(names))
    config.label2id = {name: i for i, name in enumerate(names)}


def early_stopping(model_args: ModelArguments) -> list[TrainerCallback]:
    """The callback for --early_stopping_patience, if that was given."""
    patience = model_args.early_stopping_patience
    return [] if patience is None else [EarlyStoppingCallback(patience)]


def needed_splits(training_args: TrainingArguments) -> list[str]:
    return ["train"] * training_args.do_train + ["validation"] * training_args.do_eval


def limit_samples(dataset, count: int | None):
    """The first `count` examples of a dataset, or all of them."""
    if count is None:
        return dataset
    if isinstance(dataset, IterableDataset):
        return dataset.take(count)
    return dataset.select(range(min(count, len(dataset))))


def train_and_evaluate(
    trainer: Trainer, checkpoint: str | None, evaluate: Callable[[Trainer], dict[str, float]] = Trainer.evaluate
) -> Trainer:
    """Do what --do_train and --do_eval ask for; `evaluate` computes the metrics."""
    if trainer.args.do_train:
        train(trainer, checkpoint)
    if trainer.args.do_eval:
        save_metrics(trainer, "eval", evaluate(trainer))
    return trainer


def train(trainer: Trainer, checkpoint: str | None) -> None:
    """
    Train, then save the model, what prepares its inputs, the metrics, the state and a plot in the output folder.

    Raises:
        ValueError: if the checkpoint to go on from is of another model.
    """
    if checkpoint is not None:
        check_same_model(checkpoint, trainer.model.config)
    result = trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_model()
    trainer.save_state()
    if trainer.is_world_process_zero() and any(
        {"loss", "eval_loss"} & {*entry} for entry in trainer.state.log_history
    ):
        draw_log(Path(trainer.args.output_dir) / "training.png", trainer.state.log_history)
    save_metrics(trainer, "train", result.metrics)


def save_metrics(trainer: Trainer, split: str, metrics: dict[str, float]) -> None:
    """Print the metrics and write them to `<split>_results.json` and `all_results.json` in the output folder."""
    trainer.log_metrics(split, metrics)
    trainer.save_metrics(split, metrics)


def save_text(trainer: Trainer, name: str, text: str) -> None:
    """Write a file in the output folder, in the first of many processes."""
    if trainer.is_world_process_zero():
        path = Path(trainer.args.output_dir, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(f"Wrote {path}.")


def save_rows(trainer: Trainer, answers: list[dict], rows: Iterable[dict] | None = None) -> None:
    """
    Write predictions.jsonl in the output folder: an answer on each line, behind what the row of the data has. Columns
    of the data that are named like a part of the answer are written as "given_...".
    """
    lines = []
    for answer, row in zip(answers, [{}] * len(answers) if rows is None else rows, strict=True):
        given = {}
        for name, value in row.items():
            while name in answer or name in given:
                name = f"given_{name}"
            given[name] = value
        lines.append(json.dumps(plain(given | answer), ensure_ascii=False, allow_nan=False) + "\n")
    save_text(trainer, "predictions.jsonl", "".join(lines))


def plain(value: object) -> object:
    """A value as JSON can have it: dates in ISO's format, bytes in base 64, numbers that are none as null."""
    if isinstance(value, dict):
        return {str(name): plain(x) for name, x in value.items()}
    if isinstance(value, list | tuple):
        return [plain(x) for x in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
