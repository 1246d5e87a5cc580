# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Softmax attention, in the backbone of LION: over all tokens (SPEC §9), that of BERT and ViT, computed by the library's
own functions; and over those in a window (SPEC §12), computed in time linear in the length.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedConfig
from transformers.masking_utils import (
    ALL_MASK_ATTENTION_FUNCTIONS,
    create_bidirectional_mask,
    create_bidirectional_sliding_window_mask,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as ATTENTION_FUNCTIONS_OF_TRANSFORMERS
from transformers.utils import logging

from ..attention.implementation_names import softmax_name
from ..attention.numerics import is_readable
from ..attention.packing import sequence_of_each_token
from ..attention.softmax_window import dense_window_mask, sliding_attention, window_positions
from ..layout.rotary import PositionEmbeddings, rotate
from .linear import Mixer
from .short_conv import BorderTaps, Halo, reach_of


logger = logging.get_logger(__name__)


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
    The form that returns its weights, with the arguments of the library's attention functions.

    Args:
        query: `(batch, heads, queries, head_dim)`; key, value: `(batch, heads, keys, head_dim)`.
        attention_mask: `(batch or 1, 1, queries or 1, keys)`, False or below 0 for keys that a query doesn't see.

    Returns:
        The output `(batch, queries, heads, head_dim)` and the weights `(batch, heads, queries, keys)`: 0 for a query
        that sees no key.
    """
    scores = scaling * query @ key.transpose(-1, -2)
    if attention_mask is None:
        weights = scores.softmax(-1)
    else:
        seen = attention_mask if attention_mask.dtype == torch.bool else attention_mask >= 0
        weights = scores.masked_fill(~seen, torch.finfo(scores.dtype).min).softmax(-1) * seen
    return (weights @ value).transpose(1, 2), weights


@dataclass
class MaskConfig:
    """What the library reads of a configuration to make a mask."""

    _attn_implementation: str
    sliding_window: int | None


def check_mask_function(implementation: str) -> None:
    """Raise a ValueError for an attention function whose kind of mask the library does not know."""
    if implementation not in ALL_MASK_ATTENTION_FUNCTIONS:
        raise ValueError(
            f'There is no mask function for `attn_implementation="{implementation}"`, so padded or packed tokens, or '
            "those outside of a window, would be seen: register one with AttentionMaskInterface.register, or choose "
            "another."
        )


class SoftmaxMixer(Mixer):
    """y_i = Σ_j softmax_j(q_i·k_j / √D) v_j, all tokens to all tokens, in quadratic time."""

    attention_functions = None  # which of the library's can compute it: all of them
    sliding_window = None  # tokens seen on each side: all

    def __init__(self, config: PreTrainedConfig, layer_idx: int = 0):
        super().__init__(config, layer_idx)
        self.config = config
        self.scaling = config.head_dim**-0.5
        self.is_causal = False  # read by the library's functions

    @staticmethod
    def layer_mask(
        config: PreTrainedConfig, hidden_states: Tensor, is_real: Tensor | None, cu_seqlens: Tensor | None
    ) -> Tensor | None:
        """
        What layers get as `attention_mask`, in the form that the chosen attention function takes; made once per model
        call.

        Args:
            hidden_states: `(batch, length, hidden_size)`.
            is_real: of `real_tokens` (layout/padding.py).
            cu_seqlens: borders of packed sequences, `(num_sequences + 1,)`, or `None`.
        """
        implementation = softmax_name(config._attn_implementation)
        if is_real is None and cu_seqlens is None:
            return None
        check_mask_function(implementation)
        if implementation != config._attn_implementation:
            config = MaskConfig(implementation, config.sliding_window)
        if cu_seqlens is None:
            if implementation in ("eager", "sdpa") and is_real is not None and not is_readable(is_real):
                return is_real[:, None, None]  # the library would ask for its values
            return create_bidirectional_mask(config, hidden_states, is_real)
        if "flash" in implementation:  # told by the borders
            if is_real is not None:
                raise ValueError(
                    f'"{implementation}" takes packed sequences or padded ones, not both: leave the padding out.'
                )
            return None
        sequence = sequence_of_each_token(cu_seqlens, hidden_states.shape[1])
        if implementation in ("eager", "sdpa"):
            seen = (sequence.unsqueeze(1) == sequence)[None, None]
            return seen if is_real is None else seen & is_real[:, None, None]
        return create_bidirectional_mask(
            config, hidden_states, is_real, and_mask_function=lambda b, h, q, k: sequence[q] == sequence[k]
        )

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        memory: None = None,
        output_attentions: bool = False,
        cu_seq_lens_q: Tensor | None = None,
        position_embeddings: PositionEmbeddings | None = None,
        **kwargs,
    ) -> tuple[Tensor, Tensor | None, None]:
        """
        Args:
            hidden_states: `(batch, length, hidden_size)`.
            attention_mask: of `layer_mask`.
            memory: passed on.
            position_embeddings: of `LionRotaryEmbedding`, `None` without rotary positions.

        Returns:
            The mixed values `(batch, length, hidden_size)`, the weights `(batch, heads, length, length)` if asked for,
            and `memory`.
        """
        query, key, value = self.project(hidden_states, position_embeddings)
        packing = {}
        if cu_seq_lens_q is not None and "flash" in self.config._attn_implementation:  # others are told by the mask
            longest = cu_seq_lens_q.diff().max()
            packing = {
                "cu_seq_lens_q": cu_seq_lens_q.int(),
                "cu_seq_lens_k": cu_seq_lens_q.int(),
                "max_length_q": longest,
                "max_length_k": longest,
            }
        output, weights = self.attend(query, key, value, attention_mask, output_attentions, **packing)
        return output, weights, memory

    def project(self, hidden_states: Tensor, position_embeddings: PositionEmbeddings | None) -> tuple[Tensor, ...]:
        """Queries, keys and values, `(batch, heads, length, head_dim)`."""
        query, key, value = (self.split_heads(proj(hidden_states)) for proj in (self.q_proj, self.k_proj, self.v_proj))
        return *rotate(query, key, position_embeddings, heads_dim=1), value

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, attention_mask, output_attentions: bool, **packing
    ) -> tuple[Tensor, Tensor | None]:
        """The library's function, of `(batch, heads, length, head_dim)` to `(batch, length, hidden_size)`."""
        implementation = softmax_name(self.config._attn_implementation)
        attention = ATTENTION_FUNCTIONS_OF_TRANSFORMERS.get_interface(implementation, eager_softmax)
        output, weights = attention(
            self,
            query,
            key,
            value,
            attention_mask,
            scaling=self.scaling,
            dropout=0.0,
            is_causal=False,
            # Read by flash attention, whose window leaves out its last token.
            sliding_window=None if self.sliding_window is None else self.sliding_window + 1,
            **packing,
        )
        if weights is None and output_attentions:
            if packing and attention_mask is None or not isinstance(attention_mask, Tensor | None):
                raise ValueError(
                    f'"{implementation}" has no attention weights for these inputs: choose '
                    '`attn_implementation="eager"` for `output_attentions=True`.'
                )
            logger.warning_once(
                f'"{implementation}" has no attention weights: they are computed once more by the eager form, which '
                "takes time and memory quadratic in the length."
            )
            if attention_mask is not None and attention_mask.dim() == 2:  # of flash attention
                attention_mask = attention_mask[:, None, None].bool()
            _, weights = eager_softmax(self, query, key, value, attention_mask, self.scaling)
        return output.flatten(2), weights


class SlidingMixer(SoftmaxMixer):
    """
    `SoftmaxMixer` over the tokens |i - j| <= `sliding_window`, in linear time (attention/softmax_window.py).
    The library's own functions are taken where they are asked for: "eager", or such as skip what a mask hides.
    """

    def __init__(self, config: PreTrainedConfig, layer_idx: int = 0):
        super().__init__(config, layer_idx)
        self.window = self.sliding_window = config.sliding_window
        self.reach = reach_of(config, "sliding_attention")

    @staticmethod
    def layer_mask(config, hidden_states, is_real, cu_seqlens) -> Tensor | None:
        """`SoftmaxMixer.layer_mask`; which tokens are real, where our own function computes."""
        implementation = softmax_name(config._attn_implementation)
        if implementation == "sdpa":
            return is_real
        if implementation == "eager":
            return dense_window_mask(hidden_states, config.sliding_window, is_real, cu_seqlens)
        check_mask_function(implementation)
        if "flash" in implementation:  # is told the window, and counts real tokens
            return SoftmaxMixer.layer_mask(config, hidden_states, is_real, cu_seqlens)
        if is_real is None and cu_seqlens is None:
            return create_bidirectional_sliding_window_mask(config, hidden_states, None)
        # The library's windows count padded tokens.
        batch, length = hidden_states.shape[:2]
        position = window_positions(hidden_states, is_real, cu_seqlens).expand(batch, -1)
        borders = hidden_states.new_zeros(1, dtype=torch.long) if cu_seqlens is None else cu_seqlens
        sequence = sequence_of_each_token(borders, length)

        def is_in_window(b, h, q, k):
            return ((position[b, q] - position[b, k]).abs() <= config.sliding_window) & (sequence[q] == sequence[k])

        return create_bidirectional_mask(config, hidden_states, is_real, and_mask_function=is_in_window)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        memory: None = None,
        output_attentions: bool = False,
        cu_seq_lens_q: Tensor | None = None,
        position_embeddings: PositionEmbeddings | None = None,
        neighbours: BorderTaps | Halo | None = None,
    ) -> tuple[Tensor, Tensor | None, None]:
        """
        `SoftmaxMixer.forward`, also of a segment of a longer sequence.

        Args:
            neighbours: the hidden states on both sides of the segment (mixers/short_conv.py). `position_embeddings`
            are then
                for them, too, and `attention_mask` says which tokens of the segment are real.
        """
        is_segment = isinstance(neighbours, Halo)
        if not is_segment and softmax_name(self.config._attn_implementation) != "sdpa":
            return super().forward(
                hidden_states, attention_mask, memory, output_attentions, cu_seq_lens_q, position_embeddings
            )
        is_real, first, length = attention_mask, 0, hidden_states.shape[1]
        if is_segment:
            first = neighbours.before.shape[1]
            hidden_states, is_real = neighbours.extend(hidden_states, is_real)
        query, key, value = self.project(hidden_states, position_embeddings)
        output = sliding_attention(
            query[:, :, first : first + length],
            key,
            value,
            sliding_window=self.sliding_window,
            scaling=self.scaling,
            is_real=is_real,
            cu_seqlens=cu_seq_lens_q,
            first_query=first,
        )
        weights = None
        if output_attentions and not is_segment:
            logger.warning_once(
                "Attention in a window has no attention weights: they are computed once more by the eager form, which "
                "takes time and memory quadratic in the length."
            )
            mask = dense_window_mask(hidden_states, self.sliding_window, is_real, cu_seq_lens_q)
            _, weights = eager_softmax(self, query, key, value, mask, self.scaling)
        return output.flatten(2), weights, memory
