# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Read images and their classes from folders."""

import os
from io import BytesIO
from pathlib import Path

import numpy as np
from datasets import ClassLabel, Dataset
from PIL import Image, ImageOps
from transformers.utils import logging

from .class_names import class_name


logger = logging.get_logger(__name__)
UNREADABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)  # SyntaxError: a broken PNG
IMAGES = tuple(sorted(ending for ending, kind in Image.registered_extensions().items() if kind in Image.OPEN))


def find_images(folder: Path) -> list[Path]:
    """
    Return the images in a folder and its subfolders, sorted. Raises a ValueError if there are none. Hidden files are
    left out; files of other types, too, with a warning.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder: put the images there.")
    files = []
    for parent, folders, names in os.walk(folder, followlinks=True):
        path = Path(parent)  # without links to a folder that it is in
        folders[:] = [x for x in folders if x[0] != "." and not path.resolve().is_relative_to((path / x).resolve())]
        files += [path / name for name in names if name[0] != "."]
    files.sort()
    images = [file for file in files if file.suffix.lower() in IMAGES]
    if not images:
        raise ValueError(f"{folder} has no images ({', '.join(IMAGES)}): put some there.")
    if len(images) < len(files):
        other = next(file for file in files if file.suffix.lower() not in IMAGES)
        logger.warning(f"{len(files) - len(images)} files in {folder} have no ending of images: {other} is left out.")
    return images


def read_class_folders(folder: Path) -> Dataset:
    """
    Return the columns "image" (names of files as bytes) and "label" (the sub-folder of `folder` that has the image).
    Raises a ValueError for an image in no sub-folder.
    """
    files = find_images(folder)
    parts = [file.relative_to(folder).parts for file in files]
    if lost := [file for file, part in zip(files, parts, strict=True) if len(part) == 1]:
        raise ValueError(f"{lost[0]} is in no sub-folder: give an image folder, with one sub-folder per class.")
    labels = [class_name(os.fsencode(part[0]).decode(errors="replace")) for part in parts]
    names = sorted({*labels})
    columns = {"image": [os.fsencode(file) for file in files], "label": [names.index(x) for x in labels]}
    return Dataset.from_dict(columns).cast_column("label", ClassLabel(names=names))


def read_image(file: dict | bytes, mode: str) -> Image.Image | None:
    """
    Read an image with 8 bits, in a mode of Pillow, from the name of a file in bytes, or a dict of "path" and "bytes".
    Returns `None`, with a warning, if it is damaged: training goes on without it.
    """
    path, data = (file["path"], file["bytes"]) if isinstance(file, dict) else (os.fsdecode(file), None)
    try:
        with Image.open(BytesIO(Path(path).read_bytes() if data is None else data)) as image:
            return with_8_bits(image).convert(mode)
    except UNREADABLE as error:
        name = path or f"An image of {len(data)} bytes"
        logger.warning_once(f"{name} cannot be read ({error}). It is left out: fix or remove it.")
        return None


def with_8_bits(image: Image.Image) -> Image.Image:
    """Turn an image upright, and scale 16 bits (0 to 65535) and fractions (0 to 1) to 8 bits. Else a ValueError."""
    is_16_bit = image.mode.startswith("I;16") or image.mode == "I" and image.format == "PNG"
    image = ImageOps.exif_transpose(image)
    if not is_16_bit and image.mode not in ("I", "F"):
        return image
    pixels = np.asarray(image, dtype=np.float64) / (65535 if is_16_bit else 1)
    if image.mode == "I" and not is_16_bit or not ((pixels >= 0) & (pixels <= 1)).all():
        raise ValueError("it has numbers of 32 bits, of which white is 1 if they are fractions: save it with 8 bits")
    return Image.fromarray(np.rint(pixels * 255).astype(np.uint8))


def read_images(
    rows: dict[str, list], column: str, mode: str, stand_in: dict[str, list] | None = None
) -> tuple[list[Image.Image], dict[str, list]]:
    """
    Return the images of a batch that can be read, and their rows. If there are none, return those of the batch
    `stand_in`, since a Trainer takes no empty batch, or raise a ValueError.
    """
    for batch in (rows, stand_in or {column: []}):
        images = [read_image(file, mode) for file in batch[column]]
        read = [n for n, image in enumerate(images) if image is not None]
        if read:
            return [images[n] for n in read], {name: [values[n] for n in read] for name, values in batch.items()}
    raise ValueError("None of the images of a batch can be read; their files are named above.")


def first_readable(dataset: Dataset, column: str, mode: str) -> dict[str, list]:
    """Return a batch of the first row whose image can be read. Raises a ValueError if there is none."""
    for row in range(len(dataset)):
        batch = dataset[row : row + 1]
        if read_image(batch[column][0], mode) is not None:
            return batch
    raise ValueError("None of the images can be read; files are named above.")


def readable_only(dataset: Dataset, column: str, mode: str) -> Dataset:
    """Return the rows whose images can be read, for an evaluation. Raises a ValueError if there are none."""
    files = dataset.select_columns([column])
    rows = [n for n, row in enumerate(files) if read_image(row[column], mode) is not None]
    if not rows:
        raise ValueError("None of the images for evaluation can be read; files are named above.")
    return dataset if len(rows) == len(dataset) else dataset.select(rows)
