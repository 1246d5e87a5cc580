# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The results on the panels of the page (page.py): plain functions of a loaded checkpoint and user input that return
numbers and texts, or raise a ValueError whose message is a sentence for the page.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import torch
from hub_upload_lion.checkpoint import find_checkpoint, load_model, load_preprocessor
from hub_upload_lion.publish.model_card import attention_in_words
from hub_upload_lion.sentence_modules import MODULES, encoder_class
from hub_upload_lion.traits import LinearizedTraits, Traits, traits_of
from retrieval_lion.documents import documents_of_text, read_text
from retrieval_lion.encoders import SentenceEncoder, tokens_cut, unit_vectors
from retrieval_lion.search.index import Answer, Index
from retrieval_lion.search.vectors import MemoryVectors
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
MOST_ROWS = 48  # of a decay mask that are drawn
MOST_TOKENS = 4096  # of a text whose decay masks are drawn
MOST_CHARACTERS = 10_000_000  # of the texts to search
LENGTHS = (128, 512, 2048, 8192)
REPEATS, SECONDS_PER_LENGTH = 5, 10
# What is shown of heads, and its name in an `AttentionReport`.
SHOWN = {"attention weights": "attention", "decay masks": "mask"}
DIRECTIONS = {"both": ("both directions",), "alternate": ("what precedes", "what follows")}


@dataclass(frozen=True)
class Served:
    """
    A checkpoint, loaded for the page.

    Attributes:
        name: for the title.
        source: folder or Hub repository.
        preprocessor: the tokenizer, or the image processor.
        vectors: those of passages that have been searched, by whether they were read one by one.
    """

    name: str
    source: str
    model: PreTrainedModel
    preprocessor: object
    vectors: dict[bool, MemoryVectors] = field(default_factory=lambda: defaultdict(MemoryVectors))

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
        """A sentence if the checkpoint is not an encoder of sentence-transformers, otherwise `None`."""
        if cached_file(self.source, MODULES, _raise_exceptions_for_missing_entries=False) is None:
            return f"{self.name} was not saved by sentence-transformers: its vectors were not trained to be compared."
        name = encoder_class(Path(self.source)) if Path(self.source).is_dir() else "SentenceTransformer"
        if name != "SentenceTransformer" or not self.is_text:
            return f"{self.name} is a {name} for {self.traits.modality}s, and a SentenceTransformer is needed."
        return None

    @cached_property
    def encoder(self) -> "SentenceTransformer":
        """The encoder of sentence-transformers, which the page needs for this only."""
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(self.source, device="cpu")


def load_served(source: str | Path) -> Served:
    """
    Load a checkpoint for the page; no code of it runs.

    Args:
        source: a folder of `save_pretrained` or sentence-transformers, a Trainer's output, or a Hub repository.

    Raises:
        ValueError: if it is no complete LION checkpoint, its tokenizer or image processor included.
        OSError: if it does not exist or is damaged.
    """
    folders = [source]
    if Path(source).is_dir():
        folders = [find_checkpoint(source), source]
    model = load_model(folders[0])
    preprocessor = load_preprocessor(traits_of(model).modality, *folders)
    return Served(Path(source).absolute().name if len(folders) > 1 else source, str(folders[0]), model, preprocessor)


def facts(served: Served) -> str:
    """A sentence that describes the checkpoint."""
    config = served.model.config
    name, kind = attention_in_words(served.model)
    count = served.model.num_parameters()
    size = f"{count / 1e6:.1f}M parameters" if count >= 1e6 else f"{count:,} parameters"
    return (
        f"{served.name}: a {served.kind} of {size}, {config.num_hidden_layers} layers of {config.hidden_size}. "
        f"{name} is {kind}."
    )


def needs(served: Served, *auto_classes: str) -> str | None:
    """A sentence, if the checkpoint is of another class than those that these Auto classes load."""
    known = served.traits.auto_classes
    kinds = [kind for name in auto_classes for kind in known.get(name, ())]
    wanted = " or ".join(kinds or auto_classes)
    return None if served.kind in kinds else f"it needs a {wanted}, and {served.name} is a {served.kind}."


def words_of(text: str | None, what: str) -> str:
    """A text without surrounding white space; raises a ValueError if it is empty."""
    if not (text or "").strip():
        raise ValueError(f"There is no text in “{what}”: write some.")
    return text.strip()


def check_length(served: Served, *texts: str) -> Tensor:
    """The token ids `(1, length)` of a text or a pair; raises a ValueError if they exceed the table of positions."""
    ids = served.preprocessor(*texts, return_tensors="pt", truncation=False, verbose=False)["input_ids"]
    longest = served.traits.longest_text
    if longest is not None and longest < ids.shape[1]:
        raise ValueError(
            f"The text has {ids.shape[1]:,} tokens, and {served.name} reads up to {longest:,}: shorten it."
        )
    return ids


# Fill a mask


class Filled(NamedTuple):
    """A word for a mask, counted from 1, and its probability."""

    mask: int
    word: str
    score: float


def why_not_fill(served: Served) -> str | None:
    return needs(served, "AutoModelForMaskedLM")


def fill_mask(served: Served, text: str, top: int = 5) -> list[Filled]:
    """The likeliest words for each mask of a text."""
    text, mask = words_of(text, "Text"), served.preprocessor.mask_token
    if mask not in text:
        raise ValueError(f"There is no {mask} in the text: write it where a word is missing.")
    check_length(served, text)
    fill = pipeline("fill-mask", model=served.model, tokenizer=served.preprocessor, device="cpu")
    answers = fill(text, top_k=top)
    if isinstance(answers[0], dict):  # of a text with one mask
        answers = [answers]
    return [Filled(n, x["token_str"].strip(), x["score"]) for n, found in enumerate(answers, 1) for x in found]


# Classify


def why_not_classify(served: Served) -> str | None:
    return needs(served, "AutoModelForSequenceClassification", "AutoModelForImageClassification")


def classify_text(served: Served, text: str, second: str | None = None) -> dict[str, float]:
    """The probability of each class for a text, or for a pair of texts."""
    text = words_of(text, "Text")
    pair = {"text": text, "text_pair": second.strip()} if (second or "").strip() else {"text": text}
    check_length(served, *pair.values())
    classify = pipeline("text-classification", model=served.model, tokenizer=served.preprocessor, device="cpu")
    return {x["label"]: x["score"] for x in classify(pair, top_k=None)}


def classify_image(served: Served, image: "Image | None") -> dict[str, float]:
    """The probability of each class for an image."""
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
    """The texts, one per line, and the cosines of all pairs, `(texts, texts)`, float32."""
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
    """The share of the passages that has been read, the best of those, and why files were left out."""

    share: float
    answers: list[Answer]
    left_out: list[str]


def search_texts(
    served: Served,
    query: str,
    pasted: str | None,
    files: Sequence[str] | None,
    in_pieces: bool = False,
    top: int = 5,
) -> Iterator[Found]:
    """
    The passages of a pasted text and of files that are most similar to a query, the best first, as `lion search`
    finds them.

    Vectors are kept until others are searched, even if the iterator is stopped.

    Args:
        in_pieces: whether passages are read one by one, and not in one pass over their document.

    Yields:
        What has been found after every batch of documents.
    """
    query = words_of(query, "Query")
    texts, left_out = [("pasted text", pasted or "")], []
    for path in files or ():
        try:
            texts.append((Path(path).name, read_text(path)))
        except ValueError as error:
            left_out.append(str(error))
    size = sum(len(text) for _, text in texts)
    if not any(text.strip() for _, text in texts):
        raise ValueError(" ".join(["There is nothing to search: paste a text, or choose text files.", *left_out]))
    if size > MOST_CHARACTERS:
        raise ValueError(
            f"The texts have {size:,} characters, and the page reads up to {MOST_CHARACTERS:,}: give fewer."
        )
    encoder = SentenceEncoder(served.encoder, in_pieces)
    documents = [document for name, text in texts for document in documents_of_text(text, name)]
    index = Index(documents, served.vectors[encoder.in_pieces])
    (of_query,) = encoder.encode_queries([query])
    for read, every in index.read(encoder):
        if read < every:
            yield Found(read / every, index.search(of_query, top), left_out)
    not_read = [encoder.cut.sentence()] if encoder.cut.texts else []
    yield Found(1, index.search(of_query, top), left_out + not_read)


# What each head reads


class Head(NamedTuple):
    """
    One head of one layer, both counted from 1.

    Attributes:
        reads: in which direction.
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
        heads: of all linear layers.
        shown: one of `SHOWN`.
        rows: of that, in the chosen layer, `(heads, rows, length)`, not negative; `(heads, height, width)` for the
            patches of an image, read by one of them.
        readers: the tokens that the rows are of, by index; for an image, row and column of the patch.
        words: the tokens of a text.
    """

    heads: list[Head]
    shown: str
    rows: Tensor
    readers: list[int]
    words: list[str] | None


def linear_layers(served: Served) -> list[int]:
    """The layers that have decay masks, counted from 1: those that `lion_attention` computes."""
    layers = served.model.base_model.layers
    return [n for n, layer in enumerate(layers, 1) if layer.attention.mixer.needs == DECAYS_ONLY]


def why_not_heads(served: Served) -> str | None:
    if isinstance(served.traits, LinearizedTraits):
        return f"it shows the layers of a LionModel, and {served.name} is a {served.kind}."
    if linear_layers(served):
        return None
    return f"it shows decay masks, and the mixer of {served.name} is {served.model.config.mixer_type!r}."


def heads_of_text(served: Served, text: str, layer: int, shown: str) -> Reading:
    """The tokens that heads read in a text; long texts in rows that are spread over them."""
    ids = check_length(served, words_of(text, "Text"))
    length = ids.shape[1]
    if length > MOST_TOKENS:
        raise ValueError(f"The text has {length:,} tokens, and heads of up to {MOST_TOKENS:,} are drawn: shorten it.")
    readers = sorted({round(x) for x in torch.linspace(0, length - 1, min(length, MOST_ROWS)).tolist()})
    reports = served.model.attention_report(readers, input_ids=ids)
    words = served.preprocessor.convert_ids_to_tokens(ids[0].tolist())
    return Reading(heads_of(served, reports), shown, rows_of(reports, layer, shown), readers, words)


def heads_of_image(served: Served, image: "Image | None", layer: int, shown: str, row: int, column: int) -> Reading:
    """The patches that heads read in an image from the patch at a row and a column, counted from 1."""
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
    """Seconds of CPU time to read one text of so many tokens, with one thread, and of a model with softmax."""

    length: int
    lion: float
    softmax: float


def why_not_time(served: Served) -> str | None:
    return None if served.is_text else f"it times texts, and {served.name} reads images."


def softmax_peer(served: Served, longest: int) -> PreTrainedModel:
    """
    What the checkpoint's encoder is compared with, in evaluation mode, with fused softmax attention: the encoder that
    it was, or of a LION a BERT of its size, with random weights, for texts of up to `longest` tokens.
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
    Medians for random texts, read by the checkpoint's encoder and by its `softmax_peer`; one after the other for the
    lengths up to `longest`.
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
            cpu_seconds(calls, 1)  # what comes first is slow
        seconds = cpu_seconds(calls, REPEATS, SECONDS_PER_LENGTH)
        yield Time(length, *map(median, seconds.values()))
