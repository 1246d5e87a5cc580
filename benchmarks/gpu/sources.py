# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Which sources a result is of, so that a later call does not take it for that of other ones."""

import hashlib
from collections.abc import Iterable
from pathlib import Path


ROOT = Path(__file__).resolve().parents[2]


def digest_of(folders: Iterable[str], about: str = "", without: Iterable[str] = ()) -> str:
    """Changes with `about` and with every Python file of some folders of the repository, without some names."""
    digest = hashlib.sha256(about.encode())
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.name not in without:
                digest.update(path.read_bytes())
    return f"s{digest.hexdigest()[:15]}"  # never a number, as which a table would read it
