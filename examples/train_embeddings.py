# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Train a saved LION, or a sentence encoder with one, on pairs of texts that belong together, with sentence-transformers.

    pip install ".[train,embeddings]"
    python examples/train_embeddings.py --model my-lion --train_file pairs.csv --output_dir my-encoder

The file (.csv, .json, .jsonl or .parquet) has the columns "anchor" and "positive". One of ten pairs is held out. The
loss is contrastive: in a batch, the other positives are the negatives. The folder loads with
SentenceTransformer("my-encoder"), once `import modeling_lion` has run. Any argument of
SentenceTransformerTrainingArguments works.
"""

from dataclasses import MISSING, dataclass
from pathlib import Path

import training_lion.scripts  # noqa: F401 (before transformers, which it makes quiet)
from hub_upload_lion.convert.encoder import fit_settings
from hub_upload_lion.sentence_modules import SETTINGS
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from sentence_transformers.sentence_transformer.training_args import BatchSamplers
from sentence_transformers.util import is_sentence_transformer_model
from training_lion.scripts import checkpoints, data_files
from training_lion.scripts.arguments import option, parse_arguments

import modeling_lion  # noqa: F401  (the Auto classes know LION from here on)


@dataclass
class EncoderArguments:
    model: str = option("Folder or Hub name of a sentence encoder, or of a LION for text and its tokenizer.", MISSING)
    train_file: str = option('A table (.csv, .json, .jsonl, .parquet) with "anchor" and "positive".', MISSING)
    text_files: str | None = option(data_files.TEXT_FILES_HELP)
    pooling: str | None = option(
        "How tokens become a vector. Not given: as in the sentence encoder, mean for others.", choices=["mean", "cls"]
    )
    max_seq_length: int | None = option(
        "Tokens of a text; the rest is cut off, in training and when the folder is used. Not given: as in the "
        "sentence encoder; for others max_position_embeddings, as in sentence-transformers."
    )
    mini_batch_size: int | None = option(
        "Texts that are in memory at a time, for batches of long texts: the loss is the same, and a step "
        "takes about a third longer. Not given: the whole batch."
    )


def load_encoder(args: EncoderArguments, device: str | None) -> SentenceTransformer:
    """
    Load a sentence encoder with all of its modules and prompts, or make one of a model and its tokenizer.

    Raises:
        ValueError: if --pooling contradicts the encoder.
    """
    if not is_sentence_transformer_model(args.model):
        tokens = Transformer(args.model, max_seq_length=args.max_seq_length)
        pooling = Pooling(tokens.get_embedding_dimension(), pooling_mode=args.pooling or "mean")
        return SentenceTransformer(modules=[tokens, pooling], device=device)
    encoder = SentenceTransformer(args.model, device=device)
    found = [module.pooling_mode for module in encoder if isinstance(module, Pooling)]
    if args.pooling is not None and found != [args.pooling]:
        raise ValueError(
            f"--pooling is {args.pooling}, but {args.model} has {', '.join(found) or 'none'}: leave it out."
        )
    if args.max_seq_length is not None:
        encoder.max_seq_length = args.max_seq_length
    return encoder


def share_found(encoder: SentenceTransformer, pairs) -> float:
    """Return the share of anchors whose own positive is the most similar of all positives."""
    anchors, texts = list(pairs["anchor"]), list(pairs["positive"])
    vectors = (encoder.encode(x, convert_to_tensor=True) for x in (anchors, texts))
    nearest = encoder.similarity(*vectors).argmax(dim=1).tolist()
    return sum(texts[n] == own for n, own in zip(nearest, texts, strict=True)) / len(nearest)


def main(args: list[str] | None = None) -> SentenceTransformer:
    """Run with these arguments, or those of the command line; returns the encoder."""
    encoder_args, training_args = parse_arguments((EncoderArguments, SentenceTransformerTrainingArguments), args)
    checkpoint = checkpoints.asked_checkpoint_or_free(training_args)
    columns = ("anchor", "positive")
    pairs = data_files.load_texts(encoder_args.train_file, columns, (), encoder_args.text_files)
    if len(pairs) < 2:
        raise ValueError(f"--train_file {encoder_args.train_file} has 1 pair: give more; one of ten is held out.")
    pairs = pairs.train_test_split(0.1, seed=training_args.seed)

    encoder = load_encoder(encoder_args, "cpu" if training_args.use_cpu else None)
    texts = [text for name in columns for text in pairs["train"][name]]
    if len({*texts}) < len(texts):
        training_args.batch_sampler = BatchSamplers.NO_DUPLICATES  # no text is a negative of its own
    before = share_found(encoder, pairs["test"])
    options = {"gather_across_devices": training_args.world_size > 1}  # negatives are those of all processes
    if encoder_args.mini_batch_size is None:
        loss = losses.MultipleNegativesRankingLoss(encoder, **options)
    else:
        options |= {"mini_batch_size": encoder_args.mini_batch_size}
        loss = losses.CachedMultipleNegativesRankingLoss(encoder, **options)
    trainer = SentenceTransformerTrainer(model=encoder, args=training_args, train_dataset=pairs["train"], loss=loss)
    trainer.train(resume_from_checkpoint=checkpoint)
    if trainer.is_world_process_zero():
        encoder.save(training_args.output_dir)
        # `save` keeps no limit beyond `max_position_embeddings`.
        fit_settings(Path(training_args.output_dir, SETTINGS), encoder.max_seq_length)
    after = share_found(encoder, pairs["test"])
    print(f"Positives found among {len(pairs['test'])}: {before:.0%} before, {after:.0%} after")
    return encoder


if __name__ == "__main__":
    main()
