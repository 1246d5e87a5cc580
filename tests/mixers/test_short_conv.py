# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The short convolution is the sum of SPEC §12, and knows no difference between sequences padded, packed or alone."""

import pytest
import torch
from conftest import TINY_IMAGE
from fuzzing import ModelProblem
from torch._subclasses import FakeTensorMode
from torch.nn import functional as F

from modeling_lion import LionConfig, LionForMaskedLM
from modeling_lion.mixers import short_conv
from modeling_lion.mixers.linear import LitMixer
from modeling_lion.mixers.short_conv import (
    SHORT_CONV,
    ShortConv,
    convolve,
    fused_convolution,
    has_fast_convolution,
    sum_of_shifted,
)
from modeling_lion.sequence.conv_borders import ConvBorders
from modeling_lion.sequence.layout import Layout
from modeling_lion.sequence.scans import image_layout
from modeling_lion.tokens import Tokens


LINEAR_MIXERS = ["lit", "decay", "selective"]
BORDERS = {"none": None, "one sequence": [0, 11], "far": [0, 5, 11], "close": [0, 1, 2, 4, 5, 10, 11]}


# The forward mode of torch uses what torch calls deprecated.
FORWARD_MODE = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")


def naive(x: torch.Tensor, weight: torch.Tensor, real: torch.Tensor, borders: list[int]) -> torch.Tensor:
    """SPEC §12, tap by tap; the borders include both ends."""
    radius = weight.shape[-1] // 2
    rows = [[torch.zeros_like(x[0, 0])] * x.shape[1] for _ in x]
    for row, tokens in enumerate(rows):
        for first, end in zip(borders, borders[1:], strict=False):
            for i in range(first, end):
                for j in range(max(first, i - radius), min(end, i + radius + 1)):
                    if real[row, j]:
                        tokens[i] = tokens[i] + weight[:, 0, j - i + radius] * x[row, j]
    return F.silu(torch.stack([torch.stack(tokens) for tokens in rows]))


def make_conv(channels: int, kernel: int, dtype: torch.dtype = torch.float64) -> ShortConv:
    conv = ShortConv(channels, kernel)
    torch.nn.init.normal_(conv.weight)
    return conv.to(dtype)


def conv_borders(conv_kernel: int, x: torch.Tensor, borders: list[int] | None, modality: str = "text"):
    config = LionConfig(modality=modality, conv_kernel=conv_kernel)
    return ConvBorders.of(config, x, None if borders is None else torch.tensor(borders, dtype=torch.int32))


@pytest.mark.axes(
    borders=BORDERS,
    kernel=[1, 3, 5, 25],
    dtype=[torch.float64, torch.float32, torch.bfloat16, torch.float16],
)
def test_sum_and_gradients_are_those_of_the_specification(dtype, kernel, borders, equal):
    x, grad = torch.randn(2, 3, 11, 4).to(dtype)
    weight = torch.randn(4, 1, kernel).to(dtype)
    is_real = torch.rand(3, 11) < 0.8
    is_real[0], is_real[1] = True, False
    ends = BORDERS[borders] or [0, 11]

    def results(function, dtype):
        inputs = [y.to(dtype).detach().requires_grad_() for y in (x, weight)]
        y = function(*inputs)
        assert y.dtype == dtype
        return [y, *torch.autograd.grad(y, inputs, grad.to(dtype))]

    def module(x, weight):
        conv = ShortConv(4, kernel)
        return torch.func.functional_call(
            conv, {"weight": weight}, (Tokens(is_real).zero_padding(x), conv_borders(kernel, x, BORDERS[borders]))
        )

    definition = lambda x, weight: naive(x, weight, is_real, ends)
    truth, rough = results(definition, torch.float64), results(definition, dtype)
    for actual, expected, same_dtype in zip(results(module, dtype), truth, rough, strict=True):
        if dtype == torch.float64:
            equal(actual, expected)
            continue
        unit = torch.finfo(dtype).eps * expected.abs().max()
        allowed = 2 * (same_dtype - expected).abs().max() + unit
        assert (actual.double() - expected).abs().max() <= allowed


@pytest.fixture
def shifted_sums(monkeypatch) -> list:
    """The calls of the body that is not oneDNN's."""
    calls = []
    monkeypatch.setattr(short_conv, "sum_of_shifted", lambda *args: calls.append(args) or sum_of_shifted(*args))
    return calls


def test_float32_is_left_to_onednn(shifted_sums):
    x, weight = torch.randn(3, 9, 4), torch.randn(4, 1, 3)
    for same in (x, x.transpose(0, 1).contiguous().transpose(0, 1), torch.randn(3, 18, 4)[:, ::2], x[:, :1], x[:0]):
        y = convolve(same, weight)
        assert y.is_contiguous() and shifted_sums == []
        torch.testing.assert_close(y, sum_of_shifted(same, weight))


def test_other_devices_convolve_too(shifted_sums):
    """As far as can be told without one: the shapes."""
    x, weight = torch.empty(3, 9, 4, device="meta"), torch.empty(4, 1, 5, device="meta", requires_grad=True)
    for borders in (None, conv_borders(5, x, None, "image")):
        y = convolve(x, weight, borders)
        assert y.shape == x.shape and y.is_contiguous() and shifted_sums == []
        assert torch.autograd.grad(y.sum(), weight)[0].shape == weight.shape


@pytest.mark.parametrize("length", [1, 9])
@pytest.mark.parametrize("kernel", [1, 3, 25])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_fused_convolution_is_the_same(dtype, kernel, length):
    """With and without torch's dispatcher, and with gradients of one input only."""
    x, grad = torch.randn(2, 2, length, 12).to(dtype)
    conv = ShortConv(12, kernel, head_dim=4).to(dtype)
    torch.nn.init.normal_(conv.weight)
    grad = grad.unflatten(-1, (3, 4)).transpose(1, 2).contiguous().transpose(1, 2)  # as attention gives it
    fused = fused_convolution(x)
    if not has_fast_convolution(x):
        assert fused is None
        pytest.skip("this CPU does not multiply in bfloat16: the convolution is a sum of shifted copies")
    for wanted in ((x.requires_grad_(), conv.weight), (x,), (conv.weight,)):
        runs = [conv(x), *(conv(x, fused=body) for body in (fused, SHORT_CONV))]
        expected, *found = ([y, *torch.autograd.grad(y, wanted, grad)] for y in runs)
        for results in found:
            assert all(map(torch.equal, results, expected))
    with torch.no_grad():
        y = conv(x, fused=fused_convolution(x))
    assert torch.equal(y, runs[0]) and y.is_contiguous() and not y.requires_grad


@pytest.mark.parametrize("way", [SHORT_CONV, SHORT_CONV.function.apply], ids=["dispatched", "direct"])
def test_derivatives_of_the_fused_convolution(way):
    inputs = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((2, 5, 4), (4, 1, 3))]
    assert torch.autograd.gradcheck(lambda *inputs: way(*inputs, 2), inputs)
    assert torch.autograd.gradgradcheck(lambda *inputs: way(*inputs, 2), inputs)


class Wrapped(torch.nn.Module):
    """A convolution inside of another module, which knows only what hooks can see."""

    def __init__(self, conv: ShortConv):
        super().__init__()
        self.conv = conv

    def forward(self, x, borders=None):
        return self.conv(x, borders)


def test_others_may_wrap_a_convolution_or_change_its_result(find_case, equal):
    case = find_case("LionModel")
    model = case.model("lit", conv_kernel=3).train()
    inputs = case.inputs(model.config)
    expected = model(**inputs).last_hidden_state
    for layer in model.layers:
        mixer = layer.attention.mixer
        mixer.k_conv = Wrapped(mixer.k_conv)
    equal(model(**inputs).last_hidden_state, expected)
    for layer in model.layers:
        layer.attention.mixer.k_conv = layer.attention.mixer.k_conv.conv
        layer.attention.mixer.v_conv.register_forward_hook(lambda module, args, output: output.mul_(2).div_(2))
    actual = model(**inputs).last_hidden_state
    actual.sum().backward()
    equal(actual, expected)


def test_where_operations_are_watched_the_fused_convolution_is_one():
    """And where they are transformed, or of another dtype, there is none."""
    x = torch.randn(1, 3, 4)
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert fused_convolution(x) is SHORT_CONV
    assert fused_convolution(x) is not SHORT_CONV and fused_convolution(x.double()) is None
    found = []
    torch.vmap(lambda x: found.append(fused_convolution(x)) or x)(x[None])
    assert found == [None]


@FORWARD_MODE
def test_second_derivatives_and_vmap_go_through_onednn(shifted_sums):
    x, weight = torch.randn(2, 3, 9, 4), torch.randn(4, 1, 3)
    borders = conv_borders(3, x[0], [0, 4, 9])
    run = lambda x: convolve(x, weight, borders)
    torch.testing.assert_close(torch.vmap(run)(x), torch.stack([run(part) for part in x]))
    hessian = torch.func.hessian(lambda x, weight: convolve(x, weight, borders).square().sum(), argnums=(0, 1))
    actual = hessian(x[0], weight)
    assert shifted_sums == []
    for row, expected in zip(actual, hessian(x[0].double(), weight.double()), strict=True):
        for y, z in zip(row, expected, strict=True):
            torch.testing.assert_close(y, z.float(), rtol=1e-4, atol=1e-4)
    assert shifted_sums


@FORWARD_MODE
def test_derivatives_in_every_mode():
    conv = make_conv(2, 3)
    x = torch.randn(2, 6, 2, dtype=torch.float64, requires_grad=True)
    is_real = torch.tensor([[1, 1, 0, 1, 1, 1], [0, 0, 1, 1, 1, 1]]).bool()
    borders = conv_borders(3, x, [0, 1, 2, 6])
    run = lambda x, w: torch.func.functional_call(conv, {"weight": w}, (Tokens(is_real).zero_padding(x), borders))
    assert torch.autograd.gradcheck(run, (x, conv.weight), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(run, (x, conv.weight))


def test_channels_are_never_mixed_with_the_cls_token(find_case, equal):
    """It counts as a border; the decay gate sees the states as they were; scans come after the convolution."""
    case = find_case("LionModel", "image")
    convolved = case.model("selective", conv_kernel=3, patch_order="snake").layers[0].attention.mixer
    states = torch.randn(2, 13, 16, dtype=torch.float64)
    taps = ConvBorders.of(case.config(conv_kernel=3), states, None)
    *whole, log_decay = convolved(states, Layout(conv_borders=taps)).inputs
    parts = [convolved(part, Layout()).inputs[:3] for part in (states[:, :1], states[:, 1:])]
    for x, first, others in zip(whole, *parts, strict=True):
        equal(x, torch.cat((first, others), dim=2))
    plain = case.model("selective", patch_order="snake").layers[0].attention.mixer
    plain.load_state_dict(convolved.state_dict(), strict=False)
    equal(log_decay.forward, plain(states, Layout()).inputs[3].forward)


@pytest.mark.parametrize(("use_cls_token", "lengths"), [(True, [1, 11]), (False, [12])])
def test_patches_are_mixed_without_a_cls_token(use_cls_token, lengths, equal):
    config = LionConfig(modality="image", conv_kernel=5, use_cls_token=use_cls_token)
    x, conv = torch.randn(2, sum(lengths), 4, dtype=torch.float64), make_conv(4, 5)
    parts = [conv(part) for part in x.split(lengths, dim=1)]
    equal(conv(x, ConvBorders.of(config, x, None)), torch.cat(parts, dim=1))


@pytest.mark.axes(
    linear_mixer=[*LINEAR_MIXERS, "delta"],
    kernel=["chunk", "rnn"],
    conv_kernel=[3, 7],
    head_directions=["both", "alternate"],
    layout=["left", "right", "interior", "packed", "packed and padded"],
    borders_given=[False, True],
)
def test_padded_or_packed_sequences_equal_single_ones(
    linear_mixer, kernel, conv_kernel, head_directions, layout, borders_given
):
    directions = "alternate" if linear_mixer == "delta" else head_directions
    fields = {"mixer_type": linear_mixer, "conv_kernel": conv_kernel, "head_directions": directions}
    ModelProblem(fields, kernel, [4, 1, 7, 2], layout, 0.0, borders_given, autocast=False, seed=0).check()


def without_padding(model, inputs: dict, mask: torch.Tensor) -> torch.Tensor:
    """The hidden states of all rows, each computed alone and without its padded tokens."""
    rows = []
    for row, real in enumerate(mask.bool()):
        if real.any():
            ids = inputs["input_ids"][row : row + 1, real]
            rows.append(model(input_ids=ids).last_hidden_state[0])
    return torch.cat(rows)


MASKS = ["1", "01", "10101", "0110111", "1100100", "11111", "101 010 000", "110011 011101 111111"]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("fields", [{}, {"feature_map": "hedgehog", "rope_parameters": {}}], ids=str)
def test_a_padded_token_is_absent_wherever_it_stands(mask, fields, find_case, equal):
    """Forward, in segments, and gradients of the embeddings."""
    model = find_case("LionModel", "text").model("selective", "chunk", conv_kernel=5, **fields)
    mask = torch.tensor([[int(x) for x in row] for row in mask.split()])
    inputs = {"input_ids": torch.randint(1, 40, mask.shape)}
    table = model.get_input_embeddings().weight
    expected, actual = without_padding(model, inputs, mask), model(**inputs, attention_mask=mask).last_hidden_state
    equal(actual[mask.bool()], expected)
    assert actual.isfinite().all()
    grad = torch.randn_like(expected)
    both = (torch.autograd.grad(x, table, grad)[0] for x in (actual[mask.bool()], expected))
    equal(*both)
    for segment_length in (1, 2, 3):
        long = model.encode_long(**inputs, attention_mask=mask, segment_length=segment_length, show_progress=False)
        equal(long.last_hidden_state[mask.bool()], expected.detach())


def test_real_tokens_are_sorted_only_where_it_is_needed(find_case, monkeypatch):
    calls = []
    take = Tokens.reordered
    monkeypatch.setattr(
        Tokens,
        "reordered",
        lambda self, x: (self.order is not None and x.dim() > 2 and calls.append(x)) or take(self, x),
    )
    ids = torch.randint(1, 40, (3, 7))
    masks = {"none": "1111111", "left": "0011111", "right": "1111000", "both": "0011100", "all": "0000000"}
    for fields in ({}, {"conv_kernel": 1}, {"conv_kernel": 0}):
        model = find_case("LionModel", "text").model("selective", **fields)
        for row in masks.values():
            model(ids, attention_mask=torch.tensor([[int(x) for x in row]] * 3))
        assert calls == []
        model(ids, attention_mask=torch.tensor([[1] * 7, [1, 1, 0, 1, 1, 1, 1], [1] * 7]))
        assert len(calls) == (len(model.layers) if model.config.conv_kernel == 3 else 0)
        calls.clear()


def test_padded_patches_are_absent(equal):
    """Patches of an image; a padded CLS token leaves its position empty."""
    config = LionConfig(modality="image", conv_kernel=3, **TINY_IMAGE)
    x, conv = torch.randn(3, 13, 4, dtype=torch.float64), make_conv(4, 3)
    is_real = torch.rand(3, 13) < 0.6
    is_real[:, 0] = torch.tensor([True, False, True])
    layout = image_layout(config, x, (3, 4), is_real)
    seen = layout.with_halo(x, 1).tokens
    y = conv(seen.contiguous().zero_padding(seen.reordered(x)), borders=layout.conv_borders)
    for row, real, found in zip(x, is_real, seen.restored(y), strict=True):
        patches = conv(row[1:][real[1:]][None])[0]
        equal(found[1:][real[1:]], patches)
        if real[0]:
            equal(found[:1], conv(row[None, :1])[0])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch gives them
@torch.no_grad()
def test_padding_between_real_tokens_in_graphs(find_case, equal):
    """Which cannot ask where it is: torch.compile, torch.export for every size, torch.vmap."""
    model = find_case("LionModel", "text").model("selective", "chunk", conv_kernel=3, head_directions="alternate")
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length", min=6)
    make = lambda *size: {"input_ids": torch.randint(1, 40, size), "attention_mask": (torch.rand(size) < 0.6).long()}
    sizes = {name: {0: batch, 1: length} for name in ("input_ids", "attention_mask")}
    exported = torch.export.export(model, (), make(2, 22), dynamic_shapes=sizes).module()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    of_one = lambda input_ids, attention_mask: model(input_ids[None], attention_mask[None]).last_hidden_state[0]
    for batch, length in ((2, 22), (3, 9), (1, 30)):
        inputs = make(batch, length)
        mask = inputs["attention_mask"]
        expected = without_padding(model, inputs, mask)
        eager = model(**inputs).last_hidden_state
        equal(eager[mask.bool()], expected)
        equal(exported(**inputs).last_hidden_state[mask.bool()], expected)
        equal(compiled(**inputs).last_hidden_state, eager)  # padded tokens included
        equal(torch.vmap(of_one)(*inputs.values()), eager)


def test_autocast_narrows_the_convolution(encoder):
    model, kinds = encoder.model("selective", "chunk", conv_kernel=3).float(), []
    for layer in model.layers:
        layer.attention.mixer.v_conv.register_forward_hook(lambda module, args, output: kinds.append(output.dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(**encoder.inputs(model.config, torch.float32))
    assert kinds == [torch.bfloat16] * 2


@pytest.mark.parametrize(("saved", "wanted"), [(0, 3), (3, 0)])
def test_weights_with_and_without_a_convolution_are_told_apart(saved, wanted, find_case, tmp_path):
    case = find_case("LionForMaskedLM")
    case.model_class(case.config(conv_kernel=saved)).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=f"`conv_kernel` than {wanted} or .* they differ in .*mixer.k_conv.weight"):
        LionForMaskedLM.from_pretrained(tmp_path, conv_kernel=wanted)


def test_names_shapes_and_initial_weights(find_case, tmp_path, equal):
    case = find_case("LionForMaskedLM")
    model = case.model("decay", conv_kernel=5, hidden_size=64)
    names = {name for name in model.state_dict() if "_conv" in name}
    assert names == {f"lion.layers.{n}.attention.mixer.{x}_conv.weight" for n in (0, 1) for x in "qkv"}
    for name in names:
        weight = model.state_dict()[name]
        bound = 5**-0.5
        assert weight.shape == (64, 1, 5) and weight.abs().max() <= bound
        assert abs(weight.std() / (bound / 3**0.5) - 1) < 0.1 and abs(weight.mean()) < 0.1 * bound
    inputs = case.inputs(model.config)
    model.save_pretrained(tmp_path)
    equal(LionForMaskedLM.from_pretrained(tmp_path, dtype=torch.float64)(**inputs).logits, model(**inputs).logits)
    mixer = LitMixer(LionConfig(mixer_type="lit", conv_kernel=0))
    assert not [name for name in mixer.state_dict() if "_conv" in name]
