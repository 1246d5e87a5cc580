# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Train or fine-tune a LION model for semantic segmentation (a class for each pixel) on your own images, with the Trainer
(docs/guides/segmentation.md).

    python examples/run_semantic_segmentation.py --train_dir photos/train --validation_dir photos/validation \
        --config_name lion-image-small --do_train --do_eval --output_dir my-segmenter
    python examples/run_semantic_segmentation.py --model_name_or_path my-segmenter --do_predict --predict_dir new \
        --output_dir my-masks
"""

import json
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from datasets import Dataset
from PIL import Image, ImageOps
from tqdm.auto import tqdm
from training_lion.scripts import arguments, class_names, image_files, models, training
from training_lion.scripts.arguments import option
from transformers import AutoModelForSemanticSegmentation, EvalPrediction, Trainer, TrainingArguments


IGNORED = 255  # in masks: a pixel that does not count
CHUNK = 64  # images whose logits are in memory at once in a prediction


@dataclass
class SegmentationArguments(arguments.DataArguments):
    train_dir: str | None = option("Folder of images and masks to train on.")
    validation_dir: str | None = option("Folder of images and masks to evaluate on.")
    predict_dir: str | None = option("Folder of images to make masks for, with --do_predict.")
    classes_file: str | None = option("Names of the classes. Not given: classes.txt or classes.json in the folder.")

    def check(self, model_args: arguments.ModelArguments, training_args: TrainingArguments) -> None:
        if training_args.label_smoothing_factor:
            raise ValueError("--label_smoothing_factor is not for masks: leave it out.")
        for split, folder in arguments.needed_data(self, training_args, "dir").items():
            arguments.check_paths(**{f"{split}_dir": folder})
            if not Path(folder).is_dir():
                raise ValueError(f"--{split}_dir {folder} is a file: give the folder.")


def check_names(images: list[Path]) -> None:
    """Raise a ValueError for two images whose names differ only in the ending: they would have the same mask."""
    names = {}
    for image in images:
        if (other := names.setdefault(image.with_suffix(""), image)) != image:
            raise ValueError(f"{other} and {image} would have the same mask: rename one.")


def find_masks(folder: Path, images: list[Path]) -> list[Path]:
    """Return the mask of each image. Raises a ValueError if one has none, or the same as another."""
    check_names(images)
    masks = [(folder / "masks" / image.relative_to(folder / "images")).with_suffix(".png") for image in images]
    missing = [(image, mask) for image, mask in zip(images, masks, strict=True) if not mask.is_file()]
    if missing:
        image, mask = missing[0]
        raise ValueError(f"{len(missing)} images have no mask, {image} for one: add {mask}, or remove the image.")
    return masks


def read_classes(folder: Path, classes_file: str | None) -> list[str] | None:
    """Read the names of a folder's classes; `None` if it has no such file. Raises a ValueError if they are wrong."""
    files = [Path(classes_file)] if classes_file else [folder / name for name in ("classes.txt", "classes.json")]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        arguments.check_paths(classes_file=classes_file)
        return None
    try:
        text = file.read_text(encoding="utf-8-sig")
        names = json.loads(text) if file.suffix == ".json" else text.strip().split("\n")
    except ValueError as error:  # no UTF-8, no JSON
        raise ValueError(f"{file} cannot be read ({error}): write a list of names, in UTF-8.") from None
    if not isinstance(names, list) or not all(isinstance(name, str) and name.strip() for name in names):
        raise ValueError(f"{file} is no list of names: write one for each class, from class 0 on.")
    names = [class_names.class_name(name) for name in names]
    if not 2 <= len(names) <= IGNORED:
        raise ValueError(f"{file} has {len(names)} classes: give 2 to {IGNORED} (the background is one).")
    if doubled := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"{file} has the class {doubled!r} twice: give each its own name.")
    return names


def read_mask(file: str | Path) -> np.ndarray:
    """Return the classes of the pixels, `(height, width)`, uint8. Raises a ValueError if the file is no mask."""
    try:
        with Image.open(file) as image:
            if image.mode not in ("1", "L", "P"):
                raise ValueError(
                    f"{file} is an image of mode {image.mode}, no mask: write the number of the class into each pixel "
                    "of a grey PNG of 8 bits (mode L)."
                )
            return np.asarray(image).astype(np.uint8)
    except (OSError, SyntaxError) as error:  # SyntaxError: a broken PNG
        raise ValueError(f"{file} cannot be read ({error}): make it again, or remove it and its image.") from None


def check_masks(images: list[Path], masks: list[Path], num_classes: int, is_quiet: bool) -> None:
    """Raise a ValueError for a mask whose size is not that of its image, or that has a number without a class."""
    for image, mask in zip(images, tqdm(masks, desc="checking masks", disable=is_quiet), strict=True):
        pixels = read_mask(mask)
        numbers = np.flatnonzero(np.bincount(pixels.ravel(), minlength=IGNORED + 1))
        if unknown := [int(number) for number in numbers if num_classes <= number < IGNORED]:
            raise ValueError(
                f"{mask} has the class {unknown[0]}; there are {num_classes}, 0 to {num_classes - 1}, and {IGNORED} "
                "for pixels that do not count. Correct it, or name the class in classes.txt."
            )
        try:
            with Image.open(image) as opened:
                ImageOps.exif_transpose(opened, in_place=True)  # decodes those that lie on their side
                size = opened.size
        except image_files.UNREADABLE:
            continue  # named and left out when it is read
        if size != pixels.shape[::-1]:
            raise ValueError(
                f"{mask} has {pixels.shape[1]} × {pixels.shape[0]} pixels, {image} {size[0]} × {size[1]}: resize the "
                "mask without interpolation."
            )


class Inputs:
    """
    Converts rows of images and masks to inputs of the model. Images that cannot be read are named and left out.

    Args:
        ids: the model's number for each class of the masks, and for pixels that do not count.
        stand_in: replaces a batch of which no image can be read.
    """

    def __init__(self, processor, ids: dict[int, int], stand_in: dict[str, list] | None = None):
        self.processor, self.stand_in = processor, stand_in
        self.ids = torch.zeros(IGNORED + 1, dtype=torch.int64)
        for number, label in ids.items():
            self.ids[number] = label

    def __call__(self, rows: dict[str, list]) -> dict[str, list]:
        images, rows = image_files.read_images(rows, "image", "RGB", self.stand_in)
        if "mask" not in rows:
            return {"pixel_values": list(self.processor(images, return_tensors="pt")["pixel_values"])}
        masks = [read_mask(os.fsdecode(mask)) for mask in rows["mask"]]
        inputs = self.processor(images, segmentation_maps=masks, do_reduce_labels=False, return_tensors="pt")
        return {"pixel_values": list(inputs["pixel_values"]), "labels": list(self.ids[inputs["labels"]])}


def count_pixels(logits: torch.Tensor, labels: torch.Tensor | None, ignore_index: int) -> torch.Tensor:
    """
    Count the pixels of each image by their class and the predicted class, `(batch, classes, classes)`, from logits of
    patches and labels: all that the metrics need. Without labels, return the logits.
    """
    if labels is None:
        return logits
    batch, num_classes = logits.shape[:2]
    size, counts = labels.shape[1:], labels != ignore_index
    logits = torch.nn.functional.interpolate(logits.float(), size=size, mode="bilinear", align_corners=False)
    images = torch.arange(batch, device=labels.device)[:, None, None]
    pairs = (images * num_classes + labels) * num_classes + logits.argmax(dim=1)
    return torch.bincount(pairs[counts], minlength=batch * num_classes**2).view(batch, num_classes, num_classes)


class Metrics:
    """Computes, batch by batch, the mean IoU of classes that occur or are predicted, and the share of right pixels."""

    def __init__(self):
        self.counts = 0

    def __call__(self, prediction: EvalPrediction, compute_result: bool) -> dict[str, float]:
        self.counts = self.counts + prediction.predictions.sum(dim=0).double().cpu()
        if not compute_result:
            return {}
        counts, self.counts = self.counts, 0
        right, there = counts.diag(), counts.sum(dim=1)
        union = counts.sum(dim=0) + there - right
        ious = (right / union)[union > 0]
        return {
            "mean_iou": float(ious.mean()) if len(ious) else 0.0,
            "pixel_accuracy": float(right.sum() / there.sum().clamp(min=1)),
        }


def write_masks(trainer: Trainer, folder: Path, images: list[Path], inputs: Inputs) -> None:
    """Write a PNG for each image, of its size, with the numbers of the model's classes, and classes.txt."""
    out = Path(trainer.args.output_dir, "predictions")
    total = range(0, len(images), CHUNK)
    for start in tqdm(total, desc="predicting", disable=trainer.args.disable_tqdm):
        read = [(path, image_files.read_image(os.fsencode(path), "RGB")) for path in images[start : start + CHUNK]]
        sizes = {path: image.size[::-1] for path, image in read if image is not None}
        if not sizes:
            continue
        dataset = Dataset.from_dict({"image": [*map(os.fsencode, sizes)]}).with_transform(inputs)
        logits = torch.from_numpy(trainer.predict(dataset).predictions).float()
        masks = inputs.processor.post_process_semantic_segmentation(SimpleNamespace(logits=logits), [*sizes.values()])
        if trainer.is_world_process_zero():
            for path, mask in zip(sizes, masks, strict=True):
                file = (out / path.relative_to(folder)).with_suffix(".png")
                file.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(mask.numpy().astype(np.uint8)).save(file)
    names = trainer.model.config.id2label.values()
    training.save_text(trainer, "predictions/classes.txt", "".join(f"{name}\n" for name in names))


def main(args: list[str] | None = None) -> Trainer:
    """Run with these arguments, or those of the command line; returns the Trainer."""
    setup = training.start(SegmentationArguments, args, from_scratch=True)
    model_args, data_args, training_args, config, checkpoint = setup
    training_args.remove_unused_columns = False  # the files are what the pixel values are made of
    training_args.batch_eval_metrics = True  # so that not all masks are in memory at once
    folders = {x: Path(folder) for x, folder in arguments.needed_data(data_args, training_args, "dir").items()}
    labelled = {split: folder for split, folder in folders.items() if split != "predict"}
    files = {x: data_args.limit(x, image_files.find_images(folder / "images")) for x, folder in labelled.items()}
    masks = {split: find_masks(folder, files[split]) for split, folder in labelled.items()}
    names = {split: read_classes(folder, data_args.classes_file) for split, folder in labelled.items()}
    if training_args.do_train:
        if names["train"] is None:
            raise ValueError(
                f"{folders['train']} has no classes.txt: write the name of each class into it, one in a line, from "
                "class 0 on; or give --classes_file."
            )
        class_names.set_labels(config, names["train"], model_args, "ForSemanticSegmentation", "training masks")
    known = [class_names.class_name(name) for name in config.id2label.values()]
    if len(known) > IGNORED:
        raise ValueError(f"The model has {len(known)} classes; masks of 8 bits hold up to {IGNORED}.")
    processor, datasets = models.load_processor(model_args, config, segmentation=True), {}
    for split in labelled:
        own = names[split] or names.get("train") or known
        check_masks(files[split], masks[split], len(own), training_args.disable_tqdm)
        numbers = class_names.number_names(dict.fromkeys(own, f"{split} masks"), known, "The model")
        ids = {i: numbers[name] for i, name in enumerate(own)} | {IGNORED: config.semantic_loss_ignore_index}
        rows = {"image": [*map(os.fsencode, files[split])], "mask": [*map(os.fsencode, masks[split])]}
        dataset, stand_in = Dataset.from_dict(rows), None
        if split == "train":
            stand_in = image_files.first_readable(dataset, "image", "RGB")
        else:
            dataset = image_files.readable_only(dataset, "image", "RGB")
        datasets[split] = dataset.with_transform(Inputs(processor, ids, stand_in))
    model = models.load_model(AutoModelForSemanticSegmentation, model_args, config)
    count = partial(count_pixels, ignore_index=config.semantic_loss_ignore_index)
    options = {"preprocess_logits_for_metrics": count}
    trainer = training.make_trainer(setup, model, datasets, processor, Metrics(), **options)
    training.train_and_evaluate(trainer, checkpoint)
    if training_args.do_predict:
        folder = folders["predict"]
        folder = folder / "images" if (folder / "images").is_dir() else folder
        images = image_files.find_images(folder)
        check_names(images)
        write_masks(trainer, folder, images, Inputs(processor, {}))
    return trainer


if __name__ == "__main__":
    main()
