# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Pathfinder (Linsley et al., arXiv 1805.08315), as in the Long Range Arena: an image, read pixel by pixel, has dashed
curves and two discs. Are both discs at the ends of one curve? The generator is ours. Each image has two long curves
and shorter ones; both discs lie at ends of long curves, in every second image of the same. All else has the same
distribution for both answers, but for the distance of the discs.
"""

from cmath import rect
from dataclasses import dataclass
from math import isqrt, pi
from random import Random

import numpy as np
from PIL import Image, ImageDraw

from .task import Task, split_of


GRAYS = 16
FINE = 4  # points of the drawing for each pixel and axis
TURN = 0.35  # standard deviation of the angle between dashes, in radians
DISC = 1.3 + 1.3j  # from the centre to a corner of the square around it, in pixels
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

    def curve(self, random: Random, dashes: int, others: list[complex]) -> list[complex] | None:
        """
        The ends x + i·y of so many dashes, one dash behind the other, in pixels, apart from the points of other
        curves. `None` if chance has led it into one of them, or out of the image.
        """
        low, high = 1, self.side - 1
        points = [complex(*(random.uniform(1.5, self.side - 1.5) for _ in range(2)))]
        angle = random.uniform(0, 2 * pi)
        if any(abs(x - points[0]) < APART for x in others):
            return None
        for _ in range(dashes):
            for step in (1.7, 1.0):  # a dash and a gap
                end = points[-1] + rect(step, angle)
                if not (low <= end.real <= high and low <= end.imag <= high):
                    return None
                if any(abs(x - end) < APART for x in others):
                    return None
                points.append(end)
            angle += random.gauss(0, TURN)
        return points[:-1]  # without the end of the last gap

    def curves(self, random: Random) -> list[list[complex]]:
        """Two long curves, then shorter ones."""
        while True:
            found: list[list[complex]] = []
            for dashes in (self.dashes, self.dashes, *[max(1, self.dashes // 3)] * self.shorter):
                others = [x for curve in found for x in curve]
                tries = (self.curve(random, dashes, others) for _ in range(ATTEMPTS))
                if (curve := next((x for x in tries if x is not None), None)) is None:
                    break
                found.append(curve)
            else:
                return found

    def draw(self, curves: list[list[complex]], discs: list[complex]) -> np.ndarray:
        """Grays of the pixels, `(side, side)`, 0 to `GRAYS` - 1."""
        image = Image.new("L", (FINE * self.side, FINE * self.side))
        pen = ImageDraw.Draw(image)
        xy = lambda point: (FINE * point.real, FINE * point.imag)
        for curve in curves:
            for first, last in zip(curve[::2], curve[1::2], strict=True):
                pen.line([xy(first), xy(last)], fill=180, width=FINE)
        for disc in discs:
            pen.ellipse([xy(disc - DISC), xy(disc + DISC)], fill=255)
        pixels = np.asarray(image, dtype=np.float64).reshape(self.side, FINE, self.side, FINE).mean((1, 3))
        return (pixels / 256 * GRAYS).astype(np.int64)

    def example(self, split: str, index: int, seed: int) -> dict:
        """`labels` has one number, of the whole image: 1 if a curve joins the discs."""
        # Most curves are in vain, and Python's numbers are drawn several times as fast as NumPy's.
        random = Random(int(self.generator(split, index, seed).integers(2**63)))
        while True:
            label, curves = random.randrange(2), self.curves(random)
            discs = [curves[0][0], curves[0][-1]] if label else [random.choice([x[0], x[-1]]) for x in curves[:2]]
            pixels = self.draw(curves, discs).flatten()
            if split_of(pixels.tobytes()) == split:
                return {"input_ids": (1 + pixels).tolist(), "labels": [label]}
