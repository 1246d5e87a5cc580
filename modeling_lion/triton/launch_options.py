# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The sizes and options with which the host launches Triton kernels."""

import torch
from torch import Tensor

from ..attention.numerics import smallest_denominator
from .config import CONFIGS, PARALLEL_UP_TO


# Number of programs that keep a large GPU busy. With fewer, states have smaller tiles, and sequences more slices.
ENOUGH_PROGRAMS = 264
# Without decays: the largest number of slices that are summed in parallel, and the least tokens of a slice.
MOST_SLICES, LEAST_SLICE = 8, 128
# The most tokens to which one program applies a state.
TOKENS_PER_PROGRAM = 512
SMALLEST = smallest_denominator(torch.float32)


def launch(kernel, programs: int, *args, **options) -> None:
    """Start `programs` programs of a Triton kernel. Every launch goes through here."""
    kernel[(programs,)](*args, **options)


def architecture(device: torch.device) -> str:
    """The key in CONFIGS for a GPU."""
    if device.type != "cuda":  # Triton's interpreter, without limits
        return "sm_90"
    properties = torch.cuda.get_device_properties(device)
    return "sm_90" if properties.major >= 9 and properties.shared_memory_per_block_optin > 200_000 else "sm_80"


@torch.compiler.assume_constant_result
def longest_full_form(device: torch.device) -> int:
    """The number of tokens up to which the parallel form is faster than the chunk form."""
    return PARALLEL_UP_TO[architecture(device)]


def padded(dim: int) -> int:
    """The power of two, at least 16, to which matrix products of a GPU pad a dimension."""
    return max(16, 1 << (dim - 1).bit_length())


def with_strides(x: Tensor) -> tuple:
    """The argument of a kernel for `(batch, heads, length, ...)`: the tensor and its strides but the last."""
    return x, *x.stride()[:3]


def precision(dtype: torch.dtype) -> str:
    """
    The precision of float32 products: three products of TensorFloat-32, which lose no digits, or a single one if torch
    may use it (`torch.backends.fp32_precision`, `torch.set_float32_matmul_precision`, the Trainer's `tf32`). For
    16-bit values it matters only for float32 states.
    """
    # This attribute reflects all of them; reading the older settings raises an error if the newer ones are in use.
    if dtype == torch.float32 and torch.backends.cuda.matmul.fp32_precision != "tf32":
        return "tf32x3"
    return "tf32"


class Plan:
    """
    The sizes and options that all launches of a call share. `log_decay` is the forward one; `is_whole` says that the
    sequence is one chunk, instead of chunks of the tuned size; `division` is as in attention/custom_operator.py.
    """

    def __init__(self, query: Tensor, value: Tensor, log_decay: Tensor | None, is_whole: bool, division: str):
        self.query = query
        self.has_denominators, self.divides = division != "none", division != "deferred"
        self.output_dtype = value.dtype if self.divides else torch.float32
        self.batch, self.heads, self.length, _ = query.shape
        self.head_dim, self.value_dim = int(query.shape[-1]), int(value.shape[-1])
        self.bh = self.batch * self.heads
        self.scale = self.head_dim**-0.5
        self.head_tile, self.value_tile = padded(self.head_dim), padded(self.value_dim)
        self.dim = max(32, self.head_tile, self.value_tile)
        # Columns that a product of rows sums in one step, if whole rows do not fit in registers: for float32 rows,
        # each of which is three of TensorFloat-32, and for the longest rows.
        self.bits = 8 * value.element_size()
        self.split = 16 if self.bits == 32 else self.dim if self.dim <= 128 else 64
        self.config = CONFIGS[architecture(query.device), self.bits, self.dim]
        self.tile = self.config["lit_tile" if log_decay is None else "tile"]
        self.num_tiles = max(1, -(-self.length // self.tile))
        # The gradients of the decays are differences, which would have few digits from a rounded output.
        self.keeps_remainder = log_decay is not None and division == "sum" and self.bits == 16
        if log_decay is not None:
            # Only float32 results are exact enough for cuts to matter.
            self.count_cuts = value.dtype == torch.float32
            self.chunk_tiles = self.num_tiles if is_whole else min(self.config["chunk"] // self.tile, self.num_tiles)
            self.num_chunks = -(-self.num_tiles // self.chunk_tiles)
            self.walk = dict(self.config["walk"])
            block = min(self.walk.pop("block"), 1 << (self.head_dim * self.value_dim - 1).bit_length())
            self.num_state_blocks = -(-self.head_dim * self.value_dim // block)
            self.walk |= {"BLOCK": block, "STAGES": self.walk["num_stages"]}
        else:
            enough = -(-ENOUGH_PROGRAMS // max(1, self.bh))
            self.num_slices = max(1, min(MOST_SLICES, self.length // LEAST_SLICE, enough))
            self.slice_tiles = -(-self.num_tiles // self.num_slices)
            self.num_slices = -(-self.num_tiles // self.slice_tiles)
            # As many tokens per program as still give enough programs.
            self.program_tiles = max(1, min(TOKENS_PER_PROGRAM // self.tile, self.num_tiles // enough))
            self.num_programs = -(-self.num_tiles // self.program_tiles)
        self.common = {
            "HEAD_DIM": self.head_dim,
            "VALUE_DIM": self.value_dim,
            "TILE": self.tile,
            "NORMALIZE": self.has_denominators,
            "PRECISION": precision(value.dtype),
        }

    def options(self, kernel: str) -> dict[str, int]:
        """The launch options of a kernel: tiles of the dimensions, and its columns in TABLE."""
        config = dict(self.config[kernel])
        head_tile = min(self.head_tile, config.pop("head_tile", 256))
        value_tile = min(self.value_tile, config.pop("value_tile", 256))
        limits = {"queries": self.tile, "keys": self.tile, "inner": min(self.head_tile, self.value_tile)}
        sizes = {name.upper(): min(config.pop(name), limit) for name, limit in limits.items() if name in config}
        if sizes.get("INNER") == 0 and self.split < max(self.head_tile, self.value_tile):  # holds no whole rows
            sizes["INNER"] = limits["inner"]
        return {"HEAD_TILE": head_tile, "VALUE_TILE": value_tile, **sizes, **config}

    def state_options(self, kernel: str, programs: int) -> dict[str, int]:
        """
        The options of a kernel for states, with smaller tiles if `programs` for each tile would be too few programs.
        """
        options = self.options(kernel)
        head_tile, value_tile = options["HEAD_TILE"], options["VALUE_TILE"]
        while programs * self.num_state_tiles(options) < ENOUGH_PROGRAMS and max(head_tile, value_tile) > 32:
            if head_tile > value_tile:
                head_tile //= 2
            else:
                value_tile //= 2
            options |= {"HEAD_TILE": head_tile, "VALUE_TILE": value_tile}
        return options

    def num_state_tiles(self, options: dict[str, int]) -> int:
        return -(-self.head_dim // options["HEAD_TILE"]) * -(-self.value_dim // options["VALUE_TILE"])

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return self.query.new_empty(shape, dtype=dtype)

    def strided(self, remainder: Tensor) -> tuple | None:
        """The argument of a kernel for the remainder of the output; `None` if it is not kept."""
        return with_strides(remainder) if self.keeps_remainder else None

    def allocate_saved(self, forward: Tensor | None, value: Tensor) -> list[Tensor]:
        """
        Memory for the tensors that the gradients need (`saved` in attention/custom_operator.py): an empty tensor
        instead of a wider output, decays inside tiles, from log decays `(1 or batch, heads, 1 or length)`, states and
        totals, and the remainder of the output, in its dtype.
        """
        decays, totals, dtype = (0,), (0,), torch.float32
        if forward is None:
            totals = (self.bh, self.num_slices, self.head_dim)
        else:
            # Tokens, rows and heads that share log decays share these. Of a single chunk, each tile computes its own.
            pairs, tiles = forward.shape[:2], 1 if forward.shape[-1] == 1 else self.num_tiles
            if self.num_chunks == 1:
                pairs, tiles = (self.batch, self.heads), self.num_tiles
            decays = (*pairs, 8 if self.count_cuts else 6, tiles * self.tile)
        if forward is not None and self.num_chunks > 1:
            # Chunks are the first dimension, so that memory that all programs use at the same time is adjacent.
            totals = self.num_chunks, self.bh, 2, self.head_dim
            # Not float16, whose range long sums exceed.
            dtype = torch.bfloat16 if value.dtype == torch.bfloat16 else torch.float32
        states = (*totals, self.value_dim) if totals != (0,) else (0,)
        return [
            self.empty(0),
            self.empty(*decays),
            self.empty(*states, dtype=dtype),
            self.empty(*(totals if self.has_denominators else (0,))),
            self.empty(*(value.shape if self.keeps_remainder else (0,)), dtype=value.dtype),
        ]
