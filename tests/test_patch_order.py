# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Scans of images against SPEC §6 written out: where each curve goes, and attention along both, token by token."""

import math

import pytest
import torch

from modeling_lion.kernel_chunk import chunk_attention
from modeling_lion.kernel_parallel import parallel_attention
from modeling_lion.kernel_rnn import rnn_attention
from modeling_lion.modeling_lion import eager_attention
from modeling_lion.patch_order import scan_attention, scan_orders


KERNELS = {"eager": eager_attention, "parallel": parallel_attention, "chunk": chunk_attention, "rnn": rnn_attention}
GRIDS = [(1, 1), (1, 4), (4, 1), (2, 3), (3, 2), (3, 4), (4, 4)]
HEADS, HEAD_DIM, VALUE_DIM = 2, 3, 4


def walk(rows: int, columns: int) -> list[tuple[int, int]]:
    """The cells (row, column) of a snake: to the right along even rows, back along odd ones."""
    cells = []
    for row in range(rows):
        line = [(row, column) for column in range(columns)]
        cells += line if row % 2 == 0 else reversed(line)
    return cells


def literal_orders(rows: int, columns: int) -> list[list[int]]:
    """Both curves as positions in the raster sequence: CLS first, then row * columns + column + 1."""
    by_rows = walk(rows, columns)
    by_columns = [(row, column) for column, row in walk(columns, rows)]
    return [[0] + [1 + row * columns + column for row, column in cells] for cells in (by_rows, by_columns)]


def test_snake_of_two_by_three():
    # 1 2 3
    # 4 5 6
    assert scan_orders("snake", 2, 3).tolist() == [[0, 1, 2, 3, 6, 5, 4], [0, 1, 4, 5, 2, 3, 6]]


@pytest.mark.parametrize("grid", GRIDS)
def test_curves(grid):
    orders = scan_orders("snake", *grid)
    assert orders.dtype == torch.long
    assert orders.tolist() == literal_orders(*grid)


def literal_scan(query, key, value, log_decay, grid, normalization):
    """SPEC §1, §2 and §6 for one image and one head; log_decay is (2, length), a row per curve."""
    length = len(query)
    orders = literal_orders(*grid)
    place = [{token: step for step, token in enumerate(order)} for order in orders]

    def mask(curve: int, i: int, j: int) -> float:
        at, source = place[curve][i], place[curve][j]
        between = orders[curve][source:at] if source < at else orders[curve][at + 1 : source + 1]
        return math.prod(math.exp(log_decay[curve, token]) for token in between)

    weights = torch.zeros(length, length, dtype=torch.float64)
    for i in range(length):
        for j in range(length):
            mean = (mask(0, i, j) + mask(1, i, j)) / 2
            weights[i, j] = float(query[i] @ key[j]) * mean * HEAD_DIM**-0.5
        if normalization == "sum":
            weights[i] /= weights[i].sum()
    return weights @ value, weights


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("normalization", ["sum", "none"])
@pytest.mark.parametrize("mixer", ["decay", "selective"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_attention_along_both_curves(kernel, mixer, normalization, grid, equal):
    length = 1 + grid[0] * grid[1]
    query, key = torch.rand(2, 1, HEADS, length, HEAD_DIM, dtype=torch.float64)
    value = torch.randn(1, HEADS, length, VALUE_DIM, dtype=torch.float64)
    if mixer == "decay":  # one number per curve and head
        log_decay = -torch.rand(2 * HEADS, dtype=torch.float64)
        per_token = log_decay.view(2, HEADS, 1).expand(-1, -1, length)
    else:
        log_decay = -torch.rand(1, 2 * HEADS, length, dtype=torch.float64)
        per_token = log_decay.view(2, HEADS, length)
    output, weights = scan_attention(
        KERNELS[kernel],
        query,
        key,
        value,
        log_decay,
        scans=scan_orders("snake", *grid),
        normalization=normalization,
        chunk_size=4,
    )
    assert (weights is not None) == (kernel == "eager")
    for head in range(HEADS):
        expected, expected_weights = literal_scan(
            query[0, head], key[0, head], value[0, head], per_token[:, head], grid, normalization
        )
        equal(output[0, head], expected)
        if weights is not None:
            equal(weights[0, head], expected_weights)
