# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Mixers and feature maps from elsewhere: configurations, saving, loading with and without this package, training."""

import functools
import importlib
import json
import re
import sys

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from processes import run_without_package
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, BertConfig, BertModel, Trainer, TrainingArguments

from configuration_lion import registry
from modeling_lion import (
    LionConfig,
    LionForMaskedLM,
    LionModel,
    linearize,
    lion_preset,
    register_feature_map,
    register_mixer,
)
from modeling_lion.mixers.linear import LinearMixer
from modeling_lion.mixers.softmax import SoftmaxMixer


RETENTION = '''
import torch
from torch import nn
from transformers import initialization as init

from modeling_lion import register_mixer
from modeling_lion.mixers.linear import LinearMixer


@register_mixer
class RetentionMixer(LinearMixer):
    """The fixed decays of RetNet, times a learnt one."""

    name, title, description = "retention", "Retention", "with the fixed decays of RetNet"
    fields = {"retention_offset": 5.0}

    def __init__(self, config, layer_idx=0):
        super().__init__(config, layer_idx)
        self.decay_rate = nn.Parameter(torch.empty(config.num_attention_heads))

    def init_own_weights(self, config):
        init.ones_(self.decay_rate)

    def log_decay(self, hidden_states):
        from modeling_lion.attention.numerics import accumulation_dtype as dtype_of

        heads = torch.arange(len(self.decay_rate), device=hidden_states.device)
        fixed = torch.log1p(-torch.exp2(-self.config.retention_offset - heads))
        return (fixed * self.decay_rate.exp()).to(dtype_of(hidden_states.dtype))
'''
MAPS = """
import torch
from torch import nn

from modeling_lion import register_feature_map


@register_feature_map
def square(x):
    return x * x + 1e-3


@register_feature_map
class Scaled(nn.Module):
    def __init__(self, num_heads, head_dim):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(num_heads, 1))

    def init_own_weights(self, config):
        nn.init.constant_(self.scale, 2.0)

    def forward(self, x):
        return (self.scale * x).exp()
"""
TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24, "vocab_size": 40}
IDS = torch.arange(1, 31).view(2, 15)


@pytest.fixture
def outside(tmp_path, monkeypatch, forgets_mixers):
    """Two files somewhere else, whose names are forgotten afterwards."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for name, source in (("retention", RETENTION), ("maps", MAPS)):
        (folder / f"{name}.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))
    return folder


def make_model(model_class=LionForMaskedLM, **fields) -> torch.nn.Module:
    importlib.import_module("retention")
    importlib.import_module("maps")
    torch.manual_seed(0)
    fields = {"mixer_type": "retention", "feature_map": "square", "retention_offset": 3.0} | fields
    return model_class(LionConfig(**TINY | fields)).eval()


def test_every_form_computes_them(outside, equal):
    for feature_map in ("square", "Scaled"):
        model = make_model(LionModel, feature_map=feature_map).double()
        mixer = model.layers[0].attention.mixer
        assert (mixer.decay_rate == 1).all() and mixer.log_decay(torch.zeros(1, 1, 16)).exp()[0] < 0.875**2.7
        if feature_map == "Scaled":
            assert (mixer.feature_map.scale == 2).all() and mixer.key_feature_map is not mixer.feature_map
        model.set_attn_implementation("eager")
        expected = model(IDS).last_hidden_state
        for form in ("parallel", "chunk", "rnn", "auto"):
            model.set_attn_implementation(form)
            equal(model(IDS).last_hidden_state, expected)
    assert model.config.has_decays and model.config.position_embedding_type == "none"
    assert model.half().layers[0].attention.mixer.decay_rate.dtype == torch.float16  # as everywhere: loading keeps it
    assert model._keep_in_fp32_modules_strict == {"decay_rate"}


def test_fields_of_a_mixer(outside, tmp_path):
    importlib.import_module("retention")
    assert LionConfig(mixer_type="retention").retention_offset == 5.0
    config = lion_preset("lion-text-small", mixer_type="retention", retention_offset=4.0)
    config.save_pretrained(tmp_path / "config")
    assert AutoConfig.from_pretrained(tmp_path / "config").retention_offset == 4.0
    with pytest.raises(ValueError, match="`retention_ofset`; did you mean `retention_offset`"):
        LionConfig(mixer_type="retention", retention_ofset=4.0)
    assert config.base_model_tp_plan.keys() == lion_preset("lion-text-small").base_model_tp_plan.keys()


@pytest.mark.slow
def test_saved_and_loaded_with_and_without_the_package(outside, tmp_path, equal, log):
    """The files travel beside the weights; in the other process nothing else knows them."""
    model, learnt = make_model(), make_model(LionModel, mixer_type="selective", feature_map="Scaled")
    model.save_pretrained(tmp_path / "mixer")
    learnt.save_pretrained(tmp_path / "map")
    encoder = linearize(BertModel(BertConfig(**TINY)).eval(), feature_map="square", window=2, exact_length=4)
    encoder.save_pretrained(tmp_path / "encoder")
    generated = {"configuration_lion.py", "modeling_lion.py", "triton_lion.py"}
    for name, files in (("mixer", {"retention.py", "maps.py"}), ("map", {"maps.py"}), ("encoder", {"maps.py"})):
        assert {path.name for path in (tmp_path / name).glob("*.py")} == generated | files
    assert json.loads((tmp_path / "mixer" / "config.json").read_text())["auto_map"]["AutoConfig"] == (
        "retention.LionConfig"
    )
    expected = {"mixer": model(IDS).logits, "map": learnt(IDS).last_hidden_state, "encoder": encoder(IDS)[0]}
    equal(AutoModelForMaskedLM.from_pretrained(tmp_path / "mixer")(IDS).logits, expected["mixer"])
    for name in ("map", "encoder"):
        equal(AutoModel.from_pretrained(tmp_path / name)(IDS)[0], expected[name])
    torch.save((IDS, {name: x.detach() for name, x in expected.items()}), tmp_path / "expected.pt")
    code = """
import torch, transformers
ids, expected = torch.load("expected.pt")
for name, right in expected.items():
    auto_class = transformers.AutoModelForMaskedLM if name == "mixer" else transformers.AutoModel
    for source in (name, f"again_{name}"):
        model = auto_class.from_pretrained(source, trust_remote_code=True).eval()
        assert torch.equal(model(ids)[0], right), (name, source)
        model.save_pretrained(f"again_{name}")
assert transformers.AutoConfig.from_pretrained("again_mixer", trust_remote_code=True).retention_offset == 3.0
"""
    run_without_package(code, tmp_path)
    assert {path.name for path in (tmp_path / "again_mixer").glob("*.py")} == generated | {"retention.py", "maps.py"}
    assert log == []


def test_a_folder_whose_file_was_not_imported_says_which(outside, tmp_path):
    make_model().save_pretrained(tmp_path / "model")
    del registry.MIXERS["retention"]
    with pytest.raises(ValueError, match="'retention', which no imported file registers.* as retention.py beside"):
        AutoModel.from_pretrained(tmp_path / "model")
    del registry.FEATURE_MAPS["square"]
    for fields in ({"mixer_type": "retention"}, {"feature_map": "square"}):
        with pytest.raises(
            (ValueError, StrictDataclassError), match="give one of '.*import the file that registers '"
        ):
            LionConfig(**fields)


def test_the_trainer_trains_and_saves_them(outside, tmp_path):
    model = make_model()
    before = model.lion.layers[0].attention.mixer.decay_rate.detach().clone()
    arguments = TrainingArguments(
        str(tmp_path), max_steps=2, save_steps=2, learning_rate=0.1, report_to="none", use_cpu=True, disable_tqdm=True
    )
    rows = [{"input_ids": row, "labels": row} for row in IDS.repeat(4, 1)]
    Trainer(model, arguments, train_dataset=rows).train()
    rate = model.lion.layers[0].attention.mixer.decay_rate
    assert (rate != before).all()
    assert (tmp_path / "checkpoint-2" / "retention.py").exists()
    loaded = AutoModelForMaskedLM.from_pretrained(tmp_path / "checkpoint-2")
    assert torch.equal(loaded.lion.layers[0].attention.mixer.decay_rate, rate)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("import modeling_lion.mixers", "write `from package import name`"),
        ("from .neighbour import x", "it may import no file beside it"),
        ("from neighbour import x", "it may import no file beside it"),
        ("from modeling_lion import linearize", "it imports linearize of modeling_lion, which models do not need"),
    ],
)
def test_what_cannot_travel_is_said_and_the_weights_are_saved(line, message, outside, tmp_path, log):
    model = make_model()
    (outside / "neighbour.py").write_text("x = 1", encoding="utf-8")
    (outside / "retention.py").write_text(f"{line}\n{RETENTION}", encoding="utf-8")
    model.save_pretrained(tmp_path / "model")
    assert re.search(f"retention.py.* is not saved: {re.escape(message)}.*imported before", "\n".join(log))
    assert not (tmp_path / "model" / "retention.py").exists()
    assert AutoModelForMaskedLM.from_pretrained(tmp_path / "model").config.mixer_type == "retention"


def test_a_class_without_a_file_is_said(outside, tmp_path, log):
    scope = {"__name__": "__main__"}
    exec(RETENTION, scope)
    torch.manual_seed(0)
    LionModel(LionConfig(mixer_type="retention", **TINY)).save_pretrained(tmp_path / "model")
    assert "RetentionMixer is not saved: define it in a file of its own, and import that." in "\n".join(log)


def make_cube():
    def cube(x):
        return x**3

    return cube


def test_initial_values_that_would_not_be_set_are_refused(outside):
    """transformers does not call `_init_weights` with a module that has no parameter of its own."""

    @register_mixer
    class Gated(LinearMixer):
        name, description = "gated", "with a gate"

        def __init__(self, config, layer_idx=0):
            super().__init__(config, layer_idx)
            self.decay = torch.nn.Linear(config.hidden_size, config.num_attention_heads)

        def init_own_weights(self, config):
            torch.nn.init.ones_(self.decay.bias)

    with pytest.raises(ValueError, match=r"Gated.init_own_weights would not be called.*the child.*decay"):
        make_model(mixer_type="gated")


@pytest.mark.parametrize("persistent", [True, False])
def test_buffers_that_would_be_empty_in_a_loaded_model_are_refused(persistent, outside):
    @register_mixer
    class Lives(LinearMixer):
        name, description = "lives", "with fixed decays in a buffer"

        def __init__(self, config, layer_idx=0):
            super().__init__(config, layer_idx)
            self.lives = torch.nn.Module()
            self.lives.register_buffer("decay", torch.ones(config.num_attention_heads), persistent=persistent)

        def log_decay(self, hidden_states):
            return -1 / self.lives.decay

    if persistent:
        make_model(mixer_type="lives")
    else:
        with pytest.raises(
            ValueError, match="The buffer lives.decay of Lives would be empty.*Module.init_own_weights"
        ):
            make_model(mixer_type="lives")


@pytest.mark.parametrize(
    "log_decay", [torch.zeros(1), torch.tensor(0.0), torch.zeros(2, 5, 4)], ids=["one", "scalar", "heads last"]
)
@pytest.mark.parametrize("kernel", ["eager", "parallel", "chunk", "rnn"])
def test_decays_of_another_shape_are_refused(kernel, log_decay, outside):
    """Whatever would be broadcast, or read beyond its end."""

    register_mixer(
        type("Shape", (LinearMixer,), {"name": "shape", "log_decay": lambda self, hidden_states: log_decay})
    )
    model = make_model(mixer_type="shape", num_attention_heads=4)
    model.set_attn_implementation(kernel)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    for inputs in ({}, {"attention_mask": mask}):
        with pytest.raises(
            ValueError, match=r"Shape.log_decay must be None, \(heads,\) = \(4,\) or .*\(2, 4, 5\); got"
        ):
            model(torch.ones(2, 5, dtype=torch.long), **inputs)


def test_fields_of_a_mixer_have_their_own_names(outside):
    register_mixer(type("Clash", (LinearMixer,), {"name": "clash", "fields": {"hidden_size": 1, "mine": 2}}))
    with pytest.raises(ValueError, match="The mixer 'clash' has `fields` that LionConfig has, too: hidden_size"):
        LionConfig(mixer_type="clash")


def test_names_are_given_once(outside):
    with pytest.raises(ValueError, match="Nameless has no `name`"):
        register_mixer(type("Nameless", (LinearMixer,), {}))
    with pytest.raises(ValueError, match="The mixer 'softmax' is SoftmaxMixer: give Other another `name`"):
        register_mixer(type("Other", (SoftmaxMixer,), {}))
    with pytest.raises(ValueError, match="The feature map 'relu' is relu: give another `name`"):
        register_feature_map(make_cube(), name="relu")
    for nameless in (lambda x: x, functools.partial(make_cube(), 1), torch.nn.ReLU()):
        with pytest.raises(TypeError, match="give a function that `def` makes, or a class"):
            register_feature_map(nameless, name="nameless")
    importlib.import_module("retention")
    importlib.reload(sys.modules["retention"])  # as a cell of a notebook that runs again
    assert registry.MIXERS["retention"] is sys.modules["retention"].RetentionMixer


def test_a_map_that_is_not_positive_is_not_divided_by(outside):
    register_feature_map(make_cube(), is_positive=False)
    with pytest.raises(StrictDataclassError, match='`feature_map="cube"` with `normalization="sum"`'):
        LionConfig(feature_map="cube")
    assert LionConfig(feature_map="cube", normalization="none").feature_map == "cube"
