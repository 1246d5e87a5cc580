# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The Triton kernels against the naive form in float64, with all gradients: on a GPU if there is one, otherwise in
Triton's interpreter. tests/triton/test_triton.py runs this file, in a process of its own: the interpreter has to be
chosen before anything imports triton.

    pytest tests/triton/triton_cases.py                         # on a GPU
    TRITON_INTERPRET=1 pytest tests/triton/triton_cases.py      # without one

The tolerance is that of test_attention.py; for bfloat16 and float16, twice the error of the plain form that computes
in that dtype all along.
"""

import itertools
import os
from functools import cache

import pytest
import torch
from attention_forms import EXTREMES, HEADS, extreme_decays, form_of, naive, pairs

from modeling_lion import LionConfig, LionForMaskedLM
from modeling_lion.attention import kernels
from modeling_lion.attention import lion_attention as attention
from modeling_lion.attention.decay_mask import LogDecay, decay_mask, finite_log_decay, over_tokens
from modeling_lion.attention.lion_attention import lion_attention
from modeling_lion.attention.numerics import divide
from modeling_lion.attention.reference import reference_attention
from modeling_lion.mixers import feature_map
from modeling_lion.mixers.feature_map import plain_silu_norm, silu_norm
from modeling_lion.triton import launch as triton_launch
from modeling_lion.triton import launch_options


DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
MIXERS = ["lit", "decay", "selective"]
FORMS = {name: form_of(name) for name in ("parallel", "chunk")}  # those that have kernels
CASES = list(itertools.product(MIXERS, FORMS))
# What meets a tile in slices, by the name of the kernel in the configurations.
SLICES = {"output": "keys", "whole_output": "keys", "query_gradient": "keys", "key_gradient": "queries"}
# Triton's interpreter computes bfloat16 wrongly.
DTYPES = [torch.float32, torch.float16, *([] if INTERPRETED else [torch.bfloat16])]
# On a GPU also float32 with products in TensorFloat-32, which has the digits of float16.
FORMATS = DTYPES if INTERPRETED else [*DTYPES, "tf32"]
on_a_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")


if INTERPRETED:
    from triton.runtime import interpreter

    prepared = set()
    slow_dtype = interpreter._get_np_dtype  # makes a table in every call
    number_dtype = cache(slow_dtype)
    interpreter._get_np_dtype = lambda of: slow_dtype(of) if of.scalar.is_ptr() else number_dtype(of.scalar)

    def call_device_function(function, *args, **kwargs):
        """What the interpreter does for calls between device functions, but once a module: most of its time."""
        module = function.fn.__module__
        if module not in prepared and not module.startswith("modeling_lion"):  # ours are prepared with every launch
            interpreter._patch_lang(function.fn)
            prepared.add(module)
        return function.rewrite()(*args, **kwargs)


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Triton bodies for CPU tensors, too; there, several tiles and chunks in a few tokens, since time is short."""
    if INTERPRETED:
        monkeypatch.setattr(interpreter.InterpretedFunction, "__call__", call_device_function)
        # In a few tokens no place overflows; looking for it is a third of the interpreter's time.
        options = interpreter.InterpreterOptions(sanitize_overflow=False)
        monkeypatch.setattr(interpreter.interpreter_builder, "options", options)
        backend = lambda query, value: "plain" if query.dtype == torch.float64 else "triton"
        for module in (kernels, attention, feature_map):
            monkeypatch.setattr(module, "backend_of", backend)
        for config in launch_options.CONFIGS.values():
            monkeypatch.setitem(config, "tile", 16)
            monkeypatch.setitem(config, "lit_tile", 16)
            monkeypatch.setitem(config, "chunk", 32)
            for kernel, size in zip(SLICES, (16, 8, 4, 8), strict=True):
                monkeypatch.setitem(config[kernel], SLICES[kernel], size)


@pytest.fixture
def dtype(number_format):
    """The dtype of one of FORMATS, whose products are allowed meanwhile."""
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    if number_format == "tf32":
        matmul.fp32_precision = "tf32"
    yield torch.float32 if number_format == "tf32" else number_format
    matmul.fp32_precision = before


def is_tf32(dtype: torch.dtype) -> bool:
    return dtype == torch.float32 and torch.backends.cuda.matmul.fp32_precision == "tf32"


def smallest_difference(dtype: torch.dtype) -> float:
    # TensorFloat-32 has the digits of float16, and both factors of a product lose them; torch's need not.
    return 2 * torch.finfo(torch.float16).eps if is_tf32(dtype) else torch.finfo(dtype).eps


def make_inputs(mixer, length, *, dtype=torch.float32, batch=1, heads=2, head_dim=16, value_dim=None, positive=True):
    """Query, key, value in `dtype`, strided as in the model, and the log decay in float32."""
    generator = torch.Generator().manual_seed(length)
    rand = lambda *shape: torch.rand(*shape, generator=generator, dtype=torch.float64)
    query, key = rand(2, batch, length, heads, head_dim).transpose(2, 3) + (0.1 if positive else -0.5)
    value = torch.randn(batch, heads, length, value_dim or head_dim, generator=generator, dtype=torch.float64)
    shape = {"lit": None, "decay": (heads,), "selective": (batch, heads, length)}[mixer]
    log_decay = None if shape is None else torch.log(0.02 + 0.98 * rand(*shape)).float().to(DEVICE)
    return [*(x.to(dtype).to(DEVICE) for x in (query, key, value)), log_decay]


def outputs_and_gradients(kernel, inputs, dtype=None, decay_dtype=None, **kwargs):
    """`[output, d query, d key, d value(, d log_decay)]`; with `dtype`, computed in it."""
    *inputs, log_decay = inputs
    inputs = [x.detach().to(dtype or x.dtype).requires_grad_() for x in inputs]
    if log_decay is not None:
        inputs.append(log_decay.detach().to(decay_dtype or dtype or log_decay.dtype).requires_grad_())
    output, _ = kernel(*inputs, **kwargs)
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    output.backward((weights / 8).half().to(output.dtype).to(output.device))  # the same numbers for every dtype
    # A sequence of one token does not decay, and its decay may have no gradient at all.
    return [output.detach(), *(torch.zeros_like(x) if x.grad is None else x.grad for x in inputs)]


def plain_attention(query, key, value, log_decay=None, **kwargs):
    """The naive form in the dtype of the queries, but for decays, which are wider (SPEC §5)."""
    weights = query @ key.transpose(-1, -2)
    log_decay = finite_log_decay(LogDecay(log_decay, log_decay), query.float(), kwargs.get("cu_seqlens"))
    if log_decay.forward is not None:
        weights = (weights * decay_mask(*over_tokens(log_decay, query))).to(query.dtype)
    if kwargs.get("normalization", "sum") == "sum":
        weights = divide(weights, weights.float().sum(-1, keepdim=True)).to(query.dtype)
    else:
        weights = weights * query.shape[-1] ** -0.5
    return weights.to(value.dtype) @ value, None


def assert_right(kernel, inputs, **kwargs):
    """Compare outputs and gradients with float64, and allow twice the error of the plain form in the same dtype."""
    results = outputs_and_gradients(kernel, inputs, **kwargs)
    exact = outputs_and_gradients(naive, inputs, torch.float64, **kwargs)
    near = outputs_and_gradients(plain_attention, inputs, **kwargs)
    for name, result, right, plain in zip(
        ["output", "d query", "d key", "d value", "d log_decay"], results, exact, near, strict=False
    ):
        assert result.isfinite().all(), name
        error, allowed = ((x.double() - right).abs().max() for x in (result, plain))
        # What is added up is of size 1, even where it adds up to nothing.
        size = max(1, right.abs().max())
        dtype = inputs[0].dtype if name == "d log_decay" else result.dtype
        eps = smallest_difference(dtype)
        if right.dim() == 1 and is_tf32(dtype):  # of a decay that all tokens share: their errors add up
            size *= results[0].shape[2] ** 0.5
        allowed = 2 * allowed + size * max(eps, 64 * torch.finfo(torch.float32).eps)
        assert error <= allowed, f"{name} is off by {error:.2e}, allowed are {allowed:.2e}"
    return results


def lengths(*short: int, long: tuple[int, ...]) -> list[int]:
    """The lengths for the interpreter, with its small tiles, or for a GPU."""
    return list(short) if INTERPRETED else [*short, *long]


def tokens(kernel: str, parts: int = 3) -> int:
    """Some tiles or chunks, the last one not full: two on a GPU, `parts` of the interpreter's small ones."""
    return {"parallel": 16 * parts - 8, "chunk": 32 * parts - 26}[kernel] if INTERPRETED else 85


@pytest.mark.parametrize("number_format", FORMATS, ids=str)
@pytest.mark.parametrize("normalization", ["sum", "none"])
@pytest.mark.parametrize(("mixer", "kernel"), CASES)
@pytest.mark.parametrize("length", lengths(1, None, long=(64, 197, 512, 1000)))
def test_agrees_with_the_naive_form(length, mixer, kernel, normalization, dtype):
    if INTERPRETED and dtype == torch.float16 and (normalization == "none" or length == 1):
        pytest.skip("tested on a GPU: the interpreter is slow")
    heads = 1 if INTERPRETED else 2  # more of them in test_programs_stay_in_their_memory
    inputs = make_inputs(mixer, length or tokens(kernel), heads=heads, dtype=dtype, positive=normalization == "sum")
    assert_right(FORMS[kernel], inputs, normalization=normalization)


@pytest.mark.parametrize("number_format", [x for x in FORMATS if INTERPRETED or x != torch.float16], ids=str)
@pytest.mark.parametrize(
    "dims", [(48, 48), (80, 80), (40, 65), (5, 6), *([] if INTERPRETED else [(128, 128), (256, 256)])]
)
@pytest.mark.parametrize("mixer", ["lit", "selective"])
def test_any_head_dimension(mixer, dims, dtype):
    if INTERPRETED and dtype == torch.float16:
        pytest.skip("tested on a GPU: the interpreter is slow")
    inputs = make_inputs(mixer, 40 if INTERPRETED else 600, heads=1, head_dim=dims[0], value_dim=dims[1], dtype=dtype)
    assert_right(FORMS["chunk"], inputs)


@pytest.mark.parametrize(("mixer", "kernel"), CASES)
def test_packed_sequences(mixer, kernel):
    parts = (3, 1, 30, 16, 9) if INTERPRETED else (3, 1, 300, 64, 9, 100)
    borders = torch.tensor([0, *parts]).cumsum(0).int().to(DEVICE)
    assert_right(FORMS[kernel], make_inputs(mixer, sum(parts), heads=1), cu_seqlens=borders)


@pytest.mark.parametrize("kernel", ["parallel", "chunk"])
def test_many_short_sequences_cost_no_digits(kernel):
    """Packed in one tile they are what they are alone: the borders before a sequence don't round its decays."""
    parts = (1,) * 10 + (6, 5, 8)
    inputs = make_inputs("selective", sum(parts), heads=1)
    borders = torch.tensor([0, *parts]).cumsum(0).int()
    packed = outputs_and_gradients(FORMS[kernel], inputs, cu_seqlens=borders.to(DEVICE))
    start = borders[-2]
    exact = outputs_and_gradients(naive, inputs, torch.float64, cu_seqlens=borders.to(DEVICE))
    for result, right in zip(packed, exact, strict=True):
        last = (result.double() - right)[:, :, start:]
        assert last.abs().max() <= 16 * torch.finfo(torch.float32).eps * max(1, right.abs().max())


@pytest.mark.parametrize(("mixer", "kernel"), [(x, y) for x, y in CASES if x != "lit"])
@pytest.mark.parametrize(
    "kind", [kind for kind in EXTREMES if not INTERPRETED or kind in ("all zero", "all kinds", "underflow")]
)
def test_extreme_decays(kind, mixer, kernel):
    if INTERPRETED and (mixer, kernel) == ("decay", "parallel"):
        pytest.skip("tested on a GPU: the interpreter is slow")
    *inputs, log_decay = make_inputs(mixer, tokens(kernel) if INTERPRETED else 600, heads=1)
    log_decay = extreme_decays(kind, log_decay.shape, torch.float32).to(DEVICE)
    gradient = assert_right(FORMS[kernel], [*inputs, log_decay])[-1]
    assert (gradient[log_decay == -torch.inf] == 0).all()


@pytest.mark.parametrize(("mixer", "kernel"), CASES)
def test_zero_denominators_give_zero(mixer, kernel):
    query, key, value, log_decay = make_inputs(mixer, 40, heads=2)
    query, key = query.clone(), key.clone()
    query[0, 0, 3] = 0  # one query that sees nothing
    key[0, 1] = 0  # one head where there is nothing to see
    results = outputs_and_gradients(FORMS[kernel], (query, key, value, log_decay))
    assert all(x.isfinite().all() for x in results)
    output, d_query, d_key, d_value = results[:4]
    assert (output[0, 0, 3] == 0).all() and (d_query[0, 0, 3] == 0).all()
    assert all((x[0, 1] == 0).all() for x in (output, d_query, d_key, d_value))


@pytest.mark.parametrize("dtype", [DTYPES[0], DTYPES[-1]], ids=str)
@pytest.mark.parametrize(("mixer", "kernel"), CASES)
def test_numerators_and_denominators(mixer, kernel, dtype):
    """Both in float32, with gradients of both: what scans and segments add up before they divide."""
    if INTERPRETED and dtype == torch.float16 and mixer == "decay":
        pytest.skip("tested on a GPU: the interpreter is slow")
    inputs = make_inputs(mixer, tokens(kernel, 2), heads=1, value_dim=17, dtype=dtype)

    def both(form):
        def together(*args, **kwargs):
            (numerator, denominator), _ = form(*args, returns_sums=True, **kwargs)
            assert numerator.dtype == denominator.dtype != torch.float16
            return torch.cat((numerator, denominator), dim=-1), None

        return together

    results = outputs_and_gradients(both(FORMS[kernel]), inputs)
    exact = outputs_and_gradients(both(naive), inputs, torch.float64)
    for result, right in zip(results, exact, strict=True):
        # Scores and gradients are rounded to the dtype of what they are multiplied with.
        assert (result.double() - right).abs().max() <= 64 * torch.finfo(dtype).eps * max(1, right.abs().max())


# Few for the interpreter, which is slow: with states and tiles, one of each way to say which direction is masked.
DIRECTIONS = [("chunk", "one direction, fixed"), ("chunk", "both kinds"), ("parallel", "one direction")]
DIRECTIONS += [("parallel", "forward decays only")]


@pytest.mark.parametrize("kernel", FORMS)
@pytest.mark.parametrize("kind", ["one direction", "one direction, fixed", "both kinds", "forward decays only"])
def test_the_directions_may_differ(kind, kernel):
    """With decays so slow that something is left of what passes a whole chunk."""
    if INTERPRETED and (kernel, kind) not in DIRECTIONS:
        pytest.skip("tested on a GPU: the interpreter is slow")
    length = tokens(kernel)
    inputs = make_inputs("lit", length, heads=HEADS)[:3]
    log_decay = [None if x is None else (x[:1] if x.dim() == 3 else x).float() / 16 for x in pairs(kind, length)]
    given = [x.to(DEVICE) for x in log_decay if x is not None]
    is_given = [x is not None for x in log_decay]

    def results(attention, dtype, **options):
        leaves = [x.detach().to(dtype).requires_grad_() for x in (*inputs, *given)]
        found = iter(leaves[3:])
        output, _ = attention(*leaves[:3], LogDecay(*(next(found) if x else None for x in is_given)), **options)
        weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE)
        return output, *torch.autograd.grad((output * weights).sum(), leaves)

    exact = results(reference_attention, torch.float64)
    options = {}
    if kind == "one direction, fixed":  # masked by the argument instead
        given, options = [torch.maximum(*given)] * 2, {"head_directions": "alternate"}
    found = results(lion_attention, torch.float32, form=kernel, **options)
    for result, right in zip(found, exact, strict=True):
        assert (result.double() - right).abs().max() <= 64 * torch.finfo(torch.float32).eps * max(1, right.abs().max())


@pytest.mark.parametrize("kernel", ["parallel", "chunk"])
@pytest.mark.parametrize("mixer", MIXERS)
def test_float16_gradients_of_a_scaled_loss(mixer, kernel):
    """A scaler makes the gradients large: dy · v leaves float16's range, but nothing that is returned does."""
    *inputs, log_decay = make_inputs(mixer, tokens(kernel, 2), heads=1, dtype=torch.float16)
    results = {}
    for dtype in (torch.float16, torch.float64):
        leaves = [x.detach().to(dtype).requires_grad_() for x in inputs]
        function = FORMS[kernel] if dtype == torch.float16 else naive
        output, _ = function(*leaves, log_decay if dtype == torch.float16 or log_decay is None else log_decay.double())
        generator = torch.Generator().manual_seed(2)
        grad = 2**14 * torch.randn(output.shape, generator=generator, dtype=torch.float64)
        output.backward(grad.half().to(DEVICE, dtype))
        results[dtype] = [x.grad.double() for x in leaves]
    for half, exact in zip(*results.values(), strict=True):
        assert exact.abs().max() < torch.finfo(torch.float16).max
        assert (half - exact).abs().max() <= 0.02 * exact.abs().max()


def test_float16_gradients_of_what_is_divided_later():
    """Divided by large denominators outside, gradients are small: they keep their digits all the same."""
    *inputs, log_decay = make_inputs("selective", tokens("chunk", 2), heads=1, dtype=torch.float16)
    results = {}
    for dtype in (torch.float16, torch.float64):
        leaves = [x.detach().to(dtype).requires_grad_() for x in inputs]
        form = FORMS["chunk"] if dtype == torch.float16 else naive
        (numerator, denominator), _ = form(
            *leaves, log_decay.to(torch.promote_types(dtype, torch.float32)), returns_sums=True
        )
        grad = torch.randn(numerator.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64) * 1e-3
        (numerator / (50 * denominator)).backward(grad.to(DEVICE, numerator.dtype))
        results[dtype] = [x.grad.double() for x in leaves]
    for half, exact in zip(*results.values(), strict=True):
        assert (half - exact).abs().max() <= 0.02 * exact.abs().max() + 2 * torch.finfo(torch.float16).smallest_normal


@pytest.mark.parametrize("mixer", MIXERS)
def test_float16_gradients_of_large_denominators(mixer):
    """A gradient divided by its denominator is too small for float16; the gradients of the inputs are not."""
    length = 96 if INTERPRETED else 600
    query, key, value, log_decay = make_inputs(mixer, length, heads=1, dtype=torch.float16)
    log_decay = log_decay if log_decay is None else log_decay / 256
    exact, half = exact_and_half_gradients((8 * query, 8 * key * 96 / length, value, log_decay))
    for found, right in zip(half, exact, strict=True):
        assert (found - right).abs().max() <= 0.02 * right.abs().max()


def test_the_remainder_of_rounded_outputs_is_of_use(monkeypatch):
    """Where values are nearly alike, rounding takes as much from an output as a decay changes in it."""
    query, key, value, log_decay = make_inputs("selective", tokens("chunk"), heads=1, dtype=torch.float16)
    make_plan, errors = launch_options.Plan.__init__, []
    for keeps_remainder in (True, False):

        def plan(self, *args, keeps_remainder=keeps_remainder):
            make_plan(self, *args)
            assert self.keeps_remainder
            self.keeps_remainder = keeps_remainder

        monkeypatch.setattr(launch_options.Plan, "__init__", plan)
        exact, half = exact_and_half_gradients((query, key, value + 10, log_decay))
        errors.append((half[-1] - exact[-1]).square().mean().sqrt())
    assert errors[0] < 0.75 * errors[1]


def exact_and_half_gradients(inputs):
    """Two lists of the gradients of (query, key, value, log decay): of the naive form in float64, and in float16."""
    for dtype in (torch.float64, torch.float16):
        form = naive if dtype == torch.float64 else FORMS["chunk"]
        *leaves, log_decay = inputs
        leaves = [x.detach().to(dtype).requires_grad_() for x in leaves]
        if log_decay is not None:
            leaves.append(log_decay.detach().to(torch.promote_types(dtype, torch.float32)).requires_grad_())
        output, _ = form(*leaves)
        grad = torch.randn(output.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64) * 1e-2
        output.backward(grad.half().to(DEVICE, output.dtype))
        yield [x.grad.double() for x in leaves]


@pytest.mark.parametrize("number_format", ["tf32", torch.float16], ids=str)
@pytest.mark.parametrize("mixer", MIXERS)
def test_what_is_not_a_number_stays_so(mixer, dtype):
    """A GPU's NaN has all bits of the fraction, which rounding must not carry over into the others."""
    for n in range(3):
        inputs = [x if x is None else x.contiguous() for x in make_inputs(mixer, 40, heads=1, dtype=dtype)]
        bits = {2: torch.int16, 4: torch.int32}[dtype.itemsize]
        inputs[n].view(bits)[0, 0, 20] = torch.iinfo(bits).max
        assert inputs[n][0, 0, 20].isnan().all()
        output, _ = FORMS["chunk"](*inputs, normalization="none")
        assert output[0, 0, [20] if n == 0 else slice(None)].isnan().all(), n


def test_strides_do_not_matter():
    inputs = make_inputs("selective", 40, heads=2)
    expected = outputs_and_gradients(FORMS["chunk"], inputs)
    spread = [torch.stack((x, x), dim=-1)[..., 0] for x in inputs[:3]]
    log_decay = inputs[3].transpose(1, 2).contiguous().transpose(1, 2)
    results = outputs_and_gradients(FORMS["chunk"], (*spread, log_decay))
    limits = {"rtol": 0, "atol": 0} if INTERPRETED else {}  # on a GPU, wider loads change the order of some sums
    for result, right in zip(results, expected, strict=True):
        torch.testing.assert_close(result, right, **limits)


@pytest.mark.skipif(not INTERPRETED, reason="seen in the interpreter; compute-sanitizer is for a GPU")
@pytest.mark.parametrize(("mixer", "kernel"), CASES)
def test_programs_stay_in_their_memory(mixer, kernel, monkeypatch):
    """
    None leaves the tensors or touches what another one writes: the order of programs can change nothing. And all are
    right where there are several sequences, and heads whose sizes are no powers of 2.
    """
    from triton_memory import MemoryAccess

    checked = []
    access = MemoryAccess(monkeypatch)

    def launch(kernel, *args, **options):
        access.check(launch_options.launch, kernel, *args, **options)
        checked.append(kernel.__name__)

    monkeypatch.setattr(triton_launch, "launch", launch)
    parts = {"parallel": 4, "chunk": 2}[kernel]  # tiles of one chunk that others lie between, or chunks
    inputs = make_inputs(mixer, tokens(kernel, parts), heads=2, batch=2, head_dim=24, value_dim=40)
    assert_right(FORMS[kernel], inputs)
    expected = 4 if mixer == "lit" else {"parallel": 4, "chunk": 9}[kernel]
    assert len(checked) == expected, checked


@pytest.mark.parametrize(
    ("form", "parts"), [("chunk", (4, 1, 2, 1)), ("chunk", (2, 1, 1, 4)), ("parallel", (1, 4, 2, 1))]
)
def test_slices_of_tiles(form, parts, monkeypatch):
    for config in launch_options.CONFIGS.values():
        for kernel, n in zip(SLICES, parts, strict=True):
            monkeypatch.setitem(config[kernel], SLICES[kernel], max(4 if INTERPRETED else 16, config["tile"] // n))
    assert_right(FORMS[form], make_inputs("selective", tokens(form) if INTERPRETED else 600, heads=1))


@pytest.mark.parametrize("number_format", FORMATS, ids=str)
@pytest.mark.parametrize("dims", [(16, 16), (24, 40)])
def test_states_are_weighted_before_or_after_the_product(dims, dtype, monkeypatch):
    """What the tuning may choose for the output: parts of rows with weights, or whole rows without."""
    inputs = make_inputs("selective", tokens("chunk"), heads=1, head_dim=dims[0], value_dim=dims[1], dtype=dtype)
    for inner in (16, 0):
        for config in launch_options.CONFIGS.values():
            monkeypatch.setitem(config["output"], "inner", inner)
        assert_right(FORMS["chunk"], inputs)


@pytest.mark.parametrize("mixer", ["decay", "selective"])
def test_chunks_of_four_tiles(mixer, monkeypatch):
    """The decays of whole tiles between two others, in a chunk, have gradients, too."""
    for config in launch_options.CONFIGS.values():
        monkeypatch.setitem(config, "tile", 16 if INTERPRETED else 32)
        monkeypatch.setitem(config, "chunk", 64 if INTERPRETED else 128)
    assert_right(FORMS["chunk"], make_inputs(mixer, 150 if INTERPRETED else 600, heads=1))


@pytest.mark.parametrize("mixer", MIXERS)
def test_many_programs_for_few_heads(mixer, monkeypatch):
    """States in tiles, sequences in slices: what a large GPU gets when there are few heads."""
    if INTERPRETED and mixer == "decay":
        pytest.skip("tested on a GPU: the interpreter is slow")
    monkeypatch.setattr(launch_options, "LEAST_SLICE", 20)
    assert_right(FORMS["chunk"], make_inputs(mixer, tokens("chunk"), heads=1, head_dim=48, value_dim=34))


@pytest.mark.parametrize("mixer", ["selective", "lit"])
def test_a_hybrid_in_triton(mixer, monkeypatch):
    """Linear layers in Triton, a layer with a window between them, and padding: as in plain operations."""
    torch.manual_seed(0)
    fields = {"feature_map": "hedgehog"}
    if mixer == "selective":
        layers = {"layer_types": ["linear_attention", "sliding_attention"], "sliding_window": 16}
        fields = {"head_directions": "alternate", "conv_kernel": 3, **layers}
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 32}
    config = LionConfig(mixer_type=mixer, vocab_size=50, **sizes, **fields)
    model = LionForMaskedLM(config).to(DEVICE)
    model.set_attn_implementation("chunk")
    ids = torch.randint(5, 50, (2, 24), device=DEVICE)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}
    inputs["attention_mask"][0, :5] = 0
    called, results = [], []
    launch = triton_launch.launch
    monkeypatch.setattr(triton_launch, "launch", lambda *args, **options: called.append(launch(*args, **options)))
    for is_plain in (False, True):
        if is_plain:
            launches = len(called)
            for module in (kernels, attention, feature_map):
                monkeypatch.setattr(module, "backend_of", lambda query, value: "plain")
        model.zero_grad()
        loss = model(**inputs).loss
        loss.backward()
        results.append([loss.detach(), *(x.grad for x in model.parameters() if x.grad is not None)])
    assert 0 < launches == len(called)
    for triton, plain in zip(*results, strict=True):
        torch.testing.assert_close(triton, plain, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(1, 1, 1, 2), (2, 9, 3, 20), (1, 40, 2, 64), (1, 3, 1, 256)], ids=str)
def test_silu_norm(shape, dtype):
    """Forward and gradient, no worse than twice the plain form that computes in that dtype all along."""
    generator = torch.Generator().manual_seed(0)
    x, weights = (torch.randn(shape, generator=generator).to(DEVICE, dtype) * scale for scale in (4, 1))
    x[..., 0] = 60  # SiLU is linear there
    results = {}
    for name, function, wide in (
        ("fused", silu_norm, dtype),
        ("naive", plain_silu_norm, dtype),
        ("exact", plain_silu_norm, torch.float64),
    ):
        leaf = x.detach().to(wide).requires_grad_()
        y = function(leaf.transpose(1, 2)).transpose(1, 2)  # a gradient in another layout
        y.backward(weights.to(wide))
        assert y.dtype == leaf.grad.dtype == wide and y.shape == shape
        results[name] = y.detach().double(), leaf.grad.double()
    for fused, plain, exact in zip(*results.values(), strict=True):
        eps = torch.finfo(dtype).eps * exact.abs().max()
        assert (fused - exact).abs().max() <= 2 * (plain - exact).abs().max() + eps


def test_silu_norm_is_one_launch_each_way(monkeypatch):
    launched, launch = [], triton_launch.launch

    def count(kernel, *args, **options):
        launched.append(kernel)
        launch(kernel, *args, **options)

    monkeypatch.setattr(triton_launch, "launch", count)
    x = torch.randn(2, 5, 3, 8, device=DEVICE, requires_grad=True)
    silu_norm(x).backward(torch.ones_like(x))
    assert len(launched) == 2


def test_second_derivative_of_silu_norm():
    x = torch.randn(3, 8, device=DEVICE, requires_grad=True)
    (first,) = torch.autograd.grad(silu_norm(x)[:, 0].sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), x)
    wide = x.detach().double().requires_grad_()
    (first,) = torch.autograd.grad(plain_silu_norm(wide)[:, 0].sum(), wide, create_graph=True)
    (expected,) = torch.autograd.grad(first.square().sum(), wide)
    torch.testing.assert_close(second.double(), expected, rtol=1e-4, atol=1e-5)


def test_operators_are_registered_correctly():
    cases = [("lit", "deferred"), ("decay", "sum"), ("selective", "none"), ("selective", "deferred")]
    cases = [(mixer, division, torch.float32) for mixer, division in cases] + [("selective", "sum", torch.float16)]
    for mixer, division, dtype in cases:
        inputs = make_inputs(mixer, 40, heads=2, dtype=dtype)
        inputs = [None if x is None else x.detach().requires_grad_() for x in inputs]
        torch.library.opcheck(
            torch.ops.lion.triton_chunk.default,
            (*inputs, inputs[3], 64, division, "both"),
            test_utils=("test_schema", "test_faketensor"),
        )
    x = torch.randn(2, 5, 3, 8, device=DEVICE).transpose(1, 2)
    for grad in (None, x):
        torch.library.opcheck(torch.ops.lion.triton_silu_norm, (x, grad))


@pytest.mark.parametrize(("mixer", "kernel"), CASES)
def test_compiles_to_one_graph(mixer, kernel):
    if INTERPRETED and (mixer, kernel) not in [("lit", "parallel"), ("selective", "chunk")]:
        pytest.skip("tested on a GPU: the interpreter is slow")
    torch.compiler.reset()
    compiled = torch.compile(FORMS[kernel], fullgraph=True, backend="inductor" if DEVICE == "cuda" else "aot_eager")
    inputs = make_inputs(mixer, 600 if DEVICE == "cuda" else 40)
    results = outputs_and_gradients(compiled, inputs)
    for result, expected in zip(results, outputs_and_gradients(FORMS[kernel], inputs), strict=True):
        torch.testing.assert_close(result, expected)


@on_a_gpu
@pytest.mark.parametrize(("mixer", "kernel"), CASES)
def test_cuda_graphs_capture_it(mixer, kernel):
    """Capture fails on any synchronization with the host."""
    inputs = [x for x in make_inputs(mixer, 600, dtype=torch.bfloat16) if x is not None]
    with torch.no_grad():
        expected, _ = FORMS[kernel](*inputs)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output, _ = FORMS[kernel](*inputs)
        output.zero_()
        graph.replay()
    assert torch.equal(output, expected)


@on_a_gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mixer", MIXERS)
def test_repeats_bit_by_bit(mixer, dtype):
    inputs = make_inputs(mixer, 3000, batch=2, heads=4, head_dim=64, dtype=dtype)
    first = outputs_and_gradients(FORMS["chunk"], inputs)
    for _ in range(3):
        again = outputs_and_gradients(FORMS["chunk"], inputs)
        assert all(torch.equal(x, y) for x, y in zip(again, first, strict=True))


@on_a_gpu
@pytest.mark.parametrize("mixer", MIXERS)
def test_long_sequence(mixer):
    """Agrees with the torch kernel in float64 where the matrix would not fit."""
    inputs = make_inputs(mixer, 20_000, head_dim=64, dtype=torch.bfloat16)
    for result, right in zip(
        outputs_and_gradients(FORMS["chunk"], inputs),
        outputs_and_gradients(FORMS["chunk"], inputs, torch.float64),
        strict=True,
    ):
        assert (result.double() - right).abs().max() <= 0.02 * max(1, right.abs().max())
