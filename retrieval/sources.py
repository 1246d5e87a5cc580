# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Find encoders (the default one, the base of an adapter, the files of both), folders to search, and packages. Nothing
here imports torch.
"""

import hashlib
import importlib.util
import json
import os
import sysconfig
from contextlib import suppress
from pathlib import Path

from .files import state_of


STANDARD_LIBRARY = "stdlib"
ADAPTER = "adapter_config.json"
CHECKPOINT = Path("checkpoints", "lion-minilm-l6-passages")  # in a clone of the repository
ON_THE_HUB = "sentence-transformers/all-MiniLM-L6-v2"


def default_model() -> str:
    """
    Return the default encoder: `CHECKPOINT` in a clone of the repository (see `in_clone`), else `ON_THE_HUB`. Up to
    256 tokens the latter gives the same vectors as `lion-minilm-l6`.
    """
    return str(in_clone(CHECKPOINT) or ON_THE_HUB)


def in_clone(folder: Path) -> Path | None:
    """Return a folder of a clone of the repository, if the current folder or that of this package is one."""
    places = (root / folder for root in (Path.cwd(), Path(__file__).resolve().parents[1]))
    return next((place for place in places if place.is_dir()), None)


def check_source(source: str | Path) -> None:
    """Raise a FileNotFoundError if an encoder is neither a folder nor looks like a name on the Hub."""
    if not Path(source).is_dir() and str(source).count("/") != 1:
        raise FileNotFoundError(
            f"{source} is no folder: give that of a sentence encoder, or a name on the Hub such as {ON_THE_HUB}. The "
            "checkpoints of LION are in a clone of the repository, not in the package."
        )


def check_folder(folder: str | Path) -> Path:
    """
    Return the folder to search. Raises a FileNotFoundError if it does not exist, a ValueError for an empty name, such
    as that of a shell's variable that is not set.
    """
    if not str(folder):
        raise ValueError("the folder has an empty name: give a folder with files to search, or . for the current one.")
    folder = Path(folder)
    if not folder.is_dir():
        fault = "is a file" if folder.exists() else "does not exist"
        raise FileNotFoundError(f"{folder} {fault}: give a folder with files to search.")
    return folder


def base_of_adapter(folder: str | Path) -> str | None:
    """
    Return the base model of a PEFT adapter: the full path of a folder (found from the current folder, the adapter's or
    one above it), or else a name on the Hub. `None` if the folder has no adapter.

    Raises:
        ValueError: if the configuration of the adapter is damaged.
        FileNotFoundError: if the base model is a folder that does not exist.
    """
    path = Path(folder) / ADAPTER
    if not path.is_file():
        return None
    try:
        name = json.loads(path.read_text(encoding="utf-8"))["base_model_name_or_path"]
        if not name:
            raise ValueError("it is empty")
        places = [Path(name), *(place / name for place in path.resolve().parents)]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} names no `base_model_name_or_path`: save the adapter again.") from error
    if found := next((str(place.resolve()) for place in places if place.is_dir()), None):
        return found
    # The Hub has "name" and "owner/name". A path is not looked up there: anybody could take its name.
    place = Path(name)
    if place.is_absolute() or len(place.parts) > 2 or name[0] in ".~" or place.parts[0] == CHECKPOINT.parts[0]:
        raise FileNotFoundError(
            f"{path}: `base_model_name_or_path` {name!r} is no folder, seen from here, from the adapter, or from a "
            "folder above it: copy the base model there, or write where it is."
        )
    return name


def files_of_model(model: str, base: str | None = None) -> list[tuple]:
    """
    Return names and states (`state_of`) of a model's files and, if it is an adapter, of its base (by default
    `base_of_adapter(model)`). Empty for a model on the Hub.
    """
    files = [path for path in Path(model).rglob("*") if path.is_file()] if Path(model).is_dir() else []
    base = base or base_of_adapter(model)
    found = sorted((str(path), *state_of(path)) for path in files)
    return found + ([] if base is None else files_of_model(base))


def hash_of_model(model: str) -> str:
    """
    Return a hash of a model's files and, if it is an adapter, of its base; for a model on the Hub its name and its
    commit (`commit_of`).
    """
    if not Path(model).is_dir():
        return " ".join(filter(None, (model, commit_of(model))))
    found = hashlib.sha256()
    for name, *_ in files_of_model(model):
        found.update(Path(name).name.encode("utf-8", "surrogateescape") + Path(name).read_bytes())
    base = base_of_adapter(model)
    if base is not None and not Path(base).is_dir():
        found.update(hash_of_model(base).encode())
    return found.hexdigest()


def commit_of(model: str, revision: str | None = None, is_loaded: bool = False) -> str | None:
    """
    Return the commit of a model on the Hub: the latest one if there is a network, or else that in the cache; `None`
    if there is none, or for a folder.

    Args:
        revision: as `SentenceTransformer` takes it.
        is_loaded: whether the model has just been loaded, and is therefore in the cache.
    """
    if Path(model).is_dir():
        return None
    from huggingface_hub import hf_hub_download

    options = {"revision": revision, "cache_dir": os.environ.get("SENTENCE_TRANSFORMERS_HOME")}
    for name in ("config.json", "modules.json", ADAPTER):
        with suppress(OSError, ValueError):  # loading the model gives a better message
            return Path(hf_hub_download(model, name, local_files_only=is_loaded, **options)).parent.name
    return None


def place_of_package(package: str) -> tuple[str, str]:
    """
    Return the folder of a package or the standard library (`STANDARD_LIBRARY`), or the file of a module, as this
    process imports it, and the folder from which it is imported.

    Raises:
        ValueError: if there is no such package, or it has no Python files.
    """
    if package == STANDARD_LIBRARY:
        folder = os.path.realpath(sysconfig.get_path("stdlib"))
        return folder, folder
    found = None
    with suppress(ValueError):  # of modules that were not imported by name, as `__main__`
        found = importlib.util.find_spec(package) if package.isidentifier() else None
    file = None if found is None else found.origin
    if file == "frozen":
        file = getattr(found.loader_state, "filename", None)
    if file is None or not file.endswith(".py"):
        raise ValueError(f"--package {package}: this Python has no Python files under that name; give an import name.")
    origin = Path(file).absolute()
    if not found.submodule_search_locations:
        return str(origin), str(origin.parent)
    return str(origin.parent), str(origin.parents[1])
