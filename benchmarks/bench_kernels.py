# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The kernels against softmax attention: time of ours ÷ time of `scaled_dot_product_attention` on the same query, key
and value, forward and forward + backward, for LION-LIT, -D and -S and for LION as recommended, whose heads read one
way each; and, on a CPU, whether "auto" chooses the fastest form.

    python benchmarks/bench_kernels.py               # lengths to 16384: about an hour on a small machine
    python benchmarks/bench_kernels.py --quick       # lengths to 1024: minutes
    python benchmarks/bench_kernels.py --lengths 16384 --batch_size 1
    python benchmarks/bench_kernels.py --quick --dtype bfloat16      # on a CPU; rows go to kernels_bfloat16.csv
    python benchmarks/bench_kernels.py --device cuda --minutes 10    # what fits, the most telling first
    python benchmarks/bench_kernels.py --device rehearsal    # the same on a CPU, small, to see that it runs

All take turns in one process. Before it is timed, every kernel's output and gradients are compared with a float64
evaluation of the definition on a smaller batch. Rows go to kernels.csv; a case that this machine has there, with the
same versions, is measured again only with --again.

On a CPU also softmax attention within a window of 64 tokens on either side, and what it has to be faster than: all
scores with a mask. (What it computes is compared in tests/attention/test_softmax_window.py.)

On an NVIDIA GPU, in bfloat16, what is timed is captured in a CUDA graph, so that the time of Python does not count,
unless that is little beside so many tokens. Softmax attention is the faster of two backends. flash-linear-attention
(`pip install ".[gpu]"`) has no bidirectional kernel: it runs once per direction, and is compared without denominators.
LION-S in plain operations, compiled by torch, is "compiled plain". Rows go to kernels_gpu.csv; those of "limit" are a
large matrix product and a large copy, which say what the GPU can do.
"""

import math
import time
from collections.abc import Callable
from functools import cache, lru_cache, partial
from pathlib import Path

import torch
from measure import (
    REHEARSAL,
    append_rows,
    attention_inputs,
    gpu,
    interleaved,
    is_measured,
    make_parser,
    summary,
    table_of,
    torch_device,
)
from report import write_pages
from reports.names import LIONS, PASSES, PUBLISHED_LIONS
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import pad, scaled_dot_product_attention

from modeling_lion.attention.decay_mask import LogDecay, finite_log_decay
from modeling_lion.attention.lion_attention import PLAIN_BODIES, fastest_form, lion_attention
from modeling_lion.attention.plain import run_plain
from modeling_lion.attention.reference import reference_attention
from modeling_lion.attention.softmax_window import sliding_attention
from modeling_lion.attention.softmax_window_plain import window_mask
from modeling_lion.mixers.feature_map import plain_silu_norm, silu_norm


# Quadratic forms take minutes on a CPU beyond this length, and are known to lose.
LONGEST_PARALLEL = 1024
# Tokens on either side that sliding softmax attention sees.
WINDOW = 64
# The most telling lengths first: a run may have to stop early.
LENGTHS = {"cpu": (128, 197, 512, 1024, 4096, 16384), "cuda": (1024, 512, 4096, 128, 16384, 65536)}
LENGTHS[REHEARSAL] = (64, 96)
HEADS = 12
# Tokens from which on launches are little beside what they compute, and the memory of a graph is much.
LONGEST_CAPTURED = 8192
# Tokens at which torch compiles the plain form of LION-S: minutes, for more of them.
COMPILED = (1024, 4096, LENGTHS[REHEARSAL][0])
# The side of two matrices that are multiplied, and the bytes that are copied, to see what a GPU can do.
LARGE = {"cuda": (8192, 2**31), REHEARSAL: (64, 2**10)}
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
# The number format of each device, and the error, relative to the largest number, that each format is always allowed.
FORMATS = {"cpu": torch.float32, "cuda": torch.bfloat16, REHEARSAL: torch.bfloat16}
ALLOWED = {torch.float32: 1e-5, torch.bfloat16: 0.02}


def make_inputs(mixer: str, batch: int, length: int, device: str, **sizes) -> list[Tensor]:
    inputs = attention_inputs(mixer, batch, length, dtype=FORMATS[device], device=torch_device(device), **sizes)
    return [x.contiguous() for x in inputs] if device == "cpu" else inputs


def lion(query, key, value, log_decay=None, *, attention=lion_attention, **options) -> Tensor:
    """The output of our attention for `attention_inputs`."""
    return attention(query, key, value, LogDecay(log_decay, log_decay), **options)[0]


def directions(mixer: str) -> dict[str, str]:
    """The option of our attention in which LION as recommended differs from LION-S."""
    return {"head_directions": "alternate" if mixer == "LION" else "both"}


def run_attention(function: Callable[..., Tensor], inputs: list[Tensor], direction: str, grad=None) -> list[Tensor]:
    """The output and, for "forward+backward", the gradients, given that of the output (ones if it is not given)."""
    if direction == "forward":
        with torch.no_grad():
            return [function(*inputs)]
    inputs = [x.detach().requires_grad_() for x in inputs]
    output = function(*inputs)
    grad = torch.ones_like(output) if grad is None else grad
    # Softmax attention knows no decay and gives it no gradient.
    return [output.detach(), *torch.autograd.grad(output, inputs, grad, allow_unused=True)]


def softmax(query, key, value, *log_decay, backend):
    with sdpa_kernel(backend):
        return scaled_dot_product_attention(query, key, value)


def sliding(query, key, value, *log_decay):
    attention = partial(sliding_attention, sliding_window=WINDOW, scaling=query.shape[-1] ** -0.5)
    return attention(query, key, value).transpose(1, 2)


@lru_cache(maxsize=1)
def dense_mask(length: int) -> Tensor:
    """Made once for all calls, as a model makes it once for all layers."""
    token = torch.arange(length)
    return window_mask(token, token, WINDOW)


def sliding_with_a_mask(query, key, value, *log_decay):
    return scaled_dot_product_attention(query, key, value, dense_mask(query.shape[2]))


def two_passes(query, key, value, *log_decay):
    """flash-linear-attention in both directions, less the tokens themselves, which both have; no denominators."""
    from fla.ops.simple_gla import chunk_simple_gla

    query, key, value = (x.transpose(1, 2) for x in (query, key, value))
    forward_decay = backward_decay = None
    if log_decay:  # by the token that is left behind: a step later in the order of reading
        decay = log_decay[0] if log_decay[0].dim() == 3 else log_decay[0][None, :, None]
        decay = decay.expand(query.shape[0], -1, query.shape[1]).transpose(1, 2)
        forward_decay, backward_decay = pad(decay, (0, 0, 1, 0))[:, :-1], pad(decay, (0, 0, 0, 1))[:, 1:].flip(1)
    scale = query.shape[-1] ** -0.5
    forward, _ = chunk_simple_gla(query, key, value, forward_decay, scale=scale)
    backward, _ = chunk_simple_gla(query.flip(1), key.flip(1), value.flip(1), backward_decay, scale=scale)
    own = (query * key).sum(-1, keepdim=True) * scale * value
    return (forward + backward.flip(1) - own).transpose(1, 2)


@cache
def compiled_plain(device: str) -> Callable[..., Tensor]:
    """LION-S in plain operations, in the faster form, compiled by torch."""

    def plain(query, key, value, log_decay):
        decay = finite_log_decay(LogDecay(log_decay, log_decay), query)
        form = fastest_form(query, value, decay.forward is not None, 64, "plain")
        return run_plain(PLAIN_BODIES[form], query, key, value, *decay, 64, "sum", "both")[0]

    return torch.compile(plain, backend="aot_eager" if device == REHEARSAL else "inductor", dynamic=False)


def contestants(device: str, length: int) -> dict[tuple[str, str], Callable[..., Tensor]]:
    """All that is timed at a length, by mixer and kernel; the feature maps take the query alone."""
    if device == "cpu":
        forms = ("parallel", "chunk", "auto")
        found = {("softmax", "sdpa"): lambda *inputs: scaled_dot_product_attention(*inputs[:3])}
        found |= {(x, form): partial(lion, form=form, **directions(x)) for x in LIONS for form in forms}
        found |= {("sliding window", "auto"): sliding, ("sliding window", "dense"): sliding_with_a_mask}
        slow = {(mixer, "parallel") for mixer in LIONS if length > LONGEST_PARALLEL or mixer == "LION-LIT"}
        slow |= {("sliding window", "dense")} if length > LONGEST_PARALLEL else set()
        return {case: function for case, function in found.items() if case not in slow}
    found = {("softmax", name): partial(softmax, backend=backend) for name, backend in BACKENDS.items()}
    maps = {"auto": silu_norm, "plain": plain_silu_norm}
    found |= {("feature map", name): lambda query, *_, f=function: f(query) for name, function in maps.items()}
    forms = {"auto": lion, "without division": partial(lion, normalization="none")}
    try:
        import fla.ops.simple_gla  # noqa: F401

        forms["two passes"] = two_passes
    except ImportError:
        pass
    found |= {(mixer, name): function for mixer in PUBLISHED_LIONS for name, function in forms.items()}
    if length in COMPILED:
        found["LION-S", "compiled plain"] = compiled_plain(device)
    return found | {("LION", "auto"): partial(lion, **directions("LION"))}


def chosen(device: str, length: int, kernels: list[str] | None) -> dict[tuple[str, str], Callable[..., Tensor]]:
    """The contestants with such kernels; all if `None`."""
    found = contestants(device, length)
    return {case: function for case, function in found.items() if kernels is None or case[1] in kernels}


@cache
def check(kernel: str, mixer: str, length: int, device: str) -> float:
    """
    The largest error of a kernel's output and gradients, relative to the largest number. An AssertionError if one is
    above twice that of the definition in the same number format, and above what is always `ALLOWED`.
    """
    function = contestants(device, length)[mixer, kernel]
    normalization = "none" if kernel in ("without division", "two passes") else "sum"
    options = {"normalization": normalization} | directions(mixer)
    definition = partial(lion, attention=reference_attention, **options)
    inputs = make_inputs(mixer, 1, min(length, 512 if device == "cpu" else 2048), device, heads=2)
    grad = torch.randn_like(inputs[2])
    exact = run_attention(definition, [x.double() for x in inputs], PASSES[1], grad.double())
    results, naive = (run_attention(f, inputs, PASSES[1], grad) for f in (function, definition))
    largest = 0.0
    for result, right, near in zip(results, exact, naive, strict=True):
        error, allowed = (float((x.double() - right).abs().max()) for x in (result, near))
        floor = ALLOWED[FORMATS[device]] * float(right.abs().max())
        assert error <= max(2 * allowed, floor), f"{kernel}, {mixer}, {length} tokens: off by {error:.1e}"
        largest = max(largest, error / float(right.abs().max()))
    return largest


def captured(function: Callable[[], object]) -> Callable[[], object]:
    """The same in a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        graph.results = function()
    return graph.replay


def measure_limits(path: Path, device: str) -> None:
    """Two rows, unless they are there: a product of two matrices of `length` rows, and a copy of `length` bytes."""
    side, size = LARGE[device]
    row = {"batch": 1, "pass": PASSES[0], "mixer": "limit"}
    rows = [{"length": side, **row, "kernel": "matrix product"}, {"length": size, **row, "kernel": "copy"}]
    if is_measured(path, [row | gpu(device) for row in rows]):
        return
    a, b = torch.randn(2, side, side, device=torch_device(device)).to(FORMATS[device])
    source, target = torch.randint(256, (2, size), dtype=torch.uint8, device=torch_device(device))
    calls = {"matrix product": lambda: a @ b, "copy": lambda: target.copy_(source)}
    for row, seconds in zip(rows, interleaved(calls, 20, device).values(), strict=True):
        row |= summary(seconds) | {"error": None, "note": None} | gpu(device)
    append_rows(path, rows)


def measure(
    length: int, batch: int, direction: str, device: str, budget: float, kernels: list[str] | None = None
) -> list[dict]:
    """
    A row for each contestant, or for those with such `kernels`; on a GPU also for those that cannot be timed, with a
    note why.
    """
    inputs = {mixer: make_inputs(mixer, batch, length, device, heads=HEADS) for mixer in LIONS}
    plain = inputs["LION-LIT"]
    grad = torch.randn_like(plain[2])
    rows, timed = {}, {}
    for (mixer, kernel), function in chosen(device, length, kernels).items():
        row = {"length": length, "batch": batch, "pass": direction, "mixer": mixer, "kernel": kernel}
        row |= dict.fromkeys(("median", "min", "max"))
        call = partial(run_attention, function, inputs.get(mixer, plain), direction, grad)
        try:
            error = check(kernel, mixer, length, device) if mixer in LIONS else None
            call()
            is_captured = device == "cuda" and length <= LONGEST_CAPTURED
            timed[mixer, kernel] = captured(call) if is_captured else call
            rows[mixer, kernel] = row if device == "cpu" else row | {"error": error, "note": None} | gpu(device)
        except Exception as error:  # too little memory, no such backend, a compiler's error
            if device == "cpu" or "CUDA error" in str(error):  # after which nothing runs in this process
                raise
            note = f"left out, {type(error).__name__}: {error}"[:300]
            rows[mixer, kernel] = row | {"error": None, "note": note} | gpu(device)
    repeats = 50
    if device == "cpu":
        softmax_seconds = 4e-8 * batch * length**2 * (4 if direction != "forward" else 1)
        repeats, budget = int(max(3, min(25, budget / softmax_seconds))), math.inf
    for case, seconds in interleaved(timed, repeats, device, budget).items():
        rows[case] |= summary(seconds)
    return list(rows.values())


def say(rows: list[dict]) -> None:
    """Times relative to softmax attention, and what is lost against the fastest of a mixer, or to noise."""
    timed = [row for row in rows if row["median"] is not None]
    fastest = {row["mixer"]: row["median"] for row in sorted(timed, key=lambda row: -row["median"])}
    softmax_seconds = fastest.get("softmax", math.nan)
    print(f"{rows[0]['length']} tokens, {rows[0]['pass']}, softmax {softmax_seconds:.4f} s")
    for row in rows:
        text = row.get("note")
        if row["median"] is not None:
            lost = row["median"] / fastest[row["mixer"]] - 1
            text = f"{row['median'] / softmax_seconds:.3f} of softmax, {lost:+.0%} against the fastest"
        print(f"    {row['mixer']}, {row['kernel']}: {text}", flush=True)


def main(args: list[str] | None = None) -> None:
    parser = make_parser(__doc__, "lengths to 1024 only", has_gpu=True)
    parser.add_argument("--lengths", type=int, nargs="+", help=f"default: {LENGTHS}")
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument(
        "--kernels", nargs="+", help='those to measure, such as "flash", "cudnn", "auto"; default: all'
    )
    parser.add_argument(
        "--dtype", choices=["float32", "bfloat16"], default="float32", help="dtype of the inputs, on a CPU"
    )
    parser.add_argument(
        "--seconds", type=float, help="time limit for each length and pass; on a CPU, of softmax attention alone"
    )
    args = parser.parse_args(args)
    torch.set_num_threads(args.threads)
    on_gpu = args.device != "cpu"
    lengths = [n for n in args.lengths or LENGTHS[args.device] if n <= 1024 or not args.quick]
    budget = min(args.seconds or (10.0 if on_gpu else 60.0), 5.0 if args.quick else math.inf)
    FORMATS["cpu"] = getattr(torch, args.dtype)
    path = table_of(args, "kernels")
    if on_gpu:
        measure_limits(path, args.device)
    for length in lengths:
        for direction in PASSES:
            if time.monotonic() > args.deadline:
                return
            case = {"length": length, "batch": args.batch_size, "pass": direction}
            if on_gpu:
                case |= gpu(args.device)
            found = chosen(args.device, length, args.kernels)
            cases = [case | {"mixer": mixer, "kernel": kernel} for mixer, kernel in found]
            if args.again or not is_measured(path, cases):
                rows = measure(length, args.batch_size, direction, args.device, budget, args.kernels)
                append_rows(path, rows)  # a long run may be cut short
                say(rows)
            if args.device == "cuda":
                torch.cuda.empty_cache()
    if not on_gpu:
        write_pages(args.output_dir)


if __name__ == "__main__":
    main()
