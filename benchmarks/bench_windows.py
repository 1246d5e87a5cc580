# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
ModernBERT with its windows in linear time (`attn_implementation="lion_local"`) beside the same weights with sdpa and
with flex_attention: time and memory, after a check that all compute the same.

    python benchmarks/bench_windows.py                        # 6 layers of ModernBERT-base: half an hour on one core
    python benchmarks/bench_windows.py --model large --layers 28 --modes infer
    python benchmarks/bench_windows.py --dtype bfloat16
    python benchmarks/bench_windows.py --quick                # short texts, 3 layers

Random weights of the published sizes; times do not depend on the weights. The implementations take turns in one
process; `difference` is the largest one between their hidden states and those of sdpa. transformers compiles
flex_attention, which takes a minute for each length and is not counted; on a CPU it has no backward pass, and its
memory is not measured. Rows go to windows.csv.
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
FLEX = "flex_attention"
IMPLEMENTATIONS = ("sdpa", "lion_local", FLEX)
BATCHES = {128: 8, 512: 4}  # sequences by length, 1 of others
# Two results in bfloat16 differ by some of its roundings.
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.25}


def make_models(
    size: str, layers: int, dtype: torch.dtype, implementations: Sequence[str]
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


def differences(models: dict[str, ModernBertModel], ids: torch.Tensor) -> dict[str, float]:
    """The largest difference of the hidden states from the first model's; a ValueError if it is more than rounding."""
    with torch.no_grad():
        found = {name: model.eval()(ids).last_hidden_state.float() for name, model in models.items()}
    first, states = next(iter(found.items()))
    found = {name: (x - states).abs().max().item() for name, x in found.items()}
    tolerance = TOLERANCE[models[first].dtype]
    for name, difference in found.items():
        if not difference <= tolerance:
            raise ValueError(f"{name} and {first} differ by {difference:.1e}, of at most {tolerance}.")
    return found


def measure(args: argparse.Namespace, models: dict[str, ModernBertModel], mode: str, length: int) -> list[dict]:
    models, ids = {name: models[name] for name in implementations(args, mode)}, make_ids(length)
    found = differences(models, ids)
    seconds = interleaved({name: make_pass(model, ids, mode) for name, model in models.items()}, args.repeats)
    rows = []
    for name in models:
        sizes = args.model, args.layers, getattr(torch, args.dtype), length, mode, name
        memory = None if name == FLEX else in_new_process(memory_of, *sizes)
        case = {"implementation": name} | case_of(args, mode, length)
        rows.append(case | summary(seconds[name]) | {"memory": memory, "difference": found[name]})
    return rows


def implementations(args: argparse.Namespace, mode: str) -> list[str]:
    """The implementations that were asked for, without those that cannot do it."""
    return [name for name in args.implementations if name != FLEX or mode == "infer"]


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
    parser.add_argument("--implementations", nargs="+", choices=IMPLEMENTATIONS, default=IMPLEMENTATIONS)
    args = parser.parse_args(args)
    torch.set_num_threads(args.threads)
    if args.quick:
        args.layers, args.lengths, args.repeats = 3, [128, 512], 3

    path = args.output_dir / "windows.csv"
    models = make_models(args.model, args.layers, getattr(torch, args.dtype), args.implementations)
    for mode in args.modes:
        for length in args.lengths:
            cases = [{"implementation": x} | case_of(args, mode, length) for x in implementations(args, mode)]
            if is_measured(path, cases) and not args.again:
                continue
            rows = measure(args, models, mode, length)
            append_rows(path, rows)
            first = rows[0]
            for row in rows:
                print(
                    f"{args.model}, {args.layers} layers, {args.dtype}, {mode}, {length} tokens, "
                    f"{row['implementation']}: {row['median']:.2f} s, {row['median'] / first['median']:.2f} of "
                    f"{first['implementation']}, difference {row['difference']:.0e}",
                    flush=True,
                )
    write_pages(args.output_dir)


if __name__ == "__main__":
    main()
