# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Compute the results on the panels of the page (page.py): functions of a loaded checkpoint and user input that return
numbers and texts, or raise a ValueError whose message is shown on the page.
"""

import os
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import torch
from hub_upload_lion.checkpoint import find_checkpoint, load_model, load_preprocessor
from hub_upload_lion.publish.model_card import attention_in_words
from hub_upload_lion.sentence_modules import MODULES, encoder_class
from hub_upload_lion.traits import LinearizedTraits, Traits, traits_of
from retrieval_lion.documents import passages_of, passages_of_text
from retrieval_lion.encoders import Cut, SentenceEncoder, tokens_cut, unit_vectors
from retrieval_lion.search.index import Answer, Index
from retrieval_lion.search.searcher import CANDIDATES
from torch import Tensor
from transformers import AutoModel, BertConfig, PreTrainedModel, pipeline
from transformers.utils import cached_file

from modeling_lion import AttentionReport
from modeling_lion.attention.lion_attention import DECAYS_ONLY

from ..timing import cpu_seconds


if TYPE_CHECKING:
    from PIL.Image import Image
    from sentence_transformers import SentenceTransformer

FEWEST_TEXTS, MOST_TEXTS = 2, 20  # to compare
MOST_ROWS = 48  # of a decay mask, to draw
MOST_TOKENS = 4096  # of a text, to draw its decay masks
MOST_CHARACTERS = 10_000_000  # of all texts to search
LENGTHS = (128, 512, 2048, 8192)
REPEATS, SECONDS_PER_LENGTH = 5, 10
# What can be shown of attention heads, and its name in an `AttentionReport`.
SHOWN = {"attention weights": "attention", "decay masks": "mask"}
DIRECTIONS = {"both": ("both directions",), "alternate": ("what precedes", "what follows")}


@dataclass(frozen=True)
class Served:
    """
    A checkpoint, loaded for the page.

    Attributes:
        name: the name in the title.
        source: folder or Hub repository.
        preprocessor: the tokenizer, or the image processor.
    """

    name: str
    source: str
    model: PreTrainedModel
    preprocessor: object

    @property
    def kind(self) -> str:
        return type(self.model).__name__

    @property
    def is_text(self) -> bool:
        return self.traits.modality == "text"

    @cached_property
    def traits(self) -> Traits:
        return traits_of(self.model)

    @cached_property
    def why_no_encoder(self) -> str | None:
        """Why the checkpoint is not an encoder of sentence-transformers, as a sentence; `None` if it is one."""
        if cached_file(self.source, MODULES, _raise_exceptions_for_missing_entries=False) is None:
            return f"{self.name} was not saved by sentence-transformers: its vectors were not trained to be compared."
        name = encoder_class(Path(self.source)) if Path(self.source).is_dir() else "SentenceTransformer"
        if name != "SentenceTransformer" or not self.is_text:
            return f"{self.name} is a {name} for {self.traits.modality}s, and a SentenceTransformer is needed."
        return None

    @cached_property
    def encoder(self) -> "SentenceTransformer":
        """The encoder of sentence-transformers. It is loaded at first use; only some panels need it."""
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(self.source, device="cpu")

    @cached_property
    def index(self) -> Index:
        """The passages that were searched last, in memory."""
        return Index(None, SentenceEncoder(self.encoder, in_pieces=True))


def load_served(source: str | Path) -> Served:
    """
    Load a checkpoint for the page. Code in the checkpoint does not run.

    Args:
        source: a folder of `save_pretrained` or sentence-transformers, a Trainer's output, or a Hub repository.

    Raises:
        ValueError: if this is not a complete LION checkpoint with its tokenizer or image processor.
        OSError: if the checkpoint does not exist or is damaged.
    """
    folders = [source]
    if Path(source).is_dir():
        folders = [find_checkpoint(source), source]
    model = load_model(folders[0])
    preprocessor = load_preprocessor(traits_of(model).modality, *folders)
    return Served(Path(source).absolute().name if len(folders) > 1 else source, str(folders[0]), model, preprocessor)


def facts(served: Served) -> str:
    """Describe the checkpoint in a sentence."""
    config = served.model.config
    name, kind = attention_in_words(served.model)
    count = served.model.num_parameters()
    size = f"{count / 1e6:.1f}M parameters" if count >= 1e6 else f"{count:,} parameters"
    return (
        f"{served.name}: a {served.kind} of {size}, {config.num_hidden_layers} layers of {config.hidden_size}. "
        f"{name} is {kind}."
    )


def needs(served: Served, *auto_classes: str) -> str | None:
    """Return a sentence if none of these Auto classes loads the class of the checkpoint, else `None`."""
    known = served.traits.auto_classes
    kinds = [kind for name in auto_classes for kind in known.get(name, ())]
    wanted = " or ".join(kinds or auto_classes)
    return None if served.kind in kinds else f"it needs a {wanted}, and {served.name} is a {served.kind}."


def words_of(text: str | None, what: str) -> str:
    """Strip a text of white space. Raises a ValueError if it is empty."""
    if not (text or "").strip():
        raise ValueError(f"There is no text in “{what}”: write some.")
    return text.strip()


def check_length(served: Served, *texts: str) -> Tensor:
    """Return the token ids `(1, length)` of a text or a pair. Raises a ValueError if the model cannot read as many."""
    ids = served.preprocessor(*texts, return_tensors="pt", truncation=False, verbose=False)["input_ids"]
    longest = served.traits.longest_text
    if longest is not None and longest < ids.shape[1]:
        raise ValueError(
            f"The text has {ids.shape[1]:,} tokens, and {served.name} reads up to {longest:,}: shorten it."
        )
    return ids


# Fill a mask


class Filled(NamedTuple):
    """The number of a mask (from 1), a word for it, and its probability."""

    mask: int
    word: str
    score: float


def why_not_fill(served: Served) -> str | None:
    return needs(served, "AutoModelForMaskedLM")


def fill_mask(served: Served, text: str, top: int = 5) -> list[Filled]:
    """Return the likeliest words for each mask of a text."""
    text, mask = words_of(text, "Text"), served.preprocessor.mask_token
    if mask not in text:
        raise ValueError(f"There is no {mask} in the text: write it where a word is missing.")
    check_length(served, text)
    fill = pipeline("fill-mask", model=served.model, tokenizer=served.preprocessor, device="cpu")
    answers = fill(text, top_k=top)
    if isinstance(answers[0], dict):  # the text has one mask
        answers = [answers]
    return [Filled(n, x["token_str"].strip(), x["score"]) for n, found in enumerate(answers, 1) for x in found]


# Classify


def why_not_classify(served: Served) -> str | None:
    return needs(served, "AutoModelForSequenceClassification", "AutoModelForImageClassification")


def classify_text(served: Served, text: str, second: str | None = None) -> dict[str, float]:
    """Return the probability of each class for a text, or for a pair of texts."""
    text = words_of(text, "Text")
    pair = {"text": text, "text_pair": second.strip()} if (second or "").strip() else {"text": text}
    check_length(served, *pair.values())
    classify = pipeline("text-classification", model=served.model, tokenizer=served.preprocessor, device="cpu")
    return {x["label"]: x["score"] for x in classify(pair, top_k=None)}


def classify_image(served: Served, image: "Image | None") -> dict[str, float]:
    """Return the probability of each class for an image."""
    check_image(image)
    classify = pipeline("image-classification", model=served.model, image_processor=served.preprocessor, device="cpu")
    return {x["label"]: x["score"] for x in classify(image, top_k=served.model.config.num_labels)}


def check_image(image: "Image | None") -> None:
    if image is None:
        raise ValueError("There is no image: choose a file, or drop one on the page.")


# Compare texts


def why_not_compare(served: Served) -> str | None:
    return served.why_no_encoder


def compare_texts(served: Served, lines: str) -> tuple[list[str], Tensor]:
    """Return the texts (given one per line) and the cosines of all pairs, `(texts, texts)`, float32."""
    texts = [line.strip() for line in words_of(lines, "Texts").split("\n") if line.strip()]
    if not FEWEST_TEXTS <= len(texts) <= MOST_TEXTS:
        raise ValueError(f"There are {len(texts)} texts, one a line: give {FEWEST_TEXTS} to {MOST_TEXTS}.")
    encoder = served.encoder
    cut = tokens_cut(encoder, texts, encoder.prompts.get(encoder.default_prompt_name) or "")
    if cut.any():
        n, most = int(cut.argmax()), encoder.max_seq_length
        raise ValueError(
            f"Text {n + 1} has {most + cut[n]:,} tokens, and {served.name} reads up to {most:,}: shorten it."
        )
    vectors = unit_vectors(encoder, texts)
    return texts, vectors @ vectors.T


# Search


class Found(NamedTuple):
    """The share of the candidates that have been read, the best of these, and why files were left out."""

    share: float
    answers: list[Answer]
    left_out: list[str]


def search_texts(
    served: Served, query: str, pasted: str | None, files: Sequence[str] | None, top: int = 5
) -> Iterator[Found]:
    """
    Find the passages of a pasted text and of files that are nearest to a query, best first, as `lion search` does.
    Vectors are kept until other texts are searched, even if the iterator is stopped.

    Yields:
        What has been found so far, after each batch of passages.
    """
    query = words_of(query, "Query")
    texts, left_out = {"": list(passages_of_text(pasted or "", "pasted text"))}, []
    for path in files or ():
        try:
            texts[path] = list(passages_of(path, os.path.dirname(path)))
        except ValueError as error:
            left_out.append(str(error))
    size = sum(len(passage.text) for passages in texts.values() for passage in passages)
    if not size:
        raise ValueError(" ".join(["There is nothing to search: paste a text, or choose text files.", *left_out]))
    if size > MOST_CHARACTERS:
        raise ValueError(
            f"The texts have {size:,} characters, and the page reads up to {MOST_CHARACTERS:,}: give fewer."
        )
    index = served.index
    index.encoder.cut = Cut()
    list(index.update(list(texts), texts.__getitem__))
    (of_query,) = index.encoder.encode_queries([query])
    for read, every in index.read(index.candidates(query, CANDIDATES)):
        if read < every:
            yield Found(read / every, index.search(of_query, top), left_out)
    not_read = [index.encoder.cut.sentence()] if index.encoder.cut.texts else []
    yield Found(1, index.search(of_query, top), left_out + not_read)


# What each head reads


class Head(NamedTuple):
    """
    One attention head of one layer, both counted from 1.

    Attributes:
        reads: the direction that it reads, in words (`DIRECTIONS`).
        tokens: how many tokens reach a token, each weighted by its decay; the median over all tokens.
    """

    layer: int
    head: int
    reads: str
    tokens: float


@dataclass(frozen=True)
class Reading:
    """
    What the heads read in a text or an image.

    Attributes:
        heads: the heads of all linear layers.
        shown: what `rows` has, one of `SHOWN`.
        rows: numbers of the chosen layer, not negative: `(heads, rows, length)` for a text; `(heads, height, width)`
            for an image, of which one patch reads the others.
        readers: the index of the token of each row; for an image, row and column of the patch that reads.
        words: the tokens of a text; `None` for an image.
    """

    heads: list[Head]
    shown: str
    rows: Tensor
    readers: list[int]
    words: list[str] | None


def linear_layers(served: Served) -> list[int]:
    """Return the layers that have decay masks (those that `lion_attention` computes), counted from 1."""
    layers = served.model.base_model.layers
    return [n for n, layer in enumerate(layers, 1) if layer.attention.mixer.needs == DECAYS_ONLY]


def why_not_heads(served: Served) -> str | None:
    if isinstance(served.traits, LinearizedTraits):
        return f"it shows the layers of a LionModel, and {served.name} is a {served.kind}."
    if linear_layers(served):
        return None
    return f"it shows decay masks, and the mixer of {served.name} is {served.model.config.mixer_type!r}."


def heads_of_text(served: Served, text: str, layer: int, shown: str) -> Reading:
    """Report which tokens heads read in a text. Of a long text, up to `MOST_ROWS` tokens are taken as readers."""
    ids = check_length(served, words_of(text, "Text"))
    length = ids.shape[1]
    if length > MOST_TOKENS:
        raise ValueError(f"The text has {length:,} tokens, and heads of up to {MOST_TOKENS:,} are drawn: shorten it.")
    readers = sorted({round(x) for x in torch.linspace(0, length - 1, min(length, MOST_ROWS)).tolist()})
    reports = served.model.attention_report(readers, input_ids=ids)
    words = served.preprocessor.convert_ids_to_tokens(ids[0].tolist())
    return Reading(heads_of(served, reports), shown, rows_of(reports, layer, shown), readers, words)


def heads_of_image(served: Served, image: "Image | None", layer: int, shown: str, row: int, column: int) -> Reading:
    """Report which patches of an image heads read from the patch at a row and a column, counted from 1."""
    check_image(image)
    height, width = served.model.config.patch_grid
    if not (1 <= row <= height and 1 <= column <= width):
        raise ValueError(f"There is no patch in row {row} and column {column}: the image has {height} x {width}.")
    pixels = served.preprocessor(image, return_tensors="pt")["pixel_values"]
    prefix = served.model.config.num_prefix_tokens
    reader = prefix + (row - 1) * width + column - 1
    reports = served.model.attention_report([reader], pixel_values=pixels)
    rows = rows_of(reports, layer, shown)[:, 0, prefix:].unflatten(1, (height, width))
    return Reading(heads_of(served, reports), shown, rows, [row, column], None)


def rows_of(reports: list[AttentionReport | None], layer: int, shown: str) -> Tensor:
    return getattr(reports[layer - 1], SHOWN[shown])[0].abs()  # weights that are not normalized have signs


def heads_of(served: Served, reports: list[AttentionReport | None]) -> list[Head]:
    directions = DIRECTIONS[served.model.config.head_directions]
    return [
        Head(layer, head + 1, directions[head % len(directions)], tokens)
        for layer, report in enumerate(reports, 1)
        if report is not None
        for head, tokens in enumerate(report.receptive_field[0].median(-1).values.tolist())
    ]


# Time by length


class Time(NamedTuple):
    """Seconds of CPU time, with one thread, in which the model and a softmax model read a text of `length` tokens."""

    length: int
    lion: float
    softmax: float


def why_not_time(served: Served) -> str | None:
    return None if served.is_text else f"it times texts, and {served.name} reads images."


def softmax_peer(served: Served, longest: int) -> PreTrainedModel:
    """
    Return the model to compare with, in eval mode, with fused softmax attention: for a linearized model the encoder
    before, for a LION a BERT of its size with random weights, for texts of up to `longest` tokens.
    """
    config = served.model.config
    if isinstance(served.traits, LinearizedTraits):
        peer = deepcopy(served.model.base_model)
        peer.set_attn_implementation("sdpa")
        return peer
    sizes = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    peer = BertConfig(**{name: getattr(config, name) for name in sizes}, max_position_embeddings=longest)
    return AutoModel.from_config(peer, attn_implementation="sdpa").eval()


@torch.no_grad()
def time_by_length(served: Served, longest: int, lengths: Sequence[int] = LENGTHS) -> Iterator[Time]:
    """
    Yield, for each length up to `longest`, the median times in which the encoder of the checkpoint and its
    `softmax_peer` read a random text.
    """
    config, limit = served.model.config, served.traits.longest_text
    limit = longest if limit is None else min(longest, limit)
    lengths = [length for length in lengths if length <= limit]
    if not lengths:
        raise ValueError(f"{served.name} reads up to {limit:,} tokens, which is too short to be timed.")
    lion, peer = served.model.base_model, softmax_peer(served, lengths[-1])
    for length in lengths:
        ids = torch.randint(config.vocab_size, (1, length))
        calls = {"lion": lambda ids=ids: lion(input_ids=ids), "softmax": lambda ids=ids: peer(input_ids=ids)}
        if length == lengths[0]:
            cpu_seconds(calls, 1)  # first calls are slow
        seconds = cpu_seconds(calls, REPEATS, SECONDS_PER_LENGTH)
        yield Time(length, *map(median, seconds.values()))
