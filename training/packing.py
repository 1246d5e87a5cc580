# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Packing of sequences into one row, instead of padding (SPEC §4): a collator that masks tokens, a sampler that fills
batches up to a number of tokens, and a Trainer that uses it.

Every kernel of LION supports packed rows, with the same results as for each sequence alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, Sampler
from transformers import DataCollatorForLanguageModeling, DataCollatorWithFlattening, Trainer

from configuration_lion import LionConfig
from modeling_lion.linearized.config import LINEARIZED_FORMS
from modeling_lion.linearized.lion_local import LION_LOCAL


# Arguments of a DataLoader that are copied when its batch sampler is replaced.
LOADER_OPTIONS = (
    "collate_fn",
    "num_workers",
    "pin_memory",
    "worker_init_fn",
    "multiprocessing_context",
    "prefetch_factor",
    "persistent_workers",
    "in_order",
)


@dataclass
class DataCollatorForLanguageModelingWithFlattening(DataCollatorForLanguageModeling):
    """
    Masks tokens like `DataCollatorForLanguageModeling`, then puts the real tokens into one row in the format of
    `DataCollatorWithFlattening`: `input_ids`, `labels`, `position_ids` (and `token_type_ids`, if given) of shape `(1,
    tokens)`, `cu_seq_lens_q`, `cu_seq_lens_k`, `max_length_q`, `max_length_k`.

    (transformers' flattening collator is for causal models: it masks nothing and drops the first label of every
    sequence.) With the same `seed`, the same tokens are masked as by `DataCollatorForLanguageModeling`.

    With `mlm=False`, labels are those of the examples ("labels" or "label"): one per token, flattened, or one per
    sequence, `(num_sequences,)`, like the logits of `LionForSequenceClassification`. Other columns are left out.

    Raises:
        ValueError: for padding options, numpy output, or a sequence without tokens.
    """

    def __post_init__(self):
        super().__post_init__()
        if self.pad_to_multiple_of is not None:
            raise ValueError(f"`pad_to_multiple_of` is {self.pad_to_multiple_of}: nothing is padded; leave it out.")
        if self.return_tensors != "pt":
            raise ValueError(f'`return_tensors` is {self.return_tensors!r}; packed sequences come as "pt" only.')

    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        names = {*self.tokenizer.model_input_names, "input_ids", "attention_mask"}
        names |= {"special_tokens_mask", "offset_mapping"}  # by which tokens are masked
        rows = [{name: x for name, x in example.items() if name in names} for example in examples]
        rows = [{"attention_mask": [1] * len(row["input_ids"])} | row for row in rows]
        given = [example.get("labels", example.get("label")) for example in examples]
        is_real = [torch.as_tensor(row["attention_mask"]).bool() for row in rows]
        if not all(real.any() for real in is_real):
            raise ValueError("A sequence in the batch has no tokens (`input_ids` is empty): filter such rows out.")
        batch = dict(super().torch_call(rows))
        mask = batch.pop("attention_mask").bool()
        sequences = [{"input_ids": ids[real].tolist()} for ids, real in zip(batch["input_ids"], mask, strict=True)]
        layout = DataCollatorWithFlattening(return_flash_attn_kwargs=True)(sequences)
        flat = layout | {name: values[mask].unsqueeze(0) for name, values in batch.items()}
        if not self.mlm:
            del flat["labels"]
            if None not in given:
                labels = [torch.as_tensor(x) for x in given]
                if labels[0].dim():
                    flat["labels"] = torch.cat([x[real] for x, real in zip(labels, is_real, strict=True)])[None]
                else:
                    flat["labels"] = torch.stack(labels)
        return flat


class TokenBudgetBatchSampler(Sampler[list[int]]):
    """
    Batches of sequences with at most `max_tokens` tokens in total, for the `batch_sampler` of a DataLoader.

    Every epoch contains every sequence once, in an order that depends only on `seed` and the epoch, and has the same
    number of batches, so that a Trainer or accelerate can shard and resume it with any number of processes. The
    shuffled sequences are cut at equal numbers of tokens, so that batches differ by less than the longest sequence. A
    sequence with more than `max_tokens / 2` tokens is alone in its batch then.

    Args:
        lengths: number of tokens of each sequence.
        max_tokens: the most tokens of a batch; batches are nearly full if it is several times the longest sequence.
        shuffle: whether each epoch has a different order; otherwise it is the order of the data, and a batch is full
            where the next sequence does not fit.
        seed: determines the order.
        multiple_of: make the number of batches a multiple of this, if there are enough sequences: the number of
            processes, so that none repeats a batch of another.

    Raises:
        ValueError: if a sequence has no tokens, or more than `max_tokens`.
    """

    def __init__(
        self, lengths: Sequence[int], max_tokens: int, *, shuffle: bool = True, seed: int = 0, multiple_of: int = 1
    ):
        self.lengths = torch.as_tensor(lengths, dtype=torch.int64)
        self.shuffle, self.seed = shuffle, seed
        self.epoch = 0
        if not len(self.lengths):
            raise ValueError("`lengths` is empty: there are no sequences to sample.")
        if self.lengths.min() < 1:
            raise ValueError(f"Sequence {self.lengths.argmin()} has no tokens: filter such rows out.")
        if self.lengths.max() > max_tokens:
            raise ValueError(
                f"Sequence {self.lengths.argmax()} has {self.lengths.max()} tokens, more than `max_tokens` "
                f"{max_tokens}: raise it, or truncate the sequences."
            )
        self.max_tokens = max_tokens
        self.is_long = self.lengths > max_tokens // 2
        short = self.lengths[~self.is_long]
        # A batch that is cut at equal numbers of tokens can exceed its share by one sequence.
        self.num_shared = -(-int(short.sum()) // (max_tokens - int(short.max()))) if len(short) else 0
        num_batches = self.num_shared + int(self.is_long.sum()) if shuffle else len(self.in_order())
        num_batches = -(-num_batches // multiple_of) * multiple_of
        self.num_batches = min(num_batches, len(self.lengths))

    @property
    def sampler(self) -> "TokenBudgetBatchSampler":
        """accelerate, which wraps batch samplers in shards, calls `set_epoch` of this attribute."""
        return self

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.num_batches

    def in_order(self) -> list[list[int]]:
        """Make batches of the sequences in order."""
        batches: list[list[int]] = []
        free = 0
        for i, length in enumerate(self.lengths.tolist()):
            if length > free:
                batches.append([])
                free = self.max_tokens
            batches[-1].append(i)
            free -= length
        return batches

    def shuffled(self, generator: torch.Generator) -> list[list[int]]:
        """Make batches of the sequences in an order of their own."""
        order = torch.randperm(len(self.lengths), generator=generator)
        batches = [[i] for i in order[self.is_long[order]].tolist()]
        short = order[~self.is_long[order]]
        if len(short):
            lengths = self.lengths[short]
            starts = lengths.cumsum(0) - lengths
            shares = starts * self.num_shared // lengths.sum()
            sizes = torch.bincount(shares).tolist()
            batches += [batch.tolist() for batch in short.split(sizes) if len(batch)]
        return batches

    def __iter__(self) -> Iterator[list[int]]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        batches = self.shuffled(generator) if self.shuffle else self.in_order()
        while len(batches) < self.num_batches:
            largest = max(range(len(batches)), key=lambda n: len(batches[n]))
            batch = batches.pop(largest)
            batches += [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
        if self.shuffle:
            batches = [batches[n] for n in torch.randperm(len(batches), generator=generator)]
        else:
            batches.sort()
        yield from batches


def sequence_lengths(dataset) -> list[int]:
    """Return the number of tokens of each example."""
    columns = getattr(dataset, "column_names", None) or []
    if "input_ids" in columns and hasattr(dataset, "select_columns"):  # without converting Arrow data to lists
        batches = dataset.select_columns("input_ids").with_format("arrow").iter(10_000)
        return [n for batch in batches for part in batch["input_ids"].chunks for n in part.value_lengths().tolist()]
    return [len(dataset[i]["input_ids"]) for i in range(len(dataset))]


def check_attention(model: nn.Module) -> None:
    """Raise a ValueError if the attention of an encoder of transformers has no borders between packed sequences."""
    config = getattr(model, "config", None)
    if config is None or config.model_type == LionConfig.model_type:
        return
    name = str(config._attn_implementation)
    if name in (*LINEARIZED_FORMS, LION_LOCAL) or "flash" in name:
        return
    raise ValueError(
        f"`max_tokens_per_batch` puts sequences into one row, where those of {type(model).__name__} with the "
        f"attention {name!r} would see each other: leave it out, linearize the model, or use flash_attention_2."
    )


class PackingTrainer(Trainer):
    """
    A Trainer whose batches have at most `max_tokens_per_batch` tokens, instead of `per_device_train_batch_size` and
    `per_device_eval_batch_size` sequences. Its `data_collator` has to pack sequences, like
    `DataCollatorForLanguageModelingWithFlattening`.

    Args:
        max_tokens_per_batch: most tokens of a batch in each process. `None` makes this an ordinary Trainer.

    Raises:
        ValueError: for data without a length (streaming), for several GPUs in one process, or for a model whose
            attention would see all sequences of a row.
    """

    def __init__(self, *args, max_tokens_per_batch: int | None = None, **kwargs):
        self.max_tokens_per_batch = max_tokens_per_batch
        super().__init__(*args, **kwargs)
        if max_tokens_per_batch is None:
            return
        check_attention(self.model)
        if self.args.n_gpu > 1:
            raise ValueError(
                f"One process would split each packed row over {self.args.n_gpu} GPUs: start one process per GPU "
                "(torchrun, accelerate launch), or show it one GPU (CUDA_VISIBLE_DEVICES)."
            )

    def get_train_dataloader(self) -> DataLoader:
        return self.with_token_budget(super().get_train_dataloader(), shuffle=True)

    def get_eval_dataloader(self, *args, **kwargs) -> DataLoader:
        return self.with_token_budget(super().get_eval_dataloader(*args, **kwargs), shuffle=False)

    def get_test_dataloader(self, *args, **kwargs) -> DataLoader:
        return self.with_token_budget(super().get_test_dataloader(*args, **kwargs), shuffle=False)

    def with_token_budget(self, loader: DataLoader, shuffle: bool) -> DataLoader:
        """Return a DataLoader of the same data in batches of `max_tokens_per_batch`."""
        if self.max_tokens_per_batch is None:
            return loader
        if isinstance(loader.dataset, IterableDataset):
            raise ValueError(
                "`max_tokens_per_batch` needs a dataset with a length: the sizes of streamed sequences are not known "
                "in advance. Load the dataset without streaming, or leave the option out."
            )
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        sampler = TokenBudgetBatchSampler(
            sequence_lengths(loader.dataset),
            self.max_tokens_per_batch,
            shuffle=shuffle,
            seed=seed,
            multiple_of=self.args.world_size,
        )
        options = {name: getattr(loader, name) for name in LOADER_OPTIONS if hasattr(loader, name)}
        loader = self.accelerator.prepare_data_loader(DataLoader(loader.dataset, batch_sampler=sampler, **options))
        if loader.batch_sampler is not sampler:
            # A resumed Trainer calls `set_epoch` of accelerate's shard only, which does not pass it on.
            loader.batch_sampler.set_epoch = sampler.set_epoch
        return loader
