# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Convert checkpoints in the two layouts that the paper's authors published to LION models of this package.

Images (DeiT, timm): `cls_token`, `pos_embed`, `patch_embed.proj`, in `blocks.<i>` `norm1`, `norm2`, `attn.qkv`,
`attn.proj`, `mlp.fc1` and `mlp.fc2`, then `norm` and `head`. Decays: `attn.a_i`, a vector in LION-D, a linear layer in
LION-S; the second curve of a snake scan has `attn.a2_i`.

Text (Composer, BERT): `bert.embeddings`, `bert.encoder.layer.<i>`, in `attention.self` BERT's `query`, `key`, `value`
and `layer_norm` (over the concatenated heads), `ai` (LION-D) or `Wa_i` (LION-S); `cls.predictions`, or
`bert.pooler.dense` and `classifier`.

λ is sigmoid(a_i) in LION-D, but 1 - sigmoid(logit) in LION-S: the signs of its weights and biases change (SPEC §2).
"""

import argparse
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from tokenization_lion import lion_image_processor
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedModel
from transformers.image_utils import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD

from configuration_lion import LionConfig
from modeling_lion import LionForImageClassification, LionForMaskedLM, LionForSequenceClassification

from .new_folder import new_folder
from .verify import Verification, print_table, verification_table, verify_checkpoint
from .warm_start import save_warm_start


TASKS = {
    "mlm": LionForMaskedLM,
    "image-classification": LionForImageClassification,
    "sequence-classification": LionForSequenceClassification,
}

# Under any of these keys a training checkpoint keeps its weights, next to the state of the optimizer.
WRAPPERS = ("state", "model", "state_dict")
PREFIXES = ("module.", "_orig_mod.", "model.")
# Constants that some versions of BERT save.
BUFFERS = ("bert.embeddings.position_ids", "bert.embeddings.token_type_ids")
WORD_EMBEDDINGS = "bert.embeddings.word_embeddings.weight"
POSITION_EMBEDDINGS = "bert.embeddings.position_embeddings.weight"
DECODER = "cls.predictions.decoder.weight"
DECODER_BIASES = ("cls.predictions.decoder.bias", "cls.predictions.bias")
REPORTED_FIELDS = (
    "mixer_type",
    "patch_order",
    "feature_map",
    "normalization",
    "attention_layer_norm",
    "position_embedding_type",
    "pooling",
    "num_hidden_layers",
    "num_attention_heads",
    "hidden_size",
)


def load_checkpoint(path: str | Path) -> dict[str, Tensor]:
    """
    The weights in a `.safetensors` file, or in a pickle that holds nothing but numbers (`weights_only=True`).

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is damaged, holds anything that would have to be executed, or no weights.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no checkpoint {path}: give a .pt, .pth, .bin or .safetensors file.")
    if path.suffix == ".safetensors":
        try:
            return unwrap_state_dict(load_file(path))
        except SafetensorError as error:
            raise ValueError(f"{path} is damaged or cut short ({error}): download or save it again.") from error
    # Plain containers that training scripts save beside the weights: parsed arguments, the state of numpy's random
    # numbers. Old files have numpy's names from before 2.0.
    reconstruct = np.empty(0).__reduce__()[0]
    allowed = [
        argparse.Namespace,
        np.ndarray,
        np.dtype,
        type(np.dtype(np.uint32)),
        (reconstruct, "numpy._core.multiarray._reconstruct"),
        (reconstruct, "numpy.core.multiarray._reconstruct"),
    ]
    try:
        with torch.serialization.safe_globals(allowed):
            checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds, by what is wrong with the file
        reason = (str(error) or repr(error)).splitlines()[0]
        raise ValueError(
            f"{path} cannot be read as weights only ({reason}). If it is whole and you trust it, save its weights "
            'alone: torch.save(torch.load(path, weights_only=False)["state"]["model"], "weights.pt"), with the keys '
            "under which it keeps them."
        ) from error
    return unwrap_state_dict(checkpoint)


def unwrap_state_dict(checkpoint: Mapping) -> dict[str, Tensor]:
    """
    The state dict inside a training checkpoint, without the prefixes that wrappers of the model put before names.

    Raises:
        ValueError: if there is none.
    """
    while isinstance(checkpoint, Mapping) and not any(isinstance(value, Tensor) for value in checkpoint.values()):
        inner = next((checkpoint[key] for key in WRAPPERS if isinstance(checkpoint.get(key), Mapping)), None)
        if inner is None:
            break
        checkpoint = inner
    if not isinstance(checkpoint, Mapping) or not any(isinstance(value, Tensor) for value in checkpoint.values()):
        raise ValueError(f"The checkpoint holds no state dict, neither at the top nor under {', '.join(WRAPPERS)}.")
    if others := [str(name) for name, value in checkpoint.items() if not isinstance(value, Tensor)]:
        raise ValueError(f"There are things among the weights that are no tensors: {listed(others)}.")
    state_dict = dict(checkpoint)
    while prefix := next((p for p in PREFIXES if all(name.startswith(p) for name in state_dict)), None):
        state_dict = {name.removeprefix(prefix): value for name, value in state_dict.items()}
    return state_dict


def infer_config(state_dict: Mapping[str, Tensor], **fields) -> LionConfig:
    """
    The configuration of a published model: what its state dict shows, the published recipe of its kind (SPEC §6, §7),
    and what only its user knows.

    Args:
        state_dict: names and tensors as published; wrappers are taken off.
        fields: fields of `LionConfig`. Needed where the state dict cannot show them: `num_attention_heads` for
            LION-LIT; `pooling` for images; `image_size` for images without positions, or with a grid that is no
            square; `pooling="mean"` for text classification without BERT's pooler. Text keeps a table of positions
            even if it never uses it: `position_embedding_type` is "absolute" for LION-LIT and "none" for the others,
            unless given.

    Raises:
        ValueError: if the layout is unknown, a field is missing, or a given field contradicts the state dict.
    """
    state_dict = unwrap_state_dict(state_dict)
    if "patch_embed.proj.weight" in state_dict:
        shown, recipe = _shown_by_image_model(state_dict, fields)
    elif WORD_EMBEDDINGS in state_dict:
        shown, recipe = _shown_by_text_model(state_dict)
    else:
        raise ValueError(
            "This is neither of the published layouts: there is no patch_embed.proj.weight (images) and no "
            f"{WORD_EMBEDDINGS} (text) among {listed(state_dict)}."
        )
    if "id2label" in fields and "num_labels" in shown:
        fields = {**fields, "id2label": {int(i): label for i, label in fields["id2label"].items()}}
        if len(fields["id2label"]) != shown["num_labels"]:
            raise ValueError(
                f"There are {len(fields['id2label'])} labels for a head with {shown['num_labels']} outputs."
            )
        fields.setdefault("label2id", {label: i for i, label in fields["id2label"].items()})
        del shown["num_labels"]
    for name, value in shown.items():
        if name in fields and _plain(fields[name]) != _plain(value):
            raise ValueError(f"`{name}` is {fields[name]!r}, but the state dict has {value!r}.")
    fields = recipe | shown | fields
    for name, hint in {
        "num_attention_heads": "--num_heads: nothing in a LION-LIT checkpoint shows the number of heads",
        "pooling": "--pooling: whether the head reads the CLS token ('cls') or the average of all tokens ('mean')",
        "image_size": "--image_size: a model without positions, or with a grid that is no square, does not show it",
    }.items():
        if name in fields and fields[name] is None:
            raise ValueError(f"`{name}` is needed. On the command line, {hint}.")
    return LionConfig(**fields)


def _plain(value):
    return [value, value] if isinstance(value, int) and not isinstance(value, bool) else json.loads(json.dumps(value))


def _num_layers(state_dict: Mapping[str, Tensor], pattern: str) -> int:
    return max((int(match[1]) + 1 for name in state_dict if (match := re.match(pattern, name))), default=0)


def _mixer(state_dict: Mapping[str, Tensor], decay: str, gate: str) -> tuple[str, int | None]:
    """Type of the mixer and number of heads, from the names of the decays in the first layer."""
    if decay in state_dict:
        return "decay", state_dict[decay].numel()
    if f"{gate}.weight" in state_dict:
        return "selective", state_dict[f"{gate}.weight"].shape[0]
    return "lit", None


def _shown_by_image_model(state_dict: Mapping[str, Tensor], fields: Mapping) -> tuple[dict, dict]:
    patches = state_dict["patch_embed.proj.weight"]
    mixer_type, num_heads = _mixer(state_dict, "blocks.0.attn.a_i", "blocks.0.attn.a_i")
    fc1 = state_dict.get("blocks.0.mlp.fc1.weight")
    patch_size = tuple(patches.shape[2:])
    shown = {
        "modality": "image",
        "mixer_type": mixer_type,
        "hidden_size": patches.shape[0],
        "num_channels": patches.shape[1],
        "patch_size": patch_size[0] if patch_size[0] == patch_size[1] else patch_size,
        "num_hidden_layers": _num_layers(state_dict, r"blocks\.(\d+)\."),
        "intermediate_size": fc1.shape[0] if fc1 is not None else 4 * patches.shape[0],
        "qkv_bias": "blocks.0.attn.qkv.bias" in state_dict,
        "position_embedding_type": "absolute" if "pos_embed" in state_dict else "none",
        "num_labels": state_dict["head.weight"].shape[0] if "head.weight" in state_dict else 0,
    }
    recipe = {
        "feature_map": "elu" if mixer_type == "lit" else "silu_norm",
        "normalization": "sum",
        "num_attention_heads": None,
        "pooling": None,
        "image_size": None,
    }
    if mixer_type != "lit":
        shown["num_attention_heads"] = num_heads
        is_snake = any(name.startswith("blocks.0.attn.a2_i") for name in state_dict)
        shown["patch_order"] = "snake" if is_snake else "raster"
    if "pos_embed" in state_dict and fields.get("image_size") is None:
        num_patches = state_dict["pos_embed"].shape[1] - 1
        side = round(num_patches**0.5)
        if side * side == num_patches:
            size = (side * patch_size[0], side * patch_size[1])
            recipe["image_size"] = size[0] if size[0] == size[1] else size
    return shown, recipe


def _shown_by_text_model(state_dict: Mapping[str, Tensor]) -> tuple[dict, dict]:
    layer = "bert.encoder.layer.0."
    words = state_dict[WORD_EMBEDDINGS]
    mixer_type, num_heads = _mixer(state_dict, layer + "attention.self.ai", layer + "attention.self.Wa_i")
    up = state_dict.get(layer + "intermediate.dense.weight")
    shown = {
        "modality": "text",
        "mixer_type": mixer_type,
        "vocab_size": words.shape[0],
        "hidden_size": words.shape[1],
        "num_hidden_layers": _num_layers(state_dict, r"bert\.encoder\.layer\.(\d+)\."),
        "intermediate_size": up.shape[0] if up is not None else 4 * words.shape[1],
        "qkv_bias": layer + "attention.self.query.bias" in state_dict,
        "attention_layer_norm": layer + "attention.self.layer_norm.weight" in state_dict,
    }
    if mixer_type != "lit":
        shown["num_attention_heads"] = num_heads
    if POSITION_EMBEDDINGS in state_dict:
        shown["max_position_embeddings"] = state_dict[POSITION_EMBEDDINGS].shape[0]
    if (types := state_dict.get("bert.embeddings.token_type_embeddings.weight")) is not None:
        shown["type_vocab_size"] = types.shape[0]
    recipe = {"feature_map": "identity", "normalization": "none", "num_attention_heads": None}
    if "classifier.weight" in state_dict:
        shown["num_labels"] = state_dict["classifier.weight"].shape[0]
        if "bert.pooler.dense.weight" in state_dict:
            shown["pooling"] = "cls"
        else:
            recipe["pooling"] = None
    elif DECODER in state_dict:
        shown["tie_word_embeddings"] = torch.equal(state_dict[DECODER], words)
    return shown, recipe


@dataclass
class Weight:
    """How a weight of ours is made: of which published ones, and by what."""

    names: tuple[str, ...]
    make: Callable[..., Tensor] = lambda tensor: tensor


def _weights_of_decays(config: LionConfig, mixer: str, decays: tuple[str, ...]) -> dict[str, Weight]:
    """Our decays are ordered by scan, then by head: those of the first curve, then those of the second."""
    if config.mixer_type == "decay":
        return {f"{mixer}decay_bias": Weight(decays, lambda *scans: torch.cat([scan.flatten() for scan in scans]))}
    if config.mixer_type == "selective":
        return {
            f"{mixer}decay_proj.{kind}": Weight(
                tuple(f"{name}.{kind}" for name in decays), lambda *scans: -torch.cat(scans)
            )
            for kind in ("weight", "bias")
        }
    return {}


def _renamed(names: Mapping[str, str], kinds: tuple[str, ...] = ("weight", "bias")) -> dict[str, Weight]:
    return {f"{ours}.{kind}": Weight((f"{published}.{kind}",)) for published, ours in names.items() for kind in kinds}


def _weights_of_image_model(config: LionConfig) -> dict[str, Weight]:
    weights = {"lion.embeddings.cls_token": Weight(("cls_token",))}
    if config.position_embedding_type == "absolute":
        weights["lion.embeddings.position_embeddings"] = Weight(("pos_embed",))
    weights |= _renamed({"patch_embed.proj": "lion.embeddings.patch_embeddings"})
    if config.norm_position == "pre":
        weights |= _renamed({"norm": "lion.norm"})
    if config.num_labels > 0:
        weights |= _renamed({"head": "classifier"})
    for i in range(config.num_hidden_layers):
        block, layer = f"blocks.{i}.", f"lion.layers.{i}."
        weights |= _renamed(
            {
                block + "norm1": layer + "attention_norm",
                block + "attn.proj": layer + "attention.o_proj",
                block + "norm2": layer + "mlp_norm",
                block + "mlp.fc1": layer + "mlp.up_proj",
                block + "mlp.fc2": layer + "mlp.down_proj",
            }
        )
        for kind in ("weight", "bias") if config.qkv_bias else ("weight",):
            for part, name in enumerate(("q_proj", "k_proj", "v_proj")):
                weights[f"{layer}attention.mixer.{name}.{kind}"] = Weight(
                    (f"{block}attn.qkv.{kind}",), lambda qkv, part=part: qkv.chunk(3)[part].clone()
                )
        decays = (block + "attn.a_i", block + "attn.a2_i")[: config.num_scans]
        weights |= _weights_of_decays(config, layer + "attention.mixer.", decays)
    return weights


def _weights_of_text_model(config: LionConfig, state_dict: Mapping[str, Tensor]) -> dict[str, Weight]:
    embeddings = {
        "bert.embeddings.word_embeddings": "lion.embeddings.word_embeddings",
        "bert.embeddings.token_type_embeddings": "lion.embeddings.token_type_embeddings",
    }
    if config.position_embedding_type == "absolute":
        embeddings["bert.embeddings.position_embeddings"] = "lion.embeddings.position_embeddings"
    weights = _renamed(embeddings, ("weight",)) | _renamed({"bert.embeddings.LayerNorm": "lion.embeddings.layer_norm"})
    for i in range(config.num_hidden_layers):
        bert, layer = f"bert.encoder.layer.{i}.", f"lion.layers.{i}."
        for published, ours in {"query": "q_proj", "key": "k_proj", "value": "v_proj"}.items():
            names = {f"{bert}attention.self.{published}": f"{layer}attention.mixer.{ours}"}
            weights |= _renamed(names, ("weight", "bias") if config.qkv_bias else ("weight",))
        names = {
            bert + "attention.output.dense": layer + "attention.o_proj",
            bert + "attention.output.LayerNorm": layer + "attention_norm",
            bert + "intermediate.dense": layer + "mlp.up_proj",
            bert + "output.dense": layer + "mlp.down_proj",
            bert + "output.LayerNorm": layer + "mlp_norm",
        }
        if config.attention_layer_norm:
            names[bert + "attention.self.layer_norm"] = layer + "attention.layer_norm"
        decay = bert + ("attention.self.ai" if config.mixer_type == "decay" else "attention.self.Wa_i")
        weights |= _renamed(names) | _weights_of_decays(config, layer + "attention.mixer.", (decay,))
    if _is_classifier(state_dict):
        weights |= _renamed({"classifier": "classifier"})
        if config.pooling == "cls":
            weights |= _renamed({"bert.pooler.dense": "lion.pooler.dense"})
        return weights
    weights |= _renamed(
        {
            "cls.predictions.transform.dense": "lm_head.dense",
            "cls.predictions.transform.LayerNorm": "lm_head.layer_norm",
        }
    )
    weights["lm_head.decoder.weight"] = Weight((DECODER if DECODER in state_dict else WORD_EMBEDDINGS,))
    weights["lm_head.decoder.bias"] = Weight(
        (next((name for name in DECODER_BIASES if name in state_dict), DECODER_BIASES[-1]),)
    )
    return weights


def _is_classifier(state_dict: Mapping[str, Tensor]) -> bool:
    return any(name.startswith("classifier.") for name in state_dict)


def model_class(state_dict: Mapping[str, Tensor]) -> type[PreTrainedModel]:
    """The class of ours for a published state dict, by its head."""
    if "patch_embed.proj.weight" in state_dict:
        return LionForImageClassification
    return LionForSequenceClassification if _is_classifier(state_dict) else LionForMaskedLM


def convert_original_state_dict(state_dict: Mapping[str, Tensor], config: LionConfig) -> dict[str, Tensor]:
    """
    The state dict of a LION model that computes what a published model computes.

    Args:
        state_dict: names and tensors in one of the two published layouts (see this module's docstring), with or
            without the wrappers of a training checkpoint.
        config: of the model to make, for example from `infer_config`.

    Returns:
        All weights of `LionForMaskedLM`, `LionForSequenceClassification` or `LionForImageClassification`, by the
        head that the state dict has; for `model.load_state_dict(...)`. Dtypes are kept.

    Raises:
        ValueError: with the list of names, if weights are missing, are left over, have shapes that do not fit
            the configuration, or are two different values for one of ours.
    """
    state_dict = unwrap_state_dict(state_dict)
    built_class = model_class(state_dict)
    if config.modality not in built_class._modalities:
        raise ValueError(f"`modality` is {config.modality!r}, but the state dict is of {built_class._modalities[0]}.")
    if config.modality == "image":
        weights, unused = _weights_of_image_model(config), set()
    else:
        weights, unused = _weights_of_text_model(config, state_dict), set(BUFFERS)
        if config.position_embedding_type == "none":
            unused.add(POSITION_EMBEDDINGS)  # saved by every published text model, used by few
        if built_class is LionForMaskedLM:
            unused.update(DECODER_BIASES)  # two names of one bias

    needed = {name for weight in weights.values() for name in weight.names}
    problems = {
        "missing": sorted(needed - state_dict.keys()),
        "unexpected": sorted(state_dict.keys() - needed - unused),
    }
    if any(problems.values()):
        raise ValueError(
            f"The state dict does not fit a {config.mixer_type!r} model of this configuration. "
            + " ".join(f"{kind.capitalize()}: {', '.join(names)}." for kind, names in problems.items() if names)
        )
    biases = [state_dict[name] for name in DECODER_BIASES if name in state_dict]
    if len(biases) == 2 and not torch.equal(*biases):
        raise ValueError(f"{' and '.join(DECODER_BIASES)} differ, but are one bias in a model.")
    is_tied = DECODER not in state_dict or torch.equal(state_dict[DECODER], state_dict[WORD_EMBEDDINGS])
    if config.tie_word_embeddings and not is_tied:
        raise ValueError(f"{DECODER} differs from {WORD_EMBEDDINGS}: set `tie_word_embeddings=False`.")

    converted = {ours: weight.make(*(state_dict[name] for name in weight.names)) for ours, weight in weights.items()}
    with torch.device("meta"):
        expected = built_class(config).state_dict()
    if wrong := [
        f"{' + '.join(weights[name].names)} {tuple(tensor.shape)} instead of {tuple(expected[name].shape)}"
        for name, tensor in converted.items()
        if tensor.shape != expected[name].shape
    ]:
        raise ValueError(f"The state dict has shapes that do not fit the configuration: {'; '.join(wrong)}.")
    return converted


def listed(names, limit: int = 5) -> str:
    names = list(names)
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def convert_checkpoint(
    checkpoint: str | Path, output_dir: str | Path, task: str, *, tokenizer: str | None = None, **fields
) -> tuple[str, Verification]:
    """
    Convert a published checkpoint to a folder that `from_pretrained` and `pipeline` load.

    Args:
        checkpoint: `.pt`, `.pth`, `.bin` or `.safetensors` file.
        output_dir: is made; nothing is left there if anything goes wrong.
        task: one of `TASKS`.
        tokenizer: folder or Hub name of the tokenizer that the text model was trained with; it is saved, too.
        fields: see `infer_config`.

    Returns:
        What was carried, in words, and how far every kernel is from a float64 evaluation, in float32.

    Raises:
        ValueError, FileNotFoundError, FileExistsError: if anything does not fit; see the functions above.
    """
    with new_folder(output_dir) as folder:
        state_dict = load_checkpoint(checkpoint)
        built_class = model_class(state_dict)
        if built_class is not TASKS[task]:
            right = next(name for name, value in TASKS.items() if value is built_class)
            raise ValueError(f"The task is {task!r}, but the head in the state dict is one for {right!r}.")
        config = infer_config(state_dict, **fields)
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
            loaded = AutoTokenizer.from_pretrained(tokenizer)
            if len(loaded) > config.vocab_size:
                raise ValueError(f"The tokenizer has {len(loaded)} tokens, the model {config.vocab_size}.")
            loaded.save_pretrained(folder)
        else:
            lines.append("No tokenizer: give --tokenizer, or save the one that the model was trained with beside it.")
        if (
            config.modality == "text"
            and config.position_embedding_type == "none"
            and POSITION_EMBEDDINGS in state_dict
        ):
            lines.append(f"Left out: {POSITION_EMBEDDINGS}, which a model with these decays does not use.")
        lines.append(
            "Configuration: " + ", ".join(f"{name}={getattr(config, name)!r}" for name in REPORTED_FIELDS) + "."
        )
        verification = verify_checkpoint(folder, dtypes=("float32",))
    return "\n".join(lines), verification


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Make a LION model folder of a checkpoint that the paper's authors published, or, with --from-pretrained, of "
        "a BERT or ViT model."
    )
    parser.add_argument(
        "checkpoint", help=".pt, .pth, .bin or .safetensors file; a model folder or name with --from-pretrained"
    )
    parser.add_argument("output_dir", help="folder to make")
    parser.add_argument("--from-pretrained", action="store_true", help="warm start: the checkpoint is a BERT or a ViT")
    parser.add_argument("--task", choices=TASKS, help="what the head of a published checkpoint is for")
    parser.add_argument("--tokenizer", help="folder or Hub name of the tokenizer of a published text model")
    parser.add_argument("--labels", type=Path, metavar="FILE", help="names of the classes, one per line")
    fields = parser.add_argument_group("fields of the configuration, where the checkpoint does not show them")
    fields.add_argument("--num_heads", "--num_attention_heads", type=int, metavar="N", dest="num_attention_heads")
    fields.add_argument("--image_size", type=int, nargs="+", metavar="PIXELS", help="one number, or height and width")
    for name in ("pooling", "position_embedding_type", "mixer_type", "feature_map", "normalization", "patch_order"):
        fields.add_argument(f"--{name}", choices=_choices(name))


def _choices(field: str) -> list[str]:
    """The values that a field of the configuration may have."""
    return [
        value
        for part in get_args(LionConfig.__annotations__[field])
        for value in (get_args(part) or [part])
        if isinstance(value, str)
    ]


def run(args: argparse.Namespace) -> None:
    """The command `lion convert`."""
    names = ("num_attention_heads", "image_size", "pooling", "position_embedding_type", "mixer_type", "feature_map")
    fields = {name: getattr(args, name) for name in (*names, "normalization", "patch_order")}
    fields = {name: value for name, value in fields.items() if value is not None}
    if (size := fields.get("image_size")) is not None and len(size) == 1:
        fields["image_size"] = size[0]
    if args.labels is not None:
        labels = args.labels.read_text(encoding="utf-8").split("\n")
        fields["id2label"] = dict(enumerate(label.strip() for label in labels if label.strip()))
    if args.from_pretrained:
        if args.task or args.tokenizer:
            raise ValueError(
                "--from-pretrained takes the head and the tokenizer of the model: drop --task, --tokenizer."
            )
        print(save_warm_start(args.checkpoint, args.output_dir, **fields))
    elif args.task is None:
        raise ValueError(f"--task is needed: one of {', '.join(TASKS)}.")
    else:
        report, verification = convert_checkpoint(
            args.checkpoint, args.output_dir, args.task, tokenizer=args.tokenizer, **fields
        )
        print(f"{report}\nLargest error of the kernels against the float64 reference, on {verification.inputs}:")
        print_table(verification_table(verification))
