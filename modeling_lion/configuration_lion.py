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
import math
import os
from collections.abc import Iterable
from dataclasses import fields
from difflib import get_close_matches
from typing import Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig, __version__
from transformers.activations import ACT2FN
from transformers.backbone_utils import BackboneConfigMixin
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.utils import logging

from .private_apis import default_generation_parameters


logger = logging.get_logger(__name__)


# The model class of each Auto class, by modality. It is saved in config.json (`auto_map`) for processes without this
# package. If several Auto classes have the same model, the last one is the usual one.
AUTO_MODELS = {
    "text": {
        "AutoModelForPreTraining": "LionForMaskedLM",
        "AutoModelForTextEncoding": "LionModel",
        "AutoModel": "LionModel",
        "AutoModelForMaskedLM": "LionForMaskedLM",
        "AutoModelForMultipleChoice": "LionForMultipleChoice",
        "AutoModelForQuestionAnswering": "LionForQuestionAnswering",
        "AutoModelForSequenceClassification": "LionForSequenceClassification",
        "AutoModelForTokenClassification": "LionForTokenClassification",
    },
    "image": {
        "AutoBackbone": "LionBackbone",
        "AutoModel": "LionModel",
        "AutoModelForImageClassification": "LionForImageClassification",
        "AutoModelForMaskedImageModeling": "LionForMaskedImageModeling",
        "AutoModelForSemanticSegmentation": "LionForSemanticSegmentation",
    },
}
# The types of layers, by transformers' names: with the mixer of `mixer_type`, or with softmax attention.
LAYER_TYPES = ("linear_attention", "full_attention", "sliding_attention")
ROPE_TYPES = ("default", *sorted(ROPE_INIT_FUNCTIONS))
# Rotary types whose frequencies depend on the length of a text.
SCALED_BY_LENGTH = ("dynamic", "longrope")


# Names that configurations may have besides their fields, for example arguments of generation.
KNOWN_NAMES = {
    "torch_dtype",
    "attn_implementation",
    "return_unused_kwargs",
    *default_generation_parameters(),
}
# Arguments of AutoTokenizer and AutoImageProcessor, which pass them on to the configuration.
OF_PREPROCESSORS = {
    *("padding_side", "truncation_side", "model_max_length", "tokenizer_type", "vocab", "vocab_file"),
    *(f"{name}_token" for name in ("bos", "cls", "eos", "mask", "pad", "sep", "unk")),
    *("image_mean", "image_std"),
}
# `max_position_embeddings` of models without positions: other libraries expect a positive number, and
# sentence-transformers truncates texts to it.
NO_LIMIT = 2**20
# Fields that have no effect on texts.
IMAGE_FIELDS = (
    "image_size",
    "patch_size",
    "num_channels",
    "use_cls_token",
    "semantic_loss_ignore_index",
)
# Fields of earlier versions, for models that were made of other encoders, with the values of all others.
DELETED_FIELDS = {
    "embedding_size": None,
    "norm_type": "layer_norm",
    "norm_bias": True,
    "first_norm": True,
    "mlp_bias": True,
    "proj_bias": True,
    "use_prediction_head": False,
    "classifier_bias": True,
    "use_lm_transform": True,
    "pooler_norm": False,
    "num_register_tokens": 0,
}
DELETED_POOLINGS = ("late", "cls_mean", "prefix", "attention")
# Values that fields could have in earlier versions.
DELETED_VALUES = {
    "mixer_type": ("diagonal",),
    "feature_map": ("performer", "softmax"),
    "patch_order": ("hilbert", "zigzag"),
    "decay_activation": ("softplus",),
}
# Fields that are left over without these values.
LEFT_OVER_FIELDS = ("decay_activation", "decay_rank")
CONVERT_AGAIN = (
    "An earlier version made such models of other encoders. Make it again of its source, which stays the encoder that "
    "it is: `lion convert <source> <folder>`."
)
# Names of fields in other models, and what to use in LION instead.
OTHER_NAMES = {
    "rope_theta": 'give `rope_parameters={"rope_theta": ...}`.',
    "partial_rotary_factor": 'give `rope_parameters={"rope_theta": ..., "partial_rotary_factor": ...}`.',
    "rope_scaling": "give `rope_parameters`.",
    "global_rope_theta": 'give `rope_parameters={"full_attention": {"rope_theta": ...}, ...}`.',
    "local_rope_theta": 'give `rope_parameters={"sliding_attention": {"rope_theta": ...}, ...}`.',
    "layer_type": "give `layer_types`, one for each layer.",
    "global_attn_every_n_layers": "give `layer_types`, one for each layer.",
    "local_attention": "give `sliding_window`, the tokens on each side, which is half of it.",
    "window_size": "give `sliding_window`, the tokens on each side.",
    "head_dim": "it is `hidden_size` / `num_attention_heads`.",
    "key_dim": "it is `hidden_size` / `num_key_heads`.",
    "num_key_value_heads": "every head has its own value; `num_key_heads` shares queries and keys.",
    "num_kv_heads": "every head has its own value; `num_key_heads` shares queries and keys.",
    "context_length": "give `max_position_embeddings`.",
    "attention_dropout": "give `attention_probs_dropout_prob`.",
    "mlp_dropout": "give `hidden_dropout_prob`.",
    "embedding_dropout": "give `hidden_dropout_prob`.",
    "classifier_pooling": "give `pooling`.",
    "classifier_activation": "give `hidden_act`.",
    "decoder_bias": "the decoder to the vocabulary always has a bias.",
    "attention_bias": "give `qkv_bias`.",
    "hidden_activation": "give `hidden_act`.",
    "norm_eps": "give `layer_norm_eps`.",
    "rms_norm_eps": "give `layer_norm_eps`.",
    "decay_activation": "decays are the sigmoid of their logits: leave it out.",
    "decay_rank": "no mixer has it any more: leave it out.",
    "dropout": "give `hidden_dropout_prob`, `attention_probs_dropout_prob` or both.",
    "n_layer": "give `num_hidden_layers`.",
    "n_layers": "give `num_hidden_layers`.",
    "n_head": "give `num_attention_heads`.",
    "n_heads": "give `num_attention_heads`.",
    "num_heads": "give `num_attention_heads`.",
    "linear_num_key_heads": "give `num_key_heads`.",
    "n_embd": "give `hidden_size`.",
    "d_model": "give `hidden_size`.",
    "dim": "give `hidden_size`.",
    "d_ff": "give `intermediate_size`.",
    "seq_len": "give `max_position_embeddings`.",
    "seq_length": "give `max_position_embeddings`.",
    "pos": "give `position_embedding_type`.",
    "positions": "give `position_embedding_type`.",
}


def published_fields(modality: Literal["text", "image"]) -> dict:
    """
    The fields of LION as published, in BERT's or ViT's backbone, that differ from the defaults of `LionConfig`.

    Args:
        modality: `"text"` or `"image"`.

    Returns:
        Values by field. `LionConfig(modality=modality, **published_fields(modality))` is LION-S as published.
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
class LionConfig(BackboneConfigMixin, PreTrainedConfig):
    r"""
    Configuration of a LION encoder (Afzal et al., arXiv 2502.16249) for text or for images.

    One class serves both modalities. The defaults are the recommended model, `lion_preset("lion-text-base")` or, with
    `modality="image"`, `"lion-image-base"`; for LION as published use `lion_preset("lion-s-text-base")` and its like.
    Fields named as in BERT and ViT mean what they mean there. A field whose default is `None` takes its value from the
    modality or the mixer when the configuration is made; the value is then stored.

    Args:
        modality (`"text"` or `"image"`, defaults to `"text"`):
            What the encoder reads: `input_ids` or `pixel_values`.
        mixer_type (`"lit"`, `"decay"`, `"selective"`, `"softmax"` or `"luna"`, defaults to `"selective"`):
            How the influence of a token decays with distance: not at all (LION-LIT), by one learnt rate per head
            (LION-D), or by a rate computed from each token (LION-S). `"softmax"` is the attention of BERT and ViT,
            computed by transformers' functions
            (`attn_implementation` `"eager"`, `"sdpa"`, ...) in the same backbone, for comparison, and `"luna"` packs
            the tokens into a memory of a fixed length and unpacks them (Luna, Ma et al. 2021). Both ignore the fields
            of linear attention, `feature_map`, `normalization`, `head_directions`, `patch_order` and
            `chunk_size`.
        layer_types (`list[str]`, *optional*):
            The type of each layer, for models that mix linear attention with softmax: `"linear_attention"` (the mixer
            of `mixer_type`), `"sliding_attention"` (softmax over the tokens within `sliding_window`, in time linear in
            the length) or `"full_attention"` (softmax over all tokens). `None` for the mixer of `mixer_type` in all
            layers.
        sliding_window (`int`, *optional*):
            Number of tokens that a layer of type `"sliding_attention"` sees on each side, besides the token itself: |i
            - j| <= `sliding_window`. Padded tokens do not count. In images, tokens are counted along the rows of
            patches, one row after the other, after the CLS token. Defaults to 64 if there are such layers.
        feature_map (`"silu_norm"`, `"elu"`, `"relu"`, `"hedgehog"` or `"identity"`, defaults to `"relu"`):
            The map applied to queries and keys. `"relu"` is recommended; `"silu_norm"`, `"elu"` and `"identity"`,
            which needs `normalization="none"`, are for LION as published. `"hedgehog"` is learnt, softmax(±W x) with
            a matrix W for each head and twice as many features as a head has dimensions; it can imitate softmax
            attention, for models that are converted from it.
        num_key_heads (`int`, *optional*):
            Heads of queries and keys in linear layers, a divisor of `num_attention_heads`. Each is `hidden_size` /
            `num_key_heads` wide and serves several heads, whose decays and values stay their own. The state of a head
            is then `num_attention_heads` / `num_key_heads` times as large, with no more parameters (but with those of
            `"hedgehog"`). It helps narrow heads to look up what was read. It takes more time, and in each layer that
            many times the memory of queries and keys. Triton kernels take widths up to 256. `None` for a query and a
            key of its own in each head.
        local_window (`int`, defaults to 0):
            Number of tokens on each side that the heads of linear layers also see with softmax, with one denominator
            for softmax and the linear sum over all tokens, at a cost linear in the length. 0 for none. For models that
            are converted from softmax attention.
        normalization (`"sum"` or `"none"`, defaults to `"sum"`):
            Divide each output by the sum of its attention scores, or scale scores by `head_dim ** -0.5` instead.
        attention_layer_norm (`bool`, defaults to `False`):
            LayerNorm over the concatenated heads, before the output projection.
        position_embedding_type (`"none"`, `"absolute"` or `"cyclic"`, *optional*):
            Learnt absolute positions, or none. `"cyclic"` reads the table of positions again from its beginning where
            a text is longer than it, so that no text is too long: for models that start from one with absolute
            positions. Text only. Defaults to `"none"` for text with a mixer whose decays encode
            distance or with `rope_parameters`, and otherwise to `"absolute"`: for `"lit"`, `"softmax"` and `"luna"`,
            which are invariant to the order of tokens without positions, and for images, where it improves every
            mixer. With `"none"`, images of any size need no `interpolate_pos_encoding`.
        rope_parameters (`dict`, *optional*):
            Rotary positions, in the format of transformers (`transformers.modeling_rope_utils.RopeParameters`), for
            example `{"rope_theta": 10000.0}`: queries and keys are turned by their positions, in linear attention
            before the feature map. One dict for all layers, or one (or `None`) for each layer type:
            `"linear_attention"` are the layers of linear mixers, `"full_attention"` those of `"softmax"`,
            `"sliding_attention"` those with a window (see `layer_types`). `rope_type` may be any of transformers'.
            The frequencies of `"dynamic"` and `"longrope"` depend on the length of a text: here on its own length,
            whatever else is in the batch. Text only, and not for `"luna"`. Defaults to none.
        norm_position (`"pre"` or `"post"`, defaults to `"pre"`):
            Norms before each block (ViT) or after it (BERT).
        use_gated_mlp (`bool`, defaults to `True`):
            Whether the MLP is gated, down(act(gate(x)) * up(x)), with 1.5 times the weights for the same
            `intermediate_size`.
        pooling (`"cls"` or `"mean"`, defaults to `"mean"`):
            How a sequence is reduced to one vector: its first token, which a dense layer and tanh follow in texts
            (BERT), or the mean of all tokens.
        patch_order (`"raster"` or `"snake"`, defaults to `"raster"`):
            The order in which patches are scanned. `"snake"` averages the scan along the rows, alternately to the
            right and to the left, and the one along the columns, each with its own decays, for LION-D♮ and LION-S♮
            as published. Images only; the mixer `"lit"` ignores it.
        head_directions (`"both"` or `"alternate"`, *optional*):
            Which way the heads of linear attention read. With `"both"`, as published, every head sees all tokens;
            without positions such a model cannot tell left from right. With `"alternate"`, heads 0, 2, … read forward
            only and heads 1, 3, … backward only, which distinguishes left from right with no more parameters and in
            less time. Defaults to `"alternate"` for an even number of heads.
        mixer_initializer_range (`float`, *optional*):
            Standard deviation of the initial weights of the projections in a mixer and of the one after it. `None` for
            `hidden_size ** -0.5`, which works for models of every width; all other weights use `initializer_range`.
            With BERT's 0.02, queries and keys of small models are so small that the feature map is nearly constant.
        luna_length (`int`, defaults to 16):
            Number of vectors in the memory of the mixer `"luna"`.
        luna_activation (`"softmax"`, `"softplus"` or `"elu"`, defaults to `"softmax"`):
            The map from scores to attention weights when tokens are packed; the latter two are divided by their sum.
            Unpacking always uses softmax.
        luna_tie_kv (`bool`, defaults to `False`):
            Whether keys and values of the mixer `"luna"` share a projection, in each of its two attentions.
        conv_kernel (`int`, *optional*):
            Taps of a short convolution, an odd number: queries, keys and values of each token become SiLU(Σ_o w_o
            x_{i+o}), with one filter per channel, centred on the token, before the feature map. It does not cross the
            borders of packed sequences, and skips padded tokens wherever they are. In images it runs along the rows of
            patches, one row after the other, without the CLS token. 0 for none. For linear mixers, where it defaults
            to 3.
        chunk_size (`int`, defaults to 64):
            Tokens of a chunk, for `attn_implementation="chunk"`. It affects speed and memory, never the result.
        encoder fields (`hidden_size`, `num_hidden_layers`, `num_attention_heads`, `intermediate_size`, `hidden_act`,
        `hidden_dropout_prob`, `attention_probs_dropout_prob`, `initializer_range`, `layer_norm_eps`, `qkv_bias`,
        `classifier_dropout`):
            As in BERT and ViT. `layer_norm_eps` defaults to 1e-12 for text and 1e-6 for images.
            `attention_probs_dropout_prob` drops elements of the mixed values, so that every kernel supports it.
        max_position_embeddings (`int`, *optional*):
            Entries of the table of absolute positions, and so the longest text; 512 by default. With rotary positions,
            the length that the model is trained for; it is no limit, but scaled frequencies start from it. Without
            positions, and with a cyclic table, no text is too long: the value is then moved to
            `initial_context_length`, and this field becomes 2**20.
        initial_context_length (`int`, *optional*):
            For models without a table of absolute positions, the context length over which the initial decays are
            spread; also the length of a cyclic table. Defaults to `max_position_embeddings` if it is given, otherwise
            to 512.
        text fields (`vocab_size`, `type_vocab_size`, `pad_token_id`):
            As in BERT. `type_vocab_size` may be 0, for no embeddings of token types; all ids are then 0.
        use_cls_token (`bool`, defaults to `True`):
            Whether a CLS token precedes the patches of an image.
        image fields (`image_size`, `patch_size`, `num_channels`, `semantic_loss_ignore_index`, `out_features`,
        `out_indices`):
            As in ViT and BEiT. Sizes are a number or (height, width). The last two choose the feature maps of
            `LionBackbone`: `"stem"` (0), `"stage1"` (1), …; the last one if neither is given.

    Example:

    ```python
    >>> from configuration_lion import LionConfig

    >>> LionConfig(mixer_type="decay", hidden_size=384, num_attention_heads=6).norm_position
    'pre'

    ```"""

    model_type = "lion"
    # Writes the code of the model into a folder; `None` if the code itself was loaded from such a folder.
    write_code = None

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

    image_size: int | list[int] | tuple[int, int] = 224
    patch_size: int | list[int] | tuple[int, int] = 16
    num_channels: int = 3
    use_cls_token: bool = True
    semantic_loss_ignore_index: int = 255
    _out_features: list[str] | None = None
    _out_indices: list[int] | None = None

    mixer_type: Literal["lit", "decay", "selective", "softmax", "luna"] = "selective"
    layer_types: list[str] | None = None
    sliding_window: int | None = None
    feature_map: Literal["silu_norm", "elu", "relu", "hedgehog", "identity"] = "relu"
    normalization: Literal["sum", "none"] = "sum"
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
    local_window: int = 0
    conv_kernel: int | None = None
    chunk_size: int = 64

    def __post_init__(self, **kwargs):
        # A stored configuration has a version (`from_dict` adds one). It decides here, not in `from_dict`, since
        # configurations within another one are constructed from their stored fields.
        if self.transformers_version is None:
            self.check_names(kwargs)
        else:
            self.drop_deleted_fields(kwargs)
            self.warn_of_names(kwargs)
        chosen = {name: kwargs.pop(name, None) for name in ("out_features", "out_indices")}
        if any(value is not None for value in chosen.values()):
            self.set_output_features_output_indices(**chosen)
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
        """Fill in `initial_context_length` and `max_position_embeddings`, whichever was not set."""
        given = self.max_position_embeddings
        if given in (NO_LIMIT, -1):  # -1: in configurations stored by earlier versions
            given = None
        if self.initial_context_length is None or self.has_position_table:
            known = (given, self.initial_context_length, 512)
            self.initial_context_length = next(length for length in known if length is not None)
        if self.has_position_table or given is None and self.has_rotary_positions:
            self.max_position_embeddings = self.initial_context_length
        elif given is None or given > 0 and not self.has_rotary_positions:  # other numbers fail validation
            self.max_position_embeddings = NO_LIMIT

    @classmethod
    def names(cls) -> set[str]:
        """All names that may be set: fields of transformers and LION, and properties with a setter."""
        names = {field.name for field in fields(cls)}
        properties = {name for name in dir(cls) if isinstance(getattr(cls, name), property)}
        return names | {name for name in properties if getattr(cls, name).fset is not None} | {"model_type"}

    @classmethod
    def check_names(cls, names: Iterable[str], only_near: bool = True) -> None:
        """
        Raise a ValueError for a name that is not a field but is similar to one, or is a field of another model.
        transformers accepts every name, so that a misspelt field would be ignored.

        Args:
            only_near: whether to accept names that are not similar to any field.
        """
        for name in names:
            hint = OTHER_NAMES.get(name)
            is_known = name.startswith("_") or name.endswith("_token_id") or name in KNOWN_NAMES
            if hint is None and (is_known or name in cls.names()):
                continue
            if hint is None:
                words = set(name.split("_"))
                near = [field for field in LionConfig.__annotations__ if words < set(field.split("_"))]
                if len(near) != 1:  # a part of several fields, such as "size": take the most similar one
                    near = get_close_matches(name, LionConfig.__annotations__, n=1, cutoff=0.66)
                if not near:  # a misspelt first word
                    first = {field.split("_")[0]: field for field in reversed(LionConfig.__annotations__)}
                    near = [first[word] for word in get_close_matches(name, first, n=1, cutoff=0.85)]
                hint = f"did you mean `{near[0]}`?" if near else None
            if hint or not only_near:
                raise ValueError(f"LionConfig has no field `{name}`{f'; {hint}' if hint else '.'}")

    @classmethod
    def from_dict(cls, config_dict: dict, **kwargs):
        """
        `PreTrainedConfig.from_dict`. Arguments besides the stored configuration are checked as in a new one. Unknown
        names in a stored configuration, which another program or a later version may have written, give a warning
        only. Fields that are not stored get the defaults of LION 0.1, `published_fields`.
        """
        if not kwargs.get("return_unused_kwargs"):  # else some are for the model, which checks them
            cls.check_names(kwargs.keys() - OF_PREPROCESSORS)
        # Pass them to the constructor, which sets the fields that depend on them.
        given = {name: kwargs.pop(name) for name in cls.__annotations__ if name in kwargs}
        if "max_position_embeddings" in given:
            given = {"initial_context_length": None} | given
        stored = published_fields((config_dict | given).get("modality", "text")) | config_dict
        for name, values in DELETED_VALUES.items():
            if stored.get(name) in values:
                raise ValueError(
                    f"The stored configuration has `{name}` {stored[name]!r}, which this version no longer has. "
                    "The code that was saved beside the weights still computes it: load it with "
                    "trust_remote_code=True in a process that does not import modeling_lion."
                )
        if stored["pooling"] in DELETED_POOLINGS:
            raise ValueError(f"The stored configuration has `pooling` {stored['pooling']!r}. {CONVERT_AGAIN}")
        return super().from_dict({"transformers_version": __version__} | stored | given, **kwargs)

    @classmethod
    def warn_of_names(cls, names: Iterable[str]) -> None:
        """`check_names` for a stored configuration, with warnings instead of errors."""
        for name in names:
            try:
                cls.check_names([name])
            except ValueError as error:
                logger.warning_once(f"Of a stored configuration, `{name}` has no effect: {error}")

    def drop_deleted_fields(self, stored: dict) -> None:
        """
        Take fields of earlier versions out of a stored configuration.

        Raises:
            ValueError: if one has a value that no model has any more.
        """
        for name in LEFT_OVER_FIELDS:
            stored.pop(name, None)
        is_text = self.modality == "text"
        has_dense = is_text and self.pooling == "cls"
        computed = {"embedding_norm": is_text, "pooler_act": "tanh" if has_dense else "none"}
        for name, usual in (DELETED_FIELDS | computed).items():
            if (value := stored.pop(name, None)) not in (None, usual):
                raise ValueError(f"The stored configuration has `{name}` {value!r}. {CONVERT_AGAIN}")

    def save_pretrained(self, save_directory: str | os.PathLike, **kwargs):
        """
        `PreTrainedConfig.save_pretrained`, with an `auto_map` of all classes for this modality and, from the installed
        package, with the code that it refers to.
        """
        ours = {"AutoConfig": "configuration_lion.LionConfig"}
        ours |= {name: f"modeling_lion.{model}" for name, model in AUTO_MODELS[self.modality].items()}
        # Keep other classes. "user/repo--modeling_lion.X", from a download, now refers to the code that is saved here.
        others = {k: v for k, v in getattr(self, "auto_map", {}).items() if v.split("--")[-1] != ours.get(k)}
        self.auto_map = ours | others
        if self.write_code is not None:
            self.write_code(save_directory)
        super().save_pretrained(save_directory, **kwargs)

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
        return _height_width(self.patch_size)

    @property
    def image_shape(self) -> tuple[int, int]:
        """Image height and width in pixels."""
        return _height_width(self.image_size)

    @property
    def patch_grid(self) -> tuple[int, int]:
        """Rows and columns of patches in an image of the configured size."""
        return self.image_shape[0] // self.patch_shape[0], self.image_shape[1] // self.patch_shape[1]

    @property
    def num_prefix_tokens(self) -> int:
        """Number of tokens before the patches of an image: the CLS token."""
        return 0 if self.modality == "text" else int(self.use_cls_token)

    @property
    def context_length(self) -> int:
        """Number of tokens in a sequence of the configured length; for images, with those before the patches."""
        rows, columns = self.patch_grid
        if self.modality == "image":
            return self.num_prefix_tokens + rows * columns
        return self.max_position_embeddings if self.has_position_table else self.initial_context_length

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
        """The most tokens of a text, by the table of positions; `None` without a limit, and for images."""
        return self.max_position_embeddings if self.has_position_table else None

    @property
    def stage_names(self) -> list[str]:
        """Names of the hidden states before the first layer and after each layer."""
        return ["stem", *(f"stage{n}" for n in range(1, self.num_hidden_layers + 1))]

    @property
    def mixer_is_linear(self) -> bool:
        """Whether `mixer_type` is a kind of linear attention."""
        return self.mixer_type not in ("softmax", "luna")

    def layer_type(self, layer_idx: int) -> str:
        """
        The type of a layer.

        Args:
            layer_idx: its number, from 0 on.

        Returns:
            `"linear_attention"`, `"sliding_attention"` or `"full_attention"`.
        """
        if self.layer_types:
            return self.layer_types[layer_idx]
        return "linear_attention" if self.mixer_is_linear else "full_attention"

    @property
    def layer_types_in_use(self) -> set[str]:
        """The types of all layers."""
        return set(self.layer_types or [self.layer_type(0)])

    @property
    def has_linear_layers(self) -> bool:
        """Whether any layer computes linear attention, with LION's kernels."""
        return "linear_attention" in self.layer_types_in_use

    @property
    def has_softmax_layers(self) -> bool:
        """Whether any layer computes softmax attention, with transformers' functions."""
        return self.layer_types_in_use != {"linear_attention"}

    @property
    def has_windows(self) -> bool:
        """Whether any layer has a softmax window."""
        return self.sliding_window is not None or self.local_window > 0

    @property
    def has_decays(self) -> bool:
        """Whether the influence of tokens decays with distance, so that their order matters without positions."""
        return self.has_linear_layers and self.mixer_type in ("decay", "selective")

    @property
    def rope_parameters_by_type(self) -> dict[str, dict | None]:
        """`rope_parameters` of each layer type; `None` for those without rotary positions."""
        given = self.rope_parameters
        if given and any(name in LAYER_TYPES or isinstance(value, dict) for name, value in given.items()):
            return given
        return dict.fromkeys(self.layer_types_in_use, given)

    def rope_config(self, layer_type: str) -> "LionConfig | None":
        """A copy for one layer type, for transformers' rotary functions; `None` if it has no rotary positions."""
        parameters = self.rope_parameters_by_type[layer_type]
        if parameters is None:
            return None
        config = copy.copy(self)
        config.rope_parameters = parameters
        return config

    def convert_rope_params_to_dict(self, **kwargs) -> dict:
        """
        Called by transformers when a configuration is made, to fill in defaults. transformers' own method gives every
        configuration rotary positions, and in some versions does not support parameters by layer type.
        """
        self.rope_parameters = copy.deepcopy(self.rope_parameters)
        for layer_type, parameters in self.rope_parameters_by_type.items():
            if isinstance(parameters, dict):
                super(LionConfig, self.rope_config(layer_type)).convert_rope_params_to_dict()  # in place
        return kwargs

    @property
    def num_scans(self) -> int:
        """
        Number of orders in which a linear layer scans patches: 2 (a curve and its transpose), or 1 in raster order.
        """
        is_one_way = self.has_linear_layers and self.head_directions == "alternate"
        sees_order = self.has_decays or is_one_way
        return 2 if self.patch_order != "raster" and sees_order else 1

    @property
    def base_model_tp_plan(self) -> dict[str, str]:
        """
        How transformers splits a layer among processes (tensor parallelism): the MLP by its inner features, attention
        by heads, with the decays of each head. Attention is not split unless it is a concatenation of independent
        heads: not with a LayerNorm over all heads, two scans with their own decays, or softmax layers; nor with a
        learnt feature map, a window in the heads or shared keys. Nor with a short convolution: transformers splits one
        of the last two dimensions of a weight, and the channels of a convolution are the first.
        """
        plan = {"layers.*.mlp.up_proj": "colwise", "layers.*.mlp.down_proj": "rowwise"}
        if self.use_gated_mlp:
            plan["layers.*.mlp.gate_proj"] = "colwise"
        if self.attention_layer_norm or self.num_scans > 1:
            return plan
        if self.conv_kernel > 0 or self.has_softmax_layers:
            return plan
        if self.local_window > 0 or self.feature_map == "hedgehog" or self.key_dim != self.head_dim:
            return plan
        mixer = "layers.*.attention.mixer"
        plan |= {f"{mixer}.{name}_proj": "colwise" for name in ("q", "k", "v")}
        plan["layers.*.attention.o_proj"] = "rowwise"
        if self.mixer_type == "selective":
            plan[f"{mixer}.decay_proj"] = "colwise"
        elif self.mixer_type == "decay":
            plan |= {f"{mixer}.decay.bias": "colwise", f"{mixer}.decay": "local_params"}
        return plan

    @base_model_tp_plan.setter
    def base_model_tp_plan(self, plan: dict[str, str]):
        # Called by transformers 5.17 to add a rule for `embed_tokens`, which LION does not have. To override the plan
        # use DistributedConfig(tp_plan=...).
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

    def validate_positive(self):
        for name in (
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "vocab_size",
            "max_position_embeddings",
            "initial_context_length",
            "type_vocab_size",
            "num_channels",
            "luna_length",
            "chunk_size",
            "local_window",
            "num_key_heads",
        ):
            minimum = 0 if name in ("type_vocab_size", "local_window") else 1
            is_unset = name == "num_key_heads" and self.num_key_heads is None
            if not is_unset and getattr(self, name) < minimum:
                raise ValueError(f"`{name}` is {getattr(self, name)}; give at least {minimum}.")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ValueError(f"`{name}` is {value}; give a probability p with 0 <= p < 1.")
        if not 0 < self.layer_norm_eps < math.inf:  # nor NaN
            raise ValueError(f"`layer_norm_eps` is {self.layer_norm_eps}; give a number above 0.")
        for name in ("initializer_range", "mixer_initializer_range"):
            if getattr(self, name) is not None and not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"`{name}` is {getattr(self, name)}; give 0 or a number above 0.")
        if self.modality == "text" and self.pad_token_id is not None and not 0 <= self.pad_token_id < self.vocab_size:
            raise ValueError(
                f"`pad_token_id` is {self.pad_token_id} with `vocab_size` {self.vocab_size}; give an id from 0 to "
                f"{self.vocab_size - 1}, or None."
            )

    def validate_heads(self):
        if self.num_attention_heads > 0 and self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"`hidden_size` ({self.hidden_size}) is not a multiple of `num_attention_heads` "
                f"({self.num_attention_heads}); change one so that every head has the same size."
            )

    def validate_key_heads(self):
        if not self.num_key_heads:  # 0 fails `validate_positive`
            return
        if self.num_attention_heads % self.num_key_heads:
            raise ValueError(
                f"`num_key_heads` is {self.num_key_heads} with `num_attention_heads` {self.num_attention_heads}; give "
                "a divisor of it, or None."
            )
        if not self.has_linear_layers:
            raise ValueError(
                f"`num_key_heads` is {self.num_key_heads}, and no layer is linear (`mixer_type` {self.mixer_type!r}, "
                f"`layer_types` {self.layer_types}): leave `num_key_heads=None`."
            )
        if self.key_dim == self.head_dim:
            return
        hindrances = {
            f"`local_window` {self.local_window}, whose softmax has a key for each head": self.local_window > 0,
            "`rope_parameters` of linear layers, which turn the channels of a head": (
                self.rope_parameters_by_type.get("linear_attention") is not None
            ),
        }
        if found := [text for text, is_there in hindrances.items() if is_there]:
            raise ValueError(
                f"`num_key_heads` is {self.num_key_heads} with {found[0]}; leave `num_key_heads=None`, or do without "
                "the other."
            )

    def validate_layer_type(self):
        """Replaces transformers' check of `layer_types`, which accepts more types."""
        given = self.layer_types
        if self.sliding_window is None and "sliding_attention" in self.layer_types_in_use:
            raise ValueError(
                "`sliding_window` is None, and `layer_types` has 'sliding_attention': give the tokens that such a "
                "layer sees on each side, for example 64."
            )
        if self.sliding_window is not None and given is None:
            raise ValueError(
                f"`sliding_window` is {self.sliding_window}, and no layer has a window: name those that have in "
                '`layer_types`, as "sliding_attention", or leave `sliding_window=None`.'
            )
        if self.sliding_window is not None and self.sliding_window < 1:
            raise ValueError(f"`sliding_window` is {self.sliding_window}; give at least 1 token on each side.")
        if given is None:
            return
        if unknown := [name for name in given if name not in LAYER_TYPES]:
            raise ValueError(f"`layer_types` has {unknown[0]!r}; give {', '.join(map(repr, LAYER_TYPES))}.")
        if len(given) != self.num_hidden_layers:
            raise ValueError(
                f"`layer_types` has {len(given)} entries with `num_hidden_layers` {self.num_hidden_layers}; give one "
                "for each layer."
            )
        if self.mixer_type == "luna" or "linear_attention" in given and not self.mixer_is_linear:
            raise ValueError(
                f"`layer_types` is {given} with `mixer_type` {self.mixer_type!r}, which is not linear attention; set "
                '`mixer_type` to "lit", "decay" or "selective", or leave `layer_types=None`.'
            )

    def validate_directions(self):
        if self.head_directions == "alternate" and self.num_attention_heads % 2 and self.has_linear_layers:
            raise ValueError(
                f"`head_directions` is 'alternate' with `num_attention_heads` {self.num_attention_heads}; give an "
                'even number of heads, so that as many read forward as backward, or `head_directions="both"`.'
            )

    def validate_activation(self):
        if self.hidden_act not in ACT2FN:
            raise ValueError(f"`hidden_act` is {self.hidden_act!r}; give one of {', '.join(sorted(ACT2FN))}.")

    def validate_pooling(self):
        if self.modality == "image" and self.pooling == "cls" and not self.use_cls_token:
            raise ValueError(
                "`pooling` is 'cls' with `use_cls_token` False, and there is no such token; give \"mean\"."
            )

    def validate_normalization(self):
        if self.feature_map == "identity" and self.normalization == "sum":
            raise ValueError(
                '`feature_map="identity"` with `normalization="sum"` divides by numbers of either sign; set '
                '`normalization="none"`, or a positive `feature_map` ("silu_norm", "elu").'
            )

    def validate_local_window(self):
        if self.local_window > 0 and not self.has_linear_layers:
            raise ValueError(
                f"`local_window` is {self.local_window}, and no layer is linear (`mixer_type` {self.mixer_type!r}, "
                f"`layer_types` {self.layer_types}): set `local_window=0`; the window of softmax layers is "
                "`sliding_window`."
            )
        if self.local_window > 0 and self.normalization == "none":
            raise ValueError(
                f"`local_window` is {self.local_window} with `normalization` 'none', and the window shares a "
                'denominator with the linear sum: set `normalization="sum"`, or `local_window=0`.'
            )

    def validate_rope(self):
        """transformers' checks of rotary positions for each layer type, and some more."""
        given = self.rope_parameters
        if given is None:
            return
        if self.modality == "image":
            raise ValueError(
                f"`rope_parameters` is {given} with `modality` 'image'; rotary positions count along one sequence, "
                "and the rows of an image are none: leave `rope_parameters=None` and set "
                '`position_embedding_type="absolute"`.'
            )
        if self.mixer_type == "luna":
            raise ValueError(
                f"`rope_parameters` is {given} with `mixer_type` 'luna', whose memory has no positions; leave "
                '`rope_parameters=None`, or set `mixer_type` to "softmax" or a linear mixer.'
            )
        by_type = self.rope_parameters_by_type
        for name, parameters in by_type.items():
            if name not in LAYER_TYPES or not isinstance(parameters, dict | None):
                raise ValueError(
                    f"`rope_parameters` has {name!r}: {parameters!r}; give one dict of parameters for all layers, or "
                    f"one, or None, for each layer type ({', '.join(LAYER_TYPES)})."
                )
        if missing := self.layer_types_in_use - by_type.keys():
            raise ValueError(
                f"`rope_parameters` has {', '.join(by_type)}, but not {', '.join(sorted(missing))}, which layers of "
                "the model are: add it, with parameters or None."
            )
        for layer_type, parameters in by_type.items():
            if parameters is not None:
                self._check_rope_parameters(parameters)
                try:
                    super(LionConfig, self.rope_config(layer_type)).validate_rope()
                except KeyError as error:
                    raise ValueError(f"`rope_parameters` is {parameters}: {error.args[0]}. Add it.") from None

    def _check_rope_parameters(self, parameters: dict):
        rope_type = parameters.get("rope_type", "default")
        if rope_type not in ROPE_TYPES:
            raise ValueError(
                f"`rope_type` in `rope_parameters` is {rope_type!r}; give one of {', '.join(ROPE_TYPES)}."
            )
        for name, is_valid, wanted in (
            ("rope_theta", lambda x: 0 < x < math.inf, "a number above 0"),
            ("factor", lambda x: 1 <= x < math.inf, "a number of at least 1"),
            ("partial_rotary_factor", lambda x: 0 < x <= 1, "a number above 0, at most 1"),
        ):
            value = parameters.get(name, None if name == "rope_theta" else 1)
            if not isinstance(value, int | float) or not is_valid(value):
                raise ValueError(f"`{name}` in `rope_parameters` is {value!r}; give {wanted}.")
        channels = int(self.head_dim * parameters.get("partial_rotary_factor", 1))
        if channels == 0 or channels + channels % 2 > self.head_dim:
            raise ValueError(
                f"`rope_parameters` turn {channels} of the {self.head_dim} channels of a head (`hidden_size` / "
                "`num_attention_heads`), and they are turned in pairs; give a head an even number of channels, or "
                "another `partial_rotary_factor`."
            )

    def validate_short_convolution(self):
        if self.conv_kernel < 0 or self.conv_kernel > 0 and self.conv_kernel % 2 == 0:
            raise ValueError(
                f"`conv_kernel` is {self.conv_kernel}; give an odd number of taps, for example "
                f"{max(self.conv_kernel, 2) + 1}, or 0 for no convolution."
            )
        if self.conv_kernel > 0 and not self.has_linear_layers:
            raise ValueError(
                f"`conv_kernel` is {self.conv_kernel} with `mixer_type` {self.mixer_type!r} and `layer_types` "
                f"{self.layer_types}, and softmax has no short convolution; set `conv_kernel=0`, or have layers of a "
                'linear mixer ("lit", "decay", "selective").'
            )

    def validate_image(self):
        if self.modality == "text":
            if self.patch_order != "raster":
                raise ValueError(
                    f"`patch_order` is {self.patch_order!r} with `modality` 'text'; text has no patches: leave "
                    '`patch_order="raster"`, or set `modality="image"`.'
                )
            for field in fields(self):
                if field.name in IMAGE_FIELDS and (value := getattr(self, field.name)) != field.default:
                    logger.warning_once(
                        f"`{field.name}` is {value} with `modality` 'text', and has no effect; leave it out, or set "
                        '`modality="image"`.'
                    )
            return
        if self.position_embedding_type == "cyclic":
            raise ValueError(
                "`position_embedding_type` is 'cyclic' with `modality` 'image'; give \"absolute\" (images of other "
                'sizes interpolate them) or "none".'
            )
        for name in ("image_size", "patch_size"):
            size = getattr(self, name)
            if not isinstance(size, int) and len(size) != 2 or min(_height_width(size)) < 1:
                raise ValueError(f"`{name}` is {size}; give a positive number, or two: (height, width).")
        for side, image, patch in zip(("height", "width"), self.image_shape, self.patch_shape, strict=True):
            if image % patch:
                raise ValueError(
                    f"`image_size` ({self.image_size}) is not a multiple of `patch_size` ({self.patch_size}): "
                    f"{side} {image} leaves {image % patch} pixels over; the nearest sizes that fit are "
                    f"{image // patch * patch or patch} and {(image // patch + 1) * patch}."
                )


def _height_width(size: int | list[int] | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])


__all__ = ["AUTO_MODELS", "LionConfig"]
