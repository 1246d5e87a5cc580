# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The search is as hard for every contestant, goes on where it was stopped, and chooses by the validation split."""

import importlib

import pytest


@pytest.fixture
def bench():
    return importlib.import_module("bench_search")


@pytest.fixture
def trainings():
    return importlib.import_module("trainings")


@pytest.fixture
def trials():
    return importlib.import_module("peers.trials")


def test_contestants_have_equally_many_different_trials(trials):
    for contestant in trials.CONTESTANTS:
        settings = trials.trials_of(contestant)
        assert len(settings) == trials.TRIALS >= 8 and settings[0] == {}
        assert all(settings.count(setting) == 1 for setting in settings)
    shared = [trials.trials_of(contestant)[:-2] for contestant in trials.CONTESTANTS]
    assert all(settings == shared[0] for settings in shared)
    assert trials.SEARCH_SEED not in trials.SEEDS and len(trials.SEEDS) == 3


@pytest.mark.slow
def test_every_trial_is_a_model_of_equal_parameters(bench, trainings, trials):
    experiment = bench.SCALES["cpu"]["recall"]
    data, counts = trainings.Data(trainings.LionForTokenClassification, {"vocab_size": 300}, {}, None), []
    configs = {}
    for contestant in trials.CONTESTANTS:
        for trial in trials.trials_of(contestant):
            name, made = bench.make_experiment(contestant, trial, experiment)
            config = trainings.make_config(name, made, data)
            counts.append(trainings.count(name, config, data, made.rms_norm))
            configs.setdefault(contestant, []).append(
                (config.to_dict(), made.learning_rate, made.fan_in, made.rms_norm)
            )
            for field, value in trial.items():
                if field == "rate":
                    assert made.learning_rate == value * experiment.learning_rate
                elif field == "norm_type":
                    assert made.rms_norm
                elif field != "fan_in":
                    assert getattr(config, field) == value
        first = configs[contestant][0][0]
        assert first["use_gated_mlp"]  # as LION is recommended
    assert max(counts) <= 1.02 * min(counts)
    for found in configs.values():  # no trial is another one under a new name
        assert all(found.count(case) == 1 for case in found)
    assert {trial[0]["num_key_heads"] for trial in configs["LION, one key head"]} == {1, 2}
    hybrid = configs["LION, last layer full"][0][0]
    assert hybrid["layer_types"][-1] == "full_attention" and set(hybrid["layer_types"][:-1]) == {"linear_attention"}


def test_choice_is_by_validation(bench):
    columns = ("trial", "validation_accuracy", "validation_loss", "test_accuracy")
    cells = [(0, 0.5, 0.1, 0.9), (1, 0.7, 0.9, 0.2), (2, 0.7, 0.8, 0.1)]
    assert bench.best_trial([dict(zip(columns, row, strict=True)) for row in cells])["trial"] == 2


@pytest.fixture
def instead_of_training(bench, trainings, monkeypatch):
    """Scores that a training would have had: the rate decides them."""
    trained = []

    def train(name, seed, experiment, data, cache_dir, record):
        trained.append((name, seed, experiment.steps, experiment.learning_rate))
        score = 100 * experiment.learning_rate
        row = dict.fromkeys(trainings.METRICS) | {"validation_accuracy": score, "validation_loss": -score}
        return row | {
            "test_accuracy": score / 2,
            "chance": 0.1,
            "parameters": 1000 + 3 * len(name),
            "train_seconds": 1.0,
        }

    monkeypatch.setattr(bench, "train", train)
    monkeypatch.setattr(bench, "interleaved", lambda steps, repeats: {x: [len(x) / len("LION")] for x in steps})
    return trained


def test_a_search_goes_on_and_is_reported(bench, trials, instead_of_training, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.import_module("report"), "PICTURES", {})
    args = ["--quick", "--tasks", "recall", "--output_dir", str(tmp_path), "--cache_dir", str(tmp_path / "cache")]
    bench.main([*args, "--contestants", "Hydra"])
    rows = bench.read_rows(tmp_path / "search.csv")
    assert [row["stage"] for row in rows] == ["trial"] * 8 + ["equal steps"] * 3  # no time of LION yet
    assert {row["trial"] for row in rows[8:]} == {2} and [row["seed"] for row in rows] == [0] * 8 + [1, 2, 3]
    assert trials.trials_of("Hydra")[2] == {"rate": 4.0}
    lines = (tmp_path / "search.csv").read_text().splitlines(keepends=True)
    (tmp_path / "search.csv").write_text("".join(lines[:3]))
    bench.main([*args, "--contestants", "Hydra", "LION"])
    rows = bench.read_rows(tmp_path / "search.csv")
    assert len(rows) == 2 * (8 + 3 + 3) and len(instead_of_training) == 11 + 28 - 2
    last = [row for row in rows if row["stage"] == "equal time"]
    # Three steps; a step of Hydra takes 5/4 of LION's here, by the letters of their names.
    assert [(row["contestant"], row["steps"]) for row in last] == [("Hydra", 2)] * 3 + [("LION", 3)] * 3
    page = (tmp_path / "recall.md").read_text(encoding="utf-8")
    assert "| Hydra | 20.0 ± 0.0 (3) | 20.0 ± 0.0 (2) |" in page
    assert "differ by at most 0.3 %" in page
    bench.main([*args, "--contestants", "Hydra", "LION"])
    assert len(instead_of_training) == 11 + 28 - 2
    text = (tmp_path / "search.csv").read_text()
    (tmp_path / "search.csv").write_text(text.replace("steps=3", "steps=4"))
    with pytest.raises(ValueError, match="another training"):
        bench.main([*args, "--contestants", "Hydra"])


def test_one_trial_alone_is_not_trained_to_be_chosen(bench, instead_of_training, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.import_module("report"), "PICTURES", {})
    args = ["--quick", "--tasks", "recall", "--output_dir", str(tmp_path), "--cache_dir", str(tmp_path / "cache")]
    bench.main([*args, "--contestants", "Hydra", "LION", "--trials", "1"])
    found = [(row["contestant"], row["stage"], row["trial"]) for row in bench.read_rows(tmp_path / "search.csv")]
    assert found == [
        (name, stage, 0) for stage in ("equal steps", "equal time") for name in ("Hydra", "LION") for _ in range(3)
    ]


@pytest.mark.slow
def test_it_trains(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.import_module("report"), "PICTURES", {})
    monkeypatch.setattr(bench, "SEEDS", (1,))
    args = ["--quick", "--tasks", "recall", "--output_dir", str(tmp_path), "--cache_dir", str(tmp_path / "cache")]
    bench.main([*args, "--contestants", "LION", "LION, last layer full"])
    rows = bench.read_rows(tmp_path / "search.csv")
    assert len(rows) == 2 * (8 + 1 + 1) and all(0 <= row["test_accuracy"] <= 1 for row in rows)
    assert max(row["parameters"] for row in rows) <= 1.02 * min(row["parameters"] for row in rows)
