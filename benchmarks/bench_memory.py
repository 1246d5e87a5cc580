# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Peak memory against length, of an encoder of base width: inference and training (with gradient checkpointing) in the
chunk and the rnn kernel, `encode_long`, and BERT beside them; and a million tokens.

    python benchmarks/bench_memory.py                    # to 131,072 tokens: about an hour on two cores
    python benchmarks/bench_memory.py --quick            # to 8,192 tokens: minutes
    python benchmarks/bench_memory.py --series "LION-S rnn"    # added to the results of earlier runs
    python benchmarks/bench_memory.py --million segments # 12 layers, 1,048,576 tokens, by encode_long: 5 GB
    python benchmarks/bench_memory.py --million forward  # the same in one forward pass: 21 GB; compares the two

Every point is the peak resident memory of a process of its own. Writes a table, a JSON file and a plot to
`--output_dir`.
"""

import argparse
import json
import time
from pathlib import Path

import torch
from measure import peak_memory, peak_memory_in_new_process, print_peak_memory, print_table, read_json, write_json
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertModel

from modeling_lion import LionConfig, LionModel


MILLION = 2**20
# BERT's time is quadratic in the length, and the shape of its curve shows early.
LONGEST_BERT = 16384
SERIES = ("LION-S chunk", "LION-S rnn", "LION-S segments", "BERT sdpa")
MODES = ("inference", "training")


def make_model(series: str, layers: int, length: int) -> torch.nn.Module:
    torch.manual_seed(0)
    name, kernel = series.split()
    if name == "BERT":
        config = BertConfig(num_hidden_layers=layers, max_position_embeddings=length)
        return BertModel._from_config(config, attn_implementation=kernel, add_pooling_layer=False)
    config = LionConfig(mixer_type="selective", num_hidden_layers=layers)
    kernel = "chunk" if kernel == "segments" else kernel
    return LionModel._from_config(config, attn_implementation=kernel, add_pooling_layer=False)


def random_text(length: int) -> torch.Tensor:
    return torch.randint(5, 30000, (1, length), generator=torch.Generator().manual_seed(length))


def run_once(series: str, mode: str, length: int, layers: int) -> None:
    """One forward pass without gradients, or one training step with gradient checkpointing."""
    model = make_model(series, layers, length).train(mode == "training")
    if mode == "training":
        model.gradient_checkpointing_enable()
        model(random_text(length)).last_hidden_state.square().mean().backward()
        return
    with torch.no_grad():
        if series.endswith("segments"):
            model.encode_long(random_text(length), show_progress=False)
        else:
            model(random_text(length))


def measure(arguments: argparse.Namespace, path: Path) -> list[dict]:
    """Results, those of earlier runs included; written after each, since a long run may be cut short."""
    results = read_json(path) or []
    for series in arguments.series:
        for mode in MODES:
            if series.endswith("segments") and mode == "training":
                continue
            for layers, lengths in ((2, arguments.lengths), (1, arguments.lengths[-1:])):
                for length in lengths:
                    if series.startswith("BERT") and length > LONGEST_BERT:
                        continue
                    one = ("--threads", str(arguments.threads), "--one", series, mode, str(length), str(layers))
                    memory = peak_memory_in_new_process(__file__, *one)
                    case = {"series": series, "mode": mode, "layers": layers, "length": length}
                    results = [r for r in results if not case.items() <= r.items()] + [case | {"bytes": memory}]
                    write_json(path, results)
                    print(f"{series}, {mode}, {layers} layers, {length} tokens: {memory / 2**20:.0f} MiB", flush=True)
    return results


def table_rows(results: list[dict]) -> list[list[str]]:
    """Bytes a token between the shortest and the longest input, with two layers; and what one more layer adds."""
    rows = []
    for series in SERIES:
        for mode in MODES:
            of_length = {
                layers: {r["length"]: r["bytes"] for r in results if (r["series"], r["mode"], r["layers"]) == case}
                for layers in (1, 2)
                for case in [(series, mode, layers)]
            }
            two = of_length[2]
            if len(two) < 2:
                continue
            first, last = min(two), max(two)
            slopes = [(two[b] - two[a]) / (b - a) for a, b in zip(sorted(two)[:-1], sorted(two)[1:], strict=True)]
            layer = f"{(two[last] - of_length[1][last]) / last:,.0f}" if last in of_length[1] else ""
            total = (two[last] - two[first]) / (last - first)
            spread = f"{min(slopes):,.0f} to {max(slopes):,.0f}"
            rows.append([series, mode, f"{last:,}", f"{two[last] / 2**20:,.0f}", f"{total:,.0f}", spread, layer])
    return rows


def draw(results: list[dict], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.5), sharey=True, layout="constrained")
    for axis, mode in zip(axes, MODES, strict=True):
        for series in SERIES:
            points = sorted(
                (r["length"], r["bytes"] / 2**20)
                for r in results
                if (r["series"], r["mode"], r["layers"]) == (series, mode, 2)
            )
            if points:
                axis.loglog(*zip(*points, strict=True), "o--" if series.startswith("BERT") else "o-", label=series)
        axis.set(title=mode + (" (gradient checkpointing)" if mode == "training" else ""), xlabel="length in tokens")
        lengths = sorted({r["length"] for r in results})
        axis.set_xticks(lengths, [f"{n // 1024}k" for n in lengths])
        axis.minorticks_off()
        if axis.lines:  # no training in the series that was asked for
            axis.legend()
    axes[0].set_ylabel("peak memory of the process, MiB (2 layers)")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def encode_million(how: str, output_dir: Path) -> None:
    """Encode a million tokens with a base-size LION-S; compare with the other way if that has been run."""
    model = make_model("LION-S chunk", 12, MILLION).eval()
    # The MLP is the widest part of a layer: in one forward pass, it takes the sequence by pieces.
    for layer in model.layers:
        layer.chunk_size_feed_forward = 2**13
    with torch.no_grad():
        started, cpu = time.time(), time.process_time()
        text = random_text(MILLION)
        hidden_states = (model.encode_long(text) if how == "segments" else model(text)).last_hidden_state
    result = {
        "tokens": MILLION,
        "parameters": model.num_parameters(),
        "peak_memory_bytes": peak_memory(),
        "seconds": time.time() - started,
        "cpu_seconds": time.process_time() - cpu,
        "is_finite": bool(hidden_states.isfinite().all()),
        "rms": hidden_states.square().mean().sqrt().item(),
    }
    output_dir.mkdir(parents=True, exist_ok=True)
    other = output_dir / f"million_{'forward' if how == 'segments' else 'segments'}.safetensors"
    if other.exists():
        pieces = zip(load_file(other)["hidden_states"].split(2**15, 1), hidden_states.split(2**15, 1), strict=True)
        result["max_difference"] = max((a - b).abs().max().item() for a, b in pieces)
    else:
        save_file({"hidden_states": hidden_states}, output_dir / f"million_{how}.safetensors")
    write_json(output_dir / f"million_{how}.json", result)
    print(json.dumps(result, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="lengths to 8,192 only")
    parser.add_argument("--lengths", type=int, nargs="+", default=[2**11, 2**13, 2**15, 2**17])
    parser.add_argument("--series", nargs="+", choices=SERIES, default=SERIES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--million", choices=["segments", "forward"])
    parser.add_argument("--output_dir", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--one", nargs=4, metavar=("SERIES", "MODE", "LENGTH", "LAYERS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.one:
        series, mode, length, layers = arguments.one
        run_once(series, mode, int(length), int(layers))
        return print_peak_memory()
    if arguments.million:
        return encode_million(arguments.million, arguments.output_dir)
    if arguments.quick:
        arguments.lengths = [n for n in arguments.lengths if n <= 2**13]
    path = arguments.output_dir / "memory.json"
    results = measure(arguments, path)
    header = [
        "encoder",
        "pass",
        "tokens",
        "MiB",
        "bytes a token",
        "between lengths",
        "bytes a token and further layer",
    ]
    print_table(header, table_rows(results))
    draw(results, path.with_suffix(".png"))


if __name__ == "__main__":
    main()
