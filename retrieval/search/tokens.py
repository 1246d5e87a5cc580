# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Scores of all passages of a folder in milliseconds, from one vector for each token of the vocabulary.

The encoder reads each token of the folder once, alone, as model2vec does. A query is compared with a passage token by
token: each of its tokens counts as much as the most similar token of the passage, with the weights of BM25.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..passages import special_tokens


if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

SHARPNESS = 3  # power of similarities: a token is matched by a near one, not by many remote ones
SATURATION, LENGTH = 1.2, 0.75  # of BM25, by which repeated tokens and those of short passages count
BATCH = 512  # tokens that the encoder reads at once


def tokens_of(encoder: "SentenceTransformer", texts: Sequence[str]) -> list[np.ndarray]:
    """
    Return the different token ids of each text, without special tokens, and how often each is there: `(2, different)`,
    uint32.
    """
    options = {"add_special_tokens": False, "return_attention_mask": False, "verbose": False}
    found = encoder.tokenizer(list(texts), **options)["input_ids"] if texts else []
    return [np.stack(np.unique(np.array(ids, np.uint32), return_counts=True)).astype(np.uint32) for ids in found]


@torch.inference_mode()
def token_vectors(encoder: "SentenceTransformer", tokens: Sequence[int]) -> np.ndarray:
    """Return the hidden state of each token in a text that has no other one: `(tokens, hidden_size)`, float16."""
    prefix, suffix = special_tokens(encoder.tokenizer)
    place, found = len(prefix), []
    for batch in torch.as_tensor(np.asarray(tokens, np.int64)).split(BATCH):
        rows = [torch.tensor(ids, dtype=torch.long).expand(len(batch), -1) for ids in (prefix, suffix)]
        ids = torch.cat([rows[0], batch[:, None], rows[1]], dim=1).to(encoder.device)
        states = encoder[0]({"input_ids": ids, "attention_mask": torch.ones_like(ids)})["token_embeddings"]
        found.append(states[:, place].float().cpu().numpy().astype(np.float16))
    return np.concatenate(found)


class TokenScores:
    """
    Scores passages by the similarity of their tokens to those of a query.

    Args:
        vectors: vectors of all tokens of the passages, by token id.
        passages: `tokens_of` each passage, at least one.
    """

    def __init__(self, vectors: dict[int, np.ndarray], passages: Sequence[np.ndarray]):
        self.place = {token: n for n, token in enumerate(vectors)}
        matrix = np.stack(list(vectors.values())).astype(np.float32)
        self.mean = matrix.mean(0)
        self.matrix = directions(matrix - self.mean)
        of_token = np.zeros(max(vectors) + 1, np.int32)
        of_token[list(vectors)] = np.arange(len(vectors))
        tokens, counts = np.concatenate(passages, axis=1)
        sizes = [x.shape[1] for x in passages]
        self.tokens, self.begins, self.count = of_token[tokens], np.cumsum([0, *sizes])[:-1], len(passages)
        lengths = np.add.reduceat(counts.astype(np.float32), self.begins)
        slow = SATURATION * (1 - LENGTH + LENGTH * lengths / lengths.mean())
        self.weights = (counts * (SATURATION + 1) / (counts + np.repeat(slow, sizes))).astype(np.float32)
        self.frequencies = np.bincount(self.tokens, minlength=len(vectors))

    def of_query(self, tokens: Sequence[int], vectors: np.ndarray) -> np.ndarray:
        """
        Score all passages: `(passages,)`, float32.

        Args:
            tokens, vectors: of the query. A token that no passage has weighs as much as the rarest one.
        """
        near = np.maximum(directions(vectors.astype(np.float32) - self.mean) @ self.matrix.T, 0) ** SHARPNESS
        scores = np.zeros(self.count, np.float32)
        for token, similarities in zip(tokens, near, strict=True):
            frequency = self.frequencies[self.place[token]] if token in self.place else 0
            rarity = np.log(1 + (self.count - frequency + 0.5) / (frequency + 0.5))
            of_tokens = np.float32(rarity) * similarities[self.tokens] * self.weights
            scores += np.maximum.reduceat(of_tokens, self.begins)
        return scores


def directions(vectors: np.ndarray) -> np.ndarray:
    """Scale rows to length 1; rows of zeros stay."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def fused(*rankings: Sequence[int], constant: int = 60) -> list[int]:
    """Join rankings, best first, by their reciprocal ranks: Σ 1 / (constant + rank)."""
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, item in enumerate(ranking, start=1):
            scores[item] = scores.get(item, 0.0) + 1 / (constant + rank)
    return sorted(scores, key=lambda item: -scores[item])
