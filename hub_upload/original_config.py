# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The configuration of a published checkpoint, from its weights and from fields that the user gives."""

import json
import math
from collections.abc import Mapping

import torch
from torch import Tensor

from configuration_lion import LionConfig

from .original_weights import (
    DECODER,
    POSITION_EMBEDDINGS,
    TOKEN_TYPES,
    WORD_EMBEDDINGS,
    listed,
    unwrap_state_dict,
)


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
        shown, recipe = shown_by_image_model(state_dict)
    elif WORD_EMBEDDINGS in state_dict:
        shown, recipe = shown_by_text_model(state_dict)
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
        if name in fields and as_list(fields[name]) != as_list(value):
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


def as_list(value):
    """Sizes as [height, width] and tuples as lists, so that equal values compare equal."""
    return [value, value] if isinstance(value, int) and not isinstance(value, bool) else json.loads(json.dumps(value))


def as_size(height: int, width: int) -> int | tuple[int, int]:
    return height if height == width else (height, width)


def shown_by_layers(
    state_dict: Mapping[str, Tensor], layers: str, hidden_size: int, up: str, bias: str, decay: str, gate: str
) -> dict:
    """What the layers show; `up`, `bias`, `decay` and `gate` are names in the first of them."""
    numbers = {int(name.removeprefix(layers).split(".")[0]) for name in state_dict if name.startswith(layers)}
    up, decay, gate = (state_dict.get(f"{layers}0.{name}") for name in (up, decay, gate))
    shown = {
        "mixer_type": "decay" if decay is not None else "lit" if gate is None else "selective",
        "hidden_size": hidden_size,
        "num_hidden_layers": max(numbers, default=-1) + 1,
        "intermediate_size": up.shape[0] if up is not None else 4 * hidden_size,
        "qkv_bias": f"{layers}0.{bias}" in state_dict,
    }
    if shown["mixer_type"] != "lit":
        shown["num_attention_heads"] = decay.numel() if shown["mixer_type"] == "decay" else gate.shape[0]
    return shown


def shown_by_image_model(state_dict: Mapping[str, Tensor]) -> tuple[dict, dict]:
    """Fields that it shows, and those of the published recipe, where `None` is what the user has to give."""
    hidden_size, num_channels, *patch_size = state_dict["patch_embed.proj.weight"].shape
    names = ("mlp.fc1.weight", "attn.qkv.bias", "attn.a_i", "attn.a_i.weight")
    shown = shown_by_layers(state_dict, "blocks.", hidden_size, *names) | {
        "modality": "image",
        "num_channels": num_channels,
        "patch_size": as_size(*patch_size),
        "position_embedding_type": "absolute" if "pos_embed" in state_dict else "none",
        "num_labels": state_dict["head.weight"].shape[0] if "head.weight" in state_dict else 0,
    }
    recipe = {"feature_map": "elu", "normalization": "sum"}
    recipe |= dict.fromkeys(("num_attention_heads", "pooling", "image_size"))
    if shown["mixer_type"] != "lit":
        recipe["feature_map"] = "silu_norm"
        is_snake = any(name.startswith("blocks.0.attn.a2_i") for name in state_dict)
        shown["patch_order"] = "snake" if is_snake else "raster"
    num_patches = state_dict["pos_embed"].shape[1] - 1 if "pos_embed" in state_dict else 0
    side = math.isqrt(num_patches)
    if side and side * side == num_patches:
        recipe["image_size"] = as_size(*(side * patch for patch in patch_size))
    return shown, recipe


def shown_by_text_model(state_dict: Mapping[str, Tensor]) -> tuple[dict, dict]:
    """As `shown_by_image_model`."""
    vocab_size, hidden_size = state_dict[WORD_EMBEDDINGS].shape
    names = ("intermediate.dense.weight", *(f"attention.self.{name}" for name in ("query.bias", "ai", "Wa_i.weight")))
    shown = shown_by_layers(state_dict, "bert.encoder.layer.", hidden_size, *names)
    shown |= {"modality": "text", "vocab_size": vocab_size}
    shown["attention_layer_norm"] = "bert.encoder.layer.0.attention.self.layer_norm.weight" in state_dict
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
        shown["tie_word_embeddings"] = torch.equal(state_dict[DECODER], state_dict[WORD_EMBEDDINGS])
    return shown, recipe
