# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What a compiled kernel asks of a GPU, read from its machine code: no GPU is needed.

A loop can be no faster than the slowest of three: the schedulers, each of which starts one instruction of a warp per
clock; the tensor cores; and the L2 cache, from which the tiles come. That is no forecast of a time, but enough to tell
a good configuration from a bad one.
"""

import re
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import triton


TOOLS = Path(triton.__file__).parent / "backends/nvidia/bin"
# Of one multiprocessor, per clock. A100 and H100: 312 and 989 TFLOP/s in bfloat16, half of it in TensorFloat-32, and
# about 5 TB/s from the L2 cache, over 108 and 132 multiprocessors at 1.41 and 1.83 GHz. An H100 reaches its own only
# with instructions of four warps (HGMMA), and some 60 % of it with those of one (HMMA).
SCHEDULERS, BYTES = 4, 32
FLOP = {("sm_80", "HMMA"): 2048, ("sm_90", "HMMA"): 2560, ("sm_90", "HGMMA"): 4096}
# Of one multiprocessor: registers, warps, and shared memory, of which every program takes 1 KB more than it asks for.
REGISTERS, WARPS = 65536, 64
SHARED = {"sm_80": 163 * 1024, "sm_90": 227 * 1024}
# With fewer warps than this, waiting is not hidden: time counts as if it were in proportion.
ENOUGH_WARPS = 8


@dataclass(frozen=True)
class Loop:
    """
    One turn of a loop, without the loops inside of it: instructions of a warp; of all warps, clocks of the tensor
    cores and bytes read.
    """

    instructions: int
    flop: float
    bytes: int
    inside: tuple["Loop", ...] = ()

    def clocks(self, num_warps: int, num_stages: int, turns_inside: float) -> float:
        """The least clocks of a turn on a multiprocessor. With one stage, reading and computing take turns."""
        computes, reads = max(num_warps * self.instructions / SCHEDULERS, self.flop), self.bytes / BYTES
        clocks = computes + reads if num_stages == 1 else max(computes, reads)
        return clocks + turns_inside * sum(x.clocks(num_warps, num_stages, turns_inside) for x in self.inside)

    def total(self) -> int:
        """Instructions, those of the loops inside, too."""
        return self.instructions + sum(x.total() for x in self.inside)

    def has_products(self) -> bool:
        return self.flop > 0 or any(x.has_products() for x in self.inside)


def flop_of(instruction: str, architecture: str) -> float:
    """Of a warp; in units of what the tensor cores do in a clock."""
    size = re.match(r"HGMMA\.64x(\d+)x(\d+)\.", instruction)
    if size:
        flop = 2 * 16 * int(size[1]) * int(size[2])  # four warps share the 64 rows
    else:
        size = re.match(r"HMMA\.16(8)(\d+)\.", instruction)
        if not size:
            return 0.0
        flop = 2 * 16 * int(size[1]) * int(size[2])
    return flop * (2 if "TF32" in instruction else 1) / FLOP[architecture, instruction.split(".")[0]]


def bytes_of(instruction: str) -> int:
    """That a warp reads from global memory."""
    if not instruction.startswith(("LDG.", "LDGSTS.")):
        return 0
    width = re.search(r"\.(128|64|U16|U8)\b", instruction.split()[0])
    return 32 * ({"128": 16, "64": 8, "U16": 2, "U8": 1}[width[1]] if width else 4)


class MachineCode:
    """
    Args:
        cubin: a compiled kernel.
        architecture: "sm_80" or "sm_90".
        shared_bytes: of one program, as are `num_warps` and `num_stages`.

    Attributes:
        registers: of a thread. stack_bytes: of a thread, 0 without spills.
        programs: how many a multiprocessor has room for.
    """

    def __init__(self, cubin: bytes, architecture: str, shared_bytes: int, num_warps: int, num_stages: int):
        self.cubin, self.architecture, self.shared_bytes = cubin, architecture, shared_bytes
        self.num_warps, self.num_stages = num_warps, num_stages
        usage = self.tool("cuobjdump", "--dump-resource-usage")
        self.registers, self.stack_bytes = map(int, re.search(r"REG:(\d+) STACK:(\d+)", usage).groups())
        by_registers = REGISTERS // (-(-max(self.registers, 1) // 8) * 8 * 32 * num_warps)
        self.programs = min(by_registers, SHARED[architecture] // (shared_bytes + 1024), WARPS // num_warps)

    @property
    def resources(self) -> dict[str, int]:
        """What a program takes, and for how many a multiprocessor has room; nothing is disassembled for it."""
        return {name: getattr(self, name) for name in ("registers", "stack_bytes", "shared_bytes", "programs")}

    def tool(self, name: str, *options: str) -> str:
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(self.cubin)
            file.flush()
            command = [str(TOOLS / name), *options, file.name]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def loop(self, instructions: list[str], ranges: list[tuple[int, int]], first: int, last: int) -> Loop:
        """The loop from `first` to `last` with all that are inside of it."""
        within = [(a, b) for a, b in ranges if first <= a and b <= last and (a, b) != (first, last)]
        outer = [x for x in within if not any(a <= x[0] and x[1] <= b and (a, b) != x for a, b in within)]
        own = [i for i in range(first, last + 1) if not any(a <= i <= b for a, b in outer)]
        body = [instructions[i] for i in own]
        flop = self.num_warps * sum(flop_of(x, self.architecture) for x in body)
        inside = tuple(self.loop(instructions, within, a, b) for a, b in sorted(outer))
        return Loop(len(body), flop, self.num_warps * sum(map(bytes_of, body)), inside)

    @cached_property
    def parts(self) -> tuple[int, list[Loop]]:
        """Instructions outside of the loops with matrix products, and the outermost of those loops in their order."""
        labels, instructions = {}, []
        for line in self.tool("nvdisasm", "--print-code").splitlines():
            if label := re.match(r"\s*(\.L_\w+):", line):
                labels[label[1]] = len(instructions)
            elif code := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?(.*?);", line):
                instructions.append(code[1])
        ends = {}  # of each label: a loop may jump back from several places
        for i, instruction in enumerate(instructions):
            target = re.search(r"BRA.*`\((\.L_\w+)\)", instruction)
            if target and labels[target[1]] < i:  # NOPs behind the end jump to themselves
                ends[labels[target[1]]] = i
        everything = self.loop(instructions, list(ends.items()), 0, len(instructions) - 1)
        loops = [loop for loop in everything.inside if loop.has_products()]
        return everything.total() - sum(loop.total() for loop in loops), loops

    def clocks(self, turns: list[float], turns_inside: float = 1) -> float:
        """
        The least time of a program, in clocks of a multiprocessor that has as many as it has room for, and an equal
        share for each. `turns` of each outermost loop; the last number is that of all the others; `turns_inside` of
        those inside.
        """
        straight, loops = self.parts
        turns = turns + turns[-1:] * (len(loops) - len(turns))
        clocks = straight * self.num_warps / SCHEDULERS
        for n, loop in zip(turns, loops, strict=False):
            clocks += n * loop.clocks(self.num_warps, self.num_stages, turns_inside)
        return clocks / min(1.0, self.programs * self.num_warps / ENOUGH_WARPS)
