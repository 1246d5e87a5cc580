# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Write a model card from facts: what the checkpoint is, how it was trained, what was measured. The text is in
model_card.md, a Jinja template. Sections without facts are left out.
"""

import json
import math
from pathlib import Path

import yaml
from huggingface_hub import CardData, EvalResultEntry, RepoCard, metadata_load, parse_eval_result_entries
from transformers import PreTrainedModel

from configuration_lion.registry import find_mixer
from modeling_lion.attention.lion_attention import DECAYS_ONLY
from modeling_lion.linearized.config import LinearizedConfig, type_of_source
from modeling_lion.mixers.mixer import Mixer
from modeling_lion.portable_code import is_own

from ..traits import LinearizedTraits, traits_of
from ..verify import Verification


TEMPLATE = Path(__file__).with_name("model_card.md")
TAGS = ("lion", "custom_code")
GROWTH = "time and memory grow with"
# What each form of linear attention does, and what its cost grows with.
FORMS = {
    "auto": ("the fastest of the others; the default", ""),
    "parallel": ("the full attention matrix", "the square of the length"),
    "chunk": ("small matrices inside chunks, one state per direction between them", "the length"),
    "rnn": ("two recurrences, token by token", "the length"),
}
# The task of each Auto class in words, and the Hub's `pipeline_tag` by modality.
TASKS = {
    "AutoModel": (
        "",
        {"text": "feature-extraction", "image": "image-feature-extraction", "audio": "feature-extraction"},
    ),
    "AutoModelForMaskedLM": ("masked language modeling", {"text": "fill-mask"}),
    "AutoModelForSequenceClassification": ("text classification", {"text": "text-classification"}),
    "AutoModelForTokenClassification": ("token classification", {"text": "token-classification"}),
    "AutoModelForQuestionAnswering": ("question answering", {"text": "question-answering"}),
    "AutoModelForMultipleChoice": ("multiple choice", {"text": "multiple-choice"}),
    "AutoModelForImageClassification": ("image classification", {"image": "image-classification"}),
    "AutoModelForSemanticSegmentation": ("semantic segmentation", {"image": "image-segmentation"}),
    "AutoModelForMaskedImageModeling": ("masked image modeling", {"image": "image-feature-extraction"}),
    "AutoModelForObjectDetection": ("object detection", {"image": "object-detection"}),
    "AutoModelForDepthEstimation": ("depth estimation", {"image": "depth-estimation"}),
    "AutoModelForAudioClassification": ("audio classification", {"audio": "audio-classification"}),
    "AutoModelForCTC": ("speech recognition", {"audio": "automatic-speech-recognition"}),
}
# The Hub's `pipeline_tag` of each class of sentence-transformers.
ENCODER_TAGS = {"SentenceTransformer": "sentence-similarity", "CrossEncoder": "text-ranking"}
WITHOUT_PIPELINE = {  # in transformers
    "AutoModelForQuestionAnswering",
    "AutoModelForMultipleChoice",
    "AutoModelForMaskedImageModeling",
}


def auto_class_of(model: PreTrainedModel) -> str:
    """
    Return the name of the Auto class that loads this class of model.

    Raises:
        ValueError: if no Auto class with a task on the Hub loads it.
    """
    names, kind = traits_of(model).auto_classes, type(model).__name__
    found = next((auto_class for auto_class in TASKS if kind in names.get(auto_class, ())), None)
    if found is None:
        raise ValueError(
            f"A {kind} has no task that the Hub knows: save the encoder alone, with "
            "`model.base_model.save_pretrained(...)`."
        )
    return found


def pipeline_tag(model: PreTrainedModel) -> str:
    """Return the Hub's name for the task of the model."""
    return TASKS[auto_class_of(model)][1][traits_of(model).modality]


def pipeline_of(model: PreTrainedModel) -> str | None:
    """Return the name of transformers' `pipeline` for the model; `None` if none takes its inputs."""
    is_without = auto_class_of(model) in WITHOUT_PIPELINE or traits_of(model).modality == "audio"
    return None if is_without else pipeline_tag(model)


def read_metadata(folder: str | Path) -> dict:
    """Return the metadata of the README.md in a folder; empty without one. Raises a ValueError if it is damaged."""
    path = Path(folder) / "README.md"
    if not path.is_file():
        return {}
    try:
        return metadata_load(path) or {}
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"The metadata at the top of {path} cannot be read: {error}.") from error


def complete_metadata(model: PreTrainedModel, metadata: dict, encoder: str | None = None) -> dict:
    """
    Complete `metadata` with what follows from the model: `library_name`, `pipeline_tag`, `tags`. `encoder` is the
    class of sentence-transformers that loads the files, if one does.
    """
    library = "sentence-transformers" if encoder else "transformers"
    tag = ENCODER_TAGS.get(encoder) if encoder and traits_of(model).modality == "text" else None
    defaults = {"library_name": library, "pipeline_tag": tag or pipeline_tag(model)}
    merged = defaults | {k: v for k, v in metadata.items() if v not in (None, "", [])}
    linear = ["linear-attention"] if traits_of(model).has_linear_layers else []
    tags = [*(metadata.get("tags") or []), TAGS[0], *linear, *TAGS[1:], *([library] if encoder else [])]
    merged["tags"] = list(dict.fromkeys(tags))
    return merged


def read_training(folders: list[Path]) -> tuple[dict, dict]:
    """Return the Trainer's state and final metrics, each from the first of `folders` that has them; else empty."""
    metrics = read_first(folders, "all_results.json") or read_first(folders, "eval_results.json")
    return read_first(folders, "trainer_state.json"), metrics


def read_first(folders: list[Path], name: str) -> dict:
    """Read the JSON file of this name in the first of `folders` that has one; empty if none has."""
    path = next((folder / name for folder in folders if (folder / name).is_file()), None)
    if path is None:
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}): delete it, or save it again.") from error


def model_card(
    model: PreTrainedModel,
    name: str,
    metadata: dict,
    verification: Verification,
    trainer_state: dict | None = None,
    metrics: dict | None = None,
    eval_results: list[EvalResultEntry] | None = None,
    encoder: str | None = None,
) -> str:
    """
    Return the text of a README.md about a model. `metadata` comes from `complete_metadata`, the Trainer's records from
    `read_training`. `name` is `user/name` of the repository or a name alone; `encoder` is as in `complete_metadata`.
    """
    trainer_state = trainer_state or {}
    id2label, traits = model.config.id2label, traits_of(model)
    mixer, kind = attention_in_words(model)
    card = RepoCard.from_template(
        CardData(**metadata),  # as it is: ModelCardData merges results of `model-index`
        template_path=str(TEMPLATE),
        name=name,
        title=name.split("/")[-1],
        modality=traits.modality,
        num_channels=traits.image_shape[0],
        default_form=traits.default_form,
        mixer=mixer,
        attention=kind,
        is_linear=traits.has_linear_layers,
        is_our_mixer=is_own(mixer_of(model)),
        has_all_forms=traits.has_linear_layers and {*FORMS} <= {*traits.forms.values()},
        has_weights=traits.has_weights,
        has_softmax=isinstance(traits, LinearizedTraits),
        rows=rows_of(model),
        kernels=kernels_of(model),
        limits=limits_of(model),
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
    facts: dict[str, object] = {}
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


def attention_in_words(model: PreTrainedModel) -> tuple[str, str]:
    """Return the name of the attention, and a phrase that describes it."""
    config, traits, mixer = model.config, traits_of(model), mixer_of(model)
    title = mixer.title or f"The mixer {mixer.name}"
    if not isinstance(traits, LinearizedTraits):
        what = f"{'linear ' if config.has_linear_layers else ''}attention {mixer.description}".strip()
        return title if mixer.title else f"{title} in the backbone of LION", what
    window = f" and softmax over {config.lion_window} tokens on each side" if config.lion_window else ""
    source = type_of_source(config)
    what = f"linear attention {mixer.description},{window} where an input has more than"
    return f"{title} inside of an encoder of type {source!r}", f"{what} {config.lion_exact_length} tokens"


def mixer_of(model: PreTrainedModel) -> type[Mixer]:
    """Return the class of a model's mixer; softmax if no layer has the mixer of `mixer_type`."""
    if isinstance(model.config, LinearizedConfig):
        return find_mixer(model.config.lion_mixer)
    return find_mixer(model.config.mixer_type if model.config.uses_mixer_type else "softmax")


def rows_of_lion(model: PreTrainedModel) -> dict[str, object]:
    """Return the rows of a LION's table by name. Rows without a value are left out of the card."""
    config = model.config
    names = dict.fromkeys(config.layer_types or ())
    return {
        "mixer": quoted(config.mixer_type),
        "layers that are": ", ".join(f"{quoted(name)}: {config.layer_types.count(name)}" for name in names),
        "window": config.sliding_window and f"{config.sliding_window} tokens on each side",
        "feature map": config.has_linear_layers
        and f"{quoted(config.feature_map)}, normalization {quoted(config.normalization)}",
        "positions": quoted(config.position_embedding_type),
        "norms": quoted(config.norm_position),
        "pooling": quoted(config.pooling),
        "context length": config.modality == "text" and config.context_length,
        "patch": config.modality == "image" and f"{'x'.join(map(str, config.patch_shape))} pixels",
        "patch order": config.modality == "image" and quoted(config.patch_order),
    }


def linearized_rows(model: PreTrainedModel) -> dict[str, object]:
    """Return the rows of a linearized model's table by name."""
    config = model.config
    is_linear = [sizes is not None for sizes in config.lion_layers.values()]
    again = {"cyclic": "a table that is read again by longer texts"}
    return {
        "encoder": quoted(type_of_source(config)),
        "exact up to": f"{config.lion_exact_length} tokens, where it computes what the encoder did, to the bit",
        "layers that are linear": f"{sum(is_linear)} of {len(is_linear)}",
        "mixer": quoted(config.lion_mixer),
        "window": f"{config.lion_window} tokens on each side" if config.lion_window else "none",
        "feature map": quoted(config.lion_feature_map),
        "positions": again.get(config.lion_positions),
    }


def rows_of(model: PreTrainedModel) -> dict[str, object]:
    """Return the rows of the card's table by name."""
    config, traits = model.config, traits_of(model)
    is_text = traits.modality == "text"
    rows = {
        "parameters": f"{model.num_parameters():,}",
        "layers": config.num_hidden_layers,
        "hidden size": config.hidden_size,
        "heads": config.num_attention_heads,
        "MLP size": getattr(config, "intermediate_size", None),
    }
    rows |= linearized_rows(model) if isinstance(traits, LinearizedTraits) else rows_of_lion(model)
    rows |= {
        "weights": quoted(str(model.dtype).removeprefix("torch.")),
        "vocabulary": is_text and f"{config.vocab_size:,}",
        "image": traits.modality == "image" and f"{'x'.join(map(str, traits.image_shape[1:]))} pixels",
    }
    return {name: value for name, value in rows.items() if value}


def quoted(name: str) -> str:
    return f"`{name}`"


def kernels_of(model: PreTrainedModel) -> list[tuple[str, ...]]:
    """Return the rows of the table of `attn_implementation`, a header first."""
    traits = traits_of(model)
    header = "`attn_implementation`", "what it does"
    softmax = '`"sdpa"`', "`scaled_dot_product_attention` of PyTorch"
    eager = '`"eager"`', "the reference; returns attention weights"
    if "sdpa" in traits.forms or not traits.has_linear_layers and isinstance(traits, LinearizedTraits):
        return [header, (softmax[0], f"{softmax[1]}; the default"), eager]
    if mixer_of(model).needs != DECAYS_ONLY:
        words = {"auto": "what the mixer computes first; the default"}
        rows = [(f'`"{name}"`', words.get(name, "what the mixer computes by this name")) for name in traits.forms]
        return [header, *rows, *([eager] if traits.has_weights else [])]
    forms = [(f'`"{name}"`', *FORMS[form]) for name, form in traits.forms.items()]
    if isinstance(traits, LinearizedTraits):
        return [(*header, GROWTH), *forms, (softmax[0], "the encoder as it was", FORMS["parallel"][1])]
    return [(*header, GROWTH), *forms, (*eager, FORMS["parallel"][1])]


def limits_of(model: PreTrainedModel) -> list[str]:
    """Return the limits that users must know, as sentences."""
    config, traits = model.config, traits_of(model)
    is_lion = not isinstance(traits, LinearizedTraits)
    if traits.modality == "image":
        size = "x".join(map(str, traits.image_shape[1:]))
        is_fixed = not is_lion or config.position_embedding_type != "none"
        other = "; other sizes need `interpolate_pos_encoding=True`" if is_fixed else ""
        return [f"Images are resized to {size} pixels by the processor{other}."]
    if traits.longest_text is not None:
        return [f"Inputs have at most {traits.longest_text} tokens."]
    if is_lion and config.has_decays:
        start = f", but the decays were initialised for {config.context_length} tokens"
        return [
            f"There is no longest input{start if is_own(mixer_of(model)) else ''}. The quality of outputs beyond the "
            "training length was not measured."
        ]
    return []


def quality_metrics(state: dict, metrics: dict) -> dict[str, str]:
    """Return the final metrics or, without them, the last ones in the Trainer's log."""
    for found in (metrics, *reversed(state.get("log_history", []))):
        numbers = {k: v for k, v in sorted(found.items()) if is_quality(k) and isinstance(v, (int, float))}
        if numbers:
            return {k.removeprefix("eval_"): f"{v:.4g}" for k, v in numbers.items()}
    return {}


def is_quality(metric: str) -> bool:
    """Return whether a metric of the Trainer says how good the model is, and not how long something took."""
    timings = ("runtime", "samples", "per_second", "steps", "epoch", "flos")
    is_metric = metric.startswith(("eval_", "test_", "predict_")) and not any(t in metric for t in timings)
    return is_metric or metric == "perplexity"


def error_bounds(verification: Verification) -> list[tuple[str, str, str]]:
    """Return kernel, dtype and largest error, rounded up to a power of ten, so that two runs give the same card."""
    worst = {(kernel, dtype): verification.worst(kernel, dtype).error for kernel, dtype in verification.by_kernel()}
    return [(*key, f"{10.0 ** math.ceil(math.log10(x)) if x > 0 else 0.0:.0e}") for key, x in worst.items()]


def read_eval_results(path: str | Path) -> list[EvalResultEntry]:
    """Read results in the Hub's format for `.eval_results/*.yaml` from a YAML or JSON file."""
    try:
        entries = parse_eval_result_entries(yaml.safe_load(Path(path).read_text(encoding="utf-8")))  # JSON is YAML
        if not entries:
            raise ValueError("it is empty")
        for entry in entries:
            if isinstance(entry.value, float) and not math.isfinite(entry.value):
                raise ValueError(f"the value of {entry.dataset_id} is {entry.value}")
        return entries
    except (yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{path} is no list of evaluation results ({error!r}). Write them as the Hub does:\n"
            "- dataset:\n    id: nyu-mll/glue\n    task_id: sst2\n  value: 91.3\n  notes: fine-tuned for 3 epochs"
        ) from error
