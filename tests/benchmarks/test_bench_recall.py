# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The comparison of mixers runs, goes on where it was stopped, compares equals, and reports what it found."""

import importlib

import pytest


@pytest.fixture
def bench():
    return importlib.import_module("bench_recall")


@pytest.fixture
def trainings():
    return importlib.import_module("trainings")


@pytest.mark.slow
def test_runs_once_and_reports(bench, tmp_path):
    out = tmp_path / "out"
    args = ["--quick", "--tasks", "neighbour", "--models", "softmax", "LION-S", "--output_dir", str(out)]
    args += ["--cache_dir", str(tmp_path / "cache")]
    bench.main(args)
    path = out / "recall.csv"
    rows = importlib.import_module("measure").read_rows(path)
    assert [row["model"] for row in rows] == ["softmax", "LION-S"]
    page = (out / "recall.md").read_text(encoding="utf-8")
    scores = [f"{100 * rows[-1][name]:.1f}" for name in ("test_accuracy", "longer_accuracy")]
    assert f"| LION-S | default | {' | '.join(scores)} |" in page

    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([lines[0], *lines[2:], ""]), encoding="utf-8")
    bench.main(args)
    found = path.read_text(encoding="utf-8").splitlines()
    assert found[:2] == [lines[0], lines[2]] and len(found) == 3
    assert found[2].startswith("quick,neighbour,softmax,0,")
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("steps=3", "steps=4"), encoding="utf-8")
    with pytest.raises(ValueError, match="of another experiment"):
        bench.main(args)


@pytest.mark.slow
def test_every_token_is_labelled_and_longer_examples_are_read(bench, trainings, tmp_path):
    experiment = bench.SCALES["quick"]["neighbour"]
    data = trainings.load_data("neighbour", experiment, tmp_path)
    length = experiment.task["length"]
    batch = data.collate([data.splits["test"][0], {"input_ids": [1, 2], "labels": [0, 1]}])
    assert batch["attention_mask"].sum(1).tolist() == [length, 2] and (batch["labels"][1, 2:] == -100).all()
    assert len(data.splits["longer"][0]["input_ids"]) == 8 * length
    for model in ("LION-S", "softmax"):  # which has positions for the training length only
        row = trainings.train(model, 0, experiment, data, tmp_path)
        assert 0 <= row["test_accuracy"] < 0.5 and (row["longer_accuracy"] is None) == (model == "softmax")
        trainings.make_step(model, experiment, data)()


def test_variants_are_rows_of_the_same_table(bench, trainings, tmp_path, monkeypatch, capsys):
    seen, trained = [], []

    def instead_of_training(name, seed, experiment, data, cache_dir):
        seen.append(trainings.make_config(name, experiment, data))
        trained.append((experiment.steps, experiment.learning_rate))
        return dict.fromkeys(bench.METRICS, 0.1) | {"chance": 0.1, "parameters": 1, "train_seconds": 1.0}

    monkeypatch.setattr(bench, "train", instead_of_training)
    monkeypatch.setattr(bench, "write_pages", lambda *args: None)
    args = ["--scale", "quick", "--tasks", "neighbour", "--models", "LION-D", "softmax", "--seeds", "0"]
    args += ["--output_dir", str(tmp_path), "--cache_dir", str(tmp_path / "cache")]
    variant = ["--set", "pooling=mean", "--set", "initializer_range=0.50"]
    for _ in range(2):  # the second time, everything is there
        bench.main(args)
        bench.main([*args, *variant])
    bench.main([*args, *variant[2:], *variant[:2]])
    rows = importlib.import_module("measure").read_rows(tmp_path / "recall.csv")
    names = [None, None, *2 * ["initializer_range=0.5 pooling=mean"]]
    assert [row["variant"] for row in rows] == names and len({row["settings"] for row in rows}) == 1
    assert [config.pooling for config in seen] == [*2 * ["cls"], *2 * ["mean"]]
    assert [config.initializer_range for config in seen] == [0.02, 0.02, 0.5, 0.5]
    bench.main([*args, "--set", "steps=5", "--set", "learning_rate=4e-3"])
    assert (
        importlib.import_module("measure").read_rows(tmp_path / "recall.csv")[-1]["variant"]
        == "learning_rate=0.004 steps=5"
    )
    assert trained == [*4 * [(3, 1e-3)], *2 * [(5, 4e-3)]]
    for wrong, message in (
        ("poling=mean", "did you mean pooling"),
        ("pooling", "FIELD=VALUE"),
        ("intermediate_size=8", "equal parameters"),
    ):
        with pytest.raises(SystemExit):
            bench.main([*args, "--set", wrong])
        assert message in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["cpu", "gpu"])
def test_parameters_are_equal(bench, trainings, scale):
    data = trainings.Data(trainings.LionForTokenClassification, {"vocab_size": 300}, {}, None)
    for experiment in bench.SCALES[scale].values():
        counts = [
            trainings.count(model, trainings.make_config(model, experiment, data), data) for model in bench.TEXT_MODELS
        ]
        assert max(counts) <= 1.01 * min(counts)


@pytest.mark.slow
def test_a_mixer_from_elsewhere_is_a_model(bench, tmp_path, own_mixer):
    args = ["--quick", "--tasks", "recall", "--models", "softmax", "--mixers", str(own_mixer)]
    bench.main([*args, "--output_dir", str(tmp_path / "out"), "--cache_dir", str(tmp_path / "cache")])
    rows = importlib.import_module("measure").read_rows(tmp_path / "out" / "recall.csv")
    assert [row["model"] for row in rows] == ["softmax", own_mixer.stem] and rows[1]["test_accuracy"] is not None
    page = (tmp_path / "out" / "recall.md").read_text(encoding="utf-8")
    assert f"| {own_mixer.stem} | default | {100 * rows[1]['test_accuracy']:.1f} |" in page


def test_all_variants_are_in_one_table():
    types = lambda *words: "layer_types=" + str([f"{word}_attention" for word in words]).replace("'", '"')
    rows = [
        ("recall", "LION-S", None, 0.8, None),
        ("recall", "LION-S", None, 0.9, None),
        ("recall", "LION-S", "pooling=mean", 0.7, None),
        ("recall", "LION-S", "learning_rate=0.1 steps=60", 0.9, None),
        ("recall", "LION-S", "learning_rate=0.1 steps=60", float("nan"), None),  # it diverged
        ("neighbour", "LION", f"{types('linear', 'linear', 'sliding')} sliding_window=8", 1.0, 0.5),
        ("recall", "LION", f"conv_kernel=0 head_directions=both {types('full', 'full')}", 1.0, None),
        ("recall", "LION", None, 0.2, None),
        ("recall", "a mixer of one's own", None, 0.4, None),
    ]
    columns = ("task", "model", "variant", "test_accuracy", "longer_accuracy")
    rows = [dict(zip(columns, row, strict=True)) for row in rows]
    recall = importlib.import_module("reports.recall").recall
    lines = recall(lambda name: rows).splitlines()
    assert lines[0] == "| model | variant | recall, test % | neighbour, test % | neighbour, longer, test % |"
    assert lines[2:] == [
        "| LION | default | 20.0 |  |  |",
        "| LION | layers FF conv_kernel=0 head_directions=both | 100.0 |  |  |",
        "| LION | layers LLS sliding_window=8 |  | 100.0 | 50.0 |",
        "| LION-S | default | 85.0 ± 7.1 |  |  |",
        "| LION-S | learning_rate=0.1 steps=60 | 90.0 |  |  |",
        "| LION-S | pooling=mean | 70.0 |  |  |",
        "| a mixer of one's own | default | 40.0 |  |  |",
        "",
        "Mean ± standard deviation of 2 seeds, or one seed.",
    ]
    assert recall(lambda name: []) == ""
