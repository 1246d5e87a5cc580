# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Large pictures with categories: the Open Clip Art Library, as Debian packages it (openclipart-png, public domain).

The category of a picture is its folder, such as "animals". Each folder within ("animals/birds") gives up to
`OF_A_FOLDER` pictures, of files of up to `MOST_PIXELS`. Transparent pixels become white, and a picture gets white
margins that make it a square of `SIDE` pixels. Pictures whose names differ in digits only are on one side of the split
(`split_of`), and of equal files one is taken.
"""

import hashlib
import math
import random
import re
import struct
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
from PIL import Image

from .real_data import SPLITS, Archives, split_of


PACKAGE, LICENCE = "openclipart-png", "public domain"
PICTURES = "usr/share/openclipart/png"
SIDE = 224
OF_A_FOLDER, FEWEST = 30, 60  # pictures of a folder at most, and of a category at least
MOST_PIXELS = 2_000_000  # of a file
NO_CATEGORY = "unsorted"
SEED = 0


def square(path: Path) -> np.ndarray:
    """A picture on white, `(SIDE, SIDE, 3)`, uint8."""
    with Image.open(path) as image:
        image = image.convert("RGBA")
        image.thumbnail((SIDE, SIDE), Image.Resampling.BICUBIC)
    page = Image.new("RGBA", (SIDE, SIDE), "white")
    page.alpha_composite(image, ((SIDE - image.width) // 2, (SIDE - image.height) // 2))
    return np.asarray(page.convert("RGB"))


def choose(folder: Path) -> list[tuple[str, str, Path]]:
    """Category, group and file of the pictures that are taken, in an order that does not depend on the machine."""
    by_folder: dict[Path, list[Path]] = defaultdict(list)
    for path in sorted(folder.rglob("*.png")):
        if not path.is_symlink() and len(path.relative_to(folder).parts) > 1:
            by_folder[path.parent].append(path)
    chosen, seen = [], set()
    for parent, paths in by_folder.items():
        random.Random(SEED).shuffle(paths)
        found = []
        for path in paths:
            if len(found) == OF_A_FOLDER:
                break
            data = path.read_bytes()
            content = hashlib.sha256(data).digest()
            if content not in seen and math.prod(struct.unpack(">II", data[16:24])) <= MOST_PIXELS:  # PNG's header
                seen.add(content)
                found.append(path)
        category = parent.relative_to(folder).parts[0]
        chosen += [(category, f"{category}/{re.sub(r'[0-9]+', '', path.stem)}", path) for path in found]
    counts = Counter(category for category, *_ in chosen)
    return [x for x in chosen if counts[x[0]] >= FEWEST and x[0] != NO_CATEGORY]


def load_clipart(archives: Archives, cache: Path) -> dict[str, np.ndarray]:
    """
    Returns, for each split, `"test"`: pictures `(count, SIDE, SIDE, 3)`, uint8, and `"test labels"`; the names of the
    categories as `"categories"`; and the first digits of the SHA-256 of all as `"digest"`.

    Args:
        cache: a file that keeps the result; its name ends with .npz.
    """
    if not cache.is_file():
        chosen = choose(archives.unpacked(PACKAGE) / PICTURES)
        categories = sorted({category for category, *_ in chosen})
        pictures, labels = defaultdict(list), defaultdict(list)
        for category, group, path in chosen:
            split = split_of(group, SEED)
            pictures[split].append(square(path))
            labels[split].append(categories.index(category))
        found = {split: np.stack(pictures[split]) for split in SPLITS}
        found |= {f"{split} labels": np.array(labels[split]) for split in SPLITS}
        contents = hashlib.sha256(b"".join(x.tobytes() for x in found.values())).hexdigest()[:12]
        cache.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(cache, **found, categories=np.array(categories), digest=np.array(contents))
    with np.load(cache) as file:
        return dict(file)
