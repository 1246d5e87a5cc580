# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Rotary positions (SPEC §12; Su et al., RoFormer, 2021): queries and keys turned by angles that grow with the position.
Frequencies and rotation are transformers', for every `rope_type` whose frequencies are the same in every batch.
"""

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers.models.phi.modeling_phi import apply_rotary_pos_emb

from ..attention.decay import wide_dtype
from ..attention.numerics import accumulation_dtype
from ..private_apis import phi_rotary_embedding
from .halo import reach_of
from .layout import Layout, PositionEmbeddings


class LionRotaryEmbedding(phi_rotary_embedding()):
    """
    Cosines and sines of the angles at given positions, for one type of layers. transformers makes the frequencies, and
    by the name of this class it knows to make them again where a model is loaded by way of the meta device.
    """

    def _apply(self, fn, recurse: bool = True):
        # A model cast to half precision keeps its frequencies: rounded, the 500th token would be a radian off.
        inv_freq = self.inv_freq
        super()._apply(fn, recurse)
        if self.inv_freq.dtype in (torch.bfloat16, torch.float16):
            self.inv_freq = inv_freq.to(self.inv_freq.device)
        return self

    @torch.no_grad()
    def forward(self, x: Tensor, position_ids: Tensor) -> PositionEmbeddings:
        """
        Args:
            x: of the dtype and on the device of the hidden states.
            position_ids: `(batch or 1, length)`.

        Returns:
            cos and sin, `(batch or 1, length, rotary_dim)`, float32 (float64 for float64). The angles are float64
            where the device has it: in float32, those of the millionth token would be off by hundredths.
        """
        wide, dtype = wide_dtype(x.device), accumulation_dtype(x.dtype)
        angles = position_ids.unsqueeze(-1).to(x.device, wide) * self.inv_freq.to(x.device, wide)
        tables = ((table * self.attention_scaling).to(dtype) for table in (angles.cos(), angles.sin()))
        return tuple(torch.cat((table, table), dim=-1) for table in tables)


class LionRotaryEmbeddings(nn.ModuleDict):
    """A `LionRotaryEmbedding` for each type of layers in the model that has rotary positions."""

    def __init__(self, config: PreTrainedConfig):
        configs = {layer_type: config.rope_config(layer_type) for layer_type in sorted(config.layer_types_in_use)}
        super().__init__({layer_type: LionRotaryEmbedding(own) for layer_type, own in configs.items() if own})
        has_window = {"sliding_attention": True, "linear_attention": config.local_window > 0}
        self.reach = {layer_type: reach_of(config, layer_type) for layer_type in self if has_window.get(layer_type)}

    def forward(self, x: Tensor, layout: Layout) -> dict[str, PositionEmbeddings]:
        """By type of layers, for the tokens of a layout and those around them that layers with a window see."""
        return {
            layer_type: self.of_layer(layer_type, x, layout.positions_around(self.reach.get(layer_type, 0)))
            for layer_type in self.keys()
        }

    def of_layer(self, layer_type: str, x: Tensor, position_ids: Tensor) -> PositionEmbeddings | None:
        """Those of one type of layers, `None` if they have none."""
        return self[layer_type](x, position_ids) if layer_type in self else None


def rotate(
    query: Tensor, key: Tensor, position_embeddings: PositionEmbeddings | None, heads_dim: int
) -> tuple[Tensor, Tensor]:
    """
    Queries and keys, `(..., head_dim)`, turned by their positions, computed in the dtype of the tables and returned in
    their own. Channels from `rotary_dim` on stay as they are. `None`: layers without rotary positions.

    Args:
        heads_dim: the dimension of the heads, 1 or 2.
    """
    if position_embeddings is None:
        return query, key
    rotary_dim = position_embeddings[0].shape[-1]
    turned, rest = zip(*(x.tensor_split((rotary_dim,), dim=-1) for x in (query, key)), strict=True)
    turned = apply_rotary_pos_emb(*turned, *position_embeddings, unsqueeze_dim=heads_dim)
    query, key = (x.to(query.dtype) for x in turned)
    if rest[0].shape[-1]:
        query, key = (torch.cat(parts, dim=-1) for parts in zip((query, key), rest, strict=True))
    return query, key
