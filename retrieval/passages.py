# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Split documents into passages, and encode each passage in the context of its document ("late chunking").

A document is read in one pass. With a linear encoder this costs about as much as reading the passages one by one. The
vector of a passage is the mean of its tokens.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from modeling_lion.linearized.config import LinearizedConfig, is_lion
from modeling_lion.linearized.model_inputs import longest_text

from .characters import EAST_ASIAN, without_surrogates
from .formats.section import LONGEST, SHORTEST


Spans = Sequence[tuple[int, int]]
# Short documents are packed into rows of up to this many tokens. Longer rows exceed a CPU's caches and are slower.
PACKED_TOKENS = 2048
SENTENCE = r"[.!?]\s|[\u3002\uff01\uff1f]"  # its end, also in Chinese and Japanese
WIDE = re.compile(f"[{EAST_ASIAN}]")


def split_passages(text: str, shortest: int = SHORTEST, longest: int = LONGEST) -> list[tuple[int, int]]:
    """
    Split a text into passages by its paragraphs.

    Paragraphs that are shorter than `shortest` are joined with the next ones. Those that are longer than `longest` are
    cut at the end of a sentence, else between words. Only white space is left out.

    Args:
        text: paragraphs are separated by empty lines.
        shortest, longest: bounds of a passage, in characters. Chinese and Japanese have a third of them, since they
            say as much, in as many tokens, with fewer characters.

    Returns:
        For each passage, in order, the index of its first character and of the one behind its last.

    Raises:
        ValueError: unless 0 < `shortest` <= `longest`.
    """
    if not 0 < shortest <= longest:
        raise ValueError(f"`shortest` is {shortest} and `longest` {longest}: give 0 < shortest <= longest.")
    if not text.isascii():
        share = len(WIDE.findall(text)) / len(text)
        shortest, longest = (max(1, round(x / (1 + 2 * share))) for x in (shortest, longest))
    borders = [0, *(index for x in re.finditer(r"\n\s*\n", text) for index in x.span()), len(text)]
    spans, begin = [], None
    for first, end in zip(borders[::2], borders[1::2], strict=True):
        paragraph = text[first:end]
        if not paragraph.strip():
            continue
        end = first + len(paragraph.rstrip())
        begin = behind_spaces(text, first) if begin is None else begin
        while end - begin > longest:
            piece = text[begin + shortest : begin + longest]
            ends = (max((x.end() for x in re.finditer(mark, piece)), default=0) for mark in (SENTENCE, r"\s"))
            cut = begin + shortest + next((x for x in ends if x), len(piece))
            spans.append((begin, begin + len(text[begin:cut].rstrip())))
            begin = behind_spaces(text, cut)
        if end - begin >= shortest:
            spans.append((begin, end))
            begin = None
    return spans if begin is None else [*spans, (begin, len(text.rstrip()))]


def behind_spaces(text: str, index: int) -> int:
    """Return the first index, from `index` on, that is not white space."""
    return re.compile(r"\s*").match(text, index).end()


@dataclass(frozen=True)
class EncodedPassages:
    """
    Vectors of passages, as `encode_passages` returns them. Rows are in the order of documents and their passages.

    Attributes:
        vectors: `(passages, size)`, float32, contiguous, as vector indexes take them. They have length 1 if the
            encoder ends with a normalization.
        documents: `(passages,)`, int64, the index of each passage's document.
        spans: `(passages, 2)`, int64, the first character of a passage in its document and the one behind its last.
        document_vectors: `(documents, size)`, float32, one vector for each document as a whole.
        cut_tokens: `(passages,)`, int64, how many tokens at its end a passage lost because its document is read in
            parts (`max_document_tokens`, or the longest text of the encoder), and a part ends there.
    """

    vectors: np.ndarray
    documents: np.ndarray
    spans: np.ndarray
    document_vectors: np.ndarray
    cut_tokens: np.ndarray

    def __len__(self) -> int:
        return len(self.vectors)


def mean_of_span(states: Tensor, first: int, end: int) -> Tensor:
    """Return the mean of hidden states[first:end], `(length, hidden_size)`, in float32; 0 if there are none."""
    return states[first:end].float().sum(0) / max(1, end - first)


@dataclass(frozen=True)
class TokenRow:
    """
    A row of tokens that the model reads at once: a document, or a part of a long one.

    Attributes:
        document: the index of the document.
        input_ids: token ids, with special tokens.
        passages: indices, among the passages of the document, of those that begin in the row.
        spans: `(passages, 2)`, the first token of each passage in the row and the one behind its last.
        cut_tokens: `(passages,)`, how many tokens of each passage are behind the end of the row.
    """

    document: int
    input_ids: list[int]
    passages: np.ndarray
    spans: np.ndarray
    cut_tokens: np.ndarray


def special_tokens(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """Return the token ids that a tokenizer puts before and behind a text, such as [CLS] and [SEP], if any."""
    encoded = tokenizer("a", return_attention_mask=False, verbose=False)
    ids, sources = encoded["input_ids"], encoded.sequence_ids(0)
    of_text = [n for n, source in enumerate(sources) if source is not None] or [len(ids)]
    return ids[: of_text[0]], ids[of_text[-1] + 1 :]


def token_rows(
    tokenizer: PreTrainedTokenizerBase,
    document: int,
    text: str,
    spans: Spans,
    name: str | None,
    longest: int,
    prompt: str = "",
) -> Iterator[TokenRow]:
    """
    Split a document into rows of at most `longest` tokens. A row begins with a passage where possible.

    Args:
        document: the index of the document.
        spans, name: passages and name of this document, as `encode_passages` takes them.
        prompt: is put in front of each row, and belongs to no passage.

    Raises:
        ValueError: if a span is empty or not within the text, if passages overlap and have a name, or if the prompt
            leaves no room for the text.
    """
    options = {"add_special_tokens": False, "return_attention_mask": False, "verbose": False}
    prefix, suffix = special_tokens(tokenizer)
    encoded = tokenizer(prompt + text, return_offsets_mapping=True, **options)
    ids, offsets = np.array(encoded["input_ids"], int), np.array(encoded["offset_mapping"], int).reshape(-1, 2)
    offsets = offsets - len(prompt)
    in_prompt = int(np.searchsorted(offsets[:, 1], 0, side="right")) if prompt else 0
    prefix, ids, offsets = [*prefix, *ids[:in_prompt].tolist()], ids[in_prompt:], offsets[in_prompt:]
    for first, end in spans:
        if not 0 <= first < end <= len(text):
            raise ValueError(
                f"`passages` has ({first}, {end}) in document {document}, which is no passage of its {len(text):,} "
                "characters: give the index of the first character and of the one behind the last."
            )
    characters = np.array(spans, int).reshape(-1, 2)
    starts = np.searchsorted(offsets[:, 1], characters[:, 0], side="right")
    ends = np.maximum(np.searchsorted(offsets[:, 0], characters[:, 1], side="left"), starts)
    if name is not None:
        in_order = characters[characters[:, 0].argsort()]
        if (in_order[1:, 0] < in_order[:-1, 1]).any():
            raise ValueError(f"`passages` of document {document} overlap, so `names` cannot stand in front of each.")
        in_front = tokenizer(f"{name}: ", **options)["input_ids"]
        named = np.unique(starts) if len(starts) else np.zeros(1, int)
        ids = np.insert(ids, named.repeat(len(in_front)), np.tile(in_front, len(named)))
        starts = starts + len(in_front) * np.searchsorted(named, starts)
        ends = ends + len(in_front) * np.searchsorted(named, ends)
    room = longest - len(prefix) - len(suffix)
    if room < 1:
        raise ValueError(
            f"Rows of {longest} tokens have no room for a text: {len(prefix)} tokens stand before it, a prompt "
            f"included, and {len(suffix)} behind it."
        )
    borders = [0]
    while len(ids) - borders[-1] > room:
        limit = borders[-1] + room
        borders.append(max(starts[(starts > borders[-1]) & (starts <= limit)], default=limit))
    row_of_passage = np.searchsorted(borders, starts, side="right") - 1
    for row, (first, end) in enumerate(zip(borders, [*borders[1:], len(ids)], strict=True)):
        (passages,) = np.nonzero(row_of_passage == row)
        within = np.stack((starts[passages], np.minimum(ends[passages], end)), axis=1) - first + len(prefix)
        input_ids = [*prefix, *ids[first:end].tolist(), *suffix]
        if input_ids:  # none for an empty text without special tokens
            yield TokenRow(document, input_ids, passages, within, np.maximum(ends[passages] - end, 0))


def document_prompt(encoder: Any) -> str:
    """Return the prompt that `encode_document` of a `SentenceTransformer` puts in front of a text, "" for none."""
    prompts = getattr(encoder, "prompts", None) or {}
    names = ("document", "passage", "corpus", getattr(encoder, "default_prompt_name", None))
    return next((prompts[name] for name in names if name in prompts), None) or ""


class PassageEncoder:
    """
    A LION or a linearized encoder, its tokenizer, and the modules behind the mean of tokens.

    Args:
        encoder: as `encode_passages` takes it.

    Raises:
        ValueError: if the encoder is of another kind, has another pooling or no fast tokenizer, or is in train mode.
    """

    def __init__(self, encoder: Any):
        if isinstance(encoder, (str, Path)):
            from sentence_transformers import SentenceTransformer  # an optional dependency

            encoder = SentenceTransformer(str(encoder))
        self.size, self.prompt = getattr(encoder, "truncate_dim", None), ""
        if isinstance(encoder, tuple):
            (self.model, self.tokenizer), pooling_mode, self.modules = encoder, "mean", []
        else:
            self.prompt = document_prompt(encoder)
            transformer, *modules = encoder
            self.model, self.tokenizer = getattr(transformer, "auto_model", transformer), encoder.tokenizer
            pooling_mode, self.modules = getattr(modules[0], "pooling_mode", None) if modules else None, modules[1:]
        if not isinstance(self.model, PreTrainedModel) or not is_lion(self.model.config):
            raise ValueError(
                f"The encoder is a {type(self.model).__name__}: give a LION of PyTorch, which reads long documents."
            )
        if pooling_mode not in ("mean", ("mean",)):
            raise ValueError(
                "The vector of a passage is the mean of its tokens, and this encoder has another pooling "
                f"({pooling_mode}): give one whose `pooling_mode` is 'mean'."
            )
        if self.prompt and not getattr(modules[0], "include_prompt", True):
            raise ValueError("This encoder leaves its prompt out of the mean of tokens, which is not done here.")
        self.model = self.model.base_model
        config = self.model.config
        is_linearized = isinstance(config, LinearizedConfig)
        self.longest_text = longest_text(self.model)
        # The position of a text's first token in the position table. Encoders without positions read rows one by one.
        table = config.lion_position_table if is_linearized else None
        self.first_position = 0 if table is None else table[1]
        self.can_pack = "position_ids" in signature(self.model.forward).parameters
        if not getattr(self.tokenizer, "is_fast", False):
            raise ValueError(
                f"{type(self.tokenizer).__name__} does not say which characters a token has: give a fast tokenizer."
            )
        if self.model.training:
            raise ValueError("`encode_passages` is for inference: call eval() on the encoder first.")

    def hidden_states(self, rows: Sequence[TokenRow]) -> list[Tensor]:
        """Return the hidden states of each row, `(length, hidden_size)`. Rows are packed into one sequence."""
        if len(rows) > 1 and not self.can_pack:
            return [states for row in rows for states in self.hidden_states([row])]
        device, first = self.model.device, self.first_position
        lengths = [len(row.input_ids) for row in rows]
        inputs = {"input_ids": torch.tensor([[token for row in rows for token in row.input_ids]], device=device)}
        if len(rows) > 1:
            positions = [torch.arange(first, first + length, device=device) for length in lengths]
            inputs["position_ids"] = torch.cat(positions)[None]
        (states,) = self.model(**inputs).last_hidden_state
        return states.split(lengths)

    def finish(self, means: Tensor) -> np.ndarray:
        """Apply the modules behind the pooling to `(vectors, hidden_size)`. Returns `(vectors, size)`, float32."""
        features = {"sentence_embedding": means.to(self.model.device)}
        for module in self.modules:
            dtype = next((weight.dtype for weight in module.parameters()), torch.float32)
            features = module(features | {"sentence_embedding": features["sentence_embedding"].to(dtype)})
        vectors = features["sentence_embedding"].float()[:, : self.size]
        return np.ascontiguousarray(vectors.cpu().numpy())


@torch.inference_mode()
def encode_passages(
    encoder: Any,
    documents: Sequence[str],
    passages: Sequence[Spans] | Callable[[str], Spans] | None = None,
    *,
    names: Sequence[str] | None = None,
    max_document_tokens: int = 131072,
    show_progress: bool = False,
) -> EncodedPassages:
    """
    Encode the passages of documents, each document in one pass ("late chunking"). The vector of a passage is the mean
    of its tokens, which attend to the whole document.

    The encoder's prompt for documents (as in `encode_document`) is put in front of each document, and of each of its
    parts. It counts for the vector of the document, but not for those of its passages. Short documents are packed
    without padding. Rows of more than 131,072 tokens are computed in segments (`LionModel.encode_long`).

    Args:
        encoder: a `SentenceTransformer` around a LION or a linearized encoder (`linearize`), its folder or name on the
            Hub, or a tuple of the model and its tokenizer. It must have mean pooling.
        documents: texts of any length. Single surrogates count as U+FFFD.
        passages: for each document a list of passages: the first character and the one behind the last. Passages may
            overlap. Or a function that returns this list for a text. `None` means `split_passages`.
        names: names of the documents. `"name: "` is put in front of each passage, which helps an encoder that was
            trained with names. Passages must not overlap then. `None` adds nothing.
        max_document_tokens: documents with more tokens are read in parts, which bounds the memory. A part begins with
            a passage if possible; a passage that crosses the end of a part is cut off there. Encoders with rotary
            positions only know the positions of their training: give `config.max_position_embeddings`, or less.
        show_progress: draw a progress bar.

    Returns:
        Vectors of the passages and of the documents, in order. Passages without tokens have the vector 0. Vectors are
        truncated to the encoder's `truncate_dim`, if it has one.

    Raises:
        ValueError: if the encoder is not supported, the numbers of documents, passages and names differ, a passage is
            empty or not within its document, or passages with names overlap.

    Example:

        >>> from modeling_lion import encode_passages

        >>> encoded = encode_passages("checkpoints/lion-minilm-l6", ["A lion sleeps. It roars.", "An owl."])
        >>> encoded.vectors.shape, encoded.documents.tolist()
        ((2, 384), [0, 1])
    """
    if isinstance(documents, str):
        raise ValueError("`documents` is one text: give a list of texts.")
    documents = [without_surrogates(text) for text in documents]
    if names is not None and (isinstance(names, str) or not all(isinstance(name, str) for name in names)):
        raise ValueError("`names` must be a list of strings, one for each document.")
    if max_document_tokens < 3:  # [CLS], a token and [SEP]
        raise ValueError(f"`max_document_tokens` is {max_document_tokens}: give at least 3.")
    find = split_passages if passages is None else passages
    spans = [list(find(text)) for text in documents] if callable(find) else [list(x) for x in find]
    for name, values in (("passages", spans), ("names", names)):
        if values is not None and len(values) != len(documents):
            raise ValueError(f"`{name}` has {len(values)} entries for {len(documents)} documents: give one for each.")
    for number, found in enumerate(spans):
        if any(np.shape(span) != (2,) for span in found):
            raise ValueError(
                f"`passages` must be one list of (first, end) for each document; that of document {number} is "
                f"{str(found)[:60]}."
            )
    model = PassageEncoder(encoder)
    longest = min(max_document_tokens, model.longest_text or max_document_tokens)
    size = model.model.config.hidden_size
    passage_means = [torch.zeros(len(found), size) for found in spans]
    cut_tokens = [np.zeros(len(found), int) for found in spans]
    document_sums, token_counts = torch.zeros(len(documents), size), torch.zeros(len(documents), 1)

    def read(rows: list[TokenRow]) -> None:
        for row, states in zip(rows, model.hidden_states(rows), strict=True):
            for passage, (first, end) in zip(row.passages.tolist(), row.spans.tolist(), strict=True):
                passage_means[row.document][passage] = mean_of_span(states, first, end)
            document_sums[row.document] += states.float().sum(0).cpu()
            token_counts[row.document] += len(states)

    waiting: list[TokenRow] = []
    for number, text in enumerate(
        logging.tqdm(documents, desc="Encoding", unit="document", disable=not show_progress)
    ):
        name = None if names is None else without_surrogates(names[number])
        for row in token_rows(model.tokenizer, number, text, spans[number], name, longest, model.prompt):
            cut_tokens[number][row.passages] = row.cut_tokens
            if waiting and sum(len(x.input_ids) for x in (*waiting, row)) > PACKED_TOKENS:
                read(waiting)
                waiting = []
            waiting.append(row)
    if waiting:
        read(waiting)
    return EncodedPassages(
        model.finish(torch.cat(passage_means) if passage_means else torch.zeros(0, size)),
        np.repeat(np.arange(len(spans)), [len(found) for found in spans]),
        np.array([span for found in spans for span in found], int).reshape(-1, 2),
        model.finish(document_sums / token_counts.clamp(min=1)),
        np.concatenate([*cut_tokens, np.zeros(0, int)]),
    )
