# Copyright 2026 The LION for transformers authors. All rights reserved.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""LION model configuration."""

import copy
from typing import Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig, __version__
from transformers.backbone_utils import BackboneConfigMixin

from .checks import LAYER_TYPES, OF_PREPROCESSORS, ConfigChecks, height_width
from .registry import find_feature_map, find_mixer
from .saving import SavedWithCode


# Defaults of the fields that a mixer may set by `Mixer.defaults`, for mixers that do not.
MIXER_DEFAULTS = {"feature_map": "relu", "normalization": "sum"}
# Rotary types whose frequencies depend on the length of a text.
SCALED_BY_LENGTH = ("dynamic", "longrope")
# `max_position_embeddings` of models without positions. Other libraries expect a positive number, and
# sentence-transformers truncates texts to it.
NO_LIMIT = 2**20


def published_fields(modality: Literal["text", "image"]) -> dict:
    """
    The fields in which the published models (in BERT's or ViT's backbone) differ from the defaults of `LionConfig`.
    Initial decays are not a field: they stay those of `LionConfig`. docs/research/reproduce.md lists other differences
    from the sources.

    Args:
        modality: `"text"` or `"image"`.

    Returns:
        Field names and values. `LionConfig(modality=modality, **published_fields(modality))` is the published LION-S.
    """
    is_text = modality == "text"
    return {
        "feature_map": "silu_norm",
        "head_directions": "both",
        "conv_kernel": 0,
        "norm_position": "post" if is_text else "pre",
        "use_gated_mlp": False,
        "intermediate_size": 3072,
        "pooling": "cls" if is_text else "mean",
    }


@strict
class LionConfig(ConfigChecks, SavedWithCode, BackboneConfigMixin, PreTrainedConfig):
    r"""
    Configuration of a LION encoder (Afzal et al., arXiv 2502.16249) for text or for images.

    One class serves both modalities. The defaults give the recommended model, `lion_preset("lion-text-base")` or, with
    `modality="image"`, `lion_preset("lion-image-base")`. Presets such as `lion_preset("lion-s-text-base")` give the
    published models. Fields with names of BERT and ViT have the same meaning as there. A field whose default is `None`
    takes its value from the modality or the mixer when the configuration is made; the value is then stored.

    Args:
        modality (`"text"` or `"image"`, defaults to `"text"`):
            What the encoder reads: `input_ids` or `pixel_values`.
        mixer_type (`"lit"`, `"decay"`, `"selective"`, `"delta"`, `"softmax"`, `"luna"` or the name of a class given to
            `modeling_lion.register_mixer`, defaults to `"selective"`):
            How the influence of a token decays with distance: not at all (`"lit"`, LION-LIT, the fastest), by one
            learnt rate per head (`"decay"`, LION-D, for images with `patch_order="snake"`), or by a rate computed from
            each token (`"selective"`, LION-S, for text). `"delta"` has the decays of `"selective"`,
            and corrects the value that the state holds under a key instead of adding to it (SPEC §14), for tasks that
            look up earlier tokens. Each of its heads reads in one direction. Its field `largest_beta`, above 0 and at
            most 2 (1 by default), is the largest part of a correction that a token can write. Two mixers serve for
            comparison in the same backbone: `"softmax"` is the attention of BERT and ViT, computed by transformers'
            functions (`attn_implementation` `"eager"`, `"sdpa"`, ...), and `"luna"` packs the tokens into a memory of
            a fixed length and unpacks them (Luna, Ma et al. 2021). These two ignore the fields of linear attention:
            `feature_map`, `normalization`, `head_directions`, `patch_order` and `chunk_size`.
        layer_types (`list[str]`, *optional*):
            The type of each layer, for models that mix linear attention with softmax: `"linear_attention"` (the mixer
            of `mixer_type`), `"sliding_attention"` (softmax over the tokens within `sliding_window`, in time linear in
            the length) or `"full_attention"` (softmax over all tokens). `None` gives all layers the mixer of
            `mixer_type`.
        sliding_window (`int`, *optional*):
            Number of tokens that a layer of type `"sliding_attention"` sees on each side, besides the token itself:
            `|i - j| <= sliding_window`. Padded tokens do not count. In images, tokens are counted along the rows of
            patches, one row after the other, after the CLS token. Defaults to 64 if there are such layers.
        feature_map (`"silu_norm"`, `"elu"`, `"relu"`, `"hedgehog"`, `"silu"`, `"identity"` or a name given to
            `modeling_lion.register_feature_map`, defaults to `"relu"`, for `"delta"` to `"silu"`):
            The map applied to queries and keys. `"relu"` is recommended. The published models use `"silu_norm"`,
            `"elu"` and `"identity"`, which needs `normalization="none"`. `"hedgehog"` is learnt: softmax(±W x), with a
            matrix W for each head and twice as many features as a head has dimensions. It can imitate softmax
            attention, for models that are converted from it. `"delta"` scales the results of every map to length 1.
        num_key_heads (`int`, *optional*):
            Number of query and key heads in linear layers, a divisor of `num_attention_heads`. Each is `hidden_size` /
            `num_key_heads` wide and serves several heads, which keep their own decays and values. The state of a head
            is then `num_attention_heads` / `num_key_heads` times as large, without additional parameters (except those
            of `"hedgehog"`), which helps narrow heads to retrieve earlier tokens. It takes more time, and that many
            times the memory for queries and keys. Triton kernels support widths up to 256. `None` gives every head its
            own query and key.
        normalization (`"sum"`, `"none"` or `"rms"`, *optional*):
            `"sum"` divides each output by the sum of its attention scores, `"none"` scales scores by
            `head_dim ** -0.5`. Defaults to `"sum"`. The mixer `"delta"` supports `"rms"`, its default, which divides
            the output of each head by its root mean square, and `"none"`, which does not divide.
        attention_layer_norm (`bool`, defaults to `False`):
            LayerNorm over the concatenated heads, before the output projection.
        position_embedding_type (`"none"`, `"absolute"` or `"cyclic"`, *optional*):
            Learnt absolute positions, or none. `"cyclic"` (text only) repeats the table of positions in texts that are
            longer than it, so that no text is too long, for models that start from one with absolute positions.
            Defaults to `"none"` for text with a mixer whose decays encode distance or with `rope_parameters`, and
            otherwise to `"absolute"`: for images, and for `"lit"`, `"softmax"` and `"luna"`, which without positions
            are invariant to the order of tokens. With `"none"`, images of any size need no `interpolate_pos_encoding`.
        rope_parameters (`dict`, *optional*):
            Rotary positions, in the format of transformers (`transformers.modeling_rope_utils.RopeParameters`), for
            example `{"rope_theta": 10000.0}`. They rotate queries and keys, in linear attention before the feature
            map. Give one dict for all layers, or one (or `None`) for each layer type: `"linear_attention"` are the
            layers of linear mixers, `"full_attention"` those of `"softmax"`, `"sliding_attention"` those with a window
            (see `layer_types`). Every `rope_type` of transformers is supported. With `"dynamic"` and `"longrope"`, the
            frequencies depend on the length of each text, not on the length of the batch. Text only, and not for
            `"luna"`. Defaults to none.
        norm_position (`"pre"` or `"post"`, defaults to `"pre"`):
            Whether norms come before each block (ViT) or after it (BERT).
        use_gated_mlp (`bool`, defaults to `True`):
            Whether the MLP is gated: down(act(gate(x)) * up(x)). At the same `intermediate_size`, it then has 1.5
            times the weights.
        pooling (`"cls"` or `"mean"`, defaults to `"mean"`):
            How a sequence is reduced to one vector: `"cls"` takes the first token (in texts followed by a dense layer
            and tanh, as in BERT), `"mean"` the mean of all tokens.
        patch_order (`"raster"` or `"snake"`, defaults to `"raster"`):
            The order in which patches are scanned. `"snake"` averages two scans, one along the rows and one along the
            columns, in alternating direction and each with its own decays: the published LION-D♮ and LION-S♮. Images
            only. The mixer `"lit"` ignores it; mixers of your own may refuse it.
        head_directions (`"both"` or `"alternate"`, *optional*):
            Directions in which the heads of linear attention read. With `"both"`, as published, every head sees all
            tokens; without positions and a convolution such a model cannot tell left from right. With `"alternate"`,
            heads 0, 2, … read forward only and heads 1, 3, … backward only, which tells left from right in less time
            and without additional parameters. Defaults to `"alternate"` for an even number of heads.
        mixer_initializer_range (`float`, *optional*):
            Standard deviation of the initial weights of a mixer's projections and of the output projection. `None`
            gives `hidden_size ** -0.5`, which works for models of every width. All other weights use
            `initializer_range`: with BERT's 0.02, queries and keys of small models would be so small that the feature
            map is nearly constant.
        luna_length (`int`, defaults to 16):
            Number of vectors in the memory of the mixer `"luna"`.
        luna_activation (`"softmax"`, `"softplus"` or `"elu"`, defaults to `"softmax"`):
            The map from scores to attention weights when Luna packs tokens; `"softplus"` and `"elu"` are divided by
            their sum. Unpacking always uses softmax.
        luna_tie_kv (`bool`, defaults to `False`):
            Whether keys and values of the mixer `"luna"` share a projection, in each of its two attentions.
        conv_kernel (`int`, *optional*):
            Number of taps of the short convolution of linear mixers, odd, or 0 for none. Before the feature map,
            queries, keys and values of each token become SiLU(Σ_o w_o x_{i+o}), with one filter per channel, centered
            on the token. The convolution does not cross the borders of packed sequences, and skips padded tokens. In
            images it runs along the rows of patches, one row after the other, without the CLS token. Defaults to 3 for
            linear mixers.
        chunk_size (`int`, defaults to 64):
            Number of tokens per chunk with `attn_implementation="chunk"`. It affects speed and memory, not the result.
        encoder fields (`hidden_size`, `num_hidden_layers`, `num_attention_heads`, `intermediate_size`, `hidden_act`,
        `hidden_dropout_prob`, `attention_probs_dropout_prob`, `initializer_range`, `layer_norm_eps`, `qkv_bias`,
        `classifier_dropout`):
            As in BERT and ViT. `layer_norm_eps` defaults to 1e-12 for text and 1e-6 for images.
            `attention_probs_dropout_prob` drops elements of the attention output, so that every kernel supports it.
        max_position_embeddings (`int`, *optional*):
            Size of the table of absolute positions, and so the longest text; 512 by default. With rotary positions,
            the length that the model is trained for: it limits nothing, but scaled frequencies start from it. Without
            positions, and with a cyclic table, no text is too long: the value then moves to `initial_context_length`,
            and this field becomes 2**20.
        initial_context_length (`int`, *optional*):
            Context length over which the initial decays are spread, for models without a table of absolute positions;
            also the size of a cyclic table. Defaults to `max_position_embeddings` if it is given, otherwise to 512.
        text fields (`vocab_size`, `type_vocab_size`, `pad_token_id`):
            As in BERT. With `type_vocab_size` 0 there are no embeddings of token types, and all type ids must be 0.
        sparse_prediction (`bool`, defaults to `False`):
            Whether `LionForMaskedLM` computes the logits of masked tokens only while training. Losses and gradients
            are the same, in less time and memory. Unlike ModernBERT, evaluation returns the logits of all tokens.
        use_cls_token (`bool`, defaults to `True`):
            Whether a CLS token precedes the patches of an image.
        image fields (`image_size`, `patch_size`, `num_channels`, `semantic_loss_ignore_index`, `out_features`,
        `out_indices`):
            As in ViT and BEiT. Sizes are in pixels, a number or (height, width). `out_features` and `out_indices`
            choose what `LionBackbone` returns: `"stem"` (0), `"stage1"` (1), …; the last stage if neither is given.

    Example:

    ```python
    >>> from configuration_lion import LionConfig

    >>> LionConfig(mixer_type="decay", hidden_size=384, num_attention_heads=6).norm_position
    'pre'

    ```"""

    model_type = "lion"

    modality: Literal["text", "image"] = "text"
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 2048
    hidden_act: str = "gelu"
    hidden_dropout_prob: float | int = 0.0
    attention_probs_dropout_prob: float | int = 0.0
    classifier_dropout: float | int | None = None
    initializer_range: float = 0.02
    layer_norm_eps: float | None = None
    qkv_bias: bool = True
    tie_word_embeddings: bool = True

    vocab_size: int = 30522
    max_position_embeddings: int | None = None
    initial_context_length: int | None = None
    type_vocab_size: int = 2
    pad_token_id: int | None = 0
    sparse_prediction: bool = False

    image_size: int | list[int] | tuple[int, int] = 224
    patch_size: int | list[int] | tuple[int, int] = 16
    num_channels: int = 3
    use_cls_token: bool = True
    semantic_loss_ignore_index: int = 255
    _out_features: list[str] | None = None
    _out_indices: list[int] | None = None

    mixer_type: str = "selective"
    layer_types: list[str] | None = None
    sliding_window: int | None = None
    feature_map: str | None = None
    normalization: Literal["sum", "none", "rms"] | None = None
    attention_layer_norm: bool = False
    position_embedding_type: Literal["none", "absolute", "cyclic"] | None = None
    rope_parameters: dict | None = None
    norm_position: Literal["pre", "post"] = "pre"
    use_gated_mlp: bool = True
    pooling: Literal["cls", "mean"] = "mean"
    patch_order: Literal["raster", "snake"] = "raster"
    head_directions: Literal["both", "alternate"] | None = None
    mixer_initializer_range: float | int | None = None
    luna_length: int = 16
    luna_activation: Literal["softmax", "softplus", "elu"] = "softmax"
    luna_tie_kv: bool = False
    num_key_heads: int | None = None
    conv_kernel: int | None = None
    chunk_size: int = 64

    def __post_init__(self, **kwargs):
        # A stored configuration has a version (`from_dict` adds one). The check is here and not in `from_dict`, since
        # configurations within another one are constructed from their stored fields.
        if self.transformers_version is None:
            self.check_names(kwargs)
        else:
            self.drop_deleted_fields(kwargs)
            self.warn_of_names(kwargs)
        mixer = find_mixer(self.mixer_type)
        own_fields = mixer.fields
        if taken := self.__dataclass_fields__.keys() & own_fields:
            raise ValueError(
                f"The mixer {self.mixer_type!r} has `fields` that LionConfig has, too: {', '.join(sorted(taken))}. "
                "Rename them."
            )
        for name, default in own_fields.items():
            setattr(self, name, kwargs.pop(name, default))
        chosen = {name: kwargs.pop(name, None) for name in ("out_features", "out_indices")}
        if any(value is not None for value in chosen.values()):
            self.set_output_features_output_indices(**chosen)
        for name, default in (MIXER_DEFAULTS | mixer.defaults).items():
            if getattr(self, name) is None:
                setattr(self, name, default)
        is_text = self.modality == "text"
        if self.layer_norm_eps is None:
            self.layer_norm_eps = 1e-12 if is_text else 1e-6
        if self.position_embedding_type is None:
            has_order = self.has_decays or self.rope_parameters is not None
            self.position_embedding_type = "none" if is_text and has_order else "absolute"
        if self.head_directions is None:
            can_alternate = self.has_linear_layers and self.num_attention_heads % 2 == 0
            self.head_directions = "alternate" if can_alternate else "both"
        if self.conv_kernel is None:
            self.conv_kernel = 3 if self.has_linear_layers else 0
        if self.sliding_window is None and "sliding_attention" in self.layer_types_in_use:
            self.sliding_window = 64
        self.set_lengths()
        super().__post_init__(**kwargs)

    def set_lengths(self):
        """Set whichever of `initial_context_length` and `max_position_embeddings` was not given."""
        given = self.max_position_embeddings
        if given == NO_LIMIT:
            given = None
        if self.initial_context_length is None or self.has_position_table:
            known = (given, self.initial_context_length, 512)
            self.initial_context_length = next(length for length in known if length is not None)
        if self.has_position_table or given is None and self.has_rotary_positions:
            self.max_position_embeddings = self.initial_context_length
        elif given is None or given > 0 and not self.has_rotary_positions:  # other numbers fail validation
            self.max_position_embeddings = NO_LIMIT

    @classmethod
    def from_dict(cls, config_dict: dict, **kwargs):
        """
        `PreTrainedConfig.from_dict`. Raises a ValueError for unknown names in `kwargs`. Unknown names in
        `config_dict`, which another program or a later version may have written, give a warning only.
        """
        if not kwargs.get("return_unused_kwargs"):  # otherwise some are arguments of the model, which checks them
            cls.check_names(kwargs.keys() - OF_PREPROCESSORS)
        # Pass them to the constructor, which sets the fields that depend on them.
        given = {name: kwargs.pop(name) for name in cls.__annotations__ if name in kwargs}
        if "max_position_embeddings" in given:
            given = {"initial_context_length": None} | given
        cls.check_stored(config_dict)
        return super().from_dict({"transformers_version": __version__} | config_dict | given, **kwargs)

    @property
    def head_dim(self) -> int:
        return self.hidden_size // max(self.num_attention_heads, 1)  # 0 heads fail validation

    @property
    def key_dim(self) -> int:
        """Width of a query or a key in linear layers, before the feature map."""
        return self.hidden_size // max(self.num_key_heads or self.num_attention_heads, 1)

    @property
    def patch_shape(self) -> tuple[int, int]:
        """Patch height and width in pixels."""
        return height_width(self.patch_size)

    @property
    def image_shape(self) -> tuple[int, int]:
        """Image height and width in pixels."""
        return height_width(self.image_size)

    @property
    def patch_grid(self) -> tuple[int, int]:
        """Number of rows and columns of patches in an image of size `image_size`."""
        return self.image_shape[0] // self.patch_shape[0], self.image_shape[1] // self.patch_shape[1]

    @property
    def num_prefix_tokens(self) -> int:
        """Number of tokens before the patches of an image: the CLS token."""
        return 0 if self.modality == "text" else int(self.use_cls_token)

    @property
    def context_length(self) -> int:
        """Number of tokens in a text of the configured length or an image of size `image_size`, CLS included."""
        rows, columns = self.patch_grid
        if self.modality == "image":
            return self.num_prefix_tokens + rows * columns
        length = self.max_position_embeddings if self.has_position_table else self.initial_context_length
        assert length is not None  # `set_lengths` has filled it in
        return length

    @property
    def has_position_table(self) -> bool:
        """Whether a table of absolute positions limits the length of texts."""
        return self.modality == "text" and self.position_embedding_type == "absolute"

    @property
    def has_rotary_positions(self) -> bool:
        """Whether layers of any type have rotary positions."""
        return any(parameters is not None for parameters in self.rope_parameters_by_type.values())

    @property
    def scales_with_length(self) -> bool:
        """Whether the frequencies of rotary positions depend on the length of a text."""
        given = self.rope_parameters_by_type.values()
        return any(parameters is not None and parameters.get("rope_type") in SCALED_BY_LENGTH for parameters in given)

    @property
    def longest_text(self) -> int | None:
        """The most tokens that a text may have; `None` without a limit, and for images."""
        return self.max_position_embeddings if self.has_position_table else None

    @property
    def stage_names(self) -> list[str]:
        """Names of the hidden states before the first layer and after each layer."""
        return ["stem", *(f"stage{n}" for n in range(1, self.num_hidden_layers + 1))]

    def layer_type(self, layer_idx: int) -> str:
        """The type of a layer: `"linear_attention"`, `"sliding_attention"` or `"full_attention"`."""
        if self.layer_types:
            return self.layer_types[layer_idx]
        return "full_attention" if find_mixer(self.mixer_type).is_softmax else "linear_attention"

    @property
    def uses_mixer_type(self) -> bool:
        """Whether any layer has the mixer of `mixer_type`. False if all `layer_types` are softmax."""
        return not self.layer_types or "linear_attention" in self.layer_types

    @property
    def layer_types_in_use(self) -> set[str]:
        return set(self.layer_types or [self.layer_type(0)])

    @property
    def has_linear_layers(self) -> bool:
        """Whether any layer computes linear attention, with LION's kernels."""
        return "linear_attention" in self.layer_types_in_use and find_mixer(self.mixer_type).is_linear

    @property
    def has_softmax_layers(self) -> bool:
        """Whether any layer computes softmax attention, with transformers' functions."""
        return self.layer_types_in_use != {"linear_attention"}

    @property
    def has_decays(self) -> bool:
        """Whether the mixer distinguishes the order of tokens without positions, as decays do."""
        return self.uses_mixer_type and find_mixer(self.mixer_type).has_decays

    @property
    def rope_parameters_by_type(self) -> dict[str, dict | None]:
        """The `rope_parameters` of each layer type; `None` for types without rotary positions."""
        given = self.rope_parameters
        if given and any(name in LAYER_TYPES or isinstance(value, dict) for name, value in given.items()):
            return given
        return dict.fromkeys(self.layer_types_in_use, given)

    def rope_config(self, layer_type: str) -> "LionConfig | None":
        """A copy with the `rope_parameters` of one layer type, `None` if it has no rotary positions."""
        parameters = self.rope_parameters_by_type[layer_type]
        if parameters is None:
            return None
        config = copy.copy(self)
        config.rope_parameters = parameters
        return config

    def convert_rope_params_to_dict(self, **kwargs) -> dict:
        """Fill in the defaults of `rope_parameters`. (transformers' method gives every model rotary positions.)"""
        self.rope_parameters = copy.deepcopy(self.rope_parameters)
        for layer_type, parameters in self.rope_parameters_by_type.items():
            if isinstance(parameters, dict):
                config = self.rope_config(layer_type)
                super(LionConfig, config).convert_rope_params_to_dict()  # type: ignore[misc]  # in place
        return kwargs

    @property
    def num_scans(self) -> int:
        """Number of orders in which a linear layer scans tokens: 2 for a snake and its transpose, otherwise 1."""
        is_one_directional = self.has_linear_layers and self.head_directions == "alternate"
        sees_order = self.has_decays or is_one_directional
        return 2 if self.patch_order != "raster" and sees_order else 1

    @property
    def base_model_tp_plan(self) -> dict[str, str]:
        """
        The tensor-parallel plan of a layer. It splits the MLP by intermediate features, and attention by heads, with
        the decays of each head. Attention is split only if its heads are independent: without a LayerNorm over all
        heads, a second scan, softmax layers, a learnt feature map or shared keys. A short convolution also prevents
        it: transformers can split the last two dimensions of a weight, and those of a convolution are the first.
        """
        plan = {"layers.*.mlp.up_proj": "colwise", "layers.*.mlp.down_proj": "rowwise"}
        if self.use_gated_mlp:
            plan["layers.*.mlp.gate_proj"] = "colwise"
        if self.attention_layer_norm or self.num_scans > 1 or self.conv_kernel or self.has_softmax_layers:
            return plan
        own_parts = find_mixer(self.mixer_type).tensor_parallel_plan
        if own_parts is None or find_feature_map(str(self.feature_map)).is_learnt or self.key_dim != self.head_dim:
            return plan
        mixer = "layers.*.attention.mixer"
        plan |= {f"{mixer}.{name}_proj": "colwise" for name in ("q", "k", "v")}
        plan["layers.*.attention.o_proj"] = "rowwise"
        return plan | {f"{mixer}.{name}": how for name, how in own_parts.items()}

    @base_model_tp_plan.setter
    def base_model_tp_plan(self, plan: dict[str, str]):
        # transformers 5.17 calls this to add a rule for `embed_tokens`, which LION does not have. Users override the
        # plan by DistributedConfig(tp_plan=...).
        pass

    @property
    def base_model_fsdp_plan(self) -> dict[str, str]:
        """The modules that transformers' FSDP2 gathers one at a time."""
        plan = {"layers.*": "free_full_weight"}
        if self.modality == "text":
            plan["embeddings.word_embeddings"] = "free_full_weight"
        if self.norm_position == "pre":
            plan["norm"] = "keep_full_weight"
        return plan

    @property
    def output_attentions(self) -> bool | None:
        return self._output_attentions

    @output_attentions.setter
    def output_attentions(self, value: bool | None):
        # transformers allows this only with "eager". LION returns attention weights with every kernel.
        self._output_attentions = value

    def validate_output_attentions(self):
        """No restriction: see the setter above."""


__all__ = ["LionConfig"]
