# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""How the tokens of a call lie: one object for all layers."""

import dataclasses

import pytest
import torch
from torch.utils._pytree import tree_leaves

from modeling_lion import LionConfig, LionModel
from modeling_lion.sequence.halo import Halo
from modeling_lion.sequence.layout import Layout
from modeling_lion.sequence.scans import ImageLayout
from modeling_lion.sequence.segments import SegmentLayout
from modeling_lion.tokens import Tokens


SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "vocab_size": 40,
}


def layouts_of(model: LionModel, **inputs) -> list[Layout]:
    """What each layer gets."""
    seen = []
    for layer in model.layers:
        layer.register_forward_pre_hook(lambda _, args: seen.append(args[1]))
    model.eval()(**inputs)
    return seen


@pytest.mark.parametrize("is_packed", [False, True])
def test_texts_have_one_for_all_layers(is_packed):
    config = LionConfig(**SIZES, conv_kernel=3, rope_parameters={}, position_embedding_type="none")
    borders = torch.tensor([0, 4, 9]) if is_packed else None
    first, *others = layouts_of(
        LionModel(config),
        input_ids=torch.randint(1, 40, (2, 9)),
        attention_mask=torch.ones(2, 9),
        cu_seq_lens_q=borders,
    )
    assert all(layout is first for layout in others) and type(first) is Layout
    assert first.tokens.is_real is None  # nothing is padded, and nobody has to look again
    assert (first.conv_borders is not None) == is_packed and first.tokens.cu_seqlens is borders
    expected = [0, 1, 2, 3, 0, 1, 2, 3, 4] if is_packed else list(range(9))
    assert first.tokens.position_ids.tolist() == [expected] and set(first.rotary_tables) == {"linear_attention"}


def test_images_have_their_scans():
    config = LionConfig(**SIZES, modality="image", image_size=(6, 8), patch_size=2, patch_order="snake")
    first, *others = layouts_of(LionModel(config), pixel_values=torch.randn(2, 3, 6, 8))
    assert all(layout is first for layout in others) and type(first) is ImageLayout
    assert first.scans.shape == (2, 13)


def test_all_that_it_holds_moves_to_another_device():
    """accelerate calls `to` of what a layer gets, where layers are on several devices."""
    x, is_real = torch.randn(2, 9, 4), torch.ones(2, 9, dtype=torch.bool)
    tables, masks = {"linear_attention": (x, x)}, {"full_attention": (is_real, None)}
    layouts = [
        Layout(Tokens(is_real, torch.tensor([0, 9]), torch.arange(9)[None]).with_order(), None, tables, masks),
        ImageLayout(Tokens(is_real), scans=torch.zeros(2, 9, dtype=torch.long)),
        SegmentLayout(Tokens(is_real), halo=Halo(x, x, None)),
    ]
    for layout in layouts:
        moved = layout.to("meta", non_blocking=True)
        assert type(moved) is type(layout)
        fields = [getattr(moved, field.name) for field in dataclasses.fields(moved)]
        fields += [vars(field) for field in fields if dataclasses.is_dataclass(field)]
        tensors = [leaf for leaf in tree_leaves(fields) if isinstance(leaf, torch.Tensor)]
        assert len(tensors) >= 2 and all(tensor.is_meta for tensor in tensors)
    assert isinstance(layouts[0].to("meta").masks["full_attention"], tuple)


def test_a_mask_that_is_added_to_scores_is_refused():
    """0 for real tokens, very negative for padding: read as truth values, it would be the wrong way round."""
    model = LionModel(LionConfig(**SIZES))
    ids = torch.randint(5, 40, (2, 6))
    added = torch.zeros(2, 6)
    added[0, 4:] = -1e9
    with pytest.raises(ValueError, match="`attention_mask` has numbers below 0"):
        model(ids, attention_mask=added)
    as_numbers = model(ids, attention_mask=(added == 0).float()).last_hidden_state
    assert torch.equal(as_numbers, model(ids, attention_mask=added == 0).last_hidden_state)
