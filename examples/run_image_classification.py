# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Train or fine-tune a LION model for image classification on your own images, with the Trainer (docs/guides/images.md).

    python examples/run_image_classification.py --config_name lion-image-small --train_dir photos/train \
        --validation_dir photos/validation --do_train --do_eval --output_dir outputs/photos

An image folder has one sub-folder per class, named like it. Images that cannot be read are named and left out.
"""

import math
import random
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from zlib import crc32

import numpy as np
import torch
from datasets import ClassLabel, Dataset, load_dataset
from datasets import Image as ImageColumn
from PIL import Image
from training_lion.scripts import arguments, class_names, data_files, image_files, models, training
from training_lion.scripts.arguments import option
from transformers import AutoModelForImageClassification, Trainer, TrainingArguments


@dataclass
class DataTrainingArguments(arguments.HubArguments):
    train_dir: str | None = option("Image folder to train on.")
    validation_dir: str | None = option("Image folder to evaluate on.")
    train_val_split: float = option("Without validation images: this share of the training images.", 0.15)
    image_column_name: str = option("Column of the images.", "image")
    label_column_name: str = option("Column of the labels.", "label")
    min_crop: float = option("Train on random crops with at least this share of the width and height.", 1.0)
    random_flip: bool = option("Train on randomly mirrored images as well.", False)
    mixup: float = option("Train on mixtures of two images and labels, in shares from Beta(mixup, mixup).", 0.0)

    def check(self, model_args: arguments.ModelArguments, training_args: TrainingArguments) -> None:
        folders = {"train_dir": self.train_dir, "validation_dir": self.validation_dir}
        arguments.check_paths(**folders)
        if (self.dataset_name is None) == (not any(folders.values())):
            raise ValueError("Give the images by --train_dir and --validation_dir, or by --dataset_name.")
        if training_args.do_train and self.dataset_name is None and self.train_dir is None:
            raise ValueError("--do_train needs --train_dir.")
        if not 0 < self.train_val_split < 1:
            raise ValueError(f"--train_val_split is {self.train_val_split}; give a number between 0 and 1.")
        if not 0 < self.min_crop <= 1:
            raise ValueError(f"--min_crop is {self.min_crop}; give a number above 0, up to 1 (no crops).")
        if self.mixup < 0:
            raise ValueError(f"--mixup is {self.mixup}; give a number above 0, or 0 for no mixtures.")


def load_images(setup: training.Setup) -> dict[str, Dataset]:
    """Load the images as splits "train" and "validation". The latter is cut from the former if there is none."""
    model_args, data_args, training_args, *_ = setup
    image, label = data_args.image_column_name, data_args.label_column_name
    if data_args.dataset_name is not None:
        name = data_args.dataset_config_name
        datasets = load_dataset(data_args.dataset_name, name, cache_dir=model_args.cache_dir)
    else:
        folders = {"train": data_args.train_dir, "validation": data_args.validation_dir}
        datasets = {x: image_files.read_class_folders(Path(folder)) for x, folder in folders.items() if folder}
    datasets = {split: datasets[split] for split in ("train", "validation") if split in datasets}
    for split, dataset in datasets.items():
        data_files.check_columns(dataset, (image, label), f"The {split} data", has_values=False)
        labels = class_names.label_names(dataset, label, f"The {split} data")
        if not isinstance(dataset.features[label], ClassLabel):
            names = class_names.in_order({*labels})
            numbers = {name: number for number, name in enumerate(names)}
            dataset = dataset.remove_columns(label).add_column(label, [numbers[name] for name in labels])
            datasets[split] = dataset.cast_column(label, ClassLabel(names=names))
    if training_args.do_eval and "validation" not in datasets:
        share, seed = data_args.train_val_split, training_args.seed
        counts, names = Counter(datasets["train"][label]), datasets["train"].features[label].names
        if alone := [names[number] for number, count in counts.items() if count < 2]:
            raise ValueError(
                f"The class {alone[0]!r} has one image, which cannot be both in training and in evaluation: add "
                "images of it, or give --validation_dir."
            )
        count = len(datasets["train"])
        held_out = math.ceil(count * share)
        if min(held_out, count - held_out) < len(counts):
            raise ValueError(
                f"--train_val_split {share:g} splits {count} images into {count - held_out} and {held_out}, too few "
                f"for {len(counts)} classes in both: give another share, more images, or --validation_dir."
            )
        parts = datasets["train"].train_test_split(share, seed=seed, stratify_by_column=label)
        datasets["train"], datasets["validation"] = parts["train"], parts["test"]
        data_files.warn_of_seen_rows(training_args)
    return data_files.needed_only(datasets, training_args)


def mode_of(setup: training.Setup) -> str:
    """Return Pillow's name for the pixels that the model reads."""
    return "L" if setup.config.num_channels == 1 else "RGB"


class PixelValues:
    """
    Converts batches of images to `pixel_values` and `labels`, optionally with random crops and mirror images.

    `ids` has the model's label for each label of the images. `stand_in` replaces a batch of which no image can be
    read. Random changes depend only on the seed, the image and the epoch, so that a resumed training makes the same
    changes as one without a stop.
    """

    def __init__(
        self, setup: training.Setup, processor, ids: list[int], augment: bool, stand_in: dict[str, list] | None = None
    ):
        self.processor, self.ids, self.augment, self.stand_in = processor, ids, augment, stand_in
        self.data_args, self.seed = setup.data_args, setup.training_args.seed
        self.mode = mode_of(setup)
        # In shared memory: persistent workers of the DataLoader must see it change.
        self.epoch = torch.zeros((), dtype=torch.int64).share_memory_()

    def __call__(self, examples: dict[str, list]) -> dict[str, list]:
        images, rows = image_files.read_images(examples, self.data_args.image_column_name, self.mode, self.stand_in)
        labels = [self.ids[label] for label in rows[self.data_args.label_column_name]]
        if self.augment:
            images = [self.change(image) for image in images]
        pixel_values = self.processor(images, return_tensors="pt")["pixel_values"]
        return {"pixel_values": list(pixel_values), "labels": labels}

    def change(self, image: Image.Image) -> Image.Image:
        numbers = random.Random(self.seed + crc32(image.tobytes(), int(self.epoch)))
        width, height = (round(side * numbers.uniform(self.data_args.min_crop, 1)) for side in image.size)
        left, top = numbers.randint(0, image.width - width), numbers.randint(0, image.height - height)
        image = image.crop((left, top, left + width, top + height))
        if self.data_args.random_flip and numbers.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return image


class MixupTrainer(training.OrderedTrainer):
    """
    A Trainer that mixes each image of a batch with another one, and their labels likewise (Zhang et al., arXiv
    1710.09412). The share of the first image is drawn from Beta(mixup, mixup) once per optimizer step. Seed and step
    determine it, so that a resumed training draws the same.
    """

    def __init__(self, *args, mixup: float, **kwargs):
        super().__init__(*args, **kwargs)
        self.mixup = mixup

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        if not model.training:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        images, labels = inputs["pixel_values"], inputs["labels"]
        random_numbers = np.random.default_rng((self.args.seed, self.state.global_step, self.args.process_index))
        share, other = random_numbers.beta(self.mixup, self.mixup), random_numbers.permutation(len(images))
        outputs = model(pixel_values=images.lerp(images[other], 1 - share))
        options = {"label_smoothing": self.args.label_smoothing_factor, "reduction": "sum"}
        loss = sum(
            part * torch.nn.functional.cross_entropy(outputs.logits.float(), target, **options)
            for part, target in ((share, labels), (1 - share, labels[other]))
        )
        loss = loss / (len(images) if num_items_in_batch is None else num_items_in_batch)
        if num_items_in_batch is not None and self.args.average_tokens_across_devices:
            # The number is of all processes, whose gradients have a mean: as in Trainer.compute_loss.
            loss = loss * (self.accelerator.num_processes // self.get_tp_size())
        return (loss, outputs) if return_outputs else loss


def main(args: list[str] | None = None) -> Trainer:
    """Run with these arguments, or those of the command line; returns the Trainer."""
    setup = training.start(DataTrainingArguments, args, from_scratch=True, can_predict=False)
    model_args, data_args, training_args, config, checkpoint = setup
    training_args.remove_unused_columns = False  # the images are what the pixel values are made of
    datasets = load_images(setup)
    names = {split: dataset.features[data_args.label_column_name].names for split, dataset in datasets.items()}
    names = {split: [class_names.class_name(name) for name in known] for split, known in names.items()}
    if training_args.do_train:
        class_names.set_labels(config, names["train"], model_args, "ForImageClassification", "training images")
    model = models.load_model(AutoModelForImageClassification, model_args, config)
    processor = models.load_processor(model_args, config)
    callbacks = []
    for split, dataset in datasets.items():
        places, is_train = dict.fromkeys(names[split], f"{split} images"), split == "train"
        ids = class_names.number_names(places, config.id2label.values(), "The model")
        if (data_args.max_train_samples if is_train else data_args.max_eval_samples) is not None:
            dataset = data_args.limit(split, dataset.shuffle(seed=training_args.seed))
        if data_args.dataset_name is not None:  # decoded by `PixelValues`, which knows the files
            dataset = dataset.cast_column(data_args.image_column_name, ImageColumn(decode=False))
        check, stand_in = (data_args.image_column_name, mode_of(setup)), None
        if is_train:
            stand_in = image_files.first_readable(dataset, *check)
        else:
            dataset = image_files.readable_only(dataset, *check)
        labels = [ids[name] for name in names[split]]
        pixel_values = PixelValues(setup, processor, labels, augment=is_train, stand_in=stand_in)
        if is_train:
            callbacks.append(training.EpochCallback(pixel_values.epoch))
        datasets[split] = dataset.with_transform(pixel_values)
    options = {"callbacks": callbacks}
    if data_args.mixup:
        options["kind"] = partial(MixupTrainer, mixup=data_args.mixup)
    trainer = training.make_trainer(setup, model, datasets, processor, training.accuracy, **options)
    return training.train_and_evaluate(trainer, checkpoint)


if __name__ == "__main__":
    main()
