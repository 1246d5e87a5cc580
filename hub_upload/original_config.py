# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The configuration of a published checkpoint, from its weights and from fields that the user gives."""

import json
import re
from collections.abc import Mapping

import torch
from torch import Tensor

from configuration_lion import LionConfig

from .original_file import listed, unwrap_state_dict
from .original_weights import DECODER, POSITION_EMBEDDINGS, TOKEN_TYPES, WORD_EMBEDDINGS


def infer_config(state_dict: Mapping[str, Tensor], **fields) -> LionConfig:
    """
    The configuration of a published model: what its state dict shows, the published recipe of its kind (SPEC §6, §7),
    and what the user gives.

    Args:
        state_dict: names and tensors as published; wrappers are taken off.
        fields: fields of `LionConfig`. Needed where the state dict cannot show them: `num_attention_heads` for
            LION-LIT; `pooling` for images; `image_size` for images without positions, or with a grid that is no
            square; `pooling="mean"` for text classification without BERT's pooler. Text keeps a table of positions
            even if it never uses it: `position_embedding_type` is "absolute" for LION-LIT and "none" for the others,
            unless given.

    Raises:
        ValueError: if the layout is unknown, a field is missing, or a given field contradicts the state dict.
    """
    state_dict = unwrap_state_dict(state_dict)
    if "patch_embed.proj.weight" in state_dict:
        shown, recipe = _shown_by_image_model(state_dict, fields)
    elif WORD_EMBEDDINGS in state_dict:
        shown, recipe = _shown_by_text_model(state_dict)
    else:
        raise ValueError(
            "This is neither of the published layouts: there is no patch_embed.proj.weight (images) and no "
            f"{WORD_EMBEDDINGS} (text) among {listed(state_dict)}."
        )
    if "id2label" in fields and "num_labels" not in shown:
        raise ValueError("There are labels, but no classification head in the state dict: drop `id2label` (--labels).")
    if "id2label" in fields:
        fields = {**fields, "id2label": {int(i): label for i, label in fields["id2label"].items()}}
        if len(fields["id2label"]) != shown["num_labels"]:
            raise ValueError(
                f"There are {len(fields['id2label'])} labels for a head with {shown['num_labels']} outputs."
            )
        fields.setdefault("label2id", {label: i for i, label in fields["id2label"].items()})
        del shown["num_labels"]
    for name, value in shown.items():
        if name in fields and _plain(fields[name]) != _plain(value):
            raise ValueError(f"`{name}` is {fields[name]!r}, but the state dict has {value!r}.")
    fields = recipe | shown | fields
    for name, hint in {
        "num_attention_heads": "--num_heads: nothing in a LION-LIT checkpoint shows the number of heads",
        "pooling": "--pooling: whether the head reads the CLS token ('cls') or the average of all tokens ('mean')",
        "image_size": "--image_size: a model without positions, or with a grid that is no square, does not show it",
    }.items():
        if name in fields and fields[name] is None:
            raise ValueError(f"`{name}` is needed. On the command line, {hint}.")
    return LionConfig(**fields)


def _plain(value):
    """Sizes as [height, width] and tuples as lists, so that equal values compare equal."""
    return [value, value] if isinstance(value, int) and not isinstance(value, bool) else json.loads(json.dumps(value))


def _size(height: int, width: int) -> int | tuple[int, int]:
    return height if height == width else (height, width)


def _num_layers(state_dict: Mapping[str, Tensor], pattern: str) -> int:
    return max((int(match[1]) + 1 for name in state_dict if (match := re.match(pattern, name))), default=0)


def _mixer(state_dict: Mapping[str, Tensor], decay: str, gate: str) -> tuple[str, int | None]:
    """Type of the mixer and number of heads, from the names of the decays in the first layer."""
    if decay in state_dict:
        return "decay", state_dict[decay].numel()
    if f"{gate}.weight" in state_dict:
        return "selective", state_dict[f"{gate}.weight"].shape[0]
    return "lit", None


def _shown_by_image_model(state_dict: Mapping[str, Tensor], fields: Mapping) -> tuple[dict, dict]:
    hidden_size, num_channels, *patch_size = state_dict["patch_embed.proj.weight"].shape
    mixer_type, num_heads = _mixer(state_dict, "blocks.0.attn.a_i", "blocks.0.attn.a_i")
    fc1 = state_dict.get("blocks.0.mlp.fc1.weight")
    shown = {
        "modality": "image",
        "mixer_type": mixer_type,
        "hidden_size": hidden_size,
        "num_channels": num_channels,
        "patch_size": _size(*patch_size),
        "num_hidden_layers": _num_layers(state_dict, r"blocks\.(\d+)\."),
        "intermediate_size": fc1.shape[0] if fc1 is not None else 4 * hidden_size,
        "qkv_bias": "blocks.0.attn.qkv.bias" in state_dict,
        "position_embedding_type": "absolute" if "pos_embed" in state_dict else "none",
        "num_labels": state_dict["head.weight"].shape[0] if "head.weight" in state_dict else 0,
    }
    recipe = {"feature_map": "elu" if mixer_type == "lit" else "silu_norm", "normalization": "sum"}
    recipe |= dict.fromkeys(("num_attention_heads", "pooling", "image_size"))
    if mixer_type != "lit":
        shown["num_attention_heads"] = num_heads
        is_snake = any(name.startswith("blocks.0.attn.a2_i") for name in state_dict)
        shown["patch_order"] = "snake" if is_snake else "raster"
    if "pos_embed" in state_dict and fields.get("image_size") is None:
        num_patches = state_dict["pos_embed"].shape[1] - 1
        side = round(num_patches**0.5)
        if side * side == num_patches:
            recipe["image_size"] = _size(*(side * patch for patch in patch_size))
    return shown, recipe


def _shown_by_text_model(state_dict: Mapping[str, Tensor]) -> tuple[dict, dict]:
    layer = "bert.encoder.layer.0."
    words = state_dict[WORD_EMBEDDINGS]
    mixer_type, num_heads = _mixer(state_dict, layer + "attention.self.ai", layer + "attention.self.Wa_i")
    up = state_dict.get(layer + "intermediate.dense.weight")
    shown = {
        "modality": "text",
        "mixer_type": mixer_type,
        "vocab_size": words.shape[0],
        "hidden_size": words.shape[1],
        "num_hidden_layers": _num_layers(state_dict, r"bert\.encoder\.layer\.(\d+)\."),
        "intermediate_size": up.shape[0] if up is not None else 4 * words.shape[1],
        "qkv_bias": layer + "attention.self.query.bias" in state_dict,
        "attention_layer_norm": layer + "attention.self.layer_norm.weight" in state_dict,
    }
    if mixer_type != "lit":
        shown["num_attention_heads"] = num_heads
    for name, field in ((POSITION_EMBEDDINGS, "max_position_embeddings"), (TOKEN_TYPES, "type_vocab_size")):
        if name in state_dict:
            shown[field] = state_dict[name].shape[0]
    recipe = {"feature_map": "identity", "normalization": "none", "num_attention_heads": None}
    if "classifier.weight" in state_dict:
        shown["num_labels"] = state_dict["classifier.weight"].shape[0]
        if "bert.pooler.dense.weight" in state_dict:
            shown["pooling"] = "cls"
        else:
            recipe["pooling"] = None
    elif DECODER in state_dict:
        shown["tie_word_embeddings"] = torch.equal(state_dict[DECODER], words)
    return shown, recipe
