# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""bench_deploy.py and bench_precision.py: what they measure, of small models in torch, and the tables made of it."""

from importlib import import_module

import pytest
import torch
from transformers import BertConfig, BertModel

from modeling_lion import LionConfig, LionModel


SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
IN_TORCH = [("torch", "float32"), ("torch", "int8")]


@pytest.fixture
def deploy(monkeypatch):
    bench = import_module("bench_deploy")

    report = import_module("reports.deploy")

    def make_encoder(name, layers, longest):
        torch.manual_seed(0)
        sizes = SIZES | {"vocab_size": 30_000, "max_position_embeddings": longest}
        return (BertModel(BertConfig(**sizes)) if name == "BERT" else LionModel(LionConfig(**sizes))).eval()

    monkeypatch.setattr(bench, "make_encoder", make_encoder)
    monkeypatch.setattr(bench, "RUNTIMES", IN_TORCH)
    monkeypatch.setattr(bench, "LONG", 9)
    monkeypatch.setattr(report, "MEASURED_LAYERS", dict.fromkeys(report.LAYERS, 1))
    monkeypatch.setattr(bench, "limit_memory", lambda: None)
    monkeypatch.setattr(bench, "in_new_process", lambda function, *args: function(*args))
    monkeypatch.setattr(bench, "write_pages", lambda folder: None)
    return bench


@pytest.mark.slow
def test_documents_are_measured(deploy, tmp_path):
    arguments = ["--models", "BERT", "LION-S", "--repeats", "2", "--output_dir", str(tmp_path)]
    deploy.main(["--lengths", "40", "9", *arguments])
    rows = import_module("measure").read_rows(tmp_path / "deploy.csv")
    assert [(row["dtype"], row["model"], row["length"]) for row in rows] == [
        (dtype, name, length) for _, dtype in IN_TORCH for name in ("BERT", "LION-S") for length in (9, 40)
    ]
    for row in rows:
        assert row["median"] > 0 and row["peak_memory_bytes"] > 2**20 and row["layers"] == 1
        assert (row["error"] == 0) == (row["dtype"] == "float32") and row["error"] < 0.1
    theirs, ours = rows[1]["median"], rows[3]["median"]
    # Whole models: both have 12 layers, of which one was measured.
    text = import_module("reports.deploy").documents(lambda name: rows)
    seconds = import_module("reports.cells").duration
    assert f"| 40 | torch float32 | {seconds(12 * theirs)} | {seconds(12 * ours)}, {ours / theirs:.2f} |" in text


@pytest.mark.slow
def test_a_document_without_memory_is_a_row_without_a_time(deploy, tmp_path, monkeypatch):
    compute = deploy.hidden_states

    def fail(encode, inputs):
        if inputs["input_ids"].shape[1] > 9 and isinstance(encode, BertModel):
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return compute(encode, inputs)

    monkeypatch.setattr(deploy, "hidden_states", fail)
    deploy.main(["--lengths", "9", "40", "--models", "BERT", "LION-S", "--output_dir", str(tmp_path)])
    rows = import_module("measure").read_rows(tmp_path / "deploy.csv", length=40, dtype="float32")
    assert [row["median"] is None for row in rows] == [True, False]
    text = import_module("reports.deploy").documents(import_module("report").reader(tmp_path))
    assert "| 40 | torch float32 | no memory |" in text


@pytest.mark.slow
def test_what_a_task_loses(tmp_path, monkeypatch):
    bench = import_module("bench_precision")
    monkeypatch.setattr(bench, "RUNTIMES", IN_TORCH)
    monkeypatch.setattr(bench, "TRAINED", ("softmax (rotary)", "LION-LIT"))
    monkeypatch.setattr(bench, "write_pages", lambda *args: None)
    bench.main(["--quick", "--tasks", "mlm", "--output_dir", str(tmp_path), "--cache_dir", str(tmp_path / "cache")])
    rows = import_module("measure").read_rows(tmp_path / "precision.csv")
    assert [(row["model"], row["dtype"]) for row in rows] == [
        (name, dtype) for name in ("softmax (rotary)", "LION-LIT") for _, dtype in IN_TORCH
    ]
    assert all(row["kept"] == 1 for row in rows if row["dtype"] == "float32")
    assert all(0 <= row["kept"] <= 1 and 0 < row["score"] < 10 for row in rows)
    assert import_module("reports.precision").losses(lambda name: rows).count("masked-LM loss") == 2


def test_share_kept():
    share = import_module("bench_precision").share_kept
    assert share(torch.tensor([1, 2, 3, 4]), torch.tensor([1, 0, 3, 4])) == 0.75
    assert share(torch.tensor([[1, 2], [3, 4]]), torch.tensor([[2, 1], [4, 5]])) == 0.75
