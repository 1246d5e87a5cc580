# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Scans of images against SPEC §6 written out: where each curve goes, and attention along both, token by token."""

import math
from functools import partial

import pytest
import torch

from modeling_lion.attention.decay_mask import LogDecay
from modeling_lion.attention.lion_attention import lion_attention
from modeling_lion.sequence.scans import CURVES, scan_attention, scan_orders


FORMS = ["eager", "parallel", "chunk", "rnn"]
GRIDS = [(1, 1), (1, 4), (4, 1), (2, 3), (3, 2), (3, 4), (4, 4)]
HEADS, HEAD_DIM, VALUE_DIM = 2, 3, 4


def snake_walk(rows: int, columns: int) -> list[tuple[int, int]]:
    """The cells (row, column) of a snake: to the right along even rows, back along odd ones."""
    cells = []
    for row in range(rows):
        line = [(row, column) for column in range(columns)]
        cells += line if row % 2 == 0 else reversed(line)
    return cells


WALKS = {"snake": snake_walk}


def literal_orders(patch_order: str, rows: int, columns: int) -> list[list[int]]:
    """Both curves as positions in the raster sequence: CLS first, then row * columns + column + 1."""
    walk = WALKS[patch_order]
    by_rows = walk(rows, columns)
    by_columns = [(row, column) for column, row in walk(columns, rows)]
    return [[0] + [1 + row * columns + column for row, column in cells] for cells in (by_rows, by_columns)]


def test_all_tokens_before_the_patches_come_first():
    assert scan_orders("snake", 2, 2, 3).tolist() == [[0, 1, 2, 3, 4, 6, 5], [0, 1, 2, 3, 5, 6, 4]]
    assert scan_orders("snake", 2, 2, 0).tolist() == [[0, 1, 3, 2], [0, 2, 3, 1]]


@pytest.mark.parametrize("patch_order", WALKS)
def test_curves(patch_order):
    for grid in GRIDS:
        orders = scan_orders(patch_order, *grid)
        assert orders.dtype == torch.long
        assert orders.tolist() == literal_orders(patch_order, *grid)


def steps(cells: list[int], columns: int) -> list[tuple[int, int]]:
    """How far each step of a curve goes, in rows and in columns."""
    places = [divmod(cell, columns) for cell in cells]
    return [(abs(a[0] - b[0]), abs(a[1] - b[1])) for a, b in zip(places, places[1:], strict=False)]


@pytest.mark.parametrize("patch_order", CURVES)
def test_curves_fill_every_grid_and_never_jump(patch_order):
    for rows in range(1, 18):
        for columns in range(1, 18):
            orders = (scan_orders(patch_order, rows, columns) - 1)[:, 1:]
            for order in orders.tolist():
                assert sorted(order) == list(range(rows * columns))
                assert order[0] == 0
                assert all(sum(step) == 1 for step in steps(order, columns)), (rows, columns)
            transposed = (scan_orders(patch_order, columns, rows)[1, 1:] - 1).tolist()
            assert [column * rows + row for row, column in (divmod(x, columns) for x in orders[0].tolist())] == (
                transposed
            )


@pytest.mark.slow
@pytest.mark.parametrize("patch_order", CURVES)
def test_curves_compile_as_one_graph(patch_order):
    compute = lambda patches: scan_orders(patch_order, *patches.shape)
    compiled = torch.compile(compute, fullgraph=True, backend="aot_eager", dynamic=True)
    for grid in ((3, 4), (5, 2)):
        assert torch.equal(compiled(torch.zeros(grid)), compute(torch.zeros(grid)))
    torch.compiler.reset()


def literal_scan(query, key, value, log_decay, orders, normalization):
    """SPEC §1, §2 and §6 for one image and one head; log_decay is (2, length), a row per curve."""
    length = len(query)
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


@pytest.mark.axes(
    kernel=FORMS,
    patch_order=CURVES,
    mixer=["decay", "selective"],
    normalization=["sum", "none"],
    grid=[(1, 1), (1, 4), (3, 2), (3, 4)],
)
def test_attention_along_both_curves(kernel, patch_order, mixer, normalization, grid, equal):
    orders = scan_orders(patch_order, *grid)
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
        partial(lion_attention, form=kernel),
        query,
        key,
        value,
        LogDecay(log_decay, log_decay),
        scans=orders,
        normalization=normalization,
        chunk_size=4,
    )
    assert (weights is not None) == (kernel == "eager")
    for head in range(HEADS):
        expected, expected_weights = literal_scan(
            query[0, head], key[0, head], value[0, head], per_token[:, head], orders.tolist(), normalization
        )
        equal(output[0, head], expected)
        if weights is not None:
            equal(weights[0, head], expected_weights)
