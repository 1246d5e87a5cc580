# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Start a LION from a trained softmax encoder of the library, a BERT, a ModernBERT or a ViT.

Every weight that has a counterpart is copied, and layers may stay what they are. Softmax attention has no decays, so
those of the layers that become linear are new, and start with a λ so close to 1 that each head reads its whole
context, as softmax attention does. Linear attention computes something else, so the model needs training before use,
for example by `examples/distill_from_softmax.py`.
"""

import copy
import re
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel

import modeling_lion
from configuration_lion import LionConfig
from modeling_lion.feature_map import Hedgehog
from modeling_lion.mixer import LinearMixer
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
    "ModernBertModel": "LionModel",
    "ModernBertForMaskedLM": "LionForMaskedLM",
    "ModernBertForSequenceClassification": "LionForSequenceClassification",
    "ModernBertForTokenClassification": "LionForTokenClassification",
    "ModernBertForQuestionAnswering": "LionForQuestionAnswering",
    "ModernBertForMultipleChoice": "LionForMultipleChoice",
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
# The same of a ModernBERT, whose projections are one matrix; heads are named by the class of ours.
MODERNBERT_NAMES = {
    r"^model\.": "lion.",
    r"embeddings\.tok_embeddings\.": "embeddings.word_embeddings.",
    r"embeddings\.norm\.": "embeddings.layer_norm.",
    r"final_norm\.": "norm.",
    r"attn_norm\.": "attention_norm.",
    r"attn\.Wqkv\.([012])\.": lambda match: f"attention.mixer.{'qkv'[int(match[1])]}_proj.",
    r"attn\.Wo\.": "attention.o_proj.",
    r"mlp\.Wi\.0\.": "mlp.gate_proj.",
    r"mlp\.Wi\.1\.": "mlp.up_proj.",
    r"mlp\.Wo\.": "mlp.down_proj.",
    r"^head\.norm\.": "head.layer_norm.",
}
HEAD_NAMES = {
    "LionForMaskedLM": {r"^head\.": "lm_head.", r"^decoder\.": "lm_head.decoder."},
    "LionForQuestionAnswering": {r"^classifier\.": "qa_outputs."},
}
JOINT_WEIGHTS = {"Wqkv": 3, "Wi": 2}
# Fields of LionConfig that go by another name in a ModernBERT, and those that are the same in all of them.
MODERNBERT_FIELDS = {
    "hidden_act": "hidden_activation",
    "layer_norm_eps": "norm_eps",
    "qkv_bias": "attention_bias",
    "proj_bias": "attention_bias",
    "pooling": "classifier_pooling",
}
FAMILIES = {
    "bert": {"modality": "text", "position_embedding_type": "absolute", "norm_position": "post", "pooling": "cls"},
    "vit": {"modality": "image", "position_embedding_type": "absolute", "norm_position": "pre", "pooling": "cls"},
    "modernbert": {
        "modality": "text",
        "position_embedding_type": "none",
        "norm_position": "pre",
        "first_norm": False,
        "use_gated_mlp": True,
        "use_prediction_head": True,
        "type_vocab_size": 0,
    },
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


def layers_to_convert(linear_layers: str | list[int], layer_types: list[str]) -> list[int]:
    """
    The layers that become linear.

    Args:
        linear_layers: "global" for those that see all tokens, "all", "none", "alternate" for every other one of the
            global ones, from the first on; or their indices.
        layer_types: what they are in the softmax encoder.

    Raises:
        ValueError: for another word, or an index outside the layers.
    """
    every = list(range(len(layer_types)))
    full = [i for i in every if layer_types[i] == "full_attention"]
    words = {"global": full, "all": every, "none": [], "alternate": full[::2]}
    chosen = words.get(linear_layers) if isinstance(linear_layers, str) else linear_layers
    if not isinstance(chosen, list | tuple | range) or not set(chosen) <= set(every):
        raise ValueError(
            f"`linear_layers` is {linear_layers!r}; give one of {', '.join(words)}, or indices of layers, from 0 to "
            f"{len(every) - 1}."
        )
    return chosen


def warm_start_config(config: PreTrainedConfig, linear_layers: str | list[int] = "global", **overrides) -> LionConfig:
    """
    The configuration of a LION with the sizes of a BERT, ModernBERT or ViT, and its positions, norms, activation and
    labels; the feature map is "elu".

    Args:
        config: of the softmax encoder.
        linear_layers: which layers become linear, see `layers_to_convert`; the others stay what they are.
        overrides: fields of `LionConfig`, for example `mixer_type="decay"`.

    Raises:
        ValueError: if the encoder is neither, or is one with no counterpart (a decoder, relative positions), or an
            override gives its weights another number of heads.
    """
    if config.model_type not in FAMILIES:
        raise ValueError(f"A warm start needs one of {', '.join(FAMILIES)}; this is a {config.model_type!r}.")
    if getattr(config, "is_decoder", False) or getattr(config, "add_cross_attention", False):
        raise ValueError("This BERT is a decoder (`is_decoder`, `add_cross_attention`); LION is bidirectional.")
    kind = getattr(config, "position_embedding_type", "absolute")
    if config.model_type == "bert" and kind not in ("absolute", None):  # some ModernBERTs have the field, unread
        raise ValueError(f"This BERT has {kind!r} positions, which have no counterpart here; only absolute ones have.")
    if config.model_type == "modernbert" and config.classifier_activation != config.hidden_activation:
        raise ValueError(
            f"This ModernBERT has `classifier_activation` {config.classifier_activation!r} and `hidden_activation` "
            f"{config.hidden_activation!r}; LION has one for both, `hidden_act`."
        )
    layers = config.num_hidden_layers
    if (given := overrides.get("num_hidden_layers", layers)) != layers or overrides.get("layer_types") is not None:
        raise ValueError(
            f"The weights are those of {layers} layers of their types: leave out `num_hidden_layers` (got {given}) "
            "and `layer_types`; `linear_layers` says which become linear."
        )
    heads = config.num_attention_heads
    if (given := overrides.get("num_attention_heads", heads)) != heads:
        raise ValueError(
            f"`num_attention_heads` is {given}, but the weights are those of {heads} heads: leave it out."
        )
    shared = [*LionConfig.__annotations__, "id2label", "label2id", "problem_type"]
    fields = {name: getattr(config, name) for name in shared if hasattr(config, name)}
    fields |= FAMILIES[config.model_type]
    # Preserves the norms of queries and keys, which decide how peaked softmax attention is. In the distillation of
    # MiniLM (examples/) it was ahead of "silu_norm" at every evaluation.
    fields["feature_map"] = "elu"
    layer_types = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    linear = layers_to_convert(linear_layers, layer_types)
    mixer_type = overrides.get("mixer_type")
    if mixer_type == "softmax" and linear_layers == "global":
        linear = []
    elif mixer_type is not None and (mixer_type == "softmax") != (not linear):
        raise ValueError(
            f"`linear_layers` is {linear_layers!r} with `mixer_type` {mixer_type!r}: give one of them for a model of "
            "softmax alone, a linear mixer for others."
        )
    new_types = ["linear_attention" if i in linear else kind for i, kind in enumerate(layer_types)]
    if not linear:
        fields["mixer_type"] = overrides["mixer_type"] = "softmax"
    is_uniform = len(set(new_types)) == 1 and new_types[0] != "sliding_attention"
    fields["layer_types"] = None if is_uniform else new_types
    fields["sliding_window"] = config.sliding_window if "sliding_attention" in new_types else None
    if config.model_type == "modernbert":
        fields |= {ours: getattr(config, theirs) for ours, theirs in MODERNBERT_FIELDS.items()}
        rope = config.rope_parameters
        by_type = {kind: rope["full_attention" if kind == "linear_attention" else kind] for kind in set(new_types)}
        fields["rope_parameters"] = copy.deepcopy(by_type)
    return LionConfig(**(fields | overrides))


def warm_start_from_softmax(
    model_or_folder: str | Path | PreTrainedModel, linear_layers: str | list[int] = "global", **config_overrides
) -> tuple[PreTrainedModel, WarmStartReport]:
    """
    Make a LION out of a trained BERT, ModernBERT or ViT.

    Args:
        model_or_folder: a model, a folder of one, or its name on the Hub. Its class decides that of the LION: see
            `ARCHITECTURES`.
        linear_layers: which layers become linear: "global" for those that see all tokens (in a BERT or ViT, all of
            them), "alternate" for every other one of these, "all", "none", or their indices. The others stay softmax,
            in their window if they have one. Linear layers have the rotary positions of those that see all tokens.
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
    config = warm_start_config(source.config, linear_layers, **config_overrides)
    model = getattr(modeling_lion, ARCHITECTURES[name])(config)
    weights = model.state_dict()
    state_dict = split_joint_weights(source.state_dict())
    if source.config.model_type == "bert":
        carried = {old: new for new in weights if (old := rename(new, TEXT_NAMES)) in state_dict}
    else:
        names = VIT_NAMES
        if source.config.model_type == "modernbert":
            names = MODERNBERT_NAMES | HEAD_NAMES.get(ARCHITECTURES[name], {})
        carried = {old: new for old in state_dict if (new := rename(old, names)) in weights}
    if wrong := [
        f"{new} {tuple(weights[new].shape)} of {old} {tuple(state_dict[old].shape)}"
        for old, new in carried.items()
        if weights[new].shape != state_dict[old].shape
    ]:
        raise ValueError(
            f"These fields change the shapes of weights, which cannot be carried then: {'; '.join(wrong)}."
        )
    model.load_state_dict({new: state_dict[old] for old, new in carried.items()}, strict=False)
    imitate_softmax(model)
    new = sorted(weights.keys() - set(carried.values()))
    # One bias under two names in the library.
    dropped = [old for old in state_dict if old not in carried and old != "cls.predictions.bias"]
    return model.eval(), WarmStartReport(name, type(model).__name__, carried, new, dropped)


def split_joint_weights(state_dict: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """With the parts of `JOINT_WEIGHTS` under names of their own: "attn.Wqkv.weight" is "attn.Wqkv.0.weight", …"""
    split = {}
    for name, weight in state_dict.items():
        module, _, kind = name.rpartition(".")
        parts = JOINT_WEIGHTS.get(module.rpartition(".")[2], 0)
        names = [f"{module}.{n}.{kind}" for n in range(parts)] or [name]
        split |= zip(names, weight.chunk(len(names)) if parts else [weight], strict=True)
    return split


def load_encoder(folder: str | Path) -> PreTrainedModel:
    """The model of a folder or of a name on the Hub, of the class that it was saved as."""
    config = AutoConfig.from_pretrained(folder)
    name = (config.architectures or ["no class"])[0]
    if name not in ARCHITECTURES:
        raise ValueError(f"{folder} holds {name}; a warm start needs one of {', '.join(ARCHITECTURES)}.")
    with no_progress_bars():
        return getattr(transformers, name).from_pretrained(folder)


@torch.no_grad()
def imitate_softmax(model: PreTrainedModel) -> None:
    """
    Start what is new near softmax attention: learnt features at its scale, softmax(±x / D^¼), and every decay at a
    half-life of the whole context, λ = 2^(-1/context), whatever the token.
    """
    half_life = torch.tensor(model.config.context_length, dtype=torch.float64)
    logit = torch.logit(torch.exp2(-1 / half_life)).item()
    for module in model.modules():
        if isinstance(module, FixedDecay):
            module.bias.fill_(logit)
        elif isinstance(module, DecayGate):
            module.bias.copy_(module.bias_of(torch.full_like(module.bias, logit)))
            module.weight.zero_()
        elif isinstance(module, Hedgehog):
            module.weight.mul_(model.config.head_dim**-0.25)
        elif isinstance(module, LinearMixer) and module.window_gate is not None:
            module.window_gate.weight.zero_()


def save_warm_start(
    source: str | Path, output_dir: str | Path, linear_layers: str | list[int] = "global", **config_overrides
) -> str:
    """`warm_start_from_softmax` from folder to folder, with the tokenizer or image processor; returns the report."""
    with new_folder(output_dir) as folder:
        model, report = warm_start_from_softmax(source, linear_layers, **config_overrides)
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
    if not model.config.has_linear_layers:
        lines.append("The attention is the same: the model computes what its source computes.")
    else:
        lines.append("Linear attention is a new one: train before use, for example by distillation.")
    return "\n".join(lines)
