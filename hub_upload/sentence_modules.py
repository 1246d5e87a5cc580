# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The files that sentence-transformers saves with a model, and a comparison of embeddings."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.utils import filter_repo_objects
from transformers.utils import cached_file

from .checkpoint import copy_file
from .publish.clean_process import TEXT_PAIR, run_in_clean_process


MODULES = "modules.json"
MODEL = "config_sentence_transformers.json"
CLASSES = ("SentenceTransformer", "SparseEncoder", "MultiVectorEncoder", "CrossEncoder")
SETTINGS = "sentence_bert_config.json"  # of the module that holds the model
SUFFIXES = {".json", ".safetensors", ".txt"}  # of modules' files; no pickles, no code
# The Auto class that loads a folder's model, by the task in its settings.
TASKS = {
    "feature-extraction": "AutoModel",
    "fill-mask": "AutoModelForMaskedLM",
    "sequence-classification": "AutoModelForSequenceClassification",
}


def sentence_files(folder: Path) -> list[str]:
    """
    Return the names of the files of sentence-transformers in a folder, without those of the LION itself: its settings,
    and the files in the folders that modules.json names. Empty if there is no modules.json.

    Raises:
        ValueError: if modules.json is damaged, or names code that is not of sentence-transformers or a path outside of
            the folder, or if a file is a pickle or a link to the outside.
    """
    path = folder / MODULES
    if not path.is_file():
        return []
    paths = [folder / name for name in (MODULES, MODEL, SETTINGS)]
    for module in read_modules(path):
        place, kind = module["path"], module["type"]
        if not kind.startswith("sentence_transformers."):
            raise ValueError(
                f"{path}: `type` {kind!r} is code of its own, and only modules of sentence-transformers are published "
                "with a LION: take it out."
            )
        parts = PurePosixPath(place).parts
        if place.startswith("/") or "\\" in place or any(part.startswith(".") for part in parts):
            raise ValueError(f"{path}: `path` {place!r} is no folder inside of {folder}: give its name there.")
        if parts:  # else it is the LION
            paths += sorted((folder / place).rglob("*"))
    files = [file for file in paths if file.is_file()]
    for file in files:
        if not file.resolve().is_relative_to(folder.resolve()):
            raise ValueError(
                f"{file} is a link to something outside of {folder}: copy the folder with what its links point to "
                "(cp -rL), and take the copy."
            )
        if file.name == "pytorch_model.bin" and not file.with_name("model.safetensors").is_file():
            raise ValueError(
                f"{file} is a pickle, which runs code on the machine of whoever loads it: save the encoder again with "
                "save_pretrained(), which writes safetensors."
            )
    return [file.relative_to(folder).as_posix() for file in files if file.suffix in SUFFIXES]


def read_modules(path: Path) -> list[dict]:
    """Read modules.json. Raises a ValueError unless it is a list of modules."""
    try:
        modules = json.loads(path.read_text(encoding="utf-8"))
        are_modules = all(isinstance(module[key], str) for module in modules for key in ("path", "type"))
        if isinstance(modules, list) and modules and are_modules:
            return modules
    except (KeyError, TypeError, ValueError):
        pass
    raise ValueError(f"{path} is no list of modules, each with `path` and `type`: save the encoder again.")


@contextmanager
def encoder_folder(source: str | Path, revision: str | None = None) -> Iterator[Path | None]:
    """
    Yield the folder of an encoder of sentence-transformers, or `None` if it is not one. From a Hub repository, all but
    the weights of a model at its top is copied to a temporary folder: the model is loaded by its name.
    """
    if cached_file(source, MODULES, revision=revision, _raise_exceptions_for_missing_entries=False) is None:
        yield None
    elif Path(source).is_dir():
        yield Path(source)
    else:
        # Pickles of modules, in folders, are downloaded so that they are refused by their name.
        patterns = ["*.json", "*.txt", "*/*.model", "*/*.safetensors", "*/pytorch_model.bin"]
        cached = Path(snapshot_download(str(source), revision=revision, allow_patterns=patterns))
        names = [file.relative_to(cached).as_posix() for file in cached.rglob("*") if file.is_file()]
        with tempfile.TemporaryDirectory() as folder:  # has files; the cache has links
            for name in filter_repo_objects(names, allow_patterns=patterns):
                copy_file(cached / name, Path(folder) / name)
            yield Path(folder)


def model_of_encoder(folder: Path) -> tuple[str, str]:
    """
    Return the folder of the model within that of an encoder ("" for the same), and the Auto class to load it with.

    Raises:
        ValueError: if the first module is not a model of transformers, or is a model for another task.
    """
    first = read_modules(folder / MODULES)[0]
    if first["type"].rpartition(".")[2] != "Transformer":
        raise ValueError(
            f"The first module of {folder} is {first['type']}, and only a Transformer can become a LION: convert the "
            "model inside of it, and build the encoder again."
        )
    settings = settings_of_model(folder / first["path"])
    task = {} if settings is None else json.loads(settings.read_text(encoding="utf-8"))
    task = task.get("transformer_task", "feature-extraction")
    if task not in TASKS:
        raise ValueError(f"`transformer_task` in {settings} is {task!r}; it can be one of {', '.join(TASKS)}.")
    return first["path"], TASKS[task]


def settings_of_model(folder: Path) -> Path | None:
    """Return the settings of the module with the model. Earlier releases named the file after the kind of module."""
    return next(
        iter([folder / SETTINGS] if (folder / SETTINGS).is_file() else folder.glob("sentence_*_config.json")), None
    )


def copy_modules(source: Path, folder: Path) -> list[str]:
    """
    Copy the files of an encoder (`sentence_files`) to `folder`, which has another model.

    Returns:
        The names of the modules after the model.
    """
    modules = read_modules(source / MODULES)
    inside = modules[0]["path"]
    for name in sentence_files(source):
        if not inside or not PurePosixPath(name).is_relative_to(inside):
            copy_file(source / name, folder / name)
    modules[0]["path"] = ""
    (folder / MODULES).write_text(json.dumps(modules, indent=2), encoding="utf-8")
    settings = settings_of_model(source / inside)
    if settings is not None:
        copy_file(settings, folder / SETTINGS)
    return [module["type"].rpartition(".")[2] for module in modules[1:]]


def encoder_class(folder: Path) -> str:
    """Return the class of sentence-transformers that saved a folder. Raises a ValueError if it is unknown."""
    path = folder / MODEL
    try:
        settings = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        name = settings.get("model_type", "SentenceTransformer")
    except (AttributeError, ValueError) as error:
        raise ValueError(f"{path} is damaged ({error}): save the encoder again.") from error
    if name not in CLASSES:
        raise ValueError(f"{path}: `model_type` is {name!r}; it can be one of {', '.join(CLASSES)}.")
    return name


def check_embeddings(folder: Path, source: Path, modality: str) -> None:
    """
    Embed the same texts or images with the bundle in `folder`, in a process without this package, and with `source`
    here.

    Raises:
        ValueError: if the embeddings differ, or the bundle does not load.
        ImportError: if sentence-transformers is not installed.
    """
    if find_spec("sentence_transformers") is None:
        raise ImportError(
            f"{source} was saved by sentence-transformers, which is needed to compare the embeddings: install it (pip "
            f"install sentence-transformers), or delete {MODULES} to publish the LION alone."
        )
    request = {"texts": [*TEXT_PAIR, " ".join(TEXT_PAIR * 50)] if modality == "text" else None}
    request["class"] = encoder_class(source)
    request["num_threads"] = torch.get_num_threads()
    theirs = run_in_clean_process(embed, request | {"source": str(folder.absolute()), "trust": True}, name=folder)
    ours = embed(request | {"source": str(source.absolute()), "trust": False})
    for before, after in zip(ours["embeddings"], theirs["embeddings"], strict=True):
        if before.shape != after.shape or not torch.allclose(before, after, rtol=1e-5, atol=1e-6):
            raise ValueError(
                f"The embeddings of sentence-transformers from {source} are not those from the bundle of it, in a "
                f"process without this package: {list(before.shape)} and {list(after.shape)} numbers, such as "
                f"{before.flatten()[0]:.6g} and {after.flatten()[0]:.6g}."
            )


def embed(request: dict) -> dict:
    """Embed texts or images with the encoder in a folder. The other process gets this function as source code."""
    import sentence_transformers
    import torch

    encoder_class = getattr(sentence_transformers, request["class"])
    encoder = encoder_class(request["source"], device="cpu", trust_remote_code=request["trust"])
    inputs = request["texts"]
    if inputs is None:
        from PIL import Image

        inputs = [Image.new("RGB", (40, 30), color) for color in ("tan", "navy")]
    if request["class"] == "CrossEncoder":
        found = encoder.predict([(inputs[0], x) for x in inputs], convert_to_tensor=True, show_progress_bar=False)
    else:
        found = encoder.encode(inputs, convert_to_tensor=True, show_progress_bar=False)
    if isinstance(found, torch.Tensor) and found.is_sparse:
        found = found.to_dense()
    return {"embeddings": [vector.detach().float().cpu() for vector in found]}
