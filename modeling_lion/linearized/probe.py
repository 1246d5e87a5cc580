# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Runs an encoder of transformers once, to find the modules that call transformers' attention interface, and its table of
positions. It assumes no names of modules or fields.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import AttentionMaskInterface, PreTrainedConfig, PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import AttentionInterface

from ..attention.tracing import is_readable
from .config import parts_of


PROBE = "lion_probe"
PROBING = threading.Lock()  # names of attention functions belong to the process
OUTSIDE = "has a part outside of the base model: give the base model alone, as `model.base_model`"
# Number of tokens of the texts that the probe reads, which differs from other sizes of the model.
PROBE_LENGTH = 7


@dataclass
class FoundAttention:
    """An attention module, and the arguments with which it called the interface."""

    name: str
    num_heads: int
    head_dim: int
    scaling: float | None
    has_window: bool
    length: int
    problem: str | None


@dataclass
class Findings:
    """The attention modules of an encoder, in order, and the name and first position of its table of positions."""

    attention: dict[nn.Module, FoundAttention] = field(default_factory=dict)
    position_table: tuple[str, int] | None = None


def run_once(model: PreTrainedModel, example_inputs: dict[str, Tensor] | None) -> Findings:
    """Run the model with a small input, and record what it finds. Raises a ValueError if the model does not run."""
    findings = Findings()
    names = {module: name for name, module in model.base_model.named_modules()}
    made: list[Tensor] = []  # the masks that transformers made for an input without padding

    def attention(module, query, key, value, attention_mask=None, scaling=None, is_causal=None, **kwargs):
        if isinstance(attention_mask, Tensor) and any(torch.equal(attention_mask, x) for x in made):
            attention_mask = None
        is_cross = query.shape[2] != key.shape[2]
        problem = problem_of(model.config, module, is_cross, attention_mask, is_causal, kwargs)
        if module not in names:
            problem = OUTSIDE
        name, has_window = names.get(module, type(module).__name__), kwargs.get("sliding_window") is not None
        found = FoundAttention(name, query.shape[1], query.shape[-1], scaling, has_window, query.shape[2], problem)
        findings.attention.setdefault(module, found)
        return query.new_zeros(len(query), query.shape[2], query.shape[1], value.shape[-1]), None

    def mask(*args, **kwargs):
        found = ALL_MASK_ATTENTION_FUNCTIONS["eager"](*args, **kwargs)  # for models that do not call the interface
        if found is not None:
            made.append(found)
        return found

    inputs = small_inputs(model) if example_inputs is None else example_inputs
    # Only for texts: images of other sizes do not need a longer table, but are refused or interpolated.
    is_text = model.main_input_name == "input_ids"
    tables = {module.weight: name for module, name in names.items() if isinstance(module, nn.Embedding) and is_text}
    with PROBING, probing(model, attention, mask), torch.no_grad(), RecordPositions(tables, findings):
        try:
            run_with(model, inputs)
        except ValueError:
            if example_inputs is not None or model.base_model is model:
                raise
            run_with(model.base_model, inputs)  # a task head may need more inputs, such as labels
    kinds = {type(module) for module in findings.attention}
    if outside := next((x for x in model.modules() if type(x) in kinds and x not in names), None):
        findings.attention[outside] = replace(next(iter(findings.attention.values())), problem=OUTSIDE)
    return findings


def run_with(model: PreTrainedModel, inputs: dict[str, Any]) -> None:
    """Run a model. Raises a ValueError, which says what to give, if the model fails."""
    try:
        model(**inputs)
    except Exception as error:
        shapes = {name: tuple(x.shape) for name, x in inputs.items() if isinstance(x, Tensor)}
        raise ValueError(
            f"{type(model).__name__} did not run with inputs of the shapes {shapes} ({error}): give a small input "
            "that it runs with as `example_inputs`."
        ) from error


class RecordPositions(TorchFunctionMode):
    """A mode that records a table as the table of positions if the model reads consecutive rows of it."""

    def __init__(self, tables: dict[Tensor, str], findings: Findings):
        super().__init__()
        self.tables, self.findings = tables, findings

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is nn.functional.embedding:
            index, weight = args[:2]
            steps = index.diff(dim=-1) if index.dim() else index[:0]
            if weight in self.tables and steps.numel() and is_readable(index) and bool((steps == 1).all()):
                self.findings.position_table = self.tables[weight], int(index.flatten()[0])
        return function(*args, **(kwargs or {}))


@contextmanager
def probing(model: PreTrainedModel, attention: Callable, mask: Callable) -> Iterator[None]:
    """Put the model into evaluation mode, and let it call these attention and mask functions."""
    AttentionInterface.register(PROBE, attention)
    AttentionMaskInterface.register(PROBE, mask)
    own = (
        module.config for module in model.modules() if isinstance(getattr(module, "config", None), PreTrainedConfig)
    )
    configs = {id(part): part for config in own if isinstance(config, PreTrainedConfig) for part in parts_of(config)}
    before = [(config, config._attn_implementation) for config in configs.values()]
    modes = [(module, module.training) for module in model.modules()]
    for config in configs.values():
        config._attn_implementation = PROBE
    model.eval()
    try:
        yield
    finally:
        for config, name in before:  # the whole first, since setting its name also sets that of its parts
            config._attn_implementation = name
        for module, mode in modes:
            module.training = mode
        AttentionInterface.register(PROBE, None)  # which would keep the model alive
        AttentionMaskInterface.register(PROBE, None)


def problem_of(
    config: PreTrainedConfig, module: nn.Module, is_cross: bool, mask: Any, is_causal: bool | None, kwargs: dict
) -> str | None:
    """Why an attention module cannot become linear; `None` if it can."""
    if getattr(module, "is_causal", False) if is_causal is None else is_causal:
        return "is causal, and LION reads in both directions"
    if getattr(config, "is_decoder", False):
        return "belongs to a decoder (`is_decoder`)"
    if is_cross:
        return "attends to another sequence"
    if adds_bias(mask) or any(kwargs.get(name) is not None for name in ("position_bias", "relative_position_bias")):
        return "adds a bias to its scores"
    if kwargs.get("softcap") is not None or kwargs.get("s_aux") is not None:
        return "has a soft cap or sinks"
    return None


def adds_bias(mask: Any) -> bool:
    """Whether a mask that the model itself made for an input without padding hides or weights any key."""
    if mask is None:
        return False
    if not isinstance(mask, Tensor) or not is_readable(mask) or (mask.dim() == 4 and mask.shape[1] > 1):
        return True
    return not bool((mask if mask.dtype == torch.bool else mask == 0).all())


def small_inputs(model: PreTrainedModel) -> dict[str, Tensor]:
    """A small input of the kind that the model reads. Images, clips and spectrograms have the configured size."""
    kinds = [model.main_input_name]
    if hasattr(model.config, "text_config") and hasattr(model.config, "vision_config"):
        kinds = ["input_ids", "pixel_values"]
    inputs = {kind: small_input(model, kind) for kind in kinds}
    if model.config.is_encoder_decoder and "decoder_input_ids" in signature(model.forward).parameters:
        inputs["decoder_input_ids"] = small_input(model, "input_ids")
    return inputs


def small_input(model: PreTrainedModel, kind: str) -> Tensor:
    config = model.config
    if kind == "input_ids":
        config = getattr(config, "text_config", config)
        token = next(x for x in (5, 4, 3, 2) if x != getattr(config, "pad_token_id", None))
        return torch.full(
            (1, PROBE_LENGTH), min(token, getattr(config, "vocab_size", token + 1) - 1), device=model.device
        )
    shape = shape_of(config, kind)
    if shape is None:
        raise ValueError(
            f"{type(model).__name__} reads `{kind}`, and no small input is known for it: give one as `example_inputs`."
        )
    return torch.zeros(1, *shape, device=model.device, dtype=model.dtype)


def shape_of(config: PreTrainedConfig, kind: str) -> tuple[int, ...] | None:
    """The shape of one image, clip, spectrogram, waveform or series; `None` if it is not in the configuration."""
    if kind in ("pixel_values", "pixel_values_videos"):
        config = getattr(config, "vision_config", config)
        size = first_field(config, "image_size", "crop_size")
        height, width = (size, size) if size is None or isinstance(size, int) else size
        frames = first_field(config, "num_frames", "frames_per_clip")
        image = first_field(config, "num_channels", "in_chans", default=3), height, width
        return None if size is None else image if frames is None else (frames, *image)
    mels = getattr(config, "num_mel_bins", None)
    if kind == "input_values":
        return (4000,) if mels is None else (config.max_length, mels)
    if kind == "input_features" and mels is not None and hasattr(config, "max_source_positions"):
        return mels, 2 * config.max_source_positions  # Whisper reads no other length
    if kind == "past_values" and hasattr(config, "num_input_channels"):
        return config.context_length, config.num_input_channels
    return None


def first_field(config: PreTrainedConfig, *names: str, default: Any = None) -> Any:
    return next((getattr(config, name) for name in names if hasattr(config, name)), default)
