# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What Triton's compiler makes of a launch, for a GPU that need not be there: registers, shared memory, instructions; and
about how long it would take, so that a tuning on a GPU measures what is likely to be fast first.

The prediction counts, for the whole launch, what each part of a GPU has to do, and takes the slowest part and a share
of the others. How often the loops of a program run follows from the matrix products that it has to compute. How much
waiting costs is from times on an H200 (docs/research/lab-notes.md).
"""

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.errors import TritonError


TOOLS = Path(triton.__file__).parent / "backends/nvidia/bin"
# Bytes of shared memory that a program may have. sm_80: of GA102 and AD102, which use the same configurations as A100.
SHARED_MEMORY = {"sm_80": 101_376, "sm_90": 232_448}


@dataclass(frozen=True)
class Gpu:
    """The limits of a GPU: processors, Hz, bytes and operations a second, shared bytes of a processor."""

    processors: int
    clock: float
    memory: float
    cache: float
    products: float
    shared: int


GPUS = {
    "sm_80": Gpu(108, 1.41e9, 1.7e12, 3.5e12, 250e12, 164 * 1024),
    "sm_90": Gpu(132, 1.75e9, 4.2e12, 5.5e12, 700e12, 228 * 1024),
}
REGISTERS, WARPS, PROGRAMS = 65_536, 64, 32  # that a processor has room for
# Warps of a scheduler with which half of its cycles start an instruction.
WAITING = 4.0
OVERLAP = 0.3  # of what a processor's other parts do, this much is not hidden behind the slowest


def absent_gpu(architecture: str) -> SimpleNamespace:
    """A driver for Triton's compiler, of a GPU that is not there."""
    capability = int(architecture.removeprefix("sm_"))
    return SimpleNamespace(
        get_current_device=lambda: capability,
        get_current_stream=lambda device: 0,
        get_current_target=lambda: GPUTarget("cuda", capability, 32),
    )


def tool(name: str, cubin: bytes, *options: str) -> str:
    """Run one of Triton's tools on machine code and return what it prints."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([TOOLS / name, *options, file.name], capture_output=True, text=True, check=True).stdout


def compile_launch(kernel, programs: int, args: tuple, options: dict, architecture: str) -> dict:
    """
    Registers of a thread, bytes of its stack (0 without spills), bytes of shared memory, and the machine code
    (`cubin`); or why it fails.
    """
    result = {"registers": 0, "stack_bytes": 0, "shared_bytes": 0, "uses_tensor_cores": False, "error": ""}
    triton.runtime.driver.set_active(absent_gpu(architecture))
    try:
        compiled = kernel.warmup(*args, grid=(1,), **options)
    except (TritonError, RuntimeError) as error:
        return result | {"error": f"does not compile: {str(error).splitlines()[-1]}"}
    finally:
        if torch.cuda.is_available():  # back to the GPU that is there
            triton.runtime.driver.reset_active()
    cubin = compiled.asm["cubin"]
    usage = tool("cuobjdump", cubin, "--dump-resource-usage")
    registers, stack = re.search(r"REG:(\d+) STACK:(\d+)", usage).groups()
    result |= {"registers": int(registers), "stack_bytes": int(stack), "shared_bytes": compiled.metadata.shared}
    uses_tensor_cores = bool(re.search(r"wgmma\.mma_async|mma\.sync", compiled.asm["ptx"]))
    return result | {"uses_tensor_cores": uses_tensor_cores, "cubin": cubin}


def faults(result: dict) -> list[str]:
    """Faults of a compiled kernel."""
    found = [result["error"]] if result["error"] else []
    if result["stack_bytes"]:
        found.append(f"spills into {result['stack_bytes']} bytes of stack")
    if result["shared_bytes"] > SHARED_MEMORY[result["architecture"]]:
        found.append(f"needs {result['shared_bytes']} bytes of shared memory")
    return found


INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+ )?([A-Z][\w.]*)([^;]*);", re.M)
LABEL = re.compile(r"^(\.L_x_\d+):", re.M)


def count_instructions(code: str) -> dict[str, float]:
    """
    Of a disassembly: instructions in loops (`looped`) and outside (`straight`), operations of a warp's matrix products
    in both (`looped_products`, `straight_products`), and those that compute exponentials (`special`).
    """
    lines = sorted(
        [(x.start(), x[1], x[2]) for x in INSTRUCTION.finditer(code)]
        + [(x.start(), ":", x[1]) for x in LABEL.finditer(code)]
    )
    place = {of: i for i, (_, name, of) in enumerate(lines) if name == ":"}
    in_loop = [False] * len(lines)
    for i, (_, name, of) in enumerate(lines):
        target = re.search(r"\.L_x_\d+", of) if name.startswith("BRA") else None
        start = place.get(target[0], i) if target else i
        for j in range(start, i):
            in_loop[j] = True
    found = dict.fromkeys(("looped", "straight", "looped_products", "straight_products", "special"), 0.0)
    for (_, name, _), is_looped in zip(lines, in_loop, strict=True):
        if name != ":":
            kind = "looped" if is_looped else "straight"
            found[kind] += 1
            found[f"{kind}_products"] += products_of(name)
            found["special"] += name.startswith("MUFU")
    return found


def products_of(instruction: str) -> float:
    """Multiplications and additions that a matrix instruction does for each warp."""
    wide = re.match(r"HGMMA\.(\d+)x(\d+)x(\d+)", instruction)
    if wide:  # of four warps
        return 2 * int(wide[1]) * int(wide[2]) * int(wide[3]) / 4
    narrow = re.match(r"HMMA\.(16)(8)(16|8)\b", instruction)
    return 2 * int(narrow[1]) * int(narrow[2]) * int(narrow[3]) if narrow else 0.0


def programs_at_once(result: dict, warps: int, gpu: Gpu) -> int:
    """The programs that a processor has room for."""
    registers = -(-result["registers"] // 8) * 8 * 32 * warps
    shared = result["shared_bytes"] + 1024  # that the driver takes
    return max(1, min(WARPS // warps, REGISTERS // registers, gpu.shared // shared, PROGRAMS))


def predict(result: dict, programs: int, warps: int, work: dict[str, float], architecture: str) -> dict[str, float]:
    """
    Microseconds of a compiled launch, and what they follow from.

    Args:
        work: of the launch, operations of matrix products (`products`), bytes to and from memory (`memory`) and from
            the cache (`cache`), and, without products, how often loops run (`trips`).
    """
    gpu, counts = GPUS[architecture], count_instructions(tool("nvdisasm", result["cubin"], "-c"))
    of_warp = work["products"] / (programs * warps)
    trips = work.get("trips", 1.0)
    if counts["looped_products"]:
        trips = max(0.0, of_warp - counts["straight_products"]) / counts["looped_products"]
    instructions = counts["straight"] + trips * counts["looped"]
    resident = programs_at_once(result, warps, gpu)
    each = min(resident, -(-programs // gpu.processors)) * warps / 4  # warps of a scheduler
    total = programs * warps * instructions
    special = counts["special"] / max(1.0, counts["straight"] + counts["looped"])
    seconds = {
        "memory": work["memory"] / gpu.memory,
        "cache": work["cache"] / gpu.cache,
        "products": work["products"] / gpu.products,
        "issue": total / (gpu.processors * 4 * gpu.clock) * (1 + WAITING / each),
        "special": total * special * 32 / (gpu.processors * 16 * gpu.clock),
    }
    waves = programs / (gpu.processors * resident)
    slowest = max(seconds.values())
    time = (slowest + OVERLAP * (sum(seconds.values()) - slowest)) * (-(-waves // 1) / waves if waves > 1 else 1.0)
    return {"microseconds": 1e6 * time, "warps": resident * warps, "instructions": instructions} | {
        f"{name}_us": 1e6 * x for name, x in seconds.items()
    }
