# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Passages of documents, and queries for them: what train_passages.py trains on and bench_passages.py measures.

A query is the first sentence of a passage, and is removed from the passage, unless the document has queries of its
own. It is used with and without the name of the document in front. Passages are read in four ways (`READINGS`).
"""

import json
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
from retrieval_lion.passages import mean_of_span, token_rows
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedTokenizerBase

from modeling_lion import split_passages
from modeling_lion.linearized.model_inputs import longest_text

from .ranking import ndcg


SENTENCE = re.compile(r"\S.{30,300}?[.!?](?=\s)", re.DOTALL)
MIN_REST = 100  # characters that a passage has behind a sentence that is removed
MIN_LETTERS = 0.75  # share of letters in a query: no code, no tables
MOST_PADDING = 1.15  # length of the longest row of a batch over that of the shortest
LONGEST_PIECE, LONGEST_DOCUMENT = 512, 131072  # tokens
# By name: whether a document is read in one pass, and whether its name is put in front of passages.
READINGS = {
    "pieces": (False, False),
    "pieces with names": (False, True),
    "one pass": (True, False),
    "one pass with names": (True, True),
}


@dataclass(frozen=True)
class SplitDocument:  # not a tuple, which the Trainer would take apart
    """
    Attributes:
        queries: of its own, each with the index of the passage that answers it.
    """

    name: str
    passages: list[str]
    queries: list[tuple[int, str]] = field(default_factory=list)

    def part(self, first: int, end: int) -> "SplitDocument":
        """Some of the passages, with their queries."""
        queries = [(n - first, text) for n, text in self.queries if first <= n < end]
        return SplitDocument(self.name, self.passages[first:end], queries)


class Query(NamedTuple):
    text: str
    name: str  # of its document
    passage: int  # index, among all, of the passage that answers it

    def words(self, is_named: bool) -> str:
        return f"{self.name}: {self.text}" if is_named else self.text


@dataclass
class Row:
    """
    A row of tokens that an encoder reads at once.

    Attributes:
        input_ids: token ids, with special tokens.
        spans: first token, the one behind the last, and the index of the vector, which is their mean.
    """

    input_ids: list[int]
    spans: list[tuple[int, int, int]]


def read_documents(path: str | Path) -> list[SplitDocument]:
    """
    Read the documents of a JSONL file, with `name` and `text`, which is split into passages, or `name` and `passages`.
    These may have `queries`, each with its `text` and the number of the `passage` that answers it, from 0 on.

    Raises:
        ValueError: if a line has other fields, or a query an empty text, or a passage that is not there.
    """
    documents = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").split("\n"), start=1):
        if not line.strip():
            continue
        try:
            documents.append(document_of(json.loads(line)))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f'{path}, line {number}: give {{"name": …, "text": …}} or {{"name": …, "passages": […]}}, the latter '
                f'with "queries": [{{"passage": 0, "text": …}}, …] if there are any; got {line[:80]!r} ({error}).'
            ) from error
    return documents


def document_of(content: dict) -> SplitDocument:
    """The document of a line of `read_documents`, without empty passages."""
    passages, queries = content.get("passages"), content.get("queries", [])
    if passages is None:
        if queries:
            raise ValueError("`queries` need `passages`, of which they name one")
        passages = [content["text"][first:end] for first, end in split_passages(content["text"])]
    if isinstance(passages, str):
        raise TypeError("`passages` is one text")
    texts = [" ".join(passage.split()) for passage in passages]
    kept = [n for n, text in enumerate(texts) if text]
    places = {n: place for place, n in enumerate(kept)}
    found = [(places.get(query["passage"]), " ".join(query["text"].split())) for query in queries]
    for query, (place, text) in zip(queries, found, strict=True):
        if place is None or not text:
            raise ValueError(f"the query {query} has no text, or a passage that is empty or not there")
    return SplitDocument(str(content["name"]), [texts[n] for n in kept], found)


def first_sentence(passage: str) -> str | None:
    """Return the sentence at the start of a passage, if enough text follows it, else `None`."""
    found = SENTENCE.match(passage)
    if found is None or len(passage) - found.end() < MIN_REST:
        return None
    letters = sum(character.isalpha() or character == " " for character in found[0])
    return found[0] if letters >= MIN_LETTERS * len(found[0]) else None


def take_queries(
    documents: Iterable[SplitDocument], generator: random.Random, share: float, at_most: int | None = None
) -> tuple[list[SplitDocument], list[Query]]:
    """
    Take queries out of documents, at most `at_most` of each. `share` of the passages that begin with a sentence lose
    it. A document with queries of its own gives these, and loses nothing. Returns the documents without these
    sentences, and the queries.
    """
    changed, queries, count = [], [], 0
    for document in documents:
        name, passages = document.name, document.passages
        if own := document.queries:
            if at_most is not None and len(own) > at_most:
                own = sorted(generator.sample(own, at_most))
            queries += [Query(text, name, count + n) for n, text in own]
            changed.append(document)
            count += len(passages)
            continue
        found = {n: sentence for n, passage in enumerate(passages) if (sentence := first_sentence(passage))}
        chosen = [n for n in found if generator.random() < share]
        if at_most is not None and len(chosen) > at_most:
            chosen = sorted(generator.sample(chosen, at_most))
        queries += [Query(found[n], name, count + n) for n in chosen]
        changed.append(
            SplitDocument(name, [p[len(found[n]) :].strip() if n in chosen else p for n, p in enumerate(passages)])
        )
        count += len(passages)
    return changed, queries


def make_rows(
    tokenizer: PreTrainedTokenizerBase, documents: Sequence[SplitDocument], reading: str, longest: int
) -> list[Row]:
    """
    Make the rows to read documents in one of `READINGS`. The vector of passage n, counted over all documents, has the
    index n; in one pass, the vector of document n has the number of all passages plus n.

    Args:
        longest: most tokens of a row. A longer document is read in several rows. A piece is cut there, and at
            `LONGEST_PIECE`, the positions of most encoders that read pieces.
    """
    is_whole, is_named = READINGS[reading]
    if not is_whole:
        texts = [f"{x.name}: {passage}" if is_named else passage for x in documents for passage in x.passages]
        return text_rows(tokenizer, texts, min(longest, LONGEST_PIECE))
    num_passages = sum(len(document.passages) for document in documents)
    rows, first = [], 0
    for number, document in enumerate(documents):
        text, spans = "" if is_named or not document.name else f"{document.name}: ", []
        for passage in document.passages:
            spans.append((len(text), len(text) + len(passage)))
            text += f"{passage} "
        for row in token_rows(tokenizer, number, text, spans, document.name if is_named else None, longest):
            found = [(*span, first + n) for n, span in zip(row.passages.tolist(), row.spans.tolist(), strict=True)]
            rows.append(Row(row.input_ids, [*found, (0, len(row.input_ids), num_passages + number)]))
        first += len(spans)
    return rows


def batches_of(rows: Sequence[Row], tokens: int) -> Iterator[list[Row]]:
    """Group rows of about the same length into batches of at most `tokens` tokens, or of one row."""
    batch: list[Row] = []
    for row in sorted(rows, key=lambda row: len(row.input_ids)):
        length = len(row.input_ids)
        if batch and ((len(batch) + 1) * length > tokens or length > MOST_PADDING * len(batch[0].input_ids)):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def vectors_of_rows(model: nn.Module, rows: Sequence[Row], pad_token_id: int) -> Tensor:
    """Return the unit vectors of all spans of a batch, in their order, `(spans, hidden_size)`, float32."""
    device = next(model.parameters()).device
    length = max(len(row.input_ids) for row in rows)
    input_ids = torch.full((len(rows), length), pad_token_id)
    mask = torch.zeros(len(rows), length, dtype=torch.long)
    for n, row in enumerate(rows):
        input_ids[n, : len(row.input_ids)] = torch.tensor(row.input_ids)
        mask[n, : len(row.input_ids)] = 1
    inputs = {"input_ids": input_ids.to(device)}
    if not bool(mask.all()):
        inputs["attention_mask"] = mask.to(device)
    states = model(**inputs).last_hidden_state
    means = [mean_of_span(states[n], first, end) for n, row in enumerate(rows) for first, end, _ in row.spans]
    return F.normalize(torch.stack(means), dim=-1)


def in_order(vectors: Sequence[Tensor], batches: Iterable[list[Row]]) -> Tensor:
    """Sort vectors of batches by the index of their spans. Those of documents in several rows are averaged."""
    index = torch.tensor([n for batch in batches for row in batch for _, _, n in row.spans])
    found = torch.cat(list(vectors))
    index = index.to(found.device)
    total = found.new_zeros(int(index.max()) + 1, found.shape[1]).index_add(0, index, found)
    return F.normalize(total, dim=-1)


@torch.no_grad()
def encode_rows(model: nn.Module, rows: Sequence[Row], pad_token_id: int, tokens: int = 8192) -> Tensor:
    """Compute `vectors_of_rows` batch by batch, sorted by the index of the spans."""
    batches = list(batches_of(rows, tokens))
    return in_order([vectors_of_rows(model, batch, pad_token_id) for batch in batches], batches)


def longest_row(model: nn.Module, tokens: int) -> int:
    """Return `tokens`, or the number of positions in a table of the model if these are fewer."""
    return min(tokens, longest_text(model) or tokens)


def text_rows(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], longest: int) -> list[Row]:
    """Make a row with one vector for each text, of its first `longest` tokens."""
    encoded = tokenizer(list(texts), truncation=True, max_length=longest, return_attention_mask=False, verbose=False)
    return [Row(ids, [(0, len(ids), n)]) for n, ids in enumerate(encoded["input_ids"])]


def owners_of(documents: Iterable[SplitDocument]) -> Tensor:
    """Return the index of each passage's document, `(passages,)`."""
    return torch.tensor([n for n, document in enumerate(documents) for _ in document.passages])


def score_queries(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    documents: Sequence[SplitDocument],
    queries: Sequence[Query],
    reading: str,
) -> dict[str, Tensor]:
    """
    Return nDCG@10 of every query, `(queries,)`: over the passages of all documents, with and without the document's
    name in front of the query; and over all documents, without names. A document is found by its best passage, or by
    one vector: in one pass the mean of all tokens, for pieces the mean of their vectors.

    Args:
        documents, queries: from `take_queries`.
        reading: one of `READINGS`.
    """
    rows = make_rows(tokenizer, documents, reading, longest_row(model, LONGEST_DOCUMENT))
    vectors = encode_rows(model, rows, tokenizer.pad_token_id).cpu()
    owners = owners_of(documents)
    passages, wholes = vectors[: len(owners)], vectors[len(owners) :]
    if not len(wholes):
        wholes = F.normalize(torch.zeros(len(documents), passages.shape[1]).index_add(0, owners, passages), dim=-1)
    answers = torch.tensor([query.passage for query in queries])
    found = {}
    for name, is_named in (("with_names", True), ("without_names", False)):
        texts = text_rows(tokenizer, [query.words(is_named) for query in queries], longest_row(model, LONGEST_PIECE))
        of_queries = encode_rows(model, texts, tokenizer.pad_token_id).cpu()
        found[name] = ndcg(of_queries @ passages.T, answers)
    none = torch.full((len(queries), len(documents)), -1.0)
    scores = of_queries @ passages.T
    best = none.scatter_reduce(1, owners.expand_as(scores), scores, "amax")
    found["documents_best_passage"] = ndcg(best, owners[answers])
    found["documents_one_vector"] = ndcg(of_queries @ wholes.T, owners[answers])
    return found
