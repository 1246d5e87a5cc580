# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The kernels against softmax attention: time of ours ÷ time of `scaled_dot_product_attention` on the same query, key
and value, forward and forward + backward, for LION-LIT, -D and -S; and whether "auto" chooses the fastest form.

    python benchmarks/bench_kernels.py               # lengths to 16384: about an hour on a small machine
    python benchmarks/bench_kernels.py --quick       # lengths to 1024: minutes
    python benchmarks/bench_kernels.py --lengths 16384 --batch_size 1     # added to the results of earlier runs

Both sides take turns in one process. Before anything is timed, every kernel's output and gradients are compared with
the naive form in float64 on a smaller batch. Writes a table, a JSON file and two plots to `--output_dir`.
"""

import argparse
from pathlib import Path

import torch
from measure import interleaved, print_table, read_json, summary, write_json
from torch.nn.functional import scaled_dot_product_attention

from modeling_lion.kernel_auto import auto_attention, fastest_kernel
from modeling_lion.kernel_chunk import chunk_attention
from modeling_lion.kernel_naive import naive_attention
from modeling_lion.kernel_parallel import parallel_attention


HEADS, HEAD_DIM = 12, 64
MIXERS = ("LIT", "D", "S")
PASSES = ("forward", "forward+backward")
KERNELS = {"parallel": parallel_attention, "chunk": chunk_attention}
# Quadratic forms take minutes beyond this length, and are known to lose.
LONGEST_PARALLEL = 1024


def make_inputs(mixer: str, batch: int, length: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """Query, key and value `(batch, heads, length, head_dim)` and the log decay, half-lives from 1 to 1000 tokens."""
    torch.manual_seed(length)
    query, key = torch.rand(2, batch, HEADS, length, HEAD_DIM)
    inputs = [query, key, torch.randn(batch, HEADS, length, HEAD_DIM)]
    if mixer != "LIT":
        inputs.append(-(10.0 ** (-3 * torch.rand((HEADS,) if mixer == "D" else (batch, HEADS, length)))))
    return [x.to(dtype) for x in inputs]


def softmax_attention(query, key, value, *log_decay):
    return (scaled_dot_product_attention(query, key, value),)


def run(kernel, inputs: list[torch.Tensor], direction: str, grad: torch.Tensor) -> list[torch.Tensor]:
    """The output, and the gradients, given that of the output, if asked for."""
    if direction == "forward":
        with torch.no_grad():
            return [kernel(*inputs)[0]]
    inputs = [x.detach().requires_grad_() for x in inputs]
    output = kernel(*inputs)[0]
    # Softmax attention knows no decay and gives it no gradient.
    return [output, *torch.autograd.grad(output, inputs, grad, allow_unused=True)]


def check(kernel, mixer: str, length: int) -> None:
    """Raise an AssertionError unless a kernel agrees with the naive form in float64, gradients included."""
    length = min(length, 512)
    inputs = make_inputs(mixer, 1, length)
    grad = torch.randn_like(inputs[2])
    exact = run(naive_attention, [x.double() for x in inputs], PASSES[1], grad.double())
    naive = run(naive_attention, inputs, PASSES[1], grad)
    for result, right, near in zip(run(kernel, inputs, PASSES[1], grad), exact, naive, strict=True):
        error, allowed = ((x.double() - right).abs().max() for x in (result, near))
        floor = 1e-5 * right.abs().max().clamp(min=1)
        assert error <= max(2 * allowed, floor), f"{kernel.__name__}, {mixer}, {length}: off by {error:.1e}"


def measure(length: int, batch: int, direction: str, budget: float) -> dict[str, dict[str, float]]:
    """Summaries of CPU seconds, by `"softmax"` and `"mixer kernel"`."""
    functions = {}
    inputs = {mixer: make_inputs(mixer, batch, length) for mixer in MIXERS}
    grad = torch.randn_like(inputs["LIT"][2])
    functions["softmax"] = lambda: run(softmax_attention, inputs["LIT"], direction, grad)
    for mixer in MIXERS:
        for name, kernel in {**KERNELS, "auto": auto_attention}.items():
            if name == "parallel" and (length > LONGEST_PARALLEL or mixer == "LIT"):
                continue
            functions[f"{mixer} {name}"] = lambda m=mixer, k=kernel: run(k, inputs[m], direction, grad)
    softmax_seconds = 4e-8 * batch * length**2 * (4 if direction != "forward" else 1)
    repeats = int(max(3, min(25, budget / softmax_seconds)))
    return {name: summary(seconds) for name, seconds in interleaved(functions, repeats).items()}


def ratio(result: dict, name: str) -> float:
    return result[name]["median"] / result["softmax"]["median"]


def table_row(result: dict) -> list[str]:
    """Ratios to softmax attention, what "auto" lost by its choice if it lost anything, and the noise."""
    length, times = result["length"], result["times"]
    row = [str(length), result["pass"]]
    for mixer in MIXERS:
        decay = None if mixer == "LIT" else torch.empty(HEADS)
        choice = fastest_kernel(torch.empty(1, 1, length, HEAD_DIM), decay, 64).__name__.split("_")[0]
        forms = {k: ratio(times, f"{mixer} {k}") for k in KERNELS if f"{mixer} {k}" in times}
        best = min(forms, key=forms.get)
        note = "" if best == choice else f" (chose {choice}, +{forms[choice] / forms[best] - 1:.0%})"
        row.append(f"{ratio(times, f'{mixer} auto'):.3f}{note}")
    return [*row, f"{times['softmax']['max'] / times['softmax']['min']:.2f}"]


def draw(results: list[dict], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(11, 8), sharex=True, layout="constrained")
    for column, direction in enumerate(PASSES):
        rows = [r for r in results if r["pass"] == direction]
        lengths = [r["length"] for r in rows]
        time, relative = axes[0][column], axes[1][column]
        time.loglog(
            lengths, [r["times"]["softmax"]["median"] / r["batch"] for r in rows], "k--", label="softmax (SDPA)"
        )
        relative.axhline(1, color="black", linestyle="--")
        for mixer in MIXERS:
            name = f"{mixer} auto"
            time.loglog(lengths, [r["times"][name]["median"] / r["batch"] for r in rows], "o-", label=f"LION-{mixer}")
            relative.loglog(lengths, [ratio(r["times"], name) for r in rows], "o-", label=f"LION-{mixer}")
        time.set(title=direction, ylabel="seconds per sequence")
        relative.set(xlabel="length in tokens", ylabel="time ÷ time of softmax attention")
        time.legend()
        relative.legend()
        relative.set_xticks(lengths, [str(n) for n in lengths])
        relative.minorticks_off()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="lengths to 1024 only")
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 197, 512, 1024, 4096, 16384])
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0, help="for softmax attention, per length and pass")
    parser.add_argument("--output_dir", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    lengths = [n for n in arguments.lengths if n <= 1024] if arguments.quick else arguments.lengths
    budget = min(arguments.seconds, 5.0) if arguments.quick else arguments.seconds

    name = f"kernels_{arguments.threads}_thread{'s' if arguments.threads > 1 else ''}"
    path = arguments.output_dir / f"{name}.json"
    results = read_json(path) or []
    for length in lengths:
        for mixer in MIXERS:
            for kernel in (auto_attention, chunk_attention, parallel_attention):
                check(kernel, mixer, length)
        for direction in PASSES:
            times = measure(length, arguments.batch_size, direction, budget)
            row = {"length": length, "batch": arguments.batch_size, "pass": direction, "times": times}
            results = [r for r in results if (r["length"], r["pass"]) != (length, direction)] + [row]
            results.sort(key=lambda r: (r["length"], r["pass"]))
            write_json(path, results)  # a long run may be cut short
            print(*table_row(row), flush=True)
    print_table(
        ["length", "pass", *(f"LION-{m} ÷ softmax" for m in MIXERS), "softmax max ÷ min"],
        list(map(table_row, results)),
    )
    draw(results, path.with_suffix(".png"))


if __name__ == "__main__":
    main()
