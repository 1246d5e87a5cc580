# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Find the checkpoint from which a stopped training resumes."""

import json
import os
import re
from dataclasses import fields
from pathlib import Path

from transformers import AutoConfig, PreTrainedConfig, TrainingArguments
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


def asked_checkpoint(training_args: TrainingArguments) -> str | None:
    """
    Return the folder of `--resume_from_checkpoint`; "last" is the newest complete one. Raises a ValueError if it is
    incomplete, or lies outside of the output folder, and that is not free (`check_free`).
    """
    asked, output_dir = training_args.resume_from_checkpoint, training_args.output_dir
    if not asked:
        return None
    if asked.lower() in (LAST, "true"):
        if (checkpoint := last_whole_checkpoint(output_dir)) is None:
            raise ValueError(f"{RESUME}: --output_dir {output_dir} has no complete checkpoint. Leave the option out.")
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
        print(f"Going on from {checkpoint}. To start from scratch, change --output_dir or empty it.")
    return checkpoint


def check_same_model(checkpoint: str, config: PreTrainedConfig) -> None:
    """
    Raise a ValueError if the model of `checkpoint` differs from `config` in its labels, or in a field of its class
    that changes the result and does not come from the tokenizer. Checkpoints of adapters have no such fields.
    """
    if Path(checkpoint, ADAPTER_CONFIG_NAME).is_file():
        return
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
