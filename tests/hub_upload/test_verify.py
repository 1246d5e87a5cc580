# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
import json
import math

import pytest
import torch
from deploy_lion.app.panels import load_served
from deploy_lion.cli import main
from hub_checkpoints import RECOMMENDED, SMALL, image_checkpoint, linear_checkpoint, preset_checkpoint, text_checkpoint
from hub_upload_lion import verify_checkpoint
from hub_upload_lion.checkpoint import find_checkpoint, load_model
from hub_upload_lion.sample_inputs import pad_sequences, sample_inputs
from hub_upload_lion.verify import ALLOWANCE, KernelError, numerics_report, summary
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import AutoModel, BertConfig

from modeling_lion import LionConfig, LionModel
from modeling_lion.attention.implementation_names import FORMS
from modeling_lion.attention.lion_attention import lion_attention
from modeling_lion.linearized import attention_functions
from modeling_lion.linearized.attention_functions import LINEARIZED_FORMS
from modeling_lion.linearized.branch import LinearBranch
from modeling_lion.mixers.linear import LinearMixer
from modeling_lion.tokens import Tokens


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return text_checkpoint(tmp_path_factory.mktemp("verify") / "text")


def set_weight(folder, name, value):
    """Change one weight of a checkpoint."""
    path = folder / "model.safetensors"
    weights = load_file(path)
    weights[name] = torch.full_like(weights[name], value)
    save_file(weights, path, metadata={"format": "pt"})


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(
            {"mixer_type": "lit", "feature_map": "identity", "normalization": "none", "attention_layer_norm": True},
            id="lit-identity",
        ),
        pytest.param(
            {"num_hidden_layers": 8, "norm_position": "pre", "feature_map": "elu", "rope_parameters": {}},
            id="deep",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_text_checkpoints_pass(tmp_path, fields):
    text_checkpoint(tmp_path / "text", **fields)
    result = verify_checkpoint(tmp_path / "text", dtypes=("float64", "float32", "bfloat16", "float16"))
    failed = [e for e in result.errors if not e.passed]
    assert result.passed, failed
    assert {(e.kernel, e.dtype, e.padding) for e in result.errors} == {
        (kernel, dtype, padding)
        for kernel in FORMS
        for dtype in ("float64", "float32", "bfloat16", "float16")
        for padding in ("none", "right", "left", "interior")
    }
    # Measured, not asserted by construction: no two dtypes are alike, and wider ones are more exact.
    worst = [result.worst("chunk", dtype).error for dtype in ("float64", "float32", "float16", "bfloat16")]
    assert worst == sorted(worst) and len(set(worst)) == 4


def test_image_checkpoints_pass(tmp_path):
    image_checkpoint(tmp_path / "image", mixer_type="decay")
    result = verify_checkpoint(tmp_path / "image")
    assert result.passed and {e.padding for e in result.errors} == {"none"}
    assert len(result.numerics.heads) == 2 * 4


@pytest.mark.parametrize("name", RECOMMENDED)
def test_recommended_presets_pass(name, tmp_path):
    result = verify_checkpoint(preset_checkpoint(tmp_path / name, name))
    assert result.passed, [e for e in result.errors if not e.passed]
    assert {e.dtype for e in result.errors} == {"float64", "float32", "bfloat16"}


@pytest.mark.parametrize("mixer", ["lit", "decay", "selective"])
def test_encoders_that_became_linear_pass(mixer, tmp_path, capsys):
    folder = linear_checkpoint(tmp_path, options={"mixer": mixer})
    result = verify_checkpoint(folder, dtypes=("float32",))
    assert result.passed and result.is_exact and result.exact_length == 24
    assert list(result.by_kernel()) == [(name, "float32") for name in LINEARIZED_FORMS]
    assert {error.padding for error in result.errors} == {"none", "right"}
    assert "length 201, 134, 24" in result.inputs  # on both sides of what is exact, and beyond two windows
    decays = {h.smallest_decay for h in result.numerics.heads}
    assert len(result.numerics.heads) == 8 and (decays == {1.0} if mixer == "lit" else 1.0 not in decays)
    smallest = f"The smallest decay is {min(decays):.3g}"
    assert summary(result)[1:] == [f"{smallest}; inputs of up to 24 tokens get what softmax gives, to the bit."]


def test_mistakes_of_encoders_that_became_linear_fail(tmp_path, monkeypatch, capsys):
    folder = linear_checkpoint(tmp_path / "text")
    right = LinearBranch.forward

    def wrong(head, query, key, value, is_real, scaling, form, *others):
        output, weights = right(head, query, key, value, is_real, scaling, form, *others)
        return output * (1 if form == "parallel" else 1.001), weights

    monkeypatch.setattr(LinearBranch, "forward", wrong)
    result = verify_checkpoint(folder, dtypes=("float32",))
    assert result.is_exact and [error.kernel for error in result.errors if error.passed] == ["lion_parallel"] * 2
    monkeypatch.undo()
    exact = attention_functions.exact_attention

    def other(*args, **kwargs):
        output, weights = exact(*args, **kwargs)
        return output + 1e-7, weights

    monkeypatch.setattr(attention_functions, "exact_attention", other)
    result = verify_checkpoint(folder, dtypes=("float32",))
    assert not result.passed and result.is_exact is False
    assert main(["verify", str(folder), "--dtypes", "float32"]) == 1
    assert "Inputs of up to 24 tokens do NOT get what softmax gives" in capsys.readouterr().out
    monkeypatch.undo()
    image = verify_checkpoint(linear_checkpoint(tmp_path / "image", "ViTForImageClassification"), dtypes=("float32",))
    assert image.passed and image.is_exact is None  # 13 tokens


def test_mistakes_at_padding_fail_in_every_number_format(tmp_path, monkeypatch):
    """Mistakes of the reference form fail, too: they are no rounding."""
    folder = preset_checkpoint(tmp_path / "text", "lion-text-base")
    dtypes = ("float64", "float32", "bfloat16", "float16")
    right = verify_checkpoint(folder, dtypes=dtypes)
    monkeypatch.setattr(Tokens, "with_order", lambda self: self)
    result = verify_checkpoint(folder, dtypes=dtypes)
    assert [e.tolerance for e in result.errors] == [e.tolerance for e in right.errors]
    assert {e.padding for e in result.errors if not e.passed} == {"interior"}
    assert all(not e.passed for e in result.errors if e.padding == "interior")


def test_a_tolerance_can_fail(tmp_path, monkeypatch):
    """However badly a model rounds, and however much is allowed."""
    monkeypatch.setitem(ALLOWANCE, "bfloat16", 1e9)
    result = verify_checkpoint(preset_checkpoint(tmp_path / "text", "lion-text-base"), dtypes=("bfloat16",))
    assert all(e.tolerance <= result.scale / 8 for e in result.errors)


def test_a_wrong_kernel_fails(checkpoint, monkeypatch, capsys):
    def forgets_the_last_token(query, key, value, log_decay, **kwargs):
        key = key.clone()
        key[:, :, -1] = 0
        return lion_attention(query, key, value, log_decay, **kwargs)

    monkeypatch.setitem(LinearMixer.forms, "chunk", forgets_the_last_token)
    result = verify_checkpoint(checkpoint, dtypes=("float32",))
    assert not result.passed
    assert {e.kernel for e in result.errors if not e.passed} == {"chunk"}
    assert main(["verify", str(checkpoint), "--dtypes", "float32"]) == 1
    assert "FAILED" in capsys.readouterr().out


def test_the_command_prints_errors_and_numbers(checkpoint, tmp_path, capsys):
    text = tmp_path / "some.txt"
    text.write_text("The lion sleeps in the shade. " * 20)
    call = ["verify", str(checkpoint), "--file", str(text), "--dtypes", "float32"]
    assert main(call) == 0
    first, second = capsys.readouterr().out.splitlines()  # all is well
    assert first.startswith("All kernels agree with the float64 reference (auto, ") and "from some.txt" in first
    assert second.startswith("The smallest decay is 0.") and "; the smallest denominator is " in second
    assert main([*call, "--table"]) == 0
    out = capsys.readouterr().out
    assert "from some.txt" in out and "padding: interior" in out and "smallest λ" in out and "All kernels agree" in out
    assert main(["verify", str(checkpoint), "--dtypes", "int8"]) == 1
    assert "int8" in capsys.readouterr().err
    assert main(["verify", str(checkpoint), "--file", str(checkpoint / "model.safetensors")]) == 1
    assert "model.safetensors is no text" in capsys.readouterr().err


def test_an_image_file_is_computed_on(tmp_path, capsys):
    image_checkpoint(tmp_path / "image")
    Image.new("RGB", (50, 60), "tan").save(tmp_path / "tan.png")
    assert main(["verify", str(tmp_path / "image"), "--file", str(tmp_path / "tan.png"), "--dtypes", "float32"]) == 0
    assert "images of size 3x24x32 from tan.png" in capsys.readouterr().out


def test_numerics_are_those_of_the_definition():
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 8}
    types = ["linear_attention", "full_attention", "linear_attention"]
    config = LionConfig(vocab_size=20, rope_parameters={}, layer_types=types, head_directions="both", **sizes)
    model = LionModel(config).double().eval()
    sample = torch.randint(20, (7,))
    report = numerics_report(model, [sample])
    captured = []
    handle = model.layers[2].attention.mixer.register_forward_hook(lambda m, a, output: captured.append(output))
    model(sample[None])
    handle.remove()
    *tensors, log_decays = captured[0].inputs
    query, key, _, log_decay = (x[0].detach() for x in (*tensors, log_decays.forward))
    for head in range(2):
        decay = log_decay[head].exp()
        denominators = []
        for i in range(7):
            scores = []
            for j in range(7):
                path = range(j, i) if j <= i else range(i + 1, j + 1)
                scores.append(query[head, i] @ key[head, j] * math.prod(decay[k] for k in path))
            denominators.append(sum(scores))
        found = report.heads[2 + head]
        assert (found.layer, found.head, found.first_nan) == (2, head, None)
        assert found.smallest_decay == decay.min()
        assert found.smallest_denominator == pytest.approx(float(min(denominators)), rel=1e-12)
    assert report.first_nan is None


def test_the_first_nan_is_found(checkpoint, tmp_path, capsys):
    folder = text_checkpoint(tmp_path / "nan")
    set_weight(folder, "lion.layers.1.attention.mixer.k_proj.weight", float("nan"))
    result = verify_checkpoint(folder, dtypes=("float32",))
    assert not result.passed
    assert result.numerics.first_nan == "the weight lion.layers.1.attention.mixer.k_proj.weight"
    assert [h.first_nan for h in result.numerics.heads] == [None] * 4 + [0] * 4
    assert main(["verify", str(folder)]) == 1
    assert "k_proj.weight" in capsys.readouterr().out

    model = load_model(checkpoint, dtype=torch.float32)
    weight = model.lion.layers[0].mlp.up_proj.weight
    weight.data.fill_(torch.finfo(weight.dtype).max)  # finite, but what it makes is not
    weight.data[:, ::2] *= -1  # equal weights give 0 behind a norm, whose channels sum to 0
    report = numerics_report(model, sample_inputs(model, checkpoint))
    assert report.first_nan == "the output of lion.layers.0.mlp.up_proj"
    assert all(h.first_nan is None for h in report.heads[:4]) and all(h.first_nan == 0 for h in report.heads[4:])


def test_without_division_there_is_no_denominator(tmp_path):
    text_checkpoint(tmp_path / "none", normalization="none", mixer_type="lit")
    heads = verify_checkpoint(tmp_path / "none", dtypes=("float32",)).numerics.heads
    assert all(h.smallest_denominator is None and h.smallest_decay == 1 for h in heads)


@pytest.mark.parametrize("side", ["right", "left", "interior"])
def test_padding_goes_where_it_is_asked_for(side):
    sequences = [torch.tensor([5, 6, 7, 8]), torch.tensor([9, 10])]
    ids, mask = pad_sequences(sequences, side, pad_token_id=0)
    assert [row[m.bool()].tolist() for row, m in zip(ids, mask, strict=True)] == [[5, 6, 7, 8], [9, 10]]
    assert ids.shape == (2, 5) and (ids[mask == 0] == 0).all()
    if side != "interior":
        assert mask[0].tolist() == ([1, 1, 1, 1, 0] if side == "right" else [0, 1, 1, 1, 1])


def test_inputs_fit_the_model(checkpoint, tmp_path):
    model = lambda **fields: LionModel(LionConfig(**SMALL | fields))
    lengths = lambda **fields: [len(x) for x in sample_inputs(model(**fields), checkpoint)]
    assert lengths(chunk_size=64) == [161, 107, 53]
    assert lengths(position_embedding_type="absolute", max_position_embeddings=30) == [29, 19, 9]
    short = text_checkpoint(tmp_path / "short", position_embedding_type="absolute", max_position_embeddings=12)
    assert verify_checkpoint(short, dtypes=("float32",)).passed  # padded ones, too
    empty = tmp_path / "empty.txt"
    empty.write_text(" \n")
    with pytest.raises(ValueError, match="holds no token"):
        sample_inputs(model(), checkpoint, file=empty)


def test_checkpoints_are_found(checkpoint, tmp_path):
    for step in (2, 10):
        text_checkpoint(tmp_path / f"checkpoint-{step}", num_hidden_layers=1)
    (tmp_path / "checkpoint-300").mkdir()  # begun, never finished
    assert find_checkpoint(tmp_path) == tmp_path / "checkpoint-10"
    assert find_checkpoint(checkpoint) == checkpoint
    (tmp_path / "some.txt").write_text("The lion sleeps.")  # read by the tokenizer of the newest checkpoint
    assert "from some.txt" in verify_checkpoint(tmp_path, file=tmp_path / "some.txt", dtypes=("float32",)).inputs
    with pytest.raises(ValueError, match="no checkpoint"):
        find_checkpoint(tmp_path / "checkpoint-300")
    (tmp_path / "checkpoint-300" / "adapter_config.json").write_text("{}")
    with pytest.raises(ValueError, match="PEFT adapter.*merge_and_unload"):
        find_checkpoint(tmp_path / "checkpoint-300")
    (tmp_path / "checkpoint-300" / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ValueError, match="pickle"):
        find_checkpoint(tmp_path / "checkpoint-300")


def test_what_is_no_complete_lion_is_refused(tmp_path):
    other = tmp_path / "bert"
    BertConfig().save_pretrained(other)
    (other / "model.safetensors").touch()
    with pytest.raises(ValueError, match="'bert' model, not a LION.*--layers none.*Then give my-lion"):
        load_model(other)
    folder = text_checkpoint(tmp_path / "cut")
    weights = load_file(folder / "model.safetensors")
    del weights["lm_head.dense.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match="lm_head.dense.weight would be random"):
        load_model(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["LionForDreaming"]}))
    with pytest.raises(ValueError, match="LionForDreaming"):
        load_model(folder)
    with pytest.raises(OSError):
        verify_checkpoint("nobody/nothing")


def test_an_encoder_saved_without_a_pooler_is_one(tmp_path, caplog):
    """Without a word of weights that would be random, by whatever it is loaded."""
    folder = text_checkpoint(tmp_path / "lion", "LionModel", pooling="cls")
    whole = LionModel.from_pretrained(folder)
    assert whole.pooler is not None
    whole.pooler = None
    whole.save_pretrained(folder)
    model, info = AutoModel.from_pretrained(folder, output_loading_info=True)
    assert model.pooler is None and not info["missing_keys"] and "MISSING" not in caplog.text
    assert load_model(folder).pooler is None and load_served(folder).model.pooler is None
    assert verify_checkpoint(folder, dtypes=("float32",)).passed
    model.save_pretrained(tmp_path / "again")
    assert AutoModel.from_pretrained(tmp_path / "again").pooler is None
    # Half a pooler is damage, and that of a model with a head is new.
    weights = load_file(folder / "model.safetensors") | {"pooler.dense.bias": torch.zeros(32)}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match="pooler.dense.weight would be random"):
        load_model(folder)
    assert LionModel.from_pretrained(text_checkpoint(tmp_path / "words", pooling="cls")).pooler is not None


def test_an_error_that_is_no_number_does_not_pass():
    assert KernelError("chunk", "float32", "none", 0.5, 1.0).passed
    assert not KernelError("chunk", "float32", "none", math.nan, 1.0).passed
