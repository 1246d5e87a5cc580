# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Start a LION from a trained softmax encoder of the library, a BERT or a ViT.

Every weight that has a counterpart is copied. Softmax attention has no decays, so these are new, and start with a λ so
close to 1 that each head reads its whole context, as softmax attention does. Linear attention computes something else,
so the model needs training before use, for example by `examples/distill_from_softmax.py`.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel

import modeling_lion
from configuration_lion import LionConfig
from modeling_lion.mixer_decay import DecayGate, FixedDecay

from .checkpoint import PREPROCESSOR_NAMES, fit_length, load_preprocessor, new_folder, no_progress_bars
from .original import TEXT_NAMES, rename
from .sentence import MODULES


# Class of the library to class of ours.
ARCHITECTURES = {
    "BertModel": "LionModel",
    "BertForPreTraining": "LionForMaskedLM",
    "BertForMaskedLM": "LionForMaskedLM",
    "BertForSequenceClassification": "LionForSequenceClassification",
    "BertForTokenClassification": "LionForTokenClassification",
    "BertForQuestionAnswering": "LionForQuestionAnswering",
    "BertForMultipleChoice": "LionForMultipleChoice",
    "ViTModel": "LionModel",
    "ViTForImageClassification": "LionForImageClassification",
}
# Patterns in the names of a ViT and what stands there in ours; first those of earlier releases of the library.
VIT_NAMES = {
    r"encoder\.layer\.": "layers.",
    r"attention\.attention\.([qkv])(uery|ey|alue)\.": r"attention.mixer.\1_proj.",
    r"attention\.output\.dense\.": "attention.o_proj.",
    r"intermediate\.dense\.": "mlp.up_proj.",
    r"(layers\.\d+)\.output\.dense\.": r"\1.mlp.down_proj.",
    r"^vit\.": "lion.",
    r"patch_embeddings\.projection\.": "patch_embeddings.",
    r"attention\.([qkv]_proj)\.": r"attention.mixer.\1.",
    r"layernorm_before\.": "attention_norm.",
    r"layernorm_after\.": "mlp_norm.",
    r"mlp\.fc1\.": "mlp.up_proj.",
    r"mlp\.fc2\.": "mlp.down_proj.",
    r"^(lion\.)?layernorm\.": r"\1norm.",
}


@dataclass
class WarmStartReport:
    """
    What happened to the weights.

    Attributes:
        source, model: names of the two classes.
        carried: of the weights that were copied, name in the softmax encoder to name in the LION.
        new: names in the LION that were initialised.
        dropped: names in the softmax encoder that have no counterpart.
    """

    source: str
    model: str
    carried: dict[str, str]
    new: list[str]
    dropped: list[str]

    def __str__(self) -> str:
        lines = [f"{self.source} to {self.model}: {len(self.carried)} weights carried over."]
        for title, names in (("New", self.new), ("Dropped", self.dropped)):
            # One line for all layers.
            kinds = dict.fromkeys(re.sub(r"\.\d+\.", ".*.", name) for name in names)
            lines.append(f"{title}: {len(names)} weights{': ' if kinds else ''}{', '.join(kinds)}.")
        return "\n".join(lines)


def warm_start_config(config: PreTrainedConfig, **overrides) -> LionConfig:
    """
    The configuration of a LION with the sizes of a BERT or ViT, and its positions, norms, activation and labels; the
    feature map is "elu".

    Args:
        config: of the softmax encoder.
        overrides: fields of `LionConfig`, for example `mixer_type="decay"`.

    Raises:
        ValueError: if the encoder is neither, or is one with no counterpart (a decoder, relative positions), or an
            override gives its weights another number of heads.
    """
    if config.model_type not in ("bert", "vit"):
        raise ValueError(f"A warm start needs a BERT or a ViT; this is a {config.model_type!r}.")
    if getattr(config, "is_decoder", False) or getattr(config, "add_cross_attention", False):
        raise ValueError("This BERT is a decoder (`is_decoder`, `add_cross_attention`); LION is bidirectional.")
    if (kind := getattr(config, "position_embedding_type", "absolute")) not in ("absolute", None):
        raise ValueError(f"This BERT has {kind!r} positions, which have no counterpart here; only absolute ones have.")
    heads = config.num_attention_heads
    if (given := overrides.get("num_attention_heads", heads)) != heads:
        raise ValueError(
            f"`num_attention_heads` is {given}, but the weights are those of {heads} heads: leave it out."
        )
    shared = [*LionConfig.__annotations__, "id2label", "label2id", "problem_type"]
    fields = {name: getattr(config, name) for name in shared if hasattr(config, name)}
    fields |= {
        "modality": "text" if config.model_type == "bert" else "image",
        "position_embedding_type": "absolute",
        "norm_position": "post" if config.model_type == "bert" else "pre",
        "pooling": "cls",
        # Preserves the norms of queries and keys, which decide how peaked softmax attention is. In the distillation of
        # MiniLM (examples/) it was ahead of "silu_norm" at every evaluation.
        "feature_map": "elu",
    }
    return LionConfig(**(fields | overrides))


def warm_start_from_softmax(
    model_or_folder: str | Path | PreTrainedModel, **config_overrides
) -> tuple[PreTrainedModel, WarmStartReport]:
    """
    Make a LION out of a trained BERT or ViT.

    Args:
        model_or_folder: a model, a folder of one, or its name on the Hub. Its class decides that of the LION: see
            `ARCHITECTURES`.
        config_overrides: fields of `LionConfig`, for example `mixer_type="decay"`, `patch_order="snake"`.
            `position_embedding_type="none"` drops the positions.

    Returns:
        The LION, in evaluation mode, and a report of the weights that were copied, initialised and dropped.

    Raises:
        ValueError: if the class has no counterpart, or an override changes the shape of a weight.
    """
    source = model_or_folder if isinstance(model_or_folder, PreTrainedModel) else load_encoder(model_or_folder)
    name = type(source).__name__
    if name not in ARCHITECTURES:
        raise ValueError(f"{name} has no counterpart; a warm start needs one of {', '.join(ARCHITECTURES)}.")
    config = warm_start_config(source.config, **config_overrides)
    model = getattr(modeling_lion, ARCHITECTURES[name])(config)
    weights = model.state_dict()
    state_dict = source.state_dict()
    if source.config.model_type == "bert":
        carried = {old: new for new in weights if (old := rename(new, TEXT_NAMES)) in state_dict}
    else:
        carried = {old: new for old in state_dict if (new := rename(old, VIT_NAMES)) in weights}
    if wrong := [
        f"{new} {tuple(weights[new].shape)} of {old} {tuple(state_dict[old].shape)}"
        for old, new in carried.items()
        if weights[new].shape != state_dict[old].shape
    ]:
        raise ValueError(
            f"These fields change the shapes of weights, which cannot be carried then: {'; '.join(wrong)}."
        )
    model.load_state_dict({new: state_dict[old] for old, new in carried.items()}, strict=False)
    open_decays(model)
    new = sorted(weights.keys() - set(carried.values()))
    # One bias under two names in the library.
    dropped = [old for old in state_dict if old not in carried and old != "cls.predictions.bias"]
    return model.eval(), WarmStartReport(name, type(model).__name__, carried, new, dropped)


def load_encoder(folder: str | Path) -> PreTrainedModel:
    """The model of a folder or of a name on the Hub, of the class that it was saved as."""
    config = AutoConfig.from_pretrained(folder)
    name = (config.architectures or ["no class"])[0]
    if name not in ARCHITECTURES:
        raise ValueError(f"{folder} holds {name}; a warm start needs one of {', '.join(ARCHITECTURES)}.")
    with no_progress_bars():
        return getattr(transformers, name).from_pretrained(folder)


@torch.no_grad()
def open_decays(model: PreTrainedModel) -> None:
    """Set every decay to a half-life of the whole context, λ = 2^(-1/context), whatever the token."""
    half_life = torch.tensor(model.config.context_length, dtype=torch.float64)
    logit = torch.logit(torch.exp2(-1 / half_life)).item()
    for module in model.modules():
        if isinstance(module, FixedDecay):
            module.bias.fill_(logit)
        elif isinstance(module, DecayGate):
            module.bias.copy_(module.bias_of(torch.full_like(module.bias, logit)))
            module.weight.zero_()


def save_warm_start(source: str | Path, output_dir: str | Path, **config_overrides) -> str:
    """`warm_start_from_softmax` from folder to folder, with the tokenizer or image processor; returns the report."""
    with new_folder(output_dir) as folder:
        model, report = warm_start_from_softmax(source, **config_overrides)
        model.save_pretrained(folder)
        preprocessor = load_preprocessor(model.config.modality, source, required=False)
        if preprocessor is not None:
            if model.config.modality == "text":
                fit_length(preprocessor, model.config)
            preprocessor.save_pretrained(folder)
    lines = [str(report)]
    if preprocessor is None:
        name = PREPROCESSOR_NAMES[model.config.modality]
        lines.append(f"{source} has no {name}: save one beside the model before you use a pipeline.")
    if Path(source, MODULES).is_file():
        lines.append(
            "Left out: the modules of sentence-transformers (pooling, for one), for an encoder that is trained."
        )
    if model.config.uses_softmax:
        lines.append("The attention is the same: the model computes what its source computes.")
    else:
        lines.append("The attention is a new one: train before use, for example by distillation.")
    return "\n".join(lines)
