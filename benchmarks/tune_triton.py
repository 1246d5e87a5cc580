# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
On a GPU, measure which tile sizes, warps and stages of the Triton kernels are the fastest, and write them to
modeling_lion/triton/config.py, for this GPU's architecture. Or compile kernels for GPUs that need not be there.

    python benchmarks/tune_triton.py                         # every head dimension, 16 and 32 bits
    python benchmarks/tune_triton.py --dims 64 --dtypes bfloat16 --seconds 180
    python benchmarks/tune_triton.py --predict --dims 64 --dtypes bfloat16    # an hour on one core
    python benchmarks/tune_triton.py --compile               # every configuration: 10 minutes on 2 cores
    python benchmarks/tune_triton.py --rehearse --file my_config.py    # few candidates, and invented times
    python benchmarks/tune_triton.py --compile --dims 64 --dtypes bfloat16 float16 --architectures sm_90

`--predict` compiles the candidates of `GRIDS`, leaves out those that spill registers or need too much shared memory,
and writes the most promising of each kernel to gpu/candidates.csv, with times that follow from their machine code
(gpu/machine_code.py). They are measured on a GPU in that order, beside what is configured, while all processors
compile; without them, every candidate is. One that hangs, ends its process or has other results than the configured
tiles is left out. Then, on whole forward and backward passes, the chunk size, and up to which length the full form is
faster. Each time is in the table `--times` at once, and another run with the same kernels and GPU goes on from there.
What was found is written after every head dimension, also by a run that ends early. Afterwards, `--compile` checks
every form and dtype.

What is compiled are the launches of real calls: forward and backward run on tensors without memory, and every kernel
that they would start is compiled with the same types, sizes and alignments. `--compile` lists registers, stack and
shared memory, and fails if a kernel does not compile, spills registers to memory (the stack), or needs more shared
memory than a GPU of its kind has.
"""

import argparse
import ast
import csv
import itertools
import math
import multiprocessing
import random
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, wait
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

import torch
import triton
from gpu.machine_code import SHARED_MEMORY, compile_launch, faults, predict
from gpu.sources import digest_of
from gpu.worker import CallFailed, Worker, Workers
from measure import REHEARSAL, append_rows, attention_inputs, gpu_seconds, read_rows
from reports.cells import print_table
from triton.errors import TritonError

from modeling_lion.triton import config as triton_config
from modeling_lion.triton import launch as triton_launch
from modeling_lion.triton import launch_options


FILE = Path(triton_config.__file__)
# What --predict found: the most promising candidates of each kernel.
CANDIDATES = Path(__file__).parent / "gpu" / "candidates.csv"
KEPT, KEPT_OF_TILE = 40, 8  # of each kernel, and at least of each tile
# Seconds to compile and to measure one, as a rule; and those after which one is left out.
COMPILED, MEASURED = 4.0, 0.06
COMPILES_WITHIN, MEASURES_WITHIN = 90.0, 40.0
PASSES_WITHIN = 180.0  # whole passes, of which some kernels are compiled there
# Seconds after the deadline in which the fastest are still checked.
CHECKED_WITHIN = 20.0
# By how much results may differ from those of the configured tiles: a part of the largest number of each head.
ALLOWED = {torch.bfloat16: 0.06, torch.float16: 0.008, torch.float32: 1e-4}
# The measured times, and what they are of.
TIMES, FIRST_ROW = Path("outputs") / "tuning.csv", 0
GPU = ""
REHEARSES = False
UNCHECKED = "no time to check it"
BATCH, HEADS, LENGTH = 8, 12, 4096
# Tokens for kernels of short sequences, which are one chunk.
SHORT = 512
DTYPES = {name: getattr(torch, name) for name in ("bfloat16", "float16", "float32")}
# The most frequent first: a run of the tuning may have to stop early.
DIMS = (64, 128, 32, 256)
# Form and mixer. The last one is the feature map, which all mixers share.
CASES = [("chunk", "LIT"), ("chunk", "D"), ("chunk", "S"), ("parallel", "D"), ("parallel", "S")]
CASES += [("feature_map", "LIT")]
# For scans and segments, which divide by themselves.
CASES += [("chunk later", "LIT"), ("chunk later", "S"), ("parallel later", "S")]
# The type in which numbers of so many bits are measured.
MEASURED_DTYPES = {16: torch.bfloat16, 32: torch.float32}
# Form and mixer in which kernels are measured, by the name of the tile that they share in the configurations.
GROUPS = {"tile": ("chunk", "S"), "chunk": ("chunk", "S"), "lit_tile": ("chunk", "LIT")}
# What is tried of each kernel of a group, all combinations that are not larger than tile and head dimension.
SLICES, INNER = (64, 32, 16), (64, 32)
LAUNCH = {"num_warps": (4, 8), "num_stages": (2, 3, 1)}
WALK = {"block": (1024, 2048, 512, 4096, 256), "num_warps": (4, 8, 2), "num_stages": (3, 4, 2, 1)}
STATES = {"head_tile": (64, 32), "value_tile": (64, 32), "num_warps": (4, 8), "num_stages": (3, 2, 1)}
GRIDS = {
    "tile": {
        "output": {"keys": SLICES, "value_tile": (256, 128, 64, 32), **LAUNCH, "inner": (*INNER, 0)},
        "whole_output": {"keys": SLICES, **LAUNCH},
        "states": STATES,
        "query_gradient": {"keys": SLICES, **LAUNCH, "inner": INNER},
        "key_gradient": {"queries": SLICES, **LAUNCH, "inner": INNER},
    },
    "chunk": {"walk": WALK},
    "lit_tile": {
        "lit_states": STATES,
        "lit_output": {"value_tile": (256, 128, 64, 32), **LAUNCH},
        "lit_gradient": {"head_tile": (128, 64, 32), "value_tile": (128, 64, 32), **LAUNCH},
    },
}
# Names of the kernels in the code, by those in the configurations.
KERNELS = {name: f"{name}_kernel" for grids in GRIDS.values() for name in grids}
KERNELS |= {"walk": "pass_chunks_kernel", "states": "chunk_states_kernel", "lit_states": "partial_states_kernel"}
KERNELS["whole_output"] = "output_kernel"


@contextmanager
def launching(launch: Callable) -> Iterator[None]:
    """Meanwhile, `launch(kernel, programs, *args, **options)` takes the place of the launches."""
    before, triton_launch.launch = triton_launch.launch, launch
    try:
        yield
    finally:
        triton_launch.launch = before


def make_inputs(mixer: str, length: int, dim: int, dtype: torch.dtype, device: str = "meta") -> list:
    """Query, key, value and the log decays of both directions, in the layout that the model has them."""
    query, key, value, *log_decay = attention_inputs(f"LION-{mixer}", BATCH, length, HEADS, dim, dtype, device)
    return [query, key, value, *2 * (log_decay or [None])]


def run_passes(form: str, inputs: list) -> list[torch.Tensor]:
    """The results of a forward and a backward pass."""
    form, *later = form.split()
    division = "deferred" if later else "sum"
    if form == "feature_map":
        return [triton_launch.launch_silu_norm(inputs[0]), triton_launch.launch_silu_norm(inputs[0], inputs[0])]
    options = {"is_whole": form == "parallel"}
    output, denominator, _, *saved = triton_launch.launch_attention(*inputs, 0, division, "both", **options)
    gradients = triton_launch.launch_attention_gradients(
        inputs[2].to(output.dtype),
        denominator,
        *inputs,
        output,
        denominator,
        saved,
        0,
        division,
        "both",
        inputs[3] is not None,
        **options,
    )
    return [output, *gradients]


def launches_of(form: str, mixer: str, dim: int, dtype: str, architecture: str) -> dict[str, tuple]:
    """`(kernel, programs, args, options)` of every launch in both passes, by the name of the kernel."""
    launches = {}

    def record(kernel, programs, *args, **options):
        suffixes = [f"_{x.lower()}" for x in ("ADJOINT", "BACKWARD") if options.get(x)]
        launches["".join([kernel.fn.__name__, *suffixes])] = kernel, programs, args, options

    before, launch_options.architecture = launch_options.architecture, lambda device: architecture
    try:
        with launching(record):
            # The full form is for short sequences; this length divides nothing.
            run_passes(form, make_inputs(mixer, 509 if form.startswith("parallel") else LENGTH, dim, DTYPES[dtype]))
    finally:
        launch_options.architecture = before
    return launches


def compile_case(form: str, mixer: str, dim: int, dtype: str, architecture: str) -> list[dict]:
    """A result per kernel of a form and mixer."""
    about = {"architecture": architecture, "dtype": dtype, "form": form, "mixer": mixer, "dim": dim}
    return [
        about | {"kernel": name} | compile_launch(*launch, architecture)
        for name, launch in launches_of(form, mixer, dim, dtype, architecture).items()
    ]


def print_results(results: list[dict]) -> None:
    """A row per kernel, a column per head dimension: the most of registers, stack and KB of shared memory."""
    rows, dims = {}, sorted({result["dim"] for result in results})
    for result in results:
        cells = rows.setdefault((result["architecture"], result["dtype"], result["kernel"]), {})
        usage = result["registers"], result["stack_bytes"], -(-result["shared_bytes"] // 1024)
        cells[result["dim"]] = [max(pair) for pair in zip(usage, cells.get(result["dim"], usage), strict=True)]
    print("Registers / bytes of stack / KB of shared memory:\n")
    print_table(
        ["GPU", "dtype", "kernel", *(f"heads of {dim}" for dim in dims)],
        [[*key, *(" / ".join(map(str, cells.get(dim, ["-"]))) for dim in dims)] for key, cells in rows.items()],
    )


def tiles(group: str, bits: int, dim: int) -> list[int]:
    """Tokens of a tile: as many as registers can be expected to hold, and less."""
    if group == "chunk":  # of which one size is tried until the rest is known
        return [256]
    largest = min({"tile": 128, "lit_tile": 64}[group], 2**17 // (bits * dim))
    fewest = 16 if group == "tile" else 32
    return [tile for tile in (largest, largest // 2, largest // 4) if tile >= fewest]


def candidates(group: str, kernel: str, dim: int, tile: int) -> list[dict[str, int]]:
    limits = {"keys": tile, "queries": tile, "inner": dim, "head_tile": dim, "value_tile": dim, "block": dim * dim}
    # Each program of columns of the output computes all scores again.
    least = {"value_tile": dim // 2 if dim > 64 else dim} if "output" in kernel else {}
    # What a product sums at a time hardly matters while it fits.
    of_inner = {0, min(dim, max(INNER))}
    grid = GRIDS[group][kernel]
    values = [
        [x for x in some if least.get(name, 0) <= x <= limits.get(name, x) and (name != "inner" or x in of_inner)]
        for name, some in grid.items()
    ]
    return [dict(zip(grid, some, strict=True)) for some in itertools.product(*values)]


def configure(key: tuple, options: dict[str, dict], group: str = "", tile: int = 0) -> None:
    """Set the options of some kernels and, if given, the tile of their group."""
    triton_config.CONFIGS[key] = triton_config.CONFIGS[key] | options | ({group: tile} if tile else {})


def place(group: str, kernel: str) -> tuple[str, str, int]:
    """Form, mixer and number of tokens in which a kernel is measured."""
    return ("parallel", "S", SHORT) if kernel == "whole_output" else (*GROUPS[group], LENGTH)


def fits(key: tuple, group: str, tile: int, kernel: str, option: dict, dtype: str = "") -> bool:
    """
    Whether a candidate compiles without faults; by default in the dtype that is measured. Float16, whose states are
    wider, has to work, but may spill.
    """
    architecture, bits, dim = key
    dtype = dtype or str(MEASURED_DTYPES[bits]).removeprefix("torch.")
    configure(key, {kernel: option}, group, tile)
    for name, launch in launches_of(*place(group, kernel)[:2], dim, dtype, architecture).items():
        if name.startswith(KERNELS[kernel]):
            result = compile_launch(*launch, architecture) | {"architecture": architecture}
            if faults(result | {"stack_bytes": 0} if dtype == "float16" else result):
                return False
    return True


def work_of(kernel: str, is_adjoint: bool, config: dict, tile: int, option: dict, bits: int, dim: int) -> dict:
    """Count the work of a launch of a kernel, as `predict` takes it, with the tensors that are measured."""
    is_whole = kernel == "whole_output"
    length, size = SHORT if is_whole else LENGTH, bits // 8
    chunk = length if is_whole else config["chunk"]
    state = dim * dim * size * 2 / chunk  # bytes of both states, for each token
    of_pairs = chunk / tile * 2 * dim * size  # bytes that tiles of a chunk read of each other
    value_tiles = -(-dim // option.get("value_tile", dim))
    head_tiles = -(-dim // option.get("head_tile", dim))
    rows = dim * size
    products, tensors, cache = {
        "output": (2 * chunk * dim * (1 + value_tiles) + 4 * dim * dim, 4, of_pairs * value_tiles),
        "whole_output": (4 * chunk * dim, 4, of_pairs),
        "states": (4 * dim * dim, 2, (value_tiles + head_tiles) * rows),
        "walk": (0, 0, 0),
        "query_gradient": (4 * chunk * dim + 2 * tile * dim + 4 * dim * dim, 7, of_pairs),
        "key_gradient": (8 * chunk * dim + 8 * dim * dim, 6, of_pairs),
        "lit_states": (2 * dim * dim, 3 if is_adjoint else 2, (value_tiles + head_tiles) * rows),
        "lit_output": (2 * dim * dim, 2, value_tiles * rows),
        "lit_gradient": (6 * dim * dim, 7, 3 * max(value_tiles, head_tiles) * rows),
    }[kernel]
    memory = tensors * rows + 24
    if kernel == "walk":
        memory = state * (3 if is_adjoint else 2)
    elif not is_whole and not kernel.startswith("lit"):
        memory += state
    tokens = BATCH * HEADS * length
    work = {"products": products * tokens, "memory": memory * tokens, "cache": (memory + cache) * tokens}
    return work | ({"trips": length / chunk} if kernel == "walk" else {})


def predicted(key: tuple, group: str, tile: int, kernel: str, option: dict) -> dict | None:
    """A row of CANDIDATES, for all launches of the kernel; `None` if it does not compile without faults."""
    architecture, bits, dim = key
    configure(key, {kernel: option}, group, tile)
    dtype = str(MEASURED_DTYPES[bits]).removeprefix("torch.")
    found = {"architecture": architecture, "bits": bits, "dim": dim, "kernel": kernel, "tile": tile}
    found |= {"options": text_of(option), "microseconds": 0.0}
    for name, launch in launches_of(*place(group, kernel)[:2], dim, dtype, architecture).items():
        if name.startswith(KERNELS[kernel]):
            result = compile_launch(*launch, architecture) | {"architecture": architecture}
            if faults(result):
                return None
            work = work_of(kernel, name.endswith("adjoint"), triton_config.CONFIGS[key], tile, option, bits, dim)
            times = predict(result, launch[1], option["num_warps"], work, architecture)
            times["microseconds"] += found["microseconds"]
            found |= {"registers": result["registers"], "shared_bytes": result["shared_bytes"]} | times
    return found | {"triton": triton.__version__}


def cases_of(key: tuple) -> list[tuple]:
    """All `(group, tile, kernel, option)`, what is configured first, the rest shuffled."""
    _, bits, dim = key
    config = triton_config.CONFIGS[key]
    first = [(group, config[group], kernel, config[kernel]) for group, grids in GRIDS.items() for kernel in grids]
    more = [
        (group, tile, kernel, option)
        for group, grids in GRIDS.items()
        for tile in tiles(group, bits, dim)
        for kernel in grids
        for option in candidates(group, kernel, dim, tile)
    ]
    random.Random(0).shuffle(more)  # so that a deadline leaves some for each kernel
    return first + [case for case in more if case not in first]


def best_candidates(rows: list[dict]) -> list[dict]:
    """KEPT of each kernel, and KEPT_OF_TILE of each tile at least, the fastest first."""
    rows = sorted(rows, key=lambda row: row["microseconds"])
    kept, of_kernel, of_tile = [], Counter(), Counter()
    for row in rows:
        kernel = tuple(row[name] for name in ("architecture", "bits", "dim", "kernel"))
        of_kernel[kernel] += 1
        of_tile[kernel, row["tile"]] += 1
        if of_kernel[kernel] <= KEPT or of_tile[kernel, row["tile"]] <= KEPT_OF_TILE:
            kept.append(row)
    return kept


def key_of(row: dict) -> tuple:
    return row["architecture"], row["bits"], row["dim"]


def text_of(option: dict) -> str:
    return " ".join(f"{name}={x}" for name, x in option.items())


def case_of(row: dict) -> tuple:
    """`(group, tile, kernel, option)` of a row of CANDIDATES or of TIMES."""
    option = {name: int(x) for name, x in (pair.split("=") for pair in row["options"].split())}
    group = next((group for group, kernels in GRIDS.items() if row["kernel"] in kernels), "")
    return group, row["tile"], row["kernel"], option


def predict_all(keys: list[tuple], deadline: float, processes: int) -> None:
    """Add to CANDIDATES what it does not have of some keys; a run that the deadline ends keeps what it found."""
    rows = read_rows(CANDIDATES)
    known = {key: [case_of(row) for row in rows if key_of(row) == key] for key in keys}
    cases = [(key, *case) for key in keys for case in cases_of(key) if case not in known[key]]
    workers = Workers(processes)
    futures = [workers.submit(COMPILES_WITHIN, predicted, *case) for case in cases]
    done, late = wait(futures, timeout=max(0.0, deadline - time.monotonic()))
    workers.end()
    new = [None if future.exception() else future.result() for future in done]
    print(f"{len(cases)} candidates to compile, {len(late)} without time, {new.count(None)} with faults")
    rows = best_candidates(rows + [row for row in new if row is not None])
    rows.sort(key=lambda row: [row[name] for name in ("architecture", "bits", "dim", "kernel", "microseconds")])
    with CANDIDATES.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: f"{x:.4g}" if isinstance(x, float) else x for name, x in row.items()} for row in rows)


def promising(key: tuple) -> list[tuple]:
    """
    `(predicted microseconds, group, tile, kernel, option)`: what is configured, then by turns the most promising of
    each kernel, then those of which nothing was predicted.
    """
    whole, rank, turns, predicted_time = cases_of(key), Counter(), [], {}
    for row in sorted(read_rows(CANDIDATES), key=lambda row: row["microseconds"]):
        case = case_of(row)
        if key_of(row) == key and case in whole:
            predicted_time[str(case)] = row["microseconds"]
            turns.append((rank[row["kernel"]], case))
            rank[row["kernel"]] += 1
    first = whole[: sum(map(len, GRIDS.values()))]
    order = first + [case for _, case in sorted(turns, key=lambda turn: turn[0])] + whole
    order = [case for i, case in enumerate(order) if case not in order[:i]]
    return [(predicted_time.get(str(case), math.nan), *case) for case in order]


def seconds(function: Callable[[], object]) -> float:
    """The median time of a call on the GPU: a few replays of a CUDA graph of some calls, 60 ms at most."""
    function()
    calls = max(1, min(20, round(2e-3 / max(1e-5, gpu_seconds(function)))))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            function()
    graph.replay()
    return statistics.median(gpu_seconds(graph.replay) for _ in range(5)) / calls


@cache
def cached_inputs(*arguments) -> list:
    return make_inputs(*arguments)


def kernel_seconds(kernel: str, form: str, *of_inputs) -> float:
    """The time of all launches of one kernel in a forward and a backward pass; others are neither compiled nor run."""
    launches, inputs = [], cached_inputs(*of_inputs)

    def record(function, programs, *args, **options):
        if function.fn.__name__ == KERNELS[kernel]:
            launches.append(partial(launch_options.launch, function, programs, *args, **options))

    with launching(record):
        run_passes(form, inputs)
    return sum(seconds(launch) for launch in launches)


class Measurer:
    """Measures in another process, which a kernel that fails or hangs may end."""

    def __init__(self):
        self.worker, self.reason = Worker(), ""

    def __call__(self, key: tuple, function: Callable, *arguments, within: float = MEASURES_WITHIN) -> float:
        """The result of `function` under the present configuration; infinite if it fails, for a `reason`."""
        self.reason = ""
        call = configured_call, key, triton_config.CONFIGS[key], REHEARSES, function, *arguments
        try:
            found = self.worker(within, *call)
        except CallFailed as error:
            found = str(error)
        if isinstance(found, str):
            self.reason = found
            about = {name: triton_config.CONFIGS[key].get(name) for name in arguments[:1]}
            print(*key, f"left out: {about}, {found}", flush=True)
            return math.inf
        return found


def configured_call(key: tuple, config: dict, rehearses: bool, function: Callable, *arguments) -> float | str:
    """The result of a function; the reason if Triton refuses it, after which its process can go on."""
    if rehearses and not REHEARSES:
        rehearse()
    triton_config.CONFIGS[key] = config
    try:
        return function(*arguments)
    except TritonError as error:
        return str(error).partition("\n")[0]


def largest_difference(form: str, key: tuple, reference: dict, *of_inputs) -> float:
    """The largest difference of results from those of the configuration `reference`, as a part of what is ALLOWED."""
    inputs, config = cached_inputs(*of_inputs), triton_config.CONFIGS[key]
    results = run_passes(form, inputs)
    triton_config.CONFIGS[key] = reference
    largest = 0.0
    for result, right in zip(results, run_passes(form, inputs), strict=True):
        if result.numel() and not result.is_meta:  # as tensors of a rehearsal are
            result, right = (x.double().flatten(0, 1).flatten(1) for x in (result, right))
            error = (result - right).abs().amax(1) / right.abs().amax(1).clamp(min=1e-12)
            largest = max(largest, float(error.nan_to_num(math.inf).max()))
    triton_config.CONFIGS[key] = config
    return largest / ALLOWED[inputs[0].dtype]


def pass_seconds(form: str, *of_inputs) -> float:
    """The time of a forward and a backward pass."""
    return seconds(partial(run_passes, form, cached_inputs(*of_inputs)))


def label(tile: int, kernel: str, option: dict) -> tuple:
    return tile, kernel, frozenset(option.items())


def about_times() -> dict[str, str]:
    """Name what measured times are of, beside their tiles: the GPU, and the digest of the kernels and of Triton."""
    return {"gpu": GPU, "sources": digest_of(["modeling_lion/triton"], triton.__version__, without=["config.py"])}


def known_times(key: tuple) -> dict[tuple, float]:
    """Read the times that TIMES has from FIRST_ROW on, by `label`: seconds, infinite for what was left out."""
    about = about_times().items()
    rows = [row for row in read_rows(TIMES)[FIRST_ROW:] if key_of(row) == key and about <= row.items()]
    cases = [case_of(row)[1:] for row in rows]
    times = [math.inf if row["microseconds"] is None else 1e-6 * row["microseconds"] for row in rows]
    return {label(*case): found for case, found in zip(cases, times, strict=True)}


def is_missing(key: tuple) -> bool:
    """Whether a tuning has begun a table of times, and not of all candidates with these kernels on this GPU."""
    known = known_times(key)
    return TIMES.exists() and not all(label(*case[2:]) in known for case in promising(key))


def keep(key: tuple, case: tuple, found: float, note: str = "") -> None:
    """Write a time down, or why there is none."""
    _, tile, kernel, option = case
    row = dict(zip(("architecture", "bits", "dim"), key, strict=True)) | {"kernel": kernel, "tile": tile}
    row |= {"options": text_of(option), "microseconds": 1e6 * found if math.isfinite(found) else None}
    append_rows(TIMES, [row | {"note": note} | about_times()])


def measure_candidates(
    key: tuple, times: dict[tuple, list], deadline: float, measured: Measurer, workers: Workers
) -> None:  # fmt: skip
    """
    Add `(seconds, option)` by group, tile and kernel, what is configured first. The workers compile what is to be
    measured; what has faults in this version of Triton is left out, and what TIMES has is not measured again.
    """
    _, bits, dim = key
    before, known = triton_config.CONFIGS[key], known_times(key)
    cases, todo = promising(key), []
    for expected, *case in cases:
        group, tile, kernel, option = case
        found = known.get(label(*case[1:]))
        if found is None:
            todo.append((expected, *case))
        elif math.isfinite(found):
            times[group, tile, kernel].append((found, option))
    compiled = len(todo) + (len(KERNELS) if bits == 16 else 0)  # the fastest in float16, too
    print(
        *key, f"{len(cases)} candidates, {len(cases) - len(todo)} known; {compiled * COMPILED / workers.count:.0f} s "
        f"to compile others with {workers.count} processors, {len(todo) * MEASURED:.0f} s to measure them; "
        f"{deadline - time.monotonic():.0f} s are left", flush=True,
    )  # fmt: skip
    futures = [workers.submit(COMPILES_WITHIN, fits, key, *case[1:]) for case in todo]
    try:
        for (expected, *case), future in zip(todo, futures, strict=True):
            group, tile, kernel, option = case
            done, _ = wait([future], timeout=max(0.0, deadline - time.monotonic()))
            if not done or time.monotonic() > deadline:
                return
            if faulty := future.exception() or not future.result():
                why = "faults of what was compiled" if faulty is True else str(faulty)
                print(*key, kernel, f"tile {tile}", option, f"left out: {why}", flush=True)
                if (option, tile) != (before[kernel], before[group]):
                    keep(key, case, math.inf, why)
                    continue
            form, mixer, length = place(group, kernel)
            triton_config.CONFIGS[key] = before | {kernel: option, group: tile}
            of_inputs = mixer, length, dim, MEASURED_DTYPES[bits], "cuda"
            found = measured(key, kernel_seconds, kernel, form, *of_inputs)
            keep(key, case, found, measured.reason)
            print(
                *key, kernel, f"tile {tile}", option, f"{expected:.0f} us predicted, {found * 1e6:.0f} us", flush=True
            )
            if math.isfinite(found):
                times[group, tile, kernel].append((found, option))
    finally:
        for future in futures:
            future.cancel()
        triton_config.CONFIGS[key] = before


def fastest_tile(group: str, times: dict[tuple, list], configured: dict) -> tuple[int, list[tuple]]:
    """The tile whose kernels are the fastest together, and their `(seconds, option)`; no kernels if none has all."""
    found = [(math.inf, False, 0, [])]
    for tile in {tile for of, tile, _ in times if of == group}:
        fastest = [min(times[group, tile, kernel], key=lambda x: x[0], default=None) for kernel in GRIDS[group]]
        if all(fastest):
            found.append((sum(pair[0] for pair in fastest), tile != configured[group], tile, fastest))
    return min(found, key=lambda x: x[:2])[2:]


def until(deadline: float) -> float:
    """Seconds for whole passes, which may end a little later."""
    return min(PASSES_WITHIN, max(0.0, deadline - time.monotonic()) + CHECKED_WITHIN)


def difference(key: tuple, cases: list[tuple], configured: dict, deadline: float, measured: Measurer) -> float:
    """The `largest_difference` of results with some cases of a group, all at once, from what is configured."""
    _, bits, dim = key
    before, largest = triton_config.CONFIGS[key], 0.0
    for form, mixer, length in dict.fromkeys(place(case[0], case[2]) for case in cases):
        triton_config.CONFIGS[key] = configured
        for group, tile, kernel, option in cases:
            configure(key, {kernel: option}, group, tile)
        of_inputs = mixer, length, dim, MEASURED_DTYPES[bits], "cuda"
        found = measured(key, largest_difference, form, key, configured, *of_inputs, within=until(deadline))
        largest = max(largest, found)
    triton_config.CONFIGS[key] = before
    return largest


def choose(key: tuple, times: dict[tuple, list], deadline: float, measured: Measurer, workers: Workers) -> None:
    """
    Configure the tile of each group whose kernels are the fastest together, with options that work in float16 and have
    the results of what is configured. What cannot be checked before the deadline is not taken.
    """
    configured, in_float16 = triton_config.CONFIGS[key], {}

    def checked(group: str) -> list[tuple]:
        """The fastest cases of a group that have to be checked; their compilation begins."""
        tile, fastest = fastest_tile(group, times, configured)
        cases = [(group, tile, kernel, x[1]) for kernel, x in zip(GRIDS[group], fastest, strict=bool(fastest))]
        cases = [x for x in cases if (tile, x[3]) != (configured[group], configured[x[2]])]
        for case in cases:
            if key[1] == 16 and label(*case[1:]) not in in_float16:
                call = COMPILES_WITHIN, fits, key, *case, "float16"
                in_float16[label(*case[1:])] = workers.submit(*call)
        return cases

    def faults_of(cases: list[tuple]) -> dict[int, str]:
        """Why some of these cases are not taken, by their places."""
        found = {}
        for i, case in enumerate(cases):
            if (future := in_float16.get(label(*case[1:]))) is not None:
                done, _ = wait([future], timeout=max(0.0, deadline - time.monotonic()))
                if done and (faulty := future.exception() or not future.result()):
                    found[i] = f"in float16: {'faults' if faulty is True else faulty}"
        if found or not cases:
            return found
        error = difference(key, cases, configured, deadline, measured) if time.monotonic() < deadline else math.inf
        if error <= 1:
            return {}
        for i, case in enumerate(cases):  # each alone, with the others as they are configured
            if time.monotonic() < deadline:
                error = difference(key, [case], configured, deadline, measured)
            if time.monotonic() > deadline:
                return {i: UNCHECKED}
            if error > 1:
                found[i] = f"other results than the configured tiles, by {error:.1f} times what is allowed"
        return found or dict.fromkeys(range(len(cases)), "other results together than the configured tiles")

    for group in GRIDS:
        checked(group)
    for group, grids in GRIDS.items():
        while found := faults_of(cases := checked(group)):
            for i, why in found.items():
                case = cases[i]
                print(*key, case[2], f"tile {case[1]}", case[3], f"not taken: {why}", flush=True)
                if why != UNCHECKED:
                    times[case[:3]] = [x for x in times[case[:3]] if x[1] != case[3]]
                    keep(key, case, math.inf, why)
            if UNCHECKED in found.values():
                break
        else:
            tile, fastest = fastest_tile(group, times, configured)
            for kernel, (least, option) in zip(grids, fastest, strict=bool(fastest)):
                some = times[group, tile, kernel]
                print(*key, kernel, f"{least * 1e6:.0f} us, the fastest of {len(some)}:", option, flush=True)
                configure(key, {kernel: option}, group, tile)


def tune(key: tuple, deadline: float) -> None:
    """Configure the fastest on this GPU. What the deadline leaves no time for stays as it is configured."""
    _, bits, dim = key
    measured, workers, times = Measurer(), Workers(multiprocessing.cpu_count()), defaultdict(list)
    start = time.monotonic()
    try:
        measure_candidates(key, times, start + 0.8 * max(0.0, deadline - start), measured, workers)
    finally:
        try:
            choose(key, times, deadline + CHECKED_WITHIN, measured, workers)
        finally:
            workers.end()
    of_chunks = {}
    configured = triton_config.CONFIGS[key]
    for chunk in dict.fromkeys((configured["chunk"], 128, 256, 512, 1024)):
        if time.monotonic() < deadline:
            triton_config.CONFIGS[key] = configured | {"chunk": chunk}
            inputs = "chunk", "S", LENGTH, dim, MEASURED_DTYPES[bits], "cuda"
            of_chunks[chunk] = measured(key, pass_seconds, *inputs, within=until(deadline))
    print(*key, "chunks:", {chunk: f"{x * 1e6:.0f} us" for chunk, x in of_chunks.items()}, flush=True)
    best = min(of_chunks, key=of_chunks.get, default=configured["chunk"])  # the configured one if all fail
    triton_config.CONFIGS[key] = configured | {"chunk": best}


def longest_parallel(architecture: str, deadline: float) -> int:
    """Up to which length the full form is faster than chunks, in both passes; as before if time does not suffice."""
    before, longest, measured = triton_config.PARALLEL_UP_TO[architecture], 64, Measurer()
    for length in (128, 256, 384, 512, 768, 1024, 1536, 2048):
        if time.monotonic() > deadline:
            return before
        inputs = "S", length, 64, torch.bfloat16, "cuda"
        key = architecture, 16, 64
        whole, chunks = (
            measured(key, pass_seconds, form, *inputs, within=until(deadline)) for form in ("parallel", "chunk")
        )
        if not math.isfinite(whole + chunks):
            return before
        if whole > chunks:
            break
        longest = length
    return longest


def table() -> str:
    """`triton_config.TABLE` of the configurations as they are now."""
    rows = []
    for key, config in triton_config.CONFIGS.items():
        groups = [
            (config if kernel == "sizes" else config[kernel], names) for kernel, names in triton_config.COLUMNS.items()
        ]
        rows.append([key, *([options[name] for name in names] for options, names in groups)])
    widths = [
        [max(len(str(x)) for x in column) for column in zip(*group, strict=True)] for group in zip(*rows, strict=True)
    ]
    lines = [
        "|".join(
            " ".join(str(x).rjust(n) for x, n in zip(*pair, strict=True)) for pair in zip(row, widths, strict=True)
        )
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def write() -> None:
    """The tables, in the file that holds them; the rest of it stays."""
    values = {name: repr(getattr(triton_config, name)).replace("'", '"') for name in ("MEASURED", "PARALLEL_UP_TO")}
    if len(triton_config.MEASURED) > 1:
        rows = [f"    {key!r}: {gpu!r},".replace("'", '"') for key, gpu in triton_config.MEASURED.items()]
        values["MEASURED"] = "\n".join(["{", *rows, "}"])
    values["TABLE"] = f'"""\\\n{table()}"""'
    text = FILE.read_text()
    lines = text.splitlines()
    for node in reversed(ast.parse(text).body):
        if isinstance(node, ast.Assign) and (name := node.targets[0].id) in values:
            lines[node.lineno - 1 : node.end_lineno] = [f"{name} = {values[name]}"]
    part = FILE.with_suffix(".part")
    part.write_text("\n".join(lines) + "\n")
    part.replace(FILE)  # so that a process that is killed leaves one or the other


def compile_all(architectures: list[str], dtypes: list[str], dims: list[int]) -> int:
    """Print what all kernels need; the exit code."""
    todo = [
        (*case, dim, dtype, architecture)
        for architecture, dtype, dim, case in itertools.product(architectures, dtypes, dims, CASES)
    ]
    with ProcessPoolExecutor() as pool:
        results = [result for case in pool.map(compile_case, *zip(*todo, strict=True)) for result in case]
    print_results(results)
    bad = [result for result in results if faults(result)]
    for result in bad:
        print(", ".join(str(x) for x in list(result.values())[:6]), "; ".join(faults(result)), sep=": ")
    print(f"\n{len(results)} kernels, {len(bad)} with faults.")
    return int(bool(bad))


def rehearse() -> str:
    """
    From now on every time is one second, nothing is launched, and one candidate of each kernel is tried, what is
    configured; the architecture. Compilers and processes are real.
    """
    global REHEARSES, make_inputs, seconds, promising
    REHEARSES = True
    make_inputs = partial(lambda make, *args: make(*args[:4]), make_inputs)
    seconds = lambda function: 1.0
    promising = partial(lambda of, key: of(key)[: len(KERNELS)], promising)
    launch_options.launch = lambda *args, **options: None
    return "sm_90"


def present_gpu() -> tuple[str, str]:
    """Architecture and name of the GPU."""
    if not torch.cuda.is_available():
        raise SystemExit("There is no GPU to measure on.")
    return launch_options.architecture(torch.device("cuda", torch.cuda.current_device())), torch.cuda.get_device_name()


def main() -> None:
    global FILE, TIMES, FIRST_ROW, GPU
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compile", action="store_true", help="measure nothing")
    parser.add_argument("--predict", action="store_true", help="measure nothing; write the most promising candidates")
    parser.add_argument("--processes", type=int, default=1, help="with --predict")
    parser.add_argument("--architectures", nargs="+", default=list(SHARED_MEMORY), choices=[*SHARED_MEMORY, "here"])
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "float32"], choices=list(DTYPES))
    parser.add_argument("--dims", type=int, nargs="+", default=DIMS, choices=DIMS)
    parser.add_argument("--seconds", type=float, default=3600, help="stop measuring after")
    parser.add_argument("--file", type=Path, default=FILE, help="the file with the tables")
    parser.add_argument("--times", type=Path, default=TIMES, help="table of what was measured")
    parser.add_argument("--again", action="store_true", help="tune again what was measured on this GPU")
    parser.add_argument("--rehearse", action="store_true", help="without a GPU, to see that it runs")
    arguments = parser.parse_args()
    FILE, TIMES = arguments.file, arguments.times
    if "here" in arguments.architectures:
        arguments.architectures = [present_gpu()[0]]
    if arguments.compile:
        raise SystemExit(compile_all(arguments.architectures, arguments.dtypes, arguments.dims))
    deadline = time.monotonic() + arguments.seconds
    if arguments.predict:
        bits = [torch.finfo(DTYPES[dtype]).bits for dtype in arguments.dtypes]
        keys = list(itertools.product(arguments.architectures, bits, arguments.dims))
        return predict_all(keys, deadline, arguments.processes)
    architecture, GPU = (rehearse(), REHEARSAL) if arguments.rehearse else present_gpu()
    if arguments.again:
        FIRST_ROW = len(read_rows(TIMES))
    for dtype, dim in itertools.product(arguments.dtypes, arguments.dims):
        key = architecture, torch.finfo(DTYPES[dtype]).bits, dim
        if time.monotonic() < deadline and (
            arguments.again or is_missing(key) or triton_config.MEASURED.get(key) != GPU
        ):
            try:
                tune(key, deadline)
                if not is_missing(key):
                    triton_config.MEASURED[key] = GPU
            finally:
                write()
    triton_config.PARALLEL_UP_TO[architecture] = longest_parallel(architecture, deadline)
    write()


if __name__ == "__main__":
    main()
