# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The Trainer: fine-tuning, its options, and a run that is killed and resumed."""

import dataclasses
import gc
import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import mixer_fields, script_environment
from hub_checkpoints import linear_encoder
from transformers import (
    AutoModelForSequenceClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_callback import TrainerState

from modeling_lion import (
    LionConfig,
    LionForImageClassification,
    LionForMaskedImageModeling,
    LionForMaskedLM,
    LionForMultipleChoice,
    LionForQuestionAnswering,
    LionForSemanticSegmentation,
    LionForSequenceClassification,
    LionForTokenClassification,
)


MIXERS = ("lit", "decay", "selective")
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
VOCAB_SIZE = 40


def text_config(mixer="selective", **fields):
    fields = {"vocab_size": VOCAB_SIZE, "max_position_embeddings": 32, "chunk_size": 4} | SIZES | fields
    return LionConfig(**(mixer_fields(mixer) | fields))


def image_config(mixer="selective", **fields):
    return LionConfig(
        modality="image", image_size=8, patch_size=4, num_channels=1, **(mixer_fields(mixer) | SIZES | fields)
    )


def sentences(size, seed=0, length=None):
    """Sequences of tokens 6.. to 29, one in two with a token 5 somewhere: label 1."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for i in range(size):
        n = length or int(torch.randint(4, 13, (), generator=generator))
        ids = torch.randint(6, 30, (n,), generator=generator)
        if i % 2:
            ids[torch.randint(n, (), generator=generator)] = 5
        rows.append({"input_ids": ids.tolist(), "labels": i % 2})
    return rows


def pictures(size, seed=0):
    """Noise, one in two brighter at the left: label 1."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for i in range(size):
        pixel_values = torch.randn(1, 8, 8, generator=generator)
        pixel_values[..., :4] += 1.5 * (i % 2)
        rows.append({"pixel_values": pixel_values, "labels": i % 2})
    return rows


def pad(rows):
    """DataCollatorWithPadding without a tokenizer: right padding with 0 and the attention mask."""
    length = max(len(row["input_ids"]) for row in rows)
    batch = {"labels": torch.tensor([row["labels"] for row in rows])}
    batch["input_ids"] = torch.tensor([row["input_ids"] + [0] * (length - len(row["input_ids"])) for row in rows])
    batch["attention_mask"] = (batch["input_ids"] != 0).long()
    return batch


@pytest.fixture
def make_trainer(tmp_path):
    def make(model, train, *, evaluation=None, collator=None, metrics=None, **options):
        defaults = {
            "output_dir": str(tmp_path / "run"),
            "use_cpu": True,
            "max_steps": 5,
            "per_device_train_batch_size": 8,
            "learning_rate": 3e-3,
            "lr_scheduler_type": "constant",
            "report_to": "none",
            "save_strategy": "no",
            "logging_steps": 1,
            "disable_tqdm": True,
            "seed": 0,
        }
        return Trainer(
            model,
            TrainingArguments(**(defaults | options)),
            data_collator=collator or (pad if "input_ids" in train[0] else None),
            train_dataset=train,
            eval_dataset=evaluation,
            compute_metrics=metrics,
        )

    return make


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def losses(trainer):
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def weights(model):
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def assert_same_weights(results, **tolerances):
    expected, actual = results
    for name, parameter in expected.items():
        torch.testing.assert_close(actual[name], parameter, **tolerances, msg=lambda m, name=name: f"{name}: {m}")


def stack(rows):
    return {name: torch.stack([torch.as_tensor(row[name]) for row in rows]) for name in rows[0]}


def seeded(model_class, config):
    torch.manual_seed(0)
    return model_class(config)


@pytest.mark.parametrize("mixer", [*(pytest.param(x, marks=pytest.mark.slow) for x in MIXERS[:2]), MIXERS[2]])
def test_text_classification(make_trainer, tmp_path, mixer):
    model = seeded(LionForSequenceClassification, text_config(mixer, pooling="mean"))
    before = weights(model)
    evaluation = sentences(64, seed=1)
    trainer = make_trainer(
        model,
        sentences(256),
        evaluation=evaluation,
        metrics=accuracy,
        max_steps=60,
        per_device_train_batch_size=32,
        learning_rate=1e-2,
        eval_strategy="steps",
        eval_steps=30,
    )
    trainer.train()
    history = losses(trainer)
    assert all(map(math.isfinite, history)) and sum(history[-5:]) < 0.5 * sum(history[:5])
    metrics = trainer.evaluate()
    assert metrics["eval_accuracy"] > 0.85
    moved = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert not [name for name in before if "decay" in name and name not in moved]
    assert any("decay" in name for name in before) == (mixer != "lit")

    trainer.save_model(str(tmp_path / "saved"))
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved").eval()
    batch = pad(evaluation)
    with torch.no_grad():
        torch.testing.assert_close(loaded(**batch).logits, model.eval()(**batch).logits)


def test_an_encoder_that_became_linear_is_trained_stopped_and_resumed(make_trainer, tmp_path):
    def trainer(name, **options):
        model = linear_encoder("BertForSequenceClassification", options={"exact_length": 8, "window": 2})
        options |= {"output_dir": str(tmp_path / name), "max_steps": 6, "save_strategy": "steps", "save_steps": 3}
        return make_trainer(model, sentences(48), **options)

    whole = trainer("whole")
    whole.train()
    resumed = trainer("resumed")
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-3"))
    for (name, x), y in zip(whole.model.state_dict().items(), resumed.model.state_dict().values(), strict=True):
        assert torch.equal(x, y), name
    assert losses(whole)[3:] == losses(resumed)[-3:]
    saved = AutoModelForSequenceClassification.from_pretrained(tmp_path / "whole" / "checkpoint-6")
    assert type(saved).__name__ == "LionBertForSequenceClassification"
    assert all(torch.equal(x, saved.state_dict()[name]) for name, x in whole.model.state_dict().items())


@pytest.mark.parametrize("mixer", MIXERS)
def test_weight_decay_spares_the_decays(make_trainer, mixer):
    trainer = make_trainer(LionForSequenceClassification(text_config(mixer)), sentences(8))
    decayed = trainer.get_decay_parameter_names(trainer.model)
    names = {name for name, _ in trainer.model.named_parameters()}
    assert not [name for name in decayed if "bias" in name or "norm" in name]
    assert {name for name in names if "decay.bias" in name or "decay_proj.bias" in name}.isdisjoint(decayed)
    assert {name for name in names if name.endswith("proj.weight")} <= set(decayed)


@pytest.mark.slow
@pytest.mark.parametrize("mixer", ["decay", "selective", "delta"])
def test_bf16(make_trainer, mixer):
    model = seeded(LionForSequenceClassification, text_config(mixer, pooling="mean"))
    trainer = make_trainer(
        model, sentences(128), bf16=True, max_steps=40, per_device_train_batch_size=32, learning_rate=1e-2
    )
    trainer.train()
    assert all(map(math.isfinite, losses(trainer))) and sum(losses(trainer)[-5:]) < 0.8 * sum(losses(trainer)[:5])
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())


@pytest.mark.parametrize("task", ["mlm", "classification", "token", "image", "segmentation", "choice"])
def test_gradient_accumulation_equals_the_big_batch(make_trainer, tmp_path, task):
    # Sequences differ in how many labels they have: only num_items_in_batch gives each label the same weight.
    if task == "image":
        model_class, config, rows = LionForImageClassification, image_config(), pictures(16)
    elif task == "segmentation":
        model_class, config = LionForSemanticSegmentation, image_config(num_labels=2)
        rows = [row | {"labels": torch.full((8, 8), i % 2)} for i, row in enumerate(pictures(16))]
    elif task == "choice":
        model_class, config = LionForMultipleChoice, text_config()
        rows = [
            {"input_ids": torch.tensor([a["input_ids"], b["input_ids"]]), "labels": n % 2}
            for n, (a, b) in enumerate(zip(sentences(16, length=9), sentences(16, length=9)[::-1], strict=True))
        ]
    else:
        rows = sentences(16, length=9)
        model_class, config = LionForSequenceClassification, text_config()
        if task != "classification":
            model_class = LionForMaskedLM if task == "mlm" else LionForTokenClassification
            for i, row in enumerate(rows):
                row["labels"] = [
                    token % 2 if j % (1 + i % 4) == 0 else -100 for j, token in enumerate(row["input_ids"])
                ]
    results = []
    for size, steps in ((8, 1), (2, 4)):
        torch.manual_seed(0)
        trainer = make_trainer(
            model_class(config).double(),
            [{name: x.double() if name == "pixel_values" else x for name, x in row.items()} for row in rows],
            output_dir=str(tmp_path / str(size)),
            per_device_train_batch_size=size,
            gradient_accumulation_steps=steps,
            max_steps=4,
            optim="sgd",
            max_grad_norm=0.0,
            learning_rate=0.1,
            collator=lambda rows: {
                name: torch.stack([torch.as_tensor(row[name]) for row in rows]) for name in rows[0]
            },
        )
        trainer.train()
        results.append(weights(trainer.model))
    assert_same_weights(results, rtol=1e-5, atol=1e-6)


HEADS = {
    LionForSequenceClassification: {"labels": 1},
    LionForMaskedLM: {"labels": [3, -100, 4, 5]},
    LionForTokenClassification: {"labels": [0, 1, -100, 1]},
    LionForQuestionAnswering: {"start_positions": 1, "end_positions": 2},
    LionForMultipleChoice: {"labels": 1},
    LionForImageClassification: {"labels": 1},
    LionForMaskedImageModeling: {"bool_masked_pos": [True, False, True, False]},
}


@pytest.mark.parametrize("model_class", HEADS)
def test_columns_and_labels_of_every_head(make_trainer, model_class):
    from datasets import Dataset

    labels = HEADS[model_class]
    if model_class.main_input_name == "pixel_values":
        config, inputs = image_config(), {"pixel_values": torch.randn(1, 8, 8).tolist()}
    else:
        config, inputs = text_config(), {"input_ids": [6, 7, 8, 9], "token_type_ids": [0, 0, 1, 1]}
        if model_class is LionForMultipleChoice:
            inputs = {name: [values] * 3 for name, values in inputs.items()}
    rows = Dataset.from_list([inputs | labels | {"comment": "dropped"}] * 4).with_format("torch")
    # transformers looks for labels by name; what else makes the loss has to be named.
    names = {"label_names": ["bool_masked_pos"]} if model_class is LionForMaskedImageModeling else {}
    trainer = make_trainer(
        seeded(model_class, config),
        rows,
        evaluation=rows,
        **names,
        max_steps=2,
        per_device_train_batch_size=2,
        collator=None if model_class.main_input_name == "pixel_values" else stack,
    )
    trainer.train()
    batch = next(iter(trainer.get_train_dataloader()))
    assert set(batch) == set(inputs) | set(labels)
    output = trainer.predict(rows)
    assert math.isfinite(output.metrics["test_loss"])
    assert set(trainer.label_names) == set(labels) and output.label_ids is not None


def stop_while_writing(self, path):
    """`TrainerState.save_to_json`, the last file of a checkpoint, for a killer who waits for half of it."""
    text = json.dumps(dataclasses.asdict(self))
    Path(path).write_text(text[: len(text) // 2])
    if self.global_step == 6:
        os.kill(os.getpid(), signal.SIGKILL)
    Path(path).write_text(text)


def run_to_the_end(output_dir, is_killed):
    """A run of 8 steps with dropout, shuffling and a schedule; resumes if there is a checkpoint."""
    sys.path.append(str(Path(__file__).parents[2] / "examples"))
    from training_lion.scripts.checkpoints import last_whole_checkpoint

    torch.set_num_threads(1)
    set_seed(0)
    if is_killed:
        TrainerState.save_to_json = stop_while_writing
    config = text_config(hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.1)
    trainer = Trainer(
        LionForSequenceClassification(config),
        TrainingArguments(
            output_dir=output_dir,
            use_cpu=True,
            max_steps=8,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            learning_rate=3e-3,
            warmup_steps=2,
            save_strategy="steps",
            save_steps=3,
            report_to="none",
            disable_tqdm=True,
            seed=0,
        ),
        data_collator=pad,
        train_dataset=sentences(40),
    )
    trainer.train(resume_from_checkpoint=last_whole_checkpoint(output_dir))
    trainer.save_model(str(Path(output_dir) / "final"))


def run_three_times(folder):
    """One run that is left alone, one that is killed, and one that goes on from what that has left."""
    gc.freeze()  # each Trainer collects garbage
    codes = []
    for output_dir, is_killed in (("left_alone", False), ("killed", True), ("killed", False)):
        # Forked: one import of the libraries for all of them.
        arguments = (f"{folder}/{output_dir}", is_killed)
        process = multiprocessing.get_context("fork").Process(target=run_to_the_end, args=arguments)
        process.start()
        process.join()
        codes.append(process.exitcode)
    assert codes == [0, -signal.SIGKILL, 0], codes


@pytest.mark.slow
def test_a_run_killed_while_it_writes_a_checkpoint_resumes_to_the_same_weights(tmp_path):
    environment = script_environment()
    command = [sys.executable, __file__, str(tmp_path)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "checkpoint-6 is incomplete" in result.stdout

    expected, resumed = (
        AutoModelForSequenceClassification.from_pretrained(tmp_path / run / "final").state_dict()
        for run in ("left_alone", "killed")
    )
    start = AutoModelForSequenceClassification.from_pretrained(tmp_path / "killed" / "checkpoint-3").state_dict()
    assert expected.keys() == resumed.keys()
    assert all(torch.equal(expected[name], resumed[name]) for name in expected)
    assert any(not torch.equal(expected[name], start[name]) for name in expected)


if __name__ == "__main__":
    run_three_times(*sys.argv[1:])
