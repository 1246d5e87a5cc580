# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Train or fine-tune a LION model for image classification on your own images, with the Trainer.

    python examples/run_image_classification.py --config_name lion-image-small --train_dir photos/train \
        --validation_dir photos/validation --do_train --do_eval --output_dir outputs/photos

An image folder has one sub-folder per class, named like it. Images that cannot be read are named and left out.
Argument names are those of the transformers examples.
"""

import random
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from zlib import crc32

import numpy as np
import torch
from datasets import ClassLabel, DatasetDict, load_dataset
from datasets import Image as ImageColumn
from PIL import Image
from script_tools.arguments import (
    DataArguments,
    ModelArguments,
    check_arguments,
    check_paths,
    needed_splits,
    parse_arguments,
)
from script_tools.checkpoints import find_checkpoint
from script_tools.images import read_class_folders, read_image
from script_tools.labels import class_name, label_names, number_names, set_labels
from script_tools.models import load_config, load_model
from script_tools.training import (
    EpochCallback,
    OrderedTrainer,
    accuracy,
    early_stopping,
    limit_samples,
    train_and_evaluate,
)
from tokenization_lion import lion_image_processor
from transformers import (
    AutoImageProcessor,
    AutoModelForImageClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)


@dataclass
class DataTrainingArguments(DataArguments):
    train_dir: str | None = field(default=None, metadata={"help": "Image folder to train on."})
    validation_dir: str | None = field(default=None, metadata={"help": "Image folder to evaluate on."})
    train_val_split: float = field(
        default=0.15, metadata={"help": "Without validation images: this share of the training images."}
    )
    image_column_name: str = field(default="image", metadata={"help": "Column of the images."})
    label_column_name: str = field(default="label", metadata={"help": "Column of the labels."})
    min_crop: float = field(
        default=1.0, metadata={"help": "Train on random crops with at least this share of the width and height."}
    )
    random_flip: bool = field(default=False, metadata={"help": "Train on randomly mirrored images as well."})
    mixup: float = field(
        default=0.0,
        metadata={
            "help": "Train on mixtures of two images and their labels, in shares drawn from Beta(mixup, mixup)."
        },
    )


def check_data_arguments(data_args: DataTrainingArguments, training_args: TrainingArguments) -> None:
    """Raise a ValueError or a FileNotFoundError for images that are not there or contradictory arguments."""
    check_paths(train_dir=data_args.train_dir, validation_dir=data_args.validation_dir)
    folders = [folder for folder in (data_args.train_dir, data_args.validation_dir) if folder is not None]
    if (data_args.dataset_name is None) == (not folders):
        raise ValueError("Give the images by --train_dir and --validation_dir, or by --dataset_name.")
    if training_args.do_train and folders and data_args.train_dir is None:
        raise ValueError("--do_train needs --train_dir.")
    if not 0 < data_args.train_val_split < 1:
        raise ValueError(f"--train_val_split is {data_args.train_val_split}; give a number between 0 and 1.")
    if not 0 < data_args.min_crop <= 1:
        raise ValueError(f"--min_crop is {data_args.min_crop}; give a number above 0, up to 1 (no crops).")
    if data_args.mixup < 0:
        raise ValueError(f"--mixup is {data_args.mixup}; give a number above 0, or 0 for no mixtures.")


def load_images(
    data_args: DataTrainingArguments, training_args: TrainingArguments, cache_dir: str | None
) -> DatasetDict:
    """The images as splits "train" and "validation", the latter cut from the former if there is none."""
    workers = data_args.preprocessing_num_workers
    if data_args.dataset_name is not None:
        datasets = load_dataset(
            data_args.dataset_name, data_args.dataset_config_name, cache_dir=cache_dir, num_proc=workers
        )
    else:
        folders = {"train": data_args.train_dir, "validation": data_args.validation_dir}
        datasets = DatasetDict(
            {x: read_class_folders(Path(folder)) for x, folder in folders.items() if folder is not None}
        )
    for split, dataset in datasets.items():
        for name in (data_args.image_column_name, data_args.label_column_name):
            if name not in dataset.column_names:
                raise ValueError(f"The {split} images have no column {name!r}, but {', '.join(dataset.column_names)}.")
        label_names(dataset, data_args.label_column_name, f"The {split} images")
        if not isinstance(dataset.features[data_args.label_column_name], ClassLabel):
            datasets[split] = dataset.class_encode_column(data_args.label_column_name)
    if training_args.do_eval and "validation" not in datasets:
        parts = datasets["train"].train_test_split(
            data_args.train_val_split, seed=training_args.seed, stratify_by_column=data_args.label_column_name
        )
        datasets["train"], datasets["validation"] = parts["train"], parts["test"]
    return DatasetDict({split: datasets[split] for split in needed_splits(training_args)})


class PixelValues:
    """
    Batches of images to batches of `pixel_values` and `labels`, optionally of random crops and mirror images.

    `ids` has the model's label for each label of the images. The random changes depend on `seed`, the image and the
    epoch only, so that a resumed training makes the same as one without a stop.
    """

    def __init__(
        self,
        processor,
        num_channels: int,
        ids: list[int],
        data_args: DataTrainingArguments,
        augment: bool,
        seed: int,
    ):
        self.processor = processor
        self.ids = ids
        self.mode = "L" if num_channels == 1 else "RGB"
        self.data_args = data_args
        self.augment = augment
        self.seed = seed
        # In shared memory: persistent workers of the DataLoader must see it change.
        self.epoch = torch.zeros((), dtype=torch.int64).share_memory_()

    def __call__(self, examples: dict[str, list]) -> dict[str, list]:
        rows = zip(examples[self.data_args.image_column_name], examples[self.data_args.label_column_name], strict=True)
        rows = [(image, self.ids[label]) for file, label in rows if (image := read_image(file, self.mode)) is not None]
        if not rows:
            raise ValueError("None of the images of a batch can be read; their files are named above.")
        images, labels = zip(*rows, strict=True)
        if self.augment:
            images = [self.change(image) for image in images]
        pixel_values = self.processor(list(images), return_tensors="pt")["pixel_values"]
        return {"pixel_values": list(pixel_values), "labels": list(labels)}

    def change(self, image: Image.Image) -> Image.Image:
        numbers = random.Random(self.seed + crc32(image.tobytes(), int(self.epoch)))
        width, height = (round(side * numbers.uniform(self.data_args.min_crop, 1)) for side in image.size)
        left, top = numbers.randint(0, image.width - width), numbers.randint(0, image.height - height)
        image = image.crop((left, top, left + width, top + height))
        if self.data_args.random_flip and numbers.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return image


def collate(examples: list[dict]) -> dict[str, torch.Tensor]:
    return {
        "pixel_values": torch.stack([example["pixel_values"] for example in examples]),
        "labels": torch.tensor([example["labels"] for example in examples]),
    }


class MixupTrainer(OrderedTrainer):
    """
    A Trainer that mixes each image of a batch with another one, and their labels likewise (Zhang et al., arXiv
    1710.09412). The share of the first is drawn from Beta(mixup, mixup), once per optimizer step, from a generator
    seeded by the seed and the step, so that a resumed training draws the same.
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
        return (loss, outputs) if return_outputs else loss


def main(args: list[str] | None = None) -> Trainer:
    """Run with these arguments, or those of the command line; returns the Trainer."""
    classes = (ModelArguments, DataTrainingArguments, TrainingArguments)
    model_args, data_args, training_args = parse_arguments(classes, args)
    check_arguments(model_args, training_args)
    check_data_arguments(data_args, training_args)
    config = load_config(model_args)
    checkpoint = find_checkpoint(training_args)
    training_args.remove_unused_columns = False  # the images are what the pixel values are made of
    set_seed(training_args.seed)

    datasets = load_images(data_args, training_args, model_args.cache_dir)
    names = {split: dataset.features[data_args.label_column_name].names for split, dataset in datasets.items()}
    if training_args.do_train:
        set_labels(config, names["train"], model_args, "ForImageClassification")
    known = config.id2label.values()
    ids = {split: number_names(dict.fromkeys(names[split], f"{split} images"), known, "The model") for split in names}
    ids = {split: [ids[split][class_name(name)] for name in names[split]] for split in names}
    model = load_model(AutoModelForImageClassification, model_args, config)
    if model_args.model_name_or_path is None:
        processor = lion_image_processor(config)
    else:
        processor = AutoImageProcessor.from_pretrained(model_args.model_name_or_path, cache_dir=model_args.cache_dir)

    callbacks = early_stopping(model_args)
    for split, count in (("train", data_args.max_train_samples), ("validation", data_args.max_eval_samples)):
        if split in datasets:
            dataset = datasets[split] if count is None else datasets[split].shuffle(seed=training_args.seed)
            dataset = limit_samples(dataset, count)
            is_train = split == "train"
            pixel_values = PixelValues(
                processor, config.num_channels, ids[split], data_args, augment=is_train, seed=training_args.seed
            )
            if data_args.dataset_name is not None:  # decoded by `PixelValues`, which knows the files
                dataset = dataset.cast_column(data_args.image_column_name, ImageColumn(decode=False))
            datasets[split] = dataset.with_transform(pixel_values)
            if is_train:
                callbacks.append(EpochCallback(pixel_values.epoch))
    trainer_class = OrderedTrainer if data_args.mixup == 0 else partial(MixupTrainer, mixup=data_args.mixup)
    trainer = trainer_class(
        model=model,
        args=training_args,
        data_collator=collate,
        train_dataset=datasets.get("train"),
        eval_dataset=datasets.get("validation"),
        processing_class=processor,
        compute_metrics=accuracy,
        callbacks=callbacks,
    )
    return train_and_evaluate(trainer, checkpoint)


if __name__ == "__main__":
    main()
