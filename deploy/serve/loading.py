# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Find out which model a folder has, load it, and check that the server computes what sentence-transformers does."""

import json
import re
from functools import partial
from pathlib import Path

import numpy as np
import torch
from hub_upload_lion.sentence_modules import MODEL, MODULES, SETTINGS, TASKS, read_modules
from retrieval_lion.encoders import NO_LIMIT, as_long_as_saved, merge_adapter, unit
from retrieval_lion.sources import ADAPTER, base_of_adapter
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from sentence_transformers.util import import_from_string
from tokenization_lion.tokenization_lion import check_words
from torch import nn
from transformers.utils import cached_file

from modeling_lion.linearized.model_inputs import BUFFERED_POSITIONS, longest_text

from ..export.exported import FILES, ExportedModel
from .engines import Description, Engine, with_prompt


# The first module of an encoder from `lion export`. Version 0.2 wrote the second name.
EXPORTED = tuple(
    f"{module}.exported_sentence.ExportedTransformer" for module in ("deploy_lion.export", "hub_upload_lion")
)
MOST_TOKENS = 32768  # of a text, unless `max_input_tokens` is given
LONGEST_TRIED = 512  # tokens of the longest text that is compared at the start
TEXTS = ("A lion sleeps.", "At night, in the tall grass, the pride hunts. " * 4, "It roars")
PAIRS = (("What roars?", "A lion roars."), ("Where?", "In the tall grass, at night. " * 4), ("When", "At dawn"))
# The largest difference of vectors of length 1, or of logits relative to the largest, between the server and
# sentence-transformers. In 8-bit graphs, how activations are rounded depends on the rest of the batch.
TOLERANCE, ROUNDED = 1e-3, 3e-2


def load_engine(
    source: str,
    *,
    task: str | None = None,
    max_input_tokens: int | None = None,
    attn_implementation: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
    trust_remote_code: bool = False,
) -> Engine:
    """
    Load the model to serve, and compare it with sentence-transformers on a few texts.

    Args:
        source: folder or Hub repository of a sentence encoder, a cross-encoder, a classifier or an encoder of
            transformers, of one of them as a graph (`lion export`), or of an adapter of PEFT.
        task: "embed", "classify" or "rerank"; by default found from the model.
        max_input_tokens: the longest text; by default the model's own limit, at most 32,768.
        attn_implementation: such as "lion_local"; by default the model's own.
        dtype: dtype of the weights, such as "bfloat16"; by default float32.
        device: by default a GPU if there is one.
        trust_remote_code: run code from the repository.

    Raises:
        ValueError: if the server does not support the model, or results differ from sentence-transformers.
    """
    files = Files(source)
    found = files.task()
    if task is not None and (task == "embed") != (found == "embed"):
        raise ValueError(f"{source} is a model to {found}: --task {task} needs another task head.")
    options = {"device": device or ("cuda" if torch.cuda.is_available() else "cpu")}
    model_options = {"attn_implementation": attn_implementation, "dtype": getattr(torch, dtype or "float32")}
    model_options = {name: value for name, value in model_options.items() if value is not None}
    if device is not None:
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            raise ValueError(
                f"--device {device} cannot be used ({str(error).splitlines()[0]}): give cpu, say."
            ) from error
    if files.is_exported:
        if attn_implementation or dtype:
            raise ValueError(f"{source} is a graph: --attn_implementation and --dtype are choices of `lion export`.")
        if device not in (None, "cpu"):
            raise ValueError(f"{source} is a graph, which runs on the CPU: leave --device {device} out.")
        options["device"] = "cpu"
    elif not any(map(files.has, ("config.json", ADAPTER, MODULES))):
        where = "" if Path(source).is_dir() else " on the Hub, or the Hub cannot be reached"
        raise ValueError(
            f"{source} has neither config.json nor {MODULES}{where}: give a folder that save_pretrained() wrote, or "
            "the name of a Hub repository. checkpoints/lion-minilm-l6 is part of the repository, not of the package."
        )
    model = files.load(found, options | {"trust_remote_code": trust_remote_code}, model_options)
    if task is None:
        task = "rerank" if isinstance(model, CrossEncoder) and model.num_labels == 1 else found
    about = describe(model, files, task, max_input_tokens)
    model.max_seq_length = about.max_input_tokens
    engine = Engine(model.eval(), about)
    compare(engine, TOLERANCE if engine.about.dtype == "float32" and not files.is_exported else ROUNDED)
    return engine


class Files:
    """The files of a folder or a repository that say which model it has."""

    def __init__(self, source: str):
        self.source = source
        self.is_exported = Path(source).is_dir() and any((Path(source) / name).is_file() for name in FILES.values())

    def path(self, name: str) -> str | None:
        if Path(self.source).is_dir():
            path = Path(self.source) / name
            return str(path) if path.is_file() else None
        return cached_file(self.source, name, _raise_exceptions_for_missing_entries=False)

    def has(self, name: str) -> bool:
        return self.path(name) is not None

    def read(self, name: str) -> dict:
        """Return the content of a JSON file; an empty dict if there is none. Raises a ValueError if it is damaged."""
        path = self.path(name)
        if path is None:
            return {}
        try:
            return json.loads(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is damaged ({error}): save the model again.") from error

    def task(self) -> str:
        """Return "embed", or "classify" for all cross-encoders. Raises a ValueError if the server has no route."""
        if self.has(MODULES):
            kind = self.read(MODEL).get("model_type", "SentenceTransformer")
            if kind == "CrossEncoder":
                return "classify"
            if kind != "SentenceTransformer":
                raise ValueError(
                    f"{self.source} is a {kind}, whose answers have no route here: the server has "
                    "SentenceTransformer and CrossEncoder."
                )
            return "embed"
        if adapter := self.read(ADAPTER):
            kinds = {None: "embed", "FEATURE_EXTRACTION": "embed", "SEQ_CLS": "classify"}
            if (kind := adapter.get("task_type")) not in kinds:
                raise ValueError(f"{self.source} is an adapter for `task_type` {kind!r}: give one of {list(kinds)}.")
            return kinds[kind]
        config = self.read("config.json")
        if config.get("modality", "image" if "image_size" in config else "text") != "text":
            raise ValueError(f"{self.source} reads images: the server has texts.")
        name = (config.get("architectures") or [""])[0]
        found = re.search(r"For[A-Z]\w*$", name)  # not that of RoFormer
        suffix = found[0] if found else ""
        if suffix == "ForSequenceClassification":
            return "classify"
        if suffix not in ("", "ForMaskedLM", "ForPreTraining"):
            raise ValueError(
                f"{self.source} is a {name}: the server has encoders, ...ForSequenceClassification, and what "
                "sentence-transformers saved."
            )
        return "embed"

    def load(self, task: str, options: dict, model_options: dict) -> SentenceTransformer | CrossEncoder:
        model_class = SentenceTransformer if task == "embed" else CrossEncoder
        if self.has(ADAPTER):
            return self.load_adapted(model_class, options, model_options)
        if self.is_exported:
            load = self.load_encoder_of_graph if self.has(MODULES) else self.load_graph
            return load(model_class, options["trust_remote_code"])
        return model_class(self.source, **options, model_kwargs=model_options)

    def load_modules(self, trust: bool, first: nn.Module | None = None) -> list[nn.Module]:
        """Load the modules that modules.json names; `first` takes the place of the first one."""
        from ..export.exported_sentence import ExportedTransformer

        modules = [] if first is None else [first]
        for module in read_modules(Path(self.path(MODULES)))[len(modules) :]:
            kind = module["type"]
            if kind not in EXPORTED and not kind.startswith("sentence_transformers."):
                raise ValueError(f"{self.source}: `type` {kind!r} in {MODULES} is code of its own, which is not run.")
            module_class = ExportedTransformer if kind in EXPORTED else import_from_string(kind)
            modules.append(module_class.load(self.source, subfolder=module["path"], trust_remote_code=trust))
        return modules

    def settings(self, model_class: type) -> dict:
        """Return the settings that sentence-transformers saved, as arguments of `model_class`."""
        saved = self.read(MODEL)
        names = ["prompts", "default_prompt_name"]
        if model_class is SentenceTransformer:
            names += ["similarity_fn_name", "truncate_dim"]
        found = {name: saved[name] for name in names if saved.get(name) is not None}
        if model_class is CrossEncoder and (saved.get("activation_fn") or "").startswith("torch."):
            found["activation_fn"] = import_from_string(saved["activation_fn"])()
        return found

    def load_encoder_of_graph(self, model_class: type, trust: bool) -> SentenceTransformer | CrossEncoder:
        """
        Load a graph with files of sentence-transformers. That library would only load the first module, which is part
        of this package, if the folder's code is trusted, and would then run any other code of the folder, too.
        """
        return model_class(modules=self.load_modules(trust), device="cpu", **self.settings(model_class))

    def load_graph(self, model_class: type, trust: bool) -> SentenceTransformer | CrossEncoder:
        """Load a graph without files of sentence-transformers. It gives logits, or the mean of the hidden states."""
        from ..export.exported_sentence import ExportedTransformer

        kind, output, name = "feature-extraction", "last_hidden_state", "token_embeddings"
        if model_class is CrossEncoder:
            kind, output, name = "sequence-classification", "logits", "scores"
        method = {"text": {"method": "forward", "method_output_name": output}}
        own_code = {x: {"trust_remote_code": trust} for x in ("config_kwargs", "processor_kwargs", "model_kwargs")}
        first = ExportedTransformer(
            self.source, transformer_task=kind, modality_config=method, module_output_name=name, **own_code
        )
        if output not in first.model.output_names:
            raise ValueError(f"The graph in {self.source} gives {', '.join(first.model.output_names)}, no {output}.")
        pooling = [Pooling(first.get_embedding_dimension())] if model_class is SentenceTransformer else []
        return model_class(modules=[first, *pooling], device="cpu")

    def load_adapted(self, model_class: type, options: dict, model_options: dict):
        """
        Load the base model with its tokenizer and classes, and merge the adapter into it. The modules after the model
        are those of the adapter's folder, or else those of the base.
        """
        from safetensors.torch import load_file

        base = Files(base_of_adapter(Path(self.path(ADAPTER)).parent))
        name = (base.read("config.json").get("architectures") or [""])[0]
        if model_class is CrossEncoder and not name.endswith("ForSequenceClassification"):
            # The layer of classes was trained with the adapter. It is the smallest of its full matrices.
            weights = load_file(self.path("adapter_model.safetensors"))
            sizes = [x.shape[0] for key, x in weights.items() if x.dim() == 2 and "lora_" not in key]
            if not sizes:
                raise ValueError(f"{self.source} has no layer of classes, and its base, {base.source}, is a {name}.")
            options = options | {"num_labels": min(sizes)}
        model = model_class(base.source, **options, model_kwargs=model_options | {"dtype": torch.float32})
        model[0].model = merge_adapter(model[0].model, self.source, model_options["dtype"])
        for module in list(model)[1:]:
            module.to(model_options["dtype"])
        if not self.has(MODULES):
            return model
        tokens = self.read("tokenizer_config.json").get("model_max_length", NO_LIMIT)
        longest = self.read(SETTINGS).get("max_seq_length")
        model.max_seq_length = longest or min(tokens, model.max_seq_length or NO_LIMIT)
        modules = self.load_modules(options["trust_remote_code"], first=model[0])
        return model_class(modules=modules, device=options["device"], **self.settings(model_class))


def describe(
    model: SentenceTransformer | CrossEncoder, files: Files, task: str, max_input_tokens: int | None
) -> Description:
    """Describe a model. Raises a ValueError if the server does not support it."""
    first = model[0]
    if not isinstance(first, Transformer) or not hasattr(model, "tokenizer") or "text" not in first.modalities:
        raise ValueError(
            f"The first module of {files.source} is a {type(first).__name__}: the server has encoders that begin with "
            "a Transformer for texts."
        )
    if "message" in first.modalities or first.transformer_task not in TASKS:
        raise ValueError(
            f"{files.source} has a chat template for its texts, or a causal language model (its `transformer_task` is "
            f"{first.transformer_task!r}), and the server has neither: give an encoder or a cross-encoder."
        )
    check_words(model.tokenizer, files.source)
    config = first.model.config
    own = own_limit(model)
    if max_input_tokens is not None and own is not None and max_input_tokens > own:
        raise ValueError(f"--max_input_tokens is {max_input_tokens}: this model reads {own} tokens.")
    about = Description(
        task=task,
        max_input_tokens=max_input_tokens or min(own or MOST_TOKENS, MOST_TOKENS),
        own_limit=own,
        size=0,
        vocab_size=config.vocab_size,
        dtype="float32" if isinstance(first.model, ExportedModel) else str(first.model.dtype).removeprefix("torch."),
        model_type=config.model_type,
        default_prompt=model.prompts.get(model.default_prompt_name, ""),
    )
    if task == "embed":
        describe_encoder(about, model, files)
    else:
        describe_classes(about, model, config, files)
    return about


def own_limit(model: SentenceTransformer | CrossEncoder) -> int | None:
    """Return the most tokens that a model reads; `None` without a limit."""
    network = model[0].model
    limits = [as_long_as_saved(model).max_seq_length or NO_LIMIT]
    if isinstance(network, ExportedModel):
        limits.append(BUFFERED_POSITIONS)
    else:
        limits.append(longest_text(network) or NO_LIMIT)
    return min(limits) if min(limits) < NO_LIMIT else None


def describe_encoder(about: Description, model: SentenceTransformer, files: Files) -> None:
    pooling = next((module for module in model if isinstance(module, Pooling)), None)
    about.size = model.get_embedding_dimension()
    about.prompts = dict(model.prompts)
    if pooling is not None:
        about.pooling = str(pooling.pooling_mode)
        if not pooling.include_prompt and any(about.prompts.values()):
            raise ValueError(f"{files.source} leaves prompts out of its pooling, which the server does not do.")
    if not files.has(MODULES) and not files.read(ADAPTER):
        about.notes.append(f"{files.source} has no {MODULES}: vectors are the mean of all tokens' hidden states.")


def describe_classes(about: Description, model: CrossEncoder, config, files: Files) -> None:
    about.size = model.num_labels
    about.labels = [str(config.id2label.get(n, f"LABEL_{n}")) for n in range(about.size)]
    if files.has(ADAPTER) and about.size > 1 and about.labels == [f"LABEL_{n}" for n in range(about.size)]:
        about.notes.append(f"{files.source} is an adapter, which has no names of classes: its merged model has them.")
    if about.task == "rerank" and about.size != 1:
        raise ValueError(f"--task rerank: the model has {about.size} classes, and a reranker has one.")
    kind = getattr(config, "problem_type", None)
    # With several classes, Identity is the default of sentence-transformers, and any other function was chosen.
    if about.task == "rerank" or about.size > 1 and not isinstance(model.activation_fn, nn.Identity):
        about.activation = model.activation_fn
    elif kind != "regression":
        is_sigmoid = kind == "multi_label_classification" or about.size == 1
        about.activation = torch.sigmoid if is_sigmoid else partial(torch.softmax, dim=-1)


def compare(engine: Engine, tolerance: float) -> None:
    """
    Compare texts of several lengths, computed together by the server and one by one by sentence-transformers.

    Raises:
        ValueError: if the two differ.
    """
    model, about = engine.model, engine.about
    words = " ".join(TEXTS * LONGEST_TRIED).split()
    tried, exact = LONGEST_TRIED, getattr(model[0].model.config, "lion_exact_length", 0)
    if tried <= exact < 4 * tried:  # longer texts are computed in another way, which must not change short ones
        tried = exact + len(TEXTS[1].split())
    longest = " ".join(words[: min(about.max_input_tokens, tried)])
    given = [*PAIRS, ("What?", longest)] if about.task == "rerank" else [*TEXTS, longest]
    if about.task == "embed":
        alone = partial(model.encode, normalize_embeddings=True, show_progress_bar=False)
    else:
        alone = partial(model.predict, activation_fn=nn.Identity(), show_progress_bar=False)
    expected = np.array([alone(one).reshape(-1) for one in given])
    inputs = with_prompt(about.default_prompt, given)
    found = np.array(engine.compute(engine.tokenize(inputs, "right"), in_one=True))
    if about.task == "embed":
        found = unit(found)
    if not found.shape == expected.shape == (len(given), about.size) or not np.isfinite(found).all():
        raise ValueError(
            f"For {len(given)} texts, sentence-transformers gives {list(expected.shape)} numbers, and the server "
            f"{list(found.shape)} of size {about.size}, or some that are not finite: the model cannot be served "
            "correctly."
        )
    difference = float(abs(found - expected).max() / max(1.0, abs(expected).max()))
    if difference > tolerance:
        raise ValueError(
            f"Texts that are computed together differ by {difference:.2g} from the same texts one by one "
            "(sentence-transformers): padding changes what this model computes, or it reads texts in its own way, so "
            "it cannot be served correctly."
        )
