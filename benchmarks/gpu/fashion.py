# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The paper's image classifiers on Fashion-MNIST: 28 x 28 pixels in 196 patches of 2 x 2 and CLS are as many tokens as
ImageNet has in patches of 16 x 16; sizes are those of ViT-Ti (12 layers, width 192), but for 6 heads: of an even
number, as many of LION's read each way. All models have as many parameters within 2 %, and are trained alike: 20
epochs of the first 55,000 images, AdamW with a warm-up and a cosine, flips and shifts by up to two pixels, bfloat16
autocast. bench_images.py --scale gpu takes the same recipe, and searches the learning rate and the range of initial
weights, which takes hours.

    python benchmarks/gpu/fashion.py --device cuda --data fashion --output_dir outputs/gpu    # 20 to 30 minutes

Every training is a row of paper_gpu.csv and is not repeated while that is there. One that would not end in the time
that is left (--minutes) is not begun; its row says so if it could never end in that time.
"""

import itertools
import math
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from bench_models import compile_layers
from measure import REHEARSAL, add_columns, append_rows, gpu, is_measured, make_parser, torch_device
from peers.mamba import MAMBA_PEERS, use_mamba
from tasks.fashion_mnist import CLASSES, SIDE, load_fashion_mnist
from torch import Tensor
from torch.nn import functional as F

from configuration_lion import lion_preset
from modeling_lion import LionForImageClassification


# What bench_images.py --scale gpu has in common.
WIDTH, LAYERS, HEADS = 192, 12, 6
IMAGES, EPOCHS, BATCH_SIZE, LEARNING_RATE = 55_000, 20, 512, 5e-4
OPTIMIZER = {"weight_decay": 0.01, "betas": (0.9, 0.98)}
WARM_UP = 0.1  # of the steps
# Presets, and fields that differ.
TINY = {"num_attention_heads": HEADS} | {
    "image_size": SIDE,
    "patch_size": 2,
    "num_channels": 1,
    "num_labels": len(CLASSES),
    "hidden_dropout_prob": 0.0,
}
SNAKE = {"patch_order": "snake"}
SOFTMAX = {"mixer_type": "softmax", "position_embedding_type": "absolute"}
RECOMMENDED = {"hidden_size": WIDTH, "intermediate_size": 512}  # gated: as many parameters
MODELS = {
    "softmax": ("lion-d-image-tiny", SOFTMAX),
    "LION-LIT": ("lion-lit-image-tiny", {}),
    "LION-D": ("lion-d-image-tiny", {}),
    "LION-S": ("lion-s-image-tiny", {}),
    "LION": ("lion-image-small", RECOMMENDED),
    "LION-D♮": ("lion-d-image-tiny", SNAKE),
    "LION-S♮": ("lion-s-image-tiny", SNAKE),
    "two Mamba-2": ("lion-s-image-tiny", {"intermediate_size": 432}),
    "Vim": ("lion-s-image-tiny", {"intermediate_size": 496}),
}
MEAN, DEVIATION = 0.286, 0.353  # of the pixels
TIMED = 20  # steps, behind as many, from which the time of a training is foreseen


def make_model(name: str, seed: int, **fields) -> LionForImageClassification:
    torch.manual_seed(seed)
    preset, own = MODELS[name]
    model = LionForImageClassification(lion_preset(preset, **TINY | own | fields))
    return use_mamba(model, name) if name in MAMBA_PEERS else model


def normalized(images: Tensor) -> Tensor:
    """`(batch, 1, SIDE, SIDE)` of uint8 pixels `(batch, SIDE, SIDE)`."""
    return ((images / 255 - MEAN) / DEVIATION).unsqueeze(1)


def augmented(images: Tensor, most: int = 2) -> Tensor:
    """Each image shifted by up to `most` pixels, and flipped or not; `(batch, SIDE, SIDE)`."""
    number, pixel = torch.arange(len(images), device=images.device), torch.arange(SIDE, device=images.device)
    shifts = torch.randint(2 * most + 1, (2, len(images), 1), device=images.device)
    is_flipped = torch.rand(len(images), 1, device=images.device) < 0.5
    rows, columns = shifts + pixel
    columns = torch.where(is_flipped, columns.flip(1), columns)
    return F.pad(images, (most,) * 4)[number[:, None, None], rows[:, :, None], columns[:, None, :]]


def batches(images: Tensor, labels: Tensor, epochs: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Shuffled and augmented; what is left of an epoch behind its last whole batch is left out."""
    for _ in range(epochs):
        order = torch.randperm(len(images), device=images.device)
        for chosen in order[: len(order) // size * size].split(size):
            yield normalized(augmented(images[chosen])), labels[chosen]


@torch.no_grad()
def accuracy(model: torch.nn.Module, images: Tensor, labels: Tensor, autocast, size: int = 1000) -> float:
    model.eval()
    right = 0
    for some, of_them in zip(images.split(size), labels.split(size), strict=True):
        with autocast, torch.compiler.set_stance("force_eager"):  # without gradients, layers take tiles of tokens
            right += int((model(normalized(some)).logits.argmax(-1) == of_them).sum())
    return right / len(images)


def train(model: torch.nn.Module, splits: dict, args, deadline: float, is_vim: bool) -> dict:
    """Columns for a training; accuracy `None` if it would end after the deadline."""
    device = torch_device(args.device)
    model.to(device).train()
    if not is_vim:  # whose scan is a loop over the tokens, which a compiler would unroll
        compile_layers(model, "aot_eager" if args.device == REHEARSAL else "inductor")
    autocast = torch.autocast(device, torch.bfloat16)
    images, labels = splits["train"]
    steps = args.epochs * (len(images) // args.batch_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, fused=True, **OPTIMIZER)
    warm_up = max(1, round(WARM_UP * steps))
    rate = lambda step: min((step + 1) / warm_up, (1 + math.cos(math.pi * step / steps)) / 2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    start, marks, losses = time.monotonic(), [], []
    for step, (pixels, target) in enumerate(batches(images, labels, args.epochs, args.batch_size)):
        with autocast:
            loss = model(pixels, labels=target).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        if step % TIMED == 0:
            losses.append(loss.item())  # waits for the GPU
            marks.append(time.monotonic())
        if step == 2 * TIMED:
            needed = (steps - step) / TIMED * (marks[-1] - marks[-2]) + 5
            if time.monotonic() + needed > deadline:
                minutes = (time.monotonic() - start + needed) / 60
                return {"step_seconds": (marks[-1] - marks[-2]) / TIMED, "minutes": minutes}
    spans = [b - a for a, b in itertools.pairwise(marks[1:])] or [(time.monotonic() - start) * TIMED / steps]
    result = {"step_seconds": statistics.median(spans) / TIMED, "minutes": (time.monotonic() - start) / 60}
    return result | {"train_loss": losses[-1], "accuracy": accuracy(model, *splits["test"], autocast)}


def main(args: list[str] | None = None) -> None:
    parser = make_parser(__doc__, "one layer, one epoch of few images", has_gpu=True)
    parser.add_argument(
        "--data", type=Path, help="folder with the files of dataset-fashion-mnist; for a rehearsal: noise"
    )
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--batch_size", type=int, default=BATCH_SIZE)
    parser.add_argument("--learning_rate", type=float, default=LEARNING_RATE)
    parser.add_argument("--images", type=int, default=IMAGES, help="train and test with so many at most")
    parser.add_argument("--layers", type=int, default=LAYERS)
    args = parser.parse_args(args)
    torch.set_num_threads(args.threads)
    path = args.output_dir / "paper_gpu.csv"
    add_columns(path, "sources")
    splits = {}
    for split in ("train", "test"):
        if args.data is None and args.device == REHEARSAL:
            images, labels = torch.randint(256, (64, SIDE, SIDE), dtype=torch.uint8), torch.arange(64) % 10
        else:
            images, labels = load_fashion_mnist(args.data or "", split)
        splits[split] = [x[: args.images].to(torch_device(args.device)) for x in (images, labels)]
    begun = 0
    for seed, name in itertools.product(range(args.seeds), args.models):
        row = {"model": name, "seed": seed, "epochs": args.epochs, "batch_size": args.batch_size}
        row |= {"layers": args.layers, "images": len(splits["train"][0])} | gpu(args.device)
        if time.monotonic() > args.deadline or (is_measured(path, [row]) and not args.again):
            continue
        result = {"accuracy": None, "train_loss": None, "step_seconds": None, "minutes": None, "note": None}
        try:
            model = make_model(name, seed, num_hidden_layers=args.layers)
            row["parameters"] = model.num_parameters()
            result |= train(model, splits, args, args.deadline, name == "Vim")
        except RuntimeError as error:
            if "CUDA error" in str(error):  # after which nothing runs in this process
                raise
            result["note"] = f"{type(error).__name__}: {error}"[:200]
        if result["accuracy"] is None and result["note"] is None:
            print(f"{name}, seed {seed}: needs {result['minutes']:.1f} minutes, more than are left", flush=True)
            if begun:
                continue
            result["note"] = f"a training takes {result['minutes']:.0f} minutes"
        begun += 1
        append_rows(path, [row | result])
        print(name, seed, result, flush=True)
        torch.compiler.reset()


if __name__ == "__main__":
    main()
