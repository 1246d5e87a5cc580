# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""How long texts take, as measured on the ones before."""

from collections.abc import Sequence


SHARE = 0.3  # of a new measurement in what is known


class Cost:
    """
    Seconds per token of texts, by their length in powers of two. Attention and the overhead of a call make them
    differ; a length that was never seen takes the value of the nearest one that was.
    """

    def __init__(self, per_token: dict[int, float] | None = None):
        self.per_token = dict(per_token or {})

    def seconds(self, lengths: Sequence[int]) -> float:
        """An estimate for texts of `lengths` tokens; 0 before the first measurement."""
        return sum(length * self.rate(length.bit_length()) for length in lengths)

    def rate(self, power: int) -> float:
        known = self.per_token.copy()  # while the thread of a queue learns
        if power in known or not known:
            return known.get(power, 0.0)
        return known[min(known, key=lambda other: abs(other - power))]

    def learn(self, lengths: Sequence[int], seconds: float) -> None:
        """Take in that texts of `lengths` tokens, computed together, took so many seconds."""
        expected, tokens = self.seconds(lengths), sum(lengths)
        if not tokens:
            return
        parts: dict[int, int] = {}
        for length in lengths:
            parts[length.bit_length()] = parts.get(length.bit_length(), 0) + length
        for power, part in parts.items():
            if power not in self.per_token or not expected:
                self.per_token[power] = seconds / tokens
                continue
            found = self.per_token[power] * seconds / expected
            self.per_token[power] += SHARE * part / tokens * (found - self.per_token[power])
