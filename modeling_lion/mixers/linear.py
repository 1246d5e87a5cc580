# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The base class of linear mixers, which compute the queries, keys, values and log decays of `lion_attention`; and
LION-LIT, which has no decays.
"""

from collections.abc import Callable
from functools import partial

from torch import Tensor
from transformers import PreTrainedConfig

from configuration_lion.registry import find_feature_map

from ..attention.decay_mask import NO_DECAY, LogDecay, check_decay_shape
from ..attention.implementation_names import FORMS
from ..attention.lion_attention import DECAYS_ONLY, lion_attention
from ..attention.numerics import without_autocast
from ..attention.plan import CallPlan, planned
from ..sequence.border_states import BorderStates, Joins, segment_attention, segment_states
from ..sequence.conv_borders import ConvBorders
from ..sequence.halo import WithHalo, reach_of
from ..sequence.layout import Layout, PositionEmbeddings
from ..sequence.rotary import rotate
from ..sequence.tiles import TokenTile
from .mixer import AttentionCall, Mixer, register_mixer, warn_of_weights
from .short_conv import ShortConv, fused_convolution


def forms_of(operator: Callable) -> dict[str, Callable]:
    """`Mixer.forms` for a function with an argument `form`, such as `lion_attention`."""
    return {name: partial(operator, form=name) for name in (*FORMS, "eager")}


class LinearMixer(Mixer):
    """
    The base class of linear mixers, which differ in `log_decay`. The names of learnt decays begin with "decay": these
    parameters stay in float32, also in half precision and under quantizers.

    Mixers fold padding into keys and log decays (`Tokens.fold`), so that attention needs no mask. A mixer that uses
    another function than `lion_attention` sets `needs` and `forms` (`forms_of`); for each name in `needs` after
    "log_decay", a method of that name computes the input from the hidden states.
    """

    is_linear = has_decays = has_heads_first = has_scans = has_rotary_positions = shares_sequences = True
    forms = forms_of(lion_attention)
    needs = DECAYS_ONLY
    joins = Joins(segment_states, segment_attention)
    choices = {"normalization": ("sum", "none")}

    def __init__(self, config: PreTrainedConfig, layer_idx: int = 0):
        super().__init__(config, layer_idx)
        self.key_dim, self.heads_per_key = config.key_dim, config.key_dim // config.head_dim
        feature_map = find_feature_map(config.feature_map)
        sizes = config.num_attention_heads // self.heads_per_key, config.key_dim
        # A learnt map has different weights for queries and keys.
        self.feature_map = feature_map.function(*sizes) if feature_map.is_learnt else feature_map.function
        self.key_feature_map = feature_map.function(*sizes) if feature_map.is_learnt else None
        # Kept here, since reading a field of a configuration takes as long as a small operation.
        self.normalization, self.chunk_size = config.normalization, config.chunk_size
        self.head_directions, self.num_scans = config.head_directions, config.num_scans
        self.reach = reach_of(config, "linear_attention")
        sizes = config.hidden_size, config.conv_kernel
        self.q_conv, self.k_conv, self.v_conv = (
            ShortConv(*sizes, dim) if config.conv_kernel else None
            for dim in (config.key_dim, config.key_dim, self.head_dim)
        )

    def forward(self, hidden_states: Tensor, layout: Layout, attention: Callable | None = None) -> AttentionCall:
        """
        `Mixer.forward`. The inputs are query and key after the feature map, value, and the log decays of `scans *
        heads` heads. A scan is an order in which tokens are read (sequence/scans.py); each scan has its own decays.
        """
        around = layout.with_halo(hidden_states, self.reach)
        query, key, value = self.features(around, layout)
        if self.head_directions == "alternate" and query.shape[2] % 2:
            raise ValueError(
                f"`head_directions` is 'alternate', and tensor parallelism leaves {query.shape[2]} heads to a "
                "process: give every process an even number of heads."
            )
        log_decay = self.log_decay(hidden_states)
        if log_decay is not None:
            batch, length, heads, _ = query.shape
            check_decay_shape(f"{type(self).__name__}.log_decay", log_decay, batch, self.num_scans * heads, length)
        key, log_decay = layout.tokens.fold(key, log_decay)
        log_decay = NO_DECAY if log_decay is None else LogDecay(log_decay, log_decay)
        others = (getattr(self, name)(hidden_states) for name in self.needs[1:]) if self.needs else ()
        inputs = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), log_decay, *others
        attention = None if attention is None else self.bound(attention, layout)
        return AttentionCall(attention, inputs)

    def bound(self, attention: Callable, layout: Layout) -> Callable:
        """A form of attention, bound to a layout and to the options of the configuration."""
        return partial(
            layout.along(attention, self.joins),
            normalization=self.normalization,
            chunk_size=self.chunk_size,
            cu_seqlens=layout.tokens.cu_seqlens,
            head_directions=self.head_directions,
            plan=layout.plan,
        )

    def segment_states(self, hidden_states: Tensor, layout: Layout) -> BorderStates:
        """The states that a segment sends to the others."""
        return self.joins.segment_states(*self(hidden_states, layout).inputs[1:], self.head_directions)

    def weights(self, call: AttentionCall, layout: Layout) -> Tensor | None:
        if "eager" not in self.forms:
            return super().weights(call, layout)
        warn_of_weights(f'The "{self.config._attn_implementation}" kernel')
        return self.bound(self.forms["eager"], layout)(*call.inputs)[1]

    def features(self, around: WithHalo, layout: Layout) -> list[Tensor]:
        """Queries and keys after the feature map, and values, without the halo, `(batch, length, heads, ...)` each."""
        tables = layout.rotary_tables.get(self.layer_type)
        has_order = self.q_conv is not None and around.tokens.order is not None  # reordering needs all tokens
        if has_order or not layout.has_tiles:
            return self.features_of(around, layout.conv_borders, tables, layout.plan)

        def of_tile(tile: TokenTile) -> list[Tensor]:
            some, borders = around.tile(tile, self.config.conv_kernel // 2), layout.conv_borders
            if borders is not None:
                borders = borders.between(tile.first - some.before, tile.end + some.after)
            return self.features_of(some, borders, tile.of_tables(tables), layout.plan)

        return layout.by_tile(of_tile, around.own(around.hidden_states))

    def features_of(
        self,
        around: WithHalo,
        conv_borders: ConvBorders | None,
        tables: PositionEmbeddings | None,
        plan: CallPlan | None,
    ) -> list[Tensor]:
        """`features` of some tokens, which come with the halo that the convolution needs."""
        hidden_states, tokens, *_ = around
        if self.q_conv is not None:  # before the projections, to reorder one tensor instead of three
            hidden_states = tokens.reordered(hidden_states)
        query, key, value = self.q_proj(hidden_states), self.k_proj(hidden_states), self.v_proj(hidden_states)
        with without_autocast(hidden_states):  # on a GPU it would cast only queries and keys to float32
            if self.q_conv is None:
                query, key = query.unflatten(-1, (-1, self.key_dim)), key.unflatten(-1, (-1, self.key_dim))
                value = value.unflatten(-1, (-1, self.head_dim))
            else:
                query, key, value = map(tokens.contiguous().zero_padding, (query, key, value))
                # Passed by name, since hooks expect positional arguments to be tensors.
                options = {"borders": conv_borders}
                if {*map(type, (self.q_conv, self.k_conv, self.v_conv))} == {ShortConv}:  # others may wrap one
                    options["fused"] = planned(plan, fused_convolution, query)
                query, key = self.q_conv(query, **options), self.k_conv(key, **options)
                value = self.v_conv(value, **options)
                query, key, value = map(tokens.restored, (query, key, value))
            query, key, value = map(around.own, (query, key, value))
            query, key = self.map_features(*rotate(query, key, tables, heads_dim=2))
        if self.heads_per_key > 1:
            query, key = (x.repeat_interleave(self.heads_per_key, dim=2) for x in (query, key))
        return [query, key, value]

    def map_features(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Apply the feature map to queries and keys, `(batch, length, heads, ...)` each."""
        query, key = self.feature_map(query), (self.key_feature_map or self.feature_map)(key)
        if self.normalization == "none" and (width := query.shape[-1]) != self.key_dim:
            # s is D^-½ with the dimension of the head (SPEC §1), and kernels know the width of φ only.
            query = query * (width / self.key_dim) ** 0.5
        return query, key

    def log_decay(self, hidden_states: Tensor) -> Tensor | None:
        """
        log λ of each token, for both directions.

        Args:
            hidden_states: `(batch, length, hidden_size)`.

        Returns:
            `(heads,)` or `(batch, heads, length)`, float32 or float64, at most 0; `None` without decays.
        """
        raise TypeError(f"{type(self).__name__} has no log_decay.")


@register_mixer
class LitMixer(LinearMixer):
    """LION-LIT, the bidirectional Linear Transformer without decays (SPEC §2), for speed and for converted models."""

    name, title = "lit", "LION-LIT"
    description = "without decay, the Linear Transformer read both ways"
    has_decays = False
    tensor_parallel_plan = {}

    def log_decay(self, hidden_states: Tensor) -> None:
        return None

    @staticmethod
    def decay_of_keys(num_heads: int, head_dim: int) -> None:
        return None
