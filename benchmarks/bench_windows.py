# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
ModernBERT with its windows in linear time (`attn_implementation="lion_local"`) beside the same weights with sdpa: time
and memory, after a check that both compute the same.

    python benchmarks/bench_windows.py                        # 6 layers of ModernBERT-base: half an hour on one core
    python benchmarks/bench_windows.py --model large --layers 28 --modes infer
    python benchmarks/bench_windows.py --dtype bfloat16
    python benchmarks/bench_windows.py --quick                # short texts, 3 layers

Random weights of the published sizes; times do not depend on the weights. Both implementations take turns in one
process; `difference` is the largest one between their hidden states. Rows go to windows.csv.
"""

import argparse
from collections.abc import Callable, Sequence

import torch
from measure import (
    append_rows,
    forget_peak_memory,
    in_new_process,
    interleaved,
    is_measured,
    make_parser,
    peak_memory,
    summary,
)
from report import write_pages
from transformers import AutoModel, ModernBertConfig, ModernBertModel

import modeling_lion  # noqa: F401 (registers "lion_local")


SIZES = {
    "base": {},
    "large": {"hidden_size": 1024, "intermediate_size": 2624, "num_attention_heads": 16},
}
IMPLEMENTATIONS = ("sdpa", "lion_local")
BATCHES = {128: 8, 512: 4}  # sequences by length, 1 of others
# Two results in bfloat16 differ by some of its roundings.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.25}


def make_models(
    size: str, layers: int, dtype: torch.dtype, implementations: Sequence[str] = IMPLEMENTATIONS
) -> dict[str, ModernBertModel]:
    """The same weights by implementation."""
    models = {}
    for implementation in implementations:
        torch.manual_seed(0)
        config = ModernBertConfig(vocab_size=1000, num_hidden_layers=layers, **SIZES[size], **special_tokens())
        models[implementation] = AutoModel.from_config(config, attn_implementation=implementation, dtype=dtype)
    return models


def special_tokens() -> dict[str, int]:
    return {f"{name}_token_id": n for n, name in enumerate(("pad", "bos", "eos", "cls", "sep"))}


def make_pass(model: ModernBertModel, ids: torch.Tensor, mode: str) -> Callable[[], None]:
    def infer():
        with torch.no_grad():
            model(ids)

    def train():
        model.zero_grad(set_to_none=True)
        model(ids).last_hidden_state.float().square().mean().backward()

    model.train(mode == "train")
    return train if mode == "train" else infer


def make_ids(length: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(length)
    return torch.randint(10, 1000, (BATCHES.get(length, 1), length), generator=generator)


def memory_of(size: str, layers: int, dtype: torch.dtype, length: int, mode: str, implementation: str) -> int:
    """Bytes that one pass needs beyond the model, at its peak, in this process."""
    model, ids = make_models(size, layers, dtype, [implementation])[implementation], make_ids(length)
    run = make_pass(model, ids, mode)
    forget_peak_memory()
    before = peak_memory()
    run()
    return peak_memory() - before


def check_equal(models: dict[str, ModernBertModel], ids: torch.Tensor) -> float:
    """The largest difference of the hidden states; a ValueError if it is more than rounding."""
    with torch.no_grad():
        found = [model.eval()(ids).last_hidden_state.float() for model in models.values()]
    difference = (found[0] - found[1]).abs().max().item()
    tolerance = TOLERANCE[next(iter(models.values())).dtype]
    if not difference <= tolerance:
        raise ValueError(f"The implementations differ by {difference:.1e}, of at most {tolerance}.")
    return difference


def measure(args: argparse.Namespace, models: dict[str, ModernBertModel], mode: str, length: int) -> list[dict]:
    ids = make_ids(length)
    difference = check_equal(models, ids)
    seconds = interleaved({name: make_pass(model, ids, mode) for name, model in models.items()}, args.repeats)
    dtype = getattr(torch, args.dtype)
    rows = []
    for name in IMPLEMENTATIONS:
        memory = in_new_process(memory_of, args.model, args.layers, dtype, length, mode, name)
        case = {"implementation": name} | case_of(args, mode, length)
        rows.append(case | summary(seconds[name]) | {"memory": memory, "difference": difference})
    return rows


def case_of(args: argparse.Namespace, mode: str, length: int) -> dict:
    sizes = {"model": args.model, "layers": args.layers, "dtype": args.dtype}
    return sizes | {"mode": mode, "length": length, "batch": BATCHES.get(length, 1), "repeats": args.repeats}


def main(args: list[str] | None = None) -> None:
    parser = make_parser(__doc__, "short texts, few layers and repeats")
    parser.add_argument("--model", choices=SIZES, default="base")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--modes", nargs="*", choices=["infer", "train"], default=["infer", "train"])
    parser.add_argument("--lengths", nargs="*", type=int, default=[128, 512, 2048, 8192])
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args(args)
    torch.set_num_threads(args.threads)
    if args.quick:
        args.layers, args.lengths, args.repeats = 3, [128, 512], 3

    path = args.output_dir / "windows.csv"
    models = make_models(args.model, args.layers, getattr(torch, args.dtype))
    for mode in args.modes:
        for length in args.lengths:
            if is_measured(path, [case_of(args, mode, length)]) and not args.again:
                continue
            rows = measure(args, models, mode, length)
            append_rows(path, rows)
            sdpa, local = rows
            print(
                f"{args.model}, {args.layers} layers, {args.dtype}, {mode}, {length} tokens: "
                f"{local['median'] / sdpa['median']:.2f} of sdpa's time ({sdpa['median']:.2f} s), "
                f"{local['memory'] / max(1, sdpa['memory']):.2f} of its memory, "
                f"difference {local['difference']:.0e}",
                flush=True,
            )
    write_pages(args.output_dir)


if __name__ == "__main__":
    main()
