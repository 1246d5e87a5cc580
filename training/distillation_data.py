# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Data for distillation.py: texts, images and sounds, and their batches."""

import io
import math
import random
from collections.abc import Iterable
from pathlib import Path
from zlib import crc32

import numpy as np
import torch
from datasets import Audio, DatasetDict, load_dataset
from retrieval_lion.passages import special_tokens
from scipy.io import wavfile
from torch import Tensor
from transformers import AutoFeatureExtractor, AutoTokenizer, TrainingArguments
from transformers.models.auto.image_processing_auto import AutoImageProcessor

from .distillation_arguments import DistillationArguments
from .scripts.data_files import check_files, load_files
from .scripts.docstrings import write_docstrings


# Share to hold out of a dataset without held-out examples, and the fewest, whose similarities can be compared.
HELD_OUT, FEWEST = 0.05, 3
# The column of the data, by the main input of the model.
COLUMNS = {"input_ids": "text", "pixel_values": "image", "input_values": "audio", "input_features": "audio"}
PROCESSORS = {"text": AutoTokenizer, "image": AutoImageProcessor, "audio": AutoFeatureExtractor}


def load_data(arguments: DistillationArguments, training_args: TrainingArguments, column: str) -> DatasetDict:
    """Load the raw examples as splits "train" and "validation", with this column."""
    files = {"train": arguments.train_file, "validation": arguments.validation_file}
    if not training_args.do_eval and arguments.train_file is not None:
        files.pop("validation")
    if not training_args.do_train and arguments.validation_file is not None:
        files.pop("train")
    if arguments.dataset_name is not None:
        datasets = load_dataset(arguments.dataset_name)
        held_out = next((split for split in ("validation", "test") if split in datasets), None)
        if held_out is None:
            rows = datasets["train"]
            count = max(math.ceil(HELD_OUT * len(rows)), FEWEST)
            datasets = rows.train_test_split(count, seed=training_args.seed)
        datasets = DatasetDict({"train": datasets["train"], "validation": datasets[held_out or "test"]})
    else:
        if arguments.train_file is None and arguments.validation_file is None and column == "text":
            folder = Path(training_args.output_dir) / "text"
            collected = write_docstrings(folder, max_bytes=arguments.max_docstring_bytes)
            files = {split: collected[f"{split}_file"] for split in files}
        if missing := [split for split, file in files.items() if file is None]:
            why = (
                "training and evaluation need different data" if training_args.do_train else "there is nothing to read"
            )
            raise ValueError(f"--{missing[0]}_file is not given: {why}.")
        datasets = load_files(check_files(files), (column,))
    if missing := [split for split, dataset in datasets.items() if column not in dataset.column_names]:
        raise ValueError(
            f"The split {missing[0]} has no column {column!r}, but {', '.join(datasets[missing[0]].column_names)}."
        )
    datasets = datasets.select_columns(column)
    if column == "text":
        return datasets.filter(lambda example: bool(example["text"].strip()))
    is_audio = isinstance(next(iter(datasets.values())).features[column], Audio)
    return datasets.cast_column(column, Audio(decode=False)) if is_audio else datasets


class JoinedTexts(torch.utils.data.Dataset):
    """Token ids of texts, cut at `length`. A share of the texts, drawn by `seed`, is continued by the next texts."""

    def __init__(self, texts: list[str], tokenizer, length: int, joined_share: float = 0.0, seed: int = 0):
        self.texts, self.tokenizer, self.length = texts, tokenizer, length
        generator = random.Random(seed)
        self.is_joined = [generator.random() < joined_share for _ in texts]

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, n: int) -> dict[str, list[int]]:
        parts, characters = [self.texts[n]], len(self.texts[n])
        while self.is_joined[n] and characters < 6 * self.length and n + len(parts) < len(self.texts):
            parts.append(self.texts[n + len(parts)])  # a token has about four characters
            characters += len(parts[-1])
        return dict(self.tokenizer(" ".join(parts), truncation=True, max_length=self.length))


def of_length(lines: Iterable[str], tokenizer, tokens: int, limit: int) -> list[dict[str, Tensor]]:
    """Make at most `limit` texts of exactly `tokens` tokens, each a batch, by joining lines and cutting them."""
    rows, text = [], ""
    for line in lines:
        text = f"{text} {line}".strip()
        if len(text) < 3 * tokens:  # too short for most tokenizers
            continue
        ids = tokenizer(text, truncation=True, max_length=tokens)["input_ids"]
        if len(ids) == tokens:
            rows.append({"input_ids": torch.tensor([ids])})
            text = ""
        if len(rows) == limit:
            break
    if len(rows) < FEWEST:
        raise ValueError(
            f"--eval_lengths has {tokens}, and the lines for validation make {len(rows)} texts of that length: three "
            "are needed, each of lines of its own. Give more lines, shorter lengths, or --max_eval_samples 3 or more."
        )
    return rows


def samples_of(sound: dict | str | list[float]) -> np.ndarray:
    """Return the samples of a sound, float32: an array, or a WAV file (the mean over its channels)."""
    if isinstance(sound, dict) and "array" in sound:
        sound = sound["array"]
    elif isinstance(sound, dict | str):
        file = sound if isinstance(sound, str) else sound["path"] if sound["bytes"] is None else None
        _, samples = wavfile.read(io.BytesIO(sound["bytes"]) if file is None else file)
        scale = np.iinfo(samples.dtype).max if np.issubdtype(samples.dtype, np.integer) else 1
        sound = (samples if samples.ndim == 1 else samples.mean(1)) / scale
    return np.asarray(sound, dtype=np.float32)


class Collator:
    """
    Makes batches of raw examples.

    Args:
        processor: the model's tokenizer, image processor or feature extractor. column: the column of the data.
        lengths: lengths of texts; one is drawn for each batch. Longer texts are fewer, for as many tokens.
        seed: with the epoch and the texts, determines the length, so that a resumed training draws the same.
    """

    def __init__(self, processor, column: str, lengths: list[int], seed: int = 0):
        self.processor, self.column, self.lengths, self.seed = processor, column, lengths, seed
        self.epoch = torch.zeros((), dtype=torch.long).share_memory_()  # for the DataLoader's workers
        self.end = len(special_tokens(processor)[1]) if getattr(processor, "is_fast", False) else 0

    def __call__(self, examples: list[dict]) -> dict[str, Tensor]:
        if self.column == "text":
            ids = str([example["input_ids"] for example in examples]).encode()
            length = random.Random(self.seed + crc32(ids, int(self.epoch))).choice(self.lengths)
            examples = examples[: max(1, len(examples) * min(self.lengths) // length)]
            examples = [{name: self.cut(x, length) for name, x in example.items()} for example in examples]
            return dict(self.processor.pad(examples, return_tensors="pt"))
        raw = [example[self.column] for example in examples]
        if self.column == "image":
            return dict(self.processor(images=[x.convert("RGB") for x in raw], return_tensors="pt"))
        rate = self.processor.sampling_rate
        sounds = [samples_of(x) for x in raw]
        return dict(self.processor(sounds, sampling_rate=rate, padding=True, return_tensors="pt"))

    def cut(self, values: list[int], length: int) -> list[int]:
        """Cut the values of a text off at `length` tokens, the special tokens at its end included."""
        if len(values) <= length:
            return values
        return values[: length - self.end] + values[len(values) - self.end :]
