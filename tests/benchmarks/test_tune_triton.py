# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What benchmarks/tune_triton.py does with the times of a GPU, which are made up here."""

import importlib
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from modeling_lion.triton import config as triton_config


pytest.importorskip("triton", reason="triton is not installed")
CASE = ("sm_90", 16, 64)


@pytest.fixture
def module(monkeypatch):
    """The script, free to configure one case anew."""
    monkeypatch.setitem(triton_config.CONFIGS, CASE, triton_config.CONFIGS[CASE])
    return importlib.import_module("tune_triton")


@pytest.fixture
def tune(module, monkeypatch):
    """What has 8 warps does not compile. Of the rest, more inner parts and a tile of 64 are faster."""
    tune = module
    monkeypatch.setattr(tune, "ProcessPoolExecutor", lambda *_, **options: ThreadPoolExecutor(1))
    monkeypatch.setattr(tune, "fits", lambda *case, dtype="": bool(dtype) or case[-1]["num_warps"] < 8)
    monkeypatch.setattr(tune, "make_inputs", lambda mixer, length, *_: [torch.empty(1, 1, length, 1)])
    monkeypatch.setattr(tune, "timed", [], raising=False)

    def kernel_seconds(kernel, form, *inputs):
        config = triton_config.CONFIGS[CASE]
        tile = config["lit_tile" if kernel.startswith("lit") else "tile"]
        tune.timed.append((kernel, tile, config[kernel]))
        return abs(tile - 64) + 1 / (1 + config[kernel].get("inner", 64))

    monkeypatch.setattr(tune, "kernel_seconds", kernel_seconds)
    monkeypatch.setattr(tune, "seconds", lambda function: function())
    monkeypatch.setattr(tune, "run_passes", lambda form, inputs: abs(triton_config.CONFIGS[CASE]["chunk"] - 512))
    return tune


def test_the_fastest_that_compiles_is_configured(tune):
    before = triton_config.CONFIGS[CASE]
    tune.tune(CASE, time.monotonic() + 60)
    config = triton_config.CONFIGS[CASE]
    assert (config["tile"], config["lit_tile"], config["chunk"]) == (64, 64, 512)
    for kernel in ("output", "query_gradient", "key_gradient"):
        assert config[kernel]["inner"] == 64 and config[kernel]["num_warps"] == 4
    assert {tile for kernel, tile, _ in tune.timed if kernel == "output"} == {128, 64, 32}
    assert all(option["num_warps"] < 8 or option == before[kernel] for kernel, _, option in tune.timed)
    assert config.keys() == before.keys()


def test_what_is_configured_is_measured_first_and_can_stay(tune, monkeypatch):
    before = triton_config.CONFIGS[CASE]
    first = {}

    def kernel_seconds(kernel, form, *inputs):
        config = triton_config.CONFIGS[CASE]
        first.setdefault(kernel, config)
        same = [config[name] == before[name] for name in (kernel, "tile", "lit_tile")]
        return float(not all(same))

    monkeypatch.setattr(tune, "kernel_seconds", kernel_seconds)
    monkeypatch.setattr(tune, "run_passes", lambda *_: triton_config.CONFIGS[CASE] != before)
    tune.tune(CASE, time.monotonic() + 60)
    assert triton_config.CONFIGS[CASE] == before
    assert all(config[kernel] == before[kernel] for kernel, config in first.items()) and first.keys() == {
        *tune.KERNELS
    }


def test_a_deadline_leaves_what_is_configured(tune):
    before = triton_config.CONFIGS[CASE]
    tune.tune(CASE, time.monotonic() - 1)
    assert triton_config.CONFIGS[CASE] == before and not tune.timed
    assert tune.longest_parallel(768, time.monotonic() - 1) == 768


def test_the_full_form_is_taken_as_long_as_it_is_faster(tune, monkeypatch):
    times = {"parallel": lambda length: length**2 / 700, "chunk": lambda length: length}
    monkeypatch.setattr(tune, "run_passes", lambda form, inputs: times[form](inputs[0].shape[2]))
    assert tune.longest_parallel(64, time.monotonic() + 60) == 512


@pytest.mark.parametrize(("bits", "dim"), [(16, 32), (16, 256), (32, 128)])
def test_candidates_are_not_larger_than_tile_and_head_dimension(module, bits, dim):
    for group, grids in module.GRIDS.items():
        for tile in module.tiles(group, bits, dim):
            for kernel in grids:
                options = module.candidates(group, kernel, dim, tile)
                assert options and all(x.keys() == triton_config.CONFIGS[CASE][kernel].keys() for x in options)
                for name, largest in (("keys", tile), ("queries", tile), ("inner", dim), ("value_tile", dim)):
                    assert max(option.get(name, 0) for option in options) <= largest


def test_all_launches_of_a_kernel_are_timed(module, monkeypatch):
    monkeypatch.setattr(module.launch_options, "launch", lambda *args, **options: None)
    monkeypatch.setattr(module, "seconds", lambda function: 1)
    places = {kernel: module.place(group, kernel)[:2] for group, grids in module.GRIDS.items() for kernel in grids}
    launches = {
        kernel: module.kernel_seconds(kernel, form, mixer, 600, 64, torch.bfloat16)
        for kernel, (form, mixer) in places.items()
    }
    twice = {"states": 2, "walk": 2, "lit_states": 2}  # once a pass
    assert launches == dict.fromkeys(module.KERNELS, 1) | twice


def test_tables_are_written_and_the_rest_of_the_file_stays(module, tmp_path, monkeypatch):
    file, text = tmp_path / "triton_config.py", Path(triton_config.__file__).read_text()
    file.write_text(text)
    monkeypatch.setattr(module, "FILE", file)
    module.write()
    assert file.read_text() == text
    monkeypatch.setitem(triton_config.MEASURED, CASE, "NVIDIA H200")
    monkeypatch.setitem(triton_config.PARALLEL_UP_TO, "sm_90", 1024)
    module.configure(CASE, {"lit_output": {"value_tile": 16, "num_warps": 1, "num_stages": 1}}, "tile", 32)
    module.write()
    written = {}
    exec(file.read_text(), written)
    for name in ("CONFIGS", "MEASURED", "PARALLEL_UP_TO"):
        assert written[name] == getattr(triton_config, name)
    assert written["CONFIGS"][CASE]["tile"] == 32 and written["__doc__"] == triton_config.__doc__


def test_a_kernel_that_ends_its_process_is_left_out(module, monkeypatch, capsys):
    pools = []

    class Pool(ThreadPoolExecutor):
        def __init__(self, *_, **options):
            super().__init__(1)
            pools.append(self)

    def kernel_seconds(kernel):
        if len(pools) == 1:
            raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore")
        return 1.0

    monkeypatch.setattr(module, "ProcessPoolExecutor", Pool)
    measured = module.Measurer()
    assert measured(CASE, kernel_seconds, "output") == float("inf")
    assert "left out: {'output':" in capsys.readouterr().out
    assert measured(CASE, kernel_seconds, "output") == 1.0 and len(pools) == 2


CODE = """
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   HGMMA.64x32x16.F32.BF16 R24, gdesc[UR12].tnspA.tnspB, R24 ;
        /*0020*/                   MUFU.EX2 R3, R3 ;
        /*0030*/              @!P0 BRA `(.L_x_1) ;
        /*0040*/                   HMMA.16816.F32 R8, R4, R6, R8 ;
        /*0050*/                   EXIT ;
"""


def test_a_prediction_follows_from_machine_code(monkeypatch):
    from gpu import machine_code

    counts = machine_code.count_instructions(CODE)
    assert (counts["looped"], counts["straight"], counts["special"]) == (2, 4, 1)
    assert (counts["looped_products"], counts["straight_products"]) == (2 * 64 * 32 * 16 / 4, 4096)
    monkeypatch.setattr(machine_code, "tool", lambda *_: CODE)
    result = {"registers": 128, "shared_bytes": 0, "cubin": b""}
    programs, trips = 132 * 4 * 10, 7
    work = {"products": programs * 4 * (4096 + trips * counts["looped_products"]), "memory": 0, "cache": 0}
    found = machine_code.predict(result, programs, 4, work, "sm_90")
    assert found["instructions"] == 4 + trips * 2 and found["warps"] == 16
    slower = machine_code.predict(result | {"registers": 255}, programs, 4, work, "sm_90")
    assert slower["warps"] == 8 and slower["microseconds"] > found["microseconds"]
    bytes_of_memory = 42e6
    work |= {"memory": bytes_of_memory, "cache": bytes_of_memory}
    assert machine_code.predict(result, programs, 4, work, "sm_90")["memory_us"] == pytest.approx(10)
