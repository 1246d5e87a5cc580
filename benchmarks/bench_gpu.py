# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
On an NVIDIA GPU: the Triton kernels against softmax attention and against flash-linear-attention, and whole training
steps against BERT, ModernBERT and ViT.

    python benchmarks/bench_gpu.py                       # everything
    python benchmarks/bench_gpu.py --minutes 10          # what fits into ten minutes, the most telling first

Kernels: bfloat16, batch 8, 12 heads of 64. Every function is first compared with float64, gradients included, then
captured in a CUDA graph, so that the time of Python does not count; the functions take turns, and medians are given.
Softmax attention is `scaled_dot_product_attention` with the faster of its backends. flash-linear-attention
(`pip install ".[gpu]"`) has no bidirectional kernel: it runs once per direction, and is compared without denominators.

Models: one training step (forward, backward, AdamW), compiled, bfloat16 autocast, at the shapes of the published
measurements: texts of 128 tokens, images of 224 x 224, 256 of them; each beside a softmax model.

Adds a row per function to `gpu.csv` in `--output_dir`, and prints the ratios at the end.
"""

import argparse
import itertools
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from bench_models import make_model, names
from measure import (
    LIONS,
    PASSES,
    append_rows,
    attention_inputs,
    interleaved,
    lion,
    print_table,
    run_attention,
    summary,
)
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import pad, scaled_dot_product_attention

from modeling_lion.attention_reference import reference_attention
from modeling_lion.feature_map import plain_silu_norm, silu_norm
from modeling_lion.triton_config import MEASURED
from modeling_lion.triton_plan import architecture


DEVICE = "cuda"
HEADS, HEAD_DIM = 12, 64
# Those that say most first: a run may have to stop early.
LENGTHS = (1024, 512, 128, 4096, 197, 16384, 65536)
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
MAPS = {"feature map": silu_norm, "plain feature map": plain_silu_norm}
MODEL_SIZES = {"text": 128, "image": 224}


def make_inputs(mixer: str, batch: int, length: int, heads: int = HEADS) -> list[Tensor]:
    return attention_inputs(mixer, batch, length, heads, HEAD_DIM, torch.bfloat16, DEVICE)


def softmax(query, key, value, *log_decay, backend):
    with sdpa_kernel(backend):
        return scaled_dot_product_attention(query, key, value)


def two_passes(query, key, value, *log_decay):
    """flash-linear-attention in both directions, less the tokens themselves, which both have; no denominators."""
    from fla.ops.simple_gla import chunk_simple_gla

    query, key, value = (x.transpose(1, 2) for x in (query, key, value))
    forward_decay = backward_decay = None
    if log_decay:  # by the token that is left behind: a step later in the order of reading
        decay = log_decay[0] if log_decay[0].dim() == 3 else log_decay[0][None, :, None]
        decay = decay.expand(query.shape[0], -1, query.shape[1]).transpose(1, 2)
        forward_decay, backward_decay = pad(decay, (0, 0, 1, 0))[:, :-1], pad(decay, (0, 0, 0, 1))[:, 1:].flip(1)
    scale = HEAD_DIM**-0.5
    forward, _ = chunk_simple_gla(query, key, value, forward_decay, scale=scale)
    backward, _ = chunk_simple_gla(query.flip(1), key.flip(1), value.flip(1), backward_decay, scale=scale)
    own = (query * key).sum(-1, keepdim=True) * scale * value
    return (forward + backward.flip(1) - own).transpose(1, 2)


def contestants(mixer: str) -> dict[str, Callable]:
    functions = {f"{mixer} lion": lion, f"{mixer} lion without division": partial(lion, normalization="none")}
    try:
        import fla.ops.simple_gla  # noqa: F401
    except ImportError:
        return functions
    return functions | {f"{mixer} two passes": two_passes}


def check(function: Callable, mixer: str, length: int, normalization: str) -> float:
    """The largest error against float64, relative to the largest number; an AssertionError if it is above 2 %."""
    inputs = make_inputs(mixer, 1, min(length, 2048), 2)
    wide = [x.double() for x in inputs]
    exact = run_attention(partial(lion, normalization=normalization, attention=reference_attention), wide, PASSES[1])
    results = run_attention(function, inputs, PASSES[1])
    errors = [float((x.double() - y).abs().max() / y.abs().max()) for x, y in zip(results, exact, strict=True)]
    assert max(errors) < 0.02, f"{mixer}, {length} tokens: {errors} of the output and the gradients"
    return max(errors)


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


def gpu_seconds(function: Callable[[], object]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    function()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def kernel_rows(lengths: list[int], batch: int, deadline: float, report: Callable[[dict], None]) -> None:
    """Measure all functions, length by length and pass by pass, and report a row for each."""
    for length, direction in itertools.product(lengths, PASSES):
        inputs = {mixer: make_inputs(mixer, batch, length) for mixer in LIONS}
        functions = {
            name: (partial(softmax, backend=backend), inputs["LION-LIT"]) for name, backend in BACKENDS.items()
        }
        functions |= {name: (function, inputs["LION-LIT"][:1]) for name, function in MAPS.items()}
        for mixer in LIONS:
            functions |= {name: (function, inputs[mixer]) for name, function in contestants(mixer).items()}
        graphs, errors, notes = {}, {}, {}
        for name, (function, tensors) in functions.items():
            try:
                if name.startswith(LIONS):
                    normalization = "sum" if name.endswith("lion") else "none"
                    errors[name] = check(function, name.split()[0], length, normalization)
                graphs[name] = captured(partial(run_attention, function, tensors, direction))
            except (RuntimeError, AssertionError) as error:  # too little memory, no such backend
                notes[name] = f"left out, {type(error).__name__}: {error}"[:300]
        times = {name: summary(values) for name, values in interleaved(graphs, 50, gpu_seconds, 10).items()}
        softmax_seconds = min((times[name]["median"] for name in BACKENDS if name in times), default=None)
        for name in functions:
            own = times.get(name, dict.fromkeys(("median", "min", "max")))
            ratio = own["median"] / softmax_seconds if own["median"] and softmax_seconds else None
            report(
                {"part": "kernels", "pass": direction, "length": length, "batch": batch, "name": name, "ratio": ratio}
                | {"error": errors.get(name), "note": notes.get(name), **own}
            )
        del functions, graphs, inputs
        torch.cuda.empty_cache()
        if time.monotonic() > deadline:
            return


def training_step(name: str, modality: str, batch: int) -> Callable[[], None]:
    """A compiled training step of a model of bench_models.py."""
    size = MODEL_SIZES[modality]
    model = make_model(name, 12, size).to(DEVICE).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    if modality == "text":
        ids = torch.randint(5, 30000, (batch, size), device=DEVICE)
        inputs = {"input_ids": ids, "labels": ids}
    else:
        labels = torch.randint(0, 1000, (batch,), device=DEVICE)
        inputs = {"pixel_values": torch.randn(batch, 3, size, size, device=DEVICE), "labels": labels}
    compiled = torch.compile(model)

    def step():
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = compiled(**inputs).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def model_rows(batch: int, deadline: float, report: Callable[[dict], None]) -> None:
    """Each model beside its softmax twin: two in memory at a time."""
    pairs = [(modality, name) for modality in ("image", "text") for name in names(modality)[1:]]
    for modality, name in sorted(pairs, key=lambda pair: pair[1].split()[0]):  # both modalities of a mixer in turn
        if time.monotonic() > deadline:
            return
        twin = names(modality)[0]
        steps = {n: training_step(n, modality, batch) for n in (twin, name)}
        for step in steps.values():
            for _ in range(3):
                step()
        times = {n: summary(values) for n, values in interleaved(steps, 50, gpu_seconds, 15).items()}
        ratio = times[name]["median"] / times[twin]["median"]
        row = {"part": "models", "pass": "training step", "length": MODEL_SIZES[modality], "batch": batch}
        row |= {"name": name, "ratio": ratio, "error": None, "note": f"beside {twin}"}
        report(row | times[name])
        del steps
        torch.compiler.reset()
        torch.cuda.empty_cache()


def print_ratios(rows: list[dict]) -> None:
    """Time ÷ softmax attention's or the softmax model's: a line per length and pass, a column per function."""
    for part in ("kernels", "models"):
        lines, columns = {}, {}
        for row in (row for row in rows if row["part"] == part):
            columns[row["name"]] = "–"
            cell = "–" if row["ratio"] is None else f"{row['ratio']:.3f}"
            lines.setdefault((row["length"], row["pass"]), {})[row["name"]] = cell
        table = [[str(length), name, *(columns | cells).values()] for (length, name), cells in sorted(lines.items())]
        print_table(["length", "pass", *columns], table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=["kernels", "models"], default=["kernels", "models"])
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS))
    parser.add_argument("--batch_size", type=int, default=8, help="of the kernels")
    parser.add_argument("--model_batch_size", type=int, default=256)
    parser.add_argument("--minutes", type=float, default=120, help="start nothing new after")
    parser.add_argument("--output_dir", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("There is no GPU.")
    deadline = time.monotonic() + 60 * arguments.minutes
    gpu = torch.cuda.get_device_name()
    about = {"gpu": gpu, "tiles_measured_on": MEASURED.get((architecture(torch.device("cuda", 0)), 16, HEAD_DIM))}
    rows = []

    def report(row: dict) -> None:
        rows.append(row)
        append_rows(arguments.output_dir / "gpu.csv", [row | about])
        print(*row.values(), flush=True)

    if "kernels" in arguments.parts:
        kernel_rows(arguments.lengths, arguments.batch_size, deadline, report)
    if "models" in arguments.parts:
        model_rows(arguments.model_batch_size, deadline, report)
    print_ratios(rows)


if __name__ == "__main__":
    main()
