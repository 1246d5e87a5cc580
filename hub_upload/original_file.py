# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Read the files of published checkpoints, without executing code in them, and unwrap the weights."""

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor


# The keys under which training checkpoints hold the weights, beside the state of the optimizer.
WRAPPERS = ("state", "model", "state_dict")
PREFIXES = ("module.", "_orig_mod.", "model.")


def load_checkpoint(path: str | Path) -> dict[str, Tensor]:
    """
    The weights in a `.safetensors` file, or in a pickle that holds nothing but numbers (`weights_only=True`).

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is damaged, holds anything that would have to be executed, or no weights.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no checkpoint {path}: give a .pt, .pth, .bin or .safetensors file.")
    if path.suffix == ".safetensors":
        try:
            return unwrap_state_dict(load_file(path))
        except SafetensorError as error:
            raise ValueError(f"{path} is damaged or cut short ({error}): download or save it again.") from error
    # Training scripts also save parsed arguments and the state of numpy's random number generator; numpy before 2.0
    # had another name for the function that rebuilds arrays.
    reconstruct = np.empty(0).__reduce__()[0]
    allowed = [
        argparse.Namespace,
        np.ndarray,
        np.dtype,
        type(np.dtype(np.uint32)),
        (reconstruct, "numpy._core.multiarray._reconstruct"),
        (reconstruct, "numpy.core.multiarray._reconstruct"),
    ]
    try:
        with torch.serialization.safe_globals(allowed):
            checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds, by what is wrong with the file
        reason = (str(error) or repr(error)).splitlines()[0]
        raise ValueError(
            f"{path} cannot be read as weights only ({reason}). If it is whole and you trust it, save its weights "
            'alone: torch.save(torch.load(path, weights_only=False)["state"]["model"], "weights.pt"), with the keys '
            "under which it holds them."
        ) from error
    return unwrap_state_dict(checkpoint)


def unwrap_state_dict(checkpoint: Mapping) -> dict[str, Tensor]:
    """
    The state dict inside a training checkpoint, without the prefixes that wrappers of the model put before names.

    Raises:
        ValueError: if there is none.
    """
    while isinstance(checkpoint, Mapping) and not any(isinstance(value, Tensor) for value in checkpoint.values()):
        inner = next((checkpoint[key] for key in WRAPPERS if isinstance(checkpoint.get(key), Mapping)), None)
        if inner is None:
            break
        checkpoint = inner
    if not isinstance(checkpoint, Mapping) or not any(isinstance(value, Tensor) for value in checkpoint.values()):
        raise ValueError(f"The checkpoint holds no state dict, neither at the top nor under {', '.join(WRAPPERS)}.")
    if others := [str(name) for name, value in checkpoint.items() if not isinstance(value, Tensor)]:
        raise ValueError(f"There are things among the weights that are no tensors: {listed(others)}.")
    state_dict = dict(checkpoint)
    while prefix := next((p for p in PREFIXES if all(name.startswith(p) for name in state_dict)), None):
        state_dict = {name.removeprefix(prefix): value for name, value in state_dict.items()}
    return state_dict


def listed(names: Iterable, limit: int = 5) -> str:
    """The first of the names, and how many more there are."""
    names = list(names)
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")
