# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Search by meaning: vectors of texts, and of the passages of texts of any length."""

import re
from bisect import bisect_left
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

import modeling_lion


MODEL = Path(__file__).parents[1] / "checkpoints" / "lion-minilm-l6"
# Of a passage, in characters: shorter paragraphs are joined, longer ones are cut.
SHORTEST, LONGEST = 200, 1000


def unit_vectors(encoder: SentenceTransformer, texts: list[str], batch_size: int = 32) -> Tensor:
    """What an encoder makes of texts: `(number of texts, size)`, float32, of length 1, on the CPU."""
    options = {"batch_size": batch_size, "convert_to_tensor": True, "show_progress_bar": False}
    return encoder.encode(texts, normalize_embeddings=True, **options).float().cpu()


def split_passages(text: str) -> list[tuple[int, int]]:
    """
    Where the passages of a text begin and end, in characters: paragraphs, of which short ones are joined with what
    follows, and long ones cut, behind a sentence or a word if there is one. Nothing but white space is left out.
    """
    spans = []
    begin = None
    for paragraph in re.finditer(r"\S.*?(?=\s*\n[^\S\n]*\n|\s*\Z)", text, flags=re.DOTALL):
        begin, end = paragraph.start() if begin is None else begin, paragraph.end()
        while end - begin > LONGEST:
            piece = text[begin : begin + LONGEST]
            ends = [max((m.end() for m in re.finditer(at, piece[SHORTEST:])), default=0) for at in (r"[.!?]\s", r"\s")]
            cut = begin + (SHORTEST + next((x for x in ends if x), LONGEST - SHORTEST))
            spans.append((begin, cut))
            begin = cut
        if end - begin >= SHORTEST:
            spans.append((begin, end))
            begin = None
    if begin is not None and text[begin:].strip():
        spans.append((begin, len(text.rstrip())))
    return spans


def reads_whole_texts(encoder: SentenceTransformer) -> bool:
    """Whether the vectors of passages can come from one pass over the text around them (`encode_passages`)."""
    kinds = [type(module).__name__ for module in encoder]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        return False
    config = encoder[0].model.config
    is_lion = isinstance(encoder[0].model, modeling_lion.LionModel)
    is_linear = is_lion and "full_attention" not in config.layer_types_in_use and config.max_position_embeddings < 0
    return is_linear and encoder[1].pooling_mode == "mean"


@torch.no_grad()
def encode_text(encoder: SentenceTransformer, text: str) -> tuple[list[tuple[int, int]], Tensor]:
    """
    The passages of a text that have tokens, as `split_passages` gives them, and their unit vectors `(passages, size)`,
    float32. A LION whose vectors are means of tokens reads the text once, as a whole, so that a passage has been read
    with what stands around it; other encoders read each passage by itself.
    """
    spans = split_passages(text)
    if not reads_whole_texts(encoder):
        return spans, unit_vectors(encoder, [text[begin:end] for begin, end in spans])
    words = encoder.tokenizer(text, return_offsets_mapping=True, truncation=False, verbose=False)
    places = [(begin, index) for index, (begin, end) in enumerate(words["offset_mapping"]) if end > begin]
    starts = [begin for begin, _ in places]
    found, tokens = [], []
    for begin, end in spans:
        first, behind = bisect_left(starts, begin), bisect_left(starts, end)
        if first < behind:
            found.append((begin, end))
            tokens.append((places[first][1], places[behind - 1][1] + 1))
    model = encoder[0].model
    ids = torch.tensor([words["input_ids"]], device=model.device)
    vectors = modeling_lion.encode_passages(model, ids, tokens)
    return found, torch.nn.functional.normalize(vectors.float(), dim=1).cpu()
