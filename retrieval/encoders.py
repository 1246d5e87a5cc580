# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Sentence encoders for search: load them from a folder, an adapter or the Hub, and encode passages."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from tokenization_lion.tokenization_lion import check_words
from torch import Tensor
from transformers import PreTrainedModel

from modeling_lion import encode_passages
from modeling_lion.attention.numerics import has_fast_bfloat16
from modeling_lion.linearized.config import LinearizedConfig

from .documents import Document
from .passages import PassageEncoder, document_prompt
from .sources import base_of_adapter, check_source


if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
NO_LIMIT = 10**9  # tokens; tokenizers without a limit report more
PADDING = 1.1  # most computed tokens per real token; a lower limit takes more calls, which cost as much
LONGEST_AT_ONCE = 131_072  # tokens; texts of at most as many characters have no more
PADDED_CHARACTERS = 16_000  # of texts that are computed together: more exceed a CPU's caches, and are slower


def load_encoder(
    source: str | Path,
    *,
    base: str | None = None,
    trust_remote_code: bool = False,
    revision: str | None = None,
    device: str | None = None,
    dtype: str | None = None,
    attn_implementation: str | None = None,
) -> "SentenceTransformer":
    """
    Load an encoder of sentence-transformers for inference.

    Args:
        source: a folder, a name on the Hub, or a folder with a PEFT adapter, which is merged into its base.
        base: the base model of an adapter; by default `base_of_adapter(source)`.
        trust_remote_code, revision, device: as `SentenceTransformer` takes them.
        dtype: such as "float32"; by default bfloat16 on a CPU that multiplies it, else float32.
        attn_implementation: such as "lion_local"; by default the model's own.

    Raises:
        FileNotFoundError: if `source` is neither a folder nor looks like a name on the Hub.
        ImportError: if sentence-transformers, or PEFT for an adapter, is not installed.
        OSError: if the folder has no tokenizer.
    """
    check_source(source)
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise ImportError(
            "sentence-transformers is not installed: in a clone of the repository, pip install '.[search]'."
        ) from error

    # CPUs that multiply bfloat16 read twice as fast in it, and 99 % of the nearest neighbours are the same.
    default = "bfloat16" if not torch.cuda.is_available() and has_fast_bfloat16() else "float32"
    chosen = getattr(torch, dtype or default)
    base = base or base_of_adapter(source)
    model_options = {"dtype": chosen if base is None else torch.float32}
    if attn_implementation is not None:
        model_options["attn_implementation"] = attn_implementation
    options = {"trust_remote_code": trust_remote_code, "revision": revision, "device": device}
    encoder = as_long_as_saved(SentenceTransformer(str(base or source), **options, model_kwargs=model_options))
    check_words(encoder.tokenizer, base or source)
    if base is None:
        return encoder.eval()
    encoder[0].model = merge_adapter(encoder[0].model, source, chosen)
    for module in list(encoder)[1:]:
        module.to(chosen)
    return encoder.eval()


def as_long_as_saved(encoder: "SentenceTransformer") -> "SentenceTransformer":
    """
    Restore the maximum length with which a linearized encoder was saved. sentence-transformers saves it with the
    tokenizer, but limits it to the size of the position table when it loads the encoder.
    """
    network = getattr(encoder[0], "model", None)
    config, tokenizer = getattr(network, "config", None), getattr(encoder[0], "tokenizer", None)
    if isinstance(config, LinearizedConfig) and tokenizer is not None and not config.has_longest_text:
        saved = tokenizer.init_kwargs.get("model_max_length") or NO_LIMIT
        if encoder.max_seq_length == getattr(config, "max_position_embeddings", None):
            encoder.max_seq_length = min(saved, NO_LIMIT)
    return encoder


def merge_adapter(model: PreTrainedModel, folder: str | Path, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """
    Merge a PEFT adapter into the weights of a model, in place, and convert the weights to `dtype`. Weights that the
    model keeps in float32 (decays, SPEC §5) stay in float32.

    Args:
        model: the base, in float32: narrower dtypes lose small changes of weights.
        folder: the folder of the adapter.
        dtype: the dtype of the other weights.

    Raises:
        ValueError: if the adapter is of a kind that cannot be merged.
        ImportError: if PEFT is not installed.
    """
    try:
        from peft import PeftModel
    except ImportError as error:
        raise ImportError(f"{folder} is an adapter of PEFT, which is not installed: pip install peft.") from error
    adapted = PeftModel.from_pretrained(model, str(folder))
    if not hasattr(adapted, "merge_and_unload"):
        raise ValueError(f"{folder} is an adapter that cannot be merged into the weights of its base.")
    model = adapted.merge_and_unload()
    kept = [f".{name}." for name in model._keep_in_fp32_modules_strict or ()]
    for name, value in model.state_dict(keep_vars=True).items():
        if value.is_floating_point() and not any(part in f".{name}." for part in kept):
            value.data = value.data.to(dtype)
    return model


# The version of how texts are read. Saved vectors of another version are not used. 2: with the encoder's prompts;
# 3: other names of texts, and Chinese and Japanese by sentences.
READING = 3


def groups_by_length(lengths: Sequence[int], most: int | None = None) -> list[list[int]]:
    """
    Group texts that are computed together with little padding. Returns their indices, longest first.

    Args:
        lengths: of the texts, in tokens or characters.
        most: the most padded tokens or characters of a group of several texts; `None` for no limit.
    """
    groups: list[list[int]] = []
    total = 0
    for n in sorted(range(len(lengths)), key=lambda n: -lengths[n]):
        total += lengths[n]
        padded = (len(groups[-1]) + 1) * lengths[groups[-1][0]] if groups else 0
        if not groups or padded > PADDING * total or most is not None and padded > most:
            groups.append([])
            total = lengths[n]
        groups[-1].append(n)
    return groups


def unit_vectors(encoder: "SentenceTransformer", texts: Sequence[str], kind: str = "") -> Tensor:
    """
    Encode texts. Returns vectors `(texts, size)` of length 1, float32, on the CPU.

    Args:
        kind: "query" or "document" takes the prompt for these, "" the encoder's default prompt, if it has one.
    """
    encode = getattr(encoder, f"encode_{kind}") if kind else encoder.encode
    options = {"convert_to_tensor": True, "show_progress_bar": False}
    groups = groups_by_length(list(map(len, texts)), PADDED_CHARACTERS)
    found = [encode([texts[n] for n in group], batch_size=len(group), **options) for group in groups]
    if not found:
        return torch.zeros(0, encoder.get_embedding_dimension() or 0)
    vectors = torch.from_numpy(unit(torch.cat(found).float().cpu().numpy()))  # of length 1 in bfloat16, too
    return vectors[torch.tensor([n for group in groups for n in group]).argsort()]


def check_finite(vectors: np.ndarray) -> None:
    """Raise a ValueError if a vector has a number that is not finite: it would be found by every query, or by none."""
    if not (are_finite := np.isfinite(vectors).all(-1)).all():
        raise ValueError(
            f"The encoder gives numbers that are not finite for {(~are_finite).sum():,} of {are_finite.size:,} texts: "
            "look for NaN in its weights (`lion check`), or run it in float32."
        )


def tokens_cut(encoder: "SentenceTransformer", texts: Sequence[str], prompt: str = "") -> np.ndarray:
    """Count the tokens of each text that an encoder does not read because the text is too long: `(texts,)`, int64."""
    longest, found = encoder.max_seq_length, np.zeros(len(texts), int)
    if longest is None or getattr(encoder, "tokenizer", None) is None:
        return found
    # All tokens but a few special ones have at least one byte.
    long = [n for n, text in enumerate(texts) if len(text.encode("utf-8", "replace")) + len(prompt) + 8 > longest]
    if long:
        options = {"return_attention_mask": False, "verbose": False, "truncation": False}
        ids = encoder.tokenizer([prompt + texts[n] for n in long], **options)["input_ids"]
        found[long] = [max(0, len(x) - longest) for x in ids]
    return found


class Cut:
    """Counts the texts that are too long for an encoder, and their tokens that were not read."""

    def __init__(self):
        self.texts = self.tokens = 0

    def add(self, tokens: np.ndarray) -> None:
        self.texts, self.tokens = self.texts + int((tokens > 0).sum()), self.tokens + int(tokens.sum())

    def since(self, before: "Cut") -> "Cut":
        """Return what was counted after a copy was made."""
        found = Cut()
        found.texts, found.tokens = self.texts - before.texts, self.tokens - before.tokens
        return found

    def sentence(self, kind: str = "text") -> str:
        """Return a message about what was cut; empty if nothing was."""
        if not self.texts:
            return ""
        tokens, texts = (
            f"{self.tokens:,} token{'s' * (self.tokens > 1)}",
            f"{self.texts:,} {kind}{'s' * (self.texts > 1)}",
        )
        return f"{tokens} of {texts} were not read: longer than the encoder reads at once."


class SentenceEncoder:
    """
    An encoder of sentence-transformers with its prompts. All vectors have length 1, in float32, on the CPU.

    Args:
        encoder: is set to eval mode.
        in_pieces: encode passages one by one, each with the name of its document in front, instead of in one pass over
            the document. Always `True` for encoders that `encode_passages` does not support.

    Attributes:
        cut: counts what was not read so far.
    """

    def __init__(self, encoder: "SentenceTransformer", in_pieces: bool = False):
        self.encoder, self.in_pieces, self.cut = encoder.eval(), in_pieces, Cut()
        self.prompt = document_prompt(encoder)
        try:
            model = PassageEncoder(encoder)
            self.has_limit = model.longest_text is not None or (encoder.max_seq_length or NO_LIMIT) < NO_LIMIT
        except ValueError:  # not a LION, or another pooling
            self.in_pieces = self.has_limit = True

    def encode_queries(self, texts: Sequence[str]) -> Tensor:
        """Encode queries: `(texts, size)`."""
        self.cut.add(tokens_cut(self.encoder, texts, (getattr(self.encoder, "prompts", None) or {}).get("query", "")))
        return unit_vectors(self.encoder, list(texts), kind="query")

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """Encode single lines of documents: `(texts, size)`."""
        return unit_vectors(self.encoder, list(texts), kind="document")

    def encode_documents(self, documents: Sequence[Document]) -> list[Tensor]:
        """Encode the passages of documents: for each document `(passages, size)`."""
        return self.encode_and_count(documents)[0]

    def encode_and_count(self, documents: Sequence[Document]) -> tuple[list[Tensor], list[np.ndarray]]:
        """`encode_documents`, and for each document how many tokens of each passage were not read, `(passages,)`."""
        vectors, cut = self.pieces(documents) if self.in_pieces else self.in_one_pass(documents)
        for tokens in cut:
            self.cut.add(tokens)
        return vectors, cut

    def pieces(self, documents: Sequence[Document]) -> tuple[list[Tensor], list[np.ndarray]]:
        """`encode_and_count` that encodes each passage by itself."""
        pieces = [
            x.text[first:end] if x.name is None else f"{x.name}: {x.text[first:end]}"
            for x in documents
            for first, end in x.spans
        ]
        long = [n for n, text in enumerate(pieces) if len(text) > LONGEST_AT_ONCE and not self.has_limit]
        vectors = unit_vectors(self.encoder, [x for n, x in enumerate(pieces) if n not in long], kind="document")
        for n in long:  # in parts, which bounds the memory
            (vector,) = torch.from_numpy(unit(encode_passages(self.encoder, [pieces[n]], [[]]).document_vectors))
            vectors = torch.cat((vectors[:n], vector[None], vectors[n:]))
        cut = self.tokens_cut(pieces)
        lengths = [len(document.spans) for document in documents]
        return list(vectors.split(lengths)), np.split(cut, np.cumsum(lengths)[:-1])

    def in_one_pass(self, documents: Sequence[Document]) -> tuple[list[Tensor], list[np.ndarray]]:
        """`encode_and_count` that encodes each document in one pass."""
        vectors: dict[int, Tensor] = {}
        cut: dict[int, np.ndarray] = {}
        for is_named in (True, False):
            chosen = {n: x for n, x in enumerate(documents) if (x.name is not None) == is_named}
            if chosen:
                names, texts, spans, *_ = zip(*chosen.values(), strict=True)
                found = encode_passages(self.encoder, texts, spans, names=names if is_named else None)
                lengths = [len(x) for x in spans]
                vectors |= zip(chosen, torch.from_numpy(unit(found.vectors)).split(lengths), strict=True)
                cut |= zip(chosen, np.split(found.cut_tokens, np.cumsum(lengths)[:-1]), strict=True)
        return [vectors[n] for n in range(len(documents))], [cut[n] for n in range(len(documents))]

    def tokens_cut(self, texts: Sequence[str]) -> np.ndarray:
        return tokens_cut(self.encoder, texts, self.prompt)


def unit(vectors: np.ndarray) -> np.ndarray:
    """Scale rows `(…, size)` to length 1, in their dtype. Rows of zeros stay. Refuses numbers that are not finite."""
    check_finite(vectors)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
