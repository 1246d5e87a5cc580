# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Find what must not be published, before anything leaves the machine."""

import re
import zipfile
from contextlib import suppress
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open


PICKLE_SUFFIXES = {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".dill"}
SECRETS = {
    "a Hugging Face token": rb"\b(?:hf|api_org)_[A-Za-z0-9]{30,}",
    "a private key": rb"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    "an AWS access key": rb"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "a GitHub token": rb"\b(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{60,})",
    "an OpenAI or Anthropic key": rb"\bsk-(?:(?:proj|ant|svcacct|admin|None|or)-[A-Za-z0-9_-]{32,}|[A-Za-z0-9_]{32,})",
    "a Google API key": rb"\bAIza[0-9A-Za-z_-]{35}",
    "a Slack token": rb"\bxox[abprs]-[0-9A-Za-z-]{20,}",
}


def bundle_files(folder: str | Path) -> list[Path]:
    """Return the files of a bundle, sorted, without caches and without hidden files other than evaluation results."""

    def is_hidden(path: Path) -> bool:
        parts = path.relative_to(folder).parts
        return parts[0] != ".eval_results" and any(p.startswith(".") or p == "__pycache__" for p in parts)

    return [path for path in sorted(Path(folder).rglob("*")) if path.is_file() and not is_hidden(path)]


def find_refusals(folder: str | Path) -> list[str]:
    """
    Return reasons not to publish a folder, a sentence for each: links to the outside, pickles, secrets, weights that
    are not finite.
    """
    folder = Path(folder)
    reasons = []
    for path in bundle_files(folder):
        name = path.relative_to(folder).as_posix()
        if not path.resolve().is_relative_to(folder.resolve()):
            reasons.append(f"{name} is a link to something outside of the folder: copy there what it points to.")
            continue
        if is_pickle(path):
            reasons.append(
                f"{name} is a pickle, which runs code on the machine of whoever loads it: leave it out, or save "
                "weights as safetensors."
            )
            continue
        if path.suffix == ".safetensors":
            reasons += [f"{name}: {reason}" for reason in bad_weights(path)]
            data = safetensors_header(path)
        else:
            data = path.read_bytes()
        reasons += [
            f"{name}, line {data[: match.start()].count(10) + 1}, holds what looks like {kind}: take it out, and "
            "revoke it if it is real."
            for kind, pattern in SECRETS.items()
            if (match := re.search(pattern, data))
        ]
    return reasons


def safetensors_header(path: Path) -> bytes:
    """Return the raw header of a safetensors file: names and metadata."""
    with path.open("rb") as file:
        return file.read(min(int.from_bytes(file.read(8), "little"), path.stat().st_size))


def is_pickle(path: Path) -> bool:
    """Return whether a file is a pickle, by its name or content: a bare pickle, or a file of torch.save."""
    if path.suffix.lower() in PICKLE_SUFFIXES:
        return True
    with path.open("rb") as file:
        start = file.read(2)
    if start == b"PK":
        with suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
            return any(name.endswith(".pkl") for name in archive.namelist())
    return len(start) == 2 and start[0] == 0x80 and 2 <= start[1] <= 5


def bad_weights(path: Path) -> list[str]:
    """Return reasons not to publish a safetensors file: it is damaged, or has numbers that are not finite."""
    try:
        with safe_open(path, framework="pt") as file:
            bad = []
            for name in file.keys():  # noqa: SIM118 (not a dict: it has no iterator)
                tensor = file.get_tensor(name)
                if tensor.is_floating_point() and not torch.isfinite(tensor).all():
                    bad.append(name)
    except SafetensorError as error:
        return [f"damaged or cut short ({error}): save the model again."]
    if not bad:
        return []
    return [
        f"NaN or infinite numbers in {', '.join(bad[:3])}{', …' if len(bad) > 3 else ''}: training diverged; publish "
        "an earlier checkpoint."
    ]
