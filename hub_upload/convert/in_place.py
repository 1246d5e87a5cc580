# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""`lion convert` of an encoder of transformers: `modeling_lion.linearize`, and a folder of all that belongs to it."""

import json
import re
from pathlib import Path

import transformers
from transformers import (
    AutoConfig,
    AutoFeatureExtractor,
    AutoProcessor,
    BaseImageProcessor,
    FeatureExtractionMixin,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    ProcessorMixin,
)
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER
from transformers.utils import cached_file

from modeling_lion import LionConfig, linearize
from modeling_lion.in_transformers.in_place_config import InPlaceConfig

from ..checkpoint import (
    check_complete,
    fit_length,
    load_preprocessor,
    new_folder,
    no_progress_bars,
)
from ..sentence_modules import SETTINGS, copy_modules, encoder_folder, model_of_encoder


# What makes inputs of a model.
Processor = PreTrainedTokenizerBase | BaseImageProcessor | FeatureExtractionMixin | ProcessorMixin
MODALITIES = {"input_ids": "text", "pixel_values": "image"}
SOUNDS = ("preprocessor_config.json", "processor_config.json", "tokenizer_config.json")  # files of the others


def convert_encoder(source: str | Path, output_dir: str | Path, *, dtype: str | None = None, **options) -> str:
    """
    Make a folder with an encoder of transformers that became linear, its tokenizer or processor and, if it is one of
    sentence-transformers, its modules.

    Args:
        source: a folder or the name of a Hub repository. Its class, heads included, is the one it was saved as.
        output_dir: created only if the conversion succeeds.
        dtype: of the weights; by default as they are stored.
        options: of `modeling_lion.linearize`.

    Returns:
        A report: what became linear, what stays exact, and what is new.

    Raises:
        ValueError: if the encoder cannot become linear, or is it already, or its weights are not complete.
        OSError: if it does not exist, or is damaged.
    """
    with new_folder(output_dir) as folder, encoder_folder(source) as encoder:
        auto_class = None
        if encoder is not None:
            inside, auto_class = model_of_encoder(encoder)
            source = encoder / inside if inside else source
        model = load_encoder(source, auto_class, dtype)
        name = type(model).__name__
        linearize(model, **options)
        model.save_pretrained(folder)
        lines = [report(name, model)]
        processor = load_processor(model, source)
        if isinstance(processor, PreTrainedTokenizerBase):
            fit_length(processor, longest_text(model))
        if processor is None:
            lines.append(f"{source} has no tokenizer or processor: save one beside the model before you use it.")
        else:
            processor.save_pretrained(folder)
        if encoder is not None:
            lines.append(f"Modules of sentence-transformers: {', '.join(copy_modules(encoder, folder))}.")
            fit_settings(folder / SETTINGS, longest_text(model))
    return "\n".join(lines)


def load_encoder(source: str | Path, auto_class: str | None = None, dtype: str | None = None) -> PreTrainedModel:
    """
    Load an encoder as the class that it was saved as, or with an Auto class, in evaluation mode.

    Raises:
        ValueError: if transformers has no such class, the model is linear already, or weights are missing.
    """
    config = AutoConfig.from_pretrained(source, trust_remote_code=False)
    if isinstance(config, LionConfig | InPlaceConfig):
        raise ValueError(f"{source} is a {config.model_type!r} model, which is linear already: give its source.")
    name = auto_class or (config.architectures or ["AutoModel"])[0]
    model_class = getattr(transformers, name, None)
    if model_class is None:
        raise ValueError(
            f"{source} holds a {name}, which is no class of transformers {transformers.__version__}: take a model "
            "of a class that is (docs/compatibility.md lists those that can become linear)."
        )
    with no_progress_bars():
        options = {"dtype": dtype or "auto"}
        model, info = model_class.from_pretrained(source, output_loading_info=True, **options)
        missing = info["missing_keys"]
        if missing and all(re.search(r"(^|\.)pooler\.", key) for key in missing):  # it was trained without
            return model_class.from_pretrained(source, add_pooling_layer=False, **options).eval()
    check_complete(model, source, missing)
    return model.eval()


def longest_text(model: PreTrainedModel) -> int | None:
    """The most tokens of a text, by a table of positions that is not read again; `None` without a limit."""
    config = model.config
    if config.lion_position_table is None or config.lion_positions is not None:
        return None
    name, first = config.lion_position_table
    return model.base_model.get_submodule(name).num_embeddings - first


def load_processor(model: PreTrainedModel, source: str | Path) -> Processor | None:
    """The tokenizer, image processor, feature extractor or processor of an encoder; `None` if it has none."""
    modality = MODALITIES.get(model.main_input_name)
    if modality is not None:
        return load_preprocessor(modality, source, required=False)
    is_there = {x: cached_file(source, x, _raise_exceptions_for_missing_entries=False) is not None for x in SOUNDS}
    if not any(is_there.values()):
        return None
    # A model that writes has a tokenizer, too; without one, AutoProcessor fails.
    auto_class = AutoProcessor if is_there["tokenizer_config.json"] else AutoFeatureExtractor
    return auto_class.from_pretrained(source, trust_remote_code=False)


def fit_settings(path: Path, limit: int | None) -> None:
    """Let sentence-transformers read texts as long as the encoder does, where it has no limit."""
    settings = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    # Without a number, sentence-transformers takes that of the configuration, which is the length of a table.
    settings["max_seq_length"] = (
        VERY_LARGE_INTEGER if limit is None else min(settings.get("max_seq_length") or limit, limit)
    )
    path.write_text(json.dumps(settings, indent=2), encoding="utf-8")


def report(source_class: str, model: PreTrainedModel) -> str:
    """What became linear, what stays exact, and what is new."""
    config, longest = model.config, longest_text(model)
    is_linear = [sizes is not None for sizes in config.lion_layers.values()]
    became = f"{source_class} to {type(model).__name__}: {sum(is_linear)} of {len(is_linear)} attention modules"
    lines = [f"{became} became linear"]
    if any(is_linear):
        window = f"a window of {config.lion_window} tokens on each side" if config.lion_window else "no window"
        new = [parameter.numel() for name, parameter in model.named_parameters() if ".lion." in name]
        lines[0] += f" ({config.lion_mixer}, {config.lion_feature_map}, {window})."
        lines.append(f"Exact: inputs of at most {config.lion_exact_length} tokens are computed as before.")
        lines.append(
            f"New: {sum(new):,} weights of {model.num_parameters():,}. Train them before you use longer inputs, for "
            "example with examples/distill.py."
        )
    else:
        lines[0] += ": the model computes what its source computes, windows in linear time."
    if MODALITIES.get(model.main_input_name) == "text":
        table = f"Longest text: {longest} tokens, the table of positions; --positions cyclic reads it again."
        lines.append("No text is too long." if longest is None else table)
    return "\n".join(lines)
