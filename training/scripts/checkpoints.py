# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Find the checkpoint from which a stopped training resumes."""

import json
import os
import re
from dataclasses import fields
from pathlib import Path

from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import TrainerState
from transformers.trainer_utils import sort_checkpoints
from transformers.utils import ADAPTER_CONFIG_NAME

from modeling_lion.portable_code import GROUPS

from .arguments import LAST, RESUME


def last_whole_checkpoint(folder: str | Path) -> str | None:
    """
    Return the newest complete checkpoint, or `None`. The trainer's state is written last. (transformers'
    `get_last_checkpoint` also finds incomplete checkpoints, from which training cannot resume.)
    """
    if not os.path.isdir(folder):
        return None
    for checkpoint in reversed(sort_checkpoints(str(folder))):
        if steps_of(checkpoint) is not None:
            return checkpoint
        print(f"{checkpoint} is incomplete: the training was stopped while it was written. It is ignored.")
    return None


def steps_of(folder: str | Path) -> int | None:
    """Return after how many steps a checkpoint or an output folder was saved; `None` if it is incomplete."""
    try:
        return TrainerState.load_from_json(os.path.join(folder, TRAINER_STATE_NAME)).global_step
    except (FileNotFoundError, json.JSONDecodeError):
        return None


def check_resumable(checkpoint: str) -> None:
    """Raise a ValueError for a checkpoint of weights alone: the optimizer and the learning rate would start anew."""
    if not any(Path(checkpoint).glob("rng_state*.pth")):
        raise ValueError(
            f"{checkpoint} was saved with --save_only_model, so that no training can go on from it: give it to "
            "--model_name_or_path to start from its weights, and another --output_dir, or delete it."
        )


def asked_checkpoint(training_args: TrainingArguments) -> str | None:
    """
    Return the folder of `--resume_from_checkpoint`; "last" is the newest complete one. Raises a ValueError if it is
    incomplete, has weights alone, or has later ones beside it, or lies outside of the output folder, and that is not
    free (`check_free`).
    """
    asked, output_dir = training_args.resume_from_checkpoint, training_args.output_dir
    if not asked:
        return None
    if asked.lower() in (LAST, "true"):
        if (checkpoint := last_whole_checkpoint(output_dir)) is None:
            raise ValueError(f"{RESUME}: --output_dir {output_dir} has no complete checkpoint. Leave the option out.")
        check_resumable(checkpoint)
        return checkpoint
    if not os.path.isdir(asked):
        raise ValueError(f"{RESUME} {asked} is no folder. Leave out the name to go on from the last in --output_dir.")
    if steps_of(asked) is None:
        whole = last_whole_checkpoint(Path(asked).parent)
        raise ValueError(
            f"{RESUME} {asked} is incomplete: the training was stopped while it was written. "
            + ("There is no complete one beside it." if whole is None else f"Go on from {whole}.")
        )
    if Path(asked).resolve().parent != Path(output_dir).resolve():
        check_free(output_dir)
    elif (last := last_whole_checkpoint(output_dir)) is not None and steps_of(last) > steps_of(asked):
        raise ValueError(
            f"{RESUME} {asked}: {last} is later, and a training that is stopped would go on from that. Give "
            "another --output_dir, or delete the later checkpoints."
        )
    check_resumable(asked)
    return asked


# Files that may be in the output folder of a new training: those of an interrupted one (docstrings of distill.py in
# `text`; the tokenizer of run_mlm.py, with code) and logs. Beside a config.json, all files may.
BEGUN = re.compile(
    r"checkpoint-\d+|runs|text|.*\.(log|out|err)|tokenizer.*\.json|special_tokens_map\.json|.*_results\.json|"
    rf"({'|'.join(GROUPS)})\.py"
)


def has_weights(folder: str | Path) -> bool:
    return any(path.suffix in (".safetensors", ".bin") for path in Path(folder).iterdir())


def check_free(folder: str | Path) -> None:
    """Raise a ValueError if a folder has a trained model, or files of another kind."""
    if not os.path.isdir(folder):
        return
    if has_weights(folder):
        raise ValueError(
            f"--output_dir {folder} has a trained model, which a training would replace: give another folder, or "
            "delete it to train anew."
        )
    names = sorted(path.name for path in Path(folder).iterdir())
    others = [name for name in names if not BEGUN.fullmatch(name)]
    if others and "config.json" not in names:
        some = ", ".join(others[:3]) + " …" * (len(others) > 3)
        raise ValueError(f"--output_dir {folder} has other files ({some}): give a folder of its own.")


def asked_checkpoint_or_free(training_args: TrainingArguments) -> str | None:
    """`asked_checkpoint`. Without one, the output folder must have no checkpoint, and be free (`check_free`)."""
    checkpoint, output_dir = asked_checkpoint(training_args), training_args.output_dir
    if checkpoint is None:
        if (last := last_whole_checkpoint(output_dir)) is not None:
            raise ValueError(
                f"--output_dir {output_dir} has the checkpoint {last}: give {RESUME} to go on from it, or another "
                "folder, or delete it to train anew."
            )
        check_free(output_dir)
    return checkpoint


def find_checkpoint(training_args: TrainingArguments) -> str | None:
    """
    Return the checkpoint to resume from: the one that was asked for, else the last one in the output folder. If there
    is none, the folder must be free (`check_free`).
    """
    if not training_args.do_train:
        return None
    if training_args.resume_from_checkpoint:
        return asked_checkpoint(training_args)
    checkpoint = last_whole_checkpoint(training_args.output_dir)
    if checkpoint is None:
        check_free(training_args.output_dir)
    else:
        check_resumable(checkpoint)
        print(f"Going on from {checkpoint}. To start from scratch, change --output_dir or empty it.")
    return checkpoint


# Fields of an adapter's configuration that make it another one.
ADAPTER_FIELDS = ("base_model_name_or_path", "lora_alpha", "peft_type", "r")


def check_same_model(checkpoint: str, model: PreTrainedModel) -> None:
    """
    Raise a ValueError if the model of `checkpoint` differs from `model` in its labels, or in a field of its
    configuration that changes the result and does not come from the tokenizer; or an adapter in its base or size.
    """
    path, adapters = Path(checkpoint, ADAPTER_CONFIG_NAME), getattr(model, "peft_config", None)
    if path.is_file() != bool(adapters):
        kinds = ("a whole model", "an adapter")
        raise ValueError(
            f"{checkpoint} has {kinds[path.is_file()]}, and {kinds[bool(adapters)]} is trained now: give another "
            "--output_dir, or ask for what was trained before."
        )
    if adapters:
        names, (adapter, *_) = ADAPTER_FIELDS, adapters.values()
        saved, asked = json.loads(path.read_text(encoding="utf-8")), adapter.to_dict()
    else:
        config = model.config
        names = {f.name for f in fields(config)} - {f.name for f in fields(PreTrainedConfig)} | {"id2label"}
        names = {name for name in names if name != "chunk_size" and not name.endswith("_token_id")}
        # As JSON, where a tuple and a list are the same.
        configs = (AutoConfig.from_pretrained(checkpoint), config)
        saved, asked = (json.loads(x.to_json_string(use_diff=False)) for x in configs)
    if different := [name for name in sorted(names) if saved.get(name) != asked.get(name)]:
        changes = ", ".join(f"{name} {saved.get(name)} (now {asked.get(name)})" for name in different)
        raise ValueError(
            f"{checkpoint} is of another model: {changes}. To go on from it, ask for the model as before; to train "
            "the new one, give another --output_dir, or empty it, and leave out --resume_from_checkpoint."
        )
