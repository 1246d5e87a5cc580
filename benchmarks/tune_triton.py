# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Choose tile sizes, warps and stages of the Triton kernels and write them to modeling_lion/triton_config.py.

    python benchmarks/tune_triton.py                  # on a GPU: measures, for that GPU's architecture; minutes
    python benchmarks/tune_triton.py --estimate       # without one: the first candidate that compiles without spills

Per kernel the candidates are in the order that is likely best. On a GPU those that compile without spills are timed,
one kernel at a time, then the chunk size and up to which length the full form is faster, on whole forward and backward
passes. What is measured replaces what was there for the same architecture, number format and head dimension, at once:
an interrupted run keeps what it has found.
"""

import argparse
import itertools
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import torch
from compile_triton import DTYPES, SHARED_MEMORY, compile_launch, faults, launches_of

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


def candidates(kernel: str, dim: int) -> list[dict[str, int]]:
    """Options of a kernel, the likely best first."""
    launch = [{"num_warps": w, "num_stages": s} for w, s in ((4, 2), (8, 2), (8, 1), (4, 1), (4, 3), (8, 3))]
    halves = [size for size in (256, 128, 64, 32) if size <= max(dim, 32)]
    if kernel == "output":
        return [{"value_block": v, **o} for v in halves[:3] for o in launch]
    if kernel in ("states", "lit_states"):
        sizes = [(64, 64), (128, 64), (32, 64), (32, 32)]
        launch = [{"num_warps": 4, "num_stages": s} for s in (3, 2, 4, 1)]
        return [{"head_block": h, "value_block": v, **o} for h, v in sizes if h <= max(dim, 32) for o in launch]
    if kernel == "query_gradient":
        return launch
    if kernel == "key_gradient":
        sizes = ((32, 0), (64, 1), (32, 1), (16, 1), (32, 2), (16, 2), (64, 0), (16, 0), (64, 3), (32, 3), (16, 5))
        return [{"queries": n, **launch[i]} for n, i in sizes]
    if kernel == "lit_output":
        return [{"value_block": v, **o} for v in halves for o in launch]
    if kernel == "lit_gradient":
        return [{"head_block": v, "value_block": v, **o} for v in halves for o in launch]
    return [
        {"value_block": v, "num_warps": w, "num_stages": 1} for v, w in ((32, 1), (16, 1), (64, 2), (16, 2), (32, 4))
    ]


def tiles(dim: int, bits: int) -> list[int]:
    """Tokens of a tile, the likely best first: as many as registers can be expected to hold."""
    return [64, 32, 16] if dim * bits <= 128 * 16 else [32, 16]


def forms_of(kernel: str) -> list[tuple[str, str]]:
    """`(form, mixer)` in which a kernel is launched."""
    if kernel == "rnn":
        return [("rnn", "S")]
    if kernel.startswith("lit"):
        return [("chunk", "LIT")]
    return [("chunk", "S")] if kernel == "states" else [("chunk", "S"), ("parallel", "S")]


def compiles(kernel: str, dim: int, bits: int, architecture: str) -> bool:
    """Whether a kernel, as configured, compiles within the limits of a GPU, wherever it is launched."""
    for form, mixer in forms_of(kernel):
        for function, args, options in launches_of(form, mixer, dim, DTYPES[bits], architecture):
            if function.fn.__name__ == KERNELS[kernel]:
                result = compile_launch(function, args, options, architecture)
                if faults(result | {"architecture": architecture}):
                    return False
    return True


def estimate(architecture: str, bits: int, dim: int) -> dict:
    """For the largest tile that works, the first candidate of every kernel that compiles."""
    for tile in tiles(dim, bits):
        config = {"tile": tile, "chunk": 256}
        config |= {kernel: candidates(kernel, dim)[0] for kernel in KERNELS}
        triton_config.CONFIGS[architecture, bits, dim] = config
        for kernel in KERNELS:
            for candidate in candidates(kernel, dim):
                config[kernel] = candidate
                if compiles(kernel, dim, bits, architecture):
                    break
            else:
                break
        else:
            return config
    raise ValueError(f"No candidate of {kernel} for {architecture}, {bits} bits and head dimension {dim} compiles.")


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


def measure(architecture: str, bits: int, dim: int, deadline: float) -> dict:
    """The fastest candidates on this GPU, of the largest tile that was configured before."""
    config = dict(triton_config.CONFIGS[architecture, bits, dim])
    triton_config.CONFIGS[architecture, bits, dim] = config
    inputs = {mixer: make_inputs(mixer, LENGTH, dim, DTYPES[bits]) for mixer in ("LIT", "S")}
    for kernel in KERNELS:
        mixer = "LIT" if kernel.startswith("lit") else "S"
        length = 256 if kernel == "rnn" else LENGTH
        times = []
        for candidate in [config[kernel], *candidates(kernel, dim)]:
            if time.monotonic() > deadline and times:
                break
            before, config[kernel] = config[kernel], candidate
            try:
                if compiles(kernel, dim, bits, architecture):
                    some = [None if x is None else x[:, :, :length] for x in inputs[mixer]]
                    times.append((kernel_seconds(kernel, some, 0), candidate))
            finally:
                config[kernel] = before
        config[kernel] = min(times, key=lambda pair: pair[0])[1]
        print(
            architecture,
            bits,
            dim,
            kernel,
            f"{min(times, key=lambda p: p[0])[0] * 1e6:.0f} us",
            config[kernel],
            flush=True,
        )
    chunks = [config["tile"] * n for n in (1, 2, 4, 8, 16)]
    config["chunk"] = min(chunks, key=lambda chunk: seconds(lambda: both_passes(inputs["S"], chunk)))
    return config


def longest_parallel(dim: int = 64) -> int:
    """Up to which length the full form is faster than chunks, in a forward and a backward pass."""
    longest = 64
    for length in (128, 256, 384, 512, 768, 1024, 1536, 2048):
        inputs = make_inputs("S", length, dim, torch.bfloat16)
        whole, chunks = (seconds(partial(both_passes, inputs, size)) for size in (kernel_triton.WHOLE, 0))
        if whole > chunks:
            break
        longest = length
    return longest


def write(configs: dict, parallel_up_to: dict, source: str) -> None:
    """The table, in the file that holds it."""
    text = FILE.read_text()
    head = text[: text.index("SOURCE = ")]
    comment = text[text.index("# By architecture") : text.index("CONFIGS = ")]
    parallel_comment = text[text.index("# Tokens up to") : text.index("PARALLEL_UP_TO = ")]
    lines = [head + f'SOURCE = "{source}"\n\n{comment}CONFIGS = {{']
    for (architecture, bits, dim), config in sorted(configs.items()):
        lines.append(f'    ("{architecture}", {bits}, {dim}): {{')
        lines += [f'        "{name}": {str(value)},'.replace("'", '"') for name, value in config.items()]
        lines.append("    },")
    lines.append("}\n\n" + parallel_comment + f"PARALLEL_UP_TO = {parallel_up_to}".replace("'", '"') + "\n")
    FILE.write_text("\n".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--estimate", action="store_true", help="choose by compile reports, without a GPU")
    parser.add_argument("--architectures", nargs="+", default=list(SHARED_MEMORY), choices=list(SHARED_MEMORY))
    parser.add_argument("--bits", type=int, nargs="+", default=[16, 32], choices=[16, 32])
    parser.add_argument("--dims", type=int, nargs="+", default=[64, 128, 32, 256], choices=[32, 64, 128, 256])
    parser.add_argument("--seconds", type=float, default=600, help="stop measuring after")
    parser.add_argument("--processes", type=int, default=1, help="for --estimate")
    arguments = parser.parse_args()
    configs, parallel_up_to = dict(triton_config.CONFIGS), dict(triton_config.PARALLEL_UP_TO)
    if arguments.estimate:
        todo = list(itertools.product(arguments.architectures, arguments.bits, arguments.dims))
        with ProcessPoolExecutor(arguments.processes) as pool:
            for key, config in zip(todo, pool.map(estimate, *zip(*todo, strict=True)), strict=True):
                configs[key] = config
                print(key, config, flush=True)
                write(configs, parallel_up_to, "estimated from compile reports; not measured on a GPU yet")
        return
    if not torch.cuda.is_available():
        raise SystemExit("There is no GPU to measure on; --estimate does without.")
    device = torch.device("cuda", torch.cuda.current_device())
    architecture = triton_plan.architecture(device)
    source = f"{architecture} measured on {torch.cuda.get_device_name()}, the rest estimated from compile reports"
    deadline = time.monotonic() + arguments.seconds
    for bits, dim in itertools.product(arguments.bits, arguments.dims):
        if time.monotonic() < deadline:
            configs[architecture, bits, dim] = measure(architecture, bits, dim, deadline)
            write(configs, parallel_up_to, source)
    parallel_up_to[architecture] = longest_parallel()
    write(configs, parallel_up_to, source)


if __name__ == "__main__":
    main()
