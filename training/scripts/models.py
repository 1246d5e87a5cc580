# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Load or make the configuration, the model and its processor, as the arguments of a script say."""

import json
import re
from difflib import get_close_matches
from pathlib import Path

import torch
from tokenization_lion import lion_image_processor
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.models.auto.image_processing_auto import AutoImageProcessor
from transformers.tokenization_utils_base import LARGE_INTEGER

from configuration_lion import PRESETS, LionConfig, lion_preset
from configuration_lion.registry import find_mixer

# With the package, the Auto classes and pipelines know LION.
from modeling_lion.linearized.model_inputs import longest_text

from .arguments import ModelArguments


YES_AND_NO = {**dict.fromkeys(("true", "1", "y", "yes"), True), **dict.fromkeys(("false", "0", "n", "no"), False)}


def load_config(model_args: ModelArguments) -> PreTrainedConfig:
    """Return the configuration of these arguments. Raises a ValueError if fields do not exist or fit together."""
    overrides = model_args.config_overrides
    if model_args.config_name in PRESETS:
        # Passed to the constructor, since defaults of other fields depend on them.
        return lion_preset(model_args.config_name, **overridden(LionConfig(), overrides))
    name = model_args.model_name_or_path or model_args.config_name
    try:
        config = ordered_labels(AutoConfig.from_pretrained(name, cache_dir=model_args.cache_dir), name)
    except OSError as error:
        folder = Path(name)
        beside = [x.name for x in folder.parent.iterdir()] if folder.parent.is_dir() else []
        similar = get_close_matches(folder.name, [*beside, *PRESETS], 1)
        meant = f" Did you mean {similar[0]}?" if similar else ""
        raise ValueError(
            f"There is no configuration {name!r}: give a folder that has a config.json, a name on the Hub, or, to "
            f"--config_name, a preset, as {next(iter(PRESETS))}; --help lists them.{meant}"
        ) from error
    if overrides is not None:
        changes = overridden(config, overrides)
        if isinstance(config, LionConfig) and "max_position_embeddings" in changes:
            changes = {"initial_context_length": None} | changes  # as `from_pretrained` does: it follows
        config = type(config).from_dict(config.to_dict() | changes)
        config.validate()
    return config


def ordered_labels(config: PreTrainedConfig, name: str) -> PreTrainedConfig:
    """Sort the labels of a configuration by their numbers, which config.json may have in another order."""
    config.id2label = dict(sorted(config.id2label.items()))
    if [*config.id2label] != [*range(len(config.id2label))]:
        raise ValueError(f"id2label in config.json of {name} has the numbers {[*config.id2label]}: count from 0 on.")
    return config


def overridden(config: PreTrainedConfig, overrides: str | None) -> dict[str, object]:
    """
    Parse "field=value,field=value": a value in JSON, or a word, which is a text, or yes or no for a field that is true
    or false. Commas in brackets do not end a value.

    Raises:
        ValueError: if a part is no assignment, or neither `config` nor the chosen mixer has such a field.
    """
    parts = [] if overrides is None else re.split(r",(?![^\[{]*[\]}])", overrides)
    if not all("=" in part for part in parts):
        raise ValueError(f"--config_overrides is {overrides!r}; write field=value,field=value.")
    words = dict(part.split("=", 1) for part in parts)
    mixer = words.get("mixer_type", getattr(config, "mixer_type", None))
    own_fields = find_mixer(mixer).fields if mixer is not None else {}
    for name in words:
        if not hasattr(config, name) and name not in own_fields:
            raise ValueError(f"--config_overrides has {name!r}, which is no field of {type(config).__name__}.")
    return {name: parsed(word, getattr(config, name, None)) for name, word in words.items()}


def parsed(word: str, before: object) -> object:
    """Parse the value of a field that was `before`."""
    if isinstance(before, bool) and word.lower() in YES_AND_NO:
        return YES_AND_NO[word.lower()]
    try:
        value = json.loads(word)
    except ValueError:
        return word
    return float(value) if type(before) is float and type(value) is int else value


def context_length(config: PreTrainedConfig, longest: int | None) -> int:
    """Return the configured length of a text in tokens, at most the `longest_text` of the model."""
    length = config.context_length if isinstance(config, LionConfig) else config.max_position_embeddings
    return length if longest is None else min(length, longest)


def without_weights(config: PreTrainedConfig) -> PreTrainedModel:
    """Make the base model of a configuration on the device "meta", to look at its modules."""
    with torch.device("meta"):
        return AutoModel.from_config(config)


def check_length(what: str, length: int, longest: int | None, fix: str) -> None:
    """Raise a ValueError if `what` are more tokens than the `longest_text` of the model."""
    if longest is not None and length > longest:
        raise ValueError(
            f"{what} {length} tokens, the model has positions for {longest} (max_position_embeddings): {fix}, or take "
            "a model without a table of positions."
        )


def text_length(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, asked: int | None) -> int:
    """
    Return the tokens of a text: the `--max_seq_length` that was `asked` for, else the limit of the tokenizer, else the
    `context_length`. Raises a ValueError if the model has no positions for so many.
    """
    known, longest = tokenizer.model_max_length, longest_text(model)
    length = asked or (known if known < LARGE_INTEGER else context_length(model.config, longest))
    check_length("--max_seq_length is", length, longest, f"give --max_seq_length {longest}")
    return length


def load_model(auto_class: type, model_args: ModelArguments, config: PreTrainedConfig) -> PreTrainedModel:
    """
    Return the model of these arguments, with trained weights, or with new ones for this configuration. Raises a
    ValueError if --config_overrides has an `image_size` that the trained weights do not fit.
    """
    options = {"attn_implementation": model_args.attn_implementation, "dtype": model_args.dtype}
    options = {name: value for name, value in options.items() if value is not None}
    if model_args.model_name_or_path is not None:
        options |= {"cache_dir": model_args.cache_dir, "ignore_mismatched_sizes": model_args.ignore_mismatched_sizes}
        try:
            return auto_class.from_pretrained(model_args.model_name_or_path, config=config, **options)
        except RuntimeError as error:
            changed = overridden(config, model_args.config_overrides)
            if "image_size" not in changed or "ignore_mismatched_sizes" not in str(error):
                raise
            raise ValueError(
                f"--config_overrides has image_size={changed['image_size']}, but {model_args.model_name_or_path} has "
                "weights for its own size, such as a table of positions: leave image_size out."
            ) from error
    if options.get("dtype") == "auto":
        del options["dtype"]
    return auto_class.from_config(config, **options)


def load_tokenizer(name: str, cache_dir: str | None = None):
    """Load the tokenizer of a trained model. It pads at the end: positions in texts are counted from the left."""
    return AutoTokenizer.from_pretrained(name, cache_dir=cache_dir, padding_side="right")


def load_processor(model_args: ModelArguments, config: PreTrainedConfig, segmentation: bool = False):
    """
    Load the model's image processor, or make one. Of one for another task than segmentation, or for another
    `image_size` than that of --config_overrides, only the colours are kept.
    """
    name, colours = model_args.model_name_or_path, {}
    if name is not None:
        saved = AutoImageProcessor.from_pretrained(name, cache_dir=model_args.cache_dir)
        has_task = not segmentation or hasattr(saved, "post_process_semantic_segmentation")
        if has_task and "image_size" not in overridden(config, model_args.config_overrides):
            return saved
        names = ("do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std", "resample")
        colours = {name: getattr(saved, name) for name in names if getattr(saved, name, None) is not None}
    return lion_image_processor(config, segmentation=segmentation, **colours)
