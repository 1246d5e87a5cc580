# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Epochs, which seed the random changes of the data."""

import pytest
import torch
from conftest import TINY
from datasets import Dataset
from training_lion.scripts.training import EpochCallback
from transformers import Trainer, TrainingArguments

from modeling_lion import LionConfig, LionForMaskedLM


@pytest.mark.parametrize("streaming", [False, True])
def test_a_resumed_training_has_no_epoch_twice(streaming, tmp_path):
    """
    Four steps are an epoch. A stream that was stopped behind the first one is read from the beginning of the second
    one again, as the Trainer does, which gets a new number.
    """

    def epochs(max_steps: int, checkpoint: str | None = None) -> list[int]:
        seen, epoch = [], torch.zeros((), dtype=torch.int64)

        class Spy(Trainer):
            def training_step(self, *args):
                seen.append(int(epoch))
                return super().training_step(*args)

        rows = [{"input_ids": [3, 4, n], "labels": [3, 4, n]} for n in range(5, 13)]
        data = Dataset.from_list(rows)
        arguments = TrainingArguments(
            str(tmp_path),
            max_steps=max_steps,
            save_steps=3,
            per_device_train_batch_size=2,
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
        )
        data = data.to_iterable_dataset() if streaming else data
        model = LionForMaskedLM(LionConfig(**TINY))
        trainer = Spy(model, arguments, train_dataset=data, callbacks=[EpochCallback(epoch)])
        trainer.train(resume_from_checkpoint=checkpoint)
        return seen

    assert epochs(10) == [0] * 4 + [1] * 4 + [2] * 2
    assert epochs(10, f"{tmp_path}/checkpoint-3") == [0] + [1] * 4 + [2] * 2
    second = [2] * 4 if streaming else [1] * 2 + [2] * 2
    assert epochs(10, f"{tmp_path}/checkpoint-6") == second
