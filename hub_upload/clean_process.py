# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Load a checkpoint in a process that has transformers and torch, but not this package, and compare the outputs."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoTokenizer

from modeling_lion import LionPreTrainedModel
from modeling_lion.attention_names import attention_names

from .checkpoint import load_model
from .sample_inputs import model_batches, sample_inputs
from .tasks import auto_class_of, pipeline_of


HIDDEN = ("configuration_lion", "hub_upload_lion", "modeling_lion", "tokenization_lion")
TEXT_PAIR = ("The lion sleeps in the shade.", "It hunts at dawn.")


@dataclass(frozen=True)
class CleanLoad:
    """
    What the other process reported.

    Attributes:
        kernels: those whose outputs were bit for bit those of this process.
        model_class: the class that was loaded, with its module.
        tokenizer_needs_trust: whether the tokenizer loads with `trust_remote_code=True` only; `None` for images.
        pipeline, pipeline_output: task and output of the pipeline that ran; `None` if the library has none.
        versions: of torch and transformers.
    """

    kernels: tuple[str, ...]
    model_class: str
    tokenizer_needs_trust: bool | None
    pipeline: str | None
    pipeline_output: str | None
    versions: dict[str, str]


def load_in_clean_process(
    source: str | Path, *, offline: bool = True, environment: dict[str, str] | None = None, timeout: float = 600
) -> CleanLoad:
    """
    Load a bundle in a process where this package cannot be imported, and compare its outputs with this process's.

    That process loads the model with `trust_remote_code=True`, by the Auto class of its architecture, in every kernel,
    and by `AutoModel`; loads its tokenizer (with and without trust) or image processor; and runs a pipeline.

    Args:
        source: a folder or a Hub repository.
        offline: whether the process may not use the network (only folders load without).
        environment: variables to set there, for example `HF_ENDPOINT`.
        timeout: seconds to wait.

    Raises:
        ValueError: if the other process fails, or computes anything else than this one.
    """
    source = str(Path(source).absolute()) if Path(source).is_dir() else str(source)
    model = load_model(source)
    with tempfile.TemporaryDirectory(prefix="lion-clean-") as folder:
        folder = Path(folder)
        request = {
            "source": source,
            "hidden": HIDDEN,
            "num_threads": torch.get_num_threads(),
            "inputs": str(folder / "inputs.safetensors"),
            "outputs": str(folder / "outputs.safetensors"),
            "report": str(folder / "report.json"),
            "auto_class": auto_class_of(model),
            "kernels": list(attention_names(model.config)),
            "modality": model.config.modality,
            "text_pair": TEXT_PAIR,
            "pipeline": pipeline_of(model),
        }
        inputs = model_inputs(model, source)
        save_file(inputs, request["inputs"])
        # Its caches are empty: nothing may come from an earlier download or run.
        variables = {"HF_HOME": str(folder / "home"), "HF_MODULES_CACHE": str(folder / "modules"), "PYTHONPATH": ""}
        variables |= {"HF_HUB_OFFLINE": "1"} if offline else {}
        script = Path(__file__).with_name("clean_process_script.py").read_text(encoding="utf-8")
        process = subprocess.run(
            [sys.executable, "-c", script],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            cwd=folder,
            env=os.environ | variables | (environment or {}),
            timeout=timeout,
        )
        if process.returncode:
            raise ValueError(
                f"{source} does not load in a process without this package. It ended with:\n{process.stderr[-3000:]}"
            )
        outputs = load_file(request["outputs"])
        report = json.loads(Path(request["report"]).read_text(encoding="utf-8"))

    for kernel in request["kernels"]:
        model.set_attn_implementation(kernel)
        with torch.no_grad():
            expected = model(**inputs)
        for name, tensor in expected.items():
            if not torch.equal(tensor, outputs[f"{kernel}.{name}"]):
                raise ValueError(
                    f"{source}: `{name}` of the {kernel!r} kernel differs between this process and one without this "
                    "package. Its code and the installed one are not the same: make the bundle again."
                )
    tokens = report.get("tokens", {})
    if tokens:
        ours = dict(AutoTokenizer.from_pretrained(source, trust_remote_code=False)(*TEXT_PAIR))
        if any(theirs != ours for theirs in tokens.values()):
            raise ValueError(f"{source}: the tokenizer gives other tokens in a process without this package.")
    return CleanLoad(
        kernels=tuple(request["kernels"]),
        model_class=report["model_class"],
        tokenizer_needs_trust="untrusted" not in tokens if tokens else None,
        pipeline=request["pipeline"],
        pipeline_output=report.get("pipeline"),
        versions=report["versions"],
    )


def model_inputs(model: LionPreTrainedModel, source: str) -> dict[str, Tensor]:
    """A small batch of `sample_inputs`, with padding if it is text."""
    (inputs,) = model_batches(model, sample_inputs(model.config, source), "right")
    if auto_class_of(model) == "AutoModelForMultipleChoice":
        inputs = {name: tensor[:, None] for name, tensor in inputs.items()}
    return inputs
