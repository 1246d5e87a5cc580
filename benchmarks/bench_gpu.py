# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
On an NVIDIA GPU: the Triton kernels against softmax attention and against flash-linear-attention, and whole training
steps against BERT, ModernBERT and ViT.

    python benchmarks/bench_gpu.py                       # everything
    python benchmarks/bench_gpu.py --minutes 10          # what fits into ten minutes, the most telling first
    python benchmarks/bench_gpu.py --dry_run             # what would be measured; needs no GPU

Kernels: bfloat16, batch 8, 12 heads of 64. Every function is first compared with float64, gradients included, then
captured in a CUDA graph, so that the time of Python does not count; the functions take turns, and medians are given.
Softmax attention is `scaled_dot_product_attention` with the fastest of its backends. flash-linear-attention
(`pip install ".[gpu]"`) has no bidirectional kernel: it runs once per direction, and is compared without denominators.
Shares of the roofline are of what this GPU reaches in a large matrix product and a large copy, in the same run.

Models: one training step (forward, backward, AdamW), compiled, bfloat16 autocast, at the shapes of the published
measurements: texts of 128 tokens, images of 224 x 224, 256 of them.

Writes JSON after every row, and tables and plots at the end, to `--output_dir`.
"""

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from bench_models import PEERS, make_model, names
from measure import print_table, summary, write_json
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import pad, scaled_dot_product_attention

from modeling_lion.feature_map import plain_silu_norm, silu_norm
from modeling_lion.kernel_auto import auto_attention
from modeling_lion.kernel_naive import naive_attention
from modeling_lion.triton_config import CONFIGS, MEASURED
from modeling_lion.triton_plan import architecture


HEADS, HEAD_DIM = 12, 64
MIXERS = ("LIT", "D", "S")
PASSES = ("forward", "forward+backward")
# Those that say most first: a run may have to stop early.
LENGTHS = (1024, 512, 128, 4096, 197, 16384, 65536)
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
MAPS = {"feature map": silu_norm, "plain feature map": plain_silu_norm}
MODEL_BATCH, MODEL_SIZES = 256, {"text": 128, "image": 224}
# Published time of a training step against the softmax model's (SPEC §10).
PUBLISHED = {"image": {"LIT": 0.73, "D": 1.39, "S": 1.46}, "text": {"LIT": 0.95, "D": 1.10, "S": 1.32}}


def make_inputs(mixer: str, batch: int, length: int, heads: int = HEADS, device: str = "cuda") -> list[Tensor]:
    """Query, key and value in the model's layout, bfloat16, and the log decay, half-lives from 1 to 1000 tokens."""
    generator = torch.Generator(device).manual_seed(length)
    rand = lambda *shape: torch.rand(*shape, generator=generator, device=device)
    query, key, value = (rand(batch, length, heads, HEAD_DIM).bfloat16().transpose(1, 2) for _ in range(3))
    inputs = [query, key, value - 0.5]
    if mixer != "LIT":
        inputs.append(-(10.0 ** (-3 * rand(*((heads,) if mixer == "D" else (batch, heads, length))))))
    return inputs


def lion(query, key, value, *log_decay, normalization="sum"):
    return auto_attention(query, key, value, *log_decay, normalization=normalization)[0]


def softmax(query, key, value, *log_decay, backend):
    with sdpa_kernel(backend):
        return scaled_dot_product_attention(query, key, value)


def two_passes(query, key, value, *log_decay):
    """flash-linear-attention in both directions, less the tokens themselves, which both have; no denominators."""
    from fla.ops.simple_gla import chunk_simple_gla

    query, key, value = (x.transpose(1, 2) for x in (query, key, value))
    right = left = None
    if log_decay:  # the source token's decay: a step later to the right, a step earlier to the left
        decay = (
            log_decay[0].view(1, -1, 1).expand(query.shape[0], -1, query.shape[1])
            if log_decay[0].dim() == 1
            else log_decay[0]
        )
        decay = decay.transpose(1, 2)
        right, left = pad(decay, (0, 0, 1, 0))[:, :-1], pad(decay, (0, 0, 0, 1))[:, 1:].flip(1)
    scale = HEAD_DIM**-0.5
    forward, _ = chunk_simple_gla(query, key, value, right, scale=scale)
    backward, _ = chunk_simple_gla(query.flip(1), key.flip(1), value.flip(1), left, scale=scale)
    own = (query * key).sum(-1, keepdim=True) * scale * value
    return (forward + backward.flip(1) - own).transpose(1, 2)


def has_fla() -> bool:
    try:
        import fla.ops.simple_gla  # noqa: F401
    except ImportError:
        return False
    return True


def contestants(mixer: str, length: int) -> dict[str, Callable]:
    functions = {"lion": lion, "lion without division": partial(lion, normalization="none")}
    if has_fla():
        functions["two passes"] = two_passes
    return functions


def run(function: Callable, inputs: list[Tensor], direction: str) -> list[Tensor]:
    """The output, and the gradients if asked for."""
    if direction == "forward":
        with torch.no_grad():
            return [function(*inputs)]
    inputs = [x.detach().requires_grad_() for x in inputs]
    output = function(*inputs)
    return [output, *torch.autograd.grad(output, inputs, torch.ones_like(output), allow_unused=True)]


def check(function: Callable, mixer: str, length: int, normalization: str, device: str = "cuda") -> dict[str, float]:
    """Largest errors against float64, relative to the largest number; an AssertionError if one is above 2 %."""
    inputs = make_inputs(mixer, 1, min(length, 2048), 2, device)
    wide = [x.double() for x in inputs]
    exact = run(lambda *xs: naive_attention(*xs, normalization=normalization)[0], wide, PASSES[1])
    errors = {}
    for name, result, right in zip(
        ("output", "query", "key", "value", "decay"), run(function, inputs, PASSES[1]), exact, strict=False
    ):
        errors[name] = float((result.double() - right).abs().max() / right.abs().max())
    assert max(errors.values()) < 0.02, f"{mixer}, {length} tokens: {errors}"
    return errors


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


def interleaved(functions: dict[str, Callable[[], object]], seconds: float) -> dict[str, list[float]]:
    """GPU seconds per call; the functions take turns. As many rounds as fit, from 5 to 50."""
    times = {name: [] for name in functions}
    stop = time.monotonic() + seconds
    for rounds in range(50):
        if rounds >= 5 and time.monotonic() > stop:
            break
        for name, function in functions.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            function()
            end.record()
            end.synchronize()
            times[name].append(start.elapsed_time(end) / 1e3)
    return times


def peaks() -> dict[str, float]:
    """FLOP/s of a large matrix product and bytes/s of a large copy on this GPU."""
    a, b = torch.randn(2, 8192, 8192, device="cuda", dtype=torch.bfloat16)
    source = torch.empty(2**30, device="cuda", dtype=torch.uint8)
    copy = torch.empty_like(source)
    times = interleaved({"product": lambda: a @ b, "copy": lambda: copy.copy_(source)}, 2)
    medians = {name: statistics.median(values[3:]) for name, values in times.items()}
    return {"flops": 2 * 8192**3 / medians["product"], "bytes": 2 * 2**30 / medians["copy"]}


def work(mixer: str, batch: int, length: int, direction: str, chunk: int) -> dict[str, float]:
    """Operations of the matrix products that our kernels need, and the bytes that have to move at least."""
    tokens = batch * HEADS * length
    if mixer == "LIT":
        flops = 4 * HEAD_DIM**2
        factor = 3.0
    else:
        inside = min(length, chunk)
        between = 8 * HEAD_DIM**2 if length > chunk else 0
        flops = 4 * inside * HEAD_DIM + between
        factor = 1 + (14 * inside * HEAD_DIM + 2 * between) / flops
    numbers = 4 * HEAD_DIM if direction == "forward" else (4 + 8) * HEAD_DIM
    return {
        "flops": tokens * flops * (1 if direction == "forward" else factor),
        "bytes": tokens * numbers * 2.0,
    }


def kernel_rows(lengths: list[int], batch: int, deadline: float, peak: dict, report: Callable[[dict], None]) -> None:
    """Measure all kernels, length by length, and report a row per length, pass and mixer."""
    config = CONFIGS[architecture(torch.device("cuda", torch.cuda.current_device())), 16, HEAD_DIM]
    for length, direction in itertools.product(lengths, PASSES):
        functions = {}
        inputs = {mixer: make_inputs(mixer, batch, length) for mixer in MIXERS}
        peers = {name: (partial(softmax, backend=backend), inputs["LIT"]) for name, backend in BACKENDS.items()}
        peers |= {name: (function, inputs["LIT"][:1]) for name, function in MAPS.items()}
        for name, (function, tensors) in peers.items():
            try:
                functions[name] = captured(partial(run, function, tensors, direction))
            except RuntimeError as error:
                report({"length": length, "pass": direction, "left_out": name, "why": str(error)[:300]})
        errors = {}
        for mixer in MIXERS:
            for name, function in contestants(mixer, length).items():
                try:
                    normalization = "sum" if name == "lion" else "none"
                    errors[f"{mixer} {name}"] = check(function, mixer, length, normalization)
                    functions[f"{mixer} {name}"] = captured(partial(run, function, inputs[mixer], direction))
                except (RuntimeError, AssertionError) as error:
                    why = f"{type(error).__name__}: {error}"[:500]
                    report({"length": length, "pass": direction, "left_out": f"{mixer} {name}", "why": why})
        times = {name: summary(values) for name, values in interleaved(functions, 10).items()}
        best = min((name for name in BACKENDS if name in times), key=lambda name: times[name]["median"], default=None)
        row = {"length": length, "batch": batch, "pass": direction, "softmax": best, "times": times, "errors": errors}
        row["work"] = {}
        for mixer in MIXERS:
            if f"{mixer} lion" in times:
                needed = work(mixer, batch, length, direction, config["chunk"])
                seconds = times[f"{mixer} lion"]["median"]
                least = max(needed[kind] / peak[kind] for kind in ("flops", "bytes"))
                row["work"][mixer] = {
                    "tflops_per_second": needed["flops"] / seconds / 1e12,
                    "gigabytes_per_second": needed["bytes"] / seconds / 1e9,
                    "share_of_roofline": least / seconds,
                }
        report(row)
        del functions, inputs
        torch.cuda.empty_cache()
        if time.monotonic() > deadline:
            return


def training_step(name: str, modality: str, batch: int) -> Callable[[], None]:
    """A compiled training step of a model of bench_models.py."""
    size = MODEL_SIZES[modality]
    model = make_model(name, 12, size).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    if modality == "text":
        ids = torch.randint(5, 30000, (batch, size), device="cuda")
        inputs = {"input_ids": ids, "labels": ids}
    else:
        labels = torch.randint(0, 1000, (batch,), device="cuda")
        inputs = {"pixel_values": torch.randn(batch, 3, size, size, device="cuda"), "labels": labels}
    compiled = torch.compile(model)

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = compiled(**inputs).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def model_rows(batch: int, deadline: float, report: Callable[[dict], None]) -> None:
    """Each model beside its softmax twin: two in memory at a time."""
    for modality in ("image", "text"):
        twin, *others = names(modality)
        for name in others:
            if time.monotonic() > deadline:
                return
            steps = {n: training_step(n, modality, batch) for n in (twin, name)}
            for step in steps.values():
                for _ in range(3):
                    step()
            times = {n: summary(values) for n, values in interleaved(steps, 15).items()}
            ratio = times[name]["median"] / times[twin]["median"]
            report({"modality": modality, "model": name, "twin": twin, "batch": batch, "ratio": ratio, "times": times})
            del steps
            torch.compiler.reset()
            torch.cuda.empty_cache()


def ratio(row: dict, name: str) -> float | None:
    """Time of a function ÷ time of the best softmax attention; None if one was left out."""
    if row["softmax"] is None or name not in row["times"]:
        return None
    return row["times"][name]["median"] / row["times"][row["softmax"]]["median"]


def number(value: float | None, form: str = ".3f") -> str:
    return "–" if value is None else format(value, form)


def kernel_table(rows: list[dict]) -> list[list[str]]:
    table = []
    for row in sorted(rows, key=lambda r: (r["length"], r["pass"])):
        cells = [str(row["length"]), row["pass"], f"{row['softmax']}"]
        for mixer in MIXERS:
            other = row["times"].get(f"{mixer} two passes")
            ours = row["times"].get(f"{mixer} lion without division")
            against = ours["median"] / other["median"] if ours and other else None
            cells += [number(ratio(row, f"{mixer} lion")), number(against)]
            cells.append(number(row["work"].get(mixer, {}).get("share_of_roofline"), ".0%"))
        table.append(cells)
    return table


def draw(rows: list[dict], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.5), sharey=True, layout="constrained")
    for axis, direction in zip(axes, PASSES, strict=True):
        chosen = sorted((r for r in rows if r["pass"] == direction), key=lambda r: r["length"])
        lengths = [r["length"] for r in chosen]
        axis.axhline(1, color="black", linestyle="--")
        for mixer, color in zip(MIXERS, ("tab:blue", "tab:orange", "tab:green"), strict=True):
            for name, style in (("lion", "o-"), ("two passes", ":")):
                values = [ratio(r, f"{mixer} {name}") for r in chosen]
                if any(v is not None for v in values):
                    label = f"LION-{mixer}" if name == "lion" else f"{mixer}, two passes of flash-linear-attention"
                    axis.loglog(lengths, [v or float("nan") for v in values], style, color=color, label=label)
        axis.set(title=direction, xlabel="length in tokens", ylabel="time ÷ time of softmax attention")
        axis.set_xticks(lengths, [str(n) for n in lengths])
        axis.minorticks_off()
    axes[0].legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=["kernels", "models"], default=["kernels", "models"])
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS))
    parser.add_argument("--batch_size", type=int, default=8, help="of the kernels")
    parser.add_argument("--model_batch_size", type=int, default=MODEL_BATCH)
    parser.add_argument("--minutes", type=float, default=120, help="start nothing new after")
    parser.add_argument("--dry_run", action="store_true", help="only say what would be measured")
    parser.add_argument("--output_dir", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    if arguments.dry_run:
        for length, direction in itertools.product(arguments.lengths, PASSES):
            functions = [
                *BACKENDS,
                *MAPS,
                *(f"{mixer} {name}" for mixer in MIXERS for name in contestants(mixer, length)),
            ]
            print(f"kernels, {length} tokens, {direction}: {', '.join(functions)}")
        for modality in PEERS:
            twin, *others = names(modality)
            print(f"training steps, {modality}: {', '.join(others)}, each beside {twin}")
        return
    if not torch.cuda.is_available():
        raise SystemExit("There is no GPU; --dry_run needs none.")

    deadline = time.monotonic() + 60 * arguments.minutes
    peak = peaks()
    results = {
        "gpu": torch.cuda.get_device_name(),
        "triton": __import__("triton").__version__,
        "measured_configurations": [[*key, name] for key, name in MEASURED.items()],
        "peaks": peak,
        "kernels": [],
        "left_out": [],
        "models": [],
    }
    path = arguments.output_dir / "gpu.json"

    def report(part: str, row: dict) -> None:
        results["left_out" if "left_out" in row else part].append(row)
        write_json(path, results)
        print(json.dumps({k: v for k, v in row.items() if k not in ("times", "errors")}), flush=True)

    if "kernels" in arguments.parts:
        kernel_rows(arguments.lengths, arguments.batch_size, deadline, peak, partial(report, "kernels"))
        header = ["length", "pass", "softmax"]
        header += [f"LION-{m} ÷ {other}" for m in MIXERS for other in ("softmax", "two passes", "roofline")]
        print_table(header, kernel_table(results["kernels"]))
        draw(results["kernels"], path.with_name("gpu_kernels.png"))
    if "models" in arguments.parts:
        model_rows(arguments.model_batch_size, deadline, partial(report, "models"))
        rows = []
        for row in results["models"]:
            published = PUBLISHED[row["modality"]].get(row["model"].removeprefix("LION-").split()[0])
            rows.append(
                [row["model"], row["modality"], row["twin"], number(row["ratio"], ".2f"), number(published, ".2f")]
            )
        print_table(["model", "input", "softmax twin", "time ÷ twin's", "published"], rows)
    print(f"Written to {path}.")


if __name__ == "__main__":
    main()
