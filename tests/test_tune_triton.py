# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What benchmarks/tune_triton.py does with the times of a GPU, which are made up here."""

import importlib
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from modeling_lion import triton_config


pytest.importorskip("triton", reason="triton is not installed")
CASE = ("sm_90", 16, 64)


@pytest.fixture
def module(monkeypatch):
    """The script, free to configure one case anew."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    monkeypatch.setitem(triton_config.CONFIGS, CASE, dict(triton_config.CONFIGS[CASE]))
    return importlib.import_module("tune_triton")


@pytest.fixture
def tune(module, monkeypatch):
    """Every option compiles; more warps and 64 keys or queries at a time are faster, and so is a tile of 64."""
    tune = module
    monkeypatch.setattr(tune, "ProcessPoolExecutor", lambda mp_context: ThreadPoolExecutor(1))
    monkeypatch.setattr(tune, "best_few", lambda *case: tune.candidates(case[-1], case[2])[:6])
    monkeypatch.setattr(tune, "make_inputs", lambda mixer, length, *_: [torch.empty(1, 1, length, 1)])
    monkeypatch.setattr(tune, "measured", [], raising=False)

    def kernel_seconds(kernel, inputs, chunk_size):
        config = triton_config.CONFIGS[CASE]
        tune.measured.append((kernel, config["tile"], config["lit_tile"]))
        option = config[kernel]
        pieces = option.get("keys", option.get("queries", 64))
        tile = config["lit_tile" if kernel.startswith("lit") else "tile"]
        return 1 / option["num_warps"] + 1 / pieces + abs(tile - 64)

    monkeypatch.setattr(tune, "kernel_seconds", kernel_seconds)
    monkeypatch.setattr(tune, "seconds", lambda function: function())
    monkeypatch.setattr(tune, "both_passes", lambda inputs, chunk: abs(chunk - 512))
    return tune


def test_the_fastest_is_configured(tune):
    config = tune.measure(*CASE, time.monotonic() + 60)
    assert config is triton_config.CONFIGS[CASE]
    assert (config["tile"], config["lit_tile"], config["chunk"]) == (64, 64, 512)
    assert config["output"] == {"keys": 64, "value_block": 64, "num_warps": 8, "num_stages": 2}
    assert config["key_gradient"] == {"queries": 64, "num_warps": 8, "num_stages": 2}
    assert {tile for _, tile, _ in tune.measured} == {128, 64, 32}


def test_what_is_configured_is_measured_first_and_can_stay(tune, monkeypatch):
    before = dict(triton_config.CONFIGS[CASE])
    monkeypatch.setattr(tune, "both_passes", lambda inputs, chunk: abs(chunk - before["chunk"]))
    monkeypatch.setattr(
        tune,
        "kernel_seconds",
        lambda kernel, *_: (
            float(triton_config.CONFIGS[CASE] | {kernel: 0} != before | {kernel: 0})
            + (triton_config.CONFIGS[CASE][kernel] != before[kernel])
        ),
    )
    assert tune.measure(*CASE, time.monotonic() + 60) == before


def test_ranking(module, monkeypatch):
    """The fewest clocks first, with the largest inner part that fits; then those of one stage, then of three."""
    config = lambda: triton_config.CONFIGS[CASE]

    def clocks(kernel, *_):
        option = config()[kernel]
        return float("inf") if option["num_stages"] == 2 and option["num_warps"] == 8 else 100 - option["keys"]

    monkeypatch.setattr(module, "clocks_per_token", clocks)
    monkeypatch.setattr(module, "compiles", lambda kernel, *_: config()[kernel]["inner"] <= 32)
    options = [option for _, option in module.ranked(*CASE, 32, "query_gradient")]
    assert all(option["inner"] == 32 for option in options)
    found = [(option["keys"], option["num_warps"], option["num_stages"]) for option in options]
    one = [(32, 4), (32, 8), (16, 4), (16, 8)]
    assert found == [(32, 4, 2), (16, 4, 2), *((*x, 1) for x in one), *((*x, 3) for x in one)]


def test_a_deadline_leaves_what_is_configured(tune):
    before = dict(triton_config.CONFIGS[CASE])
    assert tune.measure(*CASE, time.monotonic() - 1) == before and not tune.measured
    assert tune.longest_parallel(time.monotonic() - 1, 768) == 768


def test_what_was_found_is_written(module, tmp_path, monkeypatch):
    file = tmp_path / "triton_config.py"
    file.write_text(Path(triton_config.__file__).read_text())
    monkeypatch.setattr(module, "FILE", file)
    measured = {CASE: "NVIDIA H200"}
    module.write(triton_config.CONFIGS, measured, {"sm_80": 512, "sm_90": 1024})
    written = {}
    exec(file.read_text(), written)
    assert written["CONFIGS"] == triton_config.CONFIGS and written["MEASURED"] == measured
    assert written["PARALLEL_UP_TO"] == {"sm_80": 512, "sm_90": 1024}
