# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Tokenize and compute texts of any lengths with an encoder or a cross-encoder of sentence-transformers."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
import torch
from retrieval_lion.encoders import groups_by_length
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..export.exported import ExportedModel


CHARACTERS_PER_TOKEN = 16  # an upper bound before tokens are counted; words of all languages have fewer
Input = str | tuple[str, str]


class Dropped(Exception):
    """A computation was cancelled because nobody waits for it."""


@dataclass(slots=True)
class Row:
    """
    The inputs of the model for a text or a pair of texts, by name, with special tokens, and how many tokens were cut
    off.
    """

    fields: dict[str, list[int]]
    cut: int = 0

    def __len__(self) -> int:
        return len(self.fields["input_ids"])


@dataclass
class Description:
    """
    What a server says of its model.

    Attributes:
        task: "embed", "classify" or "rerank".
        max_input_tokens: the longest text or pair that is accepted.
        own_limit: the longest one that the model can read; `None` without a limit.
        size: the size of a vector, or the number of classes.
        labels: names of the classes.
        activation: the function that makes scores of logits.
        prompts: texts to put in front of inputs, by name.
        default_prompt: the one that is taken without a name.
        notes: sentences for the person who starts the server.
    """

    task: str
    max_input_tokens: int
    own_limit: int | None
    size: int
    vocab_size: int
    dtype: str
    model_type: str
    labels: list[str] = field(default_factory=list)
    activation: Callable[[Tensor], Tensor] = field(default_factory=nn.Identity)
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt: str = ""
    pooling: str | None = None
    notes: list[str] = field(default_factory=list)

    def scores(self, logits: np.ndarray) -> np.ndarray:
        return self.activation(torch.from_numpy(logits)).numpy()


def with_prompt(prompt: str, inputs: Sequence[Input | list[int]]) -> list[Input | list[int]]:
    """
    Put a prompt in front of each text, or of the first text of each pair, as sentence-transformers does. Token ids and
    texts without words stay.
    """

    def put(one):
        if isinstance(one, tuple):
            return put(one[0]), one[1]
        return prompt + one if isinstance(one, str) and one.strip() else one

    return list(map(put, inputs))


class Engine:
    """
    Tokenizes and computes. Texts of about the same length are computed together.

    Each engine has a tokenizer of its own, so that two engines can tokenize at the same time. They share the weights.
    """

    def __init__(self, model: SentenceTransformer | CrossEncoder, about: Description):
        self.model, self.about = model, about
        self.output = "sentence_embedding" if about.task == "embed" else "scores"
        self.modules = list(model)
        while isinstance(self.modules[-1], Normalize):  # each request chooses whether to normalize
            self.modules.pop()
        self.tokenizer, self.padder = copy.deepcopy(model.tokenizer), copy.deepcopy(model.tokenizer)
        self.is_cancelled = False

    def twin(self) -> "Engine":
        """Return an engine for another thread. A graph gets a runtime of its own, which starts its own threads."""
        twin = Engine(self.model, self.about)
        first = twin.modules[0]
        if isinstance(first.model, ExportedModel):
            twin.modules[0] = copy.deepcopy(first, {id(first.model): ExportedModel(first.model.folder)})
        return twin

    def tokenize(self, inputs: Sequence[Input], side: str | None = None) -> list[Row]:
        """
        Tokenize texts or pairs.

        Args:
            side: "left" or "right" cuts texts that are too long at this end; `None` cuts nothing.
        """
        if side is None:  # a call of a tokenizer takes either texts or pairs
            return [row for _, group in groupby(inputs, type) for row in self.rows(list(group))]
        return [self.shortened(one, side) for one in inputs]

    def shortened(self, one: Input, side: str) -> Row:
        texts = (one,) if isinstance(one, str) else one
        most = self.about.max_input_tokens
        size = CHARACTERS_PER_TOKEN * most  # longer texts are cut before their tokens are counted
        while True:
            cut = [text[:size] if side == "right" else text[-size:] for text in texts]
            is_whole = all(map(str.__eq__, cut, texts))
            given = cut[0] if isinstance(one, str) else tuple(cut)
            (row,) = self.rows([given])
            if is_whole and len(row) <= most:
                return row
            if is_whole or len(row) > 2 * most:  # far from where it was cut
                # The length of a text that is many times too long is estimated: counting its tokens takes long.
                tokens = round(len(row) * sum(map(len, texts)) / max(1, sum(map(len, cut))))
                (row,) = self.rows([given], truncation=True, max_length=most, side=side)
                row.cut = tokens - len(row)
                return row
            size *= 4

    def rows(self, inputs: Sequence[Input], side: str = "right", **options) -> list[Row]:
        self.tokenizer.truncation_side = side
        lists = [list(inputs)] if isinstance(inputs[0], str) else [list(x) for x in zip(*inputs, strict=True)]
        options = {"truncation": False, "return_attention_mask": False, "verbose": False} | options
        found = self.tokenizer(*lists, **options)
        return [Row({name: found[name][n] for name in found}) for n in range(len(inputs))]

    def rows_of_ids(self, ids: Sequence[list[int]]) -> list[Row]:
        types = "token_type_ids" in self.tokenizer.model_input_names
        return [Row({"input_ids": x} | ({"token_type_ids": [0] * len(x)} if types else {})) for x in ids]

    def cancel(self) -> None:
        """Make `compute`, in another thread, raise `Dropped` before the next operation of torch or of a graph."""
        self.is_cancelled = True
        if isinstance(self.modules[0].model, ExportedModel):
            self.modules[0].model.cancel()

    def resume(self) -> None:
        if isinstance(self.modules[0].model, ExportedModel):
            self.modules[0].model.resume()
        self.is_cancelled = False

    @torch.inference_mode()
    def compute(self, rows: Sequence[Row], in_one: bool = False) -> list[np.ndarray]:
        """
        Compute a vector `(size,)` for each row, float32: an embedding before any normalization, cut to the
        `truncate_dim` of the encoder, or logits.

        Args:
            in_one: compute all rows in one batch, padded to the longest.

        Raises:
            Dropped: after `cancel()`.
        """
        found = {}
        try:
            with Cancellable(self):
                for group in [list(range(len(rows)))] if in_one else self.groups(rows):
                    names = rows[group[0]].fields
                    given = {name: [rows[n].fields[name] for n in group] for name in names}
                    features = self.padder.pad(given, return_tensors="pt", verbose=False)
                    features = {name: x.to(self.model.device) for name, x in features.items()}
                    for module in self.modules:
                        features = module(features)
                    outputs = features[self.output].float().cpu().numpy()
                    outputs = outputs.reshape(len(group), -1)[:, : getattr(self.model, "truncate_dim", None)]
                    found |= dict(zip(group, outputs, strict=True))
        except Exception:
            if self.is_cancelled:  # a cancelled runtime raises an error of its own
                raise Dropped from None
            raise
        return [found[n] for n in range(len(rows))]

    def groups(self, rows: Sequence[Row]) -> list[list[int]]:
        """Group rows that are computed together with little padding. Returns their indices, longest first."""
        return groups_by_length(list(map(len, rows)))


class Cancellable(TorchFunctionMode):
    """Checks before each function of torch, in this thread only, whether the engine was cancelled."""

    def __init__(self, engine: Engine):
        super().__init__()
        self.engine = engine

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if self.engine.is_cancelled:
            raise Dropped
        return function(*args, **(kwargs or {}))
