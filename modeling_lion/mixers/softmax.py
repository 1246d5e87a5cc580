# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Softmax attention in LION's backbone: over all tokens, as in BERT and ViT, computed by transformers' functions (SPEC
§9), or within a window, in time linear in the length (SPEC §12).
"""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import torch
from torch import Tensor
from transformers import PreTrainedConfig
from transformers.masking_utils import (
    ALL_MASK_ATTENTION_FUNCTIONS,
    create_bidirectional_mask,
    create_bidirectional_sliding_window_mask,
)

from ..attention.implementation_names import softmax_name
from ..attention.softmax_window import dense_window_mask, sliding_attention
from ..attention.tracing import is_readable
from ..sequence.halo import reach_of
from ..sequence.layout import Layout
from ..sequence.rotary import rotate
from ..sequence.tiles import TokenTile
from ..tokens import Tokens
from .mixer import AttentionCall, Mixer, register_mixer, warn_of_weights


def eager_softmax(
    module: torch.nn.Module | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    **kwargs,
) -> tuple[Tensor, Tensor]:
    """
    Softmax attention that returns its weights, with the arguments and results of transformers' attention functions.
    Both results are 0 for a query that sees no key. The mask, `(batch or 1, 1, queries or 1, keys)`, is False or below
    0 for keys that a query does not see.
    """
    scores = scaling * query @ key.transpose(-1, -2)
    if attention_mask is None:
        weights = scores.softmax(-1)
    else:
        seen = attention_mask if attention_mask.dtype == torch.bool else attention_mask >= 0
        weights = scores.masked_fill(~seen, torch.finfo(scores.dtype).min).softmax(-1) * seen
    return (weights @ value).transpose(1, 2), weights


def check_mask_function(implementation: str) -> None:
    """Raise a ValueError for an attention function that has no mask function in transformers."""
    if implementation not in ALL_MASK_ATTENTION_FUNCTIONS:
        raise ValueError(
            f'There is no mask function for `attn_implementation="{implementation}"`, so padded or packed tokens, or '
            "those outside of a window, would be seen: register one with AttentionMaskInterface.register, or choose "
            "another."
        )


@register_mixer
class SoftmaxMixer(Mixer):
    """y_i = Σ_j softmax_j(q_i·k_j / √D) v_j over all tokens, in quadratic time, to compare LION with BERT or ViT."""

    name, title = "softmax", "Softmax attention in the backbone of LION"
    description = "as in BERT and ViT, to compare LION with"
    is_softmax = has_rotary_positions = True
    attention_functions = None  # the functions of transformers that can compute it; `None` for all
    sliding_window = None  # tokens seen on each side; `None` for all

    def __init__(self, config: PreTrainedConfig, layer_idx: int = 0):
        super().__init__(config, layer_idx)
        self.scaling = config.head_dim**-0.5
        self.is_causal = False  # read by transformers' functions

    @staticmethod
    def layer_mask(config: PreTrainedConfig, hidden_states: Tensor, tokens: Tokens) -> Tensor | None:
        """The mask for the chosen attention function, made once per model call for all layers of this type."""
        implementation = softmax_name(config._attn_implementation)
        is_real, cu_seqlens = tokens.is_real, tokens.cu_seqlens
        if is_real is None and cu_seqlens is None:
            return None
        check_mask_function(implementation)
        if implementation != config._attn_implementation:
            config = SimpleNamespace(_attn_implementation=implementation, sliding_window=config.sliding_window)
        if cu_seqlens is None:
            if implementation in ("eager", "sdpa") and is_real is not None and not is_readable(is_real):
                return is_real[:, None, None]  # transformers would read its values
            return create_bidirectional_mask(config, hidden_states, is_real)
        if "flash" in implementation:  # flash attention takes the borders instead
            if is_real is not None:
                raise ValueError(
                    f'"{implementation}" takes packed sequences or padded ones, not both: leave the padding out.'
                )
            return None
        if implementation in ("eager", "sdpa"):
            return tokens.seen(hidden_states, None)
        sequence = tokens.sequence(hidden_states)
        return create_bidirectional_mask(
            config, hidden_states, is_real, and_mask_function=lambda b, h, q, k: sequence[q] == sequence[k]
        )

    def attention_name(self, output_attentions: bool) -> str:
        return softmax_name(self.config._attn_implementation)

    def forward(self, hidden_states: Tensor, layout: Layout, attention: Callable | None = None) -> AttentionCall:
        inputs = self.project(hidden_states, layout)
        attention = None if attention is None else self.bound(attention, layout, layout.masks.get(self.layer_type))
        return AttentionCall(attention, inputs)

    def bound(self, attention: Callable, layout: Layout, mask) -> Callable:
        """An attention function of transformers, bound to the options of this mixer."""
        packing, borders = {}, layout.tokens.cu_seqlens
        if borders is not None and "flash" in self.config._attn_implementation:  # other functions take the mask
            longest, borders = borders.diff().max(), borders.int()
            packing = {"cu_seq_lens_q": borders, "cu_seq_lens_k": borders}
            packing |= {"max_length_q": longest, "max_length_k": longest}
        return partial(
            attention,
            self,
            attention_mask=mask,
            scaling=self.scaling,
            dropout=0.0,
            is_causal=False,
            # For flash attention, whose window excludes its last token.
            sliding_window=None if self.sliding_window is None else self.sliding_window + 1,
            **packing,
        )

    def project(self, hidden_states: Tensor, layout: Layout) -> tuple[Tensor, ...]:
        """Queries, keys and values, `(batch, heads, length, head_dim)`."""
        tables = layout.rotary_tables.get(self.layer_type)

        def of_tile(tile: TokenTile) -> list[Tensor]:
            states, projections = tile.of(hidden_states), (self.q_proj, self.k_proj, self.v_proj)
            query, key, value = (self.split_heads(proj(states)) for proj in projections)
            rotated = rotate(query, key, tile.of_tables(tables), heads_dim=1)
            return [x.transpose(1, 2) for x in (*rotated, value)]

        return tuple(x.transpose(1, 2) for x in layout.by_tile(of_tile, hidden_states))

    def weights(self, call: AttentionCall, layout: Layout) -> Tensor | None:
        """`Mixer.weights`, by the eager form, from the mask of the chosen function."""
        implementation = softmax_name(self.config._attn_implementation)
        mask = call.attention.keywords["attention_mask"]
        is_told_borders = layout.tokens.cu_seqlens is not None and "flash" in implementation
        if is_told_borders and mask is None or not isinstance(mask, Tensor | None):
            raise ValueError(
                f'"{implementation}" has no attention weights for these inputs: choose '
                '`attn_implementation="eager"` for `output_attentions=True`.'
            )
        warn_of_weights(f'"{implementation}"')
        if mask is not None and mask.dim() == 2:  # a mask of flash attention
            mask = mask[:, None, None].bool()
        return eager_softmax(self, *call.inputs, mask, self.scaling)[1]


class SlidingMixer(SoftmaxMixer):
    """`SoftmaxMixer` over |i - j| <= `sliding_window`; for "sdpa" in linear time (attention/softmax_window.py)."""

    has_rotary_positions = shares_sequences = True

    def __init__(self, config: PreTrainedConfig, layer_idx: int = 0):
        super().__init__(config, layer_idx)
        self.window = self.sliding_window = config.sliding_window
        self.reach = reach_of(config, "sliding_attention")

    @staticmethod
    def layer_mask(config, hidden_states, tokens: Tokens) -> Tensor | None:
        """`SoftmaxMixer.layer_mask`; `None` for LION's own function, which takes `tokens`."""
        implementation, reach = softmax_name(config._attn_implementation), config.sliding_window
        if implementation == "sdpa":
            return None
        if implementation == "eager":
            return dense_window_mask(hidden_states, reach, tokens)
        check_mask_function(implementation)
        if "flash" in implementation:  # flash attention takes the window, and counts real tokens
            return SoftmaxMixer.layer_mask(config, hidden_states, tokens)
        if tokens.is_real is None and tokens.cu_seqlens is None:
            return create_bidirectional_sliding_window_mask(config, hidden_states, None)
        # transformers' windows count padded tokens.
        position = tokens.window_positions(hidden_states, reach).expand(hidden_states.shape[0], -1)
        is_in_window = lambda b, h, q, k: (position[b, q] - position[b, k]).abs() <= reach
        return create_bidirectional_mask(config, hidden_states, tokens.is_real, and_mask_function=is_in_window)

    def forward(self, hidden_states: Tensor, layout: Layout, attention: Callable | None = None) -> AttentionCall:
        """`Mixer.forward`, also for a segment of a longer sequence."""
        if not layout.is_segment and softmax_name(self.config._attn_implementation) != "sdpa":
            return super().forward(hidden_states, layout, attention)
        around = layout.with_halo(hidden_states, self.reach)
        query, key, value = self.project(around.hidden_states, layout)
        own = slice(around.before, around.before + hidden_states.shape[1])
        attention = partial(
            sliding_attention,
            sliding_window=self.sliding_window,
            scaling=self.scaling,
            tokens=around.tokens if layout.is_segment else layout.tokens,
            first_query=around.before,
        )
        return AttentionCall(attention, (query[:, :, own], key, value))

    def weights(self, call: AttentionCall, layout: Layout) -> Tensor | None:
        """`Mixer.weights`; `None` in a segment, whose queries also see tokens outside of it."""
        if layout.is_segment:
            return None
        if softmax_name(self.config._attn_implementation) != "sdpa":
            return super().weights(call, layout)
        warn_of_weights("Attention in a window")
        mask = dense_window_mask(call.inputs[0][:, 0], self.sliding_window, layout.tokens)
        return eager_softmax(self, *call.inputs, mask, self.scaling)[1]
