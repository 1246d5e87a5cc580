# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""An encoder whose vectors count words, in the place of the one of `lion search`."""

import re
import zlib

import numpy as np
import torch
from retrieval_lion.encoders import Cut
from retrieval_lion.search import index, searcher


SIZE = 4096


def number_of(word: str) -> int:
    return zlib.crc32(word.encode()) % SIZE


class BagOfWords:
    """Unit vectors of the words of passages, and how many passages it was given."""

    in_pieces = True

    def __init__(self):
        self.count, self.cut, self.encoder = 0, Cut(), self

    def encode_queries(self, texts):
        return self.encode_texts(texts)

    def vector(self, text: str) -> torch.Tensor:
        vector = torch.zeros(SIZE)
        for word in re.findall("[a-z]+", text.lower()):
            vector[number_of(word)] += 1
        return torch.nn.functional.normalize(vector, dim=0)

    def encode_texts(self, texts):
        return torch.stack([self.vector(text) for text in texts])

    def encode_documents(self, documents):
        self.count += sum(len(document.spans) for document in documents)
        return [torch.stack([self.vector(x.text[first:end]) for first, end in x.spans]) for x in documents]

    def tokenizer(self, texts, **options):
        return {"input_ids": [[number_of(word) for word in re.findall("[a-z]+", text.lower())] for text in texts]}


def vectors_of_tokens(encoder, tokens) -> np.ndarray:
    """Nearly orthogonal vectors."""
    rows = [np.random.default_rng(int(token)).standard_normal(64) for token in tokens]
    return np.array(rows, np.float16).reshape(-1, 64)


def use_bag_of_words(monkeypatch) -> BagOfWords:
    """Make it the encoder of `lion search`."""
    bag = BagOfWords()
    monkeypatch.setattr(searcher, "load_encoder", lambda model, base: bag)
    monkeypatch.setattr(searcher, "SentenceEncoder", lambda encoder, in_pieces: encoder)
    monkeypatch.setattr(index, "token_vectors", vectors_of_tokens)
    return bag
