# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Compile the Triton kernels for GPUs that need not be there, and list registers, stack (spills) and shared memory.

    python benchmarks/compile_triton.py                  # every configuration: 10 minutes on 2 cores
    python benchmarks/compile_triton.py --dims 64 --dtypes bfloat16 float16 --architectures sm_90

The launches are those of real calls: forward and backward run on tensors without memory, and every kernel that they
would start is compiled with the same types, sizes and alignments. Fails if a kernel does not compile, spills registers
to memory, or needs more shared memory than a GPU of its kind has.
"""

import argparse
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import torch
import triton
from measure import attention_inputs, print_table
from triton.backends.compiler import GPUTarget
from triton.errors import TritonError

from modeling_lion import triton_launch, triton_plan


BATCH, HEADS, LENGTH = 8, 12, 4096
# Bytes of shared memory that a program may have. sm_80: of GA102 and AD102, which use the same configurations as A100.
SHARED_MEMORY = {"sm_80": 101_376, "sm_90": 232_448}
DTYPES = {name: getattr(torch, name) for name in ("bfloat16", "float16", "float32")}
DIMS = (32, 64, 128, 256)
# Form and mixer. The last one is the feature map, which all mixers share.
CASES = [("chunk", "LIT"), ("chunk", "D"), ("chunk", "S"), ("parallel", "D"), ("parallel", "S")]
CASES += [("rnn", "LIT"), ("rnn", "S"), ("feature_map", "LIT")]
# For scans and segments, which divide by themselves.
CASES += [("chunk separate", "LIT"), ("chunk separate", "S"), ("parallel separate", "S"), ("rnn separate", "S")]
CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"


def absent_gpu(architecture: str) -> SimpleNamespace:
    """What the compiler asks of Triton's driver, for a GPU that is not there."""
    capability = int(architecture.removeprefix("sm_"))
    return SimpleNamespace(
        get_current_device=lambda: capability,
        get_current_stream=lambda device: 0,
        get_current_target=lambda: GPUTarget("cuda", capability, 32),
    )


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


def run_passes(form: str, inputs: list) -> None:
    """A forward and a backward pass. The RNN form has only the first."""
    form, *separate = form.split()
    normalization = "separate" if separate else "sum"
    if form == "rnn":
        triton_launch.compute_rnn(*inputs, 0, normalization)
    elif form == "feature_map":
        triton_launch.launch_silu_norm(inputs[0])
        triton_launch.launch_silu_norm(inputs[0], inputs[0])
    else:
        options = {"is_whole": form == "parallel"}
        output, factor, _, *saved = triton_launch.compute(*inputs, 0, normalization, **options)
        triton_launch.compute_gradients(
            output, factor, *inputs, output, factor, saved, 0, normalization, inputs[3] is not None, **options
        )


def launches_of(form: str, mixer: str, dim: int, dtype: str, architecture: str) -> dict[str, tuple]:
    """`(kernel, args, options)` of every launch in both passes, by the name of the kernel."""
    launches = {}

    def record(kernel, programs, *args, **options):
        suffixes = [f"_{x.lower()}" for x in ("ADJOINT", "BACKWARD") if options.get(x)]
        launches["".join([kernel.fn.__name__, *suffixes])] = kernel, args, options

    before, triton_plan.architecture = triton_plan.architecture, lambda device: architecture
    try:
        with launching(record):
            # The full form is for short sequences; this length divides nothing.
            run_passes(form, make_inputs(mixer, 509 if form.startswith("parallel") else LENGTH, dim, DTYPES[dtype]))
    finally:
        triton_plan.architecture = before
    return launches


def compile_launch(kernel, args: tuple, options: dict, architecture: str) -> dict:
    """Registers of a thread, bytes of its stack (0 without spills), bytes of shared memory; or why it fails."""
    result = {"registers": 0, "stack_bytes": 0, "shared_bytes": 0, "uses_tensor_cores": False, "error": ""}
    triton.runtime.driver.set_active(absent_gpu(architecture))
    try:
        compiled = kernel.warmup(*args, grid=(1,), **options)
    except (TritonError, RuntimeError) as error:
        return result | {"error": f"does not compile: {str(error).splitlines()[-1]}"}
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        command = [CUOBJDUMP, "--dump-resource-usage", file.name]
        usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    registers, stack = re.search(r"REG:(\d+) STACK:(\d+)", usage).groups()
    result |= {"registers": int(registers), "stack_bytes": int(stack), "shared_bytes": compiled.metadata.shared}
    return result | {"uses_tensor_cores": bool(re.search(r"wgmma\.mma_async|mma\.sync", compiled.asm["ptx"]))}


def compile_case(form: str, mixer: str, dim: int, dtype: str, architecture: str) -> list[dict]:
    """A result per kernel of a form and mixer."""
    about = {"architecture": architecture, "dtype": dtype, "form": form, "mixer": mixer, "dim": dim}
    return [
        about | {"kernel": name} | compile_launch(*launch, architecture)
        for name, launch in launches_of(form, mixer, dim, dtype, architecture).items()
    ]


def faults(result: dict) -> list[str]:
    """What a compiled kernel must not do."""
    found = [result["error"]] if result["error"] else []
    if result["stack_bytes"]:
        found.append(f"spills into {result['stack_bytes']} bytes of stack")
    if result["shared_bytes"] > SHARED_MEMORY[result["architecture"]]:
        found.append(f"needs {result['shared_bytes']} bytes of shared memory")
    return found


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architectures", nargs="+", default=list(SHARED_MEMORY), choices=list(SHARED_MEMORY))
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "float32"], choices=list(DTYPES))
    parser.add_argument("--dims", type=int, nargs="+", default=DIMS, choices=DIMS)
    arguments = parser.parse_args()
    todo = [
        (form, mixer, dim, dtype, architecture)
        for architecture, dtype, dim in product(arguments.architectures, arguments.dtypes, arguments.dims)
        for form, mixer in CASES
    ]
    with ProcessPoolExecutor() as pool:
        results = [result for case in pool.map(compile_case, *zip(*todo, strict=True)) for result in case]
    print_results(results)
    bad = [result for result in results if faults(result)]
    for result in bad:
        print(", ".join(str(x) for x in list(result.values())[:6]), "; ".join(faults(result)), sep=": ")
    print(f"\n{len(results)} kernels, {len(bad)} with faults.")
    raise SystemExit(bool(bad))


if __name__ == "__main__":
    main()
