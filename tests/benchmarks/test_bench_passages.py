# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The benchmark of passages runs, goes on where it was stopped, and controls begin with the checkpoint's weights."""

from argparse import Namespace
from importlib import import_module
from pathlib import Path

import pytest
import torch
from hub_checkpoints import text_checkpoint
from measure import read_rows
from sentence_checkpoints import sentence_checkpoint
from transformers import AutoModel


ANIMALS = ["lion", "owl", "wolf", "bear", "crane", "otter"]


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """With a small encoder and a few documents."""
    module = import_module("bench_passages")
    checkpoint = text_checkpoint(tmp_path / "model", "LionModel", pooling="mean")
    sentence_checkpoint(tmp_path / "lion-minilm-l6", checkpoint)
    passages = ["It sleeps in the shade of tall trees all day.", "It hunts at dawn, with its pride, in the grass."]
    text = "\n\n".join(f"{passage} {'It roars, and hunts at night. ' * 20}" for passage in passages * 3)
    documents = [module.sources.NamedText(f"the {animal}", text) for animal in ANIMALS]
    monkeypatch.setattr(module, "CHECKPOINTS", tmp_path)
    monkeypatch.setattr(module.sources, "guides_of_packages", lambda *args: documents)
    monkeypatch.setattr(module, "UNTRAINED", {"lion-minilm-l6": ["pieces", "one pass with names"]})
    files = tmp_path / "data" / "train.jsonl", tmp_path / "data" / "validation.jsonl"
    for file in files:
        module.sources.write_documents(file, documents)
    return module


def run(bench, tmp_path, *args: str) -> list[dict]:
    arguments = ["--teacher", str(tmp_path / "lion-minilm-l6"), "--output_dir", str(tmp_path / "out")]
    bench.main([*arguments, "--data_dir", str(tmp_path / "data"), *args])
    return read_rows(tmp_path / "out" / "passages.csv")


def test_it_measures_once(bench, tmp_path):
    rows = run(bench, tmp_path)
    assert run(bench, tmp_path) == rows  # it finds everything done
    assert {row["reading"] for row in rows} == {"pieces", "one pass with names"}
    of_pieces = [row for row in rows if row["reading"] == "pieces"]
    assert of_pieces[0]["queries"] == sum(row["queries"] for row in of_pieces[1:]) > len(ANIMALS)
    assert (of_pieces[0]["min_place"], of_pieces[0]["max_place"]) == bench.EVERYWHERE
    assert of_pieces[0]["time_of_pieces"] > 0
    # All documents are the same, so that pieces without names tell none of them.
    assert all(row["with_names"] == 0 for row in of_pieces)
    page = (tmp_path / "out" / "retrieval.md").read_text(encoding="utf-8")
    row = next(row for row in rows if row["reading"] == "one pass with names")
    score = f"{row['with_names']:.3f} ± {row['with_names_error']:.3f}"
    assert f"| lion-minilm-l6, one pass with names | {score} |" in page


def test_errors_allow_for_queries_of_one_document(bench):
    """Clusters of one size: the error is that of their means. Clusters of one value: that of independent values."""
    generator = torch.Generator().manual_seed(0)
    values = torch.rand(8, 5, generator=generator) + torch.rand(8, 1, generator=generator)
    order = torch.randperm(40, generator=generator)
    clusters = 7 * torch.arange(8).repeat_interleave(5)
    mean, error = bench.mean_and_error(values.flatten()[order], clusters[order])
    assert mean == pytest.approx(values.mean().item())
    assert error == pytest.approx(values.mean(1).std().item() / 8**0.5)
    _, error = bench.mean_and_error(values.flatten(), torch.arange(40))
    assert error == pytest.approx(values.std().item() / 40**0.5)
    # Clusters of several sizes, by the definition.
    clusters = torch.tensor([0, 0, 0, 1, 1, 2])
    _, error = bench.mean_and_error(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 9.0]), clusters)
    assert error == pytest.approx((3 / 2 * (6**2 + 1**2 + 5**2)) ** 0.5 / 6)


def test_a_control_is_of_what_it_was_made_of(bench, tmp_path, monkeypatch):
    """Another start, teacher, data, or argument makes another folder; nothing else does."""
    teacher, data = str(tmp_path / "model"), tmp_path / "data"

    def folder(start: str = "lion-minilm-l6", reading: str = "one pass", seed: int = 0, **changed) -> Path:
        defaults = {
            "data_dir": data,
            "steps": 60,
            "document_tokens": 2048,
            "training_dtype": "bfloat16",
            "lora_rank": None,
        }
        args = Namespace(**defaults | changed)
        found, arguments = bench.find_control(args, start, reading, seed, teacher)
        assert arguments[arguments.index("--output_dir") + 1] == str(found)
        return found

    first = folder()
    assert folder() == first
    changed = [folder(steps=61), folder(document_tokens=1024), folder(seed=1), folder(reading="pieces")]
    changed += [folder(training_dtype="float32"), folder(lora_rank=4)]
    monkeypatch.setattr(bench, "TRAINING_ARGUMENTS", [*bench.TRAINING_ARGUMENTS, "--warmup_steps", "3"])
    changed.append(folder())
    file = data / "train.jsonl"
    file.write_text(file.read_text() + file.read_text().splitlines()[0] + "\n")
    changed.append(folder())
    for encoder in (tmp_path / "lion-minilm-l6", Path(teacher)):
        model = AutoModel.from_pretrained(encoder, add_pooling_layer=False)
        model.layers[0].mlp.up_proj.weight.data += 1
        model.save_pretrained(encoder)
        changed.append(folder())
    assert len({first, *changed}) == len(changed) + 1


@pytest.mark.filterwarnings("ignore:.*bfloat16.*")  # a CPU without products in it says so
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft reads it
@pytest.mark.parametrize("rank", [[], ["--lora_rank", "2"]], ids=["all weights", "an adapter"])
def test_a_control_is_trained_and_measured(bench, tmp_path, rank):
    rows = run(bench, tmp_path, *("--encoders", "--trained", "one pass", "--steps", "1", *rank))
    assert {(row["encoder"], row["reading"], row["steps"], row["lora_rank"]) for row in rows} == {
        ("lion-minilm-l6", "one pass", 1, 2 if rank else None)
    }
    assert run(bench, tmp_path, *("--encoders", "--trained", "one pass", "--steps", "1", *rank)) == rows
