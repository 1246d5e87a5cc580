# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Start a LION from a trained softmax encoder of transformers, of a family in convert/families.py.

Every weight that has a counterpart is copied, and layers may remain softmax. Softmax attention has no decays, so
decays of layers that become linear are new, and start with λ so close to 1 that each head reads its whole context, as
softmax attention does. Linear attention computes a different function, so the model needs training before use, for
example with `examples/distill_from_softmax.py`.
"""

import copy
import re
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from transformers import AutoConfig, AutoModel, BaseImageProcessor, PreTrainedConfig, PreTrainedModel

import modeling_lion
from configuration_lion import LionConfig, published_fields
from modeling_lion.mixers.feature_map import Hedgehog
from modeling_lion.mixers.linear import LinearMixer
from modeling_lion.mixers.linear_decay import DecayGate, FixedDecay

from ..checkpoint import (
    PREPROCESSOR_NAMES,
    check_complete,
    fit_length,
    load_preprocessor,
    new_folder,
    no_progress_bars,
)
from ..sentence_modules import copy_modules, encoder_folder, model_of_encoder
from .families import SHARED_FIELDS, Family, Head, find_head
from .original import rename


# Classes with one vector for a text or an image.
WITH_POOLER = ("LionModel", "LionForSequenceClassification", "LionForMultipleChoice", "LionForImageClassification")


@dataclass
class WarmStartReport:
    """
    What became of the weights.

    Attributes:
        source, model: names of the two classes.
        carried: the weights that were copied, by their names in the softmax encoder, with their names in the LION.
            Parts of a weight are numbered, and so are copies of a layer that is applied several times.
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


def parse_linear_layers(words: str) -> str | list[int]:
    """Parse an argument of the command line: "0,2,4" are indices of layers; other words are unchanged."""
    return [int(index) for index in words.split(",")] if words.replace(",", "").isdigit() else words


def layers_to_convert(linear_layers: str | list[int], layer_types: list[str]) -> list[int]:
    """
    The layers that become linear.

    Args:
        linear_layers: "global" for those that see all tokens, "alternate" for every other one of these, beginning
            with the first, "all", "none", or their indices.
        layer_types: the types of all layers in the softmax encoder.

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


def warm_start_config(
    source: PreTrainedConfig,
    name: str,
    linear_layers: str | list[int] = "global",
    has_dense_pooler: bool = True,
    **overrides,
) -> LionConfig:
    """
    The configuration of a LION with the sizes, positions, norms, activation and labels of a softmax encoder; further
    fields of linear layers come from `nearest_to_softmax`.

    Args:
        source: of the softmax encoder.
        name: of its class in transformers.
        linear_layers: which layers become linear, see `layers_to_convert`; the others remain softmax.
        has_dense_pooler: whether the source has a dense layer after its pooling.
        overrides: fields of `LionConfig`, for example `mixer_type="decay"`.

    Raises:
        ValueError: if the class has no counterpart, or is configured as something that has none (a decoder, relative
            positions), or an override gives its weights another number of heads.
    """
    family, head = find_head(source.model_type, name)
    config = encoder_config(source, family)
    for need in (*family.needs, *head.needs):
        value, possible = getattr(config, need.name, None), need.values(config)
        if hasattr(config, need.name) and value not in possible:
            raise ValueError(
                f"This {family.title} has `{need.name}` {value!r}, {need.reason} ({need.name}={possible[0]!r})."
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
    if (given := overrides.get("num_key_heads", heads)) not in (None, heads):
        raise ValueError(
            f"`num_key_heads` is {given}, but the weights have a query and a key for each of {heads} heads: leave it "
            "out."
        )
    fields = {name: getattr(config, name) for name in SHARED_FIELDS if hasattr(config, name)}
    fields |= {name: getattr(source, name) for name in ("id2label", "label2id", "problem_type")}
    for names in (family, head):
        fields |= names.constants
        fields |= {ours: getattr(config, x) if isinstance(x, str) else x(config) for ours, x in names.fields.items()}
    if overrides.get("pooling", fields["pooling"]) != fields["pooling"]:
        fields["pooler_act"] = None  # of another vector
    elif head.model in WITH_POOLER and not has_dense_pooler:
        fields["pooler_act"] = "none"
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
    if linear:
        fields |= nearest_to_softmax(fields, overrides)
    else:
        fields["mixer_type"] = overrides["mixer_type"] = "softmax"
    is_uniform = len(set(new_types)) == 1 and new_types[0] != "sliding_attention"
    fields["layer_types"] = None if is_uniform else new_types
    fields["sliding_window"] = config.sliding_window if "sliding_attention" in new_types else None
    rope = fields.get("rope_parameters")
    if rope and "full_attention" in rope:
        rope = {kind: rope["full_attention" if kind == "linear_attention" else kind] for kind in set(new_types)}
    fields["rope_parameters"] = copy.deepcopy(rope)
    return LionConfig(**(published_fields(fields["modality"]) | fields | overrides))


def nearest_to_softmax(fields: dict, overrides: dict) -> dict:
    """
    The fields with which linear layers begin and end nearest to softmax attention, as measured on MiniLM
    (docs/guides/convert.md): learnt features, and for texts a softmax window in every head, unless overridden. A
    position table repeats after its end, which changes nothing for texts that fit it and admits longer ones. With a
    window and positions there are no decays: they add nothing.
    """
    mixer_type = overrides.get("mixer_type")
    chosen = {"feature_map": "elu" if mixer_type == "diagonal" else "hedgehog"}  # with a decay for each of D channels
    if fields["modality"] == "text":
        if mixer_type != "luna" and overrides.get("normalization") != "none":
            chosen["local_window"] = 64
        if fields["position_embedding_type"] == "absolute":
            chosen["position_embedding_type"] = "cyclic"
        final = fields | chosen | overrides
        has_positions = final["position_embedding_type"] != "none" or final.get("rope_parameters") is not None
        if final.get("local_window") and has_positions:
            chosen["mixer_type"] = "lit"
    return chosen


def encoder_config(config: PreTrainedConfig, family: Family) -> PreTrainedConfig:
    """The configuration of the encoder: a part of that of a model of images and texts, otherwise all of it."""
    return config if family.vision is None else getattr(config, family.vision)


def warm_start_from_softmax(
    model_or_folder: str | Path | PreTrainedModel, linear_layers: str | list[int] = "global", **config_overrides
) -> tuple[PreTrainedModel, WarmStartReport]:
    """
    Make a LION from a trained softmax encoder of transformers, of a family in convert/families.py:
    BERT, RoBERTa, DistilBERT, ELECTRA, ALBERT, NomicBERT, GTE, EuroBERT, ModernBERT, ViT, DeiT, DINOv2, CLIP, ...

    Args:
        model_or_folder: a model, a folder of one, or its name on the Hub. Its class decides that of the LION.
        linear_layers: which layers become linear: "global" for those that see all tokens (in a BERT or ViT, all of
            them), "alternate" for every other one of these, "all", "none", or their indices. The others remain
            softmax, with their window if they have one. Linear layers have the rotary positions of layers that see all
            tokens.
        config_overrides: fields of `LionConfig`, for example `mixer_type="decay"`, `patch_order="snake"`.
            `position_embedding_type="none"` drops the positions; those of images are interpolated to an `image_size`.

    Returns:
        The LION, in evaluation mode, and a report of the weights that were copied, initialised and dropped.

    Raises:
        ValueError: if the class has no counterpart, or an override changes the shape of a weight.

    Example:

    ```python
    >>> from hub_upload_lion import warm_start_from_softmax
    >>> from transformers import BertConfig, BertModel

    >>> sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    >>> lion, report = warm_start_from_softmax(BertModel(BertConfig(**sizes)))
    >>> lion.config.mixer_type, lion.config.feature_map
    ('lit', 'hedgehog')

    ```
    """
    source = model_or_folder if isinstance(model_or_folder, PreTrainedModel) else load_encoder(model_or_folder)
    name = type(source).__name__
    family, head = find_head(source.config.model_type, name)
    given, names = named_weights(source, family, head)
    has_dense_pooler = "pooler.dense.weight" in given
    config = warm_start_config(source.config, name, linear_layers, has_dense_pooler, **config_overrides)
    if "embeddings.position_embeddings" in given and config.position_embedding_type == "absolute":
        given = given | fitted_positions(given, encoder_config(source.config, family), config, family.antialias)
    model = getattr(modeling_lion, head.model)(config)
    weights = model.state_dict()
    ours = {new.removeprefix("lion."): new for new in weights}
    carried = {names.get(new, new): ours[new] for new in given if new in ours}
    state_dict = {ours[new]: reshaped(x, weights[ours[new]].shape) for new, x in given.items() if new in ours}
    if wrong := [
        f"{new} {tuple(weights[new].shape)} of {old} {tuple(state_dict[new].shape)}"
        for old, new in carried.items()
        if weights[new].shape != state_dict[new].shape
    ]:
        raise ValueError(
            f"These fields change the shapes of weights, which cannot be carried then: {'; '.join(wrong)}."
        )
    new = sorted(weights.keys() - state_dict.keys())
    zeros = [ours for ours in new if any(re.search(zero, ours.removeprefix("lion.")) for zero in family.zeros)]
    model.load_state_dict(state_dict | {name: torch.zeros_like(weights[name]) for name in zeros}, strict=False)
    imitate_softmax(model)
    dropped = [names.get(new, new) for new in given if new not in ours and not re.search(family.twice, new)]
    new = [name for name in new if name not in zeros]
    return model.eval(), WarmStartReport(name, type(model).__name__, carried, new, dropped)


def named_weights(
    source: PreTrainedModel, family: Family, head: Head
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """
    The weights of a softmax encoder by the names that they would have in a LION, without the prefix "lion."; those
    without a counterpart have other names. And, for each of these names, the name in the source.
    """
    config = encoder_config(source.config, family)
    split = split_weights(source.state_dict(), family, config)
    prefix = rf"^({'|'.join(family.prefixes)})\." if family.prefixes else "^$"
    patterns = {prefix: "", **family.names, **head.names}
    names = {rename(old, patterns): old for old in split}
    # Of weights in half precision, products and sums are to be those of float32.
    given = {new: split[old].to(torch.promote_types(split[old].dtype, torch.float32)) for new, old in names.items()}
    for fold in family.folds:
        given = fold(given, config)
    return given, names


def split_weights(
    state_dict: dict[str, torch.Tensor], family: Family, config: PreTrainedConfig
) -> dict[str, torch.Tensor]:
    """Add the parts of joint weights, and the copies of layers that are applied several times, under their names."""
    split = {}
    for name, weight in state_dict.items():
        parts = next((n for pattern, n in family.joint.items() if re.search(pattern, name)), 0)
        if parts:
            split |= {f"{name}.{n}": part for n, part in enumerate(weight.chunk(parts))}
        elif family.shared_layers and (match := re.search(rf"^(\w+\.)?{family.shared_layers[1:]}", name)):
            layers = range(config.num_hidden_layers)
            copies = [i for i in layers if i * config.num_hidden_groups // len(layers) == int(match[2])]
            split |= {f"{match[1] or ''}layers.{i}.{name[match.end() :]}": weight for i in copies}
        else:
            split[name] = weight
    return split


def reshaped(weight: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Reshape a weight that differs by dimensions of 1 only; any other is unchanged."""
    squeezed = lambda size: [n for n in size if n != 1]
    return weight.reshape(shape) if squeezed(weight.shape) == squeezed(shape) else weight


def fitted_positions(
    weights: dict[str, torch.Tensor], source: PreTrainedConfig, config: LionConfig, antialias: bool
) -> dict[str, torch.Tensor]:
    """
    The positions of patches, interpolated from the grid of the source to that of the LION if they differ, as
    transformers does for images of other sizes.
    """
    name = "embeddings.position_embeddings"
    positions = weights[name].flatten(0, -2)
    old = copy.copy(config)
    old.image_size, old.patch_size = source.image_size, source.patch_size
    if old.patch_grid == config.patch_grid:
        return {}
    first, patches = positions.tensor_split((int(config.use_cls_token),))
    grid = patches.T.unflatten(1, old.patch_grid).unsqueeze(0).float()
    options = {"mode": "bicubic", "align_corners": False, "antialias": antialias}
    grid = torch.nn.functional.interpolate(grid, size=config.patch_grid, **options)
    return {name: torch.cat((first, grid[0].flatten(1).T.to(first.dtype)))}


def load_encoder(folder: str | Path, model_class: type | None = None) -> PreTrainedModel:
    """
    Load a model from a folder or the Hub, as the class that it was saved as or as `model_class`.

    Raises:
        ValueError: if that class has no counterpart.
    """
    config = AutoConfig.from_pretrained(folder)
    name = (config.architectures or [None])[0]
    if model_class is None and name is not None:
        find_head(config.model_type, name)
        model_class = getattr(transformers, name)
    model_class = model_class or AutoModel
    with no_progress_bars():
        model, info = model_class.from_pretrained(folder, output_loading_info=True)
        missing = info["missing_keys"]
        if missing and all(re.search(r"(^|\.)pooler\.", key) for key in missing):  # it was trained without
            return model_class.from_pretrained(folder, add_pooling_layer=False)
    check_complete(model, folder, missing)
    return model


@torch.no_grad()
def imitate_softmax(model: PreTrainedModel) -> None:
    """
    Initialise new weights near softmax attention: learnt features with its scale, softmax(±x / D^¼), and every decay
    with a half-life of the whole context, λ = 2^(-1/context), for all tokens.
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


def size_of_images(processor: BaseImageProcessor) -> int | list[int] | None:
    """The `image_size` that an image processor produces; `None` if it varies."""
    size = processor.crop_size if getattr(processor, "do_center_crop", False) else processor.size
    height, width = (dict(size).get(side) for side in ("height", "width"))
    return height if height == width else [height, width]


def save_warm_start(
    source: str | Path, output_dir: str | Path, linear_layers: str | list[int] = "global", **config_overrides
) -> str:
    """
    `warm_start_from_softmax` from folder to folder, with the tokenizer or image processor, and with the modules of
    sentence-transformers; returns the report.
    """
    lines = []
    with new_folder(output_dir) as folder, encoder_folder(source) as encoder:
        model_class = None
        if encoder is not None:
            inside, auto_class = model_of_encoder(encoder)
            source = encoder / inside if inside else source
            model_class = getattr(transformers, auto_class)
        trained = load_encoder(source, model_class)
        family, _ = find_head(trained.config.model_type, type(trained).__name__)
        modality = family.constants["modality"]
        preprocessor = load_preprocessor(modality, source, required=False)
        if modality == "image" and preprocessor is not None and "image_size" not in config_overrides:
            trained_size, size = encoder_config(trained.config, family).image_size, size_of_images(preprocessor)
            if size is not None and size != (trained_size if isinstance(trained_size, int) else [*trained_size]):
                config_overrides["image_size"] = size
                lines.append(
                    f"Positions are interpolated from images of {trained_size} pixels to the processor's {size}."
                )
        model, report = warm_start_from_softmax(trained, linear_layers, **config_overrides)
        lines.insert(0, str(report))
        model.save_pretrained(folder)
        if preprocessor is None:
            name = PREPROCESSOR_NAMES[modality]
            lines.append(f"{source} has no {name}: save one beside the model before you use a pipeline.")
        else:
            if modality == "text":
                fit_length(preprocessor, model.config)
            preprocessor.save_pretrained(folder)
        if encoder is not None:
            names = copy_modules(encoder, folder)
            lines.append(f"Modules of sentence-transformers: {', '.join(names)}.")
    if not model.config.has_linear_layers:
        lines.append("The attention is the same: the model computes what its source computes.")
    else:
        lines.append("Linear attention is a new one: train before use, for example by distillation.")
    return "\n".join(lines)
