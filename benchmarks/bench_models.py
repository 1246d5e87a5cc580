# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Whole models side by side: LION as recommended, with the delta rule, and LION-LIT, -D and -S as published, against
transformers' BERT, ModernBERT and ViT, with scaled dot product attention; training step and inference, time and peak
memory. "ModernBERT" has as many layers as the others, "ModernBERT-base" the 22 layers, the vocabulary and the other
sizes of the published model, and so has "ModernBERT-base, linear", whose layers that see all tokens are linear beyond
512 tokens. These two are also measured as classifiers of documents, without a decoder to the vocabulary, beside the
first one with its windows in linear time.

    python benchmarks/bench_models.py                # all lengths, base size: hours on a small machine
    python benchmarks/bench_models.py --quick        # one layer, short lengths: minutes
    python benchmarks/bench_models.py --text_lengths 8192 --image_sizes --models BERT LION-S
    python benchmarks/bench_models.py --text_lengths --image_sizes --base_layers 3    # documents, a period of layers
    python benchmarks/bench_models.py --text_lengths --image_sizes --document_lengths 32768 --base_layers 3 --repeats 0
    python benchmarks/bench_models.py --dtype bfloat16 --modes infer --image_sizes --document_lengths
    python benchmarks/bench_models.py --device cuda --modes train --text_lengths 128 --image_sizes 224 \\
        --batch_size 256 --repeats 50
    python benchmarks/bench_models.py --device rehearsal --quick --modes train    # the same on a CPU, small

Batches are of 2048 tokens, or one sequence. Rows go to models.csv, in bfloat16 to models_bfloat16.csv; cases that this
machine has there, with the same versions, are measured again only with --again.

On an NVIDIA GPU, layers are compiled, in bfloat16 autocast, each model beside its softmax peer, two in memory at a
time; a training step has AdamW, too. The shapes above are those of the published measurements. "…, linear" is a
peer whose attention LION computes, in windows of 64 and linear beyond them. Rows go to models_gpu.csv.
"""

import argparse
import itertools
import math
import time
from collections.abc import Callable

import torch
import transformers
from measure import (
    REHEARSAL,
    append_rows,
    gpu,
    host_seconds,
    in_new_process,
    interleaved,
    is_measured,
    make_parser,
    peak_memory,
    summary,
    table_of,
    torch_device,
)
from report import write_pages
from reports.names import BASE, BASE_LAYERS, DELTA, LIONS, WINDOWS

from configuration_lion import lion_preset, published_fields
from modeling_lion import (
    LionConfig,
    LionForImageClassification,
    LionForMaskedLM,
    linearize,
)


TOKENS_PER_BATCH = 2048
# Peers with LION for their attention, in all layers: softmax in windows of 64, and linear beyond them.
LINEARIZED = {"BERT, linear": "BERT", "ViT, linear": "ViT"}


def make_model(name: str, layers: int, size: int) -> torch.nn.Module:
    """
    A model by name, of base size, whose layers are given; `size` is the text length or the image's side.
    """
    torch.manual_seed(0)
    if name in LINEARIZED:
        return linearize(make_model(LINEARIZED[name], layers, size), exact_length=0)
    is_document, name = name.endswith(" document"), name.removesuffix(" document")
    options = {"num_hidden_layers": layers, "attn_implementation": "sdpa"}
    if name == "BERT":
        no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        config = transformers.BertConfig(max_position_embeddings=size, **no_dropout, **options)
        return transformers.BertForMaskedLM(config)
    if name == "ModernBERT":  # with its own MLP, 2 x 1152 and gated: 25 million parameters fewer than BERT
        special_tokens = {f"{name}_token_id": i for i, name in enumerate(("pad", "bos", "eos", "cls", "sep"))}
        config = transformers.ModernBertConfig(vocab_size=30522, **special_tokens, **options)
        return transformers.ModernBertForMaskedLM(config)
    if name in (*BASE, WINDOWS):
        config = transformers.ModernBertConfig(max_position_embeddings=max(size, 8192), num_hidden_layers=layers)
        classes = transformers.AutoModelForMaskedLM, transformers.AutoModelForSequenceClassification
        implementation = "lion_local" if name == WINDOWS else "sdpa"
        model = classes[is_document].from_config(config, attn_implementation=implementation)
        return linearize(model, layers="global") if name == BASE[1] else model
    if name == "ViT":
        config = transformers.ViTConfig(image_size=size, num_labels=1000, **options)
        return transformers.ViTForImageClassification(config)
    name, modality = name.split()
    options = {"num_hidden_layers": layers, "num_labels": 1000}
    options |= {"max_position_embeddings": size} if modality == "text" else {"image_size": size}
    if name in ("LION", DELTA):
        options |= {"mixer_type": "delta"} if name == DELTA else {}
        config = lion_preset(f"lion-{modality}-base", **options)
    else:
        mixer_type = {"LIT": "lit", "D": "decay", "S": "selective"}[name.removeprefix("LION-")]
        config = LionConfig(**published_fields(modality), modality=modality, mixer_type=mixer_type, **options)
    return (LionForMaskedLM if modality == "text" else LionForImageClassification)(config)


def make_inputs(modality: str, size: int, batch: int | None = None) -> dict[str, torch.Tensor]:
    """A batch of so many inputs, or of `TOKENS_PER_BATCH`."""
    torch.manual_seed(0)
    if modality != "image":
        shape = (batch or max(1, TOKENS_PER_BATCH // size), size)
        labels = torch.randint(5, 30000, shape) if modality == "text" else torch.randint(2, shape[:1])
        return {"input_ids": torch.randint(5, 30000, shape), "labels": labels}
    batch = batch or max(1, TOKENS_PER_BATCH // (size // 16) ** 2)
    return {"pixel_values": torch.randn(batch, 3, size, size), "labels": torch.randint(0, 1000, (batch,))}


def compile_layers(model: torch.nn.Module, backend: str = "inductor") -> None:
    """
    Let torch compile the layers, all of a kind once: a tenth of the time that the whole model takes. What is left out
    is the same in both models of a comparison.
    """
    for layer in max((x for x in model.modules() if isinstance(x, torch.nn.ModuleList)), key=len):
        layer.compile(backend=backend)


def make_step(
    model: torch.nn.Module, inputs: dict[str, torch.Tensor], mode: str, device: str = "cpu", dtype: str = "float32"
) -> Callable[[], None]:
    """One training step, forward and backward, or one forward pass without gradients."""
    on_gpu = device != "cpu"
    model.to(torch_device(device), getattr(torch, dtype)).train(mode == "train")
    inputs = {
        name: x.to(torch_device(device), model.dtype if x.is_floating_point() else x.dtype)
        for name, x in inputs.items()
        if name != "labels" or mode == "train"
    }
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True) if on_gpu else None
    autocast = torch.autocast(torch_device(device), torch.bfloat16, enabled=on_gpu)
    if on_gpu:
        compile_layers(model, "aot_eager" if device == REHEARSAL else "inductor")

    def step():
        with torch.set_grad_enabled(mode == "train"), autocast:
            outputs = model(**inputs)
        if mode == "train":
            outputs.loss.backward()
            if optimizer is not None:
                optimizer.step()
            model.zero_grad(set_to_none=True)  # the others need the memory

    return step


MODES = ("train", "infer")
PEERS = {"text": ["BERT", "ModernBERT", "ModernBERT-base"], "image": ["ViT"], "document": []}
GROUPS = {"document": (BASE[0], WINDOWS, BASE[1])}


def names(modality: str, device: str = "cpu") -> list[str]:
    """The models of a modality, the peer of the others first."""
    if modality in GROUPS:
        return [f"{name} {modality}" for name in GROUPS[modality]]
    hybrid = [BASE[1]] if modality == "text" else []
    lions = [f"{lion} {modality}" for lion in (*LIONS, DELTA)]
    found = [name for name, peer in LINEARIZED.items() if peer in PEERS[modality] and device != "cpu"]
    return PEERS[modality] + hybrid + lions + found


def short(name: str) -> str:
    """As in the tables, without the modality."""
    for modality in PEERS:
        name = name.removesuffix(f" {modality}")
    return name


MODELS = dict.fromkeys(short(name) for modality in PEERS for name in names(modality))
MODELS = (*MODELS, *LINEARIZED)


def step_alone(name: str, layers: int, modality: str, size: int, mode: str, dtype: str) -> tuple[float, int]:
    """Seconds of the first step of this process, and its peak memory."""
    step = make_step(make_model(name, layers, size), make_inputs(modality, size), mode, dtype=dtype)
    return host_seconds(step), peak_memory()


def layers_of(name: str, args: argparse.Namespace) -> int:
    is_base = short(name) in GROUPS["document"]
    return args.base_layers if is_base else args.layers


def measure(case: dict, chosen: list[str], args: argparse.Namespace) -> list[dict]:
    """One row per model: the time of a step on a batch, peak memory (on a CPU) and parameters."""
    modality, size, mode = case.values()
    on_gpu = args.device != "cpu"
    inputs = make_inputs(modality, size, args.batch_size)
    tokens = len(inputs["labels"]) * (size // 16) ** 2 if modality == "image" else inputs["input_ids"].numel()
    models = {name: make_model(name, layers_of(name, args), size) for name in chosen}
    steps = {name: make_step(model, inputs, mode, args.device, args.dtype) for name, model in models.items()}
    for step in [*steps.values()] * 2 if on_gpu else []:  # beside the one of `interleaved`, while the GPU warms up
        step()
    seconds = interleaved(steps, args.repeats, args.device, 15 if on_gpu else math.inf) if args.repeats else {}
    rows = []
    for name, model in models.items():
        row = case | {"model": short(name), "layers": model.config.num_hidden_layers}
        row |= {"parameters": model.num_parameters(), "tokens": tokens}
        if on_gpu:
            row |= summary(seconds[name])
            row |= {"ratio": row["median"] / summary(seconds[chosen[0]])["median"]} | gpu(args.device)
        else:
            arguments = (name, layers_of(name, args), modality, size, mode, args.dtype)
            first, peak = in_new_process(step_alone, *arguments)
            row |= summary(seconds.get(name, [first])) | {"peak_memory_bytes": peak}
        rows.append(row)
        ratio = f", {row['ratio']:.3f} of {chosen[0]}'s time" if on_gpu else ""
        print(*case.values(), short(name), f"{tokens / row['median']:,.0f} tokens/s{ratio}", flush=True)
    return rows


def main(args: list[str] | None = None) -> None:
    parser = make_parser(__doc__, "one layer and short inputs, without those of base size", has_gpu=True)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--base_layers", type=int, default=BASE_LAYERS, help="layers of ModernBERT-base")
    parser.add_argument(
        "--repeats", type=int, default=5, help="repeats; 0 measures once, in the process that measures memory"
    )
    parser.add_argument("--batch_size", type=int, help=f"default: {TOKENS_PER_BATCH} tokens")
    parser.add_argument(
        "--dtype", choices=["float32", "bfloat16"], default="float32", help="dtype of the weights, on a CPU"
    )
    parser.add_argument("--text_lengths", type=int, nargs="*", default=[128, 512, 2048, 8192])
    parser.add_argument("--document_lengths", type=int, nargs="*", default=[2048, 8192, 32768])
    parser.add_argument("--image_sizes", type=int, nargs="*", default=[224, 1024])
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument(
        "--models",
        nargs="+",
        choices=MODELS,
        default=MODELS,
        help="models to measure; all are in memory at the same time",
    )
    args = parser.parse_args(args)
    torch.set_num_threads(args.threads)
    if args.quick:
        args.layers, args.repeats, args.text_lengths, args.image_sizes = 1, 3, [128, 1024], [224]
        args.models, args.document_lengths = [x for x in args.models if x not in GROUPS["document"]], []

    on_gpu = args.device != "cpu"
    if on_gpu and not args.repeats:
        parser.error("--repeats is 0: a GPU has to warm up, give at least 5.")
    if on_gpu and args.dtype != "float32":
        parser.error(f"--dtype {args.dtype} is for --device cpu: a GPU computes in bfloat16 autocast. Leave it out.")
    path = table_of(args, "models")
    jobs = []
    lengths = {"text": args.text_lengths, "image": args.image_sizes, "document": args.document_lengths}
    for modality, sizes in lengths.items():
        chosen = [name for name in names(modality, args.device) if short(name) in args.models]
        together = [[chosen[0], name] for name in chosen[1:]] if on_gpu else [chosen] * bool(chosen)
        jobs += itertools.product([modality], sizes, args.modes, together)
    if on_gpu:  # both modalities of a mixer in turn, so that a deadline leaves some of each
        last = (*LINEARIZED, *(f"{DELTA} {modality}" for modality in lengths))
        jobs.sort(key=lambda job: (job[-1][-1] in last, job[-1][-1].split()[0]))
    for modality, size, mode, chosen in jobs:
        if time.monotonic() > args.deadline:
            return
        case = {"modality": modality, "size": size, "mode": mode}
        about = gpu(args.device) if on_gpu else {}
        cases = [case | {"model": short(name), "layers": layers_of(name, args)} | about for name in chosen]
        if args.again or not is_measured(path, cases):
            try:
                append_rows(path, measure(case, chosen, args))  # a long run may be cut short
            except Exception as error:
                if not on_gpu or "CUDA error" in str(error):  # after which nothing runs in this process
                    raise
                note = f"left out, {type(error).__name__}: {error}"[:500]
                print(*case.values(), short(chosen[-1]), note, flush=True)
        if on_gpu:
            torch.compiler.reset()
        if args.device == "cuda":
            torch.cuda.empty_cache()
    if not on_gpu:
        write_pages(args.output_dir)


if __name__ == "__main__":
    main()
