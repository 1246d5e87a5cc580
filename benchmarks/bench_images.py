# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The paper's image classifiers, its peers and LION as recommended on Fashion-MNIST (tasks/real_data.py fetches it).

    python benchmarks/bench_images.py --tasks 7x7      # patches of 4 x 4 pixels, 10,000 images: a CPU
    python benchmarks/bench_images.py --tasks 7x7 --beyond_edges --seeds 1 2 3 4 5    # as in the table
    python benchmarks/bench_images.py --tasks 14x14    # patches of 2 x 2, as many tokens as ViT-B/16 has
    python benchmarks/bench_images.py --scale gpu      # the same with 55,000 images and ViT-Ti, 20 epochs: a GPU
    python benchmarks/bench_images.py --mixers retention.py
    python benchmarks/bench_images.py --tasks 7x7 --steps 400 --trials 2 --seeds 1 2 3 4 5 --output_dir outputs/mine
    python benchmarks/bench_images.py --quick

All models have the shape and the recipe of one ViT: CLS in front, norms before each block, an MLP whose width makes
parameters equal within 2 %, AdamW with a warm-up and a cosine. On a GPU images are flipped and shifted by up to two
pixels; in the few epochs of a CPU that makes all models worse. The learning rate and the range of initial weights are
searched as rate_search.py says. Images for training are the first ones of the 60,000; the last 5,000 are for
validation, and the test split is Fashion-MNIST's. "local mean" is a mean over three tokens on each side, which shows
how much of the task is near (peers/ has it, GLA and Hydra).

Every training is a row of real_images.csv and is not repeated, so that a stopped run goes on where it was. What each
test image changes is in real_images_examples.csv (jackknife.py).
real_images_speed.csv has the times of a training step beside the Transformer's.
"""

import hashlib
from dataclasses import replace

import torch
from bench_search import STAGES
from datasets import Dataset
from gpu.fashion import BATCH_SIZE, EPOCHS, HEADS, IMAGES, LAYERS, LEARNING_RATE, WIDTH, augmented, normalized
from rate_search import RateSearch, chosen_contestants, rate_arguments, run_search
from report import begin_run, write_pages
from tasks.fashion_mnist import CLASSES, SIDE, load_fashion_mnist
from tasks.real_data import Archives
from torch import Tensor
from training_lion.scripts.training import accuracy
from trainings import Data, Experiment, chosen_tasks, sizes

from modeling_lion import LionForImageClassification


CONTESTANTS = (
    "softmax",
    "LION-LIT",
    "LION-D",
    "LION-S",
    "LION-D♮",
    "LION-S♮",
    "LION",
    "LION-Delta",
    "local mean",
    "GLA",
    "Hydra",
    "two Mamba-2",
    "Vim",
)
HELD_OUT = 5_000  # images for validation
# The recipe of gpu/fashion.py, which needs nothing that is not on a GPU's machine.
VIT_TI = sizes(WIDTH, LAYERS, HEADS, patch_size=2)
ON_GPU = {"steps": EPOCHS * (IMAGES // BATCH_SIZE), "batch_size": BATCH_SIZE, "learning_rate": LEARNING_RATE}
SMALL = {"steps": 1_560, "batch_size": 32, "learning_rate": 1e-3}  # five epochs of 10,000 images
SCALES = {
    "cpu": {
        "7x7": Experiment({}, sizes(96, 4, 4, patch_size=4), **SMALL),
        "14x14": Experiment({}, sizes(96, 4, 4, patch_size=2), **SMALL | {"steps": 780}),
    },
    "gpu": {"14x14": Experiment({"augmented": True}, VIT_TI, **ON_GPU, examples=IMAGES)},
    "quick": {"7x7": Experiment({}, sizes(32, 2, 4, intermediate_size=256, patch_size=4), 3, batch_size=8)},
}


def to_dataset(images: Tensor, labels: Tensor) -> Dataset:
    return Dataset.from_dict({"input_ids": images.flatten(1).numpy(), "label": labels.numpy()})


def pixels(rows: list) -> Tensor:
    """`(batch, SIDE, SIDE)`, uint8."""
    return torch.stack([torch.as_tensor(row, dtype=torch.uint8) for row in rows]).view(-1, SIDE, SIDE)


def collate(rows: list[dict]) -> dict[str, Tensor]:
    labels = torch.tensor([int(row["label"]) for row in rows])
    return {"pixel_values": normalized(pixels([row["input_ids"] for row in rows])), "labels": labels}


def augment(columns: dict[str, list]) -> dict[str, list]:
    """The same columns of a batch, with other images each time."""
    return columns | {"input_ids": list(augmented(pixels(columns["input_ids"])).flatten(1))}


def load_data(train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], experiment: Experiment) -> Data:
    """
    The data that trainings.py trains with.

    Args:
        train, test: images `(images, SIDE, SIDE)`, uint8, and labels.
        experiment: its `examples` are for training; as many as are left by `HELD_OUT`, or a tenth, at most.
    """
    held_out = min(HELD_OUT, len(train[0]) // 10)
    examples = min(experiment.examples, len(train[0]) - held_out)
    seen = to_dataset(*(x[:examples] for x in train))
    splits = {
        "train": seen.with_transform(augment) if experiment.task.get("augmented") else seen,
        "validation": to_dataset(*(x[-held_out:] for x in train)),
        "test": to_dataset(*test),
    }
    config = {"modality": "image", "image_size": SIDE, "num_channels": 1, "num_labels": len(CLASSES)}
    chance = float(test[1].bincount().max() / len(test[1]))
    return Data(LionForImageClassification, config, splits, collate, {"compute_metrics": accuracy}, chance=chance)


def digest(*arrays: Tensor) -> str:
    """Twelve digits that change with any number of the arrays."""
    found = hashlib.sha256()
    for x in arrays:
        found.update(x.numpy().tobytes())
    return found.hexdigest()[:12]


class ImageSearch(RateSearch):
    table = "real_images"
    variants = {"LION-LIT": ("LION-LIT", {"feature_map": "elu"})}  # as published for images (SPEC §1)
    program = "bench_images.py"


def main(args: list[str] | None = None) -> None:
    parser = rate_arguments(__doc__, SCALES, list(CONTESTANTS))
    parser.set_defaults(stages=STAGES[:1])
    args = parser.parse_args(args)
    contestants = chosen_contestants(parser, args, list(CONTESTANTS))
    tasks = chosen_tasks(parser, args, SCALES)
    begin_run(args)
    if args.scale == "quick":  # noise, of which nothing is fetched
        generator = torch.Generator().manual_seed(0)
        noise = torch.randint(256, (64, SIDE, SIDE), dtype=torch.uint8, generator=generator)
        train = test = noise, torch.arange(64) % len(CLASSES)
    else:
        folder = Archives(args.archives or args.data / "archives").fashion_mnist()
        train, test = (load_fashion_mnist(folder, split) for split in ("train", "test"))
    data = {"data": digest(*train, *test)}
    for task in tasks:
        experiment = SCALES[args.scale][task]
        experiment = replace(experiment, task=experiment.task | data)
        run_search(ImageSearch(task, experiment, load_data(train, test, experiment), args), contestants, args)
    write_pages(args.output_dir, args.scale)


if __name__ == "__main__":
    main()
