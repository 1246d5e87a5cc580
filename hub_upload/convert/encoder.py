# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Convert an encoder of transformers: `modeling_lion.linearize`, and a folder with everything that belongs to it."""

import json
from pathlib import Path

import transformers
from transformers import AutoConfig, PreTrainedModel

from modeling_lion import linearize
from modeling_lion.linearized.config import is_lion
from modeling_lion.linearized.model_inputs import longest_text

from ..checkpoint import fit_length, load_complete, load_preprocessor, new_folder
from ..sentence_modules import MODULES, SETTINGS, copy_modules, encoder_folder, model_of_encoder
from ..traits import MODALITIES


NO_LIMIT = 10**9  # tokens; sentence-transformers needs a number


def convert_encoder(source: str | Path, output_dir: str | Path, *, dtype: str | None = None, **options) -> str:
    """
    Linearize an encoder of transformers, and write a folder with it, its tokenizer or processor and, if it is an
    encoder of sentence-transformers, its modules.

    Args:
        source: a folder or the name of a Hub repository. The class of the model, with its task head, stays.
        output_dir: created only if the conversion succeeds.
        dtype: dtype of the weights; by default as they are stored.
        options: options of `modeling_lion.linearize`.

    Returns:
        A report: what became linear, what stays exact, and what is new.

    Raises:
        ValueError: if the encoder cannot become linear, is linear already, or lacks weights.
        OSError: if the encoder does not exist or is damaged.
    """
    check_is_model(source)
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
        modality = MODALITIES.get(model.main_input_name, "audio")
        kinds = ("audio", "text") if modality == "audio" else (modality,)  # models that transcribe sounds have both
        found = [x for kind in kinds if (x := load_preprocessor(kind, source, required=False)) is not None]
        for preprocessor in found:
            if modality == "text":
                fit_length(preprocessor, longest_text(model))
            preprocessor.save_pretrained(folder)
        if not found:
            lines.append(f"{source} has no tokenizer or processor: save one beside the model before you use it.")
        if encoder is not None:
            lines.append(f"Modules of sentence-transformers: {', '.join(copy_modules(encoder, folder))}.")
            fit_settings(folder / SETTINGS, longest_text(model))
    return "\n".join(lines)


def check_is_model(source: str | Path) -> None:
    """Raise a ValueError, which says what to give instead, if a folder has no model of transformers."""
    folder = Path(source)
    if not folder.is_dir() or (folder / "config.json").is_file() or (folder / MODULES).is_file():
        return
    others = sorted(x.parent for x in folder.glob("*/config.json"))
    others += sorted(x for x in folder.iterdir() if x.suffix in (".bin", ".pt", ".pth", ".safetensors"))
    hint = f" Or give {others[0]}." if others else ""
    raise ValueError(
        f"{source} has no model: there is no config.json. Give a folder that save_pretrained() wrote, the name of a "
        f"Hub repository, or a file of weights that the paper's authors published.{hint}"
    )


def load_encoder(source: str | Path, auto_class: str | None = None, dtype: str | None = None) -> PreTrainedModel:
    """
    Load an encoder in eval mode, as the class that it was saved as or with an Auto class.

    Raises:
        ValueError: if transformers has no such class, the model is linear already, or weights are missing.
    """
    config = AutoConfig.from_pretrained(source, trust_remote_code=False)
    if is_lion(config):
        raise ValueError(f"{source} is a {config.model_type!r} model, which is linear already: give its source.")
    name = auto_class or (config.architectures or ["AutoModel"])[0]
    model_class = getattr(transformers, name, None)
    if model_class is None:
        raise ValueError(
            f"{source} holds a {name}, which is no class of transformers {transformers.__version__}: take a model "
            "of a class that is (docs/compatibility.md lists those that can become linear)."
        )
    return load_complete(model_class, source, dtype=dtype or "auto")


def fit_settings(path: Path, limit: int | None) -> None:
    """Let sentence-transformers read texts of up to `limit` tokens, `None` for no limit. A saved lower limit stays."""
    settings = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    # Without a number, sentence-transformers takes `max_position_embeddings`, the size of a table.
    settings["max_seq_length"] = NO_LIMIT if limit is None else min(settings.get("max_seq_length") or limit, limit)
    path.write_text(json.dumps(settings, indent=2), encoding="utf-8")


def report(source_class: str, model: PreTrainedModel) -> str:
    """Say in lines what became linear, what stays exact, and what is new."""
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
    if model.main_input_name == "input_ids":
        table = f"Longest text: {longest} tokens, the table of positions; --positions cyclic reads it again."
        lines.append("No text is too long." if longest is None else table)
    return "\n".join(lines)
