# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Compile the Triton kernels for GPUs that need not be there, and list registers, shared memory and spills.

    python benchmarks/compile_triton.py                  # every kernel and configuration: 10 minutes on 2 cores
    python benchmarks/compile_triton.py --dims 64 --bits 16 --architectures sm_90

The launches are those of real calls: forward and backward run on tensors without memory, and every kernel that they
would start is compiled with the same types, sizes and alignments. Fails if a kernel spills registers to memory or
needs more shared memory than a GPU of its kind has. Writes `triton_compile.json` to `--output_dir`.
"""

import argparse
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import torch
import triton
from machine_code import MachineCode
from measure import print_table, read_json, write_json
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from modeling_lion import kernel_triton, triton_plan
from modeling_lion.triton_config import CONFIGS


BATCH, HEADS = 8, 12
# Bytes of shared memory that a program may have: GA102 and AD102, which share sm_80's kernels, and H100.
SHARED_MEMORY = {"sm_80": 101_376, "sm_90": 232_448}
MIXERS = ("LIT", "D", "S")
# Full form, chunks; a length that divides nothing.
LENGTHS = {"parallel": 509, "chunk": 4096}
DTYPES = {16: torch.bfloat16, 32: torch.float32}
DIMS = (32, 64, 128, 256)
TYPE_NAMES = {
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.float32: "*fp32",
    torch.int32: "*i32",
    torch.int64: "*i64",
}


@contextmanager
def recorded(architecture: str) -> Iterator[list]:
    """Collect the launches `(kernel, args, options)` of what runs meanwhile, as if on a GPU of some architecture."""
    launches = []
    before = kernel_triton.launch, triton_plan.architecture
    kernel_triton.launch = lambda kernel, programs, *args, **options: launches.append((kernel, args, options))
    triton_plan.architecture = lambda device: architecture
    try:
        yield launches
    finally:
        kernel_triton.launch, triton_plan.architecture = before


def make_inputs(mixer: str, length: int, head_dim: int, dtype: torch.dtype) -> list:
    """Query, key, value and decays in the layout that the model has them, without memory."""
    like = lambda: torch.empty(BATCH, length, HEADS, head_dim, dtype=dtype, device="meta").transpose(1, 2)
    shape = {"D": (1, HEADS, 1), "S": (BATCH, HEADS, length)}.get(mixer)
    return [like(), like(), like(), None if shape is None else torch.empty(shape, device="meta")]


def launches_of(form: str, mixer: str, head_dim: int, dtype: torch.dtype, architecture: str, normalize=True) -> list:
    """The launches of a forward and a backward pass; `form` is "parallel", "chunk", "rnn" or "feature_map"."""
    length = LENGTHS.get(form, LENGTHS["chunk"])
    query, key, value, right = make_inputs(mixer, length, head_dim, dtype)
    chunk_size = kernel_triton.WHOLE if form == "parallel" else 0
    inputs = (query, key, value, right, None)
    with recorded(architecture) as launches:
        if form == "rnn":
            kernel_triton.rnn_forward(*inputs, 0, normalize)
        elif form == "feature_map":
            kernel_triton.launch_silu_norm(query)
            kernel_triton.launch_silu_norm(query, query)
        else:
            output, _, *kept = kernel_triton.forward(*inputs, chunk_size, normalize)
            kernel_triton.backward(
                torch.empty_like(output), *inputs, output, kept, chunk_size, normalize, right is not None
            )
    return launches


def types(value, path: tuple[int, ...], constants: dict, attributes: dict):
    """The type of an argument as the compiler wants it, with what it may take for granted, as in a real launch."""
    if isinstance(value, tuple):
        return tuple(types(x, (*path, i), constants, attributes) for i, x in enumerate(value))
    if isinstance(value, torch.Tensor):
        attributes[path] = [["tt.divisibility", 16]]
        return TYPE_NAMES[value.dtype]
    if value is None or value == 1:
        constants[path] = value
        return "constexpr"
    if isinstance(value, float):
        return "fp32"
    if value % 16 == 0:
        attributes[path] = [["tt.divisibility", 16]]
    return "i32" if value < 2**31 else "i64"


def source_of(kernel, args: tuple, options: dict) -> tuple[ASTSource, dict[str, int]]:
    """What the compiler takes, and the launch options."""
    launch_options = {name: options[name] for name in ("num_warps", "num_stages")}
    constants, attributes, signature = {}, {}, {}
    for i, parameter in enumerate(kernel.params):
        if i < len(args):
            signature[parameter.name] = types(args[i], (i,), constants, attributes)
        else:
            signature[parameter.name] = "constexpr"
            constants[i,] = options[parameter.name]
    return ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=attributes), launch_options


def machine_code(kernel, args: tuple, options: dict, architecture: str) -> tuple[MachineCode, object]:
    """Compile one launch; the second result is the compiler's own."""
    source, launch_options = source_of(kernel, args, options)
    target = GPUTarget("cuda", int(architecture.removeprefix("sm_")), 32)
    compiled = triton.compile(source, target=target, options=launch_options)
    return MachineCode(compiled.asm["cubin"], architecture, compiled.metadata.shared, **launch_options), compiled


def compile_launch(kernel, args: tuple, options: dict, architecture: str) -> dict[str, int]:
    """
    Compile one launch: registers of a thread, bytes of its stack (0 without spills), bytes of shared memory, programs
    that a multiprocessor has room for; instructions in all and in each outermost loop with matrix products.
    """
    code, compiled = machine_code(kernel, args, options, architecture)
    straight, loops = code.parts
    ptx = compiled.asm["ptx"]
    return code.resources | {
        "instructions": straight + sum(loop.total() for loop in loops),
        "loop_instructions": [loop.total() for loop in loops],
        "tensor_core_instructions": len(re.findall(r"wgmma\.mma_async|mma\.sync", ptx)),
        "async_copies": len(re.findall(r"cp\.async\.c[ag]", ptx)),
    }


def cases(architectures=tuple(SHARED_MEMORY), bits=tuple(DTYPES), dims=DIMS) -> list[tuple]:
    """`(form, mixer, head_dim, bits, architecture)` of every configuration."""
    forms = [("chunk", mixer) for mixer in MIXERS] + [("parallel", mixer) for mixer in ("D", "S")]
    forms += [("rnn", mixer) for mixer in ("LIT", "S")] + [("feature_map", "all")]
    return [
        (form, mixer, dim, width, architecture)
        for architecture, width, dim in CONFIGS
        if architecture in architectures and width in bits and dim in dims
        for form, mixer in forms
    ]


def described(form: str, mixer: str, head_dim: int, bits: int, architecture: str) -> Iterator[tuple[dict, tuple]]:
    """Every kernel of a case once: what it is and how it is configured, and its launch."""
    seen = set()
    for kernel, args, options in launches_of(form, mixer, head_dim, DTYPES[bits], architecture):
        name = kernel.fn.__name__ + "".join(f"_{x.lower()}" for x in ("ADJOINT", "BACKWARD") if options.get(x))
        if name not in seen:
            seen.add(name)
            about = {"kernel": name, "form": form, "mixer": mixer, "head_dim": head_dim, "bits": bits}
            keys = ("num_warps", "num_stages", "TILE", "HEAD_BLOCK", "VALUE_BLOCK", "KEYS", "QUERIES", "INNER")
            about |= {"architecture": architecture} | {key: options[key] for key in keys if key in options}
            yield about, (kernel, args, options)


def compile_case(form: str, mixer: str, head_dim: int, bits: int, architecture: str) -> list[dict]:
    return [
        about | compile_launch(*launch, architecture)
        for about, launch in described(form, mixer, head_dim, bits, architecture)
    ]


def faults(result: dict) -> list[str]:
    """What a compiled kernel must not do."""
    found = []
    if result["stack_bytes"]:
        found.append(f"uses {result['stack_bytes']} bytes of stack")
    if result["shared_bytes"] > SHARED_MEMORY[result["architecture"]]:
        found.append(f"needs {result['shared_bytes']} bytes of shared memory")
    return found


def case_of(result: dict) -> tuple:
    return tuple(result[key] for key in ("form", "mixer", "head_dim", "bits", "architecture"))


def joined(before: list[dict], results: list[dict]) -> list[dict]:
    """What a report said before, but for cases that have new results or are no more."""
    order = {case: i for i, case in enumerate(cases())}
    new = {case_of(result) for result in results}
    kept = [result for result in before if case_of(result) in order.keys() - new]
    return sorted(kept + results, key=lambda result: order[case_of(result)])


def compile_all(todo: list[tuple], processes: int, report: Callable[[list[dict]], None]) -> list[dict]:
    results = []
    with ProcessPoolExecutor(processes) as pool:
        for done in pool.map(compile_case, *zip(*todo, strict=True)):
            results += done
            report(results)
    return results


def row(result: dict) -> list[str]:
    keys = ("architecture", "kernel", "form", "mixer", "bits", "head_dim", "num_warps", "registers", "shared_bytes")
    return [str(result[key]) for key in keys] + ["; ".join(faults(result))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architectures", nargs="+", default=list(SHARED_MEMORY), choices=list(SHARED_MEMORY))
    parser.add_argument("--bits", type=int, nargs="+", default=[16, 32], choices=[16, 32])
    parser.add_argument("--dims", type=int, nargs="+", default=DIMS, choices=DIMS)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--output_dir", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    path = arguments.output_dir / "triton_compile.json"
    todo = cases(arguments.architectures, arguments.bits, arguments.dims)
    before = read_json(path) or []
    results = compile_all(todo, arguments.processes, lambda results: write_json(path, joined(before, results)))
    header = ["GPU", "kernel", "form", "mixer", "bits", "D", "warps", "registers", "shared memory", "faults"]
    print_table(header, [row(r) for r in results])
    bad = [r for r in results if faults(r)]
    print(f"{len(results)} kernels, {len(bad)} with faults.")
    raise SystemExit(bool(bad))


if __name__ == "__main__":
    main()
