# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What of benchmarks/bench_gpu.py needs no GPU: what it compares with, its checks and its table."""

import csv
import importlib
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from attention_forms import naive


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    bench = importlib.import_module("bench_gpu")
    monkeypatch.setattr(bench, "DEVICE", "cpu")
    return bench


def chunk_simple_gla(query, key, value, log_decay=None, scale=1.0):
    """The function of flash-linear-attention, `(batch, length, heads, dim)`: a causal scan that decays first."""
    state, outputs = 0.0, []
    for t in range(query.shape[1]):
        if log_decay is not None:
            state = state * log_decay[:, t, :, None, None].exp()
        state = state + key[:, t, :, :, None] * value[:, t, :, None]
        outputs.append(scale * (query[:, t, :, None] @ state)[:, :, 0])
    return torch.stack(outputs, 1), None


@pytest.mark.parametrize("mixer", ["LION-LIT", "LION-D", "LION-S"])
def test_two_passes_are_bidirectional_attention(mixer, bench, monkeypatch):
    modules = {name: ModuleType(name) for name in ("fla", "fla.ops", "fla.ops.simple_gla")}
    modules["fla.ops.simple_gla"].chunk_simple_gla = chunk_simple_gla
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    inputs = [x.double() for x in bench.make_inputs(mixer, 2, 9, heads=3)]
    expected, _ = naive(*inputs, normalization="none")
    torch.testing.assert_close(bench.two_passes(*inputs), expected)
    assert list(bench.contestants(mixer))[-1] == f"{mixer} two passes"


@pytest.mark.parametrize("mixer", ["LION-LIT", "LION-D", "LION-S"])
def test_wrong_results_are_seen(mixer, bench):
    assert 0 < bench.check(bench.lion, mixer, 40, "sum") < 0.02
    with pytest.raises(AssertionError, match="40 tokens"):
        bench.check(lambda *inputs: 1.03 * bench.lion(*inputs), mixer, 40, "sum")


def test_a_row_per_function(bench, monkeypatch, tmp_path, capsys):
    """Flash attention is left out, and each function takes as many seconds as its place in the list."""

    def captured(function):
        if getattr(function.args[0], "keywords", {}).get("backend") is bench.BACKENDS["flash"]:
            raise RuntimeError("No available kernel.")

    times = lambda functions, *_: {name: [i + 2.0] * 3 for i, name in enumerate(functions)}
    monkeypatch.setattr(bench, "captured", captured)
    monkeypatch.setattr(bench, "interleaved", times)
    rows = []
    bench.kernel_rows([16, 32], 1, math.inf, rows.append)
    functions = [*bench.BACKENDS, *bench.MAPS, *(name for mixer in bench.LIONS for name in bench.contestants(mixer))]
    assert [row["name"] for row in rows] == functions * 4  # two lengths, two passes
    flash, cudnn, feature_map = rows[:3]
    assert flash["ratio"] is flash["median"] is None and "No available kernel" in flash["note"]
    assert (cudnn["ratio"], feature_map["ratio"], feature_map["median"]) == (1, 1.5, 3)
    assert all((row["error"] or 0) > 0 for row in rows if row["name"].startswith(bench.LIONS))
    for some in (rows[:1], rows[1:]):
        bench.append_rows(tmp_path / "new" / "gpu.csv", some)
    with open(tmp_path / "new" / "gpu.csv", newline="") as file:
        read = list(csv.DictReader(file))
    assert [row["name"] for row in read] == [row["name"] for row in rows]
    assert (read[0]["ratio"], read[2]["ratio"]) == ("", "1.5")
    bench.print_ratios(rows)
    assert "| 16 | forward | – | 1.000 | 1.500 |" in capsys.readouterr().out
    bench.kernel_rows([16, 32], 1, -math.inf, rows.append)
    assert len(rows) == 5 * len(functions)  # past the deadline, nothing new is started


def test_models_beside_their_softmax_twins(bench, monkeypatch):
    """Both modalities in turn, so that a deadline leaves some of each."""
    monkeypatch.setattr(bench, "training_step", lambda name, modality, batch: lambda: None)
    seconds = {"BERT": 2.0, "ViT": 4.0}
    monkeypatch.setattr(bench, "interleaved", lambda steps, *_: {name: [seconds.get(name, 3.0)] for name in steps})
    rows = []
    bench.model_rows(256, math.inf, rows.append)
    ratios = {(row["name"], row["length"]): row["ratio"] for row in rows}
    expected = {("ModernBERT", 128): 1.5, ("ModernBERT-base", 128): 1.5}
    for mixer in bench.LIONS:
        expected |= {(f"{mixer} image", 224): 0.75, (f"{mixer} text", 128): 1.5}
    assert ratios == expected
    assert {row["name"] for row in rows[:2]} == {"LION-D image", "LION-D text"}
    bench.model_rows(256, -math.inf, rows.append)
    assert len(rows) == len(expected)
