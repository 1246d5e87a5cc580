# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""One sequence over several processes: what they compute together is what one process computes alone."""

import gc
import json
import multiprocessing
import os
import socket
import subprocess
import sys
from datetime import timedelta
from itertools import product
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from conftest import script_environment
from tokenization_lion import LionTokenizer

import modeling_lion
from modeling_lion import LionConfig, LionForQuestionAnswering, LionForSequenceClassification, LionModel


pytestmark = pytest.mark.slow
PROCESSES = 3
LENGTH = 47  # slices of 15, 16 and 16 tokens
MIXERS = ("lit", "decay", "selective", "delta")
HEADS = ("LionForMaskedLM", "LionForTokenClassification", "LionForSequenceClassification", "LionForMultipleChoice")
HYBRID = {
    "layer_types": ["sliding_attention", "linear_attention"],
    "rope_parameters": {"linear_attention": None, "sliding_attention": {"rope_theta": 100.0}},
    "norm_position": "pre",
}
CASES = {
    **{f"{mixer} {padding}": {"mixer_type": mixer, "padding": padding}
       for mixer, padding in (*product(MIXERS, ("none", "left")), *product(("selective",), ("right", "interior")))},
    **{f"{kernel} kernel": {"kernel": kernel} for kernel in ("parallel", "rnn")},
    **{f"{head} {pooling}": {"head": head, "pooling": pooling, "padding": "left"}
       for head, pooling in product(HEADS[1:], ("cls", "mean"))},
    "pre-norm, no division": {"norm_position": "pre", "normalization": "none", "feature_map": "identity"},
    "absolute positions": {"position_embedding_type": "absolute", "padding": "interior"},
    "rotary positions": {"rope_parameters": {"rope_theta": 100.0}, "padding": "interior"},
    "rotary positions by length": {
        "rope_parameters": {"rope_type": "dynamic", "factor": 2.0},
        "max_position_embeddings": 20,
        "padding": "interior",
    },
    "checkpointing": {"checkpointing": True},
    **{f"{kernel} taps {padding}": {"conv_kernel": kernel, "padding": padding}
       for kernel, padding in product((3, 37), ("none", "left", "interior", "holes"))},  # 1 or 18 tokens on each side
    "taps, checkpointing": {"conv_kernel": 3, "checkpointing": True, "mixer_type": "lit", "norm_position": "pre"},
    **{f"windows of {window}, {padding} padding": HYBRID | {"sliding_window": window, "padding": padding}
       for window, padding in ((3, "none"), (3, "left"), (20, "right"))},
    "windows, checkpointing": HYBRID | {"sliding_window": 4, "checkpointing": True},
    "delta, checkpointing": {"mixer_type": "delta", "checkpointing": True, "padding": "interior", "conv_kernel": 3},
    "heads that read one direction": {"head_directions": "alternate", "padding": "right"},
}  # fmt: skip


SMALL = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 50, "num_hidden_layers": 1}


def make_case(head="LionForMaskedLM", padding="none", kernel="chunk", checkpointing=False, **fields):
    torch.manual_seed(0)
    fields = {"mixer_type": "selective", "vocab_size": 50, "num_labels": 3, "initializer_range": 0.3} | fields
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    config = LionConfig(chunk_size=8, **{"max_position_embeddings": 64} | sizes | fields)
    model = getattr(modeling_lion, head)._from_config(config, attn_implementation=kernel).double().train()
    if checkpointing:
        enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        enable({"use_reentrant": False})
    inputs = {"input_ids": torch.randint(1, 50, (2, LENGTH)), "token_type_ids": torch.randint(2, (2, LENGTH))}
    if padding != "none":
        mask = torch.ones(2, LENGTH, dtype=torch.long)
        padded = {"left": slice(0, 20), "right": slice(14, None), "interior": slice(10, 40)}
        mask[0, padded[padding] if padding in padded else torch.rand(LENGTH) < 0.6] = 0
        inputs["attention_mask"] = mask
    labels = torch.randint(3, (2, LENGTH))
    labels[:, 16:] = torch.where(torch.rand(2, LENGTH - 16) < 0.8, -100, labels[:, 16:])  # slices differ in number
    if padding != "none":
        labels = labels.masked_fill(mask == 0, -100)
    if head == "LionForSequenceClassification":
        labels = torch.tensor([2, 0])
    if head == "LionForMultipleChoice":
        inputs, labels = {name: x[None] for name, x in inputs.items()}, torch.tensor([1])
    return model, inputs | {"labels": labels}


def results(model, inputs) -> dict[str, torch.Tensor]:
    outputs = model(**inputs)
    outputs.loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    return {"logits": outputs.logits.detach(), "loss": outputs.loss.detach()} | gradients


def compare(case: dict) -> dict[str, float]:
    """The largest differences between this process's part and that of one process."""
    model, inputs = make_case(**case)
    alone = results(model, inputs)
    model.zero_grad()
    model.set_sequence_parallel(dist.group.WORLD)
    slices = model.shard_inputs(inputs)
    together = results(model, slices)
    per_token = together["logits"].dim() == 3
    if per_token:
        first = LENGTH * dist.get_rank() // dist.get_world_size()
        alone["logits"] = alone["logits"][:, first : first + together["logits"].shape[1]]
        if "attention_mask" in inputs:  # outputs of padding mean nothing
            real = slices["attention_mask"].bool()
            alone["logits"], together["logits"] = alone["logits"][real], together["logits"][real]
    for name, value in together.items():
        if name != "logits":  # as DDP does
            dist.all_reduce(value)
            value /= dist.get_world_size()
    assert alone.keys() == together.keys()
    return {
        name: float((together[name] - x).abs().max() / x.abs().max().clamp(min=1)) if x.numel() else 0.0
        for name, x in alone.items()
    }


def count_bytes(length: int) -> int:
    """What this process receives and sends in a forward and a backward pass over a sequence of this length."""
    total = 0
    wrapped = {name: getattr(dist, name) for name in ("all_gather", "all_reduce")}

    def counting(name):
        def call(tensors, *args, **kwargs):
            nonlocal total
            total += sum(x.numel() * x.element_size() for x in (tensors if isinstance(tensors, list) else [tensors]))
            return wrapped[name](tensors, *args, **kwargs)

        return call

    for name in wrapped:
        setattr(dist, name, counting(name))
    model, _ = make_case()
    model.set_sequence_parallel(dist.group.WORLD)
    ids = torch.randint(1, 50, (2, length))
    model(**model.shard_inputs({"input_ids": ids, "labels": ids})).loss.backward()
    for name, function in wrapped.items():
        setattr(dist, name, function)
    return total


def pool_in_half_precision() -> float:
    """The largest difference of means over more tokens than float16 has numbers."""
    model = LionModel(LionConfig(**SMALL, mixer_type="lit", position_embedding_type="none", conv_kernel=0)).eval()
    model.norm.bias.data.fill_(1.0)
    ids = torch.randint(1, 50, (1, 70_000))
    with torch.no_grad():
        alone = model.half()(ids).pooler_output
        model.set_sequence_parallel(dist.group.WORLD)
        together = model(**model.shard_inputs({"input_ids": ids})).pooler_output
    return float((alone - together).abs().max())


def refusals() -> list[str]:
    messages = []
    model, inputs = make_case()
    model.set_sequence_parallel(dist.group.WORLD)
    ids = model.shard_inputs(inputs)["input_ids"]
    rows = 2 + dist.get_rank()
    windows, padded = make_case(padding="interior", sliding_window=3, **HYBRID)
    windows.set_sequence_parallel(dist.group.WORLD)
    for call in (
        lambda: model(ids, cu_seq_lens_q=torch.tensor([0, 3, ids.shape[1]])),
        lambda: model(ids, position_ids=(torch.arange(ids.shape[1]) % 4)[None]),
        lambda: model(ids, output_attentions=True),
        lambda: model(ids[:1].expand(rows, -1)),
        lambda: model.shard_inputs({"input_ids": torch.ones(1, 2, dtype=torch.long)}),
        lambda: windows(**windows.shard_inputs(padded)),
    ):
        try:
            call()
            messages.append("no error")
        except ValueError as error:
            messages.append(str(error))
    return messages


def run_example(rank: int, folder: Path) -> dict[str, list[float]]:
    """The losses of the first process alone, and those of all together as torchrun would start them."""
    from sequence_parallel import main

    options = ["--model_name_or_path", str(folder / "model"), "--train_file", str(folder / "text.txt")]
    options += ["--length", "300", "--steps", "2"]
    multiprocessing.current_process().name = "MainProcess"  # as it is where torchrun starts it
    losses = {"alone": main(options)} if rank == 0 else {}
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(PROCESSES), "LOCAL_RANK": str(rank)}
    return losses | {"shared": main(options)}


def keep_process_groups() -> None:
    """
    Process groups of gloo live until the process leaves: their destructor may wait, with Python's lock in hand, for a
    thread that waits for this lock.
    """
    destroy, groups = dist.destroy_process_group, []

    def destroy_but_keep() -> None:
        groups.append(dist.group.WORLD)
        destroy()

    dist.destroy_process_group = destroy_but_keep


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    keep_process_groups()
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", store, timedelta(seconds=60), rank=rank, world_size=PROCESSES)
    answer = {name: compare(case) for name, case in CASES.items()}
    answer["bytes"] = {str(length): count_bytes(length) for length in (30, 60, 600)}
    answer["refusals"] = refusals()
    answer["half precision"] = pool_in_half_precision()
    dist.barrier()  # as in the example
    dist.destroy_process_group()
    answer["example"] = run_example(rank, Path(folder))
    Path(folder, f"{rank}.json").write_text(json.dumps(answer))
    os._exit(0)  # without destructors


def start(folder: str) -> None:
    text = " ".join(torch.optim.Adam.__doc__.split())
    Path(folder, "text.txt").write_text(text, encoding="utf-8")
    tokenizer = LionTokenizer.train_from_iterator([text], vocab_size=200)
    tokenizer.save_pretrained(f"{folder}/model")
    make_case(vocab_size=len(tokenizer))[0].float().save_pretrained(f"{folder}/model")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    import sequence_parallel  # noqa: F401

    gc.freeze()
    # Forked: one import of the libraries for all processes.
    torch.multiprocessing.start_processes(work, (folder,), PROCESSES, start_method="fork")


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> list[dict]:
    """What every process found; one launch for all cases."""
    folder = tmp_path_factory.mktemp("processes")
    run = subprocess.run(
        [sys.executable, "-W", "error", __file__, str(folder)],
        env=script_environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(PROCESSES)]


@pytest.mark.parametrize("case", CASES)
def test_equals_one_process(answers, case):
    # transformers' losses, and so all gradients, have passed through float32.
    allowed = {"logits": torch.finfo(torch.float64).eps ** 0.75}
    for answer in answers:
        wrong = {name: error for name, error in answer[case].items() if not error <= allowed.get(name, 1e-6)}
        assert not wrong


def test_means_of_many_tokens_in_half_precision(answers):
    assert all(answer["half precision"] <= 4 * torch.finfo(torch.float16).eps for answer in answers)


def test_labels_of_texts_are_not_cut():
    model = LionForSequenceClassification(LionConfig(**SMALL, num_labels=6, problem_type="multi_label_classification"))
    model.base_model.sequence_group = object()
    ids, labels = torch.ones(2, 6, dtype=torch.long), torch.ones(2, 6)
    with patch.multiple(dist, get_rank=lambda group: 1, get_world_size=lambda group: 2):
        cut = model.shard_inputs({"input_ids": ids, "labels": labels})
    assert cut["input_ids"].shape == (2, 3) and cut["labels"] is labels


def test_communication_does_not_depend_on_the_length(answers):
    for answer in answers:
        assert answer["bytes"]["30"] == answer["bytes"]["60"] == answer["bytes"]["600"]
        # Per layer and direction, in float64: states of D x (D + 1) and one decay, in forward and backward.
        states = 2 * PROCESSES * 2 * 2 * (2 * (8 * 9 + 1)) * 8 * 2
        taps = 2 * PROCESSES * 2 * 2 * 16 * 8 * 2  # one token at each border, in forward and backward
        assert states + taps <= answer["bytes"]["30"] <= states + taps + 600


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (0, "one sequence a row, not packed ones"),
        (1, "one sequence a row, not packed ones"),
        (2, "no attention weights"),
        (3, "batches of [2, 3, 4] rows"),
        (4, "2 tokens, fewer than the 3 processes"),
        (5, "padding between real tokens"),
    ],
)
def test_refusals(answers, index, message):
    assert all(message in answer["refusals"][index] for answer in answers)


def test_refusals_without_processes():
    sizes = {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2}
    with pytest.raises(ValueError, match="LionModel of `modality` 'image' cannot share"):
        LionModel(LionConfig(modality="image", **sizes)).set_sequence_parallel(object())
    with pytest.raises(ValueError, match="LionForQuestionAnswering .* cannot share"):
        LionForQuestionAnswering(LionConfig(**sizes)).set_sequence_parallel(object())
    with pytest.raises(ValueError, match="set_sequence_parallel"):
        LionModel(LionConfig(**sizes)).shard_inputs({})


def test_the_example_has_the_losses_of_one_process(answers):
    alone = answers[0]["example"]["alone"]
    assert len(alone) == 2
    for answer in answers:
        assert answer["example"]["shared"] == pytest.approx(alone, abs=2e-5)


if __name__ == "__main__":
    start(sys.argv[1])
