# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The command `lion convert`: published checkpoints, or softmax encoders of transformers, to LION folders."""

import argparse
from pathlib import Path
from typing import get_args

from tokenization_lion import lion_image_processor
from transformers.image_utils import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD

from configuration_lion import LionConfig
from modeling_lion import LionForImageClassification, LionForMaskedLM, LionForSequenceClassification

from ..checkpoint import fit_length, load_preprocessor, new_folder
from ..verify import Verification, print_table, verification_table, verify_checkpoint
from .families import titles
from .original import POSITION_EMBEDDINGS, convert_original_state_dict, infer_config, load_checkpoint, model_class
from .warm_start import parse_linear_layers, save_warm_start


TASKS = {
    "mlm": LionForMaskedLM,
    "image-classification": LionForImageClassification,
    "sequence-classification": LionForSequenceClassification,
}
# Fields of the configuration that are options of the command.
FIELDS = (
    "num_attention_heads",
    "image_size",
    "local_window",
    "pooling",
    "position_embedding_type",
    "mixer_type",
    "head_directions",
    "feature_map",
    "normalization",
    "patch_order",
)
REPORTED_FIELDS = (*FIELDS[3:], "attention_layer_norm", "num_hidden_layers", "num_attention_heads", "hidden_size")


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
        ValueError: if the head is for another task, a field is missing or contradicts the weights, or an image model
            is given a tokenizer.
    """
    with new_folder(output_dir) as folder:
        state_dict = load_checkpoint(checkpoint)
        built_class = model_class(state_dict)
        if built_class is not TASKS[task]:
            right = next(name for name, value in TASKS.items() if value is built_class)
            raise ValueError(f"The task is {task!r}, but the head in the state dict is one for {right!r}.")
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
            fit_length(loaded, config)
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
        "Make a LION model folder of a checkpoint that the paper's authors published, or, with --from-pretrained, of "
        f"a trained encoder: {', '.join(titles())}."
    )
    parser.add_argument(
        "checkpoint", help=".pt, .pth, .bin or .safetensors file; a model folder or name with --from-pretrained"
    )
    parser.add_argument("output_dir", help="folder to create")
    parser.add_argument(
        "--from-pretrained", action="store_true", help="the checkpoint is a trained encoder of transformers"
    )
    parser.add_argument(
        "--linear_layers",
        default="global",
        type=parse_linear_layers,
        help='with --from-pretrained: which layers become linear: "global" (default), "alternate", "all", "none" or '
        'indices, "0,2,4"; the others stay softmax, in their window if they have one',
    )
    parser.add_argument("--task", choices=TASKS, help="task of the head of a published checkpoint")
    parser.add_argument("--tokenizer", help="folder or Hub name of the tokenizer of a published text model")
    parser.add_argument("--labels", type=Path, metavar="FILE", help="file with the names of the classes, one per line")
    fields = parser.add_argument_group("fields of the configuration, where the checkpoint does not show them")
    fields.add_argument("--num_heads", "--num_attention_heads", type=int, metavar="N", dest="num_attention_heads")
    fields.add_argument(
        "--local_window",
        type=int,
        metavar="TOKENS",
        help="tokens on each side that linear heads also see with softmax; 0 for none",
    )
    fields.add_argument("--image_size", type=int, nargs="+", metavar="PIXELS", help="one number, or height and width")
    for name in FIELDS[3:]:
        fields.add_argument(f"--{name}", choices=_choices(name))


def _choices(field: str) -> list[str]:
    """The allowed values of a field of the configuration, `Literal[...]` or `Literal[...] | None`."""
    values = get_args(LionConfig.__annotations__[field])
    return [value for value in values if isinstance(value, str)] or list(get_args(values[0]))


def run(args: argparse.Namespace) -> int:
    """The command `lion convert`."""
    fields = {name: getattr(args, name) for name in FIELDS if getattr(args, name) is not None}
    if len(size := fields.get("image_size", ())) == 1:
        fields["image_size"] = size[0]
    if args.labels is not None:
        labels = [label.strip() for label in args.labels.read_text(encoding="utf-8").split("\n") if label.strip()]
        fields |= {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}
    if args.from_pretrained:
        if args.task or args.tokenizer:
            raise ValueError(
                "--from-pretrained takes the head and the tokenizer of the model: drop --task, --tokenizer."
            )
        print(save_warm_start(args.checkpoint, args.output_dir, args.linear_layers, **fields))
        return 0
    if not Path(args.checkpoint).exists():
        raise FileNotFoundError(f"There is no file or folder {args.checkpoint} to convert.")
    if args.task is None:
        raise ValueError(f"--task is needed: one of {', '.join(TASKS)}.")
    report, verification = convert_checkpoint(
        args.checkpoint, args.output_dir, args.task, tokenizer=args.tokenizer, **fields
    )
    print(f"{report}\nLargest error of the kernels against the float64 reference, on {verification.inputs}:")
    print_table(verification_table(verification))
    if not verification.passed:
        print(f"FAILED: `lion verify {args.output_dir}` shows more.")
    return 0 if verification.passed else 1
