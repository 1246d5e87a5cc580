# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Whole models side by side: LION-LIT, -D and -S against the library's BERT, ModernBERT and ViT of equal size, with
scaled dot product attention; training step and inference, time as a ratio to the first model, and peak memory.

    python benchmarks/bench_models.py                # all lengths, base size: hours on a small machine
    python benchmarks/bench_models.py --quick        # one layer, short lengths: minutes
    python benchmarks/bench_models.py --text_lengths 8192 --image_sizes    # added to the results of earlier runs
    python benchmarks/bench_models.py --text_lengths 8192 --image_sizes --modes train --without ModernBERT

Batches are of 2048 tokens, or one sequence. Writes a table, a JSON file and a plot to `--output_dir`.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from measure import (
    interleaved,
    peak_memory_in_new_process,
    print_peak_memory,
    print_table,
    read_json,
    summary,
    write_json,
)
from transformers import (
    BertConfig,
    BertForMaskedLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
    ViTConfig,
    ViTForImageClassification,
)

from modeling_lion import LionConfig, LionForImageClassification, LionForMaskedLM


TOKENS_PER_BATCH = 2048


def make_model(name: str, layers: int, size: int) -> torch.nn.Module:
    """A base-size model by name; `size` is the text length or the image's side."""
    torch.manual_seed(0)
    if name == "BERT":
        return BertForMaskedLM(
            BertConfig(
                num_hidden_layers=layers,
                max_position_embeddings=size,
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
                attn_implementation="sdpa",
            )
        )
    if name == "ModernBERT":  # with its own MLP, 2 x 1152 and gated: 25 million parameters fewer than BERT
        special_tokens = {f"{name}_token_id": i for i, name in enumerate(("pad", "bos", "eos", "cls", "sep"))}
        return ModernBertForMaskedLM(
            ModernBertConfig(num_hidden_layers=layers, vocab_size=30522, attn_implementation="sdpa", **special_tokens)
        )
    if name == "ViT":
        return ViTForImageClassification(
            ViTConfig(num_hidden_layers=layers, image_size=size, num_labels=1000, attn_implementation="sdpa")
        )
    modality, mixer_type = name.split()[1], {"LIT": "lit", "D": "decay", "S": "selective"}[name[5:].split()[0]]
    config = LionConfig(
        modality=modality,
        mixer_type=mixer_type,
        num_hidden_layers=layers,
        max_position_embeddings=size if modality == "text" else 512,
        image_size=size if modality == "image" else 224,
        num_labels=1000,
    )
    return (LionForMaskedLM if modality == "text" else LionForImageClassification)(config)


def make_inputs(modality: str, size: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    if modality == "text":
        shape = (max(1, TOKENS_PER_BATCH // size), size)
        return {"input_ids": torch.randint(5, 30000, shape), "labels": torch.randint(5, 30000, shape)}
    batch = max(1, TOKENS_PER_BATCH // (size // 16) ** 2)
    return {"pixel_values": torch.randn(batch, 3, size, size), "labels": torch.randint(0, 1000, (batch,))}


def make_step(model: torch.nn.Module, inputs: dict[str, torch.Tensor], mode: str) -> Callable[[], None]:
    """One training step, forward and backward, or one forward pass without gradients."""

    def train():
        model(**inputs).loss.backward()
        model.zero_grad(set_to_none=True)  # the others need the memory

    @torch.no_grad()
    def infer():
        model(**{name: x for name, x in inputs.items() if name != "labels"})

    model.train(mode == "train")
    return train if mode == "train" else infer


MODES = ("train", "infer")
PEERS = {"text": ["BERT", "ModernBERT"], "image": ["ViT"]}


def names(modality: str) -> list[str]:
    return PEERS[modality] + [f"LION-{mixer} {modality}" for mixer in ("LIT", "D", "S")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one layer and short inputs")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--text_lengths", type=int, nargs="*", default=[128, 512, 2048, 8192])
    parser.add_argument("--image_sizes", type=int, nargs="*", default=[224, 1024])
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument(
        "--without", nargs="+", choices=["ModernBERT"], default=[], help="what memory is too small for"
    )
    parser.add_argument("--output_dir", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--one", nargs=3, metavar=("NAME", "SIZE", "MODE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.quick:
        args.layers, args.repeats, args.text_lengths, args.image_sizes = 1, 3, [128, 1024], [224]
    if args.one:
        name, size, mode = args.one[0], int(args.one[1]), args.one[2]
        modality = "image" if name == "ViT" or name.endswith("image") else "text"
        make_step(make_model(name, args.layers, size), make_inputs(modality, size), mode)()
        return print_peak_memory()

    name = f"models_{args.layers}_layers_{args.threads}_thread{'s' if args.threads > 1 else ''}"
    path = args.output_dir / f"{name}.json"
    results = read_json(path) or []
    for modality, sizes in (("text", args.text_lengths), ("image", args.image_sizes)):
        for size in sizes:
            for mode in args.modes:
                new = measure(modality, size, mode, args)
                case = (modality, size, mode)
                results = [r for r in results if (r["modality"], r["size"], r["mode"]) != case] + new
                results.sort(key=lambda r: (r["modality"] == "image", r["size"], r["mode"] == "infer"))
                write_json(path, results)  # a long run may be cut short
                for row in map(table_row, new):
                    print(*row, flush=True)
    header = ["model", "input", "size", "pass", "time ÷ first", "tokens per second", "peak MiB"]
    print_table(header, list(map(table_row, results)))
    draw(results, path.with_suffix(".png"))


def measure(modality: str, size: int, mode: str, args: argparse.Namespace) -> list[dict]:
    """One result per model: its time as a ratio to the first peer's, tokens per second, and peak memory."""
    inputs = make_inputs(modality, size)
    tokens = inputs["labels"].numel() if modality == "text" else len(inputs["labels"]) * (size // 16) ** 2
    models = {name: make_model(name, args.layers, size) for name in names(modality) if name not in args.without}
    seconds = interleaved({name: make_step(model, inputs, mode) for name, model in models.items()}, args.repeats)
    baseline = summary(seconds[PEERS[modality][0]])["median"]
    results = []
    for name, values in seconds.items():
        one = ("--layers", str(args.layers), "--threads", str(args.threads), "--one", name, str(size), mode)
        results.append(
            {
                "model": name,
                "modality": modality,
                "size": size,
                "mode": mode,
                "ratio": summary(values)["median"] / baseline,
                "tokens_per_second": tokens / summary(values)["median"],
                "peak_memory_bytes": peak_memory_in_new_process(__file__, *one),
                "parameters": models[name].num_parameters(),
                "seconds": summary(values),
            }
        )
    return results


def table_row(result: dict) -> list[str]:
    return [
        result["model"].removesuffix(" " + result["modality"]),
        *(str(result[name]) for name in ("modality", "size", "mode")),
        f"{result['ratio']:.2f}",
        f"{result['tokens_per_second']:,.0f}",
        f"{result['peak_memory_bytes'] / 2**20:,.0f}",
    ]


def draw(results: list[dict], path: Path) -> None:
    """Time ratios and peak memory of the text models, by length."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    results = [r for r in results if r["modality"] == "text"]
    if not results:
        return
    lengths = sorted({r["size"] for r in results})
    figure, axes = pyplot.subplots(2, 2, figsize=(11, 8), sharex=True, layout="constrained")
    for column, mode in enumerate(MODES):
        time, memory = axes[0][column], axes[1][column]
        for name in names("text"):
            rows = [r for r in results if r["model"] == name and r["mode"] == mode]
            style = "o--" if name in PEERS["text"] else "o-"
            label = name.removesuffix(" text")
            time.semilogx([r["size"] for r in rows], [r["ratio"] for r in rows], style, label=label)
            memory.semilogx(
                [r["size"] for r in rows], [r["peak_memory_bytes"] / 2**20 for r in rows], style, label=label
            )
        time.set(title={"train": "training step", "infer": "inference"}[mode], ylabel="time ÷ time of BERT")
        memory.set(xlabel="length in tokens", ylabel="peak memory of the process, MiB")
        memory.set_xticks(lengths, [str(n) for n in lengths])
        memory.minorticks_off()
        time.set_ylim(bottom=0)
        memory.set_ylim(bottom=0)
        time.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


if __name__ == "__main__":
    main()
