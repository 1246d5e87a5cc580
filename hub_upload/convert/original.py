# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Convert checkpoints in the two layouts that the authors of the paper published: their weights, and their configuration,
which follows from the weights and from fields that the user gives.

Image models use the names of DeiT and timm, text models those of BERT and Composer; the tables below have all names.
Where a table has `.a_i`, the second curve of a snake scan has `.a2_i`. A decay is a vector in LION-D and a linear
layer in LION-S.

λ is sigmoid(a_i) in LION-D, but 1 - sigmoid(logit) in LION-S: the signs of its weights and biases change (SPEC §2).
"""

import argparse
import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedModel

from configuration_lion import LionConfig, published_fields
from modeling_lion import LionForImageClassification, LionForMaskedLM, LionForSequenceClassification


# The keys of the weights in training checkpoints, which also hold the state of the optimizer.
WRAPPERS = ("state", "model", "state_dict")
PREFIXES = ("module.", "_orig_mod.", "model.")
# Constants that some versions of BERT save.
BUFFERS = ("bert.embeddings.position_ids", "bert.embeddings.token_type_ids")
WORD_EMBEDDINGS = "bert.embeddings.word_embeddings.weight"
TOKEN_TYPES = "bert.embeddings.token_type_embeddings.weight"
POSITION_EMBEDDINGS = "bert.embeddings.position_embeddings.weight"
DECODER = "cls.predictions.decoder.weight"
DECODER_BIASES = ("cls.predictions.decoder.bias", "cls.predictions.bias")
# Replacements in LION's names that give the published ones.
IMAGE_NAMES = {
    r"^lion\.embeddings\.patch_embeddings\.": "patch_embed.proj.",
    r"^lion\.embeddings\.position_embeddings": "pos_embed",
    r"^lion\.embeddings\.": "",
    r"^lion\.norm\.": "norm.",
    r"^classifier\.": "head.",
    r"^lion\.layers\.": "blocks.",
    r"attention_norm\.": "norm1.",
    r"mlp_norm\.": "norm2.",
    r"attention\.o_proj\.": "attn.proj.",
    r"attention\.mixer\.[qkv]_proj\.": "attn.qkv.",
    r"attention\.mixer\.decay(_proj|\.bias)": "attn.a_i",
    r"mlp\.up_proj\.": "mlp.fc1.",
    r"mlp\.down_proj\.": "mlp.fc2.",
}
# The names of BERT and of the decays.
TEXT_NAMES = {
    r"^lion\.": "bert.",
    r"embeddings\.layer_norm\.": "embeddings.LayerNorm.",
    r"layers\.(\d+)\.": r"encoder.layer.\1.",
    r"attention\.mixer\.q_proj\.": "attention.self.query.",
    r"attention\.mixer\.k_proj\.": "attention.self.key.",
    r"attention\.mixer\.v_proj\.": "attention.self.value.",
    r"attention\.mixer\.decay\.bias": "attention.self.ai",
    r"attention\.mixer\.decay_proj\.": "attention.self.Wa_i.",
    r"attention\.layer_norm\.": "attention.self.layer_norm.",
    r"attention\.o_proj\.": "attention.output.dense.",
    r"attention_norm\.": "attention.output.LayerNorm.",
    r"mlp\.up_proj\.": "intermediate.dense.",
    r"mlp\.down_proj\.": "output.dense.",
    r"mlp_norm\.": "output.LayerNorm.",
    r"^lm_head\.dense\.": "cls.predictions.transform.dense.",
    r"^lm_head\.layer_norm\.": "cls.predictions.transform.LayerNorm.",
    r"^lm_head\.decoder\.": "cls.predictions.decoder.",
}


def load_checkpoint(path: str | Path) -> dict[str, Tensor]:
    """
    Load the weights in a `.safetensors` file, or in a pickle that holds nothing but numbers (`weights_only=True`).

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is damaged, has no weights, or holds anything that would have to be executed.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no checkpoint {path}: give a .pt, .pth, .bin or .safetensors file.")
    if path.suffix == ".safetensors":
        try:
            return unwrap_state_dict(load_file(path))
        except SafetensorError as error:
            raise ValueError(f"{path} is damaged or cut short ({error}): download or save it again.") from error
    # Training scripts also save parsed arguments and the state of numpy's random number generator; numpy before 2.0
    # had another name for the function that rebuilds arrays.
    reconstruct = np.empty(0).__reduce__()[0]
    allowed = [
        argparse.Namespace,
        np.ndarray,
        np.dtype,
        type(np.dtype(np.uint32)),
        (reconstruct, "numpy._core.multiarray._reconstruct"),
        (reconstruct, "numpy.core.multiarray._reconstruct"),
    ]
    try:
        with torch.serialization.safe_globals(allowed):
            checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds, by what is wrong with the file
        reason = (str(error) or repr(error)).splitlines()[0]
        raise ValueError(
            f"{path} cannot be read as weights only ({reason}). If it is whole and you trust it, save its weights "
            'alone: torch.save(torch.load(path, weights_only=False)["state"]["model"], "weights.pt"), with the keys '
            "under which it holds them."
        ) from error
    return unwrap_state_dict(checkpoint)


def unwrap_state_dict(checkpoint: Mapping) -> dict[str, Tensor]:
    """
    Return the state dict inside a training checkpoint, without the prefixes that wrappers of the model add to names.

    Raises:
        ValueError: if there is no state dict, or it has values that are not tensors.
    """
    while isinstance(checkpoint, Mapping) and not any(isinstance(value, Tensor) for value in checkpoint.values()):
        inner = next((checkpoint[key] for key in WRAPPERS if isinstance(checkpoint.get(key), Mapping)), None)
        if inner is None:
            break
        checkpoint = inner
    if not isinstance(checkpoint, Mapping) or not any(isinstance(value, Tensor) for value in checkpoint.values()):
        raise ValueError(f"The checkpoint holds no state dict, neither at the top nor under {', '.join(WRAPPERS)}.")
    if others := [str(name) for name, value in checkpoint.items() if not isinstance(value, Tensor)]:
        raise ValueError(f"There are things among the weights that are no tensors: {listed(others)}.")
    state_dict = dict(checkpoint)
    while prefix := next((p for p in PREFIXES if all(name.startswith(p) for name in state_dict)), None):
        state_dict = {name.removeprefix(prefix): value for name, value in state_dict.items()}
    return state_dict


def listed(names: Iterable) -> str:
    """Join the first names, and say how many more there are."""
    names = list(names)
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def rename(name: str, names: Mapping[str, str]) -> str:
    """Apply the patterns one after the other."""
    for pattern, replacement in names.items():
        name = re.sub(pattern, replacement, name)
    return name


def published_names(name: str, config: LionConfig, state_dict: Mapping[str, Tensor]) -> list[str]:
    """Return the names of the published weights that make up a LION weight: decays by scan, then by head."""
    if name == "lm_head.decoder.weight" and DECODER not in state_dict:
        return [WORD_EMBEDDINGS]
    if name == "lm_head.decoder.bias":
        return [next((bias for bias in DECODER_BIASES if bias in state_dict), DECODER_BIASES[-1])]
    published = rename(name, IMAGE_NAMES if config.modality == "image" else TEXT_NAMES)
    return [published, published.replace(".a_i", ".a2_i")][: config.num_scans if ".decay" in name else 1]


def make_weight(name: str, tensors: list[Tensor], config: LionConfig) -> Tensor:
    """Make a LION weight from the tensors of `published_names`."""
    if ".mixer.decay.bias" in name:
        return torch.cat([scan.flatten() for scan in tensors])
    if ".mixer.decay_proj." in name:
        return -torch.cat(tensors)
    if config.modality == "image" and (part := re.search(r"\.([qkv])_proj\.", name)):
        return tensors[0].chunk(3)["qkv".index(part[1])].clone()
    return tensors[0]


def model_class(state_dict: Mapping[str, Tensor]) -> type[PreTrainedModel]:
    """Return the LION class for a published state dict, by its task head."""
    if "patch_embed.proj.weight" in state_dict:
        return LionForImageClassification
    is_classifier = any(name.startswith("classifier.") for name in state_dict)
    return LionForSequenceClassification if is_classifier else LionForMaskedLM


def convert_original_state_dict(state_dict: Mapping[str, Tensor], config: LionConfig) -> dict[str, Tensor]:
    """
    Convert a published state dict to that of a LION model which computes the same.

    Args:
        state_dict: names and tensors in one of the two published layouts (see this module's docstring), with or
            without the wrappers of a training checkpoint.
        config: configuration of the model to make, for example from `infer_config`.

    Returns:
        All weights of `LionForMaskedLM`, `LionForSequenceClassification` or `LionForImageClassification`, by the task
        head in the state dict, for `model.load_state_dict(...)`. Dtypes are those of the state dict.

    Raises:
        ValueError: with the list of names, if weights are missing, are left over, have shapes that do not fit
            the configuration, or are two different values for one LION weight.
    """
    state_dict = unwrap_state_dict(state_dict)
    built_class = model_class(state_dict)
    if config.modality not in built_class._modalities:
        raise ValueError(f"`modality` is {config.modality!r}, but the state dict is of {built_class._modalities[0]}.")
    unused = set(BUFFERS)
    if config.position_embedding_type == "none":
        unused.add(POSITION_EMBEDDINGS)  # saved by every published text model, used by few
    if built_class is LionForMaskedLM:
        unused.update(DECODER_BIASES)  # two names of one bias
    with torch.device("meta"):
        expected = built_class(config).state_dict()
    sources = {name: published_names(name, config, state_dict) for name in expected}
    needed = {source for names in sources.values() for source in names}
    problems = {
        "missing": sorted(needed - state_dict.keys()),
        "unexpected": sorted(state_dict.keys() - needed - unused),
    }
    if any(problems.values()):
        raise ValueError(
            f"The state dict does not fit a {config.mixer_type!r} model of this configuration. "
            + " ".join(f"{kind.capitalize()}: {', '.join(names)}." for kind, names in problems.items() if names)
        )
    biases = [state_dict[name] for name in DECODER_BIASES if name in state_dict]
    if len(biases) == 2 and not torch.equal(*biases):
        raise ValueError(f"{' and '.join(DECODER_BIASES)} differ, but are one bias in a model.")
    is_tied = DECODER not in state_dict or torch.equal(state_dict[DECODER], state_dict[WORD_EMBEDDINGS])
    if config.tie_word_embeddings and not is_tied:
        raise ValueError(f"{DECODER} differs from {WORD_EMBEDDINGS}: set `tie_word_embeddings=False`.")

    converted = {
        name: make_weight(name, [state_dict[source] for source in names], config) for name, names in sources.items()
    }
    if wrong := [
        f"{' + '.join(sources[name])} {tuple(tensor.shape)} instead of {tuple(expected[name].shape)}"
        for name, tensor in converted.items()
        if tensor.shape != expected[name].shape
    ]:
        raise ValueError(f"The state dict has shapes that do not fit the configuration: {'; '.join(wrong)}.")
    return converted


def infer_config(state_dict: Mapping[str, Tensor], **fields) -> LionConfig:
    """
    Infer the configuration of a published model from its state dict, the published recipe (SPEC §6, §7) and fields
    that the user gives.

    Args:
        state_dict: names and tensors as published, with or without the wrappers of a training checkpoint.
        fields: fields of `LionConfig`. Needed where the state dict cannot show them: `num_attention_heads` for
            LION-LIT; `pooling` for images; `image_size` for images without positions, or with a grid that is no
            square; `pooling="mean"` for text classification without BERT's pooler. Text keeps a table of positions
            even if it never uses it: `position_embedding_type` is "absolute" for LION-LIT and "none" for the others,
            unless given.

    Returns:
        The configuration, for `convert_original_state_dict`.

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
    shown["head_directions"] = "both"  # as published
    for name, value in shown.items():
        if name in fields and as_list(fields[name]) != as_list(value):
            raise ValueError(f"`{name}` is {fields[name]!r}, but the state dict has {value!r}.")
    fields = recipe | shown | fields
    for name, hint in {
        "num_attention_heads": "--num_heads: nothing in a LION-LIT checkpoint shows the number of heads",
        "pooling": "--pooling: whether the task head reads the CLS token ('cls') or the mean of all tokens ('mean')",
        "image_size": "--image_size: a model without positions, or with a grid that is no square, does not show it",
    }.items():
        if name in fields and fields[name] is None:
            raise ValueError(f"`{name}` is needed. On the command line, {hint}.")
    return LionConfig(**(published_fields(fields["modality"]) | fields))


def as_list(value):
    """Sizes as [height, width] and tuples as lists, so that equal values compare equal."""
    return [value, value] if isinstance(value, int) and not isinstance(value, bool) else json.loads(json.dumps(value))


def as_size(height: int, width: int) -> int | tuple[int, int]:
    return height if height == width else (height, width)


def shown_by_layers(
    state_dict: Mapping[str, Tensor], layers: str, hidden_size: int, up: str, bias: str, decay: str, gate: str
) -> dict:
    """Return the fields that layers determine; `up`, `bias`, `decay` and `gate` are names in the first layer."""
    numbers = {int(name.removeprefix(layers).split(".")[0]) for name in state_dict if name.startswith(layers)}
    up_weight, decays, gates = (state_dict.get(f"{layers}0.{name}") for name in (up, decay, gate))
    shown = {
        "mixer_type": "decay" if decays is not None else "lit" if gates is None else "selective",
        "hidden_size": hidden_size,
        "num_hidden_layers": max(numbers, default=-1) + 1,
        "intermediate_size": up_weight.shape[0] if up_weight is not None else 4 * hidden_size,
        "qkv_bias": f"{layers}0.{bias}" in state_dict,
    }
    if decays is not None:
        shown["num_attention_heads"] = decays.numel()
    elif gates is not None:
        shown["num_attention_heads"] = gates.shape[0]
    return shown


def shown_by_image_model(state_dict: Mapping[str, Tensor]) -> tuple[dict, dict]:
    """Return the fields that the weights determine, and those of the published recipe (`None`: to be given)."""
    hidden_size, num_channels, *patch_size = state_dict["patch_embed.proj.weight"].shape
    names = ("mlp.fc1.weight", "attn.qkv.bias", "attn.a_i", "attn.a_i.weight")
    shown = shown_by_layers(state_dict, "blocks.", hidden_size, *names) | {
        "modality": "image",
        "num_channels": num_channels,
        "patch_size": as_size(*patch_size),
        "position_embedding_type": "absolute" if "pos_embed" in state_dict else "none",
        "num_labels": state_dict["head.weight"].shape[0] if "head.weight" in state_dict else 0,
    }
    recipe: dict[str, object] = {"feature_map": "elu", "normalization": "sum"}
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
    """`shown_by_image_model` for text models."""
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
