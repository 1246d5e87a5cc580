# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What benchmarks/tune_triton.py does with the times of a GPU, which are made up here."""

import importlib
import math
import os
import subprocess
import sys
import time
from concurrent.futures import Future
from pathlib import Path

import pytest
import torch
from gpu.worker import CallFailed, TooLong, Worker, Workers

from modeling_lion.triton import config as triton_config


pytest.importorskip("triton", reason="triton is not installed")
CASE = ("sm_90", 16, 64)


class NoWorker:
    """Calls functions in this process."""

    def __call__(self, seconds, function, *arguments):
        return function(*arguments)


class NoWorkers:
    """Calls functions in this process, and ends no other."""

    def __init__(self, count):
        self.count = 1

    def submit(self, seconds, function, *arguments):
        future = Future()
        try:
            future.set_result(function(*arguments))
        except CallFailed as error:
            future.set_exception(error)
        return future

    def end(self):
        pass


@pytest.fixture
def module(monkeypatch, tmp_path):
    """The script, free to configure one case anew."""
    monkeypatch.setitem(triton_config.CONFIGS, CASE, triton_config.CONFIGS[CASE])
    tune = importlib.import_module("tune_triton")
    monkeypatch.setattr(tune, "TIMES", tmp_path / "times.csv")
    monkeypatch.setattr(tune, "GPU", "H100")
    return tune


@pytest.fixture
def tune(module, monkeypatch):
    """What has 8 warps does not compile. Of the rest, more inner parts and a tile of 64 are faster."""
    tune = module
    monkeypatch.setattr(tune, "Worker", NoWorker)
    monkeypatch.setattr(tune, "Workers", NoWorkers)
    monkeypatch.setattr(tune, "append_rows", lambda *_: None)  # of many candidates, which takes time
    monkeypatch.setattr(tune, "largest_difference", lambda *_: 0.5)
    monkeypatch.setattr(tune, "fits", lambda *case: len(case) == 6 or case[4]["num_warps"] < 8)
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


def test_a_deadline_leaves_what_is_configured(tune, monkeypatch):
    before = triton_config.CONFIGS[CASE]
    tune.tune(CASE, time.monotonic() - 1)
    assert triton_config.CONFIGS[CASE] == before and not tune.timed
    monkeypatch.setitem(triton_config.PARALLEL_UP_TO, "sm_90", 768)
    assert tune.longest_parallel("sm_90", time.monotonic() - 1) == 768


def test_the_full_form_is_taken_as_long_as_it_is_faster(tune, monkeypatch):
    times = {"parallel": lambda length: length**2 / 700, "chunk": lambda length: length}
    monkeypatch.setattr(tune, "run_passes", lambda form, inputs: times[form](inputs[0].shape[2]))
    assert tune.longest_parallel("sm_90", time.monotonic() + 60) == 512


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


def test_a_kernel_is_timed_without_the_others(module, monkeypatch):
    """What was not compiled before would cost the time of the GPU."""
    started = []
    monkeypatch.setattr(
        module.launch_options, "launch", lambda kernel, *_, **options: started.append(kernel.fn.__name__)
    )
    monkeypatch.setattr(module, "seconds", lambda function: function() or 1)
    module.kernel_seconds("output", "chunk", "S", 600, 64, torch.bfloat16)
    assert set(started) == {"output_kernel"}


@pytest.mark.slow
def test_a_rehearsal_compiles_and_measures_each_kernel(tmp_path):
    """In processes of their own, what is configured; a second one measures nothing."""
    file, times = tmp_path / "config.py", tmp_path / "times.csv"
    text = Path(triton_config.__file__).read_text()
    file.write_text(text)
    command = [sys.executable, "benchmarks/tune_triton.py", "--rehearse", "--file", file, "--times", times]
    command += ["--dims", "64", "--dtypes", "bfloat16", "--seconds", "300"]
    for _ in range(2):
        environment = os.environ | {"TRITON_INTERPRET": "0", "CUDA_VISIBLE_DEVICES": ""}
        subprocess.run(command, cwd=Path(__file__).parents[2], env=environment, check=True, capture_output=True)
        rows = importlib.import_module("measure").read_rows(times)
        assert [row["kernel"] for row in rows] == [*importlib.import_module("tune_triton").KERNELS]
        assert all(row["microseconds"] and not row["note"] for row in rows)
    written = {}
    exec(file.read_text(), written)
    assert written["CONFIGS"] == triton_config.read_table(triton_config.TABLE)
    assert written["MEASURED"] == {CASE: "rehearsal"}


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


def test_a_kernel_that_fails_is_left_out(module, monkeypatch, capsys):
    def kernel_seconds(kernel):
        raise module.TritonError("out of resource\nmore")

    class Ended(NoWorker):
        def __call__(self, *_):
            raise CallFailed("the process has ended")

    monkeypatch.setattr(module, "Worker", NoWorker)
    measured = module.Measurer()
    assert measured(CASE, kernel_seconds, "output") == math.inf and measured.reason == "out of resource"
    assert "left out: {'output':" in capsys.readouterr().out
    monkeypatch.setattr(module, "Worker", Ended)
    measured = module.Measurer()
    assert measured(CASE, kernel_seconds, "output") == math.inf and measured.reason == "the process has ended"


def test_a_call_that_hangs_or_ends_its_process_leaves_the_others():
    worker = Worker()
    first = worker(30, os.getpid)
    assert first == worker(30, os.getpid) != os.getpid()
    start = time.monotonic()
    with pytest.raises(TooLong, match="no answer after 1 s"):
        worker(1, time.sleep, 100)
    assert time.monotonic() - start < 20
    second = worker(30, os.getpid)
    with pytest.raises(CallFailed, match="the process has ended"):
        worker(30, os.abort)
    with pytest.raises(CallFailed, match="ZeroDivisionError: .*by zero"):
        worker(30, divmod, 1, 0)
    assert worker(30, math.sqrt, 4) == 2 and len({first, second, worker(30, os.getpid)}) == 3
    worker.end()
    workers = Workers(1)
    futures = [workers.submit(30, *call) for call in ((math.sqrt, 9), (os.abort,), (math.sqrt, 16), (time.sleep, 100))]
    assert isinstance(futures[1].exception(), CallFailed) and [futures[i].result() for i in (0, 2)] == [3, 4]
    workers.end()  # of the call that waits, too
    assert isinstance(futures[3].exception(20), CallFailed)


@pytest.fixture
def few(tune, monkeypatch):
    """What is configured, and two candidates of LIT's output, in this order; the times are kept."""
    configured = tune.cases_of(CASE)[: len(tune.KERNELS)]
    group, tile, kernel, option = next(case for case in configured if case[2] == "lit_output")
    more = [(group, tile, kernel, option | {"value_tile": size, "num_warps": 2}) for size in (32, 16)]
    monkeypatch.setattr(tune, "promising", lambda key: [(math.nan, *case) for case in [*configured, *more]])
    monkeypatch.setattr(tune, "fits", lambda *case: True)
    monkeypatch.setattr(tune, "append_rows", importlib.import_module("measure").append_rows)
    monkeypatch.setattr(
        tune, "kernel_seconds", lambda kernel, *_: float(triton_config.CONFIGS[CASE][kernel].get("value_tile", 64))
    )
    return tune


def test_a_compiler_that_ends_its_process_costs_one_candidate(few, monkeypatch):
    def fits(key, group, tile, kernel, option, *dtype):
        if kernel == "lit_output" and option["value_tile"] == 16:
            raise CallFailed("the process has ended")
        return True

    monkeypatch.setattr(few, "fits", fits)
    few.tune(CASE, time.monotonic() + 60)
    assert triton_config.CONFIGS[CASE]["lit_output"]["value_tile"] == 32
    assert [row["note"] for row in few.read_rows(few.TIMES) if row["note"]] == ["the process has ended"]


def test_what_was_measured_is_not_measured_again(few, monkeypatch):
    few.tune(CASE, time.monotonic() + 60)
    best = triton_config.CONFIGS[CASE]
    assert best["lit_output"]["value_tile"] == 16 and not few.is_missing(CASE)
    size = few.TIMES.stat().st_size
    monkeypatch.setitem(triton_config.CONFIGS, CASE, triton_config.read_table(triton_config.TABLE)[CASE])
    with monkeypatch.context() as patch:
        patch.setattr(few, "kernel_seconds", None)
        few.tune(CASE, time.monotonic() + 60)
        assert triton_config.CONFIGS[CASE] == best and few.TIMES.stat().st_size == size
    others = {"GPU": "A100", "digest_of": lambda *_, **options: "of other kernels", "FIRST_ROW": len(few.KERNELS) + 2}
    for name, value in others.items():
        with monkeypatch.context() as patch:
            patch.setattr(few, name, value)
            assert few.is_missing(CASE) and not few.known_times(CASE)


def test_an_error_while_measuring_keeps_what_was_measured(few, monkeypatch):
    def kernel_seconds(kernel, *_):
        size = triton_config.CONFIGS[CASE][kernel].get("value_tile", 64)
        if size == 16:
            raise KeyboardInterrupt
        return float(size)

    monkeypatch.setattr(few, "kernel_seconds", kernel_seconds)
    with pytest.raises(KeyboardInterrupt):
        few.tune(CASE, time.monotonic() + 60)
    assert triton_config.CONFIGS[CASE]["lit_output"]["value_tile"] == 32
    assert len(few.known_times(CASE)) == len(few.KERNELS) + 1 and few.is_missing(CASE)


@pytest.mark.parametrize("bad", ["results", "float16", "time"])
def test_the_fastest_is_taken_only_if_it_is_right(few, monkeypatch, capsys, bad):
    """Of results that differ, or are not there, the next candidate is taken; without time to compare, none."""
    is_bad = lambda: triton_config.CONFIGS[CASE]["lit_output"]["value_tile"] == 16
    if bad == "results":
        monkeypatch.setattr(few, "largest_difference", lambda *_: 7.0 if is_bad() else 0.5)
    elif bad == "float16":
        monkeypatch.setattr(few, "fits", lambda *case: len(case) == 5 or case[4].get("value_tile") != 16)
    else:
        monkeypatch.setattr(few, "CHECKED_WITHIN", -100)
    before = triton_config.CONFIGS[CASE]
    few.tune(CASE, time.monotonic() + 60)
    out = capsys.readouterr().out
    if bad == "time":
        assert triton_config.CONFIGS[CASE] == before | {"chunk": 512} and "not taken: no time to check it" in out
        label = few.label(64, "lit_output", before["lit_output"] | {"value_tile": 16, "num_warps": 2})
        assert few.known_times(CASE)[label] == 16  # for the next call
        return
    why = {"results": "other results than the configured tiles, by 7.0 times", "float16": "in float16: faults"}[bad]
    assert f"not taken: {why}" in out and triton_config.CONFIGS[CASE]["lit_output"]["value_tile"] == 32
    few.tune(CASE, time.monotonic() + 60)
    assert triton_config.CONFIGS[CASE]["lit_output"]["value_tile"] == 32


def test_one_wrong_kernel_of_a_new_tile_is_found(few, monkeypatch):
    """All kernels of a tile are compared at once, and each alone only if they differ."""
    tiles = {kernel: triton_config.CONFIGS[CASE][kernel] for kernel in few.GRIDS["lit_tile"]}
    cases = [("lit_tile", 32, kernel, option) for kernel, option in tiles.items()]
    cases += [("lit_tile", 32, "lit_gradient", tiles["lit_gradient"] | {"num_warps": 2})]
    configured = few.promising(CASE)[: len(few.KERNELS)]
    monkeypatch.setattr(few, "promising", lambda key: [*configured, *((math.nan, *case) for case in cases)])
    monkeypatch.setattr(
        few,
        "kernel_seconds",
        lambda kernel, *_: triton_config.CONFIGS[CASE]["lit_tile"] + triton_config.CONFIGS[CASE][kernel]["num_warps"],
    )
    compared = []

    def largest_difference(*_):
        config = triton_config.CONFIGS[CASE]
        compared.append(config["lit_gradient"]["num_warps"])
        return 2.0 if config["lit_tile"] == 32 and compared[-1] == 2 else 0.1

    monkeypatch.setattr(few, "largest_difference", largest_difference)
    few.tune(CASE, time.monotonic() + 60)
    assert triton_config.CONFIGS[CASE]["lit_tile"] == 32
    assert triton_config.CONFIGS[CASE]["lit_gradient"] == tiles["lit_gradient"]
    assert compared == [2, 4, 4, 2, 4]  # together, one by one, and together without the wrong one


@pytest.mark.parametrize(("factor", "is_right"), [(1.0, True), (1.02, True), (1.2, False), (math.nan, False)])
def test_results_are_compared_for_each_head(module, monkeypatch, factor, is_right):
    """One head of small numbers is wrong, in one gradient."""
    reference = triton_config.CONFIGS[CASE]
    right = [torch.rand(2, 3, 5, 4), torch.rand(2, 3, 5), torch.empty(0)]
    right[1][1, 2] *= 1e-3

    def run_passes(form, inputs):
        results = [x.clone() for x in right]
        results[1][1, 2] *= 1.0 if triton_config.CONFIGS[CASE] is reference else factor
        return results

    monkeypatch.setattr(module, "run_passes", run_passes)
    monkeypatch.setattr(module, "cached_inputs", lambda *_: [torch.empty(0, dtype=torch.bfloat16)])
    monkeypatch.setitem(triton_config.CONFIGS, CASE, dict(reference))
    assert (module.largest_difference("chunk", CASE, reference) <= 1) == is_right
    assert triton_config.CONFIGS[CASE] is not reference


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
