# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
`linearize` replaces attention inside an encoder of transformers with LION (SPEC §13). probe.py finds the modules.
"""

import copy
from collections.abc import Iterable
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from ..private_apis import forget_weight_conversions
from .branch import LinearBranch
from .classes import become_linear, linearized_config_class, models_inside, name_classes
from .config import LinearizedConfig, parts_of
from .probe import FoundAttention, run_once


# The largest default of `exact_length`.
LONGEST_EXACT = 512


def linearize(
    model: PreTrainedModel,
    *,
    layers: str | Iterable[int] = "all",
    mixer: str = "lit",
    feature_map: str = "hedgehog",
    window: int = 64,
    exact_length: int | None = None,
    positions: str | None = None,
    parts: Iterable[str] | None = None,
    example_inputs: dict[str, Tensor] | None = None,
) -> PreTrainedModel:
    """
    Give an encoder of transformers linear attention beyond a length (SPEC §13). This changes the model and returns it:
    its class becomes `Lion<Class>`, its `model_type` "lion-<type>". It keeps its weights, task heads, hooks, dtype,
    device and mode. Each attention module gets a part named `lion` with new weights, which have to be trained
    (examples/distill.py) before the model reads longer texts well. The model gets a copy of its configuration; the
    original does not change. `model.set_attn_implementation("sdpa")` selects the original attention, `"lion"` LION.

    Args:
        model: any encoder whose layers call transformers' attention interface, with or without a task head.
        layers: the attention modules that become linear: "all", "global" (those without a window), "alternate" (every
            other one, from the first on) or indices. Others keep softmax, in linear time if they have a window.
        mixer: the decays of the linear sum (SPEC §2): "lit", "decay", "selective", or a mixer of your own that has
            `decay_of_keys` (`modeling_lion.register_mixer`). "delta" is the gated delta rule over all tokens instead
            of the sum.
        feature_map: φ, a positive feature map of `LionConfig.feature_map`, or "scaled_hedgehog", features of a learnt
            size, which reduce the error of distillation by a fifth.
        window: number of tokens on each side that softmax reads. With 0, the linear sum reads all tokens.
        exact_length: the encoder's own attention computes texts of at most so many real tokens (images: patches and
            prefix tokens), to the bit. Defaults to the length that the encoder was trained with, at most 512.
        positions: "cyclic" repeats a table of positions in texts longer than it; `None` refuses such texts.
        parts: names of the parts to linearize in a model of several parts, such as CLIP or LLaVA: `["vision_model"]`.
            The other parts keep their attention. The arguments above apply to each named part.
        example_inputs: a small input, by name, for the model or its named part, if its inputs cannot be made from the
            configuration.

    Returns:
        The model.

    Raises:
        ValueError: if an attention module cannot become linear, or an argument is wrong. The model is then unchanged.
            `save_pretrained` also raises it for a model of transformers that would load without its linear part:
            linearize that model with `parts`, instead of the part alone.
        TypeError: if the model is not a `PreTrainedModel`.
    """
    if not isinstance(model, PreTrainedModel):
        raise TypeError(
            f"linearize takes a model of transformers, not a {type(model).__name__}: for a SentenceTransformer give "
            "`encoder[0].auto_model`; for a PEFT model give the model before `get_peft_model`."
        )
    if isinstance(model.config, LinearizedConfig):
        raise ValueError(
            f"This {type(model).__name__} is linear already: load its source again, or set `lion_exact_length` in its "
            "configuration."
        )
    given = {"lion_mixer": mixer, "lion_feature_map": feature_map, "lion_window": window, "lion_positions": positions}
    chosen = [model] if parts is None else chosen_parts(model, parts)
    plans = [plan(part, layers, exact_length, example_inputs, given) for part in chosen]
    copy_config(model)
    for part, (fields, scalings) in zip(chosen, plans, strict=True):
        for name, value in fields.items():
            object.__setattr__(part.config, name, value)  # the class does not define these fields yet
        become_linear(part, "lion", scalings)
    name_classes(model)
    model.base_model.name_or_path = ""  # adapters would name it as their base, which has softmax
    for one in {model, *chosen}:
        one.config.architectures, one.name_or_path = [type(one).__name__], ""
        forget_weight_conversions(one)
    return model


def plan(
    model: PreTrainedModel,
    layers: str | Iterable[int],
    exact_length: int | None,
    example_inputs: dict[str, Tensor] | None,
    given: dict[str, Any],
) -> tuple[dict[str, Any], dict[str, float]]:
    """The fields of `LinearizedConfig` for a model, and the scaling of scores of each attention module."""
    findings = run_once(model, example_inputs)
    found = list(findings.attention.values())
    if not found:
        raise ValueError(
            f"{type(model).__name__} (`model_type` {model.config.model_type!r}) does not call transformers' attention "
            "interface, so that nothing can replace its attention. docs/compatibility.md lists the models "
            "that do."
        )
    chosen = chosen_modules(found, layers)
    for one in found:
        if one.problem is not None:
            reason = f"{type(model).__name__} cannot become linear: {one.name} {one.problem}."
            raise ValueError(reason + advice_on_encoder(model, found))
    fields = given | {
        "lion_layers": {one.name: [one.num_heads, one.head_dim] if one in chosen else None for one in found},
        "lion_exact_length": default_exact_length(model, found) if exact_length is None else exact_length,
        "lion_position_table": findings.position_table,
    }
    table = None if given["lion_positions"] is None else findings.position_table
    if table is not None and type(model.base_model.get_submodule(table[0])).forward is not nn.Embedding.forward:
        raise ValueError(
            f"`positions` is given, and {type(model).__name__} computes the rows of its table of positions "
            f"({table[0]}) where they cannot be changed: leave `positions` out."
        )
    config_class = linearized_config_class(type(model.config))
    try:
        config = config_class(**model.config.to_dict() | {"model_type": config_class.model_type} | fields)
    except StrictDataclassError as error:
        raise ValueError(str(error.__cause__)) from error
    with torch.device("meta"):  # a mixer or a feature map of the user may refuse these sizes
        for sizes in {(one.num_heads, one.head_dim) for one in chosen}:
            LinearBranch(config, *sizes)
    return fields, {one.name: one.scaling for one in found}


def chosen_parts(model: PreTrainedModel, names: Iterable[str]) -> list[PreTrainedModel]:
    """The parts of a model with these names. Raises a ValueError for other names."""
    possible = parts_with_config(model)
    names = [names] if isinstance(names, str) else list(names)
    if wrong := next((name for name in names if name not in possible), None):
        known = ", ".join(map(repr, possible)) or "none"
        raise ValueError(
            f"`parts` has {wrong!r}, which is no part of this {type(model).__name__} with a configuration of its own, "
            f"which a linear part needs to be saved. Parts that have one: {known}."
        )
    if not names:
        raise ValueError(f"`parts` is empty: give some of {', '.join(map(repr, possible))}.")
    return [possible[name] for name in names]


def parts_with_config(model: PreTrainedModel) -> dict[str, PreTrainedModel]:
    """The models inside a model, by name, whose configuration is a part of that of the model."""
    configs = {id(part) for part in parts_of(model.config)}
    return {name: x for name, x in models_inside(model).items() if id(x.config) in configs}


def advice_on_encoder(model: PreTrainedModel, found: list[FoundAttention]) -> str:
    """The parts that can become linear, in words: the encoder, or parts with a configuration of their own."""
    blocked = [one.name for one in found if one.problem is not None]
    base = "" if model.base_model is model else f"{model.base_model_prefix}."
    names = [x for x in parts_with_config(model) if not any(f"{base}{one}".startswith(f"{x}.") for one in blocked)]
    if names and not model.config.is_encoder_decoder:
        return f" Give those parts that can: `linearize(model, parts={names})`."
    encoder = model.get_encoder() if model.config.is_encoder_decoder else model
    path = next((name for name, module in model.named_modules() if module is encoder), "")
    if not path:
        return ""
    inside = next(name for name, module in model.base_model.named_modules() if module is encoder)
    blocked = next((one for one in found if one.problem is not None and one.name.startswith(f"{inside}.")), None)
    if blocked is None:
        return f" Give its encoder alone, `model.{path}`."
    return f" Its encoder alone, `model.{path}`, cannot either: {blocked.name} {blocked.problem}."


def copy_config(model: PreTrainedModel) -> None:
    """
    Give a model and all of its modules a copy of its configuration, which other models may share. Modules with an
    equal configuration get the same copy: those inside a VisionEncoderDecoderModel would not see what changes.
    """
    given = list(parts_of(model.config))
    copies: dict[int, Any] = {}  # of the configuration and its parts, by the `id` of the original
    copy.deepcopy(model.config, copies)
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, PreTrainedConfig):
                same = next((x for x in given if x is value), None) or next(
                    (x for x in given if equals(x, value)), value
                )
                setattr(module, name, copies.get(id(same), value))


def equals(first: PreTrainedConfig, second: PreTrainedConfig) -> bool:
    """Whether two configurations describe the same model, apart from where and in which dtype it is saved."""
    apart = {"_name_or_path": None, "architectures": None, "dtype": None}
    return type(first) is type(second) and first.to_dict() | apart == second.to_dict() | apart


def chosen_modules(found: list[FoundAttention], layers: str | Iterable[int]) -> list[FoundAttention]:
    if layers == "all":
        return found
    if layers == "global":
        if not (chosen := [one for one in found if not one.has_window]):
            raise ValueError('`layers` is "global", and all layers of this model have a window: give "all".')
        return chosen
    if layers == "alternate":
        return found[::2]
    is_sequence = isinstance(layers, Iterable) and not isinstance(layers, str)
    layers = list(layers) if is_sequence else layers
    if not is_sequence or not all(isinstance(index, int) for index in layers):
        raise ValueError(f'`layers` is {layers!r}; give "all", "global", "alternate" or indices, as [0, 2].')
    if wrong := [index for index in layers if not 0 <= index < len(found)]:
        raise ValueError(f"`layers` has {wrong[0]}, and the model has layers 0 to {len(found) - 1}.")
    return [found[index] for index in layers]


def default_exact_length(model: PreTrainedModel, found: list[FoundAttention]) -> int:
    """
    The length for which the encoder was trained, at most 512: positions, or the patches and prefix tokens of an image.
    """
    length = max(one.length for one in found)  # of an input of the configured size
    if model.main_input_name in ("input_ids", "input_values") and not hasattr(model.config, "max_length"):
        length = getattr(model.config, "max_position_embeddings", None)
    return LONGEST_EXACT if not isinstance(length, int) or length < 1 else min(length, LONGEST_EXACT)
