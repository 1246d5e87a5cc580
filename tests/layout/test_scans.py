# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Scans of images against SPEC §6 written out: where each curve goes, and attention along both, token by token."""

import math
from functools import partial

import pytest
import torch

from modeling_lion.attention.decay import LogDecay
from modeling_lion.attention.lion_attention import lion_attention
from modeling_lion.layout.scans import CURVES, scan_attention, scan_orders


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


def zigzag_walk(rows: int, columns: int) -> list[tuple[int, int]]:
    """The cells of a zigzag: diagonal after diagonal, down odd ones and up even ones."""
    cells = []
    for diagonal in range(rows + columns - 1):
        line = [(row, diagonal - row) for row in range(rows) if 0 <= diagonal - row < columns]
        cells += line if diagonal % 2 == 1 else reversed(line)
    return cells


WALKS = {"snake": snake_walk, "zigzag": zigzag_walk}


def literal_orders(patch_order: str, rows: int, columns: int) -> list[list[int]]:
    """Both curves as positions in the raster sequence: CLS first, then row * columns + column + 1."""
    walk = WALKS[patch_order]
    by_rows = walk(rows, columns)
    by_columns = [(row, column) for column, row in walk(columns, rows)]
    return [[0] + [1 + row * columns + column for row, column in cells] for cells in (by_rows, by_columns)]


def test_snake_of_two_by_three():
    # 1 2 3
    # 4 5 6
    assert scan_orders("snake", 2, 3).tolist() == [[0, 1, 2, 3, 6, 5, 4], [0, 1, 4, 5, 2, 3, 6]]


def test_all_tokens_before_the_patches_come_first():
    assert scan_orders("snake", 2, 2, 3).tolist() == [[0, 1, 2, 3, 4, 6, 5], [0, 1, 2, 3, 5, 6, 4]]
    assert scan_orders("snake", 2, 2, 0).tolist() == [[0, 1, 3, 2], [0, 2, 3, 1]]


def test_zigzag_of_three_by_three():
    # 1 2 3
    # 4 5 6
    # 7 8 9
    expected = [[0, 1, 2, 4, 7, 5, 3, 6, 8, 9], [0, 1, 4, 2, 3, 5, 7, 8, 6, 9]]
    assert scan_orders("zigzag", 3, 3).tolist() == expected


def test_hilbert_of_four_by_four():
    #  1  2  3  4
    #  5  6  7  8
    #  9 10 11 12
    # 13 14 15 16
    by_rows, by_columns = scan_orders("hilbert", 4, 4).tolist()
    assert by_rows == [0, 1, 2, 6, 5, 9, 13, 14, 10, 11, 15, 16, 12, 8, 7, 3, 4]
    assert by_columns == [0, 1, 5, 6, 2, 3, 4, 8, 7, 11, 12, 16, 15, 14, 10, 9, 13]


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("patch_order", WALKS)
def test_curves(patch_order, grid):
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
            diagonal_steps = 0
            for order in orders.tolist():
                assert sorted(order) == list(range(rows * columns))
                assert order[0] == 0
                assert all(max(step) == 1 for step in steps(order, columns)), (rows, columns)
                diagonal_steps += sum(min(step) == 1 for step in steps(order, columns))
            is_even = rows % 2 == 0 and columns % 2 == 0
            allowed = {"snake": 0, "hilbert": 0 if is_even else 2, "zigzag": 2 * rows * columns}
            assert diagonal_steps <= allowed[patch_order], (rows, columns)
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


def test_hilbert_keeps_neighbours_together():
    """The mean distance in the image of patches that are 16 steps apart."""
    reach = {}
    for patch_order in CURVES:
        cells = scan_orders(patch_order, 16, 16)[0, 1:] - 1
        place = torch.stack((cells // 16, cells % 16)).double()
        reach[patch_order] = (place[:, 16:] - place[:, :-16]).norm(dim=0).mean()
    assert reach["hilbert"] < 0.7 * min(reach["snake"], reach["zigzag"])


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
