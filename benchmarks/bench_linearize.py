# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
What LION inside of an encoder costs beside the encoder itself: short texts, which stay exact, and longer ones, which
are linear.

    python benchmarks/bench_linearize.py                       # an hour on one core
    python benchmarks/bench_linearize.py --encoders MiniLM --modes infer
    python benchmarks/bench_linearize.py --quick               # short texts of MiniLM's size
    MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=1073741824 python benchmarks/bench_linearize.py

Encoders of published sizes with random weights, one text at a time, one thread, float32. All ways take turns in one
process: the source encoder ("sdpa"; a table of positions is read again beyond its end), the linear encoder as it is
("lion", exact up to 512 tokens), the same with every text linear ("all linear"), and, for MiniLM, pieces of 256 tokens
in the source, eight at a time. With the variables of the last command, glibc keeps memory that was freed
(`keeps_memory`): without them it returns tensors of more than 32 MB to the system, and each new page costs time, which
long texts pay and pieces do not. Before that, short texts are compared to the bit. Rows go to linearize.csv.
"""

import copy
import os
from collections.abc import Callable

import torch
from bench_deploy import PIECE, InPieces
from bench_windows import special_tokens
from measure import append_rows, interleaved, is_measured, make_parser, summary
from report import write_pages
from torch import Tensor, nn
from transformers import BertConfig, BertModel, ModernBertConfig, ModernBertModel

import modeling_lion


EXACT_LENGTH = 512
KEEPS_MEMORY = int({"MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"} <= os.environ.keys())
# Source of each encoder, and how it becomes linear.
ENCODERS: dict[str, tuple[Callable[[], nn.Module], dict]] = {
    "MiniLM": (
        lambda: BertModel(
            BertConfig(
                hidden_size=384,
                num_hidden_layers=6,
                num_attention_heads=12,
                intermediate_size=1536,
                vocab_size=1000,
                attention_probs_dropout_prob=0.0,  # with it, torch has no fused softmax attention on a CPU
            ),
            add_pooling_layer=False,
        ),
        {"window": 64, "positions": "cyclic"},
    ),
    "ModernBERT-base": (
        lambda: ModernBertModel(ModernBertConfig(vocab_size=1000, **special_tokens())),
        {"window": 64, "layers": "global"},
    ),
}
LENGTHS = {"MiniLM": (32, 128, 512, 2048, 8192), "ModernBERT-base": (128, 512, 2048, 8192)}
LONGEST_TRAINED = {"MiniLM": 8192, "ModernBERT-base": 2048}


def make_pass(model: nn.Module, way: str, ids: Tensor, mode: str) -> Callable[[], None]:
    """One forward pass of a linear encoder, or one with gradients, as "source", "lion", "all linear" or "pieces"."""

    def run():
        model.set_attn_implementation("lion" if way in ("lion", "all linear") else "sdpa")
        model.config.lion_exact_length = 1 if way == "all linear" else EXACT_LENGTH
        with torch.set_grad_enabled(mode == "train"):
            output = (InPieces(model) if way == "pieces" else model)(input_ids=ids)
        if mode == "train":
            model.zero_grad(set_to_none=True)
            output.last_hidden_state.square().mean().backward()

    return run


@torch.no_grad()
def check_exact(source: nn.Module, model: nn.Module) -> None:
    """Raise a ValueError unless a short text gives the same to the bit."""
    ids = make_ids(100)
    if not torch.equal(source(ids).last_hidden_state, model(ids).last_hidden_state):
        raise ValueError("A short text differs from that of the source encoder.")


def make_ids(length: int) -> Tensor:
    return torch.randint(10, 1000, (1, length), generator=torch.Generator().manual_seed(length))


def main(args: list[str] | None = None) -> None:
    parser = make_parser(__doc__, "short texts, few repeats")
    parser.add_argument("--encoders", nargs="*", choices=list(ENCODERS), default=list(ENCODERS))
    parser.add_argument("--modes", nargs="*", choices=["infer", "train"], default=["infer", "train"])
    parser.add_argument("--lengths", nargs="*", type=int, help="tokens; by default those of each encoder")
    parser.add_argument("--repeats", type=int, default=5, help="of the longest texts; shorter ones have more")
    args = parser.parse_args(args)
    torch.set_num_threads(args.threads)
    if args.quick:
        args.encoders, args.lengths, args.repeats = ["MiniLM"], [32, 128], 2

    path = args.output_dir / "linearize.csv"
    for name in args.encoders:
        make, options = ENCODERS[name]
        torch.manual_seed(0)
        source = make().eval()
        model = modeling_lion.linearize(copy.deepcopy(source), exact_length=EXACT_LENGTH, **options)
        check_exact(source, model)
        for mode, length in ((mode, n) for mode in args.modes for n in args.lengths or LENGTHS[name]):
            case = {"encoder": name, "mode": mode, "length": length, "keeps_memory": KEEPS_MEMORY}
            is_too_long = mode == "train" and length > LONGEST_TRAINED[name]
            if is_too_long or not args.again and is_measured(path, [case]):
                continue
            model.train(mode == "train")
            ways = ["source", "lion", *["all linear"] * (length <= EXACT_LENGTH)]
            if name == "MiniLM" and length > EXACT_LENGTH and length % PIECE == 0:
                ways.append("pieces")
            steps = {way: make_pass(model, way, make_ids(length), mode) for way in ways}
            repeats = args.repeats * max(1, min(8, 2048 // length))
            seconds = interleaved(steps, repeats)
            append_rows(path, [case | {"way": way, "repeats": repeats} | summary(seconds[way]) for way in ways])
            ratios = {way: summary(seconds[way])["median"] / summary(seconds["source"])["median"] for way in ways}
            print(name, mode, length, {way: f"{ratio:.2f}" for way, ratio in ratios.items()}, flush=True)
    write_pages(args.output_dir)


if __name__ == "__main__":
    main()
