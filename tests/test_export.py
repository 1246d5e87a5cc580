# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""One exported graph serves every batch and length, with the results of the model: torch.export and ONNX Runtime."""

import importlib
from pathlib import Path

import pytest
import torch
from attention_forms import FORMS, auto, naive
from torch.export import Dim

from modeling_lion import LionConfig, LionForImageClassification, LionForMaskedLM


# torch.export itself uses what it calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


IMAGES = {"modality": "image"}


class Attention(torch.nn.Module):
    def __init__(self, kernel):
        super().__init__()
        self.kernel = kernel

    def forward(self, query, key, value, log_decay):
        return self.kernel(query, key, value, log_decay, chunk_size=4)[0]


def kernel_inputs(batch: int, length: int, decay: str, dtype=torch.float32) -> tuple[torch.Tensor, ...]:
    query, key, value = torch.rand(3, batch, 2, length, 4, dtype=dtype)
    log_decay = -torch.rand(batch, 2, length, dtype=dtype) * 3
    log_decay[:, :, 1::5] = -torch.inf
    log_decay[:, :, 2::5] = 0
    return query, key, value, {"fixed": -torch.rand(2, dtype=dtype), "varying": log_decay}[decay]


@pytest.mark.parametrize(
    ("kernel", "decay"), [(FORMS["parallel"], "varying"), (FORMS["chunk"], "varying"), (auto, "fixed")]
)
def test_a_kernel_exported_once_is_right_at_every_length(kernel, decay):
    sizes = {0: Dim("batch"), 2: Dim("length")}
    shapes = (sizes, sizes, sizes, None if decay == "fixed" else sizes)
    program = torch.export.export(Attention(kernel), kernel_inputs(3, 9, decay), dynamic_shapes=shapes)
    assert not any("lion" in str(node.target) for node in program.graph.nodes)  # nothing that only we can run
    for batch, length in ((1, 1), (2, 3), (1, 4), (4, 70), (1, 300)):
        inputs = [x.requires_grad_() for x in kernel_inputs(batch, length, decay)]
        wide = [x.detach().double().requires_grad_() for x in inputs]
        output, expected = program.module()(*inputs), naive(*wide)[0]
        torch.testing.assert_close(output.double(), expected, atol=1e-5, rtol=1e-5)
        grads, expected = (torch.autograd.grad(y.square().sum(), x) for y, x in ((output, inputs), (expected, wide)))
        for grad, truth in zip(grads, expected, strict=True):
            torch.testing.assert_close(grad.double(), truth, atol=1e-4, rtol=1e-4)


def test_sums_over_many_blocks_keep_their_digits():
    """Blocks that forget everything, then many that forget little: what a float32 sum over all of them would lose."""
    length = 1500
    query, key, value = torch.rand(3, 1, 2, length, 4)
    log_decay = torch.full((1, 2, length), -1e-4)
    log_decay[:, :, : length // 2] = -20
    lengths = {2: Dim("length")}
    for kernel in (FORMS["parallel"], FORMS["chunk"]):
        inputs = kernel_inputs(1, 9, "varying")
        program = torch.export.export(Attention(kernel), inputs, dynamic_shapes=(lengths,) * 4)
        output = program.module()(query, key, value, log_decay)
        truth = naive(*(x.double() for x in (query, key, value, log_decay)))[0]
        narrow = naive(query, key, value, log_decay)[0]
        assert (output - truth).abs().max() <= 2 * (narrow - truth).abs().max()


def test_the_program_of_a_whole_model_takes_any_grid_of_patches(find_case):
    case = find_case("LionForImageClassification")
    fields = {"patch_order": "snake", "conv_kernel": 3, "position_embedding_type": "none"}  # else one grid's positions
    model = case.model("selective", "chunk", num_hidden_layers=1, **fields).float()
    sizes = {0: Dim("batch"), 2: 2 * Dim("rows"), 3: 2 * Dim("columns")}
    images = {"pixel_values": torch.randn(3, 3, 6, 8)}
    program = torch.export.export(model, (), images, dynamic_shapes={"pixel_values": sizes})
    images = torch.randn(2, 3, 12, 10)
    torch.testing.assert_close(
        program.module()(pixel_values=images).logits, model(images).logits, atol=1e-5, rtol=1e-5
    )


def save_tiny(model_class: type, folder: Path, **fields) -> str:
    tiny = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    tiny |= {"vocab_size": 40, "chunk_size": 16, "initializer_range": 0.3, "image_size": 8, "patch_size": 2}
    model_class(LionConfig(**tiny, **fields)).save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize(
    ("model_class", "fields", "kernel"),
    [
        (LionForMaskedLM, {"conv_kernel": 3, "rope_parameters": {}, "head_directions": "alternate"}, "chunk"),
        (LionForImageClassification, IMAGES | {"mixer_type": "decay", "patch_order": "snake"}, "parallel"),
        (LionForImageClassification, IMAGES | {"mixer_type": "lit", "conv_kernel": 3}, "parallel"),
    ],
)
def test_the_example_writes_onnx_that_computes_the_same(model_class, fields, kernel, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "examples"))
    model = save_tiny(model_class, tmp_path / "model", **fields)
    output_dir = str(tmp_path / "onnx")
    example = importlib.import_module("export_onnx")
    assert example.main(["--model", model, "--output_dir", output_dir, "--attn_implementation", kernel]) < 1e-4
    assert (tmp_path / "onnx" / "model.onnx").stat().st_size > 0


@pytest.mark.parametrize("mixer_type", ["diagonal", "softmax", "luna"])
def test_the_example_refuses_what_has_no_graph_for_every_length(mixer_type, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "examples"))
    model = save_tiny(LionForMaskedLM, tmp_path / "model", mixer_type=mixer_type)
    with pytest.raises(SystemExit):
        importlib.import_module("export_onnx").main(["--model", model, "--output_dir", str(tmp_path / "onnx")])
    assert f"mixer_type '{mixer_type}'; lit, decay and selective can be exported" in capsys.readouterr().err
