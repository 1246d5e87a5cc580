# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Packing: the collator, the sampler, and trainings that equal the sequences run one by one."""

import gc
import subprocess
import sys
from functools import partial

import pytest
import torch
from conftest import TINY, assert_equal, mixer_fields, script_environment
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenization_lion import LionTokenizer
from training_lion.packing import (
    DataCollatorForLanguageModelingWithFlattening,
    PackingTrainer,
    TokenBudgetBatchSampler,
    sequence_lengths,
)
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertModel,
    DataCollatorForLanguageModeling,
    DataCollatorWithFlattening,
    EuroBertConfig,
    EuroBertModel,
    RobertaConfig,
    RobertaModel,
    TrainerCallback,
    TrainingArguments,
)

from modeling_lion import (
    LionConfig,
    LionForMaskedLM,
    LionForSequenceClassification,
    LionForTokenClassification,
    LionModel,
    linearize,
)


BUDGET = 60
TEXTS = ["the lion sleeps in the shade", "a lion roars", "zebras drink at the river at night", "a lion sleeps"]


@pytest.fixture(scope="module")
def tokenizer() -> LionTokenizer:
    return LionTokenizer.train_from_iterator(TEXTS * 5, vocab_size=120)


@pytest.fixture
def examples(tokenizer) -> list[dict]:
    pairs = tokenizer(TEXTS, TEXTS[::-1], return_special_tokens_mask=True)
    return [{name: pairs[name][i] for name in pairs} for i in range(len(TEXTS))]


def make_model(tokenizer, mixer: str, kernel: str | None = None, model_class=LionForMaskedLM, **fields):
    torch.manual_seed(0)
    fields = {"vocab_size": len(tokenizer), "max_position_embeddings": 64} | fields
    fields = TINY | fields
    config = LionConfig(**(mixer_fields(mixer, fields["num_hidden_layers"]) | fields))
    return model_class._from_config(config, attn_implementation=kernel).double()


@pytest.mark.parametrize("whole_words", [False, True])
def test_collator_masks_as_with_padding_and_keeps_first_labels(tokenizer, examples, whole_words):
    options = {"mlm_probability": 0.4, "seed": 3}
    if whole_words:
        options |= {"whole_word_mask": True, "mask_replace_prob": 1, "random_replace_prob": 0}
        # transformers pads no offsets, so these have to come padded.
        encoded = tokenizer(TEXTS, padding=True, return_special_tokens_mask=True, return_offsets_mapping=True)
        examples = [{name: encoded[name][i] for name in encoded} for i in range(len(TEXTS))]
    padded = DataCollatorForLanguageModeling(tokenizer, **options)(examples)
    packed = DataCollatorForLanguageModelingWithFlattening(tokenizer, **options)(examples)
    real = padded["attention_mask"].bool()
    assert (~real).any() and (packed["labels"] != -100).any()
    for name in padded.keys() - {"attention_mask"}:
        assert torch.equal(packed[name][0], padded[name][real]), name
    rows = [{"input_ids": ids[mask]} for ids, mask in zip(padded["input_ids"], real, strict=True)]
    layout = DataCollatorWithFlattening(return_flash_attn_kwargs=True)(rows)
    for name in ("position_ids", "cu_seq_lens_q", "cu_seq_lens_k"):
        assert torch.equal(packed[name], layout[name]) and packed[name].dtype == layout[name].dtype, name
    assert packed["max_length_q"] == packed["max_length_k"] == layout["max_length_q"]

    # Without "special_tokens_mask" in the examples, special tokens stay as they are all the same.
    collate = DataCollatorForLanguageModelingWithFlattening(tokenizer, mlm_probability=1.0)
    batch = collate([{"input_ids": row["input_ids"]} for row in examples])
    starts = batch["cu_seq_lens_q"][:-1]
    assert (batch["labels"][0, starts] == -100).all()
    assert (batch["labels"][0, starts + 1] == torch.tensor([row["input_ids"][1] for row in examples])).all()


def test_collator_drops_padding_that_is_there_already(tokenizer):
    collate = DataCollatorForLanguageModelingWithFlattening(tokenizer, mlm=False)
    rows = [
        {"input_ids": [0, 7, 8], "attention_mask": [0, 1, 1], "labels": [5, 1, 2]},
        {"input_ids": [9], "labels": [3]},
    ]
    batch = collate(rows)
    assert batch["input_ids"].tolist() == [[7, 8, 9]] and batch["labels"].tolist() == [[1, 2, 3]]
    assert batch["cu_seq_lens_q"].tolist() == [0, 2, 3] and batch["position_ids"].tolist() == [[0, 1, 0]]
    assert "labels" not in collate([{"input_ids": [5, 6]}])


def test_collator_leaves_other_columns_out(tokenizer):
    collate = DataCollatorForLanguageModelingWithFlattening(tokenizer, mlm=False)
    rows = [{"input_ids": [7, 8], "label": 1, "length": 2, "text": "ab"}, {"input_ids": [9], "label": 0, "length": 1}]
    assert collate(rows)["labels"].tolist() == [1, 0] and not {"length", "text", "label"} & {*collate(rows)}


@pytest.mark.parametrize(
    ("options", "rows", "message"),
    [
        ({"pad_to_multiple_of": 8}, None, "`pad_to_multiple_of` is 8"),
        ({"return_tensors": "np"}, None, "`return_tensors` is 'np'"),
        ({}, [{"input_ids": []}], "`input_ids` is empty"),
    ],
)
def test_collator_refuses(tokenizer, options, rows, message):
    with pytest.raises(ValueError, match=message):
        DataCollatorForLanguageModelingWithFlattening(tokenizer, **options)(rows)


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=60),
    max_tokens=st.integers(40, 120),
    multiple_of=st.integers(1, 4),
    shuffle=st.booleans(),
)
def test_sampler_fills_the_budget(lengths, max_tokens, multiple_of, shuffle):
    sampler = TokenBudgetBatchSampler(lengths, max_tokens, shuffle=shuffle, seed=5, multiple_of=multiple_of)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        batches = list(sampler)
        assert batches == list(sampler)  # nothing but seed and epoch decides
        assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
        assert all(batch and sum(lengths[i] for i in batch) <= max_tokens for batch in batches)
        assert len(batches) == len(sampler)
        assert len(batches) % multiple_of == 0 or len(batches) == len(lengths)
    # Short sequences leave less than one of them free in a batch, and one batch and its multiple more than needed.
    if max(lengths) <= max_tokens // 2:
        assert len(sampler) <= -(-sum(lengths) // (max_tokens - max(lengths))) + multiple_of - 1


def test_sampler_orders():
    lengths = torch.randint(1, 20, (200,)).tolist()
    sampler = TokenBudgetBatchSampler(lengths, 64)
    first = list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) != first != list(TokenBudgetBatchSampler(lengths, 64, seed=1))
    in_order = TokenBudgetBatchSampler(lengths, 64, shuffle=False)
    assert [i for batch in in_order for i in batch] == list(range(200))
    # Also if a sequence fills more than half of a batch.
    assert list(TokenBudgetBatchSampler([3, 60, 3, 40, 2], 64, shuffle=False)) == [[0, 1], [2, 3, 4]]


@pytest.mark.parametrize(
    ("lengths", "message"),
    [([], "`lengths` is empty"), ([3, 0], "Sequence 1 has no tokens"), ([3, 11], "Sequence 1 has 11 tokens.* 10")],
)
def test_sampler_refuses(lengths, message):
    with pytest.raises(ValueError, match=message):
        TokenBudgetBatchSampler(lengths, 10)


def test_sequence_lengths():
    rows = [{"input_ids": list(range(n))} for n in (3, 1, 4, 1, 5)]
    dataset = Dataset.from_list(rows)
    assert sequence_lengths(rows) == sequence_lengths(dataset) == [3, 1, 4, 1, 5]
    assert sequence_lengths(dataset.select([4, 0])) == [5, 3]


def arguments(folder, **options) -> TrainingArguments:
    defaults = {"use_cpu": True, "report_to": "none", "save_strategy": "no", "disable_tqdm": True, "optim": "sgd"}
    defaults |= {"learning_rate": 0.1, "lr_scheduler_type": "constant", "max_grad_norm": 0.0, "max_steps": 2}
    return TrainingArguments(str(folder), **(defaults | options))


def rows_of(tokenizer, count: int) -> list[dict]:
    texts = [" ".join((TEXTS[n % 4] + " ").split() * (1 + n % 3)) for n in range(count)]
    return [dict(tokenizer(text)) for text in texts]


@pytest.mark.slow
def test_training_on_packed_rows_equals_sequences_one_by_one(tokenizer, tmp_path, mixer):
    model, alone = (make_model(tokenizer, mixer) for _ in range(2))
    start = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    batches = []

    class Keep(DataCollatorForLanguageModelingWithFlattening):
        def torch_call(self, examples):
            batches.append(super().torch_call(examples))
            return batches[-1]

    collate = Keep(tokenizer, mlm_probability=0.3, seed=0)
    PackingTrainer(
        model,
        arguments(tmp_path, gradient_accumulation_steps=2),
        data_collator=collate,
        train_dataset=rows_of(tokenizer, 16),
        max_tokens_per_batch=BUDGET,
    ).train()

    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
    for step in (batches[:2], batches[2:4]):
        num_items = sum((batch["labels"] != -100).sum() for batch in step)
        for batch in step:
            borders = batch["cu_seq_lens_q"].tolist()
            assert len(borders) > 2
            for first, end in zip(borders, borders[1:], strict=False):
                one = {name: batch[name][:, first:end] for name in ("input_ids", "labels", "token_type_ids")}
                alone(**one, num_items_in_batch=num_items).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    for (name, actual), expected in zip(model.named_parameters(), alone.parameters(), strict=True):
        # transformers' loss is float32; the step is a tenth of the gradient.
        torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-7, msg=lambda m, name=name: f"{name}: {m}")
        assert not torch.equal(expected, start[name]), name


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("model_class", [LionForSequenceClassification, LionForTokenClassification])
def test_labels_of_other_heads(tokenizer, model_class, pooling):
    model = make_model(tokenizer, "selective", "chunk", model_class, pooling=pooling).eval()
    rows = rows_of(tokenizer, 4)
    for n, row in enumerate(rows):
        row["labels"] = n % 3 if model_class is LionForSequenceClassification else [n % 3] * len(row["input_ids"])
    packed = model(**DataCollatorForLanguageModelingWithFlattening(tokenizer, mlm=False)(rows))
    singles = [model(**{name: torch.tensor([x]) for name, x in row.items()}) for row in rows]
    dim = 0 if model_class is LionForSequenceClassification else 1
    assert_equal(packed.logits, torch.cat([single.logits for single in singles], dim=dim))
    weights = torch.tensor([1 if dim == 0 else len(row["input_ids"]) for row in rows])
    losses = torch.stack([single.loss for single in singles])
    # transformers' losses are float32.
    torch.testing.assert_close(packed.loss.float(), ((losses * weights).sum() / weights.sum()).float())


class Record(TrainerCallback):
    """Ends a run after a step, as a failure would."""

    def __init__(self, last_step: int):
        self.last_step = last_step

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step == self.last_step


def batches_seen(tokenizer, folder: str, workers: int, stop: int = 0, checkpoint: str | None = None) -> list[list]:
    """The labels of each batch of a training of three epochs that stops after a step, or goes on from a checkpoint."""
    seen = []

    class Spy(PackingTrainer):
        def training_step(self, model, inputs, *args):
            seen.append(inputs["labels"].tolist())
            return super().training_step(model, inputs, *args)

    options = {"max_steps": -1, "num_train_epochs": 3, "save_strategy": "steps", "save_steps": 7}
    trainer = Spy(
        make_model(tokenizer, "decay"),
        arguments(folder, **options, dataloader_num_workers=workers),
        data_collator=DataCollatorForLanguageModelingWithFlattening(tokenizer, mlm=False),
        train_dataset=[row | {"labels": row["input_ids"]} for row in rows_of(tokenizer, 16)],
        callbacks=[Record(stop)],
        max_tokens_per_batch=BUDGET,
    )
    trainer.train(resume_from_checkpoint=checkpoint)
    return seen


def resume(folder: str, workers: int) -> None:
    run = partial(batches_seen, LionTokenizer.train_from_iterator(TEXTS * 5, vocab_size=120), folder, workers)
    whole = run()
    assert len(whole) == 15 and whole[:5] != whole[5:10]  # three epochs of five batches
    started = run(stop=8)
    resumed = run(checkpoint=f"{folder}/checkpoint-7")  # amid the second epoch
    assert started == whole[:8] and resumed == whole[7:]


@pytest.mark.slow
def test_a_resumed_training_with_a_worker_sees_the_batches_that_were_left(tmp_path):
    """In a process of its own: the worker of a data loader is a fork, here of a process without others' threads."""
    command = [sys.executable, __file__, str(tmp_path)]
    result = subprocess.run(
        command, env=script_environment(), capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_trainer_evaluates_all_tokens_and_can_leave_the_budget_out(tokenizer, tmp_path):
    rows = [row | {"labels": row["input_ids"]} for row in rows_of(tokenizer, 9)]
    for budget in (None, BUDGET):
        trainer = PackingTrainer(
            make_model(tokenizer, "selective"),
            arguments(tmp_path, per_device_eval_batch_size=2),
            data_collator=DataCollatorForLanguageModelingWithFlattening(tokenizer, mlm=False),
            eval_dataset=rows,
            compute_metrics=lambda p: {"tokens": float((p.label_ids != -100).sum())},
            max_tokens_per_batch=budget,
        )
        assert trainer.evaluate()["eval_tokens"] == sum(len(row["input_ids"]) for row in rows)
        assert len(trainer.get_eval_dataloader()) == (5 if budget is None else 2)


def test_attention_without_borders_is_refused(tokenizer, tmp_path):
    """Sequences of a row would see each other."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    bert = BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), **sizes))
    make = partial(PackingTrainer, args=arguments(tmp_path), max_tokens_per_batch=BUDGET)
    with pytest.raises(ValueError, match="of BertForMaskedLM with the attention 'sdpa' would see each other"):
        make(bert)
    linear = linearize(BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), **sizes)))
    make(linear)
    linear.set_attn_implementation("sdpa")
    with pytest.raises(ValueError, match="LionBertForMaskedLM with the attention 'sdpa' would see each other"):
        make(linear)
    PackingTrainer(bert, arguments(tmp_path))  # pads


def test_trainer_refuses_streams(tokenizer, tmp_path):
    stream = Dataset.from_list(rows_of(tokenizer, 4)).to_iterable_dataset()
    trainer = PackingTrainer(
        make_model(tokenizer, "lit"), arguments(tmp_path), train_dataset=stream, max_tokens_per_batch=BUDGET
    )
    with pytest.raises(ValueError, match="`max_tokens_per_batch` needs a dataset with a length"):
        trainer.get_train_dataloader()


if __name__ == "__main__":
    gc.freeze()  # each Trainer collects garbage
    resume(sys.argv[1], workers=1)


@pytest.mark.parametrize("is_linearized", [False, True], ids=["lion", "linearized"])
def test_numbers_of_sequences_are_borders(is_linearized):
    """What transformers' collator gives if it is asked for `seq_idx` alone."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2}
    sizes |= {"intermediate_size": 24, "max_position_embeddings": 32}
    model = LionModel(LionConfig(**sizes))
    if is_linearized:
        model = linearize(BertModel(BertConfig(**sizes)), exact_length=0, window=2)
    rows = [{"input_ids": torch.randint(5, 40, (length,)).tolist()} for length in (7, 1, 9)]
    packed = DataCollatorWithFlattening(return_position_ids=False, return_seq_idx=True)(rows)
    ids, numbers = packed["input_ids"], packed["seq_idx"]
    with torch.no_grad():
        model.double().eval()
        actual = model(ids, seq_idx=numbers).last_hidden_state
        expected = model(ids, cu_seq_lens_q=torch.tensor([0, 7, 8, 17], dtype=torch.int32)).last_hidden_state
        assert torch.equal(actual, expected) and not torch.equal(actual, model(ids).last_hidden_state)
        rows = model(ids.repeat(2, 1), seq_idx=numbers.repeat(2, 1)).last_hidden_state
    torch.testing.assert_close(rows, expected.repeat(2, 1, 1))


def test_numbers_of_sequences_are_borders_beside_positions_that_do_not_return():
    """As of sequences of one token, whose positions are all 0."""
    sizes = {"vocab_size": 40, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    batch = DataCollatorWithFlattening(return_seq_idx=True)([{"input_ids": [n]} for n in (3, 4, 5)])
    assert batch["position_ids"].tolist() == [[0, 0, 0]]
    for model in (
        LionModel(LionConfig(**sizes)),
        linearize(BertModel(BertConfig(**sizes, intermediate_size=24)), exact_length=0, window=2),
    ):
        model.double().eval()
        with torch.no_grad():
            packed = model(input_ids=batch["input_ids"], position_ids=batch["position_ids"], seq_idx=batch["seq_idx"])
            alone = model(input_ids=batch["input_ids"].T).last_hidden_state
        torch.testing.assert_close(packed.last_hidden_state[0], alone[:, 0])


def small_roberta() -> RobertaModel:
    sizes = {"vocab_size": 40, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    return RobertaModel(
        RobertaConfig(**sizes, intermediate_size=24, max_position_embeddings=34, initializer_range=0.5)
    )


def small_eurobert() -> EuroBertModel:
    sizes = {"vocab_size": 40, "hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2}
    sizes |= {"intermediate_size": 24, "num_hidden_layers": 1, "initializer_range": 0.5}
    return EuroBertModel(EuroBertConfig(**sizes, pad_token_id=0, bos_token_id=1, eos_token_id=2))


@pytest.mark.parametrize("make", [small_roberta, small_eurobert], ids=["table", "rotary"])
@pytest.mark.parametrize("is_compiled", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["eager", "compiled"])
def test_positions_of_a_linearized_encoder_restart(make, is_compiled):
    """Together, sequences may be longer than a table of positions that has room for each."""
    torch.manual_seed(0)
    torch.compiler.reset()
    model = linearize(make(), exact_length=8, window=3).double().eval()
    ids, borders = torch.randint(5, 40, (1, 48)), torch.tensor([0, 18, 48], dtype=torch.int32)
    call = torch.compile(model, backend="eager") if is_compiled else model
    with torch.no_grad():
        packed = call(input_ids=ids, cu_seq_lens_q=borders).last_hidden_state
        alone = [model(input_ids=ids[:, a:b]).last_hidden_state for a, b in ((0, 18), (18, 48))]
    torch.testing.assert_close(packed, torch.cat(alone, 1))


@pytest.mark.slow
@pytest.mark.parametrize("is_linearized", [False, True], ids=["lion", "linearized"])
def test_a_graph_refuses_borders_that_differ_by_row(is_linearized):
    sizes = {"vocab_size": 40, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    model = LionModel(LionConfig(**sizes)).eval()
    if is_linearized:
        model = linearize(BertModel(BertConfig(**sizes, intermediate_size=24)), exact_length=0, window=2).eval()
    torch.compiler.reset()
    compiled = torch.compile(model, backend="eager")
    ids = torch.randint(5, 40, (2, 9))
    with torch.no_grad():
        same = torch.tensor([0, 5, 9], dtype=torch.int32)
        expected = model(input_ids=ids, cu_seq_lens_q=same).last_hidden_state
        torch.testing.assert_close(compiled(input_ids=ids, cu_seq_lens_q=same).last_hidden_state, expected)
        with pytest.raises(RuntimeError, match="In a graph, cu_seqlens must be the same in all rows"):
            compiled(input_ids=ids, cu_seq_lens_q=torch.tensor([0, 5, 18], dtype=torch.int32))
