# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What masks, borders and positions say of the tokens of a call, against literal definitions."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from modeling_lion import LionConfig, LionModel, tokens
from modeling_lion.tokens import Tokens, cyclic_positions, packed_borders, read_mask, read_text


TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24, "vocab_size": 40}


def starts_of(positions: list[int], is_real: list[bool]) -> list[int]:
    """SPEC §13, literally: where sequences of one row begin behind its first one; nothing if this is no packing."""
    real = [n for n, x in enumerate(is_real) if x]
    rises, starts = 0, []
    for before, token in zip(real, real[1:], strict=False):
        step = positions[token] - positions[before]
        if step == 1 or step == token - before:
            rises += 1
        elif positions[token] == positions[real[0]]:
            starts.append(token)
        else:
            return []
    return starts if rises else []


@st.composite
def texts(draw):
    """Rows of positions, packed or arbitrary, and which of their tokens are real."""
    batch, length = draw(st.integers(1, 3)), draw(st.integers(1, 9))
    row = st.lists(st.integers(0, 4), min_size=length, max_size=length)
    cuts = st.lists(st.booleans(), min_size=length, max_size=length)

    def packed(cut: list[bool], first: int) -> list[int]:
        found = []
        for begins in cut:
            found.append(first if begins or not found else found[-1] + 1)
        return found

    packed_row = st.builds(packed, cuts, st.integers(0, 2))
    positions = draw(st.lists(st.one_of(row, packed_row), min_size=batch, max_size=batch))
    is_real = draw(st.one_of(st.none(), st.lists(cuts, min_size=batch, max_size=batch)))
    return torch.tensor(positions), None if is_real is None else torch.tensor(is_real)


@settings(max_examples=300, deadline=None)
@given(texts())
@example((torch.tensor([[0, 1, 2, 0, 1]]), None))
@example((torch.tensor([[2, 3, 2, 3], [2, 3, 4, 5]]), None))  # different borders in different rows
@example((torch.tensor([[0, 0, 0, 0]]), None))
@example((torch.tensor([[3, 2, 1, 0]]), None))
@example((torch.tensor([[0, 0, 1, 1, 2, 2]]), None))
@example((torch.tensor([[0, 9, 1, 0, 1]]), torch.tensor([[True, False, True, True, True]])))
def test_a_sequence_begins_where_the_position_returns_to_the_first_one(text):
    positions, is_real = text
    batch, length = positions.shape
    masks = torch.ones(batch, length, dtype=torch.bool) if is_real is None else is_real
    rows = [starts_of(*pair) for pair in zip(positions.tolist(), masks.tolist(), strict=True)]
    borders = packed_borders(positions, is_real, batch)
    if not any(rows):
        assert borders is None
    elif all(row == rows[0] for row in rows):
        assert borders.tolist() == [0, *rows[0], length]
    else:
        starts = [n * length + start for n, row in enumerate(rows) for start in (0, *row)]
        assert borders.tolist() == [*starts, batch * length]


def masks_and_borders():
    mask = st.lists(st.lists(st.booleans(), min_size=8, max_size=8), min_size=1, max_size=3)
    borders = st.one_of(st.none(), st.sets(st.integers(1, 7)).map(lambda x: torch.tensor([0, *sorted(x), 8])))
    return st.tuples(mask.map(torch.tensor), borders)


@settings(max_examples=200, deadline=None)
@given(masks_and_borders(), st.integers(0, 4))
def test_what_is_seen_in_a_window(text, reach):
    """The real tokens of the same sequence that are at most `reach` real tokens away."""
    is_real, borders = text
    sequence = [0] * 8 if borders is None else [int((borders[1:] <= n).sum()) for n in range(8)]
    before = is_real.cumsum(1) - is_real.long()
    seen = Tokens(is_real, borders).with_order().seen(torch.empty(len(is_real), 8, 1), reach)
    for row, real in enumerate(is_real):
        for i in (n for n in range(8) if real[n]):
            for j in range(8):
                is_near = sequence[i] == sequence[j] and abs(before[row, i] - before[row, j]) <= reach
                assert seen[row if len(seen) > 1 else 0, 0, i, j] == bool(real[j] and is_near)


@settings(max_examples=100, deadline=None)
@given(masks_and_borders())
def test_real_tokens_of_a_sequence_are_neighbours_in_order(text):
    is_real, borders = text
    cuts = [0, 8] if borders is None else borders.tolist()
    ordered = Tokens(is_real, borders).with_order()
    x = torch.arange(8).expand(len(is_real), -1)
    assert torch.equal(ordered.restored(ordered.reordered(x)), x)
    moved, real = ordered.reordered(x), ordered.contiguous().is_real
    for row in range(len(is_real)):
        for first, end in zip(cuts, cuts[1:], strict=False):
            inside = [n for n in range(first, end) if real[row, n]]
            assert inside == [*range(inside[0], inside[-1] + 1)] if inside else True
            assert moved[row, inside].tolist() == [n for n in range(first, end) if is_real[row, n]]
    assert (ordered.order is None) == torch.equal(moved, x)


@settings(max_examples=100, deadline=None)
@given(masks_and_borders())
def test_sequences_as_rows(text):
    is_real, borders = text
    borders = torch.tensor([0, 8]) if borders is None else borders
    rows = Tokens(is_real, borders).sequences_as_rows(is_real)
    found = [
        token[real].tolist()
        for tokens_of_rows, reals in rows
        for token, real in zip(tokens_of_rows, reals, strict=True)
    ]
    cuts = list(zip(borders.tolist(), borders[1:].tolist(), strict=False))
    wanted = [[8 * n + t for t in range(a, b) if row[t]] for n, row in enumerate(is_real) for a, b in cuts]
    assert sorted(found) == [row for row in wanted if row]


def pairs(is_real: torch.Tensor, seen: torch.Tensor, is_added: bool) -> torch.Tensor:
    """A mask as models make it, of padding and of which tokens see each other."""
    mask = is_real[:, None, None, :] & seen
    return torch.where(mask, 0.0, torch.finfo(torch.float32).min) if is_added else mask


@pytest.mark.parametrize("is_added", [False, True])
def test_masks_of_all_pairs(is_added):
    token = torch.arange(9)
    is_real = torch.stack((token < 9, token >= 4, token % 3 > 0))
    everything, near = torch.ones(9, 9, dtype=torch.bool), (token.unsqueeze(1) - token).abs() <= 2
    found = read_mask(pairs(is_real, everything, is_added), 3)
    assert torch.equal(found.is_real, is_real) and found.row_lengths == [9, 5, 6] and found.cu_seqlens is None
    one_row = read_mask(pairs(is_real, everything, is_added)[:, :, :1], 3)
    assert torch.equal(one_row.is_real, is_real)
    assert torch.equal(read_mask(pairs(is_real, near, is_added), 3, True).is_real, is_real)
    blocks = (token // 4).unsqueeze(1) == token // 4
    assert read_mask(pairs(is_real[:1], blocks, is_added), 1).cu_seqlens.tolist() == [0, 4, 8, 9]
    for mask in (pairs(is_real, near, is_added), pairs(is_real, everything.tril(), is_added)):
        with pytest.raises(ValueError, match="is neither padding nor packing"):
            read_mask(mask, 3)
    with pytest.raises(ValueError, match="is neither padding nor packing"):
        read_mask(pairs(is_real, everything.tril(), is_added), 3, True)
    if is_added:
        with pytest.raises(ValueError, match="is neither padding nor packing"):
            read_mask(torch.full((1, 1, 9, 9), -1.0), 1)  # a bias


def test_a_mask_is_read_once_until_it_changes(monkeypatch):
    calls, find = [], tokens.has_inner_padding
    monkeypatch.setattr(tokens, "has_inner_padding", lambda *args: calls.append(args) or find(*args))
    mask = torch.tensor([[True, True, False]])
    assert read_mask(mask, 1) is read_mask(mask, 1) and len(calls) == 1
    mask[0, 2] = True
    assert read_mask(mask, 1).row_lengths == [3] and len(calls) == 2
    assert read_mask(mask.clone(), 1).row_lengths == [3] and len(calls) == 3
    with torch.inference_mode():  # whose tensors do not say that they have changed
        mask = torch.tensor([[True, True, False]])
        assert read_mask(mask, 1).row_lengths == [2]
        mask[0, 2] = True
        assert read_mask(mask, 1).row_lengths == [3]


def test_what_was_read_in_inference_mode_is_read_again_for_training():
    mask = torch.tensor([[True, False, True]])
    x = torch.ones(1, 2, 3, requires_grad=True)
    with torch.inference_mode():
        read_mask(mask, 1).reordered(x, 2)
    read_mask(mask, 1).reordered(x, 2).sum().backward()
    assert x.grad is not None


def test_a_mask_that_was_read_is_not_kept():
    """Of a mask of all pairs, quadratic in the length, only what is linear in it stays."""
    mask = pairs(torch.tensor([[True] * 5 + [False]]), torch.ones(6, 6, dtype=torch.bool), False)
    assert read_mask(mask, 1).is_real.untyped_storage().data_ptr() != mask.untyped_storage().data_ptr()


@pytest.mark.parametrize(
    "borders", [torch.tensor([]), torch.tensor(4), torch.tensor([[0, 4]]), torch.tensor([0.0, 4.0])], ids=str
)
def test_borders_of_a_wrong_kind_are_refused(borders):
    with pytest.raises(ValueError, match=r"cu_seqlens must be .*\(num_sequences \+ 1,\), int32 or int64; got \("):
        read_text(torch.ones(1, 4, dtype=torch.long), cu_seqlens=borders)


def test_tables_are_read_again_from_the_first_row_on():
    assert cyclic_positions(torch.tensor([0, 1, 2, 5, 6, 9]), 4, 2).tolist() == [0, 1, 2, 5, 2, 5]
    assert cyclic_positions(torch.tensor([-1, 3, 4, 9]), 4).tolist() == [-1, 3, 0, 1]


def test_borders_that_are_given_win():
    ids, positions = torch.ones(2, 6, dtype=torch.long), torch.tensor([[0, 1, 2, 0, 1, 2]])
    assert read_text(ids, None, positions).cu_seqlens.tolist() == [0, 3, 6]
    assert read_text(ids, None, positions, torch.tensor([0, 2, 6])).cu_seqlens.tolist() == [0, 2, 6]
    found = read_text(ids, None, None, torch.tensor([0, 2, 6, 7, 12]))
    assert found.differ_by_row(6) and found.position_ids.tolist() == [[0, 1, 0, 1, 2, 3], [0, 0, 1, 2, 3, 4]]


@pytest.mark.parametrize("mixer", ["selective", "decay", "lit", "softmax", "luna"])
def test_rows_that_are_packed_differently(mixer, equal):
    model = LionModel(LionConfig(**TINY, mixer_type=mixer, type_vocab_size=2)).double().eval()
    ids, types = torch.randint(1, 40, (2, 9)), torch.randint(0, 2, (2, 9))
    spans = [[(0, 4), (4, 9)], [(0, 1), (1, 6), (6, 9)]]
    alone = [
        model(ids[n : n + 1, a:b], token_type_ids=types[n : n + 1, a:b]) for n, row in enumerate(spans) for a, b in row
    ]
    positions = torch.stack([torch.cat([torch.arange(b - a) for a, b in row]) for row in spans])
    output = model(ids, token_type_ids=types, position_ids=positions)
    states = torch.cat([x.last_hidden_state[0] for x in alone]).view(2, 9, -1)
    equal(output.last_hidden_state, states)
    equal(output.pooler_output, torch.cat([x.pooler_output for x in alone]))
    borders = torch.tensor([0, 4, 9, 10, 15, 18])
    equal(model(ids, token_type_ids=types, cu_seq_lens_q=borders).last_hidden_state, states)


def test_other_positions_change_no_borders():
    model = LionModel(LionConfig(**TINY)).eval()
    ids = torch.randint(1, 40, (1, 8))
    expected = model(ids).last_hidden_state
    for positions in ([0] * 8, [*range(8)][::-1], [0, 0, 1, 1, 2, 2, 3, 3], [5, 2, 7, 1, 0, 3, 3, 3]):
        assert torch.equal(model(ids, position_ids=torch.tensor([positions])).last_hidden_state, expected)
