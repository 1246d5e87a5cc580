# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Write a model card from facts: what the checkpoint is, how it was trained, what was measured. The text is in
model_card.md, a Jinja template. Sections without facts are left out.
"""

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

from configuration_lion import AUTO_MODELS, LionConfig
from modeling_lion import LionPreTrainedModel

from ..verify import Verification


TEMPLATE = Path(__file__).with_name("model_card.md")
TAGS = ("lion", "linear-attention", "custom_code")
MIXERS = {
    "lit": ("LION-LIT", "without decay, the Linear Transformer read both ways"),
    "decay": ("LION-D", "with one learnt decay per head, as RetNet has fixed ones"),
    "selective": ("LION-S", "with a decay per head computed from each token, as in Mamba-2"),
    "diagonal": ("LION with diagonal decays", "with a decay for each channel of the keys, computed from each token"),
    "luna": ("Luna in the backbone of LION", "through a memory of fixed length, in linear time"),
    "softmax": ("Softmax attention in the backbone of LION", "as in BERT and ViT, to compare LION with"),
}
# By Auto class: what the head does, in words, and the Hub's `pipeline_tag`, by modality.
TASKS = {
    "AutoModel": ("", {"text": "feature-extraction", "image": "image-feature-extraction"}),
    "AutoModelForMaskedLM": ("masked language modeling", {"text": "fill-mask"}),
    "AutoModelForSequenceClassification": ("text classification", {"text": "text-classification"}),
    "AutoModelForTokenClassification": ("token classification", {"text": "token-classification"}),
    "AutoModelForQuestionAnswering": ("question answering", {"text": "question-answering"}),
    "AutoModelForMultipleChoice": ("multiple choice", {"text": "multiple-choice"}),
    "AutoModelForImageClassification": ("image classification", {"image": "image-classification"}),
    "AutoModelForSemanticSegmentation": ("semantic segmentation", {"image": "image-segmentation"}),
    "AutoModelForMaskedImageModeling": ("masked image modeling", {"image": "image-feature-extraction"}),
}
# By class of sentence-transformers.
ENCODER_TAGS = {"SentenceTransformer": "sentence-similarity", "CrossEncoder": "text-ranking"}
WITHOUT_PIPELINE = {  # in transformers
    "AutoModelForQuestionAnswering",
    "AutoModelForMultipleChoice",
    "AutoModelForMaskedImageModeling",
}


def auto_class_of(model: LionPreTrainedModel) -> str:
    """The name of the Auto class that loads this class of model."""
    names = {model_name: auto_class for auto_class, model_name in AUTO_MODELS[model.config.modality].items()}
    return names[type(model).__name__]


def pipeline_tag(model: LionPreTrainedModel) -> str:
    """The Hub's name for the task of the model."""
    return TASKS[auto_class_of(model)][1][model.config.modality]


def pipeline_of(model: LionPreTrainedModel) -> str | None:
    """The name of transformers' `pipeline` for the model; `None` if there is none."""
    return None if auto_class_of(model) in WITHOUT_PIPELINE else pipeline_tag(model)


def read_metadata(folder: str | Path) -> dict:
    """The metadata of the README.md in a folder; empty without one."""
    path = Path(folder) / "README.md"
    if not path.is_file():
        return {}
    try:
        return ModelCard.load(path, ignore_metadata_errors=True).data.to_dict()
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"The metadata at the top of {path} cannot be read: {error}.") from error


def complete_metadata(model: LionPreTrainedModel, metadata: dict, encoder: str | None = None) -> dict:
    """
    Complete `metadata` with what follows from the model: `library_name`, `pipeline_tag`, `tags`. `encoder` is the
    class of sentence-transformers that loads the files, if one does.
    """
    library = "sentence-transformers" if encoder else "transformers"
    tag = ENCODER_TAGS.get(encoder) if model.config.modality == "text" else None
    defaults = {"library_name": library, "pipeline_tag": tag or pipeline_tag(model)}
    merged = defaults | {k: v for k, v in metadata.items() if v}
    merged["tags"] = list(dict.fromkeys([*(metadata.get("tags") or []), *TAGS, *([library] if encoder else [])]))
    return merged


def read_training(folders: list[Path]) -> tuple[dict, dict]:
    """The Trainer's state and its final metrics, each from the first of `folders` that has them; empty if none has."""
    metrics = read_first(folders, "all_results.json") or read_first(folders, "eval_results.json")
    return read_first(folders, "trainer_state.json"), metrics


def read_first(folders: list[Path], name: str) -> dict:
    """The JSON file of this name in the first of `folders` that has one; empty if none has."""
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
    encoder: str | None = None,
) -> str:
    """
    The text of a README.md about a model. `metadata` comes from `complete_metadata`, the Trainer's records from
    `read_training`. `name` is `user/name` of the repository or a name alone; `encoder` is as in `complete_metadata`.
    """
    trainer_state = trainer_state or {}
    id2label, (mixer, kind) = model.config.id2label, attention_in_words(model.config)
    card = ModelCard.from_template(
        ModelCardData(**metadata),
        template_path=TEMPLATE,
        model=model,
        config=model.config,
        name=name,
        title=name.split("/")[-1],
        mixer=mixer,
        attention=kind,
        auto_class=auto_class_of(model),
        head=TASKS[auto_class_of(model)][0],
        pipeline=pipeline_of(model),
        encoder=encoder,
        labels=[id2label[i] for i in sorted(id2label)],
        training=training_facts(metadata, trainer_state),
        eval_results=eval_results,
        quality=quality_metrics(trainer_state, metrics or {}),
        verification=verification,
        error_bounds=error_bounds(verification),
    )
    return str(card).rstrip() + "\n"


def training_facts(metadata: dict, state: dict) -> dict:
    facts = {}
    for key, title in (("datasets", "data"), ("base_model", "started from")):
        values = metadata.get(key) or []
        facts[title] = ", ".join(map(str, values if isinstance(values, list) else [values]))
    history = state.get("log_history", [])
    if state:
        facts["steps"] = f"{state.get('global_step', 0):,}"
        facts["epochs"] = f"{state['epoch']:.4g}" if state.get("epoch") is not None else None
        facts["batch size per device"] = state.get("train_batch_size")
        facts["floating-point operations"] = f"{state['total_flos']:.3g}" if state.get("total_flos") else None
    rates = [entry["learning_rate"] for entry in history if "learning_rate" in entry]
    losses = [f"{entry['loss']:.4g} at step {entry['step']}" for entry in history if "loss" in entry]
    facts["highest learning rate"] = f"{max(rates):.3g}" if rates else None
    facts["training loss"] = ", ".join(losses[:: len(losses) - 1 or 1])
    return {key: value for key, value in facts.items() if value}


def attention_in_words(config: LionConfig) -> tuple[str, str]:
    """The name of the attention, and a phrase that describes it."""
    is_softmax = config.mixer_is_linear and not config.has_linear_layers  # whatever `mixer_type` would be
    name, how = MIXERS["softmax" if is_softmax else config.mixer_type]
    return name, f"{'linear ' if config.has_linear_layers else ''}attention {how}"


def quality_metrics(state: dict, metrics: dict) -> dict[str, str]:
    """The final metrics; without them, the last ones in the Trainer's log."""
    for found in (metrics, *reversed(state.get("log_history", []))):
        if quality := {k.removeprefix("eval_"): f"{v:.4g}" for k, v in sorted(found.items()) if is_quality(k)}:
            return quality
    return {}


def is_quality(metric: str) -> bool:
    """Whether a metric of the Trainer says how good the model is, and not how long something took."""
    timings = ("runtime", "samples", "per_second", "steps", "epoch", "flos")
    is_metric = metric.startswith(("eval_", "test_", "predict_")) and not any(t in metric for t in timings)
    return is_metric or metric == "perplexity"


def error_bounds(verification: Verification) -> list[tuple[str, str, str]]:
    """Kernel, dtype and largest error. Errors are rounded up to a power of ten, so that two runs give one card."""
    worst = {(kernel, dtype): verification.worst(kernel, dtype).error for kernel, dtype in verification.by_kernel()}
    return [(*key, f"{10.0 ** math.ceil(math.log10(x)) if x > 0 else 0.0:.0e}") for key, x in worst.items()]


def read_eval_results(path: str | Path) -> list[EvalResultEntry]:
    """Read results in the Hub's format for `.eval_results/*.yaml` from a YAML or JSON file."""
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
            # transformers ignores fields that it does not know.
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
