# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The Trainers of the scripts, and the files that they write."""

import base64
import copy
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import torch
from torch.utils.data import DataLoader
from transformers import EvalPrediction, PreTrainedConfig, Trainer, TrainingArguments, set_seed
from transformers.trainer_callback import TrainerCallback

from configuration_lion import LionConfig
from modeling_lion.mixers.import_mixers import import_mixers

from .arguments import DataArguments, ModelArguments, check_arguments, parse_arguments
from .checkpoints import check_same_model, find_checkpoint, has_weights, steps_of
from .data_files import parse_json
from .models import load_config
from .pictures import draw_log


class OrderedTrainer(Trainer):
    """A Trainer that evaluates and predicts every row, in order, whatever the arguments for training say."""

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

    def on_train_begin(self, args, state, control, **kwargs):
        # Without a length, as when streaming, the Trainer resumes in epoch 0 and skips as many batches as were read in
        # all epochs. After the first one, it so reads epoch 1 from its beginning, which gets other masks than before.
        self.epoch.fill_(int(state.epoch or 0) - 1)

    def on_epoch_begin(self, args, state, control, **kwargs):
        self.epoch.add_(1)


def accuracy(prediction: EvalPrediction) -> dict[str, float]:
    """Return the share of labels (other than -100) that are predicted. Predictions are logits, or classes."""
    answers, labels = prediction.predictions, prediction.label_ids
    answers = answers.argmax(axis=-1) if answers.ndim > labels.ndim else answers
    return {"accuracy": float((answers == labels)[labels != -100].mean())}


class Setup(NamedTuple):
    """The arguments of a script, its configuration, and the checkpoint to resume from."""

    model_args: ModelArguments
    data_args: DataArguments
    training_args: TrainingArguments
    config: PreTrainedConfig
    checkpoint: str | None  # to go on from


def start(
    data_class: type,
    args: list[str] | None,
    model_class: type = ModelArguments,
    from_scratch: bool = False,
    can_predict: bool = True,
) -> Setup:
    """Read and check the arguments of a script. The flags say whether it can train from scratch, and predict."""
    model_args, data_args, training_args = parse_arguments((model_class, data_class, TrainingArguments), args)
    check_arguments(model_args, training_args, can_predict)
    data_args.check(model_args, training_args)
    if model_args.model_name_or_path is None and not from_scratch:
        raise ValueError("This script is for trained models: give --model_name_or_path.")
    import_mixers(model_args.mixers or ())
    config, checkpoint = load_config(model_args), find_checkpoint(training_args)
    set_seed(training_args.seed)
    return Setup(model_args, data_args, training_args, config, checkpoint)


def make_trainer(
    setup: Setup, model, datasets: dict, processor, metrics: Callable, collator=None, kind=OrderedTrainer, **options
) -> Trainer:
    """Make a Trainer of this `kind`, for the splits "train" and "validation" of `datasets`, if there are any."""
    options |= {"processing_class": processor, "compute_metrics": metrics, "data_collator": collator}
    options |= {"train_dataset": datasets.get("train"), "eval_dataset": datasets.get("validation")}
    trainer = kind(model=model, args=setup.training_args, **options)
    average_losses(trainer)
    return trainer


def average_losses(trainer: Trainer) -> None:
    """
    Let a Trainer average the losses of batches and processes, unless the model is a LION, whose classes divide by the
    number of labels in all of them or say that they do not: many models of transformers take it and do not use it.
    """
    if trainer.model.config.model_type != LionConfig.model_type:
        trainer.model_accepts_loss_kwargs = False


def train_and_evaluate(
    trainer: Trainer, checkpoint: str | None, evaluate: Callable[[Trainer], dict[str, float]] = Trainer.evaluate
) -> Trainer:
    """Train with --do_train, and evaluate with --do_eval; `evaluate` computes the metrics."""
    if trainer.args.do_train:
        train(trainer, checkpoint)
    if trainer.args.do_eval:
        save_metrics(trainer, "eval", evaluate(trainer))
    return trainer


def train(trainer: Trainer, checkpoint: str | None) -> None:
    """
    Train, then save the model, its tokenizer or processor, the metrics, the state and a plot in the output folder.
    Raises a ValueError if the checkpoint is of another model.
    """
    steps_before = 0
    if checkpoint is not None:
        check_same_model(checkpoint, trainer.model)
        steps_before = steps_of(checkpoint)
    result = trainer.train(resume_from_checkpoint=checkpoint)
    if trainer.state.global_step == steps_before:
        print(f"Nothing was trained: {checkpoint} has all {steps_before} steps. For other data, change --output_dir.")
        # Else it was stopped before it saved the weights, or while it did: the state is saved after them.
        if has_weights(trainer.args.output_dir) and steps_of(trainer.args.output_dir) == steps_before:
            return
    trainer.save_model()
    trainer.save_state()
    if trainer.is_world_process_zero() and any({"loss", "eval_loss"} & {*x} for x in trainer.state.log_history):
        draw_log(Path(trainer.args.output_dir) / "training.png", trainer.state.log_history)
    save_metrics(trainer, "train", result.metrics)


def save_metrics(trainer: Trainer, split: str, metrics: dict[str, float]) -> None:
    """Print the metrics and write them to `<split>_results.json` and `all_results.json` in the output folder."""
    trainer.log_metrics(split, metrics)
    trainer.save_metrics(split, metrics)


def save_text(trainer: Trainer, name: str, text: str) -> None:
    """Write a file in the output folder, in the main process only."""
    if trainer.is_world_process_zero():
        path = Path(trainer.args.output_dir, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(f"Wrote {path}.")


def save_rows(trainer: Trainer, answers: list[dict], rows: Iterable[dict] | None = None) -> None:
    """
    Write predictions.jsonl in the output folder: on each line a row of the data, and its answer. Columns of the data
    that have the name of a part of the answer are written as "given_...".
    """
    lines = []
    for answer, row in zip(answers, [{}] * len(answers) if rows is None else rows, strict=True):
        given = {}
        for name, value in row.items():
            while name in answer or name in given:
                name = f"given_{name}"
            given[name] = value
        values = parse_json(json.dumps(given | answer, default=as_text))  # without NaN
        lines.append(json.dumps(values, ensure_ascii=False) + "\n")
    save_text(trainer, "predictions.jsonl", "".join(lines))


def as_text(value: object) -> str:
    """Convert values that JSON does not have to text: bytes to base 64, dates to ISO format."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
