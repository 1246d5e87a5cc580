# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Images larger than in training: a ViT of 14 x 14 patches, as it is and with linear attention, at 28 x 28 and 56 x 56.

    python benchmarks/bench_image_sizes.py                 # fetches 131 MB; half an hour of a CPU core for each seed
    python benchmarks/bench_image_sizes.py --seeds 0 1 2
    python benchmarks/bench_image_sizes.py --quick         # noise

The pictures are clip art with categories (tasks/clipart.py). What is not trained on counts: the splits `HELD_OUT`, as
no setting was chosen on either. A ViT of transformers is trained from scratch on squares cut out of pictures, at
56 x 56 pixels in patches of 4 x 4. Its table of positions is interpolated for larger images, as
`interpolate_pos_encoding` does it, and it is not trained further. "linear" is this ViT after `linearize`, whose own
weights were distilled on pictures of the training split at 28 x 28 patches (`training_lion.distillation`). "window" is
`linearize` with the linear sum left out.

Rows go to image_sizes.csv: accuracy with its standard error, the share of the most frequent category, that of pictures
that get the same label as by the ViT at that size, and the CPU seconds of a picture, one at a time, in turns. Models
are trained once for each seed and steps, and kept in --data.
"""

import copy
import hashlib
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import add_examples  # noqa: F401 (examples/ can be imported from here on)
import numpy as np
import torch
from measure import append_rows, interleaved, is_measured, make_parser, summary
from PIL import Image
from report import write_pages
from tasks.clipart import LICENCE, PACKAGE, SIDE, load_clipart
from tasks.real_data import SPLITS, Archives
from torch import Tensor, nn
from torch.utils.data import Dataset
from training_lion.distillation import distill, only
from training_lion.distillation_arguments import DistillationArguments, DistillationTrainingArguments
from transformers import (
    Trainer,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessorPil,
    set_seed,
)

from modeling_lion.linearized.classes import class_by_name


DATA_DIR = Path(__file__).parents[1] / "outputs" / "image_sizes"
PATCH, TRAINED, DISTILLED = 4, 14, 28  # pixels of a patch; patches on a side in training and in distillation
SIZES = (14, 28, 56)  # patches on a side
SHAPE = {"hidden_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 384}
STEPS, BATCH = 1_200, 32
SMALLEST_CUT = 0.6  # side of a square that is cut out in training, of the picture's
DISTILL_STEPS, DISTILL_PICTURES = 60, 240
WINDOW = 64
HELD_OUT = ("validation", "test")
REPEATS = 3
MODELS = ("ViT", "linear", "window")


class Pictures(Dataset):
    """Pictures `(count, SIDE, SIDE, 3)`, uint8, and labels, of which squares are cut out at random and scaled."""

    def __init__(self, pictures: np.ndarray, labels: np.ndarray):
        self.pictures, self.labels = pictures, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, n: int) -> dict[str, Tensor | int]:
        side = int(SIDE * (SMALLEST_CUT + (1 - SMALLEST_CUT) * torch.rand(())))
        top, left = (int(torch.randint(SIDE - side + 1, ())) for _ in range(2))
        cut = self.pictures[n][top : top + side, left : left + side]
        cut = cut[:, ::-1] if torch.rand(()) < 0.5 else cut
        return {"pixel_values": scaled(cut[None], TRAINED)[0], "labels": int(self.labels[n])}


def scaled(pictures: np.ndarray, patches: int) -> Tensor:
    """Square pictures `(count, side, side, 3)`, uint8, as so many patches: `(count, 3, pixels, pixels)`, -1 to 1."""
    size = (patches * PATCH,) * 2
    resized = [np.asarray(Image.fromarray(x).resize(size, Image.Resampling.BICUBIC)) for x in pictures]
    return torch.from_numpy(np.stack(resized)).permute(0, 3, 1, 2) / 127.5 - 1


def with_size(model: ViTForImageClassification, patches: int) -> ViTForImageClassification:
    """A copy of a ViT for images of so many patches on a side, with interpolated positions."""
    pixels = patches * PATCH
    config = copy.deepcopy(model.config)
    config.image_size = pixels
    tokens = torch.zeros(1, 1 + patches**2, config.hidden_size)
    with torch.no_grad():
        table = model.vit.embeddings.interpolate_pos_encoding(tokens, pixels, pixels)
    copied = ViTForImageClassification(config)
    copied.load_state_dict(model.state_dict() | {"vit.embeddings.position_embeddings": table})
    return copied.train(model.training)


def train(data: dict[str, np.ndarray], seed: int, steps: int, folder: Path) -> None:
    """Train a ViT, and save it with positions and processor for `DISTILLED` patches on a side."""
    set_seed(seed)
    config = ViTConfig(image_size=TRAINED * PATCH, patch_size=PATCH, num_labels=len(data["categories"]), **SHAPE)
    arguments = TrainingArguments(
        str(folder / "checkpoints"),
        max_steps=steps,
        per_device_train_batch_size=BATCH,
        learning_rate=1e-3,
        lr_scheduler_type="cosine",
        warmup_steps=steps // 20,
        weight_decay=0.05,
        bf16=True,
        use_cpu=True,
        save_strategy="no",
        report_to="none",
        seed=seed,
        logging_steps=20,
    )
    model = ViTForImageClassification(config)
    Trainer(model=model, args=arguments, train_dataset=Pictures(data["train"], data["train labels"])).train()
    with_size(model, DISTILLED).save_pretrained(folder / "vit")
    side = {"height": DISTILLED * PATCH, "width": DISTILLED * PATCH}
    ViTImageProcessorPil(size=side).save_pretrained(folder / "vit")
    model.save_pretrained(folder / "small")


def make_linear(data: dict[str, np.ndarray], seed: int, steps: int, folder: Path) -> None:
    """Distill the linear ViT from pictures of the training split."""
    pictures = folder / "pictures"
    pictures.mkdir(exist_ok=True)
    for n, picture in enumerate(data["train"][:: max(1, len(data["train"]) // DISTILL_PICTURES)]):
        Image.fromarray(picture).save(pictures / f"{n}.png")
    options = DistillationArguments(
        str(folder / "vit"), dataset_name=str(pictures), window=WINDOW, exact_length=TRAINED**2 + 1, drop_window=0.15
    )
    arguments = DistillationTrainingArguments(
        str(folder / "linear"),
        do_train=True,
        max_steps=steps,
        per_device_train_batch_size=4,
        use_cpu=True,
        save_strategy="no",
        report_to="none",
        seed=seed,
    )
    distill(options, arguments)


def open_models(data: dict[str, np.ndarray], seed: int, steps: int, distill_steps: int, folder: Path) -> tuple:
    """The ViT at `TRAINED` patches and its linear form, which are trained if they are not in the folder."""
    if not (folder / "small" / "model.safetensors").is_file():
        train(data, seed, steps, folder)
    if not (folder / "linear" / "model.safetensors").is_file():
        make_linear(data, seed, distill_steps, folder)
    small = ViTForImageClassification.from_pretrained(folder / "small").eval()
    linear = class_by_name("LionViTForImageClassification").from_pretrained(folder / "linear").eval()
    return small, linear


@torch.no_grad()
def predict(model: nn.Module, images: Tensor) -> Tensor:
    """The labels of images, one at a time, in float32."""
    return torch.cat([model(image[None]).logits.argmax(-1) for image in images])


def models_of_size(small: nn.Module, linear: nn.Module, patches: int) -> dict[str, Callable[[Tensor], Tensor]]:
    """Return what labels images of so many patches; the linear forms only where they are linear."""
    vit = with_size(small, patches)
    if patches == TRAINED:
        return {"ViT": partial(predict, vit)}
    wide = copy.deepcopy(linear)
    wide.vit.embeddings = copy.deepcopy(vit.vit.embeddings)

    def by_window(images: Tensor) -> Tensor:
        with only(wide, "window"):
            return predict(wide, images)

    return {"ViT": partial(predict, vit), "linear": partial(predict, wide), "window": by_window}


def held_out(data: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Pictures that count, and their labels."""
    return tuple(np.concatenate([data[f"{split}{what}"] for split in HELD_OUT]) for what in ("", " labels"))


def measure_size(data: dict[str, np.ndarray], models: dict, patches: int) -> list[dict]:
    """Rows of the models at a size."""
    images, labels = held_out(data)
    images, labels = scaled(images, patches), torch.from_numpy(labels)
    found = {name: model(images) for name, model in models.items()}
    few = images[:: math.ceil(len(images) / 4)]
    seconds = interleaved({name: partial(model, few) for name, model in models.items()}, REPEATS)
    rows = []
    for name, predicted in found.items():
        right = (predicted == labels).double()
        row = {"model": name, "patches": patches, "tokens": patches**2 + 1, "pictures": len(labels)}
        row |= {"test_accuracy": right.mean().item(), "accuracy_error": right.std().item() / math.sqrt(len(labels))}
        row["most_frequent"] = labels.bincount().max().item() / len(labels)
        row["same_as_vit"] = (predicted == found["ViT"]).double().mean().item()
        rows.append(row | {what: x / len(few) for what, x in summary(seconds[name]).items()})
    return rows


def noise(categories: int = 3) -> dict[str, np.ndarray]:
    """Make noise in the format of `load_clipart`."""
    generator = np.random.default_rng(0)
    data = {split: generator.integers(0, 256, (12, SIDE, SIDE, 3), dtype=np.uint8) for split in SPLITS}
    data |= {f"{split} labels": np.arange(12) % categories for split in SPLITS}
    return data | {"categories": np.array([f"c{n}" for n in range(categories)]), "digest": np.array("noise")}


def main(args: list[str] | None = None) -> None:
    parser = make_parser(__doc__, "one step on noise, 14 x 14 and 28 x 28 patches")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--steps", type=int, default=STEPS, help="of the ViT's training")
    parser.add_argument("--archives", type=Path, help="folder of fetched packages; not given: DATA/archives")
    parser.add_argument("--data", type=Path, default=DATA_DIR, help="of pictures and trained models")
    args = parser.parse_args(args)
    torch.set_num_threads(args.threads)
    if args.quick:
        data, sizes, steps, distill_steps = noise(), SIZES[:2], 1, 1
    else:
        data = load_clipart(Archives(args.archives or args.data / "archives"), args.data / "clipart.npz")
        sizes, steps, distill_steps = SIZES, args.steps, DISTILL_STEPS
    made_of = f"{PACKAGE} ({LICENCE}) data={data['digest']} {SHAPE} {steps} {distill_steps} {BATCH} {WINDOW}"
    settings = f"steps={steps} distill_steps={distill_steps} data={data['digest']} tested={'+'.join(HELD_OUT)}"
    path = args.output_dir / "image_sizes.csv"
    counts = " + ".join(f"{len(data[split]):,} {split}" for split in SPLITS)
    print(f"{len(data['categories'])} categories, {counts}; licence: {LICENCE}", flush=True)
    for seed in args.seeds:
        about = {"seed": seed, "settings": settings}
        cases = [about | {"patches": patches} for patches in sizes]
        if is_measured(path, cases) and not args.again:
            continue
        folder = args.data / f"{seed}-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}"
        small, linear = open_models(data, seed, steps, distill_steps, folder)
        for case in cases:
            if is_measured(path, [case]) and not args.again:
                continue
            models = models_of_size(small, linear, case["patches"])
            rows = [about | row for row in measure_size(data, models, case["patches"])]
            append_rows(path, rows)
            for row in rows:
                print(
                    f"{row['model']}, {row['patches']}: {row['test_accuracy']:.3f}, {row['median']:.4f} s", flush=True
                )
    write_pages(args.output_dir)


if __name__ == "__main__":
    main()
