# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""One graph serves every batch and length, with the results of the model: torch.export, ONNX Runtime, OpenVINO."""

import re
import shutil
import subprocess
import sys
from copy import deepcopy

import huggingface_hub
import onnx
import onnxruntime
import openvino
import pytest
import torch
from attention_forms import FORMS, auto, naive
from delta_rule import delta_inputs, delta_rule, with_tensors
from deploy_lion import ExportedModel, export_checkpoint
from deploy_lion.cli import main
from deploy_lion.export import compare_with_torch
from deploy_lion.export import export_checkpoint as module
from deploy_lion.export.compare_with_torch import compare, in_dtype_of, random_inputs
from deploy_lion.export.export_checkpoint import quiet, write_onnx, write_openvino
from hub_checkpoints import TEXTS, linear_checkpoint, linear_encoder, text_checkpoint
from hub_in_memory import as_downloaded
from hub_upload_lion.checkpoint import load_model
from onnx import numpy_helper
from sentence_checkpoints import sentence_checkpoint
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Pooling
from torch.export import Dim

from configuration_lion.registry import find_mixer
from modeling_lion import (
    LionConfig,
    LionForImageClassification,
    LionForMaskedLM,
    LionForMultipleChoice,
    LionForQuestionAnswering,
    LionForSequenceClassification,
    LionForTokenClassification,
    LionModel,
)
from modeling_lion.attention.delta import delta_attention


# torch.export itself uses what it calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


class Attention(torch.nn.Module):
    def __init__(self, kernel, chunk_size=4):
        super().__init__()
        self.kernel, self.chunk_size = kernel, chunk_size

    def forward(self, *inputs):
        output = self.kernel(*inputs, chunk_size=self.chunk_size)
        return output[0] if isinstance(output, tuple) else output


def kernel_inputs(batch: int, length: int, decay: str, dtype=torch.float32) -> tuple[torch.Tensor, ...]:
    query, key, value = torch.rand(3, batch, 2, length, 4, dtype=dtype)
    log_decay = -torch.rand(batch, 2, length, dtype=dtype) * 3
    log_decay[:, :, 1::5] = -torch.inf
    log_decay[:, :, 2::5] = 0
    return query, key, value, {"fixed": -torch.rand(2, dtype=dtype), "varying": log_decay}[decay]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "decay"), [(FORMS["parallel"], "varying"), (FORMS["chunk"], "varying"), (auto, "fixed")]
)
def test_a_kernel_exported_once_is_right_at_every_length(kernel, decay):
    sizes = {0: Dim("batch"), 2: Dim("length")}
    shapes = ((sizes, sizes, sizes, None if decay == "fixed" else sizes),)
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


@pytest.mark.slow
def test_the_delta_rule_exported_once_is_right_at_every_length():
    """Also where keys repeat, of which powers of a matrix would leave nothing; with all gradients."""
    rule = Attention(with_tensors(delta_attention), chunk_size=32)
    inputs = delta_inputs(70, dtype=torch.float32, heads=2)
    shapes = (({0: Dim("batch"), 2: Dim("length")},) * 6,)
    program = torch.export.export(rule, inputs, dynamic_shapes=shapes)
    assert not any("lion" in str(node.target) for node in program.graph.nodes)
    for batch, length, same_keys in ((1, 1, False), (2, 3, False), (1, 300, True), (3, 97, False)):
        inputs = delta_inputs(length, dtype=torch.float32, batch=batch, heads=2, same_keys=same_keys)
        inputs = [x.requires_grad_() for x in inputs]
        wide = [x.detach().double().requires_grad_() for x in inputs]
        output, expected = program.module()(*inputs), delta_rule(*wide)
        torch.testing.assert_close(output.double(), expected, atol=1e-4, rtol=1e-4)
        if length > 1:
            grads, expected = (torch.autograd.grad(y.sum(), x) for y, x in ((output, inputs), (expected, wide)))
            for grad, truth in zip(grads, expected, strict=True):
                torch.testing.assert_close(grad.double(), truth, atol=2e-3, rtol=1e-3)


@pytest.mark.slow
def test_sums_over_many_blocks_keep_their_digits():
    """Blocks that forget everything, then many that forget little: what a float32 sum over all of them would lose."""
    length = 1500
    query, key, value = torch.rand(3, 1, 2, length, 4)
    log_decay = torch.full((1, 2, length), -1e-4)
    log_decay[:, :, : length // 2] = -20
    lengths = {2: Dim("length")}
    for kernel in (FORMS["parallel"], FORMS["chunk"]):
        inputs = kernel_inputs(1, 9, "varying")
        program = torch.export.export(Attention(kernel), inputs, dynamic_shapes=((lengths,) * 4,))
        output = program.module()(query, key, value, log_decay)
        truth = naive(*(x.double() for x in (query, key, value, log_decay)))[0]
        narrow = naive(query, key, value, log_decay)[0]
        assert (output - truth).abs().max() <= 2 * (narrow - truth).abs().max()


@pytest.mark.slow
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


TINY = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24, "vocab_size": 40}
TINY |= {"chunk_size": 16, "initializer_range": 0.3}
MODERN = {"head_directions": "alternate", "conv_kernel": 3, "rope_parameters": {}, "type_vocab_size": 0}
MODERN |= {"norm_position": "pre", "use_gated_mlp": True, "pooling": "mean"}
LAYER_TYPES = ["linear_attention", "sliding_attention", "full_attention"]
HYBRID = {"mixer_type": "decay", "layer_types": LAYER_TYPES, "num_hidden_layers": 3, "sliding_window": 4}
IMAGE = {"modality": "image", "image_size": (8, 12), "patch_size": 1}
CONVERTED = {"feature_map": "hedgehog", "position_embedding_type": "cyclic", "pooling": "mean"}
CONVERTED |= {"max_position_embeddings": 32}
GRAPHS = {
    "selective": (LionForSequenceClassification, MODERN | CONVERTED),
    "both directions": (LionForMaskedLM, {"mixer_type": "selective", "head_directions": "both"}),
    "delta": (LionForMaskedLM, {"mixer_type": "delta", "conv_kernel": 3}),
    "delta image": (LionForImageClassification, IMAGE | {"mixer_type": "delta", "patch_order": "snake"}),
    "hybrid": (LionForQuestionAnswering, HYBRID | {"chunk_size": 4}),
    "luna": (LionForTokenClassification, {"mixer_type": "luna", "luna_length": 5, "num_hidden_layers": 2}),
    "image": (LionForImageClassification, IMAGE | {"patch_order": "snake", "conv_kernel": 3, "num_key_heads": 1}),
}


def tiny(model_class: type, **fields) -> torch.nn.Module:
    torch.manual_seed(0)
    return model_class(LionConfig(**(TINY | fields))).eval()


@torch.no_grad()
def largest_error(model: torch.nn.Module, exported: ExportedModel) -> float:
    """From the definition in float64, at real tokens of padded batches of several lengths and of one token."""
    model = deepcopy(model).double()
    if model.config.has_linear_layers:
        model.set_attn_implementation("eager")
    worst = 0.0
    for batch, length, padding in ((1, 1, "right"), (3, 20, "left"), (2, 70, "interior"), (4, 41, "right")):
        inputs = random_inputs(model, batch, length, padding)
        expected = model(**{name: x.double() if x.is_floating_point() else x for name, x in inputs.items()})
        real = inputs["attention_mask"].bool() if "attention_mask" in inputs else None
        for name, found in exported(**inputs).items():
            difference = (found - expected[name]).abs()
            is_by_token = real is not None and difference.shape[:2] == real.shape
            worst = max(worst, (difference[real] if is_by_token else difference).max().item())
            assert torch.isfinite(found).all()
    return worst


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_computes_what_the_model_does_in_both_runtimes(name, tmp_path):
    model_class, fields = GRAPHS[name]
    model = tiny(model_class, **fields)
    model.config.save_pretrained(tmp_path)
    write_onnx(model, tmp_path / "model.onnx", "float32")
    assert largest_error(model, ExportedModel(tmp_path, threads=1)) < 1e-4
    write_openvino(tmp_path / "model.onnx", tmp_path / "openvino_model.xml", "float32")
    assert not (tmp_path / "model.onnx").exists()
    assert largest_error(model, ExportedModel(tmp_path, threads=1)) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mixer", "dtype"),
    [
        ("BertForMaskedLM", "selective", "float32"),
        ("BertForMaskedLM", "delta", "float32"),
        ("BertForSequenceClassification", "decay", "int8"),
        ("ViTForImageClassification", "lit", "float32"),
    ],
)
def test_graphs_of_encoders_that_became_linear(name, mixer, dtype, tmp_path):
    """The graph chooses by the length of the batch: softmax up to 24 tokens, and the linear attention beyond."""
    folder = linear_checkpoint(tmp_path / "model", name, options={"mixer": mixer})
    found = export_checkpoint(folder, tmp_path / "graph", dtype=dtype, lengths=())
    assert all(row.error <= row.tolerance for row in found)
    if name.startswith("ViT"):  # 13 tokens, more than 8: nothing to choose
        return
    assert [row.inputs for row in found] == ["1 x 1", "3 x 24, padded right", "1 x 25", "1 x 53"]
    if dtype != "float32":
        return
    shutil.copytree(tmp_path / "graph", tmp_path / "openvino")
    write_openvino(*(tmp_path / "openvino" / file for file in ("model.onnx", "openvino_model.xml")), dtype)
    model = load_model(folder)
    for graph in (tmp_path / "graph", tmp_path / "openvino"):
        exported = ExportedModel(graph, threads=1)
        for length in (24, 25, 60):  # and not the other side's
            inputs = random_inputs(model, 2, length)
            real = inputs["attention_mask"].bool()
            for form in ("lion", "sdpa"):
                model.set_attn_implementation(form)
                difference = (exported(**inputs)[0] - model(**inputs)[0].detach()).abs()[real].max()
                assert bool(difference < 1e-4) is (form == "lion" or length <= 24), (graph.name, length, form)


@pytest.mark.slow
def test_compiled_encoders_that_became_linear_choose_by_the_length_of_the_batch():
    model = linear_encoder("BertModel")
    compiled = torch.compile(model, dynamic=True, backend="eager")
    for length in (20, 25, 40):
        ids = torch.randint(1, 70, (2, length))
        with torch.no_grad():
            found, expected = (m(ids).last_hidden_state for m in (compiled, model))
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.slow
def test_a_signal_finds_a_stack_after_graphs_of_openvino(tmp_path):
    """In a new process, since the signal would end it: each `openvino.Core` sets a stack and restores the last one."""
    number = openvino.opset13.parameter([1], openvino.Type.f32)
    openvino.save_model(openvino.Model([openvino.opset13.relu(number)], [number]), tmp_path / "graph.xml")
    program = """
import signal, sys
from pathlib import Path
from deploy_lion.export.exported import open_openvino

first, second = (open_openvino(Path(sys.argv[1]), 1) for _ in range(2))
del first
del second
signal.signal(signal.SIGUSR1, lambda *args: print("handled"))
signal.raise_signal(signal.SIGUSR1)
"""
    command = [sys.executable, "-X", "faulthandler", "-c", program, str(tmp_path / "graph.xml")]
    result = subprocess.run(command, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, "handled\n"), result.stderr


@pytest.mark.slow
def test_openvino_of_the_library_forgets_without_nan():
    """Chunks that forget everything. It narrows float64, whose least number is then 0 and has a log of -inf."""
    from transformers.exporters.exporter_openvino import OpenVINOConfig, OpenVINOExporter

    model = tiny(LionModel, pooling="mean")
    with torch.no_grad():
        model.layers[0].attention.mixer.decay_proj.bias.fill_(-300)
    lengths = {0: Dim("batch"), 1: Dim("length", min=17)}
    inputs = random_inputs(model, 2, 90)
    options = {"dynamic_shapes": dict.fromkeys(inputs, lengths), "prefer_deferred_runtime_asserts_over_guards": True}
    with torch.no_grad(), quiet():
        exported = OpenVINOExporter().export(model, inputs, config=OpenVINOConfig(**options))
        inputs = random_inputs(model, 2, 200)
        computed = openvino.compile_model(exported.program, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(
            {name: x.numpy() for name, x in inputs.items()}
        )
        expected = model(**inputs).last_hidden_state
    real = inputs["attention_mask"].bool()
    torch.testing.assert_close(torch.from_numpy(computed[0])[real], expected[real], atol=1e-4, rtol=0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mixer", ["decay", "selective", "delta"])
def test_slow_decays_of_linearized_encoders_keep_their_digits(mixer, tmp_path):
    """Up to λ = 1 - 4e-8."""
    decays, key = find_mixer(mixer).decay_of_keys(4, 8), torch.randn(1, 3, 4, 8)
    with torch.no_grad():
        for x in decays.parameters():
            x.zero_()
        decays.bias.copy_(torch.tensor([8.0, 11.46, 14.0, 17.0]))
    torch.onnx.export(decays, (key,), dynamo=True, verbose=False).save(tmp_path / "decays.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "decays.onnx")
    (found,) = session.run(None, {x.name: key.numpy() for x in session.get_inputs()})
    found = torch.from_numpy(found if found.ndim == 1 else found[0, :, 0]).double()
    torch.testing.assert_close(found, torch.nn.functional.logsigmoid(decays.bias.double()), rtol=1e-6, atol=0)


@pytest.mark.slow
def test_narrow_weights_leave_decays_and_maps_as_they_are(tmp_path, traced_once):
    sizes = {"hidden_size": 64, "intermediate_size": 64, "vocab_size": 90}  # a table large enough to be narrowed
    model = tiny(LionModel, **sizes, pooling="mean", feature_map="hedgehog")
    model.set_attn_implementation("chunk")
    model.config.save_pretrained(tmp_path)
    errors = {}
    for dtype in ("int8", "float16"):
        path = tmp_path / "model.onnx"
        write_onnx(model, path, dtype)
        graph = onnx.load(path)
        gate = model.layers[0].attention.mixer.decay_proj.weight.detach()
        stored = [numpy_helper.to_array(x) for x in graph.graph.initializer]
        assert any(x.shape == gate.T.shape and (x == gate.T.numpy()).all() for x in stored), dtype
        wide = [x for x in stored if x.dtype == "float32" and x.size > 4096]  # the maps have so many
        quantized = sum(node.op_type == "MatMulInteger" for node in graph.graph.node)
        assert (len(wide) > 0, quantized) == {"float16": (False, 0), "int8": (False, 7)}[dtype]
        errors[dtype] = largest_error(model, ExportedModel(tmp_path, threads=1))
    assert 1e-4 < errors["float16"] < 0.02 < errors["int8"] < 0.5


@pytest.mark.slow
def test_the_command_exports_an_encoder_of_sentence_transformers(tmp_path, capsys, traced_once):
    """Also the mixer without decays, and a table of positions."""
    fields = {"mixer_type": "lit", "position_embedding_type": "absolute"}
    tokens = text_checkpoint(tmp_path / "lion", "LionModel", **fields)
    encoder = sentence_checkpoint(tmp_path / "encoder", tokens, Pooling(32), Dense(32, 8))
    expected = SentenceTransformer(str(encoder), device="cpu").encode(TEXTS)
    for to in ("onnx", "openvino"):
        arguments = ["export", str(tmp_path / "encoder"), str(tmp_path / to), "--to", to, "--lengths", "40", "1000"]
        assert main(arguments) == 0
        rows = capsys.readouterr().out.splitlines()
        # Five inputs; a text of 1000 tokens is longer than the table of positions.
        assert [row[:2] for row in rows[:7]] == ["in", "1 ", "3 ", "4 ", "2 ", "1 ", ""]
        assert re.search(r"^1 x 40 .*e-0\d +[\d.]+ +[\d.]+ +[\d.]+$", "\n".join(rows), flags=re.MULTILINE)
        loaded = SentenceTransformer(str(tmp_path / to), backend=to, trust_remote_code=True, device="cpu")
        assert abs(loaded.encode(TEXTS) - expected).max() < 1e-5
        loaded.save(str(tmp_path / f"{to}-again"))
        again = SentenceTransformer(str(tmp_path / f"{to}-again"), backend=to, trust_remote_code=True, device="cpu")
        assert (again.encode(TEXTS) == loaded.encode(TEXTS)).all()


def test_an_encoder_on_the_hub_keeps_its_modules(tmp_path, monkeypatch):
    """As one in a folder, also at a revision."""
    tokens = text_checkpoint(tmp_path / "lion", "LionModel")
    options = {"prompts": {"query": "The lion: "}}
    folder = sentence_checkpoint(tmp_path / "encoder", tokens, Pooling(32, "cls"), Dense(32, 8), **options)
    files = {x.relative_to(folder).as_posix(): x.read_bytes() for x in folder.rglob("*") if x.is_file()}
    as_downloaded(files, "me/encoder", tmp_path / "cache", revision="experiment")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    exported = []
    monkeypatch.setattr(module, "write_onnx", lambda model, path, dtype: exported.append(type(model).__name__))
    monkeypatch.setattr(module, "compare", lambda *args: [])
    export_checkpoint(folder, tmp_path / "of folder")
    export_checkpoint("me/encoder", tmp_path / "of hub", revision="experiment")
    contents = [
        {x.relative_to(out).as_posix(): x.read_bytes() for x in out.rglob("*") if x.is_file()}
        | {"tokenizer_config.json": b"says whether it was loaded from a folder"}
        for out in (tmp_path / "of folder", tmp_path / "of hub")
    ]
    assert contents[0] == contents[1] and {"modules.json", "2_Dense/model.safetensors"} <= contents[1].keys()
    assert exported == ["LionModel"] * 2 and b"The lion: " in contents[1]["config_sentence_transformers.json"]


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "bfloat16"])
def test_a_graph_that_is_off_by_more_than_rounding_is_refused(dtype, tmp_path, monkeypatch):
    """The error that a graph may have is that of torch in the same numbers, and no constant."""
    model, errors = tiny(LionForMaskedLM, num_hidden_layers=2), {"added": 0.0, "long": 0.0}
    rounded = in_dtype_of(model, dtype)

    def graph(**inputs):
        outputs = rounded(**inputs)
        added = errors["long" if inputs["input_ids"].shape[1] == 500 else "added"]
        return {name: x.float() + added for name, x in outputs.items()}

    monkeypatch.setattr(compare_with_torch, "ExportedModel", lambda *args, **kwargs: graph)
    (*found,) = compare(model, tmp_path, dtype, ())
    assert all(row.error <= row.tolerance <= row.scale / 4 for row in found)
    assert (found[-1].error > 0) == (dtype in ("float16", "int8"))
    errors["added"] = 3 * max(row.tolerance for row in found)
    with pytest.raises(ValueError, match=f"The graph differs from the model by .* {dtype} may round by"):
        compare(model, tmp_path, dtype, ())
    errors |= {"added": 0.0, "long": float("nan")}  # of texts that are timed, too
    with pytest.raises(ValueError, match="The graph differs from the model by nan on 1 x 500"):
        compare(model, tmp_path, dtype, (500,))


@torch.no_grad()
def test_float16_of_a_graph_is_of_its_weights_alone():
    """It computes in float32, so that numbers may be larger than float16 has."""
    model, largest = tiny(LionForMaskedLM, num_hidden_layers=1), []
    mlp = model.lion.layers[0].mlp
    mlp.down_proj.weight.mul_(6e4 / mlp.down_proj.weight.abs().max())
    mlp.register_forward_hook(lambda module, args, output: largest.append(output.abs().max()))
    for network in (model, in_dtype_of(model, "float16")):
        assert network(**random_inputs(model, 2, 9, "right")).logits.isfinite().all()
    assert min(largest) > torch.finfo(torch.float16).max


@pytest.mark.slow
def test_an_encoder_saved_without_a_pooler(tmp_path, traced_once):
    """There is nothing random in what is made of it: its graph has hidden states, and so have others."""
    folder = text_checkpoint(tmp_path / "lion", "LionModel", pooling="cls", mixer_type="softmax")
    model = LionModel.from_pretrained(folder)
    model.pooler = None
    model.save_pretrained(folder)
    assert main(["export", str(folder), str(tmp_path / "onnx"), "--lengths"]) == 0
    exported = ExportedModel(tmp_path / "onnx")
    assert exported.output_names == ["last_hidden_state"]
    ids = torch.randint(model.config.vocab_size, (2, 9))
    with torch.no_grad():
        torch.testing.assert_close(exported(ids).last_hidden_state, model(ids).last_hidden_state, atol=1e-5, rtol=0)
    encoder = sentence_checkpoint(tmp_path / "encoder", folder, Pooling(32))
    assert main(["export", str(encoder), str(tmp_path / "sentence"), "--lengths"]) == 0
    served = SentenceTransformer(str(tmp_path / "sentence"), device="cpu", trust_remote_code=True)
    expected = SentenceTransformer(str(encoder), device="cpu").encode(TEXTS)
    torch.testing.assert_close(torch.tensor(served.encode(TEXTS)), torch.tensor(expected), atol=1e-5, rtol=0)


def test_what_cannot_be_exported_is_refused_by_name(tmp_path):
    folders = {}
    for name, (model_class, fields) in {
        "choices": (LionForMultipleChoice, {}),
        "softmax": (LionModel, {"mixer_type": "softmax"}),
    }.items():
        folders[name] = tmp_path / name
        tiny(model_class, **fields).save_pretrained(folders[name])
    for name, options, message in (
        ("choices", {}, "A LionForMultipleChoice cannot be exported: .* export a LionForSequenceClassification"),
        ("softmax", {"dtype": "bfloat16"}, "`dtype` is 'bfloat16'; onnx has float32, float16, int8"),
        ("softmax", {"to": "tflite"}, "`to` is 'tflite'; give one of onnx, openvino"),
        ("softmax", {"attn_implementation": "rnn"}, "is 'rnn'; a graph has auto, chunk, parallel"),
        ("softmax", {"lengths": (8, 0)}, "`lengths` has 0; give numbers of tokens from 1 on"),
    ):
        with pytest.raises(ValueError, match=message):
            export_checkpoint(folders[name], tmp_path / "out", **options)
        assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_graph_that_is_wrong_is_not_left_behind(tmp_path, capsys, monkeypatch):
    tiny(LionModel, mixer_type="softmax").save_pretrained(tmp_path / "model")
    monkeypatch.setattr(
        ExportedModel, "forward", lambda self, **inputs: {"last_hidden_state": torch.tensor(torch.nan)}
    )
    assert main(["export", str(tmp_path / "model"), str(tmp_path / "out")]) == 1
    assert "The graph differs from the model by nan on 1 x 1" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_graph_takes_other_dtypes_and_gives_tuples(tmp_path):
    """As models do, which transformers and others call so."""
    names = ["input_ids", "attention_mask"]
    inputs = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, ["batch", "length"]) for name in names]
    outputs = [onnx.helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["batch", "length"])]
    nodes = [
        onnx.helper.make_node("Mul", names, ["product"]),
        onnx.helper.make_node("Cast", ["product"], ["logits"], to=onnx.TensorProto.FLOAT),
    ]
    graph = onnx.helper.make_graph(nodes, "product", inputs, outputs)
    opset = [onnx.helper.make_opsetid("", 18)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=10), tmp_path / "model.onnx")
    LionConfig(**TINY).save_pretrained(tmp_path)
    exported = ExportedModel(tmp_path, threads=1)
    ids, mask = torch.tensor([[5, 6, 7], [8, 9, 0]]), torch.tensor([[1, 1, 1], [1, 1, 0]])
    for ids_of, mask_of in ((ids, mask), (ids.int(), mask.bool()), (ids, mask.float()), (ids, mask.half())):
        assert exported(ids_of, mask_of).logits.tolist() == [[5, 6, 7], [8, 9, 0]]
    (logits,) = exported(ids, mask, return_dict=False)
    assert logits.tolist() == [[5, 6, 7], [8, 9, 0]]


def test_a_folder_without_a_graph_is_refused(tmp_path):
    LionConfig(**TINY).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="neither model.onnx nor openvino_model.xml .* make it with `lion export`"):
        ExportedModel(tmp_path)
