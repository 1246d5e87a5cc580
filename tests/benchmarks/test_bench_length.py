# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The benchmark of length runs, goes on where it was stopped, and scales positions without touching the weights."""

import importlib

import pytest
import torch


@pytest.fixture
def bench():
    return importlib.import_module("bench_length")


@pytest.mark.slow
def test_runs_once_and_reports(bench, tmp_path):
    args = ["--quick", "--output_dir", str(tmp_path), "--cache_dir", str(tmp_path / "cache"), "--tasks", "definitions"]
    bench.main([*args, "--models", "LION", "softmax (rotary)"])
    rows = importlib.import_module("measure").read_rows(tmp_path / "length.csv")
    cases = [(row["model"], row["length"], row["scaling"]) for row in rows]
    peer = [("softmax (rotary)", n, scaling) for n, scaling in ((128, "none"), (256, "none"), (256, "yarn"))]
    assert cases == [("LION", 128, "none"), ("LION", 256, "none"), *peer]
    assert [row["labels"] for row in rows] == [64, 32, 64, 32, 32]  # texts of 1024 tokens, with eight questions each
    page = (tmp_path / "recall.md").read_text(encoding="utf-8")
    assert f"| LION | 1 | {100 * rows[0]['accuracy']:.1f} | {100 * rows[1]['accuracy']:.1f} |" in page
    assert "| softmax (rotary), YaRN | 1 |  |" in page
    assert (tmp_path / "images" / "accuracy_by_length.png").stat().st_size > 5000
    bench.main([*args, "--models", "LION", "--times", "2"])
    assert [row["times"] for row in importlib.import_module("measure").read_rows(tmp_path / "length.csv")] == [
        1
    ] * 5 + [2] * 2
    text = (tmp_path / "length.csv").read_text()
    bench.main([*args, "--models", "LION", "softmax (rotary)"])
    assert (tmp_path / "length.csv").read_text() == text
    (tmp_path / "length.csv").write_text(text.replace("steps=2", "steps=3"))
    with pytest.raises(ValueError, match="of another experiment"):
        bench.main([*args, "--models", "LION"])


def models(bench) -> dict:
    trainings = importlib.import_module("trainings")
    experiment = trainings.replace(bench.SCALES["quick"]["definitions"].stages[0])
    config = {"vocab_size": 60, "max_position_embeddings": 128}
    data = trainings.Data(trainings.LionForTokenClassification, config, {}, None)
    found = {}
    for name, (base, fields) in bench.MODELS.items():
        of_model = trainings.replace(experiment, variant=fields(2))
        found[name] = bench.start(base, 0, of_model, data)
    return found


def test_contestants_are_equal_but_for_their_mixers(bench):
    found = models(bench)
    counts = [model.num_parameters() for model in found.values()]
    assert max(counts) <= 1.02 * min(counts)
    assert all(model.config.use_gated_mlp for model in found.values())
    types = {name: model.config.layer_types for name, model in found.items()}
    assert types["LION, last layer full"] == types["LION, last layer full, no positions"]
    assert types["windows alone"] == 2 * ["sliding_attention"]


def test_yarn_changes_nothing_but_frequencies(bench):
    torch.manual_seed(0)
    ids = torch.randint(1, 60, (1, 40))
    scaled = {}
    for name, model in models(bench).items():
        model.eval()
        scaled[name] = other = bench.scaled_by_yarn(model, 16, 64)
        if other is None:
            continue
        other.eval()
        assert all(torch.equal(x, model.state_dict()[key]) for key, x in other.state_dict().items())
        rope = other.config.rope_parameters
        yarn = rope if "rope_type" in rope else rope["full_attention"]
        assert yarn["rope_type"] == "yarn" and yarn["factor"] == 4
        with torch.no_grad():
            assert (other(ids).logits - model(ids).logits).abs().max() > 1e-5
        same = bench.scaled_by_yarn(model, 16, 16).eval()  # of a factor of 1, YaRN leaves the frequencies
        torch.testing.assert_close(same(ids).logits, model(ids).logits)
    assert [name for name, other in scaled.items() if other] == ["LION, last layer full", "softmax (rotary)"]
