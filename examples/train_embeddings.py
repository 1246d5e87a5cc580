# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Make a sentence encoder of a saved LION with sentence-transformers, from pairs of texts that belong together.

    pip install ".[train,embeddings]"
    python examples/train_embeddings.py --model my-lion --train_file pairs.csv --output_dir my-encoder

The file, .csv, .json, .jsonl or .parquet, has the columns "anchor" and "positive"; of every ten pairs one is held out,
and the loss is contrastive: in a batch, the other positives are the negatives. The folder loads with
SentenceTransformer("my-encoder"), once `import modeling_lion` has run. Any argument of
SentenceTransformerTrainingArguments works.
"""

from dataclasses import dataclass, field

import bitsandbytes_log  # noqa: F401 (before transformers)
from common import asked_checkpoint, parse_arguments
from data_files import TABLES, check_files, load_files
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MultipleNegativesRankingLoss,
)
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

import modeling_lion  # noqa: F401  (the Auto classes know LION from here on)


@dataclass
class EncoderArguments:
    model: str = field(metadata={"help": "Folder or Hub name of a saved LION for text, with its tokenizer."})
    train_file: str = field(metadata={"help": 'A table (.csv, .json, .jsonl, .parquet) with "anchor" and "positive".'})
    pooling: str = field(default="mean", metadata={"help": "How tokens become a vector.", "choices": ["mean", "cls"]})
    max_seq_length: int | None = field(
        default=None,
        metadata={"help": "Tokens of a text; the rest is cut off. Not given: as many as the model supports."},
    )
    mini_batch_size: int | None = field(
        default=None,
        metadata={
            "help": "Texts that are in memory at a time, for batches of long texts: the loss is the same, and a step "
            "takes about a third longer. Not given: the whole batch."
        },
    )


def share_found(encoder: SentenceTransformer, pairs) -> float:
    """The share of anchors whose own positive is the most similar one of all."""
    anchors, positives = (encoder.encode(list(pairs[name]), convert_to_tensor=True) for name in ("anchor", "positive"))
    nearest = encoder.similarity(anchors, positives).argmax(dim=1).tolist()
    return sum(i == n for i, n in enumerate(nearest)) / len(nearest)


def main(args: list[str] | None = None) -> SentenceTransformer:
    """Run with these arguments, or those of the command line; returns the encoder."""
    encoder_args, training_args = parse_arguments((EncoderArguments, SentenceTransformerTrainingArguments), args)
    columns = ("anchor", "positive")
    files = check_files({"train": encoder_args.train_file}, TABLES)
    pairs = load_files(files, columns)["train"].select_columns(list(columns))
    pairs = pairs.train_test_split(0.1, seed=training_args.seed)

    tokens = Transformer(encoder_args.model, max_seq_length=encoder_args.max_seq_length)
    pooling = Pooling(tokens.get_embedding_dimension(), pooling_mode=encoder_args.pooling)
    device = "cpu" if training_args.use_cpu else None
    encoder = SentenceTransformer(modules=[tokens, pooling], device=device)
    before = share_found(encoder, pairs["test"])
    if encoder_args.mini_batch_size is None:
        loss = MultipleNegativesRankingLoss(encoder)
    else:
        loss = CachedMultipleNegativesRankingLoss(encoder, mini_batch_size=encoder_args.mini_batch_size)
    trainer = SentenceTransformerTrainer(model=encoder, args=training_args, train_dataset=pairs["train"], loss=loss)
    trainer.train(resume_from_checkpoint=asked_checkpoint(training_args))
    encoder.save(training_args.output_dir)
    print(
        f"Positives found among {len(pairs['test'])}: {before:.0%} before, {share_found(encoder, pairs['test']):.0%}"
    )
    return encoder


if __name__ == "__main__":
    main()
