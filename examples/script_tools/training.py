# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Trainers of the scripts, and the files that they write."""

import base64
import copy
import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from datasets import IterableDataset
from torch.utils.data import DataLoader
from transformers import EarlyStoppingCallback, EvalPrediction, Trainer
from transformers.trainer_callback import TrainerCallback
from transformers.trainer_utils import has_length

from .arguments import ModelArguments
from .checkpoints import check_same_model
from .pictures import draw_log


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


def accuracy(prediction: EvalPrediction) -> dict[str, float]:
    """Of logits, against class numbers."""
    return {"accuracy": float((prediction.predictions.argmax(axis=-1) == prediction.label_ids).mean())}


def early_stopping(model_args: ModelArguments) -> list[TrainerCallback]:
    """The callback for --early_stopping_patience, if that was given."""
    patience = model_args.early_stopping_patience
    return [] if patience is None else [EarlyStoppingCallback(patience)]


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
