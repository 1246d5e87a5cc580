# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The Triton kernels: what they compute (triton_cases.py), in Triton's interpreter or on a GPU, and that they compile for
GPUs that are not there.
"""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from attention_forms import form_of
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from configuration_lion import LionConfig
from configuration_lion.registry import FEATURE_MAPS, find_feature_map
from modeling_lion import LionForMaskedLM
from modeling_lion.attention import kernels
from modeling_lion.attention.lion_attention import fastest_form
from modeling_lion.triton import config as triton_config
from modeling_lion.triton import launch_options


ROOT = Path(__file__).parents[2]
pytest.importorskip("triton", reason="triton is not installed")
no_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def run(*command: str, **environment: str) -> str:
    """The output of a Python process, which must succeed."""
    result = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert result.returncode == 0, result.stdout[-8000:]
    return result.stdout


@pytest.mark.slow
def test_in_the_interpreter():
    cases = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/triton/triton_cases.py")
    assert " passed" in run(*cases, TRITON_INTERPRET="1", CUDA_VISIBLE_DEVICES="")


@no_gpu
def test_on_a_gpu():
    assert " passed" in run("-m", "pytest", "-q", "tests/triton/triton_cases.py", TRITON_INTERPRET="0")


# Kernels of each kind, in the form that needs most registers; `python benchmarks/tune_triton.py --compile` does all.
COMPILED = {
    "sm_80": [("chunk", "S", 64, "bfloat16"), ("chunk", "LIT", 256, "float16")],
    "sm_90": [
        ("chunk", "S", 64, "bfloat16"),
        ("parallel", "S", 64, "bfloat16"),
        ("feature_map", "LIT", 64, "bfloat16"),
    ],
}
WITHOUT_PRODUCTS = ("decays_kernel", "decay_gradient_kernel", "pass_chunks_kernel", "pass_chunks_kernel_adjoint")
WITHOUT_PRODUCTS += ("silu_norm_kernel", "silu_norm_kernel_backward")


@pytest.mark.slow
def test_compiles_without_spills(tmp_path):
    """In float16 the states are float32: twice the shared memory of bfloat16's, and most in LIT with heads of 256."""
    code = f"""
from tune_triton import compile_case, faults
for architecture, case in {[(name, case) for name, cases in COMPILED.items() for case in cases]}:
    for result in compile_case(*case, architecture):
        assert result["registers"] > 0 and not faults(result), (result, faults(result))
        assert result["uses_tensor_cores"] == (result["kernel"] not in {WITHOUT_PRODUCTS}), result
"""
    environment = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    run("-c", code, PYTHONPATH=str(ROOT / "benchmarks"), **environment)


@pytest.mark.slow
def test_faults_of_compiled_kernels_are_seen(tmp_path):
    """The tuning must leave them out: too much shared memory, spilled registers, a size that Triton refuses."""
    code = """
import tune_triton
from tune_triton import configure, fits
key, fine, wrong = ("sm_80", 16, 64), {"value_tile": 32, "num_warps": 4, "num_stages": 1}, {"value_tile": 24}
def output_faults(option):
    configure(key, {"lit_output": option})
    results = tune_triton.compile_case("chunk", "LIT", 64, "bfloat16", "sm_80")
    (result,) = [result for result in results if result["kernel"] == "lit_output_kernel"]
    return tune_triton.faults(result)
assert output_faults(fine) == [] and fits(key, "lit_tile", 64, "lit_output", fine)
(fault,) = output_faults(fine | wrong)
assert "does not compile" in fault and "power of 2" in fault, fault
assert not fits(key, "lit_tile", 64, "lit_output", fine | wrong)
tune_triton.SHARED_MEMORY["sm_80"] = 16
(fault,) = output_faults(fine)
assert "bytes of shared memory" in fault, fault
tune_triton.SHARED_MEMORY["sm_80"] = 2**20
assert not fits(key, "tile", 128, "states", {"head_tile": 64, "value_tile": 64, "num_warps": 1, "num_stages": 1})
"""
    environment = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    run("-c", code, PYTHONPATH=str(ROOT / "benchmarks"), **environment)


def test_every_size_is_configured():
    sizes = {(name, bits, dim) for name in ("sm_80", "sm_90") for bits in (16, 32) for dim in (32, 64, 128, 256)}
    assert set(triton_config.CONFIGS) == sizes
    assert all(config["chunk"] % config["tile"] == 0 for config in triton_config.CONFIGS.values())
    assert set(triton_config.PARALLEL_UP_TO) == {"sm_80", "sm_90"}


# A way to set the precision of products in float32, and what the kernels make of it.
TF32_SETTINGS = {
    "pass": "tf32x3",
    "torch.set_float32_matmul_precision('high')": "tf32",
    "torch.backends.cuda.matmul.allow_tf32 = True": "tf32",
    "torch.backends.fp32_precision = 'tf32'": "tf32",  # what the Trainer's tf32=True does
    "torch.backends.cuda.matmul.fp32_precision = 'tf32'": "tf32",
    "torch.backends.fp32_precision = 'tf32'; torch.backends.cuda.matmul.fp32_precision = 'ieee'": "tf32x3",
}


@pytest.mark.slow
def test_every_way_to_allow_tf32_is_seen():
    """Each in a fork of its own, since they do not mix."""
    code = f"""
import os, torch
from modeling_lion.triton.launch_options import precision
for setting in {list(TF32_SETTINGS)}:
    pid = os.fork()
    if pid == 0:
        exec(setting)
        print(precision(torch.float32), flush=True)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0, setting
"""
    # torch 2.9 says that the older settings will go.
    found = run("-W", "ignore:Please use the new API", "-c", code).split()
    assert dict(zip(TF32_SETTINGS, found, strict=True)) == TF32_SETTINGS


@pytest.fixture
def fake_gpu(monkeypatch):
    """CUDA tensors without a GPU: shapes, strides and dtypes only. Any question about a number raises an error."""
    monkeypatch.setattr(kernels, "HAS_TRITON", True)
    monkeypatch.setattr(kernels, "runs_triton", lambda device: True)
    monkeypatch.setattr(launch_options, "architecture", lambda device: "sm_80")
    with FakeTensorMode():
        yield


class CalledOperators(TorchDispatchMode):
    """Writes down the names of the operators that are called."""

    def __init__(self, names: list[str]):
        super().__init__()
        self.names = names

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(function.name())
        return function(*args, **(kwargs or {}))


def fake_inputs(length=300, head_dim=48, dtype=torch.bfloat16, value_dim=None):
    make = lambda dim: torch.empty(2, length, 3, dim, dtype=dtype, device="cuda").transpose(1, 2)
    return make(head_dim), make(head_dim), make(value_dim or head_dim)


# Shapes of log decays in the tests below.
SHAPES = {"lit": None, "decay": (3,), "selective": (2, 3, 300)}


@pytest.mark.parametrize(("form", "mixer"), [*itertools.product(["parallel", "chunk", "auto"], SHAPES)])
def test_nothing_is_asked_of_the_gpu(form, mixer, fake_gpu):
    shape = SHAPES[mixer]
    decay = None if shape is None else torch.empty(shape, device="cuda")
    inputs = fake_inputs()
    called = []
    with torch.no_grad(), CalledOperators(called):
        output, _ = form_of(form)(*inputs, decay)
    assert output.device.type == "cuda" and output.stride() == inputs[2].stride()
    expected = form if form != "auto" else "chunk" if mixer == "lit" else "parallel"  # 300 tokens are few
    assert [name for name in called if name.startswith("lion::")] == [f"lion::triton_{expected}"]


def test_a_cuda_graph_captures_the_kernel(fake_gpu, monkeypatch):
    """Not plain operations in its place, which would be right and slow."""
    monkeypatch.setattr("transformers.utils.import_utils.is_cuda_stream_capturing", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    called = []
    with torch.no_grad(), CalledOperators(called):
        form_of("chunk")(*fake_inputs(), torch.empty(3, device="cuda"))
    assert "lion::triton_chunk" in called


@pytest.fixture(params=[torch.bfloat16, torch.float16], ids=str)
def gpu_autocast(request):
    """`torch.autocast("cuda", dtype)`, which refuses to work without a GPU."""
    torch.set_autocast_dtype("cuda", request.param)
    torch.set_autocast_enabled("cuda", True)
    torch.autocast_increment_nesting()
    yield request.param
    torch.set_autocast_enabled("cuda", False)
    if torch.autocast_decrement_nesting() == 0:
        torch.clear_autocast_cache()


@pytest.mark.parametrize(
    ("mixer", "feature_map"),
    [*(("lit", name) for name in FEATURE_MAPS), *((name, "silu_norm") for name in ("decay", "selective", "luna"))],
)
def test_mixed_precision_gives_kernels_one_dtype(mixer, feature_map, fake_gpu, gpu_autocast):
    """Autocast widens more on a GPU than on a CPU: also norms, exp and softmax, of which feature maps are made."""
    config = LionConfig(
        mixer_type=mixer, feature_map=feature_map, hidden_size=32, num_attention_heads=2, num_hidden_layers=2,
        intermediate_size=32, vocab_size=20,
        normalization="sum" if find_feature_map(feature_map).is_positive else "none",
        conv_kernel=0,  # torch's convolution of CUDA tensors asks for CUDA
    )  # fmt: skip
    with torch.device("meta"):
        model = LionForMaskedLM(config)
    model.set_attn_implementation("eager" if mixer == "luna" else "chunk")
    weights = dict(model.named_parameters()) | dict(model.named_buffers())
    weights = {name: torch.empty_like(x, device="cuda") for name, x in weights.items()}
    with torch.no_grad():
        output = torch.func.functional_call(model, weights, torch.empty(2, 30, dtype=torch.long, device="cuda"))
    assert output.logits.dtype == gpu_autocast


@pytest.mark.parametrize("division", ["sum", "none", "deferred"])
@pytest.mark.parametrize("mixer", SHAPES)
def test_gradients_have_the_shapes_and_strides_of_their_tensors(mixer, division, fake_gpu):
    log_decay = None if SHAPES[mixer] is None else torch.empty(SHAPES[mixer], device="cuda")
    inputs = (*fake_inputs(), log_decay, log_decay)
    with torch.no_grad():
        output, denominator, wider, *saved = torch.ops.lion.triton_chunk(*inputs, 64, division, "both")
        gradients = torch.ops.lion.triton_chunk_backward(
            output, denominator, *inputs, output, denominator, saved, 64, division, "both", True
        )
    assert wider.numel() == 0 and output.dtype == (torch.float32 if division == "deferred" else torch.bfloat16)
    for gradient, tensor in zip(gradients, inputs, strict=True):
        assert tensor is None or (gradient.shape, gradient.stride()) == (tensor.shape, tensor.stride())


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"dtype": torch.float16}, True),
        ({"dtype": torch.float32}, True),
        ({"value_dim": 256}, True),
        ({"dtype": torch.float64}, False),
        ({"head_dim": 257}, False),
        ({"value_dim": 257}, False),
    ],
)
def test_which_inputs_the_triton_kernels_take(change, expected, fake_gpu, monkeypatch):
    query, _, value = fake_inputs(**change)
    assert kernels.backend_of(query, value) == ("triton" if expected else "plain")
    monkeypatch.setattr(kernels, "HAS_TRITON", False)
    assert kernels.backend_of(query, value) == "plain"


def test_gpus_have_a_choice_of_their_own(fake_gpu):
    for length in (100, 500, 600):
        query, *_ = fake_inputs(length=length)
        limit = triton_config.PARALLEL_UP_TO["sm_80"]
        assert fastest_form(query, query, True, 64, "triton") == ("parallel" if length <= limit else "chunk")
        assert fastest_form(query, query, False, 64, "triton") == "chunk"


@pytest.mark.slow
def test_nobody_without_a_gpu_imports_triton_kernels():
    code = """
import sys, torch
from modeling_lion import LionConfig, LionModel
for mixer in ("lit", "decay", "selective"):
    model = LionModel(LionConfig(mixer_type=mixer, hidden_size=16, num_attention_heads=2, num_hidden_layers=1))
    for kernel in ("parallel", "chunk", "rnn"):
        model.set_attn_implementation(kernel)
        model(torch.arange(8)[None]).last_hidden_state.sum().backward()
host = {f"modeling_lion.triton.{name}" for name in ("config", "launch", "launch_options")}
assert {name for name in sys.modules if name.startswith("modeling_lion.triton.")} == host
"""
    run("-c", code)
