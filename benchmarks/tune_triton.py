# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Choose tile sizes, warps and stages of the Triton kernels and write them to modeling_lion/triton_config.py.

    python benchmarks/tune_triton.py                  # on a GPU: measures, for that GPU's architecture; minutes
    python benchmarks/tune_triton.py --estimate       # without one: by machine code alone; half an hour on 2 cores

Options that spill registers or need too much shared memory are out. The rest are ranked by what their machine code
needs at least (machine_code.py); on a GPU the first few of every kernel and tile are timed, then, on whole forward and
backward passes, the chunk size and up to which length the full form is faster. What is found replaces what was there
for the same architecture, number format and head dimension, at once: an interrupted run keeps it.
"""

import argparse
import itertools
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, wait
from functools import partial
from pathlib import Path

import torch
from compile_triton import DTYPES, SHARED_MEMORY, faults, launches_of, machine_code

from modeling_lion import kernel_triton, triton_config, triton_plan


FILE = Path(triton_config.__file__)
KERNELS = {
    "output": "output_kernel",
    "states": "states_kernel",
    "query_gradient": "query_gradient_kernel",
    "key_gradient": "key_gradient_kernel",
    "lit_states": "partial_states_kernel",
    "lit_output": "lit_output_kernel",
    "lit_gradient": "lit_gradient_kernel",
    "rnn": "rnn_kernel",
}
BATCH, HEADS, LENGTH = 8, 12, 4096
# Options of a kernel that are measured.
MEASURED = 5


# Kernels in which a tile meets other tiles, and what goes by in pieces; with a state they also have "inner".
PIECES = {"output": "keys", "query_gradient": "keys", "key_gradient": "queries"}


def candidates(kernel: str, dim: int) -> list[dict[str, int]]:
    """Options of a kernel; in `PIECES` without "inner", and those with less of something behind the others."""
    launch = [{"num_warps": w, "num_stages": s} for s in (2, 1, 3) for w in (4, 8)]
    sizes = [size for size in (256, 128, 64, 32) if size <= max(dim, 32)]
    if kernel in PIECES:
        blocks = [{"value_block": v} for v in sizes[:3]] if kernel == "output" else [{}]
        return [{PIECES[kernel]: n, **block, **o} for block in blocks for o in launch for n in (64, 32, 16)]
    if kernel in ("states", "lit_states"):
        pairs = [(64, 64), (128, 64), (32, 64), (32, 32)]
        stages = [{"num_warps": 4, "num_stages": s} for s in (3, 2, 4, 1)]
        return [{"head_block": h, "value_block": v, **o} for h, v in pairs if h <= max(dim, 32) for o in stages]
    if kernel == "lit_output":
        return [{"value_block": v, **o} for v in sizes for o in launch]
    if kernel == "lit_gradient":
        return [{"head_block": v, "value_block": v, **o} for v in sizes for o in launch]
    return [
        {"value_block": v, "num_warps": w, "num_stages": 1} for v, w in ((32, 1), (16, 1), (64, 2), (16, 2), (32, 4))
    ]


def inners(dim: int) -> list[int]:
    return [size for size in (64, 32, 16) if size <= dim]


# Kernels that share a tile.
GROUPS = {
    "tile": ["output", "states", "query_gradient", "key_gradient"],
    "lit_tile": ["lit_states", "lit_output", "lit_gradient"],
}


def tiles(group: str, dim: int, bits: int) -> list[int]:
    """Tokens of a tile, the largest first: as many as registers can be expected to hold."""
    if group == "lit_tile":
        return [64, 32, 16] if dim * bits <= 128 * 16 else [32, 16]
    return [128, 64, 32] if dim * bits <= 64 * 16 else [64, 32, 16] if dim * bits <= 128 * 16 else [32, 16]


def forms_of(kernel: str) -> list[tuple[str, str]]:
    """`(form, mixer)` in which a kernel is launched."""
    if kernel == "rnn":
        return [("rnn", "S")]
    if kernel.startswith("lit"):
        return [("chunk", "LIT")]
    return [("chunk", "S")] if kernel == "states" else [("chunk", "S"), ("parallel", "S")]


def compiles(kernel: str, dim: int, bits: int, architecture: str) -> bool:
    """Whether a kernel, as configured, compiles within the limits of a GPU, wherever it is launched."""
    dtypes = [DTYPES[bits]]
    if bits == 16 and kernel in GROUPS["lit_tile"]:  # a whole state in shared memory, which is wider for float16
        dtypes.append(torch.float16)
    for dtype, (form, mixer) in itertools.product(dtypes, forms_of(kernel)):
        for function, args, options in launches_of(form, mixer, dim, dtype, architecture):
            if function.fn.__name__ == KERNELS[kernel]:
                code, _ = machine_code(function, args, options, architecture)
                if faults(code.resources | {"architecture": architecture}):
                    return False
    return True


# Tokens of a sequence for which `clocks_per_token` counts.
COUNTED = 512


def clocks_per_token(kernel: str, bits: int, dim: int, architecture: str) -> float:
    """
    Of a kernel as configured, by the machine code of the full form (machine_code.py): its loops are those over the
    tiles on either side and, if the tile goes by in pieces, over the tile itself. Infinite if it breaks a limit.
    """
    tile = triton_config.CONFIGS[architecture, bits, dim]["tile"]
    for function, args, options in launches_of("parallel", "S", dim, DTYPES[bits], architecture):
        if function.fn.__name__ == KERNELS[kernel]:
            code, _ = machine_code(function, args, options, architecture)
            if faults(code.resources | {"architecture": architecture}):
                return float("inf")
            piece = options[PIECES[kernel].upper()]
            side = (COUNTED - tile) / piece / 2
            block = max(options["HEAD_BLOCK"], options["VALUE_BLOCK"])
            return code.clocks([side, side, tile / piece], max(1, block / options["SPLIT"])) / tile
    raise ValueError(f"{kernel} is not launched.")


def ranked(architecture: str, bits: int, dim: int, tile: int, kernel: str) -> Iterator[tuple[float, dict]]:
    """
    The options of a kernel that compile in all forms, the best first: by clocks per token, which come with them, in
    `PIECES`; in the order of the candidates for the others.
    """
    config = {"tile": tile, "chunk": 256, "lit_tile": tile} | {name: candidates(name, dim)[0] for name in KERNELS}
    config |= {name: config[name] | {"inner": inners(dim)[0]} for name in PIECES}
    triton_config.CONFIGS[architecture, bits, dim] = config

    def fits(option: dict) -> bool:
        config[kernel] = option
        return compiles(kernel, dim, bits, architecture)

    if kernel not in PIECES:
        yield from ((0.0, option) for option in candidates(kernel, dim) if fits(option))
        return
    # Smaller blocks of values and other numbers of stages only for want of something that works.
    for _, tier in itertools.groupby(candidates(kernel, dim), lambda x: (x.get("value_block"), x["num_stages"])):
        clocks = []
        for option in tier:
            if option[PIECES[kernel]] <= tile:
                config[kernel] = option | {"inner": inners(dim)[0]}
                clocks.append((clocks_per_token(kernel, bits, dim, architecture), option))
        for least, option in sorted(clocks, key=lambda pair: pair[0]):
            ways = (option | {"inner": size} for size in inners(dim))
            if least < float("inf") and (fitting := next(filter(fits, ways), None)):
                yield least, fitting


def estimate(architecture: str, bits: int, dim: int) -> dict:
    """The best option of every kernel, and the tile with which those need the fewest clocks."""
    config = {"chunk": 256}
    for group, kernels in GROUPS.items():
        least = float("inf")
        for tile in tiles(group, dim, bits):
            found = {kernel: next(ranked(architecture, bits, dim, tile, kernel), None) for kernel in kernels}
            if all(found.values()) and sum(clocks for clocks, _ in found.values()) < least:
                least = sum(clocks for clocks, _ in found.values())
                config |= {group: tile} | {kernel: option for kernel, (_, option) in found.items()}
        if least == float("inf"):
            raise ValueError(f"{group}: no options for {architecture}, {bits} bits and head dimension {dim} compile.")
    _, config["rnn"] = next(ranked(architecture, bits, dim, config["tile"], "rnn"))
    return config


def seconds(function: Callable[[], object], repeats: int = 20) -> float:
    """The median time of a call on the GPU."""
    for _ in range(3):
        function()
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    for start, end in events:
        start.record()
        function()
        end.record()
    torch.cuda.synchronize()
    return sorted(start.elapsed_time(end) for start, end in events)[repeats // 2] / 1e3


def make_inputs(mixer: str, length: int, dim: int, dtype: torch.dtype) -> list:
    make = lambda: torch.rand(BATCH, length, HEADS, dim, device="cuda", dtype=dtype).transpose(1, 2)
    shape = {"LIT": None, "S": (BATCH, HEADS, length)}[mixer]
    return [make(), make(), make(), None if shape is None else -torch.rand(shape, device="cuda"), None]


def both_passes(inputs: list, chunk_size: int) -> None:
    output, _, *kept = kernel_triton.forward(*inputs, chunk_size, True)
    kernel_triton.backward(output, *inputs, output, kept, chunk_size, True, inputs[3] is not None)


def kernel_seconds(kernel: str, inputs: list, chunk_size: int) -> float:
    """The time of all launches of one kernel in a forward and a backward pass."""
    launches = []

    def record(function, programs, *args, **options):
        function[(programs,)](*args, **options)
        if function.fn.__name__ == KERNELS[kernel]:
            launches.append((function, programs, args, options))

    kernel_triton.launch = record
    try:
        if kernel == "rnn":
            kernel_triton.rnn_forward(*inputs, 0, True)
        else:
            both_passes(inputs, chunk_size)
    finally:
        kernel_triton.launch = triton_plan.launch
    return sum(seconds(lambda x=x: x[0][(x[1],)](*x[2], **x[3])) for x in launches)


def best_few(*case) -> list[dict]:
    return [option for _, option in itertools.islice(ranked(*case), MEASURED)]


def options_of(cases: list[tuple], deadline: float) -> dict[tuple, list[dict]]:
    """The first few options of every case, all processors at work; none of those that the deadline cuts off."""
    pool = ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn"))
    found = {case: pool.submit(best_few, *case) for case in cases}
    wait(found.values(), timeout=max(0.0, deadline - time.monotonic()))
    pool.shutdown(wait=False, cancel_futures=True)
    return {
        case: future.result() if future.done() and not future.cancelled() else [] for case, future in found.items()
    }


def measure(architecture: str, bits: int, dim: int, deadline: float) -> dict:
    """
    The fastest options on this GPU: what is configured, and the best of every kernel by their machine code; for every
    tile, and then the fastest tile. What the deadline leaves no time for stays as it is configured.
    """
    before = triton_config.CONFIGS[architecture, bits, dim]
    config = triton_config.CONFIGS[architecture, bits, dim] = dict(before)
    now = time.monotonic()
    inputs = {mixer: make_inputs(mixer, LENGTH, dim, DTYPES[bits]) for mixer in ("LIT", "S")}
    first = lambda name: sorted(tiles(name, dim, bits), key=lambda tile: tile != before[name])
    groups = [(name, tile) for name in GROUPS for tile in first(name)]
    cases = [(architecture, bits, dim, tile, kernel) for name, tile in groups for kernel in GROUPS[name]]
    options = options_of(cases, now + (deadline - now) / 2)

    def fastest(kernel: str, some: list[dict], values: list) -> float:
        """Configure the fastest option; measure at least the first one."""
        times = []
        for option in some:
            config[kernel] = option
            if time.monotonic() < deadline or not times:
                times.append((kernel_seconds(kernel, values, 0), option))
        least, config[kernel] = min(times, key=lambda pair: pair[0])
        print(architecture, bits, dim, kernel, f"{least * 1e6:.0f} us", config[kernel], flush=True)
        return least

    best = {name: float("inf") for name in GROUPS}
    for name, tile in groups:
        few = {kernel: options[architecture, bits, dim, tile, kernel] for kernel in GROUPS[name]}
        if tile == before[name]:
            few = {kernel: [before[kernel], *(x for x in some if x != before[kernel])] for kernel, some in few.items()}
        if all(few.values()) and time.monotonic() < deadline:
            kept = dict(config)
            config |= {name: tile} | {kernel: some[0] for kernel, some in few.items()}
            values = inputs["LIT" if name == "lit_tile" else "S"]
            total = sum(fastest(kernel, some, values) for kernel, some in few.items())
            if total < best[name]:
                best[name] = total
            else:
                config |= {key: kept[key] for key in (name, *few)}
    if time.monotonic() < deadline:
        few = [x for x in candidates("rnn", dim) if x != before["rnn"]]
        fastest("rnn", [before["rnn"], *few], [None if x is None else x[:, :, :256] for x in inputs["S"]])
    if time.monotonic() < deadline:
        chunks = [size for size in (128, 256, 512, 1024) if size >= config["tile"]]
        config["chunk"] = min(chunks, key=lambda chunk: seconds(lambda: both_passes(inputs["S"], chunk)))
    return config


def longest_parallel(deadline: float, before: int, dim: int = 64) -> int:
    """Up to which length the full form is faster than chunks, in both passes; as before if time does not suffice."""
    longest = 64
    for length in (128, 256, 384, 512, 768, 1024, 1536, 2048):
        if time.monotonic() > deadline:
            return before
        inputs = make_inputs("S", length, dim, torch.bfloat16)
        whole, chunks = (seconds(partial(both_passes, inputs, size)) for size in (kernel_triton.WHOLE, 0))
        if whole > chunks:
            break
        longest = length
    return longest


def write(configs: dict, measured: dict, parallel_up_to: dict) -> None:
    """The table, in the file that holds it."""
    text = FILE.read_text()
    head = text[: text.index("MEASURED = ")]
    comment = text[text.index("# By architecture") : text.index("CONFIGS = ")]
    parallel_comment = text[text.index("# Tokens up to") : text.index("PARALLEL_UP_TO = ")]
    rows = "".join(f"    {key}: {name!r},\n" for key, name in sorted(measured.items()))
    lines = [head + f"MEASURED = {{\n{rows}}}\n\n{comment}CONFIGS = {{".replace("'", '"').replace("{\n}", "{}")]
    for (architecture, bits, dim), config in sorted(configs.items()):
        lines.append(f'    ("{architecture}", {bits}, {dim}): {{')
        names = ("tile", "chunk", "lit_tile", *KERNELS)
        lines += [f'        "{name}": {str(config[name])},'.replace("'", '"') for name in names]
        lines.append("    },")
    lines.append("}\n\n" + parallel_comment + f"PARALLEL_UP_TO = {parallel_up_to}".replace("'", '"') + "\n")
    FILE.write_text("\n".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--estimate", action="store_true", help="choose by machine code, without a GPU")
    parser.add_argument("--architectures", nargs="+", default=list(SHARED_MEMORY), choices=list(SHARED_MEMORY))
    parser.add_argument("--bits", type=int, nargs="+", default=[16, 32], choices=[16, 32])
    parser.add_argument("--dims", type=int, nargs="+", default=[64, 128, 32, 256], choices=[32, 64, 128, 256])
    parser.add_argument("--seconds", type=float, default=600, help="stop measuring after")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="for --estimate")
    arguments = parser.parse_args()
    configs, parallel_up_to = dict(triton_config.CONFIGS), dict(triton_config.PARALLEL_UP_TO)
    measured = dict(triton_config.MEASURED)
    if arguments.estimate:
        todo = list(itertools.product(arguments.architectures, arguments.bits, arguments.dims))
        with ProcessPoolExecutor(arguments.processes) as pool:
            for key, config in zip(todo, pool.map(estimate, *zip(*todo, strict=True)), strict=True):
                configs[key] = config
                measured.pop(key, None)
                print(key, config, flush=True)
                write(configs, measured, parallel_up_to)
        return
    if not torch.cuda.is_available():
        raise SystemExit("There is no GPU to measure on; --estimate does without.")
    device = torch.device("cuda", torch.cuda.current_device())
    architecture = triton_plan.architecture(device)
    deadline = time.monotonic() + arguments.seconds
    for bits, dim in itertools.product(arguments.bits, arguments.dims):
        if time.monotonic() < deadline:
            configs[architecture, bits, dim] = measure(architecture, bits, dim, deadline)
            measured[architecture, bits, dim] = torch.cuda.get_device_name()
            write(configs, measured, parallel_up_to)
    parallel_up_to[architecture] = longest_parallel(deadline, parallel_up_to[architecture])
    write(configs, measured, parallel_up_to)


if __name__ == "__main__":
    main()
