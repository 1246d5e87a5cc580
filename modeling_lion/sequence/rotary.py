# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Rotary positions (SPEC §12; Su et al., RoFormer, 2021) rotate queries and keys by angles proportional to the position,
with transformers' frequencies and rotation. Frequencies that depend on the length ("dynamic", "longrope") use the
length of each text, so that padding, packing and other texts have no effect (SPEC §4). transformers uses the longest
so far.
"""

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.phi.modeling_phi import apply_rotary_pos_emb

from configuration_lion.configuration_lion import SCALED_BY_LENGTH

from ..attention.decay_mask import wide_dtype
from ..attention.numerics import accumulation_dtype
from ..private_apis import phi_rotary_embedding
from .layout import Layout, PositionEmbeddings


class LionRotaryEmbedding(phi_rotary_embedding()):
    """
    Cosines and sines of the rotation angles for one layer type. transformers computes the frequencies; it recognises
    this class by its name, to recompute them in a model that was loaded on the meta device.

    Attributes:
        reach: the number of tokens on each side of a segment that a window reads, and whose angles it needs.
    """

    def __init__(self, config: PreTrainedConfig, layer_type: str | None = None, **kwargs):
        super().__init__(config, **kwargs)  # `device`, before transformers 5.23
        self.reach = config.sliding_window if layer_type == "sliding_attention" else 0

    def _apply(self, fn, recurse: bool = True):
        # Frequencies stay float32 in half precision: with rounded ones, token 500 would be off by a radian.
        inv_freq = self.inv_freq
        super()._apply(fn, recurse)
        if self.inv_freq.dtype in (torch.bfloat16, torch.float16):
            self.inv_freq = inv_freq.to(self.inv_freq.device)
        return self

    @torch.no_grad()
    def forward(self, x: Tensor, position_ids: Tensor, sequence_lengths: Tensor | None = None) -> PositionEmbeddings:
        """
        cos and sin, `(batch or 1, length, rotary_dim)`, float32 (float64 for float64), for the dtype and device of
        `x`. Angles are computed in float64 if the device supports it: in float32, that of the millionth token would be
        off by hundredths. `sequence_lengths` are those of `Layout`; `None` for one sequence per row.
        """
        wide, dtype = wide_dtype(x.device), accumulation_dtype(x.dtype)
        if sequence_lengths is None:
            sequence_lengths = position_ids.amax(dim=1, keepdim=True) + 1
        inv_freq = self.frequencies(sequence_lengths).to(x.device, wide)
        angles = position_ids.unsqueeze(-1).to(x.device, wide) * inv_freq
        tables = ((table * self.attention_scaling).to(dtype) for table in (angles.cos(), angles.sin()))
        return tuple(torch.cat((table, table), dim=-1) for table in tables)

    def frequencies(self, sequence_lengths: Tensor) -> Tensor:
        """`(rotary_dim / 2,)` or, if they depend on the length, `(batch or 1, length or 1, rotary_dim / 2)`."""
        if self.rope_type not in SCALED_BY_LENGTH:
            return self.inv_freq
        lengths, frequencies = sequence_lengths.unsqueeze(-1), ROPE_INIT_FUNCTIONS[self.rope_type]
        if self.rope_type == "dynamic":
            return frequencies(self.config, lengths.device, seq_len=lengths)[0]
        trained = self.config.rope_parameters["original_max_position_embeddings"]
        short, long = (frequencies(self.config, lengths.device, seq_len=n)[0] for n in (trained, trained + 1))
        return torch.where(lengths > trained, long, short)


def rotary_embeddings(config: PreTrainedConfig) -> nn.ModuleDict:
    """A `LionRotaryEmbedding` for each layer type of the model that has rotary positions."""
    configs = {layer_type: config.rope_config(layer_type) for layer_type in sorted(config.layer_types_in_use)}
    return nn.ModuleDict({name: LionRotaryEmbedding(own, name) for name, own in configs.items() if own is not None})


def rotary_tables(embeddings: nn.ModuleDict, x: Tensor, layout: Layout) -> dict[str, PositionEmbeddings]:
    """Cosines and sines by layer type, for the tokens of a layout and of the halo that a window reads."""
    return {
        layer_type: embedding(x, layout.positions_around(embedding.reach), layout.sequence_lengths)
        for layer_type, embedding in embeddings.items()
    }


def rotate(
    query: Tensor, key: Tensor, position_embeddings: PositionEmbeddings | None, heads_dim: int
) -> tuple[Tensor, Tensor]:
    """
    Rotate queries and keys, `(..., head_dim)`, by their positions, in the dtype of the tables. Without tables, return
    them unchanged. The result has the dtype of the query. Channels from `rotary_dim` on are not rotated. `heads_dim`
    is 1 or 2.
    """
    if position_embeddings is None:
        return query, key
    rotary_dim = position_embeddings[0].shape[-1]
    rotated, rest = zip(*(x.tensor_split((rotary_dim,), dim=-1) for x in (query, key)), strict=True)
    rotated = apply_rotary_pos_emb(*rotated, *position_embeddings, unsqueeze_dim=heads_dim)
    query, key = (x.to(query.dtype) for x in rotated)
    if rest[0].shape[-1]:
        query, key = (torch.cat(parts, dim=-1) for parts in zip((query, key), rest, strict=True))
    return query, key
