# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Train or fine-tune a LION model for masked language modeling on your own text, with the Trainer.

    python examples/run_mlm.py --config_name lion-text-base --train_file train.txt --validation_file validation.txt \
        --do_train --do_eval --output_dir outputs/mlm

Without --tokenizer_name a tokenizer is trained on the texts (docs/guides/pretrain.md).
"""

import math
from dataclasses import dataclass, replace
from itertools import chain
from zlib import crc32

import torch
from datasets import Dataset, IterableDataset, load_dataset
from tokenization_lion import LionTokenizer
from torch.utils.data import DataLoader
from training_lion.packing import DataCollatorForLanguageModelingWithFlattening, PackingTrainer
from training_lion.scripts import arguments, data_files, models, training
from training_lion.scripts.arguments import option
from transformers import (
    AutoModelForMaskedLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    PreTrainedConfig,
    Trainer,
    TrainingArguments,
)


SHUFFLE_BUFFER = 10_000


@dataclass
class MlmModelArguments(arguments.ModelArguments):
    tokenizer_name: str | None = option("Folder or Hub name of a tokenizer. Not given: the model's, or a new one.")
    vocab_size: int | None = option("Entries of a new tokenizer. Not given: the configuration's vocab_size.")


@dataclass
class DataTrainingArguments(arguments.HubArguments):
    train_file: str | None = option(f"Training text: {', '.join(data_files.FILE_TYPES)}.")
    validation_file: str | None = option("Validation text.")
    validation_split_percentage: int = option("Percent of the training data to use without validation data.", 5)
    streaming: bool = option("Read the data while training. Needs --max_steps.", False)
    max_seq_length: int | None = option("Tokens per sequence. Not given: the configuration's context length.")
    line_by_line: bool = option("One sequence per line, instead of all lines joined and cut to length.", False)
    max_tokens_per_batch: int | None = option(
        "Pack sequences into one row of at most this many tokens, without padding, instead of "
        "--per_device_train_batch_size and --per_device_eval_batch_size. For --line_by_line."
    )
    mlm_probability: float = option("Share of the tokens to mask.", 0.15)

    def files(self) -> dict[str, str]:
        return data_files.check_files({"train": self.train_file, "validation": self.validation_file})

    def check(self, model_args: MlmModelArguments, training_args: TrainingArguments) -> None:
        files, share = self.files(), self.validation_split_percentage
        if (self.dataset_name is None) == (not files):
            raise ValueError("Give the data by --train_file and --validation_file, or by --dataset_name.")
        if training_args.do_train and files and self.train_file is None:
            raise ValueError("--do_train needs --train_file.")
        if self.streaming and training_args.do_train and training_args.max_steps <= 0:
            raise ValueError("--streaming needs --max_steps: the length of streamed data is not known.")
        if self.streaming and self.max_tokens_per_batch is not None:
            raise ValueError("--max_tokens_per_batch needs the lengths of all sequences: drop it, or --streaming.")
        if not 0 < self.mlm_probability < 1:
            raise ValueError(f"--mlm_probability is {self.mlm_probability}; give a number between 0 and 1.")
        if not 0 < share < 100:
            raise ValueError(f"--validation_split_percentage is {share}; give 1 to 99 percent.")
        if model_args.vocab_size is not None and (model_args.tokenizer_name or model_args.model_name_or_path):
            raise ValueError("--vocab_size is for a new tokenizer: drop it, or --tokenizer_name/--model_name_or_path.")
        if model_args.config_overrides and "vocab_size=" in model_args.config_overrides:
            raise ValueError("The tokenizer decides vocab_size: give --vocab_size instead of overriding the field.")


class DataCollatorForSeededMasking(DataCollatorForLanguageModeling):
    """
    Draws masks that depend only on `seed`, `epoch` and the tokens of a sequence, so that a training that is resumed or
    has other batches or more processes, draws the same masks. Training counts the epochs: each has other masks.
    Evaluation stays at epoch 0, so that its results are comparable.
    """

    def __post_init__(self):
        super().__post_init__()
        # In shared memory: persistent workers of the DataLoader must see it change.
        self.epoch = torch.zeros((), dtype=torch.int64).share_memory_()

    def torch_mask_tokens(
        self, inputs: torch.Tensor, special_tokens_mask: torch.Tensor | None = None, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor]:
        draw, labels = super().torch_mask_tokens, torch.full_like(inputs, -100)
        for n, is_real in enumerate(inputs != self.tokenizer.pad_token_id):
            tokens = inputs[n, is_real]
            is_special = None if special_tokens_mask is None else special_tokens_mask[n, is_real][None]
            checksum = crc32(tokens.numpy().tobytes(), int(self.epoch))
            self.generator = torch.Generator().manual_seed(self.seed + checksum)
            inputs[n, is_real], labels[n, is_real] = (x[0] for x in draw(tokens[None], is_special))
        return inputs, labels


class DataCollatorForSeededPacking(DataCollatorForSeededMasking, DataCollatorForLanguageModelingWithFlattening):
    """The same masks, in packed rows."""


class MlmTrainer(training.OrderedTrainer, PackingTrainer):
    """A Trainer whose `data_collator` is for evaluation. Training uses a copy, whose masks change by epoch."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.train_collator = replace(self.data_collator)
        self.add_callback(training.EpochCallback(self.train_collator.epoch))

    def get_train_dataloader(self) -> DataLoader:
        evaluation_collator, self.data_collator = self.data_collator, self.train_collator
        try:
            return super().get_train_dataloader()
        finally:
            self.data_collator = evaluation_collator


def load_texts(data_args: DataTrainingArguments, training_args: TrainingArguments, cache_dir: str | None) -> dict:
    """Load the texts as splits "train" and "validation". The latter is cut from the former if there is none."""
    options = {"cache_dir": cache_dir, "streaming": data_args.streaming}
    if data_args.dataset_name is not None:
        datasets = load_dataset(data_args.dataset_name, data_args.dataset_config_name, **options)
    else:
        datasets = data_files.load_files(data_args.files(), **options)
    if training_args.do_eval and "validation" not in datasets:
        if data_args.streaming:
            raise ValueError("Streamed data cannot be split: give --validation_file, or drop --do_eval.")
        rows = datasets["train"]
        count = round(len(rows) * data_args.validation_split_percentage / 100)
        if not 0 < count < len(rows):
            raise ValueError(f"The data has {len(rows)} rows, too few to split some off: give --validation_file.")
        datasets["validation"], datasets["train"] = rows.select(range(count)), rows.select(range(count, len(rows)))
        data_files.warn_of_seen_rows(training_args)
    return data_files.needed_only(datasets, training_args)


def load_tokenizer(setup: training.Setup, datasets: dict[str, Dataset | IterableDataset]):
    """
    Return the tokenizer that was asked for, that of the model or checkpoint, or one trained on the training texts.
    Raises a ValueError if the checkpoint to resume from has a tokenizer of another size than `--vocab_size`.
    """
    model_args, _, training_args, config, checkpoint = setup
    name, size = model_args.tokenizer_name or model_args.model_name_or_path or checkpoint, model_args.vocab_size
    if name is not None:
        tokenizer = models.load_tokenizer(name, model_args.cache_dir)
        if size is None or len(tokenizer) == size:
            return tokenizer
        # A text with few distinct pieces gives a smaller vocabulary than asked for, and would do so again.
        new_size = len(train_tokenizer(datasets["train"], config, size)) if len(tokenizer) < size else size
        if len(tokenizer) != new_size:
            raise ValueError(
                f"--vocab_size is {size}, but the tokenizer of {checkpoint}, from which training would go on, has "
                f"{len(tokenizer)} entries. Drop --vocab_size to go on with it; for a new tokenizer give another "
                "--output_dir, or empty it."
            )
        return tokenizer
    # Two trainings of a LionTokenizer may differ, so the first process trains, and the others load the result.
    with training_args.main_process_first(local=False, desc="training the tokenizer"):
        if training_args.process_index > 0:
            return AutoTokenizer.from_pretrained(training_args.output_dir)
        tokenizer = train_tokenizer(datasets["train"], config, size or config.vocab_size)
        if training_args.world_size > 1:
            tokenizer.save_pretrained(training_args.output_dir)
        return tokenizer


def train_tokenizer(dataset, config: PreTrainedConfig, vocab_size: int) -> LionTokenizer:
    """Train a tokenizer on the texts of a dataset, with at most `vocab_size` entries."""
    (column,) = data_files.find_texts(dataset, "The data")
    texts = (example[column] for example in dataset)
    longest = models.longest_text(models.without_weights(config))
    limit = {} if longest is None else {"model_max_length": longest}
    return LionTokenizer.train_from_iterator(texts, vocab_size, **limit)


def tokenize(dataset, tokenizer, data_args: DataTrainingArguments, length: int, training_args: TrainingArguments):
    """Make sequences of `input_ids` of at most `length` tokens."""
    (column,) = data_files.find_texts(dataset, "The data")
    columns = dataset.column_names or list(next(iter(dataset)))

    def encode(examples: dict) -> dict:
        texts = [text for text in examples[column] if text and not text.isspace()]
        if not texts:
            return {"input_ids": [], "special_tokens_mask": []}
        limit = {"truncation": True, "max_length": length} if data_args.line_by_line else {"truncation": False}
        encoded = tokenizer(texts, return_special_tokens_mask=True, verbose=False, **limit)
        encoded = {name: encoded[name] for name in ("input_ids", "special_tokens_mask")}
        return encoded if data_args.line_by_line else {name: cut(rows) for name, rows in encoded.items()}

    def cut(rows: list[list[int]]) -> list[list[int]]:
        joined = list(chain.from_iterable(rows))  # of so many texts as `map` takes at a time
        return [joined[start : start + length] for start in range(0, len(joined), length)]

    with training_args.main_process_first(desc="tokenizing"):
        tokenized = dataset.map(encode, batched=True, remove_columns=columns)
    if not isinstance(tokenized, IterableDataset) and len(tokenized) == 0:
        raise ValueError(
            f"There is no text in {len(dataset)} rows of column {column!r}: give more data, or, if these are the rows "
            "split off for validation, a larger --validation_split_percentage or a --validation_file."
        )
    return tokenized


def most_likely(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the predicted tokens, so that evaluation stores these and not all logits."""
    return logits.argmax(dim=-1)


def evaluate(trainer: Trainer) -> dict[str, float]:
    metrics = trainer.evaluate()
    return metrics | {"perplexity": math.exp(metrics["eval_loss"])}


def main(args: list[str] | None = None) -> Trainer:
    """Run with these arguments, or those of the command line; returns the Trainer."""
    setup = training.start(DataTrainingArguments, args, MlmModelArguments, from_scratch=True, can_predict=False)
    model_args, data_args, training_args, config, checkpoint = setup
    if data_args.streaming and training_args.accelerator_config.dispatch_batches is None:
        # Each process reads the stream: batches of the first one, whose lengths differ, cannot be cut for all.
        training_args.accelerator_config.dispatch_batches = False
    longest = models.longest_text(models.without_weights(config))
    length = data_args.max_seq_length or models.context_length(config, longest)
    models.check_length("--max_seq_length is", length, longest, f"give --max_seq_length {longest}")
    datasets = load_texts(data_args, training_args, model_args.cache_dir)
    tokenizer = load_tokenizer(setup, datasets)
    if model_args.model_name_or_path is None:
        config.vocab_size, config.pad_token_id = len(tokenizer), tokenizer.pad_token_id
    model = models.load_model(AutoModelForMaskedLM, model_args, config)
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        model.resize_token_embeddings(len(tokenizer))
    for split, dataset in datasets.items():
        sequences = data_args.limit(split, tokenize(dataset, tokenizer, data_args, length, training_args))
        if data_args.streaming and split == "train":
            sequences = sequences.shuffle(seed=training_args.seed, buffer_size=SHUFFLE_BUFFER)
        datasets[split] = sequences
    is_packed = data_args.max_tokens_per_batch is not None
    collator_class = DataCollatorForSeededPacking if is_packed else DataCollatorForSeededMasking
    collator = collator_class(tokenizer, mlm_probability=data_args.mlm_probability, seed=training_args.seed)
    options = {"kind": MlmTrainer, "max_tokens_per_batch": data_args.max_tokens_per_batch}
    options |= {"preprocess_logits_for_metrics": most_likely}
    trainer = training.make_trainer(setup, model, datasets, tokenizer, training.accuracy, collator, **options)
    return training.train_and_evaluate(trainer, checkpoint, evaluate)


if __name__ == "__main__":
    main()
