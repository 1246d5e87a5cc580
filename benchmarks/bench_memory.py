# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Peak memory against length, of an encoder of base width: inference and training (with gradient checkpointing) in the
chunk and the rnn kernel, `encode_long`, and BERT beside them; and a million tokens.

    python benchmarks/bench_memory.py                    # to 131,072 tokens: about an hour on two cores
    python benchmarks/bench_memory.py --quick            # to 8,192 tokens: minutes
    python benchmarks/bench_memory.py --series "LION rnn"
    python benchmarks/bench_memory.py --million segments # 12 layers, 1,048,576 tokens, by encode_long: 5 GB
    python benchmarks/bench_memory.py --million forward  # the same in one forward pass: 21 GB; compares the two
    python benchmarks/bench_memory.py --million segments --million_model hybrid    # 3 layers of 256, two with a window

Every point is the peak resident memory of a process of its own, also for a length of 0: a process that has made the
model and read nothing. Rows go to memory.csv and million.csv; a case that this machine has there, with the same
versions, is measured again only with --again.
"""

import argparse
import itertools
import time
from pathlib import Path

import torch
from measure import append_rows, in_new_process, is_measured, make_parser, peak_memory
from report import write_pages
from safetensors.torch import load_file, save_file
from transformers import AutoModel, BertConfig

from configuration_lion import LionConfig, lion_preset, published_fields
from modeling_lion import LionModel


MILLION = 2**20
# BERT's time is quadratic in the length, and the shape of its curve shows early.
LONGEST_BERT = 16384
SERIES = ("LION chunk", "LION rnn", "LION segments", "BERT sdpa")
MODES = ("inference", "training")
MILLION_MODELS = ("LION-S", "hybrid")


def make_model(series: str, layers: int, length: int) -> torch.nn.Module:
    torch.manual_seed(0)
    name, kernel = series.split()
    if name == "BERT":
        # With its usual dropout of attention weights, training on a CPU keeps the matrix of these.
        sizes = {"num_hidden_layers": layers, "max_position_embeddings": max(length, 512)}
        config = BertConfig(attention_probs_dropout_prob=0.0, **sizes)
        return AutoModel.from_config(config, attn_implementation=kernel, add_pooling_layer=False)
    if name == "LION":
        config = lion_preset("lion-text-base", num_hidden_layers=layers)
    else:  # LION-S as published
        config = LionConfig(**published_fields("text"), num_hidden_layers=layers)
    kernel = "chunk" if kernel == "segments" else kernel
    return AutoModel.from_config(config, attn_implementation=kernel, add_pooling_layer=False)


def read_in_one_pass(model: LionModel) -> None:
    """Long texts, too: a model with hooks does not read in segments by itself."""
    model.embeddings.register_forward_hook(lambda *args: None)


def random_text(length: int) -> torch.Tensor:
    return torch.randint(5, 30000, (1, length), generator=torch.Generator().manual_seed(length))


def peak_memory_of(series: str, mode: str, length: int, layers: int) -> int:
    """Peak bytes of one forward pass without gradients, or of one training step with gradient checkpointing."""
    model = make_model(series, layers, length).train(mode == "training")
    if mode == "training":
        model.gradient_checkpointing_enable()
    if series in ("LION chunk", "LION rnn"):
        read_in_one_pass(model)
    with torch.set_grad_enabled(mode == "training"):
        if length and series.endswith("segments"):
            model.encode_long(random_text(length), show_progress=False)
        elif length:
            hidden_states = model(random_text(length)).last_hidden_state
            if mode == "training":
                hidden_states.square().mean().backward()
    return peak_memory()


def measure(arguments: argparse.Namespace) -> None:
    path = arguments.output_dir / "memory.csv"
    for series, mode in itertools.product(arguments.series, MODES):
        if series.endswith("segments") and mode == "training":
            continue
        lengths = [n for n in arguments.lengths if n <= LONGEST_BERT or not series.startswith("BERT")]
        for layers, length in [(2, 0), *((2, n) for n in lengths), (1, lengths[-1])]:
            case = {"series": series, "mode": mode, "layers": layers, "length": length}
            if arguments.again or not is_measured(path, [case]):
                memory = in_new_process(peak_memory_of, series, mode, length, layers)
                append_rows(path, [case | {"peak_memory_bytes": memory}])  # a long run may be cut short
                print(f"{series}, {mode}, {layers} layers, {length} tokens: {memory / 2**20:.0f} MiB", flush=True)


def encode_million(how: str, name: str, output_dir: Path) -> None:
    """Encode a million tokens with one of `MILLION_MODELS`; compare with the other way if that has been run."""
    if name == "hybrid":
        sizes = {"num_hidden_layers": 3, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 384}
        types = ["linear_attention", "sliding_attention", "sliding_attention"]
        rope = {"linear_attention": None, "sliding_attention": {"rope_theta": 10000.0}}
        torch.manual_seed(0)
        config = lion_preset("lion-text-base", layer_types=types, rope_parameters=rope, **sizes)
        model = LionModel(config, add_pooling_layer=False).eval()
    else:
        model = make_model("LION-S chunk", 12, MILLION).eval()
    # The MLP is the widest part of a layer: in one forward pass, it takes the sequence by pieces.
    for layer in model.layers:
        layer.chunk_size_feed_forward = 2**13
    if how == "forward":
        read_in_one_pass(model)
    with torch.no_grad():
        started, cpu = time.time(), time.process_time()
        text = random_text(MILLION)
        hidden_states = (model.encode_long(text) if how == "segments" else model(text)).last_hidden_state
    assert hidden_states.isfinite().all()
    result = {
        "how": how,
        "model": name,
        "layers": model.config.num_hidden_layers,
        "tokens": MILLION,
        "parameters": model.num_parameters(),
        "peak_memory_bytes": peak_memory(),
        "seconds": time.time() - started,
        "cpu_seconds": time.process_time() - cpu,
        "rms": hidden_states.square().mean().sqrt().item(),
        "max_difference": None,
    }
    output_dir.mkdir(parents=True, exist_ok=True)
    other = output_dir / f"million_{name}_{'forward' if how == 'segments' else 'segments'}.safetensors"
    if other.exists():
        pieces = zip(load_file(other)["hidden_states"].split(2**15, 1), hidden_states.split(2**15, 1), strict=True)
        result["max_difference"] = max((a - b).abs().max().item() for a, b in pieces)
    else:
        save_file({"hidden_states": hidden_states}, output_dir / f"million_{name}_{how}.safetensors")
    append_rows(output_dir / "million.csv", [result])
    print(result)


def main(args: list[str] | None = None) -> None:
    parser = make_parser(__doc__, "lengths to 8,192 only")
    parser.add_argument("--lengths", type=int, nargs="+", default=[2**11, 2**13, 2**15, 2**17])
    parser.add_argument("--series", nargs="+", choices=SERIES, default=SERIES)
    parser.add_argument("--million", choices=["segments", "forward"])
    parser.add_argument("--million_model", choices=MILLION_MODELS, default=MILLION_MODELS[0])
    arguments = parser.parse_args(args)
    torch.set_num_threads(arguments.threads)
    if arguments.quick:
        arguments.lengths = [n for n in arguments.lengths if n <= 2**13]
    if arguments.million:
        encode_million(arguments.million, arguments.million_model, arguments.output_dir)
    else:
        measure(arguments)
    write_pages(arguments.output_dir)


if __name__ == "__main__":
    main()
