# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Inputs to measure a model with, from a file or random."""

from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from .checkpoint import load_preprocessor
from .traits import traits_of


NUM_SEQUENCES = 3


def sample_inputs(
    model: PreTrainedModel, *checkpoints: str | Path, file: str | Path | None = None, seed: int = 0, **hub
) -> list[Tensor]:
    """
    Make inputs for one model: sequences of several lengths, images or sounds.

    Args:
        checkpoints: folders or a repository; the first tokenizer or image processor found there reads `file`.
        file: a text or an image; by default the inputs are random, drawn by `seed`.
        hub: `revision`, for a repository.

    Returns:
        For text, `NUM_SEQUENCES` tensors `(length,)` of token ids, the longest of `longest_sample` tokens (traits.py)
        or as many as the text or the model allows, the shortest with at most `exact_length`, if there is one. For
        images, one or two tensors `(channels, height, width)`; for sounds `(samples,)`.

    Raises:
        ValueError: if the file holds no text, or the checkpoint has no tokenizer or image processor to read it with.
        OSError: if the file does not exist or is not an image.
    """
    traits = traits_of(model)
    generator = torch.Generator().manual_seed(seed)
    longest = traits.longest_sample
    if traits.longest_text is not None:
        longest = min(longest, traits.longest_text - 1)  # to leave room for padding
    lengths = [max(1, longest * (NUM_SEQUENCES - n) // NUM_SEQUENCES) for n in range(NUM_SEQUENCES)]
    if traits.exact_length:
        lengths[-1] = min(lengths[-1], traits.exact_length)
    if traits.modality == "audio":
        if file is not None:
            raise ValueError("Of a model for sounds only random inputs are compared: leave out --file.")
        return [torch.randn(length * model.config.inputs_to_logits_ratio, generator=generator) for length in lengths]
    if traits.modality == "image":
        if file is None:
            return list(torch.randn(2, *traits.image_shape, generator=generator))
        from PIL import Image  # only images need Pillow

        processor = load_preprocessor("image", *checkpoints, **hub)
        with Image.open(file) as image:
            return list(processor(image, return_tensors="pt")["pixel_values"])

    if file is None:
        return [torch.randint(model.config.vocab_size, (length,), generator=generator) for length in lengths]
    tokenizer = load_preprocessor("text", *checkpoints, **hub)
    try:
        text = Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is no text in UTF-8: {error}.") from error
    ids = torch.tensor(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"], dtype=torch.long)
    if not len(ids):
        raise ValueError(f"{file} holds no token: give a file with some text.")
    starts = [len(ids) * n // NUM_SEQUENCES for n in range(NUM_SEQUENCES)]
    return [ids[start : start + length] for start, length in zip(starts, lengths, strict=True)]


def model_batches(model: PreTrainedModel, samples: list[Tensor], padding: str) -> list[dict[str, Tensor]]:
    """
    Return arguments of the model: all images at once; texts one by one (`"none"`), or padded as in `pad_sequences`;
    sounds one by one.
    """
    modality = traits_of(model).modality
    if modality == "image":
        return [{"pixel_values": torch.stack(samples).to(model.dtype)}]
    if modality == "audio":
        return [{"input_values": sample[None].to(model.dtype)} for sample in samples]
    if padding == "none":
        return [{"input_ids": sample[None]} for sample in samples]
    ids, mask = pad_sequences(samples, padding, model.config.pad_token_id or 0)
    return [{"input_ids": ids, "attention_mask": mask}]


def pad_sequences(sequences: list[Tensor], side: str, pad_token_id: int) -> tuple[Tensor, Tensor]:
    """
    Pad sequences `(length,)`. Returns token ids and attention mask, int64, each `(batch, longest + 1)`. `side` says
    where each row is padded: `"right"`, `"left"`, or `"interior"`, at random positions among the tokens.
    """
    generator = torch.Generator().manual_seed(0)
    width = max(len(s) for s in sequences) + 1
    ids = torch.full((len(sequences), width), pad_token_id)
    mask = torch.zeros_like(ids)
    for row, sequence in enumerate(sequences):
        positions = {
            "right": torch.arange(len(sequence)),
            "left": torch.arange(width - len(sequence), width),
            "interior": torch.randperm(width, generator=generator)[: len(sequence)].sort().values,
        }[side]
        ids[row, positions] = sequence
        mask[row, positions] = 1
    return ids, mask
