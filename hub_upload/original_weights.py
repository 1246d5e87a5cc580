# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Weights in the two layouts that the paper's authors published, to weights of LION models.

Images (DeiT, timm): `cls_token`, `pos_embed`, `patch_embed.proj`, in `blocks.<i>` `norm1`, `norm2`, `attn.qkv`,
`attn.proj`, `mlp.fc1` and `mlp.fc2`, then `norm` and `head`. Decays: `attn.a_i`, a vector in LION-D, a linear layer in
LION-S; the second curve of a snake scan has `attn.a2_i`.

Text (Composer, BERT): `bert.embeddings`, `bert.encoder.layer.<i>`, in `attention.self` BERT's `query`, `key`, `value`
and `layer_norm` (over the concatenated heads), `ai` (LION-D) or `Wa_i` (LION-S); `cls.predictions`, or
`bert.pooler.dense` and `classifier`.

λ is sigmoid(a_i) in LION-D, but 1 - sigmoid(logit) in LION-S: the signs of its weights and biases change (SPEC §2).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from configuration_lion import LionConfig
from modeling_lion import LionForImageClassification, LionForMaskedLM, LionForSequenceClassification

from .original_file import unwrap_state_dict


# Constants that some versions of BERT save.
BUFFERS = ("bert.embeddings.position_ids", "bert.embeddings.token_type_ids")
WORD_EMBEDDINGS = "bert.embeddings.word_embeddings.weight"
TOKEN_TYPES = "bert.embeddings.token_type_embeddings.weight"
POSITION_EMBEDDINGS = "bert.embeddings.position_embeddings.weight"
DECODER = "cls.predictions.decoder.weight"
DECODER_BIASES = ("cls.predictions.decoder.bias", "cls.predictions.bias")


@dataclass
class Weight:
    """How one of our weights is made: of which published ones, and by which function of them."""

    names: tuple[str, ...]
    make: Callable[..., Tensor] = lambda tensor: tensor


def _weights_of_decays(config: LionConfig, mixer: str, decays: tuple[str, ...]) -> dict[str, Weight]:
    """Our decays are ordered by scan, then by head: those of the first curve, then those of the second."""
    if config.mixer_type == "decay":
        return {f"{mixer}decay.bias": Weight(decays, lambda *scans: torch.cat([scan.flatten() for scan in scans]))}
    if config.mixer_type == "selective":
        return {
            f"{mixer}decay_proj.{kind}": Weight(
                tuple(f"{name}.{kind}" for name in decays), lambda *scans: -torch.cat(scans)
            )
            for kind in ("weight", "bias")
        }
    return {}


def _renamed(names: Mapping[str, str], kinds: tuple[str, ...] = ("weight", "bias")) -> dict[str, Weight]:
    return {f"{ours}.{kind}": Weight((f"{published}.{kind}",)) for published, ours in names.items() for kind in kinds}


def _weights_of_image_model(config: LionConfig) -> dict[str, Weight]:
    weights = {"lion.embeddings.cls_token": Weight(("cls_token",))}
    if config.position_embedding_type == "absolute":
        weights["lion.embeddings.position_embeddings"] = Weight(("pos_embed",))
    weights |= _renamed({"patch_embed.proj": "lion.embeddings.patch_embeddings"})
    if config.norm_position == "pre":
        weights |= _renamed({"norm": "lion.norm"})
    if config.num_labels > 0:
        weights |= _renamed({"head": "classifier"})
    for i in range(config.num_hidden_layers):
        block, layer = f"blocks.{i}.", f"lion.layers.{i}."
        weights |= _renamed(
            {
                block + "norm1": layer + "attention_norm",
                block + "attn.proj": layer + "attention.o_proj",
                block + "norm2": layer + "mlp_norm",
                block + "mlp.fc1": layer + "mlp.up_proj",
                block + "mlp.fc2": layer + "mlp.down_proj",
            }
        )
        for kind in ("weight", "bias") if config.qkv_bias else ("weight",):
            for part, name in enumerate(("q_proj", "k_proj", "v_proj")):
                weights[f"{layer}attention.mixer.{name}.{kind}"] = Weight(
                    (f"{block}attn.qkv.{kind}",), lambda qkv, part=part: qkv.chunk(3)[part].clone()
                )
        decays = (block + "attn.a_i", block + "attn.a2_i")[: config.num_scans]
        weights |= _weights_of_decays(config, layer + "attention.mixer.", decays)
    return weights


def _weights_of_text_model(config: LionConfig, state_dict: Mapping[str, Tensor]) -> dict[str, Weight]:
    embeddings = {
        "bert.embeddings.word_embeddings": "lion.embeddings.word_embeddings",
        "bert.embeddings.token_type_embeddings": "lion.embeddings.token_type_embeddings",
    }
    if config.position_embedding_type == "absolute":
        embeddings["bert.embeddings.position_embeddings"] = "lion.embeddings.position_embeddings"
    weights = _renamed(embeddings, ("weight",)) | _renamed({"bert.embeddings.LayerNorm": "lion.embeddings.layer_norm"})
    for i in range(config.num_hidden_layers):
        bert, layer = f"bert.encoder.layer.{i}.", f"lion.layers.{i}."
        for published, ours in {"query": "q_proj", "key": "k_proj", "value": "v_proj"}.items():
            names = {f"{bert}attention.self.{published}": f"{layer}attention.mixer.{ours}"}
            weights |= _renamed(names, ("weight", "bias") if config.qkv_bias else ("weight",))
        names = {
            bert + "attention.output.dense": layer + "attention.o_proj",
            bert + "attention.output.LayerNorm": layer + "attention_norm",
            bert + "intermediate.dense": layer + "mlp.up_proj",
            bert + "output.dense": layer + "mlp.down_proj",
            bert + "output.LayerNorm": layer + "mlp_norm",
        }
        if config.attention_layer_norm:
            names[bert + "attention.self.layer_norm"] = layer + "attention.layer_norm"
        decay = bert + ("attention.self.ai" if config.mixer_type == "decay" else "attention.self.Wa_i")
        weights |= _renamed(names) | _weights_of_decays(config, layer + "attention.mixer.", (decay,))
    if _is_classifier(state_dict):
        weights |= _renamed({"classifier": "classifier"})
        if config.pooling == "cls":
            weights |= _renamed({"bert.pooler.dense": "lion.pooler.dense"})
        return weights
    weights |= _renamed(
        {
            "cls.predictions.transform.dense": "lm_head.dense",
            "cls.predictions.transform.LayerNorm": "lm_head.layer_norm",
        }
    )
    weights["lm_head.decoder.weight"] = Weight((DECODER if DECODER in state_dict else WORD_EMBEDDINGS,))
    weights["lm_head.decoder.bias"] = Weight(
        (next((name for name in DECODER_BIASES if name in state_dict), DECODER_BIASES[-1]),)
    )
    return weights


def _is_classifier(state_dict: Mapping[str, Tensor]) -> bool:
    return any(name.startswith("classifier.") for name in state_dict)


def model_class(state_dict: Mapping[str, Tensor]) -> type[PreTrainedModel]:
    """The LION class for a published state dict, by its head."""
    if "patch_embed.proj.weight" in state_dict:
        return LionForImageClassification
    return LionForSequenceClassification if _is_classifier(state_dict) else LionForMaskedLM


def convert_original_state_dict(state_dict: Mapping[str, Tensor], config: LionConfig) -> dict[str, Tensor]:
    """
    The state dict of a LION model that computes what a published model computes.

    Args:
        state_dict: names and tensors in one of the two published layouts (see this module's docstring), with or
            without the wrappers of a training checkpoint.
        config: of the model to make, for example from `infer_config`.

    Returns:
        All weights of `LionForMaskedLM`, `LionForSequenceClassification` or `LionForImageClassification`, by the
        head that the state dict has; for `model.load_state_dict(...)`. Dtypes are those of the state dict.

    Raises:
        ValueError: with the list of names, if weights are missing, are left over, have shapes that do not fit
            the configuration, or are two different values for one of ours.
    """
    state_dict = unwrap_state_dict(state_dict)
    built_class = model_class(state_dict)
    if config.modality not in built_class._modalities:
        raise ValueError(f"`modality` is {config.modality!r}, but the state dict is of {built_class._modalities[0]}.")
    if config.modality == "image":
        weights, unused = _weights_of_image_model(config), set()
    else:
        weights, unused = _weights_of_text_model(config, state_dict), set(BUFFERS)
        if config.position_embedding_type == "none":
            unused.add(POSITION_EMBEDDINGS)  # saved by every published text model, used by few
        if built_class is LionForMaskedLM:
            unused.update(DECODER_BIASES)  # two names of one bias

    needed = {name for weight in weights.values() for name in weight.names}
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

    converted = {ours: weight.make(*(state_dict[name] for name in weight.names)) for ours, weight in weights.items()}
    with torch.device("meta"):
        expected = built_class(config).state_dict()
    if wrong := [
        f"{' + '.join(weights[name].names)} {tuple(tensor.shape)} instead of {tuple(expected[name].shape)}"
        for name, tensor in converted.items()
        if tensor.shape != expected[name].shape
    ]:
        raise ValueError(f"The state dict has shapes that do not fit the configuration: {'; '.join(wrong)}.")
    return converted
