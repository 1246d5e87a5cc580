# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Reading what a kernel needs from its machine code (benchmarks/machine_code.py)."""

import importlib
from pathlib import Path

import pytest


pytest.importorskip("triton", reason="triton is not installed")


@pytest.fixture
def machine_code(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    return importlib.import_module("machine_code")


LISTING = """
.text.kernel:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_0:
        /*0010*/                   LDGSTS.E.BYPASS.128 [R4], desc[UR6][R2.64], P0 ;
        /*0020*/              @!P1 LDG.E R5, desc[UR6][R2.64] ;
        /*0030*/                   HGMMA.64x64x16.F32.BF16 R24, gdesc[UR8], RZ, !UPT, gsb0 ;
        /*0040*/                   FADD R24, R24, R25 ;
        /*0050*/               @P0 BRA `(.L_x_0) ;
.L_x_1:
        /*0060*/                   FADD R24, R24, R25 ;
        /*0070*/               @P0 BRA `(.L_x_1) ;
.L_x_3:
        /*0071*/                   FADD R24, R24, R25 ;
.L_x_4:
        /*0072*/                   HGMMA.64x64x16.F32.BF16 R24, gdesc[UR8], RZ, !UPT, gsb0 ;
        /*0073*/               @P0 BRA `(.L_x_4) ;
        /*0074*/               @P0 BRA `(.L_x_3) ;
        /*0080*/                   EXIT ;
.L_x_2:
        /*0090*/                   BRA `(.L_x_2) ;
"""


@pytest.fixture
def code(machine_code, monkeypatch):
    """A kernel of 4 warps, and of which a multiprocessor has room for 2."""

    def tool(self, name, *options):
        return LISTING if name == "nvdisasm" else "Function kernel:\n REG:200 STACK:16 SHARED:0"

    monkeypatch.setattr(machine_code.MachineCode, "tool", tool)
    return lambda stages=2, warps=4: machine_code.MachineCode(b"", "sm_90", 40_000, warps, stages)


def test_loops_with_products_are_found(code):
    straight, (loop, outer) = code().parts
    assert straight == 5 and loop.instructions == 5  # a loop without products counts once
    (inner,) = outer.inside
    assert (outer.instructions, inner.instructions, outer.total()) == (2, 2, 4) and outer.flop == 0 < inner.flop
    # 4 warps share a product of 64 x 64 x 16; each of their threads reads 16 and 4 bytes.
    assert loop.flop == 2 * 64 * 64 * 16 / 4096 and loop.bytes == 4 * 32 * (16 + 4)
    assert (code().registers, code().stack_bytes, code().programs) == (200, 16, 2)


def test_clocks(code):
    products, reads = 2 * 64 * 64 * 16 / 4096, 4 * 32 * 20 / 32
    assert code().clocks([10, 0]) == 5 + 10 * max(products, reads)
    assert code(stages=1).clocks([10, 0]) == 5 + 10 * (products + reads)
    assert code().clocks([0, 3], turns_inside=7) == 5 + 3 * (2 + 7 * products)
    # Shared memory has room for 5 programs: of 1 warp each, these are 5 of the 8 warps that hide waiting.
    assert code(warps=1).programs == 5 and code(warps=1).clocks([0]) == (5 / 4) / (5 / 8)


@pytest.mark.parametrize(
    ("instruction", "architecture", "clocks"),
    [
        ("HGMMA.64x128x16.F32.BF16 R24, R4", "sm_90", 2 * 16 * 128 * 16 / 4096),
        ("HGMMA.64x64x8.F32.TF32 R24, R4", "sm_90", 2 * 2 * 16 * 64 * 8 / 4096),
        ("HMMA.16816.F32.BF16 R8, R4, R12, R8", "sm_80", 2 * 16 * 8 * 16 / 2048),
        ("HMMA.1688.F32.TF32 R8, R4, R12, R8", "sm_80", 2 * 2 * 16 * 8 * 8 / 2048),
        ("HMMA.16816.F32.BF16 R8, R4, R12, R8", "sm_90", 2 * 16 * 8 * 16 / 2560),
        ("FFMA R8, R4, R12, R8", "sm_80", 0),
    ],
)
def test_products(machine_code, instruction, architecture, clocks):
    assert machine_code.flop_of(instruction, architecture) == clocks
