# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Scenes: which of the digits is furthest left? scikit-learn's scans, turned, slanted and resized, somewhere in a larger
image, among scraps of other scans.

The digits are in any part of the image, so that it takes where they are from each other to tell which one is meant.
"""

from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from .digits import scans
from .task import SquareImageTask


SCALES = (0.9, 1.3)
MAX_ANGLE = 0.35  # radians
MAX_SLANT = 0.3  # pixels to the side for each pixel down
SCRAP = 4  # pixels on each side
SIDE = 12  # of the square in which a digit is drawn
MIN_LEFT = 4  # pixels by which the leftmost digit is left of the others


@dataclass(frozen=True)
class Scenes(SquareImageTask):
    """
    Args:
        side: of the image, in pixels.
        digits: in an image; with 1, the digit is to be named wherever it is.
        scraps: pieces of other digits.

    Raises:
        ValueError: if the digits do not fit.
    """

    side: int = 24
    digits: int = 2
    scraps: int = 2

    name = "scenes"
    labels = tuple("0123456789")

    def __post_init__(self):
        if not 1 <= self.digits <= self.side // SIDE:
            raise ValueError(f"`digits` is {self.digits}; give 1 to {self.side // SIDE} for `side` {self.side}.")

    def example(self, split: str, index: int, seed: int) -> dict:
        generator = self.generator(split, index, seed)
        known = scans(0)[split]  # of different splits, whatever the seed
        image = np.zeros(self.grid)
        for scan, _ in (known[i] for i in generator.integers(len(known), size=self.scraps)):
            row, column = generator.integers(9 - SCRAP, size=2)
            scrap = scan.reshape(8, 8)[row : row + SCRAP, column : column + SCRAP]
            self.draw(image, scrap, generator.integers(self.side - SCRAP + 1, size=2))
        chosen = [known[i] for i in generator.integers(len(known), size=self.digits)]
        corners = self.place(generator)
        for (scan, _), corner in zip(chosen, corners, strict=True):
            self.draw(image, distort(generator, scan.reshape(8, 8)), corner)
        label = chosen[int(np.argmin(corners[:, 1]))][1]
        return {"input_ids": np.round(image).astype(int).flatten().tolist(), "label": label}

    def draw(self, image: np.ndarray, piece: np.ndarray, corner: np.ndarray) -> None:
        height, width = piece.shape
        part = image[corner[0] : corner[0] + height, corner[1] : corner[1] + width]
        np.maximum(part, piece, out=part)

    def place(self, generator: np.random.Generator) -> np.ndarray:
        """Upper left corners of the digits' squares, `(digits, 2)`: apart, and one of them clearly furthest left."""
        while True:
            corners = generator.integers(self.side - SIDE + 1, size=(self.digits, 2))
            apart = np.abs(corners[:, None] - corners).max(-1)[np.triu_indices(self.digits, 1)]
            left = np.sort(corners[:, 1])
            if (apart >= SIDE - 3).all() and (np.diff(left[:2]) >= MIN_LEFT).all():
                return corners


def distort(generator: np.random.Generator, scan: np.ndarray) -> np.ndarray:
    """A scan, turned, slanted and resized, `(SIDE, SIDE)`."""
    angle, slant = generator.uniform(-MAX_ANGLE, MAX_ANGLE), generator.uniform(-MAX_SLANT, MAX_SLANT)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    matrix = turn @ np.array([[1, 0], [slant, 1]]) / generator.uniform(*SCALES)
    offset = 3.5 - matrix @ np.full(2, (SIDE - 1) / 2)
    return ndimage.affine_transform(scan.astype(float), matrix, offset, (SIDE, SIDE), order=1, mode="grid-constant")
