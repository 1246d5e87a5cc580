# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Pathfinder (Linsley et al., arXiv 1805.08315), as in the Long Range Arena: an image, read pixel by pixel, has dashed
curves and two discs. Are both discs at the ends of one curve? The generator is ours. Each image has two long curves
and shorter ones; both discs lie at ends of long curves, in every second image of the same. All else has the same
distribution for both answers, but for the distance of the discs.
"""

from dataclasses import dataclass
from math import isqrt

import numpy as np
from PIL import Image, ImageDraw

from .task import Task, split_of


GRAYS = 16
FINE = 4  # points of the drawing for each pixel and axis
TURN = 0.35  # standard deviation of the angle between dashes, in radians
APART = 2.5  # pixels between curves, at least
ATTEMPTS = 200  # of a curve, before an image begins anew


@dataclass(frozen=True)
class Pathfinder(Task):
    """
    Args:
        length: pixels, the square of the side.
        dashes: of a long curve; a third of them in a short one.
        shorter: the number of short curves.
    """

    length: int = 256
    dashes: int = 5
    shorter: int = 1

    name = "pathfinder"

    def __post_init__(self):
        if isqrt(self.length) ** 2 != self.length or self.length < 144:
            raise ValueError(f"`length` is {self.length}, and images are square: give 256 or 1024, say.")

    @property
    def side(self) -> int:
        return isqrt(self.length)

    @property
    def num_labels(self) -> int:
        return 2

    @property
    def vocab_size(self) -> int:
        return 1 + GRAYS

    def curve(self, generator: np.random.Generator, dashes: int, others: np.ndarray) -> np.ndarray | None:
        """
        The ends of so many dashes, `(dashes, 2, 2)`, pixels, apart from the points of other curves `(points, 2)`.
        `None` if chance has led it into one of them, or out of the image.
        """
        point, angle = generator.uniform(1.5, self.side - 1.5, 2), generator.uniform(0, 2 * np.pi)
        found = []
        for _ in range(dashes):
            for step in (1.7, 1.0):  # a dash and a gap
                end = point + step * np.array([np.cos(angle), np.sin(angle)])
                if step > 1:
                    found.append((point, end))
                if (end < 1).any() or (end > self.side - 1).any():
                    return None
                if len(others) and np.linalg.norm(others - end, axis=1).min() < APART:
                    return None
                point = end
            angle += generator.normal(0, TURN)
        curve = np.array(found)
        if len(others) and np.linalg.norm(others - curve[0, 0], axis=1).min() < APART:
            return None
        return curve

    def curves(self, generator: np.random.Generator) -> list[np.ndarray]:
        """Two long curves, then shorter ones."""
        while True:
            found: list[np.ndarray] = []
            for dashes in (self.dashes, self.dashes, *[max(1, self.dashes // 3)] * self.shorter):
                others = np.concatenate([x.reshape(-1, 2) for x in found]) if found else np.zeros((0, 2))
                tries = (self.curve(generator, dashes, others) for _ in range(ATTEMPTS))
                if (curve := next((x for x in tries if x is not None), None)) is None:
                    break
                found.append(curve)
            else:
                return found

    def draw(self, curves: list[np.ndarray], discs: list[np.ndarray]) -> np.ndarray:
        """Grays of the pixels, `(side, side)`, 0 to `GRAYS` - 1."""
        image = Image.new("L", (FINE * self.side, FINE * self.side))
        pen = ImageDraw.Draw(image)
        for curve in curves:
            for first, last in FINE * curve:
                pen.line([*first, *last], fill=180, width=FINE)
        for x, y in FINE * np.array(discs):
            pen.ellipse([x - 1.3 * FINE, y - 1.3 * FINE, x + 1.3 * FINE, y + 1.3 * FINE], fill=255)
        pixels = np.asarray(image, dtype=np.float64).reshape(self.side, FINE, self.side, FINE).mean((1, 3))
        return (pixels / 256 * GRAYS).astype(np.int64)

    def example(self, split: str, index: int, seed: int) -> dict:
        """`labels` has one number, of the whole image: 1 if a curve joins the discs."""
        generator = self.generator(split, index, seed)
        while True:
            label, curves = int(generator.integers(2)), self.curves(generator)
            if label:
                discs = [curves[0][0, 0], curves[0][-1, 1]]
            else:
                discs = [x.reshape(-1, 2)[-int(generator.integers(2))] for x in curves[:2]]
            pixels = self.draw(curves, discs).flatten()
            if split_of(pixels.tobytes()) == split:
                return {"input_ids": (1 + pixels).tolist(), "labels": [label]}
