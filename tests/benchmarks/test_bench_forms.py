# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The forms of the paper: what is timed is the definition, and the table says what was measured."""

import importlib

import pytest
import torch

from modeling_lion.attention.decay_mask import LogDecay
from modeling_lion.attention.reference import reference_attention


@pytest.fixture
def bench():
    return importlib.import_module("bench_forms")


@pytest.mark.parametrize(
    ("form", "chunk_size"),
    [
        ("rnn", None),
        ("chunk", 16),
        ("chunk", 64),
        ("pairs", 16),
        ("pairs", 64),
        ("keys", 16),
        ("keys", 64),
        ("parallel", None),
    ],
)
def test_each_form_is_the_definition(bench, form, chunk_size):
    length = 100
    result, *_ = bench.make_call(form, chunk_size, length)()
    *inputs, log_decay = bench.attention_inputs("LION-S", 1, length)
    exact, near = (
        reference_attention(*(x.to(dtype) for x in inputs), LogDecay(*2 * [log_decay.to(dtype)]))[0]
        for dtype in (torch.float64, torch.float32)
    )
    assert (result - exact).abs().max() <= 2 * (near - exact).abs().max()


def test_softmax_is_beside_them(bench):
    query, key, value, _ = bench.attention_inputs("LION-S", 1, 100)
    expected = (query @ key.mT / 8).softmax(-1) @ value  # heads of 64
    torch.testing.assert_close(bench.make_call("softmax", None, 100)()[0], expected)


@pytest.mark.parametrize(("form", "chunk_size"), [("rnn", None), ("chunk", 16), ("parallel", None), ("softmax", None)])
def test_trainings_have_the_gradients_of_all_inputs(bench, form, chunk_size):
    found = bench.make_call(form, chunk_size, 50, trains=True)()
    assert len(found) == (3 if form == "softmax" else 4) and all(x.abs().max() > 0 for x in found)
    if form == "chunk":
        for one, other in zip(found, bench.make_call("parallel", None, 50, trains=True)(), strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.slow
def test_the_benchmark_runs(bench, tmp_path):
    arguments = ["--quick", "--repeats", "1", "--output_dir", str(tmp_path)]
    bench.main(arguments)
    rows = (tmp_path / "forms.csv").read_text()
    page = (tmp_path / "memory.md").read_text()
    assert (
        "| recurrent |" in page
        and "| softmax |" in page
        and "| chunks of 256 tokens |" in page
        and "512 tokens, MiB |" in page
    )
    bench.main(arguments)  # all is there
    assert (tmp_path / "forms.csv").read_text() == rows
    bench.main([*arguments[1:], "--training", "--lengths", "128"])
    page = (tmp_path / "memory.md").read_text()
    assert "| 128 tokens, MiB |" in page and "published loop over pairs" in page
