# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
How the benchmarks train: models of the same backbone and equal parameters that differ in some fields of the
configuration, above all their mixers, with the same data and the same steps.
"""

import argparse
import hashlib
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import add_examples  # noqa: F401 (examples/ can be imported from here on)
import numpy as np
import run_mlm
import torch
import yaml
from jackknife import Record, jackknife_values
from measure import RESULTS, is_ours, read_rows
from peers import gla, hydra, listed_decays, neighbours  # noqa: F401 (which register mixers)
from peers.auto_classes import peer_class
from peers.mamba import MAMBA_PEERS, BidirectionalMamba
from tasks.generated import NO_LABEL, PAD_ID, TASKS, load_task
from training_lion.scripts.training import accuracy
from transformers import EvalPrediction, Trainer, TrainingArguments, set_seed
from transformers.integrations import get_available_reporting_integrations

from configuration_lion import LionConfig, published_fields
from configuration_lion.registry import FEATURE_MAPS, MIXERS
from modeling_lion import LionForMaskedLM, LionForTokenClassification
from modeling_lion.mixers.import_mixers import import_mixers


ROOT = Path(__file__).parents[1]
CACHE_DIR = ROOT / "outputs" / "trainings_cache"  # of prepared data
REAL_DATA = ROOT / "outputs" / "real"  # of tasks/real_data.py
RECOMMENDED = {name: getattr(LionConfig(), name) for name in published_fields("text") if name != "intermediate_size"}
ROTARY = {"rope_type": "default", "rope_theta": 10000.0}
MODELS = {
    "softmax": {"mixer_type": "softmax"},
    "softmax (rotary)": {
        "mixer_type": "softmax",
        "position_embedding_type": "none",
        "rope_parameters": ROTARY,
    },
    "LION": RECOMMENDED,
    # Its mixer sets the fields that are `None`.
    "LION-Delta": RECOMMENDED | {"mixer_type": "delta", "feature_map": None, "normalization": None},
    "LION-LIT": {"mixer_type": "lit"},
    "LION-D": {"mixer_type": "decay"},
    "LION-S": {"mixer_type": "selective"},
    # LIT has no decays: a scan along a curve does not change it.
    "LION-D♮": {"mixer_type": "decay", "patch_order": "snake"},
    "LION-S♮": {"mixer_type": "selective", "patch_order": "snake"},
    "Luna": {"mixer_type": "luna"},
    "local mean": {"mixer_type": "neighbours"},
    "GLA": {"mixer_type": "gla"},
    "Hydra": {"mixer_type": "hydra"},
    # The backbone of LION-S; peers/mamba.py replaces its attention.
    "two Mamba-2": {"mixer_type": "selective"},
    "Vim": {"mixer_type": "selective"},
}
OWN_MIXERS: dict[str, str] = {}  # for models of `--mixers`, the first digits of the SHA-256 of their files
OWN_FILES: dict[Path, list[str]] = {}  # the models of each file of `--mixers`
# What peers have in common with LION as recommended, which the models above do not have.
AS_RECOMMENDED = {"use_gated_mlp": RECOMMENDED["use_gated_mlp"]}
READ = ("input_ids", "token_type_ids", "attention_mask", "label", "labels", "special_tokens_mask")  # columns of data
TRAINING_FIELDS = ("steps", "learning_rate")  # of an experiment, which a variant may replace, too
METRICS = ("validation_loss", "validation_accuracy", "test_loss", "test_accuracy", "longer_accuracy")


@dataclass(frozen=True)
class Experiment:
    """
    A task and what to train on it.

    Args:
        task: fields of a task of `tasks.generated`; for other data, what identifies them.
        config: fields of `LionConfig`, the same for every model.
        steps, batch_size, learning_rate: of the training; a tenth of the steps warms up, then a cosine falls to 0.
        examples: for training; a tenth of them for validation, and for the test.
        longer: evaluate examples of so many times the `length` of the task, too.
        variant: fields of `LionConfig` that replace those of every model, and the `TRAINING_FIELDS` that are not as in
            the experiments of a scale.
        fan_in: initial weights of two Mamba-2 and Vim as their authors have them (`use_fan_in`), not those of
            transformers.
        rms_norm: norms are RMSNorms (`use_rms_norm`).
    """

    task: dict
    config: dict
    steps: int
    batch_size: int = 32
    learning_rate: float = 1e-3
    examples: int = 10_000
    longer: int | None = None
    variant: dict = field(default_factory=dict)
    fan_in: bool = False
    rms_norm: bool = False

    @property
    def variant_name(self) -> str | None:
        """The same for equal fields, in any order; `None` without any, as an empty cell of a table is read."""
        texts = [
            f"{name}={value if isinstance(value, str) else json.dumps(value)}"
            for name, value in sorted(self.variant.items())
        ]
        return " ".join(texts) or None

    def settings(self, model: str = "") -> str:
        """
        All of it but fields of the configuration that a variant replaces, in one cell of a table, with the file of a
        model of `--mixers`, and the GPU, on which trainings compute in bfloat16.
        """
        training = {name: getattr(self, name) for name in ("steps", "batch_size", "learning_rate", "examples")}
        training |= {"longer": self.longer} if self.longer else {}
        training |= {"mixer": OWN_MIXERS[model]} if model in OWN_MIXERS else {}
        training |= {"gpu": torch.cuda.get_device_name().replace(" ", "_")} if torch.cuda.is_available() else {}
        return " ".join(f"{name}={value}" for name, value in {**self.task, **self.config, **training}.items())


def sizes(hidden_size: int, layers: int, heads: int, **fields) -> dict:
    return {
        "hidden_size": hidden_size,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden_size,  # room for the further projections of Luna
        "norm_position": "pre",
        "hidden_dropout_prob": 0.0,  # trainings are too short to overfit
    } | fields


def tiny() -> dict:
    """Sizes of a few steps; the MLPs leave room for the projections of Mamba-2."""
    return sizes(16, 2, 2, intermediate_size=256)


def last_layer_full(layers: int, modality: str = "text") -> dict:
    """Fields of a LION whose last layer is softmax attention over all tokens, in texts with rotary positions."""
    types = {"layer_types": ["linear_attention"] * (layers - 1) + ["full_attention"]}
    rope = {"rope_parameters": {"linear_attention": None, "full_attention": ROTARY}}
    return types | rope if modality == "text" else types


@dataclass
class Data:
    """Examples by split, how to make a batch of them, and the model and metrics that they need."""

    model_class: type
    config: dict
    splits: dict
    collate: Callable
    trainer: dict = field(default_factory=dict)
    trainer_class: type = Trainer
    chance: float | None = None  # accuracy of the most frequent class


def load_data(name: str, experiment: Experiment, cache_dir: Path) -> Data:
    """A task of `tasks.generated`, whose tokens are labelled."""
    task = TASKS[name](**experiment.task)
    held_out = max(experiment.examples // 10, 20)
    counts = {"train": experiment.examples, "validation": held_out, "test": held_out}
    splits = load_task(task, counts, str(cache_dir))
    if experiment.longer:
        longer = replace(task, length=experiment.longer * task.length)
        # As many tokens as the test split has.
        splits["longer"] = load_task(longer, {"test": max(held_out // experiment.longer, 20)}, str(cache_dir))["test"]
    config = {"vocab_size": task.vocab_size, "max_position_embeddings": task.length, "pad_token_id": PAD_ID}
    config |= {"num_labels": task.num_labels}
    metrics = {"compute_metrics": accuracy, "preprocess_logits_for_metrics": run_mlm.most_likely}
    labels = np.concatenate(splits["test"]["labels"])
    of_class = np.bincount(labels[labels != NO_LABEL])
    chance = float(of_class.max() / of_class.sum())
    return Data(LionForTokenClassification, config, splits, pad_with_labels, metrics, chance=chance)


def pad_with_labels(rows: list[dict]) -> dict[str, torch.Tensor]:
    """A batch of sequences with a label for each token."""

    def padded(name: str, value: int) -> torch.Tensor:
        rows_of = [torch.tensor(row[name]) for row in rows]
        return torch.nn.utils.rnn.pad_sequence(rows_of, batch_first=True, padding_value=value)

    input_ids = padded("input_ids", PAD_ID)
    mask = (input_ids != PAD_ID).long()
    return {"input_ids": input_ids, "attention_mask": mask, "labels": padded("labels", NO_LABEL)}


def add_mixers(files: Iterable[str]) -> list[str]:
    """
    `import_mixers`: the names of the mixers are models from then on.

    Raises:
        ValueError: if a file registers none, one of another file, or one whose name a model or a table cannot have.
    """
    added = []
    for path in (Path(file).resolve() for file in files):
        if path not in OWN_FILES:
            before, features = {**MIXERS}, {**FEATURE_MAPS}
            names = import_mixers([path])
            if replaced := [name for name, mixer in before.items() if MIXERS[name] is not mixer]:
                raise ValueError(f"--mixers {path} replaces the mixer {replaced[0]!r}: give yours another `name`.")
            if not names and features == FEATURE_MAPS:
                raise ValueError(f"--mixers {path} registers no mixer: decorate its class with @register_mixer.")
            for name in names:
                if name in MODELS:
                    raise ValueError(f"--mixers {path}: a row is called {name!r}: give the mixer another `name`.")
                if wrong := re.search(r"[|,\n]", name):
                    raise ValueError(f"--mixers {path}: tables do not take {wrong[0]!r} in the `name` {name!r}.")
            OWN_FILES[path] = names
            MODELS.update({name: {"mixer_type": name} for name in names})
            OWN_MIXERS.update(dict.fromkeys(names, hashlib.sha256(path.read_bytes()).hexdigest()[:12]))
        added += OWN_FILES[path]
    return added


def make_config(model: str, experiment: Experiment, data: Data) -> LionConfig:
    """
    The configuration of a model: its MLP is made smaller or larger until it has about the parameters of softmax
    without a variant.

    Raises:
        ValueError: if there are too many without any MLP.
    """
    common = published_fields(data.config.get("modality", "text")) | experiment.config | data.config
    variant = {name: value for name, value in experiment.variant.items() if name not in TRAINING_FIELDS}
    of_model = common | MODELS[model] | variant
    config = LionConfig(**of_model)
    reference = count("softmax", LionConfig(**common | MODELS["softmax"]), data)
    parameters = count(model, config, data, experiment.rms_norm)
    projections = 3 if config.use_gated_mlp else 2
    per_unit = config.num_hidden_layers * (projections * config.hidden_size + projections - 1)
    units = config.intermediate_size + round((reference - parameters) / per_unit)
    if units < 1:
        raise ValueError(f"{model} has more parameters than softmax without any MLP: raise `intermediate_size`.")
    return LionConfig(**of_model | {"intermediate_size": units})


def make_model(name: str, config: LionConfig, data: Data) -> torch.nn.Module:
    return (peer_class(name, data.model_class) if name in MAMBA_PEERS else data.model_class)(config)


@torch.no_grad()
def use_fan_in(model: torch.nn.Module) -> None:
    """Give two Mamba-2 and Vim the initial weights of their authors, torch's own U(-n^-½, n^-½) for n inputs."""
    for layer in model.base_model.layers:
        if isinstance(layer.attention, BidirectionalMamba):
            for module in layer.attention.modules():
                if isinstance(module, torch.nn.Linear):
                    bound = module.in_features**-0.5
                    torch.nn.init.uniform_(module.weight, -bound, bound)


def use_rms_norm(model: torch.nn.Module) -> None:
    """Give a model RMSNorms in the place of its LayerNorms, new like those."""
    for name, norm in list(model.named_modules()):
        if isinstance(norm, torch.nn.LayerNorm):
            other = torch.nn.RMSNorm(norm.normalized_shape, eps=norm.eps, device=norm.weight.device)
            model.set_submodule(name, other)


def count(name: str, config: LionConfig, data: Data, rms_norm: bool = False) -> int:
    with torch.device("meta"):
        model = make_model(name, config, data)
    if rms_norm:
        use_rms_norm(model)
    return model.num_parameters()


def make_trainer(
    model: torch.nn.Module, seed: int, experiment: Experiment, data: Data, output_dir: Path, **arguments
) -> tuple[Trainer, list[str]]:
    """
    The training of an experiment, and the columns of the data that it reads.

    Args:
        arguments: of the Trainer, in place of those of all trainings here.
    """
    common = {
        "output_dir": str(output_dir / "trainer"),
        "max_steps": experiment.steps,
        "per_device_train_batch_size": experiment.batch_size,
        "per_device_eval_batch_size": 2 * experiment.batch_size,
        "learning_rate": experiment.learning_rate,
        "lr_scheduler_type": "cosine",
        "warmup_steps": max(1, experiment.steps // 10),
        "weight_decay": 0.01,
        "adam_beta2": 0.98,
        "seed": seed,
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": "none",
        "remove_unused_columns": False,
        "dataloader_pin_memory": torch.cuda.is_available(),
        "bf16": torch.cuda.is_available(),
    }
    columns = [name for name in READ if name in data.splits["train"].features]
    trainer = data.trainer_class(
        model=model,
        args=TrainingArguments(**common | arguments),
        data_collator=data.collate,
        train_dataset=data.splits["train"].select_columns(columns),
        **data.trainer,
    )
    return trainer, columns


def start(model_name: str, seed: int, experiment: Experiment, data: Data) -> torch.nn.Module:
    """A model with its initial weights."""
    set_seed(seed)
    model = make_model(model_name, make_config(model_name, experiment, data), data)
    if experiment.fan_in:
        use_fan_in(model)
    if experiment.rms_norm:
        use_rms_norm(model)
    return model


def train(
    model_name: str,
    seed: int,
    experiment: Experiment,
    data: Data,
    output_dir: Path,
    record: Record | None = None,
    **arguments,
) -> dict:
    """
    Train one model, with arguments of `make_trainer`; columns of a row come back.

    Args:
        record: gets the `jackknife_values` of the accuracy of the test split.
    """
    model = start(model_name, seed, experiment, data)
    trainer, columns = make_trainer(model, seed, experiment, data, output_dir, **arguments)
    metrics_of, evaluated = trainer.compute_metrics, {}

    def keep(prediction: EvalPrediction) -> dict[str, float]:
        evaluated["last"] = prediction
        return metrics_of(prediction)

    if record is not None:
        trainer.compute_metrics = keep
    result = trainer.train()
    row = dict.fromkeys(METRICS) | {"chance": data.chance}
    # No position embedding has been learnt for what is longer than in training.
    skipped = {"longer"} if model.config.position_embedding_type == "absolute" else set()
    for split in ("validation", "test", "longer"):
        if split in data.splits.keys() - skipped:
            metrics = trainer.evaluate(data.splits[split].select_columns(columns), metric_key_prefix=split)
            row |= {name: value for name, value in metrics.items() if name in METRICS}
            if split == "test" and record is not None:
                record(jackknife_values(metrics_of, "accuracy", evaluated["last"]))
    return row | {"parameters": model.num_parameters(), "train_seconds": result.metrics["train_runtime"]}


def make_step(model_name: str, experiment: Experiment, data: Data) -> Callable[[], None]:
    """A training step, but for the optimizer, of inputs without sense."""
    torch.manual_seed(0)
    config = make_config(model_name, experiment, data)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = make_model(model_name, config, data).train().to(device)
    rows = experiment.batch_size
    if config.modality == "image":
        inputs = {"pixel_values": torch.randn(rows, config.num_channels, *config.image_shape)}
    else:
        inputs = {"input_ids": torch.randint(1, config.vocab_size, (rows, config.context_length))}
    if data.model_class is LionForMaskedLM:
        is_masked = torch.rand(inputs["input_ids"].shape) < 0.15
        inputs["labels"] = torch.where(is_masked, inputs["input_ids"], -100)
    else:
        is_per_token = data.model_class is LionForTokenClassification
        inputs["labels"] = torch.randint(config.num_labels, inputs["input_ids"].shape if is_per_token else (rows,))
    inputs = {name: x.to(device) for name, x in inputs.items()}

    def step():
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = model(**inputs).loss
        model.zero_grad(set_to_none=True)
        loss.backward()
        if device == "cuda":
            torch.cuda.synchronize()

    return step


def reporting(args: argparse.Namespace, *case: object) -> dict:
    """
    Arguments of the Trainer for `--report_to`, of a run that a case names; {} without it. TensorBoard writes into
    `runs/NAME` of the output folder from then on.
    """
    if args.report_to == "none":
        return {}
    wandb = sys.modules.get("wandb")
    if wandb is not None and wandb.run is not None:
        wandb.finish()  # the run of the training before, into which transformers would go on writing
    name = "-".join(map(str, case)).replace(" ", "_")
    os.environ["TENSORBOARD_LOGGING_DIR"] = str(args.output_dir / "runs" / name)
    return {"report_to": args.report_to, "run_name": name, "logging_strategy": "steps", "logging_steps": 0.02}


def divided(stages: tuple[Experiment, ...], steps: int | None, times: int) -> tuple[Experiment, ...]:
    """Stages of one training with so many steps together, divided as before (`None`: as many), times a number."""
    ratio = steps / sum(stage.steps for stage in stages) if steps else 1
    return tuple(replace(stage, steps=times * max(1, round(ratio * stage.steps))) for stage in stages)


class TrainingParser(argparse.ArgumentParser):
    """
    The arguments of a benchmark of trainings, of which a file (`--config`) may have some. Namespaces have `command`,
    the command line. What is written lies in an output folder of one's own: `cache_dir`, and `data` unless
    `REAL_DATA` is there.
    """

    def __init__(self, *args, **options):
        self.options: dict[str, argparse.Action] = {}  # that a file may have
        super().__init__(*args, **options)

    def add_argument(self, *names, **options):
        action = super().add_argument(*names, **options)
        if action.dest not in ("config", "help"):
            self.options[action.dest] = action
        return action

    def add_mixers(self, files: Iterable[str]) -> list[str]:
        """`add_mixers`, whose errors of files end the program with a message."""
        try:
            return add_mixers(files)
        except ValueError as error:
            self.error(str(error))

    def parse_args(self, args=None, namespace=None):
        parsed = super().parse_args(self.with_config(args, is_whole=True), namespace)
        if parsed.output_dir.exists() and not parsed.output_dir.is_dir():
            self.error(f"--output_dir {parsed.output_dir} is a file: name a folder.")
        parsed.command = shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *self.command_line(args)])
        if parsed.cache_dir is None:
            parsed.cache_dir = CACHE_DIR if is_ours(parsed.output_dir) else parsed.output_dir / "cache"
        if "data" in parsed and parsed.data is None:
            is_shared = is_ours(parsed.output_dir) or REAL_DATA.is_dir()
            parsed.data = REAL_DATA if is_shared else parsed.output_dir / "data"
        return parsed

    @staticmethod
    def command_line(args: list[str] | None) -> list[str]:
        return sys.argv[1:] if args is None else args

    def with_config(self, args: list[str] | None = None, is_whole: bool = False) -> list[str]:
        """
        The command line behind the words of its configuration file, whose options it overrides. Keys that are no
        options end the program with a message if all options are known by now.
        """
        args = self.command_line(args)
        first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        first.add_argument("--config", type=Path)
        path = first.parse_known_args(args)[0].config
        if path is None:
            return args
        if not path.is_file():
            self.error(f"--config names {path}, which is not a file.")
        try:  # JSON is YAML
            values = yaml.safe_load(path.read_text(encoding="utf-8"))
        except yaml.YAMLError as error:
            self.error(f"--config {path} is neither YAML nor JSON: {error}")
        if not isinstance(values, dict):
            self.error(f"--config {path} has no options: write lines as `steps: 400`.")
        known, words = self.options, []
        for name, value in values.items():
            if name not in known:
                if is_whole:
                    self.error(f"--config {path}: {name!r} is no option; those are {', '.join(sorted(known))}.")
                continue
            given = any(word == f"--{name}" or word.startswith(f"--{name}=") for word in args)
            if given or value is None:
                continue
            is_flag, is_list = known[name].nargs == 0, known[name].nargs == "+"
            several = value if isinstance(value, list) else [value]
            is_wrong = is_flag != isinstance(value, bool) or any(isinstance(x, (dict, list)) for x in several)
            if is_wrong or not several or (len(several) > 1 and not is_list):
                fix = "true or false" if is_flag else "values" if is_list else "one value"
                self.error(f"--config {path}: {name!r} is {value!r}: give {fix}.")
            words += [f"--{name}", *([] if is_flag else map(str, several))] if value is not False else []
        return [*words, *args]


def training_arguments(description: str, scales: dict[str, dict[str, object]]) -> TrainingParser:
    """Arguments of all benchmarks of trainings."""
    parser = TrainingParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    tasks = list(dict.fromkeys(task for of_scale in scales.values() for task in of_scale))
    parser.add_argument("--scale", choices=scales, default="cpu")
    parser.add_argument("--tasks", nargs="+", choices=tasks, help="not given: all of the scale")
    parser.add_argument("--output_dir", type=Path, default=RESULTS, help="folder of the tables")
    parser.add_argument("--cache_dir", type=Path, help="prepared data; not given: `cache` in a folder of your own")
    parser.add_argument("--steps", type=positive, help="steps of every training; not given: those of the scale")
    parser.add_argument("--threads", type=int, help="CPU threads; not given: as torch decides")
    parser.add_argument(
        "--report_to", type=reporter, default="none", help="of the Trainer: tensorboard, wandb; not given: nowhere"
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML or JSON with options, which others override")
    return parser


def reporter(text: str) -> str:
    installed = get_available_reporting_integrations()
    if text not in ("none", *installed):
        raise argparse.ArgumentTypeError(f"{text!r} is not installed, or unknown: none, {', '.join(installed)}")
    return text


def positive(text: str) -> int:
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


def chosen_tasks(parser: argparse.ArgumentParser, args: argparse.Namespace, scales: dict[str, dict]) -> list[str]:
    """The tasks that were asked for, or all of the scale; ends with a message if the scale has not all of them."""
    if missing := set(args.tasks or []) - set(scales[args.scale]):
        parser.error(f"scale {args.scale} has no {' and no '.join(sorted(missing))}: {', '.join(scales[args.scale])}")
    return args.tasks or list(scales[args.scale])


def comparison_arguments(
    args: list[str] | None, description: str, scales: dict[str, dict[str, object]], models: Iterable[str]
) -> argparse.Namespace:
    """Parse the arguments of benchmarks that train several models with several seeds; `tasks` are those to do."""
    parser = training_arguments(description, scales)
    parser.add_argument("--models", nargs="+", choices=list(models), default=list(models))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--times", type=int, default=1, help="train for so many times the steps, in rows of their own")
    parser.add_argument("--quick", action="store_true", help="scale quick, one seed")
    parsed = parser.parse_args(args)
    if parsed.quick:
        parsed.scale, parsed.seeds = "quick", parsed.seeds[:1]
    parsed.tasks = chosen_tasks(parser, parsed, scales)
    return parsed


def same_settings(found: str, settings: str) -> bool:
    """Whether a row is of these settings; those of the first rows do not name their data."""
    return found == settings or found == re.sub(r"\bdata=\w+ ", "", settings)


def check_comparable(path: Path, rows: list[dict], settings: str) -> None:
    """
    Raises:
        ValueError: if rows of the same table have other sizes, steps or batches, so that their scores cannot stand
            beside those of these `settings`.
    """
    of_all = lambda text: re.sub(r"\b(learning_rate|mixer|data)=\S+\s?", "", text).strip()
    if others := [row["settings"] for row in rows if of_all(row["settings"]) != of_all(settings)]:
        raise ValueError(
            f"{path} has trainings that are not comparable ({others[0]}) with these ({settings}): give another "
            "--output_dir."
        )


def is_measured(path: Path, case: dict, settings: str) -> bool:
    """Whether a table has rows of a case. Raises a ValueError if they, or those of others, are of other `settings`."""
    found = read_rows(path, **case)
    if found and not same_settings(found[-1]["settings"], settings):
        raise ValueError(f"{path} is of another experiment ({found[-1]['settings']}): give another --output_dir.")
    if case["seed"] is not None:  # but a training
        of_all = {name: value for name, value in case.items() if name not in ("model", "seed")}
        check_comparable(path, [row for row in read_rows(path, **of_all) if row["seed"] is not None], settings)
    return bool(found)
