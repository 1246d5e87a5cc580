# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The options of distillation.py and of examples/distill.py."""

from dataclasses import dataclass, field

from transformers import TrainingArguments


STAGES = ("attention", "hidden_states")


@dataclass
class DistillationArguments:
    model_name_or_path: str | None = field(
        default=None,
        metadata={"help": "Folder or Hub name of an encoder. One that is linear already is trained further."},
    )
    layers: str | None = field(
        default=None,
        metadata={
            "help": "Which attention becomes linear: all (default), global, alternate or indices such as 0,2,4."
        },
    )
    mixer: str | None = field(
        default=None,
        metadata={
            "help": "Mixer: lit, decay, selective, or one of --mixers. Not given: lit, or as in a linear encoder."
        },
    )
    mixers: list[str] | None = field(
        default=None, metadata={"help": "Python files that register mixers or feature maps of your own."}
    )
    feature_map: str | None = field(
        default=None,
        metadata={"help": "Feature map of the linear sum. Not given: scaled_hedgehog, or as in a linear encoder."},
    )
    window: int | None = field(
        default=None,
        metadata={
            "help": "Tokens on each side that softmax reads; 0 for none. Not given: 64, or as in a linear encoder."
        },
    )
    exact_length: int | None = field(
        default=None,
        metadata={"help": "Longest text computed as before. Not given: the training length, at most 512."},
    )
    positions: str | None = field(
        default=None, metadata={"help": "cyclic: repeat a table of positions in longer texts."}
    )
    dataset_name: str | None = field(default=None, metadata={"help": "A dataset of the Hub, or a folder of images."})
    train_file: str | None = field(default=None, metadata={"help": "Training data, such as one text per line."})
    validation_file: str | None = field(default=None, metadata={"help": "Held-out data of the same kind."})
    max_docstring_bytes: int = field(default=10_000_000, metadata={"help": "Docstrings to collect without data."})
    train_lengths: list[int] = field(
        default_factory=lambda: [512],
        metadata={"help": "Tokens at which texts are cut: one length is drawn per step, with fewer texts if longer."},
    )
    joined_share: float = field(
        default=0.0,
        metadata={"help": "Share of the training texts to which the next lines are joined, up to these lengths."},
    )
    max_eval_samples: int = field(default=100, metadata={"help": "Held-out examples of each length."})
    eval_lengths: list[int] = field(
        default_factory=list, metadata={"help": "Evaluate on held-out texts of exactly this length: lines joined."}
    )
    stages: list[str] = field(
        default_factory=lambda: ["attention"], metadata={"help": "attention, hidden_states or both."}
    )
    attention_share: float = field(default=0.7, metadata={"help": "Share of the steps in this stage, with both."})
    rows: int = field(default=128, metadata={"help": "Tokens of a text whose attention is compared in a step."})
    train_encoder: bool = field(
        default=False, metadata={"help": "Also train the encoder's weights, in the stage hidden_states."}
    )
    encoder_learning_rate: float = field(default=2e-5, metadata={"help": "Learning rate of the encoder."})
    drop_window: float = field(
        default=0.0, metadata={"help": "Share of the steps without windows, with only the linear sum."}
    )
    pooling: str = field(default="mean", metadata={"help": "Pooling of embeddings.", "choices": ["mean", "cls"]})
    weights_dtype: str = field(
        default="float32",
        metadata={"help": "Dtype of the saved weights.", "choices": ["float32", "float16", "bfloat16"]},
    )

    def __post_init__(self):
        if wrong := [stage for stage in self.stages if stage not in STAGES]:
            raise ValueError(f"--stages has {wrong[0]!r}; give {' or '.join(STAGES)}.")
        for name in ("drop_window", "joined_share", "attention_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"--{name} is {getattr(self, name)}; give a share from 0 to 1.")
        if self.train_encoder and "hidden_states" not in self.stages:
            raise ValueError("--train_encoder needs the stage hidden_states: attention compares equal inputs.")


@dataclass
class DistillationTrainingArguments(TrainingArguments):
    learning_rate: float = field(default=3e-2, metadata={"help": "Learning rate of the weights that LION adds."})
    adam_beta2: float = 0.99
    lr_scheduler_type: str = "cosine"
    warmup_steps: float = 10
    save_steps: float = 50
    logging_steps: float = 10
    save_total_limit: int = 1
    remove_unused_columns: bool = False
