# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The command `lion convert`: make an encoder of transformers linear, or convert a published LION checkpoint."""

import argparse
from pathlib import Path
from typing import get_args

from tokenization_lion import lion_image_processor
from transformers.image_utils import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD

from configuration_lion import LionConfig
from configuration_lion.registry import FEATURE_MAPS
from modeling_lion import LionForImageClassification, LionForMaskedLM, LionForSequenceClassification
from modeling_lion.linearized.config import linearized_feature_maps, linearized_mixers

from ..checkpoint import fit_length, load_preprocessor, new_folder
from ..verify import Verification, print_table, verification_table, verify_checkpoint
from .encoder import convert_encoder
from .original import POSITION_EMBEDDINGS, convert_original_state_dict, infer_config, load_checkpoint, model_class


TASKS = {
    "mlm": LionForMaskedLM,
    "image-classification": LionForImageClassification,
    "sequence-classification": LionForSequenceClassification,
}
WEIGHTS = (".bin", ".pt", ".pth", ".safetensors")  # suffixes of published checkpoints
# Fields of the configuration of a published checkpoint that are options of the command.
FIELDS = (
    "num_attention_heads",
    "image_size",
    "pooling",
    "position_embedding_type",
    "mixer_type",
    "head_directions",
    "feature_map",
    "normalization",
    "patch_order",
)
ENCODER_OPTIONS = ("layers", "mixer", "window", "exact_length", "positions", "dtype")
REPORTED_FIELDS = (*FIELDS[2:], "attention_layer_norm", "num_hidden_layers", "num_attention_heads", "hidden_size")


def convert_checkpoint(
    checkpoint: str | Path, output_dir: str | Path, task: str, *, tokenizer: str | None = None, **fields
) -> tuple[str, Verification]:
    """
    Convert a published checkpoint to a folder that `from_pretrained` and `pipeline` load.

    Args:
        checkpoint: `.pt`, `.pth`, `.bin` or `.safetensors` file.
        output_dir: created only if the conversion succeeds.
        task: one of `TASKS`.
        tokenizer: folder or Hub name of the tokenizer that the text model was trained with; it is also saved.
        fields: see `infer_config`.

    Returns:
        A report as text, and the errors of every kernel in float32.

    Raises:
        ValueError: if the task head is for another task, a field is missing or contradicts the weights, or a tokenizer
            is given for an image model.
    """
    with new_folder(output_dir) as folder:
        state_dict = load_checkpoint(checkpoint)
        built_class = model_class(state_dict)
        if built_class is not TASKS[task]:
            right = next(name for name, value in TASKS.items() if value is built_class)
            raise ValueError(f"The task is {task!r}, but the task head in the state dict is one for {right!r}.")
        config = infer_config(state_dict, **fields)
        if tokenizer is not None and config.modality == "image":
            raise ValueError("This is an image model, which has no tokenizer: drop --tokenizer.")
        converted = convert_original_state_dict(state_dict, config)
        model = built_class(config)
        model.load_state_dict(converted)
        model.save_pretrained(folder)
        lines = [
            f"{len(state_dict)} weights of {Path(checkpoint).name} became {len(converted)} of {built_class.__name__}."
        ]
        if config.modality == "image":
            processor = lion_image_processor(
                config, image_mean=IMAGENET_DEFAULT_MEAN, image_std=IMAGENET_DEFAULT_STD, resample=3
            )
            processor.save_pretrained(folder)
            lines.append(
                f"Image processor: {'x'.join(map(str, config.image_shape))} pixels, bicubic, ImageNet's mean and "
                "standard deviation, as DeiT; change preprocessor_config.json if the model was trained otherwise."
            )
        elif tokenizer is not None:
            loaded = load_preprocessor("text", tokenizer)
            if len(loaded) > config.vocab_size:
                raise ValueError(f"The tokenizer has {len(loaded)} tokens, the model {config.vocab_size}.")
            fit_length(loaded, config.longest_text)
            loaded.save_pretrained(folder)
        else:
            lines.append("No tokenizer: give --tokenizer, or save the one that the model was trained with beside it.")
        if config.position_embedding_type == "none" and POSITION_EMBEDDINGS in state_dict:
            lines.append(f"Left out: {POSITION_EMBEDDINGS}, which a model with these decays does not use.")
        lines.append(
            "Configuration: " + ", ".join(f"{name}={getattr(config, name)!r}" for name in REPORTED_FIELDS) + "."
        )
        verification = verify_checkpoint(folder, dtypes=("float32",))
    return "\n".join(lines), verification


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Make an encoder of transformers (a folder or Hub name) linear beyond a length, or convert a checkpoint that "
        "the paper's authors published (a file of weights). Both write a new folder."
    )
    parser.add_argument("source", help="a folder or Hub name of an encoder; or a .pt, .pth, .bin or .safetensors file")
    parser.add_argument("folder", help="folder to create")
    names = ", ".join(linearized_mixers())
    choices = {*FEATURE_MAPS, *linearized_feature_maps()}
    parser.add_argument("--feature_map", choices=sorted(choices), help='default for encoders: "hedgehog"')
    encoder = parser.add_argument_group("options for encoders (as in modeling_lion.linearize)")
    encoder.add_argument(
        "--layers",
        type=parse_layers,
        help='which layers become linear: "all" (default), "global" for those without a window, "alternate", "none" '
        'or indices such as "0,2,4"; the others stay softmax, in linear time if they have a window',
    )
    encoder.add_argument("--mixer", metavar="NAME", help=f'{names}, or one of --mixers; default "lit"')
    encoder.add_argument("--window", type=int, metavar="TOKENS", help="tokens on each side for softmax; default 64")
    encoder.add_argument(
        "--exact_length",
        type=int,
        metavar="TOKENS",
        help="inputs of at most this many tokens are computed as before; default: the training length, at most 512",
    )
    encoder.add_argument("--positions", choices=["cyclic"], help="repeat a table of positions in longer texts")
    encoder.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], help="default: as stored")
    published = parser.add_argument_group("options for published checkpoints that do not determine them")
    published.add_argument("--task", choices=TASKS, help="task of the model")
    published.add_argument("--tokenizer", help="folder or Hub name of the tokenizer of a text model")
    published.add_argument("--labels", type=Path, metavar="FILE", help="names of the classes, one per line")
    published.add_argument(
        "--num_heads", "--num_attention_heads", type=int, metavar="N", dest="num_attention_heads", help="of each layer"
    )
    published.add_argument(
        "--image_size", type=int, nargs="+", metavar="PIXELS", help="one number, or height and width"
    )
    published.add_argument(
        "--mixer_type", choices=("lit", "decay", "selective"), help="LION-LIT, LION-D or LION-S; for encoders: --mixer"
    )
    for name in FIELDS[2:]:
        if name not in ("mixer_type", "feature_map"):
            published.add_argument(f"--{name}", choices=_choices(LionConfig, name), help="as in LionConfig")


def _choices(config_class: type, field: str) -> list[str]:
    """Return the allowed values of a field of a configuration, `Literal[...]` or `Literal[...] | None`."""
    values = get_args(config_class.__annotations__[field])
    return [value for value in values if isinstance(value, str)] or list(get_args(values[0]))


def parse_layers(words: str) -> str | list[int]:
    """Parse "0,2,4" as indices of layers, and "none" as no index. Other words are unchanged."""
    if words == "none":
        return []
    return [int(index) for index in words.split(",")] if words.replace(",", "").isdigit() else words


def run(args: argparse.Namespace) -> int:
    """Run the command `lion convert`. Returns its exit code."""
    given = {name: value for name, value in vars(args).items() if value is not None}
    of_encoder = {name: given[name] for name in (*ENCODER_OPTIONS, "feature_map") if name in given}
    of_published = {name: given[name] for name in ("task", "tokenizer", "labels", *FIELDS) if name in given}
    is_file = Path(args.source).is_file()
    if not is_file and Path(args.source).suffix in WEIGHTS:
        raise FileNotFoundError(f"There is no file or folder {args.source} to convert.")
    if wrong := (of_encoder if is_file else of_published).keys() - {"feature_map"}:
        kind = "a file, and so a published checkpoint" if is_file else "no file, and so an encoder of transformers"
        raise ValueError(f"{args.source} is {kind}: drop --{', --'.join(sorted(wrong))}.")
    if not is_file:
        print(convert_encoder(args.source, args.folder, **of_encoder))
        return 0
    return run_published(args, {name: of_published[name] for name in FIELDS if name in of_published})


def run_published(args: argparse.Namespace, fields: dict) -> int:
    """Run the command for a published checkpoint. Returns its exit code."""
    if len(size := fields.get("image_size", ())) == 1:
        fields["image_size"] = size[0]
    if args.labels is not None:
        labels = [label.strip() for label in args.labels.read_text(encoding="utf-8").split("\n") if label.strip()]
        fields |= {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}
    if args.task is None:
        raise ValueError(f"--task is needed: one of {', '.join(TASKS)}.")
    report, verification = convert_checkpoint(args.source, args.folder, args.task, tokenizer=args.tokenizer, **fields)
    print(f"{report}\nLargest error of the kernels against the float64 reference, on {verification.inputs}:")
    print_table(verification_table(verification))
    if not verification.passed:
        print(f"FAILED: `lion verify {args.folder}` shows more.")
    return 0 if verification.passed else 1
