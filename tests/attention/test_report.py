# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The rows that are reported are those of the full matrices, and no matrix is made for them."""

import importlib

import pytest
import torch
from PIL import Image
from torch.utils._python_dispatch import TorchDispatchMode

from modeling_lion import LionConfig, LionModel, LionTokenizer
from modeling_lion.attention.decay_mask import LogDecay, decay_mask, decay_mask_rows, finite_log_decay


TOKENS = [0, 3, 6]


@pytest.mark.parametrize("length", [1, 7, 300])
def test_rows_of_the_mask(length, equal):
    log_decay = -torch.rand(2, 3, length, dtype=torch.float64)
    log_decay[:, :, 2::7] = -torch.inf
    borders = torch.tensor([0, length]) if length < 7 else torch.tensor([0, 2, 5, length])
    decays = finite_log_decay(LogDecay(log_decay, log_decay), log_decay.unsqueeze(-1), borders)
    tokens = torch.tensor([length - 1, 0, length // 2])
    equal(decay_mask_rows(*decays, tokens), decay_mask(*decays)[:, :, tokens])


@pytest.mark.axes(
    kind=["whole", "padded", "packed", "rotary", "raster", "snake"],
    linear_mixer=["lit", "decay", "selective"],
    normalization=["sum", "none"],
    conv_kernel=[0, 3],
)
def test_rows_are_those_of_output_attentions(kind, normalization, linear_mixer, conv_kernel, find_case, equal):
    is_image = kind in ("raster", "snake")
    case = find_case("LionForImageClassification" if is_image else "LionForMaskedLM")
    fields = {"patch_order": kind} if is_image else {"rope_parameters": {} if kind == "rotary" else None}
    fields |= {"conv_kernel": conv_kernel, "head_directions": "alternate" if conv_kernel else "both"}
    model = case.model(linear_mixer, "chunk", normalization=normalization, **fields)
    inputs = case.inputs(model.config)
    if kind == "padded":
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        inputs["attention_mask"][0, :2] = inputs["attention_mask"][1, 5:] = 0
    if kind == "packed":
        inputs["position_ids"] = torch.tensor([[0, 1, 2, 3, 0, 1, 0, 1, 2]])
    expected = model(**inputs, output_attentions=True).attentions
    reports = model.attention_report(TOKENS, **inputs)
    assert len(reports) == len(expected) == 2
    for report, weights in zip(reports, expected, strict=True):
        equal(report.attention, weights[:, :, TOKENS])
        assert report.mask.shape == report.attention.shape
        assert ((report.mask >= 0) & (report.mask <= 1)).all()
        assert (report.mask[:, :, range(len(TOKENS)), TOKENS] == 1).all()
    # Where nothing is chosen, everything is: the sums of whole rows.
    length = expected[0].shape[-1]
    is_real = inputs.get("attention_mask", torch.ones(expected[0].shape[0], length))[:, None, None]
    for report in model.attention_report(list(range(length)), **inputs):
        equal(report.receptive_field, (report.mask * is_real).sum(-1))


def test_no_matrix_is_made(find_case):
    class LargestTensor(TorchDispatchMode):
        numel = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            for tensor in result if isinstance(result, (tuple, list)) else (result,):
                self.numel = max(self.numel, getattr(tensor, "numel", int)())
            return result

    case = find_case("LionForMaskedLM")
    model = case.model("selective", chunk_size=64).float()
    length = 4000
    with LargestTensor() as largest:
        reports = model.attention_report([17], input_ids=torch.randint(1, 40, (1, length)))
    assert reports[0].attention.shape == (1, 2, 1, length)
    assert largest.numel < 300 * length < length**2


def test_what_cannot_be_reported(find_case):
    case = find_case("LionForMaskedLM")
    model = case.model("decay")
    with pytest.raises(ValueError, match="`tokens` is \\[9\\]; give positions from 0 to 8"):
        model.attention_report([9], **case.inputs(model.config))
    assert not any(layer.attention._forward_pre_hooks for layer in model.lion.layers)
    for mixer_type in ("softmax", "luna"):
        with pytest.raises(ValueError, match=f"`mixer_type` is '{mixer_type}'"):
            case.model(mixer_type).attention_report([0], **case.inputs(model.config))


@pytest.mark.slow
def test_the_example_draws_a_long_text(tmp_path):
    text = " ".join(["The lion sleeps in the shade.", "It roars at night."] * 50)
    tokenizer = LionTokenizer.train_from_iterator([text], vocab_size=60)
    types = ["linear_attention", "full_attention", "linear_attention"]
    sizes = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24}
    config = LionConfig(layer_types=types, **sizes)
    config.vocab_size = len(tokenizer)
    LionModel(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    reports = importlib.import_module("plot_attention").main(
        ["--model", str(tmp_path / "model"), "--text_file", str(tmp_path / "text.txt"), "--tokens", "0", "250"]
        + ["--output_dir", str(tmp_path / "pictures")]
    )
    assert list(reports) == [1, 3]  # softmax has none
    assert reports[3].attention.shape[:3] == (1, 2, 2) and reports[3].attention.shape[3] > 500
    for name in ("receptive_fields.png", "attention_rows.png"):
        with Image.open(tmp_path / "pictures" / name) as image:
            assert image.size[0] > 500 and len(image.convert("RGB").getcolors(1 << 20)) > 50
