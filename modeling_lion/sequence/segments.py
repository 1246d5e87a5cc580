# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Encodes a text in segments, for `encode_long`, if it is too long for the memory.

Embeddings, projections and MLPs read one token at a time. Linear attention needs the border states of the other
segments (sequence/border_states.py). Short convolutions and softmax within a window need the hidden states of a few
tokens on both sides (sequence/halo.py).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from ..attention.plan import CallPlan
from ..attention.tracing import is_readable
from ..private_apis import has_hooks, is_transformed
from ..tokens import Tokens, read_text
from .border_states import BorderStates, Joins
from .halo import Halo, WithHalo
from .input_checks import check_inputs
from .layout import Layout
from .tiles import is_faster_in_tiles


# Channels that are restored to the original order in one step, so that hidden states are not stored twice.
RESTORED_CHANNELS = 64
# Tokens per segment. Their activations, rows of some 3,000 numbers in float32, take less than 32 MB, above which the C
# library returns memory at once: with 16,384 tokens, a fifth of the time went to allocating it again.
SEGMENT_LENGTH = 2048
# A forward pass uses segments if texts have more tokens than the first number and the batch more than the second. A
# pass without segments takes 0.86 of the time (65,536 tokens of `lion-text-base`, one thread), since segments compute
# keys and values twice. At width 768 it takes 21 kB per token, 2.7 GiB at the limit; segments take 4 kB.
LONG_TEXT, TOKENS_IN_ONE_PASS = 2**14, 2**17


@dataclass
class SegmentLayout(Layout):
    """
    A segment of one sequence per row. Positions and rotary tables include those of the halo.

    Attributes:
        halo: the tokens on both sides that the layer reads; `None` if it reads none.
        border_states: the states that the segment receives; `None` without linear attention and in the first pass.
    """

    halo: Halo | None = None
    border_states: BorderStates | None = None

    is_segment = True

    def with_halo(self, hidden_states: Tensor, reach: int) -> WithHalo:
        if self.halo is None:
            return super().with_halo(hidden_states, reach)
        return self.halo.with_halo(hidden_states, self.tokens.is_real)

    def along(self, attention: Callable, joins: Joins) -> Callable:
        if self.border_states is None:
            return attention
        return partial(joins.in_segment, attention, border_states=self.border_states)


def encode_in_segments(
    model: PreTrainedModel,
    input_ids: Tensor,
    attention_mask: Tensor | None,
    token_type_ids: Tensor | None,
    position_ids: Tensor | None,
    segment_length: int,
    show_progress: bool,
) -> tuple[Tensor, Tensor | None]:
    """
    The hidden states, `(batch, length, hidden_size)`, of a `LionModel` without its pooler, and the mask of real
    tokens; see `LionModel.encode_long` for the arguments.

    A linear layer takes two passes: the first collects border states, the second computes the outputs and overwrites
    the inputs. Layers with a window take the second pass only. Besides one tensor of hidden states, the memory holds
    the activations of one segment and the border states.
    """
    if not model.is_text:
        raise ValueError('This LionModel has `modality="image"`: `encode_long` reads text.')
    mixers = [layer.attention.mixer for layer in model.layers]
    if not all(mixer.reads_segments for mixer in mixers):
        raise ValueError(
            "`encode_long` needs layers of linear attention, with a window, or of a mixer that has `reach`, and some "
            f"layers see all tokens at once ({what_is_full(model.config)}): call the model itself."
        )
    if model.training:
        raise ValueError("`encode_long` is for inference: call model.eval() first.")
    check_inputs(model.config, input_ids, None, None, position_ids)
    for name, ids in (("token_type_ids", token_type_ids), ("position_ids", position_ids)):
        if ids is not None and ids.shape != input_ids.shape:
            raise ValueError(f"`{name}` must be {tuple(input_ids.shape)}, as `input_ids`; got {tuple(ids.shape)}.")
    if segment_length < 1:
        raise ValueError(f"`segment_length` is {segment_length}; give at least 1.")
    tokens = read_text(input_ids, attention_mask, position_ids)
    if tokens.cu_seqlens is not None:
        raise ValueError("`position_ids` start again: `encode_long` takes one long text a row, not packed ones.")
    position_ids, lengths = tokens.position_ids, None
    if model.config.scales_with_length:
        lengths = tokens.sequence_lengths()
    if tokens.is_real is not None and not all(mixer.takes_padding for mixer in mixers):
        inputs = input_ids, token_type_ids, position_ids.expand_as(input_ids)
        return each_row(model, tokens.is_real, inputs, segment_length, show_progress), tokens.is_real
    if any(mixer.reach for mixer in mixers):
        tokens = tokens.with_order()
    if tokens.order is not None:  # reorder the text, so that halos hold real tokens
        position_ids = tokens.reordered(position_ids.expand_as(input_ids))
        token_type_ids = None if token_type_ids is None else tokens.reordered(token_type_ids)
        input_ids = tokens.reordered(input_ids)
    is_real = tokens.contiguous().is_real

    def split(x: Tensor | None) -> tuple[Tensor | None, ...]:
        num_segments = -(-input_ids.shape[1] // segment_length)
        return (None,) * num_segments if x is None else x.split(segment_length, dim=1)

    shape = (*input_ids.shape, model.config.hidden_size)
    hidden_states = torch.empty(shape, dtype=model.dtype, device=input_ids.device)
    segments, masks, positions = (split(x) for x in (hidden_states, is_real, position_ids))
    for segment, *inputs in zip(segments, split(input_ids), split(token_type_ids), positions, strict=True):
        segment.copy_(model.embeddings(*inputs))

    passes = [1 if layer.attention.mixer.segment_states is None else 2 for layer in model.layers]
    with logging.tqdm(
        total=sum(passes) * len(segments), desc="Encoding", unit="segment", disable=not show_progress
    ) as progress:
        has_tiles, plan = is_faster_in_tiles(model, segments[0]), CallPlan()

        def each_segment(layer):
            has_window = layer.attention.mixer.window
            halos, end = halos_of(layer, hidden_states, is_real, segments), 0
            for segment, mask, halo, position in zip(segments, masks, halos, positions, strict=True):
                first, end = end, end + segment.shape[1]
                if has_window:
                    position = position_ids[:, first - halo.before.shape[1] : end + halo.after.shape[1]]
                tables = {
                    layer_type: embedding(segment, position, lengths)
                    for layer_type, embedding in model.rotary_embeddings.items()
                    if layer_type == layer.layer_type
                }
                options = {"rotary_tables": tables, "has_tiles": has_tiles, "plan": plan}
                yield segment, SegmentLayout(Tokens(mask, position_ids=position), halo=halo, **options)
                progress.update()

        for layer, num_passes in zip(model.layers, passes, strict=True):
            border_states = [None] * len(segments)
            if num_passes == 2:
                mixer = layer.attention.mixer
                sent = [mixer.segment_states(layer.normed(x), layout) for x, layout in each_segment(layer)]
                border_states = mixer.pass_states(sent)
            for (segment, layout), states in zip(each_segment(layer), border_states, strict=True):
                layout.border_states = states
                segment.copy_(layer(segment, layout))
    if model.norm is not None:
        for segment in segments:
            segment.copy_(model.norm(segment))
    if tokens.order is not None:
        for channels in hidden_states.split(RESTORED_CHANNELS, dim=-1):
            channels.copy_(tokens.restored(channels))
    return hidden_states, tokens.is_real


def goes_in_segments(model: PreTrainedModel, input_ids: Tensor, layout: Layout, options: dict) -> bool:
    """
    Whether a forward pass calls `encode_in_segments` to save memory: for inference on long texts, if the caller asks
    only for the last hidden states, and neither hooks (such as those of a device map) nor a graph observe the layers.
    """
    asks_for_more = any(
        options.get(name, getattr(model.config, name)) for name in ("output_attentions", "output_hidden_states")
    )
    return (
        not (model.training or torch.is_grad_enabled() or is_transformed() or asks_for_more)
        and is_readable(input_ids)  # before the length, which a graph would specialize on
        and input_ids.shape[1] > LONG_TEXT
        and input_ids.numel() > TOKENS_IN_ONE_PASS
        and type(layout) is Layout
        and layout.tokens.cu_seqlens is None
        and not torch.is_autocast_enabled(input_ids.device.type)
        and not (has_hooks(model.embeddings) or has_hooks(model.layers))
        and all(layer.attention.mixer.reads_segments for layer in model.layers)
    )


def each_row(model: PreTrainedModel, is_real: Tensor, inputs: tuple[Tensor | None, ...], *options) -> Tensor:
    """`encode_in_segments` for mixers that do not support padding: each row alone; padded tokens get 0."""
    hidden_states = torch.zeros(*is_real.shape, model.config.hidden_size, dtype=model.dtype, device=is_real.device)
    for row, real in enumerate(is_real):
        if real.any():
            ids, types, positions = (None if x is None else x[row : row + 1, real] for x in inputs)
            found = encode_in_segments(model, ids, None, types, positions, *options)[0]
            hidden_states[row, real] = found[0]
    return hidden_states


def what_is_full(config: PreTrainedConfig) -> str:
    """The field that gives the model layers that see all tokens at once, in words."""
    is_full = "full_attention" in (config.layer_types or ())
    return "`layer_types` has 'full_attention'" if is_full else f"`mixer_type` is {config.mixer_type!r}"


def halos_of(
    layer: nn.Module, hidden_states: Tensor, is_real: Tensor | None, segments: tuple[Tensor, ...]
) -> Iterator[Halo | None]:
    """
    Yield the halo of each segment, in order; `None` if the layer reads no tokens outside. The caller may overwrite a
    segment before it asks for the next halo.
    """
    radius = layer.attention.mixer.reach
    before, first = hidden_states[:, :0], 0
    for segment in segments:
        end = first + segment.shape[1]
        if radius == 0:
            yield None
            continue
        near = None
        if is_real is not None:
            near = torch.cat((is_real[:, first - before.shape[1] : first], is_real[:, end : end + radius]), dim=1)
        halo = Halo(layer.normed(before), layer.normed(hidden_states[:, end : end + radius]), near)
        before = torch.cat((before, segment[:, -radius:]), dim=1)[:, -radius:]  # a copy
        yield halo
        first = end
