# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Three mixers in files of their own (benchmarks/peers: gla.py, neighbours.py and corrected.py): each gets what
docs/concepts/architecture.md promises for what it brings, and a refusal for the rest.
"""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from processes import run_without_package
from torch import nn
from transformers import AutoConfig, AutoModel, BertConfig, BertModel
from transformers import initialization as init

from modeling_lion import LionConfig, LionModel, linearize, register_feature_map, register_mixer
from modeling_lion.mixers.linear import LinearMixer
from modeling_lion.mixers.mixer import Mixer
from modeling_lion.mixers.selective import SelectiveMixer


ROOT = Path(__file__).parents[2]
TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24, "vocab_size": 40}
CLASSES = {"gla": "GlaMixer", "neighbours": "NeighboursMixer", "corrected": "CorrectedMixer"}
ALL = pytest.mark.parametrize("name", CLASSES)
NAMES = pytest.mark.parametrize("name", ["gla", "neighbours"])  # no linear mixers
IDS = torch.arange(60).view(2, 30) % 40
# One row with padding at the end, one with padding everywhere.
MASK = torch.arange(30) < torch.tensor([[21], [30]])
MASK[1, [0, 1, 7, 8, 9, 20, 29]] = False


@pytest.fixture(autouse=True)
def outside(forgets_mixers):
    """The mixers of both files are known in a test, and forgotten after it."""
    for name, class_name in CLASSES.items():
        register_mixer(getattr(import_module(f"peers.{name}"), class_name))
    register_feature_map(import_module("peers.corrected").unit_silu, is_positive=False)


def make_model(name: str, **fields) -> LionModel:
    torch.manual_seed(0)
    return LionModel(LionConfig(mixer_type=name, **TINY | fields)).double().eval()


def mixed_by_definition(name: str, mixer: Mixer, states: torch.Tensor) -> torch.Tensor:
    """What the mixer computes of one sequence, `(length, hidden_size)`, token by token, as its definition says."""
    length = len(states)
    if name == "neighbours":
        return torch.stack([states[max(0, i - 3) : i + 4].mean(0) for i in range(length)])
    if name == "corrected":
        query, key, value, decays, beta = mixer(states[None], make_layout()).inputs
        heads = []
        for h, (q, k, v, decay, write) in enumerate(
            zip(query[0], key[0], value[0], decays.forward[0].exp(), beta[0], strict=True)
        ):
            state, rows = torch.zeros(k.shape[1], v.shape[1], dtype=v.dtype), {}
            for i in range(length) if h % 2 == 0 else reversed(range(length)):
                state = decay[i] * state
                state = state + write[i] * torch.outer(k[i], v[i] - k[i] @ state)
                rows[i] = q[i] @ state
            heads.append(torch.stack([rows[i] for i in range(length)]))
        y = torch.stack(heads, 1)
        return (y / (y.square().mean(-1, keepdim=True) + 1e-5).sqrt()).flatten(1)
    query, key, value, log_decay = (x[0] for x in mixer.inputs(states[None]))  # (heads, length, head_dim)
    decay, rows = log_decay.exp(), []
    forward = torch.arange(len(query)) < len(query) // 2  # which heads read forward
    for i in range(length):
        row = torch.zeros_like(value[:, 0])
        for j in range(length):
            passed = decay[:, j + 1 : i + 1] if j <= i else decay[:, i:j]  # from j to i, without j
            weight = (query[:, i] * key[:, j] * passed.prod(1)).sum(-1)
            row += torch.where((forward & (j <= i)) | (~forward & (j >= i)), weight, 0)[:, None] * value[:, j]
        rows.append((row / (row.square().mean(-1, keepdim=True) + 1e-5).sqrt()).flatten())
    return torch.stack(rows) * torch.nn.functional.silu(mixer.gate_proj(states))


@ALL
def test_padded_and_packed_tokens_are_mixed_as_defined(name, equal):
    """Each sequence as if it were alone, wherever its tokens are, in every form."""
    model = make_model(name, num_hidden_layers=1)
    layer, inputs = model.layers[0].attention, []
    layer.register_forward_pre_hook(lambda module, args: inputs.append(args[0]))
    positions = torch.cat((torch.arange(11), torch.arange(19))).expand(2, -1)
    for kernel in ("auto", *layer.mixer.forms):
        model.set_attn_implementation(kernel)
        outputs = []
        layer.o_proj.register_forward_pre_hook(lambda module, args, found=outputs: found.append(args[0]))
        model(IDS, MASK)
        model(IDS[:1], position_ids=positions[:1])
        for states, mixed, real in ((inputs[-2], outputs[0], MASK), (inputs[-1][:, :11], outputs[1][:, :11], None)):
            for row, found in enumerate(mixed):
                chosen = slice(None) if real is None else real[row]
                equal(found[chosen], mixed_by_definition(name, layer.mixer, states[row, chosen]), kernel)
        assert name == "corrected" or (outputs[0][~MASK] == 0).all()


@ALL
@pytest.mark.parametrize("layer_types", [None, ["linear_attention", "sliding_attention"]], ids=["alone", "hybrid"])
def test_a_padded_batch_equals_its_rows_alone(name, layer_types, equal):
    model = make_model(name, layer_types=layer_types)
    together = model(IDS, MASK)
    together.last_hidden_state[MASK].pow(3).sum().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    for row, real in enumerate(MASK):
        alone = model(IDS[row, real][None])
        equal(together.last_hidden_state[row, real], alone.last_hidden_state[0])
        equal(together.pooler_output[row], alone.pooler_output[0])
        alone.last_hidden_state.pow(3).sum().backward()
    for parameter, value in model.named_parameters():
        if parameter in gradients:
            equal(gradients[parameter], value.grad, parameter)


@NAMES
@pytest.mark.parametrize("segment_length", [1, 7, 100])
@pytest.mark.parametrize("layer_types", [None, ["linear_attention", "sliding_attention"]], ids=["alone", "hybrid"])
def test_long_texts_in_segments(name, layer_types, segment_length, equal):
    """GLA passes states on; a mean needs its neighbours. Rows with padding go one by one."""
    model = make_model(name, layer_types=layer_types)
    types = torch.randint(2, IDS.shape)
    with torch.no_grad():
        expected = model(IDS, MASK, types)
    found = model.encode_long(IDS, MASK, types, segment_length=segment_length, show_progress=False)
    equal(found.last_hidden_state[MASK], expected.last_hidden_state[MASK])
    equal(found.pooler_output, expected.pooler_output)
    nothing = model.encode_long(IDS, torch.zeros_like(IDS), segment_length=segment_length, show_progress=False)
    assert (nothing.last_hidden_state == 0).all()


def test_names_of_forms_are_those_that_a_mixer_brings():
    model = make_model("gla")
    for name in ("sdpa", "parallel", "flash_attention_2"):
        with pytest.raises(ValueError, match=f"'{name}'` is not a form of the mixer 'gla'.*\"chunk\" .*\"rnn\""):
            model.set_attn_implementation(name)
    model = make_model("neighbours")
    with pytest.raises(ValueError, match="'rnn'` is not a form of the mixer 'neighbours'.*Use \"auto\".*\"eager\""):
        model.set_attn_implementation("rnn")
    model.set_attn_implementation("eager")  # the definition, which libraries ask for; there is one form
    hybrid = make_model("gla", layer_types=["linear_attention", "full_attention"])
    for name in ("chunk", "rnn", "sdpa", "eager"):
        hybrid.set_attn_implementation(name)
        assert hybrid(IDS, MASK).last_hidden_state.isfinite().all()
    with pytest.raises(ValueError, match="'parallel'.*layer_types"):
        hybrid.set_attn_implementation("parallel")


@NAMES
def test_decays_are_respected_and_other_fields_refused(name):
    """With decays there are no learnt positions, as in LION: a comparison is of the mixers."""
    config = LionConfig(mixer_type=name, **TINY)
    assert config.has_decays and config.position_embedding_type == "none"
    assert (config.conv_kernel, config.head_directions, config.has_linear_layers) == (0, "both", False)
    cases = [
        ({"modality": "image", "patch_order": "snake"}, "`patch_order` is 'snake' .* reads patches row by row only"),
        ({"rope_parameters": {"rope_theta": 1e4}}, "which has no rotary positions; leave `rope_parameters=None`"),
        ({"conv_kernel": 3}, "only linear attention has a short convolution"),
        ({"num_key_heads": 1}, "no layer is linear"),
    ]
    for fields, message in cases:
        with pytest.raises(StrictDataclassError, match=message):
            LionConfig(mixer_type=name, **TINY | fields)
    by_type = {"linear_attention": None, "sliding_attention": {"rope_theta": 1e4}}
    types = ["linear_attention", "sliding_attention"]
    assert LionConfig(mixer_type=name, layer_types=types, rope_parameters=by_type, **TINY).has_rotary_positions


@NAMES
def test_what_a_mixer_does_not_bring_is_refused(name):
    model = make_model(name)
    with pytest.raises(ValueError, match=f"The mixer '{name}' has no attention weights"):
        model(IDS, output_attentions=True)
    with pytest.raises(ValueError, match="has a decay mask to report"):
        model.attention_report([0], input_ids=IDS)
    with pytest.raises(ValueError, match=f"some layers need more .`mixer_type` is '{name}'"):
        model.set_sequence_parallel(object())
    with pytest.raises(ValueError, match=f"`mixer` is '{name}': it is not linear attention with decays"):
        linearize(BertModel(BertConfig(**TINY)), mixer=name)
    with pytest.raises(ValueError, match="computes the sequences of a batch one by one, which a graph"):
        torch.export.export(model, (IDS, MASK.long()))
    torch.testing.assert_close(torch.export.export(model, (IDS,)).module()(IDS)[0], model(IDS)[0])


def test_an_operator_of_its_own_is_not_extended_beyond_a_segment():
    """A linear mixer with other `forms` than LION's inherits neither its border states nor its scans."""
    model = make_model("corrected")
    assert model.config.head_directions == "alternate" and model.config.position_embedding_type == "none"
    with pytest.raises(ValueError, match="some layers see all tokens at once .`mixer_type` is 'corrected'"):
        model.encode_long(IDS)
    with pytest.raises(ValueError, match="The mixer 'corrected' has no attention weights"):
        model(IDS, output_attentions=True)
    with pytest.raises(ValueError, match="only linear attention that `lion_attention` computes has a decay mask"):
        model.attention_report([0], input_ids=IDS)
    with pytest.raises(ValueError, match="some layers need more .`mixer_type` is 'corrected'"):
        model.set_sequence_parallel(object())
    with pytest.raises(ValueError, match="`mixer` is 'corrected': "):
        linearize(BertModel(BertConfig(**TINY)), mixer="corrected")
    with pytest.raises(StrictDataclassError, match="'snake' with `mixer_type` 'corrected'"):
        LionConfig(modality="image", mixer_type="corrected", patch_order="snake", **TINY)
    exported = torch.export.export(model, (IDS, MASK.long())).module()(IDS, MASK.long())[0]
    torch.testing.assert_close(exported[MASK], model(IDS, MASK.long())[0][MASK])


def test_a_mixer_that_brings_nothing():
    @register_mixer
    class Whole(Mixer):
        name = "whole"

        def mix(self, hidden_states):
            return hidden_states + hidden_states.mean(1, keepdim=True)

    model = make_model("whole")
    assert model.config.position_embedding_type == "absolute"
    assert (
        LionConfig(modality="image", mixer_type="whole", patch_order="snake", **TINY).num_scans == 1
    )  # it has no order
    torch.testing.assert_close(model(IDS, MASK)[0][0, :21], model(IDS[:1, :21])[0][0])
    with pytest.raises(
        ValueError, match="mixer that has `reach`, and some layers see all tokens at once .`mixer_type` is 'wh"
    ):
        model.encode_long(IDS)
    Whole.mix = lambda self, hidden_states: hidden_states[:, :, :3]
    with pytest.raises(ValueError, match=r"`mix` returned \(2, 30, 3\) for hidden states \(2, 30, 16\)"):
        model(IDS)
    with pytest.raises(TypeError, match="Mixer has neither `mix` nor `forward`"):
        Mixer(model.config)(torch.zeros(1, 2, 16), make_layout()).attention(torch.zeros(1, 2, 16))
    with pytest.raises(ValueError, match="Odd has `forms` named 'fft': name them as LION's own, 'auto', 'parallel'"):
        register_mixer(type("Odd", (Mixer,), {"name": "odd", "forms": {"fft": abs}}))


def make_layout():
    from modeling_lion.sequence.layout import Layout

    return Layout()


def test_a_class_with_another_forward_says_again_what_it_can():
    """What it inherits was said of the other `forward`: forms, states, scans, attention weights."""

    @register_mixer
    class Doubled(SelectiveMixer):
        name = "doubled"

        def forward(self, hidden_states, layout, **options):
            call = super().forward(hidden_states, layout, **options)
            return call._replace(attention=lambda query, key, value, decays: 2 * value)

    @register_mixer
    class Floor(SelectiveMixer):
        name = "floor"

        def log_decay(self, hidden_states):
            return super().log_decay(hidden_states).clamp(min=-1)

    model = make_model("doubled", conv_kernel=0)
    model(IDS, MASK)
    with pytest.raises(ValueError, match="some layers see all tokens at once .`mixer_type` is 'doubled'"):
        model.encode_long(IDS)
    with pytest.raises(ValueError, match="'chunk'` is not a form of the mixer 'doubled'"):
        model.set_attn_implementation("chunk")
    with pytest.raises(ValueError, match="has no attention weights"):
        model(IDS, output_attentions=True)
    with pytest.raises(StrictDataclassError, match="'snake' with `mixer_type` 'doubled'"):
        LionConfig(modality="image", mixer_type="doubled", patch_order="snake", **TINY)
    for name in ("doubled", "floor"):
        with pytest.raises(ValueError, match=f"`mixer` is '{name}'"):
            linearize(BertModel(BertConfig(**TINY)), mixer=name)
    model = make_model("floor", conv_kernel=0)  # which inherits the rest
    model.set_attn_implementation("chunk")
    with torch.no_grad():
        expected = model(IDS).last_hidden_state
    torch.testing.assert_close(model.encode_long(IDS, segment_length=7, show_progress=False)[0], expected)


class StartsAtThree(nn.Linear):
    def init_own_weights(self, config):
        init.constant_(self.weight, 3.0)


def test_values_that_a_class_sets_are_kept():
    """Also of a linear layer whose name does not begin with "decay"."""
    register_mixer(
        type(
            "Gate",
            (Mixer,),
            {"name": "gate", "__init__": with_gate, "mix": lambda self, x: x * self.gate(x)},
        )
    )
    mixer = make_model("gate").layers[0].attention.mixer
    assert (mixer.gate.weight == 3).all() and 0.2 < mixer.q_proj.weight.std() * 4 < 2


def with_gate(self, config, layer_idx=0):
    Mixer.__init__(self, config, layer_idx)
    self.gate = StartsAtThree(config.hidden_size, config.hidden_size)


@ALL
def test_saved_with_its_file(name, tmp_path, equal):
    fields = {"neighbours": 2} if name == "neighbours" else {}
    model = make_model(name, **fields)
    model.save_pretrained(tmp_path)
    assert (tmp_path / f"{name}.py").is_file()
    equal(AutoModel.from_pretrained(tmp_path, dtype=torch.float64)(IDS)[0], model(IDS)[0])
    again, here = AutoConfig.from_pretrained(tmp_path), {"_name_or_path": None}
    assert again.to_dict() | here == model.config.to_dict() | here and getattr(again, "neighbours", 2) == 2
    with pytest.raises(ValueError, match="The weights in .* are of another mixer than `mixer_type` 'lit'"):
        LionModel.from_pretrained(tmp_path, mixer_type="lit", conv_kernel=0)


@pytest.mark.slow
def test_loaded_where_the_package_is_not(tmp_path):
    expected = {}
    for name in CLASSES:
        model = make_model(name).float()
        model.save_pretrained(tmp_path / name)
        expected[name] = model(IDS, MASK).last_hidden_state.detach()
    torch.save((IDS, MASK, expected), tmp_path / "expected.pt")
    code = """
import torch, transformers
ids, mask, expected = torch.load("expected.pt")
for name, right in expected.items():
    for source in (name, f"again_{name}"):
        config = transformers.AutoConfig.from_pretrained(source, trust_remote_code=True)
        assert config.has_decays and config.position_embedding_type == "none"
        model = transformers.AutoModel.from_pretrained(source, trust_remote_code=True).eval()
        assert torch.equal(model(ids, mask)[0], right), (name, source)
        if name != "corrected":
            found = model.encode_long(ids, mask, segment_length=7, show_progress=False)[0]
            torch.testing.assert_close(found[mask], right[mask])
        model.save_pretrained(f"again_{name}")
"""
    run_without_package(code, tmp_path)


@pytest.mark.slow
@ALL
def test_the_promised_tests_pass(name):
    """`pytest -p FILE tests/model -k NAME`, which the page advises."""
    folders = os.pathsep.join(filter(None, [str(ROOT / "benchmarks" / "peers"), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", name, "tests/model", "-k", name]
    environment = os.environ | {"PYTHONPATH": folders}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
    assert result.returncode == 0 and " passed" in result.stdout, result.stdout[-3000:]
    assert int(result.stdout.rpartition(" passed")[0].split()[-1]) > 40


# Inside other encoders

FAR = '''
import torch
from torch import nn
from transformers import initialization as init

from modeling_lion import register_mixer
from modeling_lion.mixers.linear import LinearMixer


class FarDecays(nn.Module):
    """λ = 1 - 2^-(6 + h) at first, then learnt, and at most that for keys of a large first channel."""

    def __init__(self, num_heads):
        super().__init__()
        self.rate = nn.Parameter(torch.empty(num_heads))

    def init_own_weights(self, config):
        init.copy_(self.rate, torch.log1p(-torch.exp2(-6.0 - torch.arange(len(self.rate)))).neg().log())

    def forward(self, key):
        dtype = torch.promote_types(key.dtype, torch.float32)
        return -(self.rate.exp() * (1 + key[..., 0].to(dtype).square())).transpose(1, 2)


@register_mixer
class FarMixer(LinearMixer):
    name, description = "far", "with decays of the first channel of each key"

    @staticmethod
    def decay_of_keys(num_heads, head_dim):
        return FarDecays(num_heads)
'''


@pytest.fixture
def far(tmp_path, monkeypatch):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "far.py").write_text(FAR, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    return import_module("far")


def linear_bert(**options) -> BertModel:
    torch.manual_seed(0)
    model = linearize(BertModel(BertConfig(**TINY | {"initializer_range": 0.5})).eval(), exact_length=4, **options)
    return model


@pytest.mark.parametrize("window", [0, 3])
def test_linearize_takes_decays_from_elsewhere(window, far, tmp_path, equal):
    model = linear_bert(mixer="far", window=window).double()
    head = model.encoder.layer[0].attention.self.lion
    assert isinstance(head.decay, far.FarDecays) and head.decay.rate.exp().max() < 0.016
    outputs = {}
    for form in ("lion_parallel", "lion_chunk", "lion_rnn", "lion"):
        model.set_attn_implementation(form)
        outputs[form] = model(IDS, MASK.long()).last_hidden_state
    plain = linear_bert(mixer="lit", window=window).double()
    assert (plain(IDS)[0] - model(IDS)[0]).abs().max() > 1e-3
    for output in outputs.values():
        equal(output[MASK], outputs["lion_parallel"][MASK])
    outputs["lion"].sum().backward()
    assert head.decay.rate.grad.any()
    model.save_pretrained(tmp_path / "model")
    assert (tmp_path / "model" / "far.py").is_file()
    loaded = AutoModel.from_pretrained(tmp_path / "model", dtype=torch.bfloat16)
    assert loaded.encoder.layer[0].attention.self.lion.decay.rate.dtype == torch.float32
    equal(AutoModel.from_pretrained(tmp_path / "model", dtype=torch.float64)(IDS)[0], model(IDS)[0])


@pytest.mark.slow
def test_a_linear_encoder_travels_with_its_mixer(far, tmp_path):
    model = linear_bert(mixer="far", window=3)
    model.save_pretrained(tmp_path / "model")
    torch.save((IDS, model(IDS)[0].detach()), tmp_path / "expected.pt")
    code = """
import torch, transformers
ids, right = torch.load("expected.pt")
for source in ("model", "again"):
    model = transformers.AutoModel.from_pretrained(source, trust_remote_code=True).eval()
    assert torch.equal(model(ids)[0], right)
    model.save_pretrained("again")
"""
    run_without_package(code, tmp_path)


def test_why_a_mixer_cannot_be_inside_another_encoder(far):
    register_mixer(type("Silent", (LinearMixer,), {"name": "silent"}))
    possible = "'lit', 'decay', 'selective', 'delta', 'far'"
    cases = {
        "silent": f"its class does not say how decays are made of keys, by a static method `decay_of_keys.*{possible}",
        "softmax": f"it is not linear attention with decays.*{possible}",
        "farther": f"`mixer` is 'farther'; give one of {possible}, or import the file that registers 'farther'",
    }
    for name, message in cases.items():
        model = BertModel(BertConfig(**TINY))
        with pytest.raises(ValueError, match=message):
            linearize(model, mixer=name)
        assert type(model) is BertModel and not hasattr(model.config, "lion_mixer")
    far.FarDecays.forward = lambda self, key: key[..., 0]
    with pytest.raises(ValueError, match=r"FarDecays.forward must be None, \(heads,\) = \(2,\) or .*\(2, 2, 30\)"):
        linear_bert(mixer="far")(IDS)
