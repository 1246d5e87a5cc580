# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Load a checkpoint in a process that has transformers and torch, but not this package, and compare the outputs."""

import inspect
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoTokenizer

from ..checkpoint import load_model
from ..sample_inputs import model_batches, sample_inputs
from ..traits import traits_of
from .model_card import auto_class_of, pipeline_of


MOST_SECONDS = 600  # of a process: a large model on a busy machine takes minutes
HIDDEN = (
    "configuration_lion",
    "deploy_lion",
    "hub_upload_lion",
    "modeling_lion",
    "retrieval_lion",
    "tokenization_lion",
    "training_lion",
)
CODE = """
import sys
import torch

sys.modules.update(dict.fromkeys({hidden}))  # to import one is a ModuleNotFoundError
request = torch.load("request.pt", weights_only=True)
torch.set_num_threads(request["num_threads"])

{source}
torch.save({name}(request), "answer.pt")
"""
TEXT_PAIR = ("The lion sleeps in the shade.", "It hunts at dawn.")


@dataclass(frozen=True)
class CleanLoad:
    """
    What the process without this package reported.

    Attributes:
        kernels: the kernels whose outputs equal those of this process, bit for bit.
        model_class: the class that was loaded, with its module.
        tokenizer_needs_trust: whether the tokenizer loads only with `trust_remote_code=True`; `None` for images.
        pipeline, pipeline_output: task and output of the pipeline that ran; `None` if transformers has none.
        versions: versions of torch and transformers.
    """

    kernels: tuple[str, ...]
    model_class: str
    tokenizer_needs_trust: bool | None
    pipeline: str | None
    pipeline_output: str | None
    versions: dict[str, str]


def load_in_clean_process(source: str | Path) -> CleanLoad:
    """
    Load a bundle in a process where this package cannot be imported, and compare its outputs with this process's.

    That process uses no network. It loads the model with `trust_remote_code=True`, in every kernel by the Auto class
    of its architecture and once by `AutoModel`. It loads the tokenizer (with and without trust) or the image
    processor, and runs a pipeline.

    Args:
        source: the folder of the bundle.

    Returns:
        What was loaded there: the kernels, the class of the model, the pipeline and its output, the versions.

    Raises:
        ValueError: if the other process fails, or its outputs differ from those here.
    """
    source = str(Path(source).absolute())
    model = load_model(source)
    inputs = model_batches(model, sample_inputs(model, source), "right")[0]
    if auto_class_of(model) == "AutoModelForMultipleChoice":
        inputs = {name: tensor[:, None] for name, tensor in inputs.items()}
    request = {
        "source": source,
        "num_threads": torch.get_num_threads(),
        "inputs": inputs,
        "auto_class": auto_class_of(model),
        "kernels": list(traits_of(model).forms),
        "modality": traits_of(model).modality,
        "text_pair": TEXT_PAIR,
        "pipeline": pipeline_of(model),
    }
    answer = run_in_clean_process(answer_request, request, name=source)
    for kernel in request["kernels"]:
        model.set_attn_implementation(kernel)
        with torch.no_grad():
            expected = model(**inputs)
        for name, tensor in expected.items():
            if not torch.equal(tensor, answer["outputs"][kernel][name]):
                raise ValueError(
                    f"{source}: `{name}` of the {kernel!r} kernel differs between this process and one without this "
                    "package. Its code and the installed one are not the same: make the bundle again."
                )
    tokens = answer["tokens"]
    if tokens:
        ours = dict(AutoTokenizer.from_pretrained(source, trust_remote_code=False)(*TEXT_PAIR))
        if any(theirs != ours for theirs in tokens.values()):
            raise ValueError(f"{source}: the tokenizer gives other tokens in a process without this package.")
    return CleanLoad(
        kernels=tuple(request["kernels"]),
        model_class=answer["model_class"],
        tokenizer_needs_trust="untrusted" not in tokens if tokens else None,
        pipeline=request["pipeline"],
        pipeline_output=answer["pipeline"],
        versions=answer["versions"],
    )


def run_in_clean_process(answer: Callable[[dict], dict], request: dict, name: str | Path) -> dict:
    """
    Run a function, sent as source code, in a process where this package cannot be imported, without network, and
    return its answer. Request (with `num_threads`) and answer hold tensors and plain values.

    Raises:
        ValueError: if the process fails, so that `name` does not load, or takes more than `MOST_SECONDS`.
    """
    with tempfile.TemporaryDirectory(prefix="lion-clean-") as folder:
        torch.save(request, Path(folder) / "request.pt")
        # Its caches are empty: nothing may come from an earlier download or run.
        caches = {"HF_HOME": f"{folder}/home", "HF_MODULES_CACHE": f"{folder}/modules"}
        code = CODE.format(hidden=HIDDEN, source=inspect.getsource(answer), name=answer.__name__)
        try:
            process = subprocess.run(
                [sys.executable, "-c", code],
                capture_output=True,
                text=True,
                cwd=folder,
                env=os.environ | caches | {"PYTHONPATH": "", "HF_HUB_OFFLINE": "1"},
                timeout=MOST_SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise ValueError(
                f"{name} was not loaded in {MOST_SECONDS} seconds by a process without this package: try again when "
                "the machine is less busy."
            ) from None
        if process.returncode:
            raise ValueError(
                f"{name} does not load in a process without this package. It ended with:\n{process.stderr[-3000:]}"
            )
        return torch.load(Path(folder) / "answer.pt", weights_only=True)


def answer_request(request: dict) -> dict:
    """Load a checkpoint as users without this package do. The other process gets this function as source code."""
    import torch
    import transformers

    # From its own module, as pipelines do: transformers 5.17 without torchvision has a placeholder of this name.
    from transformers.models.auto.image_processing_auto import AutoImageProcessor

    source, is_text, trust = request["source"], request["modality"] == "text", {"trust_remote_code": True}
    of_inputs = {"image": AutoImageProcessor, "audio": transformers.AutoFeatureExtractor}
    auto_class = getattr(transformers, request["auto_class"])
    outputs, tokens, result = {}, {}, None
    for kernel in request["kernels"]:
        model = auto_class.from_pretrained(source, attn_implementation=kernel, **trust)
        with torch.no_grad():
            outputs[kernel] = dict(model.eval()(**request["inputs"]))
    transformers.AutoModel.from_pretrained(source, **trust)
    if is_text:
        for allow in (True, False):
            try:
                tokenizer = transformers.AutoTokenizer.from_pretrained(source, trust_remote_code=allow)
            except ValueError:
                if allow:
                    raise
            else:
                # Without permission to run code, transformers may give another tokenizer and not say so.
                tokens["trusted" if allow else "untrusted"] = dict(tokenizer(*request["text_pair"]))
    else:
        of_inputs[request["modality"]].from_pretrained(source, **trust)
    if request["pipeline"] is not None:
        pipe = transformers.pipeline(request["pipeline"], model=source, **trust)
        if is_text:
            mask = f" {pipe.tokenizer.mask_token}" if request["pipeline"] == "fill-mask" else ""
            example = request["text_pair"][0] + mask
        else:
            from PIL import Image  # here only: text needs no Pillow

            example = Image.new("RGB", (40, 30), "tan")
        result = str(pipe(example))[:500]
    return {
        "outputs": outputs,
        "tokens": tokens,
        "pipeline": result,
        "model_class": f"{type(model).__module__}.{type(model).__name__}",
        "versions": {"torch": str(torch.__version__), "transformers": transformers.__version__},
    }
