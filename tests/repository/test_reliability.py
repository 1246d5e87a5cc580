# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Random problems, threads, long trainings, hostile files: a little of what tests/tools/soak.py does for minutes."""

import json
import os
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from conftest import MIXERS, TINY, mixer_fields
from fuzzing import inference_and_gradient, kernel_problems, model_problems
from hypothesis import HealthCheck, given, settings
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoTokenizer, pipeline

from modeling_lion import LionConfig, LionForMaskedLM, LionModel, LionTokenizer


OPTIONS = {
    "deadline": None,
    "derandomize": True,
    "database": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture],
}


@pytest.mark.slow
@given(problem=kernel_problems(max_length=300, max_scores=200_000))
@settings(max_examples=200, **OPTIONS)
def test_kernels_on_anything(problem):
    problem.check()


@pytest.mark.slow
@given(problem=model_problems())
@settings(max_examples=80, **OPTIONS)
def test_models_on_anything(problem, log):
    problem.check()


@pytest.mark.slow
@pytest.mark.parametrize("mixer", MIXERS)
def test_eight_threads_at_once(mixer, kernels_of):
    """Inference, encode_long and training steps of one model in eight threads give what they give one by one."""
    model = LionModel(LionConfig(**mixer_fields(mixer), **TINY | {"position_embedding_type": "none"})).eval()
    inputs = [torch.randint(1, TINY["vocab_size"], (1 + i % 2, 10 + 5 * i)) for i in range(8)]

    def work(ids):
        return inference_and_gradient(model, ids, segment_length=16)

    # The reference, and "rnn", compute with nothing but transformers' own operations.
    for kernel in set(kernels_of(mixer)) - {"eager", "rnn", "auto"}:
        model.set_attn_implementation(kernel)
        expected = [work(ids) for ids in inputs]
        with ThreadPoolExecutor(8) as pool:
            for result, right in zip(pool.map(work, inputs), expected, strict=True):
                assert len(result) == len(right)
                assert all(torch.equal(x, y) for x, y in zip(result, right, strict=True))


# Files


class Payload:
    """Pickled, it makes a file when it is loaded."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    LionForMaskedLM(LionConfig(**TINY)).save_pretrained(folder)
    LionTokenizer.train_from_iterator(["the lion sleeps"] * 5, vocab_size=40).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "folder"))


def change(path: Path, **fields) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def evil_weights(folder: Path, payload: Payload, name: str, write) -> None:
    (folder / "model.safetensors").unlink()
    write(payload, folder / name)


def evil_index(folder: Path, payload: Payload) -> None:
    """An index of safetensors that names a pickle."""
    names = LionForMaskedLM.from_pretrained(folder).state_dict()
    evil_weights(folder, payload, "pytorch_model.bin", torch.save)
    index = {"metadata": {}, "weight_map": dict.fromkeys(names, "pytorch_model.bin")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def evil_code(folder: Path, payload: Payload, file: str, **fields) -> None:
    change(folder / file, **fields)
    (folder / "evil.py").write_text(f"import os\nos.mkdir({str(payload.path)!r})\n")


def dump(payload: Payload, path: Path) -> None:
    path.write_bytes(pickle.dumps(payload, protocol=2))


HOSTILE = {
    "pickled weights": lambda *args: evil_weights(*args, "pytorch_model.bin", torch.save),
    "a bare pickle": lambda *args: evil_weights(*args, "pytorch_model.bin", dump),
    "a pickle by the name of safetensors": lambda *args: evil_weights(*args, "model.safetensors", dump),
    "an index of pickles": evil_index,
    "code for a type that is unknown": lambda *args: evil_code(
        *args, "config.json", model_type="evil", auto_map={"AutoConfig": "evil.C", "AutoModelForMaskedLM": "evil.M"}
    ),
    "a kernel from the Hub": lambda *args: evil_code(*args, "config.json", attn_implementation="evil/kernel"),
}
HARMLESS = {
    "code for LION": lambda *args: evil_code(
        *args, "config.json", auto_map={"AutoConfig": "evil.C", "AutoModelForMaskedLM": "evil.M"}
    ),
    "code for a tokenizer": lambda *args: evil_code(
        *args, "tokenizer_config.json", tokenizer_class="T", auto_map={"AutoTokenizer": ["evil.T", "evil.T"]}
    ),
}


@pytest.mark.parametrize("name", HOSTILE | HARMLESS)
def test_hostile_files_are_never_executed(name, folder, tmp_path, monkeypatch):
    """Refused, or the code in it left alone; whoever is asked whether to run it says no."""
    monkeypatch.setattr("builtins.input", lambda *args: "n")
    payload = Payload(tmp_path / "executed")
    (HOSTILE | HARMLESS)[name](folder, payload)
    for loader in (AutoModelForMaskedLM, LionForMaskedLM):
        if name in HARMLESS or (loader, name) == (LionForMaskedLM, "code for a type that is unknown"):
            assert isinstance(loader.from_pretrained(folder), LionForMaskedLM)
        else:
            with pytest.raises((OSError, ValueError, ImportError)) as error:
                loader.from_pretrained(folder)
            if "pickle" in name:
                assert str(folder) in str(error.value) and "weights_only" not in str(error.value)
    if name == "code for a tokenizer":
        AutoTokenizer.from_pretrained(folder)
    if name == "code for LION":
        pipeline("fill-mask", model=str(folder))
    assert not payload.path.exists()


@pytest.mark.parametrize(
    ("file", "loader"),
    [
        ("config.json", AutoConfig),
        ("config.json", AutoModel),
        ("tokenizer.json", AutoTokenizer),
        ("tokenizer_config.json", AutoTokenizer),
        ("model.safetensors", AutoModel),
    ],
)
def test_damaged_files_give_errors(file, loader, folder):
    for content in (b"", b"{", b"[]", b"null", b"\xff\xfe\x00"):
        (folder / file).write_bytes(content)
        with pytest.raises((OSError, ValueError, TypeError, AttributeError)) as error:
            loader.from_pretrained(folder)
        if file in ("tokenizer.json", "model.safetensors"):
            assert str(folder) in str(error.value) and "again" in str(error.value), content
