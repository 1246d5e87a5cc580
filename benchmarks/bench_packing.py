# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Training on the same real sequences, padded and packed: real tokens per second of CPU time, as a ratio to padding.

    python benchmarks/bench_packing.py               # 512 paragraphs of docstrings: a quarter of an hour on one core
    python benchmarks/bench_packing.py --quick       # 160 of them, one mixer: a minute or two

Three ways to make batches of the same average number of sequences: padded at random, padded after sorting all of them
by length, which leaves the least padding and the least random batches, and packed up to a number of tokens. Rows go to
packing.csv.
"""

import statistics
from collections.abc import Callable

import add_examples  # noqa: F401 (examples/ can be imported from here on)
import torch
from measure import append_rows, interleaved, is_measured, make_parser, summary
from report import write_pages
from tokenization_lion import LionTokenizer
from training_lion.packing import DataCollatorForLanguageModelingWithFlattening, TokenBudgetBatchSampler
from training_lion.scripts.docstrings import collect_docstrings, python_folders
from transformers import DataCollatorForLanguageModeling

from configuration_lion import LionConfig, published_fields
from modeling_lion import LionForMaskedLM


MAX_LENGTH = 512


def make_batches(tokenizer: LionTokenizer, rows: list[dict], max_tokens: int) -> dict[str, list[dict]]:
    """The batches of one epoch, the same sequences in every way of making them."""
    lengths = [len(row["input_ids"]) for row in rows]
    packed = list(TokenBudgetBatchSampler(lengths, max_tokens))
    size = -(-len(rows) // len(packed))
    generator = torch.Generator().manual_seed(0)
    random = torch.randperm(len(rows), generator=generator).tolist()
    by_length = sorted(range(len(rows)), key=lambda i: lengths[i])
    padding = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.3, seed=1)
    packing = DataCollatorForLanguageModelingWithFlattening(tokenizer, mlm_probability=0.3, seed=1)
    return {
        "padded": [padding([rows[i] for i in random[n : n + size]]) for n in range(0, len(rows), size)],
        "padded, sorted by length": [
            padding([rows[i] for i in by_length[n : n + size]]) for n in range(0, len(rows), size)
        ],
        "packed": [packing([rows[i] for i in batch]) for batch in packed],
    }


def make_epoch(model: torch.nn.Module, batches: list[dict]) -> Callable[[], None]:
    def epoch():
        for batch in batches:
            model.zero_grad(set_to_none=True)
            model(**batch).loss.backward()

    return epoch


def main(args: list[str] | None = None) -> None:
    parser = make_parser(__doc__, "fewer sequences and repeats")
    parser.add_argument("--sequences", type=int, default=512)
    parser.add_argument("--max_tokens", type=int, default=4096, help="tokens of a packed row")
    parser.add_argument("--hidden_size", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--mixers", nargs="*", default=["lit", "decay", "selective"])
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args(args)
    torch.set_num_threads(args.threads)
    if args.quick:
        args.sequences, args.max_tokens, args.repeats, args.layers, args.mixers = 160, 1024, 2, 2, ["selective"]

    train, _ = collect_docstrings(python_folders(), max_bytes=1_000_000)
    texts = [text for texts in train.values() for text in texts]
    tokenizer = LionTokenizer.train_from_iterator(texts, vocab_size=8000)
    chosen = torch.randperm(len(texts), generator=torch.Generator().manual_seed(0))[: args.sequences]
    encoded = tokenizer([texts[i] for i in chosen], truncation=True, max_length=MAX_LENGTH)
    rows = [{"input_ids": ids} for ids in encoded["input_ids"]]
    lengths = [len(row["input_ids"]) for row in rows]
    batches = make_batches(tokenizer, rows, args.max_tokens)
    print(f"{len(rows)} sequences of {min(lengths)} to {max(lengths)} tokens, median {statistics.median(lengths):.0f}")

    path = args.output_dir / "packing.csv"
    about = {"sequences": len(rows), "tokens": sum(lengths), "median_length": statistics.median(lengths)}
    settings = {name: getattr(args, name) for name in ("max_tokens", "hidden_size", "layers", "repeats")}
    for mixer in args.mixers:
        cases = [{"mixer": mixer, "batches": name} | about for name in batches]
        if is_measured(path, [case | settings for case in cases]) and not args.again:
            continue
        torch.manual_seed(0)
        config = LionConfig(
            **published_fields("text") | {"intermediate_size": 4 * args.hidden_size},
            mixer_type=mixer,
            vocab_size=len(tokenizer),
            hidden_size=args.hidden_size,
            num_hidden_layers=args.layers,
            num_attention_heads=args.hidden_size // 64,
        )
        model = LionForMaskedLM(config)
        seconds = interleaved({name: make_epoch(model, b) for name, b in batches.items()}, args.repeats)
        for case in cases:
            computed = sum(batch["input_ids"].numel() for batch in batches[case["batches"]])
            measured = {"share_of_padding": 1 - sum(lengths) / computed} | summary(seconds[case["batches"]])
            append_rows(path, [case | measured | settings])
            print(f"{mixer}, {case['batches']}: {sum(lengths) / measured['median']:.0f} real tokens/s", flush=True)
    write_pages(args.output_dir)


if __name__ == "__main__":
    main()
