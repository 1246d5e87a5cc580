# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Fashion-MNIST (Xiao et al., 2017; MIT licence): 60,000 images of clothes for training and 10,000 for the test, 28 x 28
pixels in shades of grey, 10 classes. The files are those of Debian's package dataset-fashion-mnist:

    apt-get download dataset-fashion-mnist && dpkg -x dataset-fashion-mnist_*.deb fashion
    ls fashion/usr/share/datasets/fashion-mnist
"""

import gzip
import hashlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor


# How the names of the two files of each split begin; the SHA-256 that each file must have.
SPLITS = {"train": "train", "test": "t10k"}
SHA256 = {
    "train-images-idx3-ubyte.gz": "b0564c3eedabfbf835052cff8503ea422014ce006caf5b757f851416ee8300c7",
    "train-labels-idx1-ubyte.gz": "0ae29f65d86684f32d1b9c85147786c547b9c6aebcaf235f0400a0cce308b056",
    "t10k-images-idx3-ubyte.gz": "cc1d090a38ace84dfa1aa66e3ada7c336ef481a96936906477e6dd344da56eaa",
    "t10k-labels-idx1-ubyte.gz": "8d3605d196f4be44669e46906da9733c8131fef761fdbfec72c424d5222f1a05",
}
CLASSES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
SIDE = 28


def read_file(folder: Path, name: str) -> Tensor:
    """
    The numbers of one file, uint8: images `(images, 28, 28)` or labels `(images,)`.

    Raises:
        FileNotFoundError: if the folder has no such file.
        ValueError: if the file is not the one of the package.
    """
    path = folder / name
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; give the folder with the files of dataset-fashion-mnist.")
    packed = path.read_bytes()
    found = hashlib.sha256(packed).hexdigest()
    if found != SHA256[name]:
        raise ValueError(f"{path} has the SHA-256 {found}, not {SHA256[name]}; unpack the package again.")
    content = gzip.decompress(packed)
    dims = content[3]  # a magic number of four bytes, then the size of each dimension, four bytes each
    shape = [int.from_bytes(content[4 * i : 4 * i + 4], "big") for i in range(1, dims + 1)]
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=4 + 4 * dims).reshape(shape).copy())


def load_fashion_mnist(folder: Path | str, split: str) -> tuple[Tensor, Tensor]:
    """
    Images `(images, 28, 28)`, uint8, and labels `(images,)`, int64, of the split "train" or "test".

    Raises:
        FileNotFoundError, ValueError: if a file is missing or another one (`read_file`).
    """
    prefix = SPLITS[split]
    images = read_file(Path(folder), f"{prefix}-images-idx3-ubyte.gz")
    labels = read_file(Path(folder), f"{prefix}-labels-idx1-ubyte.gz")
    return images, labels.long()
