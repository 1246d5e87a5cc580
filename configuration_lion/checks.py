# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The checks of a configuration: misspelt names and names of other models, fields that earlier versions stored, and
whether the values of fields fit together. huggingface_hub calls every `validate_*` when a configuration is made.
"""

import math
from collections.abc import Iterable
from dataclasses import fields
from difflib import get_close_matches
from typing import TYPE_CHECKING

from transformers.activations import ACT2FN
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.utils import logging

from .private_apis import default_generation_parameters
from .registry import MIXERS, find_feature_map, find_mixer


if TYPE_CHECKING:
    from transformers import PreTrainedConfig as ConfigPart
else:
    ConfigPart = object  # LionConfig also inherits from PreTrainedConfig
logger = logging.get_logger(__name__)

# transformers' names of layer types. The first one has the mixer of `mixer_type`, the others softmax attention.
LAYER_TYPES = ("linear_attention", "full_attention", "sliding_attention")
ROPE_TYPES = ("default", *sorted(ROPE_INIT_FUNCTIONS))
# Names that a configuration may set besides its fields.
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
# Fields that have no effect on texts.
IMAGE_FIELDS = (
    "image_size",
    "patch_size",
    "num_channels",
    "use_cls_token",
    "semantic_loss_ignore_index",
)
# Fields that a state of version 0.2 stored in every folder, with the values that change nothing.
DELETED_FIELDS = {
    "local_window": 0,
    "embedding_size": None,
    "norm_type": "layer_norm",
    "norm_bias": True,
    "first_norm": True,
    "mlp_bias": True,
    "proj_bias": True,
    "use_prediction_head": False,
    "classifier_bias": True,
    "use_lm_transform": True,
    "pooler_act": None,
    "pooler_norm": False,
    "num_register_tokens": 0,
    "decay_activation": "sigmoid",
}
# Names of fields in other models, and what to do instead.
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
    "decoder_bias": "the decoder to the vocabulary always has a bias.",
    "decay_activation": "decays are the sigmoid of their logits: leave it out.",
    "decay_rank": "no mixer has it any more: leave it out.",
    "local_window": "`modeling_lion.linearize` gives other encoders a window beside linear attention.",
    "dropout": "give `hidden_dropout_prob`, `attention_probs_dropout_prob` or both.",
}
# Fields, and their names in other models.
SAME_FIELDS = {
    "attention_probs_dropout_prob": "attention_dropout",
    "hidden_act": "classifier_activation hidden_activation",
    "hidden_dropout_prob": "mlp_dropout embedding_dropout",
    "hidden_size": "n_embd d_model dim",
    "intermediate_size": "d_ff",
    "layer_norm_eps": "norm_eps rms_norm_eps",
    "max_position_embeddings": "context_length seq_len seq_length",
    "num_attention_heads": "n_head n_heads num_heads",
    "num_hidden_layers": "n_layer n_layers",
    "num_key_heads": "linear_num_key_heads",
    "pooling": "classifier_pooling",
    "position_embedding_type": "pos positions",
    "qkv_bias": "attention_bias",
}
OTHER_NAMES |= {other: f"give `{field}`." for field, others in SAME_FIELDS.items() for other in others.split()}


class ConfigChecks(ConfigPart):
    """The checks of `LionConfig`."""

    @classmethod
    def names(cls) -> set[str]:
        """All names that a user may set: fields of transformers and LION, and properties with a setter."""
        names = {field.name for field in fields(cls)}.union(*(mixer.fields for mixer in MIXERS.values()))
        properties = {name for name in dir(cls) if isinstance(getattr(cls, name), property)}
        return names | {name for name in properties if getattr(cls, name).fset is not None} | {"model_type"}

    @classmethod
    def check_names(cls, names: Iterable[str], only_near: bool = True) -> None:
        """
        Raise a ValueError for a name that is similar to a field, or a field of another model, and unless `only_near`
        for every unknown name. transformers accepts every name, and would ignore a misspelt field.
        """
        all_fields = [*cls.__annotations__, *(field for mixer in MIXERS.values() for field in mixer.fields)]
        for name in names:
            hint = OTHER_NAMES.get(name)
            is_known = name.startswith("_") or name.endswith("_token_id") or name in KNOWN_NAMES
            if hint is None and (is_known or name in cls.names()):
                continue
            if hint is None:
                words = set(name.split("_"))
                near = [field for field in all_fields if words < set(field.split("_"))]
                if len(near) != 1:  # a part of several fields, such as "size": take the most similar one
                    near = get_close_matches(name, all_fields, n=1, cutoff=0.66)
                if not near:  # a misspelt first word
                    first = {field.split("_")[0]: field for field in reversed(all_fields)}
                    near = [first[word] for word in get_close_matches(name, first, n=1, cutoff=0.85)]
                hint = f"did you mean `{near[0]}`?" if near else None
            if hint or not only_near:
                raise ValueError(f"LionConfig has no field `{name}`{f'; {hint}' if hint else '.'}")

    @classmethod
    def check_stored(cls, stored: dict) -> None:
        """Raise a ValueError if no imported file registers the `mixer_type` of a stored configuration."""
        if (name := stored.get("mixer_type", "lit")) not in MIXERS:
            file = stored.get("auto_map", {}).get("AutoConfig", "").split("--")[-1].split(".")[0]
            raise ValueError(
                f"The stored configuration has `mixer_type` {name!r}, which no imported file registers: import the "
                f"file of its class{f', as {file}.py beside the weights has it' if file else ''} (--mixers of "
                "commands and scripts); or load with trust_remote_code=True in a process that does not import "
                "modeling_lion."
            )

    @classmethod
    def warn_of_names(cls, names: Iterable[str]) -> None:
        """`check_names` of a stored configuration, with warnings instead of errors."""
        for name in names:
            try:
                cls.check_names([name])
            except ValueError as error:
                logger.warning_once(f"In a stored configuration, `{name}` has no effect: {error}")

    def drop_deleted_fields(self, stored: dict) -> None:
        """
        Remove deleted fields from a stored configuration. Raises a ValueError if one has a value that this version
        cannot compute.
        """
        stored.pop("decay_rank", None)  # no remaining mixer reads it
        for name, usual in (DELETED_FIELDS | {"embedding_norm": self.modality == "text"}).items():
            if (value := stored.pop(name, None)) not in (None, usual):
                raise ValueError(
                    f"The stored configuration has `{name}` {value!r}, which this version no longer has. The code "
                    "that was saved beside the weights still computes it: load it with trust_remote_code=True in a "
                    "process that does not import modeling_lion. If the model was made of another encoder, make it "
                    "again: `lion convert <source> <folder>`."
                )

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
            "num_key_heads",
        ):
            minimum = 0 if name == "type_vocab_size" else 1
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
        if self.key_dim != self.head_dim and self.rope_parameters_by_type.get("linear_attention") is not None:
            raise ValueError(
                f"`num_key_heads` is {self.num_key_heads} with `rope_parameters` of linear layers, which turn the "
                "channels of a head; leave `num_key_heads=None`, or do without the other."
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
                f"`sliding_window` is {self.sliding_window}, and no layer has a window: give layers the type "
                '"sliding_attention" in `layer_types`, or leave `sliding_window=None`.'
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
        mixer = find_mixer(self.mixer_type)
        if mixer.has_memory or "linear_attention" in given and mixer.is_softmax:
            raise ValueError(
                f"`layer_types` is {given} with `mixer_type` {self.mixer_type!r}, which is softmax; set `mixer_type` "
                f"to one of {mixers_with('is_linear')}, or leave `layer_types=None`."
            )

    def validate_directions(self):
        if self.head_directions == "alternate" and self.num_attention_heads % 2 and self.has_linear_layers:
            raise ValueError(
                f"`head_directions` is 'alternate' with `num_attention_heads` {self.num_attention_heads}; give an "
                'even number of heads, so that as many read forward as backward, or `head_directions="both"`.'
            )

    def validate_choices(self):
        for name, possible in find_mixer(self.mixer_type).choices.items():
            if self.has_linear_layers and (value := getattr(self, name)) not in possible:
                also = ""
                if name == "head_directions" and self.num_attention_heads % 2:
                    also = ", and an even `num_attention_heads`"
                raise ValueError(
                    f"`{name}` is {value!r} with `mixer_type` {self.mixer_type!r}, which does not have it; give "
                    f"{' or '.join(map(repr, possible))}{also}."
                )

    def validate_ranges(self):
        if missing := [name for name in find_mixer(self.mixer_type).fields if not hasattr(self, name)]:
            raise ValueError(
                f"`mixer_type` was set to {self.mixer_type!r}, whose fields {', '.join(missing)} this configuration "
                "does not have: give `mixer_type` to LionConfig, which sets them, or set them, too."
            )
        for name, (low, high) in find_mixer(self.mixer_type).ranges.items():
            value = getattr(self, name)
            if self.has_linear_layers and not (isinstance(value, int | float) and low < value <= high):
                raise ValueError(f"`{name}` is {value!r}; give a number above {low}, at most {high}.")

    def validate_activation(self):
        if self.hidden_act not in ACT2FN:
            raise ValueError(f"`hidden_act` is {self.hidden_act!r}; give one of {', '.join(sorted(ACT2FN))}.")

    def validate_pooling(self):
        if self.modality == "image" and self.pooling == "cls" and not self.use_cls_token:
            raise ValueError(
                "`pooling` is 'cls' with `use_cls_token` False, and there is no such token; give \"mean\"."
            )

    def validate_normalization(self):
        if not find_feature_map(self.feature_map).is_positive and self.normalization == "sum":
            raise ValueError(
                f'`feature_map="{self.feature_map}"` with `normalization="sum"` divides by numbers of either sign; '
                'set `normalization="none"`, or a positive `feature_map` ("relu", "silu_norm", "elu").'
            )

    def validate_rope(self):
        """transformers' checks of rotary positions for each layer type, and checks of LION's own."""
        given = self.rope_parameters
        if given is None:
            return
        if self.modality == "image":
            raise ValueError(
                f"`rope_parameters` is {given} with `modality` 'image'; rotary positions count along one sequence, "
                "and an image has rows and columns: leave `rope_parameters=None` and set "
                '`position_embedding_type="absolute"`.'
            )
        by_type = self.rope_parameters_by_type
        own = by_type if self.layer_types is None else [by_type.get("linear_attention")]
        if self.uses_mixer_type and any(own) and not find_mixer(self.mixer_type).has_rotary_positions:
            raise ValueError(
                f"`rope_parameters` is {given} with `mixer_type` {self.mixer_type!r}, which has no rotary positions; "
                f"leave `rope_parameters=None`, or set `mixer_type` to one of {mixers_with('has_rotary_positions')}."
            )
        for name, parameters in by_type.items():
            if name not in LAYER_TYPES or not isinstance(parameters, dict | None):
                raise ValueError(
                    f"`rope_parameters` has {name!r}: {parameters!r}; give one dict of parameters for all layers, or "
                    f"one, or None, for each layer type ({', '.join(LAYER_TYPES)})."
                )
        if missing := self.layer_types_in_use - by_type.keys():
            raise ValueError(
                f"`rope_parameters` has {', '.join(by_type)}, but not {', '.join(sorted(missing))}, and layers of the "
                "model have this type: add it, with parameters or None."
            )
        for layer_type, parameters in by_type.items():
            if parameters is not None:
                self._check_rope_parameters(parameters)
                try:
                    super(ConfigChecks, self.rope_config(layer_type)).validate_rope()
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
                "`num_attention_heads`), and they are rotated in pairs; give a head an even number of channels, or "
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
                f"{self.layer_types}, and only linear attention has a short convolution; set `conv_kernel=0`, or have "
                f"layers of a linear mixer ({mixers_with('is_linear')})."
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
        if self.patch_order != "raster" and self.has_decays and not find_mixer(self.mixer_type).has_scans:
            raise ValueError(
                f"`patch_order` is {self.patch_order!r} with `mixer_type` {self.mixer_type!r}, which reads patches "
                'row by row only; leave `patch_order="raster"`, or set `mixer_type` to one of '
                f"{mixers_with('has_scans')}."
            )
        if self.position_embedding_type == "cyclic":
            raise ValueError(
                "`position_embedding_type` is 'cyclic' with `modality` 'image'; give \"absolute\" (images of other "
                'sizes interpolate them) or "none".'
            )
        for name in ("image_size", "patch_size"):
            size = getattr(self, name)
            if not isinstance(size, int) and len(size) != 2 or min(height_width(size)) < 1:
                raise ValueError(f"`{name}` is {size}; give a positive number, or two: (height, width).")
        for side, image, patch in zip(("height", "width"), self.image_shape, self.patch_shape, strict=True):
            if image % patch:
                raise ValueError(
                    f"`image_size` ({self.image_size}) is not a multiple of `patch_size` ({self.patch_size}): "
                    f"{side} {image} leaves {image % patch} pixels over; the nearest sizes that fit are "
                    f"{image // patch * patch or patch} and {(image // patch + 1) * patch}."
                )


def mixers_with(trait: str) -> str:
    """The names of the mixers that have a trait, in words."""
    return ", ".join(f'"{name}"' for name, mixer in MIXERS.items() if getattr(mixer, trait))


def height_width(size: int | list[int] | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])
