# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""run_semantic_segmentation.py learns masks, measures all their pixels, writes masks, and says what is wrong."""

import json
import shutil
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import with_masks
from PIL import Image
from transformers import AutoImageProcessor, AutoModelForSemanticSegmentation, EvalPrediction

from modeling_lion import LionForImageClassification, lion_image_processor, lion_preset


TINY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
TINY |= {"image_size": 16, "patch_size": 4}
QUIET = ["--use_cpu", "--dataloader_pin_memory", "False", "--disable_tqdm", "True", "--report_to", "none"]
NAMES = ["ground", "red", "green"]
pytestmark = with_masks


def write_pair(folder: Path, name: str, numbers: np.random.Generator, suffix: str = ".png") -> None:
    """A rectangle of one of two colours on the ground, and its mask; the first rows do not count in some."""
    mask = np.zeros((24, 32), np.uint8)
    top, left = numbers.integers(0, 12), numbers.integers(0, 16)
    mask[top : top + 12, left : left + 16] = numbers.integers(1, 3)
    noise = numbers.integers(0, 30, (24, 32, 1))
    photo = np.stack([30 + 180 * (mask == 1), 30 + 180 * (mask == 2), 0 * mask + 60], axis=-1) + noise
    if numbers.random() < 0.3:
        mask[:3] = 255
    for kind, pixels, ending in (("images", photo, suffix), ("masks", mask, ".png")):
        path = (folder / kind / name).with_suffix(ending)
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder, numbers = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for split, count in (("train", 64), ("validation", 12)):
        for n in range(count):
            write_pair(folder / split, f"{'sub/' * (n % 2)}{n}", numbers, (".png", ".jpg")[n % 3 == 0])
        (folder / split / "classes.txt").write_text("".join(f"{name}\n" for name in NAMES))
    return folder


def arguments(folder: Path, output_dir: Path, *more: str) -> list[str]:
    overrides = ",".join(f"{name}={value}" for name, value in TINY.items())
    return [
        *("--config_name", "lion-image-small", "--config_overrides", overrides, "--output_dir", str(output_dir)),
        *("--train_dir", str(folder / "train"), "--validation_dir", str(folder / "validation"), *QUIET),
        *("--learning_rate", "5e-3", "--per_device_train_batch_size", "4", "--num_train_epochs", "2", *more),
    ]


def on_model(model: Path, args: list[str]) -> list[str]:
    """The same arguments for a trained model."""
    return ["--model_name_or_path", str(model), *args[4:]]


@pytest.mark.slow
def test_it_learns_and_its_masks_are_the_models(folder, tmp_path):
    module, out = import_module("run_semantic_segmentation"), tmp_path / "out"
    predict = ("--do_predict", "--predict_dir", str(folder / "validation"), "--per_device_eval_batch_size", "5")
    module.main(arguments(folder, out, "--do_train", "--do_eval", *predict, "--num_train_epochs", "4"))
    metrics = json.loads((out / "eval_results.json").read_text())
    assert metrics["eval_mean_iou"] > 0.3 and metrics["eval_pixel_accuracy"] > 0.7 and (out / "training.png").exists()
    assert (out / "predictions" / "classes.txt").read_text().split() == NAMES

    model = AutoModelForSemanticSegmentation.from_pretrained(out).eval()
    processor = AutoImageProcessor.from_pretrained(out)
    assert list(model.config.id2label.values()) == NAMES
    images = sorted(path for path in (folder / "validation" / "images").rglob("*.*"))
    seen = np.zeros((3, 3))  # right, predicted and there
    for path in images:
        mask = folder / "validation" / "masks" / path.relative_to(folder / "validation" / "images")
        mask = np.asarray(Image.open(mask.with_suffix(".png")))
        inputs = processor(Image.open(path), segmentation_maps=mask, return_tensors="pt")
        with torch.no_grad():
            logits = model(inputs["pixel_values"]).logits
        resized = [
            torch.nn.functional.interpolate(logits, size=size, mode="bilinear").argmax(1)[0].numpy()
            for size in (mask.shape, (16, 16))
        ]
        written = out / "predictions" / path.relative_to(folder / "validation" / "images").with_suffix(".png")
        with Image.open(written) as image:
            assert image.mode == "L" and (np.asarray(image) == resized[0]).mean() > 0.999  # ties by rounding
        labels = inputs["labels"][0].numpy()
        for number in range(3):
            there, found = labels == number, (resized[1] == number) & (labels != 255)
            seen[:, number] += (there & found).sum(), found.sum(), there.sum()
    assert len(list((out / "predictions").rglob("*.png"))) == len(images) == 12
    assert metrics["eval_pixel_accuracy"] == pytest.approx(seen[0].sum() / seen[2].sum(), abs=1e-3)
    assert metrics["eval_mean_iou"] == pytest.approx(np.mean(seen[0] / (seen[1] + seen[2] - seen[0])), abs=2e-3)


@pytest.mark.slow
def test_a_step_is_as_large_in_one_batch_as_in_several(folder, tmp_path):
    """SGD without clipping shows the size of the gradients."""
    module, weights = import_module("run_semantic_segmentation"), {}
    more = ("--do_train", "--max_steps", "1", "--optim", "sgd", "--max_grad_norm", "0", "--save_strategy", "no")
    for name, size, count, rate in (("none", 4, 1, "0"), ("one", 4, 1, "0.1"), ("several", 1, 4, "0.1")):
        sizes = ("--per_device_train_batch_size", str(size), "--gradient_accumulation_steps", str(count))
        args = arguments(folder, tmp_path / name, *more, *sizes, "--learning_rate", rate)
        weights[name] = torch.nn.utils.parameters_to_vector(module.main(args).model.parameters())
    one, several = (weights[name] - weights["none"] for name in ("one", "several"))
    assert (one - several).norm() < 0.2 * one.norm() > 0  # images have different numbers of pixels that count


@pytest.mark.slow
def test_it_goes_by_the_names_of_the_classes_and_starts_from_a_classifier(folder, tmp_path):
    module = import_module("run_semantic_segmentation")
    config = lion_preset("lion-image-small", **TINY, id2label={0: "cat", 1: "lion"})
    LionForImageClassification(config).save_pretrained(tmp_path / "classifier")
    lion_image_processor(config, image_mean=[0.1, 0.2, 0.3]).save_pretrained(tmp_path / "classifier")
    trained = on_model(tmp_path / "classifier", arguments(folder, tmp_path / "out", "--do_train", "--do_eval"))
    trainer = module.main(trained)
    assert [*trainer.processing_class.image_mean] == [0.1, 0.2, 0.3]
    assert [*trainer.model.config.id2label.values()] == NAMES
    before = json.loads((tmp_path / "out" / "eval_results.json").read_text())

    # Other numbers for the same names, as JSON.
    other = tmp_path / "other"
    shutil.copytree(folder / "validation", other / "validation")
    (other / "validation" / "classes.txt").unlink()
    (other / "validation" / "classes.json").write_text(json.dumps(["green", "ground", "red"]))
    for path in (other / "validation" / "masks").rglob("*.png"):
        pixels = np.asarray(Image.open(path))
        Image.fromarray(np.where(pixels == 255, 255, (pixels + 1) % 3).astype(np.uint8)).save(path)
    module.main(on_model(tmp_path / "out", arguments(other, tmp_path / "again", "--do_eval")))
    after = json.loads((tmp_path / "again" / "eval_results.json").read_text())
    for name in ("eval_loss", "eval_mean_iou", "eval_pixel_accuracy"):
        assert after[name] == pytest.approx(before[name])

    (other / "validation" / "classes.json").write_text(json.dumps(["green", "ground", "blue"]))
    with pytest.raises(ValueError, match=r"the labels ground, .*; the data has blue \(validation masks\)"):
        module.main(on_model(tmp_path / "out", arguments(other, tmp_path / "again", "--do_eval")))
    args = arguments(folder, tmp_path / "more", "--do_train", "--classes_file")
    args = on_model(tmp_path / "out", [*args, str(other / "validation" / "classes.json")])
    with pytest.raises(ValueError, match="classes blue of the training masks.*--ignore_mismatched_sizes"):
        module.main(args)


@pytest.mark.slow
def test_damaged_images_are_named_and_left_out(folder, tmp_path, caplog):
    module = import_module("run_semantic_segmentation")
    shutil.copytree(folder, tmp_path / "photos")
    for split in ("train", "validation"):
        first = sorted((tmp_path / "photos" / split / "images").glob("*.png"))[0]
        first.write_bytes(first.read_bytes()[:100])
    predict = ("--do_predict", "--predict_dir", str(tmp_path / "photos" / "validation" / "images"))
    args = arguments(tmp_path / "photos", tmp_path / "out", "--do_train", "--do_eval", *predict)
    trainer = module.main([*args, "--num_train_epochs", "1"])
    assert trainer.state.global_step == 16 and len(list((tmp_path / "out" / "predictions").rglob("*.png"))) == 11
    assert any(str(first) in message and "cannot be read" in message for message in caplog.messages)


def test_metrics_add_up_over_batches():
    module = import_module("run_semantic_segmentation")
    labels = torch.tensor([[[0, 0], [1, 255]], [[2, 2], [255, 0]], [[1, 1], [0, 0]]])
    logits = torch.nn.functional.one_hot(torch.tensor([[[0, 1], [1, 1]], [[2, 0], [0, 0]], [[1, 1], [0, 0]]]), 4)
    logits = logits.permute(0, 3, 1, 2).float()
    count, metrics = partial(module.count_pixels, ignore_index=255), module.Metrics()
    counts = count(logits, labels)
    pixels = [[1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]  # by class and predicted class
    assert counts[0].tolist() == pixels and count(logits, None) is logits
    for _ in range(2):  # it starts anew
        assert metrics(EvalPrediction(counts[:2], None), compute_result=False) == {}
        found = metrics(EvalPrediction(counts[2:], None), compute_result=True)
        assert found == pytest.approx({"mean_iou": (4 / 6 + 3 / 4 + 1 / 2) / 3, "pixel_accuracy": 8 / 10})
    nothing = count(logits, torch.full_like(labels, 255))
    assert metrics(EvalPrediction(nothing, None), compute_result=True) == {"mean_iou": 0, "pixel_accuracy": 0}


def test_masks_are_taken_as_they_are(tmp_path):
    """Also by a processor that was saved to leave class 0 out, as for ADE20k."""
    module, pixels = import_module("run_semantic_segmentation"), np.array([[0, 1], [2, 255]], np.uint8).repeat(8, 0)
    pixels = pixels.repeat(8, 1)
    Image.fromarray(pixels).save(tmp_path / "mask.png")
    config = lion_preset("lion-image-small", **TINY)
    processor = lion_image_processor(config, segmentation=True, do_reduce_labels=True)
    inputs = module.Inputs(processor, {0: 0, 1: 1, 2: 2, 255: 255})
    rows = {"image": [bytes(tmp_path / "mask.png")], "mask": [bytes(tmp_path / "mask.png")]}
    (labels,) = inputs(rows)["labels"]
    assert (labels.numpy() == pixels).all()


def test_masks_may_have_a_palette_or_two_classes(tmp_path):
    module = import_module("run_semantic_segmentation")
    pixels = np.array([[0, 1], [1, 255]], np.uint8)
    image = Image.fromarray(pixels)
    image.putpalette([255, 0, 0, 0, 255, 0] + [0, 0, 0] * 254)
    image.save(tmp_path / "palette.png")
    assert image.mode == "P" and (module.read_mask(tmp_path / "palette.png") == pixels).all()
    Image.fromarray(pixels > 0).save(tmp_path / "two.png")
    assert module.read_mask(tmp_path / "two.png").tolist() == [[0, 1], [1, 1]]


def test_a_photo_that_lies_on_its_side_has_the_size_in_which_it_is_read(tmp_path):
    module = import_module("run_semantic_segmentation")
    exif = Image.Exif()
    exif[0x0112] = 6  # its orientation
    Image.new("RGB", (8, 4)).save(tmp_path / "a.jpg", exif=exif)
    Image.new("L", (4, 8)).save(tmp_path / "a.png")
    module.check_masks([tmp_path / "a.jpg"], [tmp_path / "a.png"], 2, True)


def change_photos(folder: Path, change: str) -> None:
    """Make one thing wrong in the training folder."""
    images, masks = folder / "train" / "images", folder / "train" / "masks"
    if change == "no mask":
        (masks / "0.png").unlink()
    elif change == "a class too many":
        Image.fromarray(np.full((24, 32), 3, np.uint8)).save(masks / "0.png")
    elif change == "colours":
        Image.new("RGB", (32, 24)).save(masks / "0.png")
    elif change == "another size":
        Image.new("L", (16, 24)).save(masks / "0.png")
    elif change == "damaged":
        (masks / "0.png").write_bytes((masks / "0.png").read_bytes()[:50])
    elif change == "a double":
        Image.new("RGB", (32, 24)).save(images / "0.bmp")
    elif change == "no images":
        shutil.rmtree(images)
        images.mkdir()
    elif change == "no folder":
        shutil.rmtree(images)
    elif change == "no classes":
        (folder / "train" / "classes.txt").unlink()
    else:
        (folder / "train" / "classes.txt").write_text(change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("no mask", r"1 images have no mask, .*images/0.jpg for one: add .*masks/0.png"),
        ("a class too many", "masks/0.png has the class 3; there are 3, 0 to 2, and 255 for"),
        ("colours", "0.png is an image of mode RGB, no mask: write the number"),
        ("another size", "0.png has 16 × 24 pixels, .*0.jpg 32 × 24: resize the mask"),
        ("damaged", "0.png cannot be read .*: make it again"),
        ("a double", "0.bmp and .*0.jpg would have the same mask: rename one"),
        ("no images", "images has no images"),
        ("no folder", "images is no folder: put the images there"),
        ("no classes", "has no classes.txt: write the name of each class"),
        ("sky\n", "classes.txt has 1 classes: give 2 to 255"),
        ("sky\nsea\nsky", "classes.txt has the class 'sky' twice"),
        ("sky\n\nsea", "classes.txt is no list of names"),
    ],
)
def test_bad_folders(folder, tmp_path, change, message):
    photos = tmp_path / "photos"
    for kind, name in (("images", "0.jpg"), ("masks", "0.png"), (".", "classes.txt")):
        (photos / "train" / kind).mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / "train" / kind / name, photos / "train" / kind)
    change_photos(photos, change)
    with pytest.raises(ValueError, match=message):
        import_module("run_semantic_segmentation").main(arguments(photos, tmp_path / "out", "--do_train"))
    assert not (tmp_path / "out" / "config.json").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ((), "nothing to do"),
        (("--do_train", "--train_dir", "missing"), "--train_dir missing does not exist"),
        (("--do_train", "--train_dir", __file__), "is a file: give the folder"),
        (("--do_train", "--classes_file", "missing"), "--classes_file missing does not exist"),
        (("--do_train", "--predict_dir", "x"), "Give --do_predict and --predict_dir together"),
        (("--do_train", "--label_smoothing_factor", "0.1"), "--label_smoothing_factor is not for masks"),
        (("--do_train", "--config_overrides", "num_channels=1"), "processors for segmentation make RGB images"),
        (("--do_predict",), "--config_name makes untrained weights"),
    ],
)
def test_contradictions(folder, tmp_path, more, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        import_module("run_semantic_segmentation").main(arguments(folder, tmp_path / "out", *more))
