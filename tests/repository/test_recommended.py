# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What users are told to use: each recommended preset, shrunk, and the checkpoints. The presets are the defaults of
`LionConfig`, on which the tests of models and of other libraries run.
"""

import shutil
from pathlib import Path

import pytest
import torch
import transformers
from apps import built_app
from deploy_lion import ExportedModel
from deploy_lion.cli import main
from deploy_lion.export.compare_with_torch import random_inputs
from hub_checkpoints import IMAGE_PRESETS, RECOMMENDED, SMALL, TEXTS, preset_checkpoint
from sentence_transformers import SentenceTransformer
from transformers import AutoModel

from configuration_lion.presets import RECOMMENDED_SIZES, lion_preset
from modeling_lion import LionModel
from modeling_lion.sequence import segments


# peft asks transformers 5.23 for what that has renamed; exporters use what torch calls deprecated.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
# Encoders that became linear; an adapter has no config.json.
CHECKPOINTS = {
    path.parent.name: path.parent
    for path in sorted(Path(__file__).resolve().parents[2].glob("checkpoints/*/config.json"))
}
TEXT_NAMES = [name for name in RECOMMENDED if name not in IMAGE_PRESETS]
EVERY = pytest.mark.parametrize("name", [*RECOMMENDED, *CHECKPOINTS])


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The folder of a preset, with what prepares its inputs; a copy of a checkpoint."""
    folders = {}

    def save(name: str) -> Path:
        if name in folders:
            return folders[name]
        folder = folders[name] = tmp_path_factory.mktemp("recommended") / name
        if name in CHECKPOINTS:
            shutil.copytree(CHECKPOINTS[name], folder)
        else:
            preset_checkpoint(folder, name, hidden_size=64)
        return folder

    return save


def load(folder: Path, **options) -> torch.nn.Module:
    """The model as it was saved: with its head, if it has one."""
    head = transformers.AutoConfig.from_pretrained(folder).architectures[0].partition("For")[2]
    auto = getattr(transformers, f"AutoModelFor{head}") if head else AutoModel
    return auto.from_pretrained(folder, **options).eval()


def inputs_of(model: torch.nn.Module, padding: str = "right") -> dict[str, torch.Tensor]:
    return random_inputs(model, 2, 40, padding)


def states(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """The last hidden states, 0 at padded tokens."""
    with torch.no_grad():
        hidden_states = model.base_model(**inputs).last_hidden_state.float()
    return hidden_states * inputs["attention_mask"].unsqueeze(-1) if "attention_mask" in inputs else hidden_states


def assert_near(actual: torch.Tensor, expected: torch.Tensor, error: float) -> None:
    assert (actual - expected).norm() <= error * expected.norm()


@pytest.mark.parametrize("size", RECOMMENDED_SIZES)
def test_sizes_of_a_recipe_differ_in_nothing_else(size):
    """So that one of them stands for all."""
    base = f"{size.rpartition('-')[0]}-base"
    assert f"lion-{base}" in RECOMMENDED
    assert lion_preset(f"lion-{size}", **SMALL).to_dict() == lion_preset(f"lion-{base}", **SMALL).to_dict()


@EVERY
def test_kernels_are_equal_at_every_padding(name, saved):
    model = load(saved(name)).double()
    prefix, reference = ("", "eager") if name not in CHECKPOINTS else ("lion_", "lion_parallel")
    if prefix:
        model.config.lion_exact_length = 0  # or all forms would be softmax
    for padding in ["none"] if name in IMAGE_PRESETS else ["right", "left", "interior"]:
        inputs = inputs_of(model, padding)
        inputs = {key: x.double() if x.is_floating_point() else x for key, x in inputs.items()}
        model.set_attn_implementation(reference)
        expected = states(model, inputs)
        for kernel in (f"{prefix}parallel", f"{prefix}chunk", f"{prefix}rnn"):
            model.set_attn_implementation(kernel)
            torch.testing.assert_close(states(model, inputs), expected, atol=1e-6, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:Use 'content=<...>' to upload raw bytes:DeprecationWarning"
)  # the client's business
@pytest.mark.parametrize("name", RECOMMENDED)
def test_bundle_and_upload(name, saved, tmp_path, hub):
    """
    The bundle is loaded without this package, by every kernel, runs in a pipeline, and arrives as it is.
    tests/repository/test_checkpoint.py bundles and exports the checkpoints, and a bundle is verified.
    """
    assert main(["bundle", str(saved(name)), str(tmp_path / "bundle"), "--license", "apache-2.0"]) == 0
    assert len(list((tmp_path / "bundle").glob("*.py"))) == 3
    assert main(["upload", str(tmp_path / "bundle"), "me/lion"]) == 0
    arrived = hub.files("me/lion")
    for file in (*(tmp_path / "bundle").glob("*.py"), tmp_path / "bundle" / "model.safetensors"):
        assert arrived[file.name] == file.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "target", "dtype"),
    [
        *((name, "onnx", "float32") for name in RECOMMENDED),
        ("lion-text-base", "openvino", "float32"),
        ("lion-text-base", "onnx", "int8"),
    ],
)
def test_export(name, target, dtype, saved, tmp_path, traced_once):
    assert main(["export", str(saved(name)), str(tmp_path), "--to", target, "--dtype", dtype, "--lengths"]) == 0
    model = load(saved(name))
    inputs = inputs_of(model)
    with torch.no_grad():
        expected = model(**inputs)
    for output, actual in ExportedModel(tmp_path, threads=1)(**inputs).items():
        real = inputs["attention_mask"].bool() if name not in IMAGE_PRESETS else ...
        assert_near(actual[real], expected[output][real], 0.1 if dtype == "int8" else 1e-4)


@pytest.mark.parametrize("name", TEXT_NAMES[:1])
def test_sentence_transformers_reads_long_texts_in_segments(name, saved, monkeypatch):
    encoder = SentenceTransformer(str(saved(name)), device="cpu")
    texts = [TEXTS[0] * 20, TEXTS[1]]
    expected, seen = encoder.encode(texts, convert_to_tensor=True), []
    encode_long = encoder[0].auto_model.encode_long
    monkeypatch.setattr(segments, "LONG_TEXT", 64)
    monkeypatch.setattr(segments, "TOKENS_IN_ONE_PASS", 64)
    monkeypatch.setattr(
        LionModel, "encode_long", lambda self, ids, *args, **options: seen.append(ids.shape) or encode_long(ids, *args)
    )
    torch.testing.assert_close(encoder.encode(texts, convert_to_tensor=True), expected, atol=5e-6, rtol=1e-5)
    assert len(seen) == 1 and seen[0][1] > 64


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="Inductor compiles C++")
def test_inductor_compiles_a_model_once_for_every_length(saved):
    """Models with decays have two graphs: "auto" has another form for short texts."""
    torch.compiler.reset()
    model = AutoModel.from_pretrained(saved(TEXT_NAMES[0]), num_hidden_layers=1).eval()
    compiled = torch.compile(model, dynamic=True, fullgraph=True)
    for length in (700, 50, 350):
        inputs = random_inputs(model, 1, length)
        with torch.compiler.set_stance("default" if length == 700 else "fail_on_recompile"), torch.no_grad():
            actual = compiled(**inputs).last_hidden_state
        torch.testing.assert_close(actual, states(model, inputs), atol=1e-5, rtol=1e-4)
    torch.compiler.reset()


@EVERY
def test_the_app_starts(name, saved):
    assert built_app(saved(name)).title == f"LION: {name}"
