# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""A model card made of facts: what the checkpoint is, how it was trained, what was measured. No empty sections."""

import json
import math
from datetime import datetime
from pathlib import Path

import yaml
from huggingface_hub import (
    EvalResultEntry,
    ModelCard,
    ModelCardData,
    eval_result_entries_to_yaml,
    parse_eval_result_entries,
)

from modeling_lion import LionPreTrainedModel

from .clean_process import PIPELINES, auto_class_of
from .verify import Verification


ARXIV = "2502.16249"
TAGS = ("lion", "linear-attention", "custom_code")
MIXERS = {
    "lit": ("LION-LIT", "without decay, the bidirectional form of the Linear Transformer"),
    "decay": ("LION-D", "with one learnt decay per head, the bidirectional form of RetNet"),
    "selective": ("LION-S", "with a decay computed from each token, the bidirectional form of Mamba-2's selectivity"),
    "diagonal": ("LION with diagonal decays", "with a decay for each channel of the keys, computed from each token"),
    "luna": ("Luna in the backbone of LION", "by way of a memory of fixed length, in linear time"),
    "softmax": ("Softmax attention in the backbone of LION", "as in BERT and ViT, to compare LION with"),
}
TASKS = {
    "AutoModel": ("encoder", {"text": "feature-extraction", "image": "image-feature-extraction"}),
    "AutoModelForMaskedLM": ("masked language modeling", {"text": "fill-mask"}),
    "AutoModelForSequenceClassification": ("classifying texts", {"text": "text-classification"}),
    "AutoModelForTokenClassification": ("classifying tokens", {"text": "token-classification"}),
    "AutoModelForQuestionAnswering": ("finding answers in a text", {"text": "question-answering"}),
    "AutoModelForMultipleChoice": ("multiple choice", {"text": "multiple-choice"}),
    "AutoModelForImageClassification": ("classifying images", {"image": "image-classification"}),
    "AutoModelForMaskedImageModeling": ("masked image modeling", {"image": "image-feature-extraction"}),
}
SOFTMAX_KERNELS = """\
| `attn_implementation` | what it does |
|---|---|
| `"sdpa"` | `scaled_dot_product_attention` of PyTorch; the default |
| `"eager"` | the reference, gives attention weights |"""
KERNELS = """\
| `attn_implementation` | what it does | time and memory grow with |
|---|---|---|
| `"auto"` | the fastest of the others; the default | |
| `"parallel"` | the full attention matrix | the square of the length |
| `"chunk"` | full matrices in blocks, one state per direction between them | the length |
| `"rnn"` | two recurrences, token by token | the length |
| `"eager"` | the reference, gives attention weights | the square of the length |"""
CITATION = """\
```bibtex
@article{afzal2025lion,
  title   = {Linear Attention for Efficient Bidirectional Sequence Modeling},
  author  = {Afzal, Arshia and Abad Rocamora, Elias and Candogan, Leyla Naz and Puigdemont, Pol and Tonin, Francesco
             and Wu, Yongtao and Shoaran, Mahsa and Cevher, Volkan},
  journal = {arXiv preprint arXiv:2502.16249},
  year    = {2025}
}
```"""


def read_metadata(folder: str | Path) -> dict:
    """The metadata of the README.md in a folder; empty without one."""
    path = Path(folder) / "README.md"
    if not path.is_file():
        return {}
    try:
        return ModelCard.load(path, ignore_metadata_errors=True).data.to_dict()
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"The metadata at the top of {path} cannot be read: {error}.") from error


def complete_metadata(model: LionPreTrainedModel, metadata: dict) -> dict:
    """`metadata` with what follows from the model: `library_name`, `pipeline_tag`, `tags`."""
    tag = TASKS[auto_class_of(model)][1][model.config.modality]
    defaults = {"library_name": "transformers", "pipeline_tag": tag}
    merged = defaults | {k: v for k, v in metadata.items() if v}
    merged["tags"] = list(dict.fromkeys([*(metadata.get("tags") or []), *TAGS]))
    return merged


def read_training(folders: list[Path]) -> tuple[dict, dict]:
    """
    The Trainer's records in the first of `folders` that has some: its state and its final metrics. Both may be empty.

    Raises:
        ValueError: if a file is damaged.
    """
    metrics = read_first(folders, "all_results.json") or read_first(folders, "eval_results.json")
    return read_first(folders, "trainer_state.json"), metrics


def read_first(folders: list[Path], name: str) -> dict:
    """The JSON file of this name in the first of `folders` that has one; empty without."""
    path = next((folder / name for folder in folders if (folder / name).is_file()), None)
    if path is None:
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}): delete it, or save it again.") from error


def model_card(
    model: LionPreTrainedModel,
    name: str,
    metadata: dict,
    verification: Verification,
    trainer_state: dict | None = None,
    metrics: dict | None = None,
    eval_results: list[EvalResultEntry] | None = None,
) -> str:
    """
    The text of a README.md.

    Args:
        model: what the card is about.
        name: `user/name` of the repository, or a name alone.
        metadata: of `complete_metadata`, with the licence.
        verification: of `verify_checkpoint`.
        trainer_state, metrics: of `read_training`.
        eval_results: results on benchmarks of the Hub.
    """
    sections = {
        "": introduction(model, name),
        "Use": usage(model, name),
        "Training": training(metadata, trainer_state or {}),
        "Evaluation": evaluation(trainer_state or {}, metrics or {}, eval_results or []),
        "The kernels agree": equality(verification),
        "Limits": limits(model),
        "Citation": CITATION,
    }
    text = "\n\n".join((f"## {title}\n\n" if title else "") + body for title, body in sections.items() if body)
    return with_metadata(metadata, text)


def with_metadata(metadata: dict, text: str) -> str:
    """A README.md of metadata and text."""
    return f"---\n{ModelCardData(**metadata).to_yaml()}\n---\n\n{text.strip()}\n"


def introduction(model: LionPreTrainedModel, name: str) -> str:
    config = model.config
    title, words = MIXERS[config.mixer_type]
    auto_class = auto_class_of(model)
    purpose = "an encoder" if auto_class == "AutoModel" else f"an encoder with a head for {TASKS[auto_class][0]}"
    reads = "text" if config.modality == "text" else "images"
    parameters = sum(p.numel() for p in model.parameters())
    facts = {
        "parameters": f"{parameters:,}",
        "layers": config.num_hidden_layers,
        "hidden size": config.hidden_size,
        "heads": config.num_attention_heads,
        "MLP size": config.intermediate_size,
        "mixer": f"`{config.mixer_type}`",
        "feature map": f"`{config.feature_map}`, normalization `{config.normalization}`",
        "positions": f"`{config.position_embedding_type}`",
        "LayerNorm": f"`{config.norm_position}`",
        "pooling": f"`{config.pooling}`",
        "weights": f"`{str(model.dtype).removeprefix('torch.')}`",
    }
    if config.modality == "text":
        facts |= {"vocabulary": f"{config.vocab_size:,}", "context length": config.max_position_embeddings}
    else:
        facts |= {
            "image": "{}x{} pixels".format(*config.image_shape),
            "patch": "{}x{} pixels".format(*config.patch_shape),
            "patch order": f"`{config.patch_order}`",
        }
    if auto_class.endswith("Classification"):
        labels = [str(config.id2label[i]) for i in sorted(config.id2label)]
        facts["labels"] = ", ".join(labels[:20]) + (f", … ({len(labels)} in all)" if len(labels) > 20 else "")
    if config.uses_softmax:
        del facts["feature map"]
        method = f"attention {words} ([arXiv:{ARXIV}](https://arxiv.org/abs/{ARXIV}))."
    else:
        method = (
            f"bidirectional linear attention {words}. It computes like a Transformer, block by block or like an RNN, "
            f"with the same weights and the same results ([arXiv:{ARXIV}](https://arxiv.org/abs/{ARXIV}))."
        )
    table = "\n".join(["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in facts.items())])
    return f"# {name.split('/')[-1]}\n\n{title}, {purpose} for {reads}: {method}\n\n{table}"


def usage(model: LionPreTrainedModel, name: str) -> str:
    config, auto_class = model.config, auto_class_of(model)
    if config.modality == "text":
        pair = auto_class == "AutoModelForQuestionAnswering"
        arguments = '"Where does the lion sleep?", "The lion sleeps in the shade."' if pair else '"The lion sleeps."'
        code = [
            f"from transformers import {auto_class}, AutoTokenizer",
            "",
            f'name = "{name}"',
            "tokenizer = AutoTokenizer.from_pretrained(name)",
            f'model = {auto_class}.from_pretrained(name, trust_remote_code=True, attn_implementation="auto")',
            f'inputs = tokenizer({arguments}, return_tensors="pt")',
            "outputs = model(**inputs)",
        ]
        code[3] = "tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=True)"
        if auto_class == "AutoModelForMultipleChoice":
            code[-2:] = [
                'inputs = tokenizer(["The lion"] * 2, ["sleeps.", "flies."], padding=True, return_tensors="pt")',
                "outputs = model(**{key: value[None] for key, value in inputs.items()})",
            ]
        example = '"The lion sleeps."'
        if auto_class == "AutoModelForMaskedLM":
            example = 'f"The lion {tokenizer.mask_token}."'
    else:
        mode = "RGB" if config.num_channels == 3 else "L"
        code = [
            "from PIL import Image",
            f"from transformers import AutoImageProcessor, {auto_class}",
            "",
            f'name = "{name}"',
            "processor = AutoImageProcessor.from_pretrained(name)",
            f'model = {auto_class}.from_pretrained(name, trust_remote_code=True, attn_implementation="auto")',
            f'image = Image.new("{mode}", (640, 480))  # yours: Image.open("lion.jpg")',
            'outputs = model(**processor(image, return_tensors="pt"))',
        ]
        example = "image"
    task = PIPELINES.get(auto_class, {}).get(config.modality)
    if task is not None:
        code += [
            "",
            "from transformers import pipeline",
            "",
            f'print(pipeline("{task}", model=name, trust_remote_code=True)({example}))',
        ]
    return "\n".join(
        [
            "The code of the model is in this repository; nothing but "
            + ("transformers and torch" if config.modality == "text" else "transformers, torch and Pillow")
            + " has to be installed.",
            "",
            "```python",
            *code,
            "```",
            "",
            "The kernel is chosen when loading, or later by `model.set_attn_implementation(...)`. The results are the "
            "same.",
            "",
            SOFTMAX_KERNELS if config.uses_softmax else KERNELS,
        ]
    )


def training(metadata: dict, state: dict) -> str:
    facts = {}
    for key, title in (("datasets", "data"), ("base_model", "started from")):
        if metadata.get(key):
            values = metadata[key] if isinstance(metadata[key], list) else [metadata[key]]
            facts[title] = ", ".join(map(str, values))
    history = state.get("log_history", [])
    if state:
        facts["steps"] = f"{state.get('global_step', 0):,}"
        facts["epochs"] = f"{state['epoch']:.4g}" if state.get("epoch") is not None else None
        facts["batch size per device"] = state.get("train_batch_size")
        facts["floating-point operations"] = f"{state['total_flos']:.3g}" if state.get("total_flos") else None
    rates = [entry["learning_rate"] for entry in history if "learning_rate" in entry]
    losses = [(entry["step"], entry["loss"]) for entry in history if "loss" in entry]
    facts["highest learning rate"] = f"{max(rates):.3g}" if rates else None
    if losses:
        facts["training loss"] = ", ".join(
            f"{loss:.4g} at step {step}" for step, loss in losses[:: len(losses) - 1 or 1]
        )
    facts = {key: value for key, value in facts.items() if value}
    return "\n".join(["| | |", "|---|---|", *(f"| {k} | {v} |" for k, v in facts.items())]) if facts else ""


def evaluation(state: dict, metrics: dict, eval_results: list[EvalResultEntry]) -> str:
    parts = []
    if eval_results:
        rows = [f"| {r.dataset_id} | {r.task_id} | {r.value} | {r.notes or ''} |" for r in eval_results]
        parts.append("\n".join(["| dataset | task | value | notes |", "|---|---|---|---|", *rows]))
    quality = {k: v for k, v in metrics.items() if is_quality(k)}
    if not quality:
        last = next((e for e in reversed(state.get("log_history", [])) if any(map(is_quality, e))), {})
        quality = {k: v for k, v in last.items() if is_quality(k)}
    if quality:
        rows = [f"| {k.removeprefix('eval_')} | {v:.4g} |" for k, v in sorted(quality.items())]
        parts.append(
            "\n".join(["On the evaluation data of the training run:", "", "| metric | value |", "|---|---|", *rows])
        )
    return "\n\n".join(parts)


def is_quality(metric: str) -> bool:
    """Whether a metric of the Trainer says how good the model is, rather than how fast it was measured."""
    timings = ("runtime", "samples", "per_second", "steps", "epoch", "flos")
    return (
        metric.startswith(("eval_", "test_", "predict_"))
        and not any(t in metric for t in timings)
        or (metric == "perplexity")
    )


def equality(verification: Verification) -> str:
    rows = []
    for kernel, dtype in dict.fromkeys((e.kernel, e.dtype) for e in verification.errors):
        worst = verification.worst(kernel, dtype)
        # To a power of ten: the last digits differ from run to run, and a bundle should not.
        bound = 10.0 ** math.ceil(math.log10(worst.error)) if worst.error > 0 else 0.0
        rows.append(f"| `{kernel}` | {dtype} | {bound:.0e} |")
    return "\n".join(
        [
            "Bound of the absolute error of the encoder's outputs against the definition evaluated in float64, as "
            f"measured on {verification.inputs}, with and without padding; the largest output is "
            f"{verification.scale:.2g}. Each is within a small multiple of the reference form's error in the same "
            "dtype.",
            "",
            "| kernel | dtype | error below |",
            "|---|---|---|",
            *rows,
        ]
    )


def limits(model: LionPreTrainedModel) -> str:
    config = model.config
    points = ["`trust_remote_code=True` runs the Python files of this repository: read them, or pin a `revision`."]
    if config.modality == "text":
        if config.position_embedding_type == "absolute":
            points.append(f"Inputs have at most {config.max_position_embeddings} tokens.")
        elif config.has_decays:
            points.append(
                f"No length is too long, but the decays were initialised for {config.max_position_embeddings} tokens; "
                "how good the outputs are beyond the training length was not measured."
            )
    else:
        height, width = config.image_shape
        points.append(
            f"Images are resized to {height}x{width} pixels by the processor"
            + (
                "."
                if config.position_embedding_type == "none"
                else "; other sizes need `interpolate_pos_encoding=True`."
            )
        )
    points.append(
        "`output_attentions=True` computes the full matrix: time and memory grow with the square of the length."
    )
    return "\n".join(f"- {point}" for point in points)


def read_eval_results(path: str | Path) -> list[EvalResultEntry]:
    """
    Results from a file, YAML or JSON, in the Hub's format for `.eval_results/*.yaml`.

    Raises:
        ValueError: if the file has another form.
    """
    try:
        # BaseLoader leaves scalars as text, so that a date stays as it was written; JSON is YAML, too.
        text = Path(path).read_text(encoding="utf-8")
        data, as_text = yaml.safe_load(text), yaml.load(text, yaml.BaseLoader)
        entries = parse_eval_result_entries(data)
        if not entries:
            raise ValueError("it is empty")
        for entry, given in zip(entries, as_text, strict=True):
            if entry.date is not None:
                entry.date = given["date"]
                datetime.fromisoformat(entry.date.replace("Z", "+00:00"))
            if isinstance(entry.value, float) and not math.isfinite(entry.value):
                raise ValueError(f"the value of {entry.dataset_id} is {entry.value}")
            # The library takes what it knows and is silent about the rest.
            if lost := leaves(given) - leaves(eval_result_entries_to_yaml([entry])[0]):
                raise ValueError(f"unknown: {', '.join(sorted(lost))}")
        return entries
    except (yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{path} is no list of evaluation results ({error!r}). Write them as the Hub does:\n"
            "- dataset:\n    id: nyu-mll/glue\n    task_id: sst2\n  value: 91.3\n  notes: fine-tuned for 3 epochs"
        ) from error


def leaves(tree: dict, prefix: str = "") -> set[str]:
    """The paths of all values in nested dictionaries, for example `dataset.id`."""
    return {
        path
        for key, value in tree.items()
        for path in (leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}"})
    }
