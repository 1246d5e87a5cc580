# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The feature map `silu_norm` on a GPU, u / ‖u‖₂ with u = SiLU(x) + 0.5: one pass over memory, forward and backward.

It is separate from the attention kernels, which would apply it to each tile of keys once for every tile of queries.
"""

try:
    import triton
    import triton.language as tl
except ImportError as error:
    raise ImportError("triton is not installed; it comes with torch for CUDA.") from error


@triton.jit
def silu_norm_kernel(
    x, grad, result, rows,
    DIM: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, BACKWARD: tl.constexpr,
):  # fmt: skip
    """ROWS vectors of `(rows, DIM)`: y = u / ‖u‖, or dx = SiLU'(x) (dy - y (y · dy)) / ‖u‖ with `grad` dy."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    at = row[:, None].to(tl.int64) * DIM + column[None, :]
    mask = (row < rows)[:, None] & (column < DIM)[None, :]
    values = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    sigmoid = tl.sigmoid(values)
    u = tl.where(column[None, :] < DIM, values * sigmoid + 0.5, 0.0)
    inverse = 1.0 / tl.sqrt(tl.sum(u * u, 1))
    y = u * inverse[:, None]
    if BACKWARD:
        dy = tl.load(grad + at, mask=mask, other=0.0).to(tl.float32)
        du = (dy - y * tl.sum(dy * y, 1)[:, None]) * inverse[:, None]
        y = du * sigmoid * (1.0 + values * (1.0 - sigmoid))
    tl.store(result + at, y.to(result.dtype.element_ty), mask=mask)
