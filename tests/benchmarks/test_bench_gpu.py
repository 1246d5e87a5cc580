# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What of benchmarks/bench_kernels.py and bench_models.py on a GPU needs none: contestants, checks, rows and order."""

import importlib
import sys
from types import ModuleType

import pytest
import torch
from attention_forms import naive


GPU = {"gpu": "H100", "tiles_measured_on": None}


@pytest.fixture
def bench(monkeypatch):
    """bench_kernels.py with a GPU that is the CPU."""
    bench = importlib.import_module("bench_kernels")
    attention_inputs = bench.attention_inputs
    monkeypatch.setattr(bench, "attention_inputs", lambda *a, device, **options: attention_inputs(*a, **options))
    monkeypatch.setattr(bench, "gpu", lambda *_: GPU)
    bench.check.cache_clear()
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


MIXERS = ["LION-LIT", "LION-D", "LION-S"]


@pytest.mark.parametrize("mixer", MIXERS)
def test_two_passes_are_bidirectional_attention(mixer, bench, monkeypatch):
    modules = {name: ModuleType(name) for name in ("fla", "fla.ops", "fla.ops.simple_gla")}
    modules["fla.ops.simple_gla"].chunk_simple_gla = chunk_simple_gla
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    inputs = [x.double() for x in bench.make_inputs(mixer, 2, 9, "cuda", heads=3)]
    expected, _ = naive(*inputs, normalization="none")
    torch.testing.assert_close(bench.two_passes(*inputs), expected)
    assert bench.contestants("cuda", 9)[mixer, "two passes"] is bench.two_passes


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("mixer", MIXERS)
def test_wrong_results_are_seen(mixer, device, bench, monkeypatch):
    assert 0 < bench.check("auto", mixer, 40, device) < 0.02
    bench.check.cache_clear()
    monkeypatch.setattr(bench, "contestants", lambda *_: {(mixer, "auto"): lambda *x: 1.04 * bench.lion(*x)})
    with pytest.raises(AssertionError, match="40 tokens"):
        bench.check("auto", mixer, 40, device)


def test_a_row_per_contestant(bench, monkeypatch, capsys):
    """Flash attention is left out, and each function takes as many seconds as its place in the list."""

    def captured(call):
        if getattr(call.args[0], "keywords", {}).get("backend") is bench.BACKENDS["flash"]:
            raise RuntimeError("No available kernel.")

    times = lambda functions, *_: {name: [i + 2.0] * 3 for i, name in enumerate(functions)}
    monkeypatch.setattr(bench, "captured", captured)
    monkeypatch.setattr(bench, "interleaved", times)
    monkeypatch.setitem(bench.BACKENDS, "cudnn", bench.SDPBackend.MATH)  # which a CPU has
    rows = bench.measure(16, 1, "forward", "cuda", 10.0)
    assert [(row["mixer"], row["kernel"]) for row in rows] == [*bench.contestants("cuda", 16)]
    flash, cudnn, feature_map = rows[:3]
    assert flash["median"] is None and "No available kernel" in flash["note"]
    assert (cudnn["median"], feature_map["median"], feature_map["mixer"]) == (2, 3, "feature map")
    assert all((row["error"] or 0) > 0 for row in rows if row["mixer"] in MIXERS)
    assert all(row.keys() == flash.keys() for row in rows) and flash.items() >= GPU.items()
    bench.say(rows)
    out = capsys.readouterr().out
    assert "softmax, flash: left out, RuntimeError: No available kernel." in out
    assert "feature map, plain: 2.000 of softmax, +33% against the fastest" in out


def test_a_kernel_that_is_wrong_on_a_cpu_ends_the_run(bench, monkeypatch):
    monkeypatch.setattr(bench, "contestants", lambda *_: {("LION-S", "auto"): lambda *x: 1.01 * bench.lion(*x)})
    with pytest.raises(AssertionError, match="off by"):
        bench.measure(16, 1, "forward", "cpu", 1.0)


def test_models_beside_their_softmax_peers(bench, monkeypatch, tmp_path):
    """Both modalities in turn, so that a deadline leaves some of each, and none after it."""
    models, trainings = (importlib.import_module(name) for name in ("bench_models", "trainings"))
    seconds = {"BERT": 2.0, "ViT": 4.0}
    for attribute, function in {
        "make_model": lambda name, layers, size: torch.nn.Linear(1, 1),
        "make_step": lambda *_: lambda: None,
        "interleaved": lambda steps, *_: {name: [seconds.get(name, 3.0)] for name in steps},
        "gpu": lambda *_: GPU,
    }.items():
        monkeypatch.setattr(models, attribute, function)
    monkeypatch.setattr(torch.nn.Linear, "config", type("Config", (), {"num_hidden_layers": 12}), raising=False)
    monkeypatch.setattr(torch.nn.Linear, "num_parameters", lambda self: 2, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    monkeypatch.setattr(torch.compiler, "reset", lambda: None)
    options = ["--device", "cuda", "--modes", "train", "--batch_size", "2", "--output_dir", str(tmp_path)]
    options += ["--text_lengths", "128", "--image_sizes", "224", "--document_lengths"]
    models.main([*options, "--minutes", "-1"])
    assert not list(tmp_path.iterdir())
    models.main(options)
    rows = importlib.import_module("measure").read_rows(tmp_path / "models_gpu.csv")
    ratios = {(row["model"], row["size"]): row["ratio"] for row in rows}
    assert all(row["capability"].endswith(", a GPU") for row in rows)
    assert trainings.Experiment({}, {}, 1).settings().endswith("gpu=a_GPU")
    expected = {("BERT", 128): 1, ("ViT", 224): 1, ("ModernBERT", 128): 1.5, ("ModernBERT-base", 128): 1.5}
    expected[("ModernBERT-base, linear", 128)] = 1.5
    expected |= {("BERT, linear", 128): 1.5, ("ViT, linear", 224): 0.75}
    for mixer in ("LION", "LION-Delta", *MIXERS):
        expected |= {(mixer, 224): 0.75, (mixer, 128): 1.5}
    assert ratios == expected
    assert [row["model"] for row in rows[:4]] == ["BERT", "LION", "ViT", "LION"]
