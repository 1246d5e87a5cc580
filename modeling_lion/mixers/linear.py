# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What mixes tokens in a layer. There are two kinds of mixers.

A linear mixer makes queries, keys, values and log decays, and `lion_attention` computes with them: LION-LIT is
`LinearMixer` itself, and its subclasses decay (mixers/linear_decay.py). Any other mixer computes by itself, and its
forward gives the mixed values (mixers/softmax.py, mixers/luna.py).
"""

from torch import Tensor, nn
from transformers import PreTrainedConfig

from ..attention.decay import NO_DECAY, LogDecay
from ..attention.numerics import without_autocast
from ..layout.padding import make_padding_absent
from ..layout.rotary import PositionEmbeddings, rotate
from .feature_map import FEATURE_MAPS, Hedgehog
from .local_window import LocalWindow
from .short_conv import BorderTaps, Halo, ShortConv, absent, reach_of


class Mixer(nn.Module):
    """
    The projections to queries, keys and values.

    Attributes:
        reach: how many tokens on each side of a segment of a longer sequence it has to see (layout/segments.py).
        window: how many tokens on each side of a token it sees with softmax, if it has a window.
    """

    reach = window = 0

    def __init__(self, config: PreTrainedConfig, layer_idx: int = 0):
        super().__init__()
        self.head_dim = config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=config.qkv_bias)
        self.k_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=config.qkv_bias)
        self.v_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=config.qkv_bias)

    def split_heads(self, x: Tensor) -> Tensor:
        """`(batch, length, hidden_size)` to `(batch, heads, length, head_dim)`."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)


class LinearMixer(Mixer):
    """
    LION-LIT, where nothing decays (SPEC §2): the bidirectional Linear Transformer. The base of all linear mixers.

    This is also where padding ends: from here on a padded token is one without effect (layout/padding.py). A subclass
    that decays overrides `log_decay` and has "decay" in the names of its parameters.
    """

    def __init__(self, config: PreTrainedConfig, layer_idx: int = 0):
        super().__init__(config, layer_idx)
        feature_map, sizes = FEATURE_MAPS[config.feature_map], (config.num_attention_heads, config.head_dim)
        self.feature_map = feature_map(*sizes) if isinstance(feature_map, type) else feature_map
        # What is learnt differs for queries and keys.
        self.key_feature_map = Hedgehog(*sizes) if feature_map is Hedgehog else None
        self.head_directions = config.head_directions
        self.window = config.local_window
        self.window_gate = nn.Linear(config.hidden_size, config.num_attention_heads) if self.window else None
        self.reach = reach_of(config, "linear_attention")
        sizes = config.hidden_size, config.conv_kernel
        self.q_conv, self.k_conv, self.v_conv = (ShortConv(*sizes) if config.conv_kernel else None for _ in range(3))

    def forward(
        self,
        hidden_states: Tensor,
        is_real: Tensor | None = None,
        neighbours: BorderTaps | Halo | None = None,
        position_embeddings: PositionEmbeddings | None = None,
    ) -> tuple[Tensor, Tensor, Tensor, LogDecay, LocalWindow | None]:
        """
        Args:
            hidden_states: `(batch, length, hidden_size)`.
            is_real: `(batch, length)`, bool, False for padding; `None` where nothing is padded.
            neighbours: for a short convolution or a window, of packed sequences, images and segments
            (mixers/short_conv.py). position_embeddings: of `LionRotaryEmbedding`, `None` without rotary positions.
            With a window, also for the
                tokens on both sides of a segment.

        Returns:
            query, key (after the feature map) and value, `(batch, heads, length, head_dim)`, and the log decays, with
            `scans * heads` heads. A scan is one order in which the tokens are read (layout/scans.py); every one has
            decays of its own. And what heads see in their windows, if they have any.
        """
        halo = neighbours if isinstance(neighbours, Halo) else None
        extended, are_real = (hidden_states, is_real) if halo is None else halo.extend(hidden_states, is_real)
        projected = self.project(extended, are_real, borders=neighbours if halo is None else None)
        if halo is not None and not self.window:
            projected = [halo.trim(x) for x in projected]
        query, key, value = (x.unflatten(-1, (-1, self.head_dim)) for x in projected)
        local, gate = None, self.window_gate(hidden_states) if self.window else None
        with without_autocast(hidden_states):  # on a GPU it would widen queries and keys only
            query, key = rotate(query, key, position_embeddings, heads_dim=2)
            if self.window:
                outer_key, outer_value, first = key, value, 0
                if halo is not None:
                    query, key, value = (halo.trim(x) for x in (query, key, value))
                    first = halo.before.shape[1]
                local = LocalWindow(query, outer_key, outer_value, gate, are_real, first, self.window)
            query, key = self.feature_map(query), (self.key_feature_map or self.feature_map)(key)
        if self.head_directions == "alternate" and query.shape[2] % 2:
            raise ValueError(
                f"`head_directions` is 'alternate', and tensor parallelism leaves {query.shape[2]} heads to a "
                "process: give every process an even number of heads."
            )
        log_decay = self.log_decay(hidden_states)
        if is_real is not None:
            key, log_decay = make_padding_absent(key, log_decay, is_real)
        log_decay = NO_DECAY if log_decay is None else LogDecay(log_decay, log_decay)
        return query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), log_decay, local

    def project(self, hidden_states: Tensor, is_real: Tensor | None, borders: BorderTaps | None) -> list[Tensor]:
        """Queries, keys and values, convolved if the mixer does it, `(batch, length, hidden_size)` each."""
        projected = [proj(hidden_states) for proj in (self.q_proj, self.k_proj, self.v_proj)]
        if self.q_conv is None:
            return projected
        pairs = zip(projected, (self.q_conv, self.k_conv, self.v_conv), strict=True)
        return [conv(absent(x, is_real), borders=borders) for x, conv in pairs]

    def log_decay(self, hidden_states: Tensor) -> Tensor | None:
        """log λ of each token, for both directions, in one of the shapes of `LogDecay`; float32 or wider."""
        return None
