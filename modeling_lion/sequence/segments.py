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
    check_call(model, input_ids, token_type_ids, position_ids, segment_length)
    tokens = read_text(input_ids, attention_mask, position_ids)
    if tokens.cu_seqlens is not None:
        raise ValueError("`position_ids` start again: `encode_long` takes one long text a row, not packed ones.")
    inputs = input_ids, token_type_ids, tokens.position_ids
    mixers = [layer.attention.mixer for layer in model.layers]
    if tokens.is_real is not None and not all(mixer.takes_padding for mixer in mixers):
        return each_row(model, tokens.is_real, inputs, segment_length, show_progress), tokens.is_real
    lengths = tokens.sequence_lengths() if model.config.scales_with_length else None
    if any(mixer.reach for mixer in mixers):
        tokens = tokens.with_order()
    if tokens.order is not None:  # reorder the text, so that halos hold real tokens
        inputs = tuple(None if x is None else tokens.reordered(x.expand_as(input_ids)) for x in inputs)
    text = TextInSegments(model, inputs, tokens.contiguous().is_real, lengths, segment_length)
    passes = sum(1 if mixer.segment_states is None else 2 for mixer in mixers)
    with logging.tqdm(
        total=passes * len(text.segments), desc="Encoding", unit="segment", disable=not show_progress
    ) as progress:
        for layer in model.layers:
            text.apply(layer, progress.update)
    if model.norm is not None:
        for segment in text.segments:
            segment.copy_(model.norm(segment))
    if tokens.order is not None:
        for channels in text.hidden_states.split(RESTORED_CHANNELS, dim=-1):
            channels.copy_(tokens.restored(channels))
    return text.hidden_states, tokens.is_real


def check_call(
    model: PreTrainedModel,
    input_ids: Tensor,
    token_type_ids: Tensor | None,
    position_ids: Tensor | None,
    segment_length: int,
) -> None:
    """Raise a ValueError if `encode_long` does not support the model or these arguments."""
    if not model.is_text:
        raise ValueError('This LionModel has `modality="image"`: `encode_long` reads text.')
    if not all(layer.attention.mixer.reads_segments for layer in model.layers):
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


class TextInSegments:
    """
    The hidden states of a text, `(batch, length, hidden_size)`, which each layer overwrites segment by segment.

    Args:
        inputs: `input_ids`, `token_type_ids` or `None`, and `position_ids`, each `(batch, length)`; positions also
            `(1, length)`.
        is_real: the mask of real tokens, or `None`.
        lengths: the lengths of the sequences, for rotary tables that depend on them.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        inputs: tuple[Tensor | None, ...],
        is_real: Tensor | None,
        lengths: Tensor | None,
        segment_length: int,
    ):
        input_ids, _, self.position_ids = inputs
        self.is_real, self.lengths, self.rotary_embeddings = is_real, lengths, model.rotary_embeddings
        shape = (*input_ids.shape, model.config.hidden_size)
        self.hidden_states = torch.empty(shape, dtype=model.dtype, device=input_ids.device)
        self.segments = self.hidden_states.split(segment_length, dim=1)

        def split(x: Tensor | None) -> tuple[Tensor | None, ...]:
            return (None,) * len(self.segments) if x is None else x.split(segment_length, dim=1)

        self.masks, self.positions = split(is_real), split(self.position_ids)
        for segment, *of_segment in zip(self.segments, *map(split, inputs), strict=True):
            segment.copy_(model.embeddings(*of_segment))
        self.has_tiles, self.plan = is_faster_in_tiles(model, self.segments[0]), CallPlan()

    def with_layouts(self, layer: nn.Module, count: Callable[[], object]) -> Iterator[tuple[Tensor, SegmentLayout]]:
        """Yield each segment with its layout for a layer, and call `count` behind each."""
        has_window = layer.attention.mixer.window
        halos, end = halos_of(layer, self.hidden_states, self.is_real, self.segments), 0
        for segment, mask, halo, position in zip(self.segments, self.masks, halos, self.positions, strict=True):
            first, end = end, end + segment.shape[1]
            if has_window:
                position = self.position_ids[:, first - halo.before.shape[1] : end + halo.after.shape[1]]
            tables = {
                layer_type: embedding(segment, position, self.lengths)
                for layer_type, embedding in self.rotary_embeddings.items()
                if layer_type == layer.layer_type
            }
            options = {"rotary_tables": tables, "has_tiles": self.has_tiles, "plan": self.plan}
            yield segment, SegmentLayout(Tokens(mask, position_ids=position), halo=halo, **options)
            count()

    def apply(self, layer: nn.Module, count: Callable[[], object]) -> None:
        """Overwrite the hidden states by the outputs of a layer, in one pass or two; `count` is called in each."""
        mixer, border_states = layer.attention.mixer, [None] * len(self.segments)
        if mixer.segment_states is not None:
            sent = [mixer.segment_states(layer.normed(x), layout) for x, layout in self.with_layouts(layer, count)]
            border_states = mixer.pass_states(sent)
        for (segment, layout), states in zip(self.with_layouts(layer, count), border_states, strict=True):
            layout.border_states = states
            segment.copy_(layer(segment, layout))


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
            ids, types, positions = (None if x is None else x.expand_as(is_real)[row : row + 1, real] for x in inputs)
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
