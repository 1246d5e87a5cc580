# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What a long text costs whole, beside a BERT that reads it in pieces of 256 tokens, eight at a time: what people do with
long texts and a short encoder.

    python benchmarks/bench_pieces.py                      # 2048 to 32,768 tokens: a quarter of an hour on one core
    python benchmarks/bench_pieces.py --dtype bfloat16
    python benchmarks/bench_pieces.py --lengths 2048 131072 --repeats 1   # 131072 alone would not fit into 24 GB
    python benchmarks/bench_pieces.py --quick              # one short text

Encoders without a head, one thread: two layers of base width. All take turns in one process. Of a text longer than
`PIECES_AT_MOST` tokens, so many are computed in pieces and the time is multiplied: it does not depend on the others.
Before that, what inference computes in tiles (modeling_lion/sequence/tiles.py) is compared with what training computes
of all tokens at once, at the first length; `difference` is the largest one. Rows go to pieces.csv.
"""

from collections.abc import Callable
from functools import partial

import torch
from bench_deploy import PIECE, InPieces, make_encoder
from measure import append_rows, interleaved, is_measured, make_parser, summary
from report import write_pages
from torch import Tensor, nn


PIECES_AT_MOST = 8192
GROUP = "2 layers of 768"  # in the table
MODELS = ("BERT", "LION-LIT", "LION-S", "LION")  # the first one reads pieces
# Two results in bfloat16 differ by some of its roundings.
TOLERANCE = {"float32": 1e-4, "bfloat16": 0.25}


def make_models(dtype: str, longest: int) -> dict[str, nn.Module]:
    """Models by name, without poolers; "LION" is the recommended preset."""
    models = {}
    for name in MODELS:
        models[name] = make_encoder(name, 2, PIECE if name == "BERT" else longest)
        models[name].to(getattr(torch, dtype)).eval()
    return models


def make_ids(length: int) -> Tensor:
    return torch.randint(1000, 30000, (1, length), generator=torch.Generator().manual_seed(length))


@torch.no_grad()
def encode(model: Callable, ids: Tensor) -> None:
    model(input_ids=ids)


def check_equal(model: nn.Module, ids: Tensor, dtype: str) -> float:
    """The largest difference of the hidden states in tiles and at once; a ValueError if it is more than rounding."""
    at_once = model(ids).last_hidden_state.detach().float()
    with torch.no_grad():
        difference = (model(ids).last_hidden_state.float() - at_once).abs().max().item()
    if not difference <= TOLERANCE[dtype]:
        raise ValueError(f"The results differ by {difference:.1e}, of at most {TOLERANCE[dtype]}.")
    return difference


def main(args: list[str] | None = None) -> None:
    parser = make_parser(__doc__, "one short text, few repeats")
    parser.add_argument("--dtype", choices=list(TOLERANCE), default="float32", help="of the weights")
    parser.add_argument("--lengths", nargs="*", type=int, default=[2048, 8192, 32768], help=f"multiples of {PIECE}")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args(args)
    torch.set_num_threads(args.threads)
    if args.quick:
        args.lengths, args.repeats = [2048], 2
    if wrong := [length for length in args.lengths if length % PIECE]:
        parser.error(f"--lengths has {wrong[0]}: give multiples of {PIECE}.")

    path = args.output_dir / "pieces.csv"
    cases = {n: {"group": GROUP, "dtype": args.dtype, "length": n, "repeats": args.repeats} for n in args.lengths}
    lengths = [n for n, case in cases.items() if args.again or not is_measured(path, [case])]
    models = make_models(args.dtype, max(lengths)) if lengths else {}
    others = [*models][1:]
    differences = {name: check_equal(models[name], make_ids(min(lengths)), args.dtype) for name in others}
    for length in lengths:
        ids = make_ids(length)
        steps = {MODELS[0]: partial(encode, InPieces(models[MODELS[0]]), ids[:, :PIECES_AT_MOST])}
        steps |= {name: partial(encode, models[name], ids) for name in others}
        seconds = interleaved(steps, args.repeats)
        seconds[MODELS[0]] = [x * length / min(length, PIECES_AT_MOST) for x in seconds[MODELS[0]]]
        rows = [{"model": name} | cases[length] | summary(seconds[name]) for name in models]
        append_rows(path, [row | {"difference": differences.get(row["model"])} for row in rows])
        for row in rows[1:]:
            ratio = row["median"] / rows[0]["median"]
            print(f"{GROUP}, {args.dtype}, {length} tokens: {row['model']} {ratio:.2f} of pieces", flush=True)
    write_pages(args.output_dir)


if __name__ == "__main__":
    main()
