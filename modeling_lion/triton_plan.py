# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Sizes of the Triton kernels' launches: everything that the host decides, none of it on the GPU."""

import torch
from torch import Tensor

from .triton_config import CONFIGS, PARALLEL_UP_TO


# Programs that keep a large GPU busy; with fewer, states are cut into smaller blocks and sequences into parts.
ENOUGH_PROGRAMS = 264
# Parts of a sequence that are summed up apart where nothing decays, and the least tokens of one.
MOST_PARTS, LEAST_PART = 8, 512
# Tokens of one program that applies a state.
GROUP = 512


def launch(kernel, programs: int, *args, **options) -> None:
    """Start `programs` programs of a Triton kernel. Every launch goes through here."""
    kernel[(programs,)](*args, **options)


def architecture(device: torch.device) -> str:
    """Which of the CONFIGS fits a GPU."""
    if device.type != "cuda":  # Triton's interpreter, which has no limits
        return "sm_90"
    properties = torch.cuda.get_device_properties(device)
    return "sm_90" if properties.major >= 9 and properties.shared_memory_per_block_optin > 200_000 else "sm_80"


@torch.compiler.assume_constant_result
def longest_full_form(device: torch.device) -> int:
    """Up to how many tokens the full form is faster than chunks and states."""
    return PARALLEL_UP_TO[architecture(device)]


def padded(dim: int) -> int:
    """The power of two, at least 16, that the matrix products of a GPU pad a dimension to."""
    return max(16, 1 << (dim - 1).bit_length())


def with_strides(x: Tensor) -> tuple:
    """A tensor `(batch, heads, length, ...)` as the kernels take it."""
    return x, *x.stride()[:3]


def state_dtype(dtype: torch.dtype) -> torch.dtype:
    """Of the states in matrix products. Sums over many tokens leave the range of float16."""
    return torch.bfloat16 if dtype == torch.bfloat16 else torch.float32


def precision(dtype: torch.dtype) -> str:
    """
    How float32 numbers are multiplied: as three products of TensorFloat-32, which costs no digits, or as one, where
    torch's own products may be: `torch.backends.fp32_precision`, `torch.set_float32_matmul_precision`, the Trainer's
    `tf32`. For 16-bit values it concerns only states that are float32.
    """
    # All of these settings are seen here; reading the older ones raises an error where the newer ones are in use.
    if dtype == torch.float32 and torch.backends.cuda.matmul.fp32_precision != "tf32":
        return "tf32x3"
    return "tf32"


class Plan:
    """
    What the launches of a call have in common.

    Args:
        query: `(batch, heads, length, head_dim)`; value: `(batch, heads, length, value_dim)`.
        is_decaying: whether there are decays.
        chunk_size: tokens between two states; 0 for the configured number.
        normalize: whether to divide by the denominators.
    """

    def __init__(self, query: Tensor, value: Tensor, is_decaying: bool, chunk_size: int, normalize: bool):
        self.query, self.normalize = query, normalize
        self.batch, self.heads, self.length, _ = query.shape
        self.head_dim, self.value_dim = int(query.shape[-1]), int(value.shape[-1])
        self.rows = self.batch * self.heads
        self.scale = self.head_dim**-0.5
        self.head_block, self.value_block = padded(self.head_dim), padded(self.value_dim)
        dim = max(32, self.head_block, self.value_block)
        # Of what a product of rows sums up at a time, where they do not fit into registers as a whole: float32 rows,
        # each of them three of TensorFloat-32 in tensor cores, and the longest ones.
        self.split = 16 if value.element_size() == 4 else dim if dim <= 128 else 64
        self.config = CONFIGS[architecture(query.device), 8 * value.element_size(), dim]
        self.tile = self.config["tile" if is_decaying else "lit_tile"]
        self.num_tiles = max(1, -(-self.length // self.tile))
        if is_decaying:
            # Only float32 results have the digits that cuts would take from the sums.
            self.count_cuts = value.dtype == torch.float32
            self.chunk_tiles = min(max(1, (chunk_size or self.config["chunk"]) // self.tile), self.num_tiles)
            self.num_chunks = -(-self.num_tiles // self.chunk_tiles)
        else:
            enough = -(-ENOUGH_PROGRAMS // max(1, self.rows))
            self.num_parts = max(1, min(MOST_PARTS, self.length // LEAST_PART, enough))
            self.part_tiles = -(-self.num_tiles // self.num_parts)
            self.num_parts = -(-self.num_tiles // self.part_tiles)
            self.group_tiles = min(self.num_tiles, GROUP // self.tile)
            self.num_groups = -(-self.num_tiles // self.group_tiles)
        self.common = {
            "HEAD_DIM": self.head_dim,
            "VALUE_DIM": self.value_dim,
            "TILE": self.tile,
            "NORMALIZE": normalize,
            "PRECISION": precision(value.dtype),
        }

    def blocks(self, kernel: str, head_limit: int = 256, value_limit: int = 256) -> dict[str, int]:
        """Blocks of the dimensions and launch options of a kernel."""
        config = dict(self.config[kernel])
        head_block = min(self.head_block, config.pop("head_block", 256), head_limit)
        value_block = min(self.value_block, config.pop("value_block", 256), value_limit)
        limits = {"queries": self.tile, "keys": self.tile, "inner": min(self.head_block, self.value_block)}
        sizes = {name.upper(): min(config.pop(name), limit) for name, limit in limits.items() if name in config}
        return {"HEAD_BLOCK": head_block, "VALUE_BLOCK": value_block, **sizes, **config}

    def state_blocks(self, kernel: str, rows: int) -> dict[str, int]:
        """Blocks of a kernel that sums up states: smaller ones where there would be too few programs."""
        blocks = self.blocks(kernel)
        head_block, value_block = blocks["HEAD_BLOCK"], blocks["VALUE_BLOCK"]
        while rows * self.num_blocks(blocks) < ENOUGH_PROGRAMS and max(head_block, value_block) > 32:
            if head_block > value_block:
                head_block //= 2
            else:
                value_block //= 2
            blocks |= {"HEAD_BLOCK": head_block, "VALUE_BLOCK": value_block}
        return blocks

    def num_blocks(self, blocks: dict[str, int]) -> int:
        """How many blocks a state has."""
        return -(-self.head_dim // blocks["HEAD_BLOCK"]) * -(-self.value_dim // blocks["VALUE_BLOCK"])

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return self.query.new_empty(shape, dtype=dtype)
