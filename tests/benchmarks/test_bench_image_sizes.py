# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Images larger than in training: positions as transformers interpolates them, and rows of all sizes."""

from importlib import import_module

import numpy as np
import pytest
import torch
from measure import read_rows
from PIL import Image
from transformers import ViTConfig, ViTForImageClassification


@pytest.fixture
def bench():
    return import_module("bench_image_sizes")


@pytest.fixture
def clipart():
    return import_module("tasks.clipart")


def test_positions_are_interpolated_as_transformers_does_it(bench):
    torch.manual_seed(0)
    config = ViTConfig(image_size=bench.TRAINED * bench.PATCH, patch_size=bench.PATCH, **bench.SHAPE)
    model = ViTForImageClassification(config).eval()
    torch.nn.init.normal_(model.vit.embeddings.position_embeddings)
    images = bench.scaled(np.random.default_rng(0).integers(0, 256, (2, 90, 90, 3), dtype=np.uint8), 28)
    with torch.no_grad():
        expected = model(images, interpolate_pos_encoding=True).logits
        torch.testing.assert_close(bench.with_size(model, 28)(images).logits, expected, atol=0, rtol=0)
        same = images[..., : bench.TRAINED * bench.PATCH, : bench.TRAINED * bench.PATCH]
        assert torch.equal(bench.with_size(model, bench.TRAINED)(same).logits, model(same).logits)


def test_pictures_are_cut_and_scaled(bench):
    """A picture of one colour stays so; one with halves keeps them, in order or mirrored."""
    white = bench.scaled(np.full((1, 50, 50, 3), 255, np.uint8), 2)
    assert white.shape == (1, 3, 8, 8) and bool((white == 1).all())
    halves = np.zeros((1, bench.SIDE, bench.SIDE, 3), np.uint8)
    halves[:, bench.SIDE // 2 :] = 255
    pictures = bench.Pictures(halves, np.array([3]))
    torch.manual_seed(0)
    for row in (pictures[0] for _ in range(5)):
        assert row["labels"] == 3 and row["pixel_values"].shape == (3, 56, 56)
        assert bool((row["pixel_values"][:, :8] < -0.9).all() and (row["pixel_values"][:, -8:] > 0.9).all())


def save(folder, name: str, pixels: np.ndarray) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(folder / name)


def test_clip_art_is_chosen_and_split(clipart, tmp_path, monkeypatch):
    monkeypatch.setattr(clipart, "OF_A_FOLDER", 3)
    monkeypatch.setattr(clipart, "FEWEST", 3)
    monkeypatch.setattr(clipart, "MOST_PIXELS", 100)
    generator = np.random.default_rng(0)
    draw = lambda *size: generator.integers(0, 256, (*size, 3), dtype=np.uint8)
    for n in range(5):
        save(tmp_path / "animals" / "birds", f"owl_{n}.png", draw(8, 8))
        save(tmp_path / "unsorted" / "x", f"{n}.png", draw(8, 8))
    same = draw(8, 8)
    for n in range(3):  # one of them, with two others
        save(tmp_path / "food" / "fruit", f"same{n}.png", same)
    save(tmp_path / "food" / "fruit", "large.png", draw(20, 20))
    save(tmp_path / "food" / "fruit", "fig.png", draw(5, 9))
    save(tmp_path / "food" / "nuts", "nut.png", draw(9, 5))
    save(tmp_path / "plants" / "trees", "oak.png", draw(8, 8))  # too few
    chosen = clipart.choose(tmp_path)
    assert [category for category, *_ in chosen] == ["animals"] * 3 + ["food"] * 3
    assert {group for _, group, _ in chosen} == {"animals/owl_", "food/same", "food/fig", "food/nut"}
    assert clipart.choose(tmp_path) == chosen


@pytest.mark.slow
def test_all_sizes_are_measured_once(bench, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    arguments = ["--quick", "--data", str(tmp_path / "data"), "--output_dir", str(tmp_path / "out")]
    bench.main(arguments)
    rows = read_rows(tmp_path / "out" / "image_sizes.csv")
    assert [(row["model"], row["patches"], row["tokens"]) for row in rows] == [
        ("ViT", 14, 197),
        *((model, 28, 785) for model in bench.MODELS),
    ]
    assert all(row["median"] > 0 and "data=noise" in row["settings"] for row in rows)
    assert all(row["pictures"] == 24 and row["most_frequent"] == pytest.approx(1 / 3) for row in rows)
    assert all(row["same_as_vit"] == 1 for row in rows if row["model"] == "ViT")
    bench.main(arguments)
    assert read_rows(tmp_path / "out" / "image_sizes.csv") == rows
    page = (tmp_path / "out" / "real.md").read_text(encoding="utf-8")
    assert "| linear, 28 × 28 | 785 |" in page and "| always the most frequent category |  | 33.3 |" in page


def test_all_pictures_that_are_not_trained_on_count(bench):
    data = bench.noise()
    pictures, labels = bench.held_out(data)
    assert (pictures == np.concatenate([data["validation"], data["test"]])).all()
    assert labels.tolist() == [*data["validation labels"], *data["test labels"]]
