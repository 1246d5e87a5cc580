# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The benchmark of passages runs, goes on where it was stopped, and controls begin with the checkpoint's weights."""

from importlib import import_module

import pytest
import torch
from hub_checkpoints import text_checkpoint
from measure import read_rows
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from transformers import AutoModel


ANIMALS = ["lion", "owl", "wolf", "bear", "crane", "otter"]


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """With a small encoder and a few documents."""
    module = import_module("bench_passages")
    transformer = Transformer(str(text_checkpoint(tmp_path / "model", "LionModel", pooling="mean")))
    modules = [transformer, Pooling(32, pooling_mode="mean"), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(tmp_path / "lion-minilm-l6"))
    passages = ["It sleeps in the shade of tall trees all day.", "It hunts at dawn, with its pride, in the grass."]
    text = "\n\n".join(f"{passage} {'It roars, and hunts at night. ' * 20}" for passage in passages * 3)
    documents = [module.sources.Document(f"the {animal}", text) for animal in ANIMALS]
    monkeypatch.setattr(module, "CHECKPOINTS", tmp_path)
    monkeypatch.setattr(module, "test_documents", lambda packages, cache_dir: documents)
    monkeypatch.setattr(module, "UNTRAINED", {"lion-minilm-l6": ["pieces", "one pass with names"]})
    monkeypatch.setattr(module, "STARTS", {"softmax in half": ["linear_attention", "full_attention"]})
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
    assert sum(row["queries"] for row in of_pieces) > len(ANIMALS) and of_pieces[0]["time_of_pieces"] > 0
    # All documents are the same, so that pieces without names tell none of them.
    assert all(row["with_names"] == 0 for row in of_pieces)
    page = (tmp_path / "out" / "retrieval.md").read_text(encoding="utf-8")
    assert "| lion-minilm-l6, one pass with names |" in page


@pytest.mark.filterwarnings("ignore:.*bfloat16.*")  # a CPU without products in it says so
def test_a_control_begins_with_the_weights_of_the_checkpoint(bench, tmp_path):
    folder = bench.make_start("softmax in half", "", tmp_path / "data")
    start, checkpoint = (AutoModel.from_pretrained(x, add_pooling_layer=False) for x in (folder, tmp_path / "model"))
    assert start.config.layer_types == ["linear_attention", "full_attention"]
    weights = checkpoint.state_dict()
    assert all(torch.equal(weights[name], weight) for name, weight in start.state_dict().items())
    args = ("--encoders", "--starts", "softmax in half", "--trained", "one pass", "--steps", "1")
    rows = run(bench, tmp_path, *args)
    assert {(row["encoder"], row["reading"], row["steps"], row["seed"]) for row in rows} == {
        ("softmax in half", "one pass", 1, 0)
    }
