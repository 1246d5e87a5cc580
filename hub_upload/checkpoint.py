# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Load models and preprocessors from trained folders and Hub repositories, and write folders atomically."""

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from tokenization_lion.tokenization_lion import knows_words
from transformers import AutoConfig, AutoFeatureExtractor, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

# transformers 5.17 without torchvision exports a placeholder under the short name; the class itself needs none.
from transformers.models.auto.image_processing_auto import AutoImageProcessor
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER
from transformers.utils import cached_file, logging

import modeling_lion
from configuration_lion import LionConfig
from modeling_lion.linearized.config import is_lion


WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
PICKLED_WEIGHTS = ("pytorch_model.bin", "pytorch_model.bin.index.json")
PREPROCESSOR_NAMES = {"text": "tokenizer", "image": "image processor", "audio": "feature extractor"}
PREPROCESSOR_CLASSES = {"text": AutoTokenizer, "image": AutoImageProcessor, "audio": AutoFeatureExtractor}
PREPROCESSOR_FILES = {
    "text": ("tokenizer.json", "tokenizer_config.json", "vocab.txt"),
    "image": ("preprocessor_config.json", "processor_config.json"),
    "audio": ("preprocessor_config.json", "processor_config.json"),
}


def is_weights(name: str) -> bool:
    """Return whether `save_pretrained` gives this name to weights, or to their index."""
    return re.fullmatch(r"model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?", name) is not None


def find_checkpoint(folder: str | Path) -> Path:
    """
    Return the folder that holds the weights: `folder` or, in a Trainer's output, its newest `checkpoint-<step>`.

    Raises:
        ValueError: if there are no safetensors weights.
    """
    folder = Path(folder)
    matches = ((p, re.fullmatch(r"checkpoint-(\d+)", p.name)) for p in folder.iterdir() if p.is_dir())
    steps = {p: int(match[1]) for p, match in matches if match}
    newest_first = sorted(steps, key=lambda p: -steps[p])
    for candidate in (folder, *newest_first):
        if (candidate / "config.json").is_file() and any((candidate / name).is_file() for name in WEIGHTS):
            return candidate
    if any((folder / name).is_file() for name in PICKLED_WEIGHTS):
        raise ValueError(
            f"The weights in {folder} are a pickle, which runs code on the machine of whoever loads it: save them "
            "again with model.save_pretrained(), which writes safetensors."
        )
    if (folder / "adapter_config.json").is_file():
        raise ValueError(
            f"{folder} holds a PEFT adapter, not a whole model: merge it with model.merge_and_unload(), and save that "
            "with save_pretrained(), beside the tokenizer or image processor."
        )
    raise ValueError(
        f"There is no checkpoint in {folder}: it needs config.json and model.safetensors, as model.save_pretrained() "
        "and trainer.save_model() write them."
    )


def load_model(
    checkpoint: str | Path,
    *,
    dtype: torch.dtype | str = "auto",
    attn_implementation: str | None = None,
    revision: str | None = None,
) -> PreTrainedModel:
    """
    Load a model in eval mode, as the class that it was saved as. Code in the checkpoint does not run.

    Args:
        checkpoint: a folder, a Trainer's output or a Hub repository.
        dtype, attn_implementation, revision: as in `from_pretrained`.

    Raises:
        ValueError: if this is not a LION checkpoint, or weights are missing from it.
        OSError: if the checkpoint does not exist or is damaged.
    """
    if Path(checkpoint).is_dir():
        checkpoint = find_checkpoint(checkpoint)
    config = AutoConfig.from_pretrained(checkpoint, trust_remote_code=False, revision=revision)
    if not is_lion(config):
        raise ValueError(
            f"{checkpoint} is a {config.model_type!r} model, not a LION. If it is an encoder, `lion convert "
            f"{checkpoint} my-lion` makes a linear one; with `--layers none`, my-lion computes what {checkpoint} "
            "does. Then give my-lion."
        )
    is_own = isinstance(config, LionConfig)
    name = (config.architectures or ["LionModel" if is_own else config.auto_classes["AutoModel"][0]])[0]
    name = {"LionBackbone": "LionModel"}.get(name, name)  # the same weights; its outputs are no tensors
    model_class = getattr(modeling_lion, name, None)
    if model_class is None:
        raise ValueError(f"{checkpoint} holds a {name}, which is none of LION's classes.")
    options = {"dtype": dtype, "attn_implementation": attn_implementation, "revision": revision}
    return load_complete(model_class, checkpoint, **options)


def load_complete(model_class: type[PreTrainedModel], source: str | Path, **options) -> PreTrainedModel:
    """
    `from_pretrained` in eval mode. A model that was saved without a pooler is loaded without one.

    Raises:
        ValueError: if weights are missing.
    """
    with no_progress_bars():
        model, info = model_class.from_pretrained(source, output_loading_info=True, **options)
        of_pooler = {name for name in model.state_dict() if re.search(r"(^|\.)pooler\.", name)}
        makers = (vars(x)["__init__"] for x in type(model).__mro__ if "__init__" in vars(x))
        has_option = any("add_pooling_layer" in signature(maker).parameters for maker in makers)
        if of_pooler and set(info["missing_keys"]) == of_pooler and has_option:
            options["add_pooling_layer"] = False
            model, info = model_class.from_pretrained(source, output_loading_info=True, **options)
    if missing := sorted(info["missing_keys"]):
        raise ValueError(
            f"The weights of a {type(model).__name__} in {source} are not complete: {', '.join(missing[:3])}"
            f"{', …' if len(missing) > 3 else ''} would be random. Save the trained model again."
        )
    return model.eval()


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """Turn transformers' progress bars off."""
    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            logging.enable_progress_bar()


def load_preprocessor(
    modality: str, *sources: str | Path, required: bool = True, **hub: Any
) -> Any:  # a tokenizer, an image processor or a feature extractor
    """
    Load the tokenizer (`modality="text"`), image processor (`"image"`) or feature extractor (`"audio"`) from the first
    of `sources` that has one. Code in the checkpoint does not run.

    Args:
        sources: folders or Hub repositories.
        required: raise a ValueError, instead of returning `None`, if there is none.
        hub: `revision`, for a repository.

    Raises:
        ValueError: if a tokenizer has no vocabulary.
        OSError: if files are damaged.
    """
    for source in sources:
        # Check for the files first: without any, AutoTokenizer makes a tokenizer with an empty vocabulary.
        files = (
            cached_file(source, file, _raise_exceptions_for_missing_entries=False, **hub)
            for file in PREPROCESSOR_FILES[modality]
        )
        if any(files):
            preprocessor = PREPROCESSOR_CLASSES[modality].from_pretrained(source, trust_remote_code=False, **hub)
            if modality == "text" and not knows_words(preprocessor):
                raise ValueError(
                    f"The tokenizer in {source} knows no words, as if its tokenizer.json had been lost: save it again "
                    "with tokenizer.save_pretrained(...)."
                )
            return preprocessor
    if required:
        name = PREPROCESSOR_NAMES[modality]
        raise ValueError(
            f"There is no {name} in {sources[0]}: save it beside the model ({name.split()[-1]}.save_pretrained(...)), "
            "or nobody else can use the weights."
        )
    return None


def fit_length(tokenizer: PreTrainedTokenizerBase, limit: int | None) -> None:
    """Limit the texts of a tokenizer to `limit` tokens, unless its own limit is lower. `None` removes its limit."""
    tokenizer.model_max_length = VERY_LARGE_INTEGER if limit is None else min(tokenizer.model_max_length, limit)


def copy_file(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


@contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    """
    Yield a folder to write to. It becomes `path` when the `with` block ends, and is deleted if the block raises. A
    `path` that is an empty folder stays the same folder, also behind a link, and gets the files.

    Raises:
        FileExistsError: if `path` is a file, or a folder that is not empty.
    """
    path = Path(path).resolve()
    is_folder = path.is_dir()
    if path.is_file() or is_folder and any(path.iterdir()):
        raise FileExistsError(f"{path} exists and is not empty: choose another output folder, or empty this one.")
    path.parent.mkdir(parents=True, exist_ok=True)
    # Beside `path` in its file system, where files can be moved. Inside of it if it exists: it may be a mount point.
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path if is_folder else path.parent) as temporary:
        folder = Path(temporary) / path.name
        folder.mkdir()
        yield folder
        for file in folder.rglob("*"):  # safetensors writes files that nobody else can read
            if file.is_file():
                file.chmod(file.stat().st_mode | folder.stat().st_mode & 0o444)
        if not is_folder:
            folder.rename(path)
            return
        if list(path.iterdir()) != [Path(temporary)]:
            raise FileExistsError(f"{path} has got other files in the meantime: choose another output folder.")
        with ExitStack() as undo:
            for file in list(folder.iterdir()):
                undo.callback(file.rename(path / file.name).rename, file)
            undo.pop_all()
