# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Pathfinder: are two dots the ends of one dashed curve? (Linsley et al., 2018, arXiv 1805.08315; 32 x 32 pixels in the
Long Range Arena.)

Every image has two curves of equal length, shorter distractors, and two dots, at both ends of one curve (label 1) or
at an end of each (label 0). With the other label the dots of an image would be equally far apart, so that the label
cannot be told from their distance, only by following a curve. Curves bend a little from dash to dash, and are farther
from each other than the gaps between dashes are wide.
"""

from dataclasses import dataclass

import numpy as np

from .task import SquareImageTask, split_of


DASH = 2.0  # pixels from end to end of a dash's middle line
GAP = 2.0  # from there to the next dash's
CLEARANCE = 5.0  # from a curve's middle line to another's, or to a part of its own further along
MAX_TURN = 0.55  # radians from dash to dash
DOT_RADIUS = 1.6
SLACK = 0.8  # pixels by which the distance of the dots may differ between the two labels
ATTEMPTS = 60  # to place a curve, before all are drawn again


@dataclass(frozen=True)
class Pathfinder(SquareImageTask):
    """
    Args:
        side: of the image, in pixels.
        dashes: of each of the two curves.
        distractors: shorter curves, of half as many dashes; where there is no room left, fewer.
    """

    side: int = 32
    dashes: int = 5
    distractors: int = 3

    name = "pathfinder"
    labels = ("separate", "connected")

    def example(self, split: str, index: int, seed: int) -> dict:
        generator = self.generator(split, index, seed)
        label = int(generator.integers(2))
        while True:
            image = self.draw(generator, label)
            if image is not None and split_of(image.tobytes()) == split:
                return {"input_ids": image.flatten().tolist(), "label": label}

    def draw(self, generator: np.random.Generator, label: int) -> np.ndarray | None:
        """`(side, side)`, uint8; `None` if two curves did not fit, or the distance of the dots tells the label."""
        curves: list[np.ndarray] = []
        for _ in range(2):
            curve = self.place(generator, self.dashes, curves)
            if curve is None:
                return None
            curves.append(curve[:: generator.choice((-1, 1))])
        start, same, other = curves[0][0], curves[0][-1], curves[1][0]
        if abs(np.linalg.norm(start - same) - np.linalg.norm(start - other)) > SLACK:
            return None
        for _ in range(self.distractors):
            curve = self.place(generator, max(2, self.dashes // 2), curves)
            curves += [] if curve is None else [curve]
        dots = [start, same if label else other]
        return self.rasterize(np.concatenate([curve.reshape(-1, 2, 2) for curve in curves]), np.stack(dots))

    def place(self, generator: np.random.Generator, dashes: int, others: list[np.ndarray]) -> np.ndarray | None:
        """Ends of the dashes of a new curve, `(2 * dashes, 2)`, away from the others; `None` if there is no room."""
        margin = DOT_RADIUS + 1
        for _ in range(ATTEMPTS):
            angles = generator.uniform(0, 2 * np.pi) + np.cumsum(generator.uniform(-MAX_TURN, MAX_TURN, dashes))
            steps = np.stack((np.sin(angles), np.cos(angles)), axis=-1)
            ends = np.repeat(steps, 2, axis=0) * np.tile((GAP, DASH), dashes)[:, None]
            ends[0] = generator.uniform(margin, self.side - 1 - margin, 2)
            curve = np.cumsum(ends, axis=0)
            if curve.min() < margin or curve.max() > self.side - 1 - margin:
                continue
            # Distances are measured between points half a dash apart.
            line = thicken(curve)
            if any(distances(line, thicken(other)).min() < CLEARANCE for other in others):
                continue
            along = np.abs(np.subtract.outer(np.arange(len(line)), np.arange(len(line))))
            if (distances(line, line)[along * DASH / 2 > 2 * CLEARANCE] > CLEARANCE).all():
                return curve
        return None

    def rasterize(self, dashes: np.ndarray, dots: np.ndarray) -> np.ndarray:
        """Grey values by the distance of each pixel to the nearest dash, `(n, 2, 2)`, and dot, `(2, 2)`."""
        pixels = np.stack(np.meshgrid(*2 * [np.arange(self.side)], indexing="ij"), axis=-1).reshape(-1, 1, 2)
        start, direction = dashes[:, 0], dashes[:, 1] - dashes[:, 0]
        share = ((pixels - start) * direction).sum(-1) / (direction**2).sum(-1)
        to_dash = np.linalg.norm(pixels - start - share.clip(0, 1)[..., None] * direction, axis=-1).min(1)
        to_dot = np.linalg.norm(pixels - dots, axis=-1).min(1)
        ink = np.maximum(np.clip(1.2 - to_dash, 0, 1), np.clip(DOT_RADIUS + 0.7 - to_dot, 0, 1))
        return np.round(255 * ink).astype(np.uint8).reshape(self.side, self.side)


def thicken(curve: np.ndarray) -> np.ndarray:
    """The points of a curve and those between them."""
    return np.concatenate((curve, (curve[1:] + curve[:-1]) / 2))[
        np.argsort(np.concatenate((np.arange(len(curve)), np.arange(len(curve) - 1) + 0.5)))
    ]


def distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """`(len(a), len(b))`"""
    return np.linalg.norm(a[:, None] - b, axis=-1)
