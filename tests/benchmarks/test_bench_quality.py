# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The comparison of mixers runs, goes on where it was stopped, compares equals, and reports what it found."""

import importlib
import math
import sys

import pytest
import torch


@pytest.fixture
def bench():
    return importlib.import_module("bench_quality")


@pytest.mark.slow
def test_runs_once_and_reports(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "in_new_process", lambda function, *args: function(*args))  # one takes seconds to start
    out = tmp_path / "out"
    args = ["--quick", "--tasks", "scenes", "--models", "softmax", "LION-S", "LION-S♮", "--output_dir", str(out)]
    args += ["--cache_dir", str(tmp_path / "cache")]
    bench.main(args)
    tables = {name: out / f"{name}.csv" for name in ("quality", "quality_speed")}
    rows = bench.read_rows(tables["quality"])
    assert [row["model"] for row in rows] == ["softmax", "LION-S", "LION-S♮"]
    page = (out / "quality.md").read_text(encoding="utf-8")
    assert f"| LION-S♮ | {100 * rows[-1]['test_accuracy']:.1f} |" in page
    speed = bench.read_rows(tables["quality_speed"])
    assert [row["model"] for row in speed] == ["softmax", "LION-S", "LION-S♮"]
    assert speed[0]["peak_memory_bytes"] > 2**27

    lines = {name: path.read_text(encoding="utf-8").splitlines() for name, path in tables.items()}
    tables["quality"].write_text("\n".join([lines["quality"][0], *lines["quality"][2:], ""]), encoding="utf-8")
    bench.main(args)
    found = {name: path.read_text(encoding="utf-8").splitlines() for name, path in tables.items()}
    assert found["quality"][:3] == [lines["quality"][0], *lines["quality"][2:]] and len(found["quality"]) == 4
    assert found["quality"][3].startswith("quick,scenes,softmax,default,0,")
    assert found["quality_speed"] == lines["quality_speed"]
    text = tables["quality"].read_text(encoding="utf-8")
    tables["quality"].write_text(text.replace("steps=3", "steps=4"), encoding="utf-8")
    with pytest.raises(ValueError, match="of another experiment"):
        bench.main(args)


@pytest.mark.slow
def test_masked_language_modeling(bench, tmp_path):
    experiment = bench.SCALES["quick"]["mlm"]
    data = bench.load_data("mlm", experiment, tmp_path)
    row = bench.train("LION-D", 0, experiment, data, tmp_path)
    assert abs(row["validation_loss"] - math.log(data.config["vocab_size"])) < 1
    assert row["test_loss"] is None


@pytest.mark.slow
def test_every_token_is_labelled_and_longer_examples_are_read(bench, tmp_path):
    experiment = bench.SCALES["quick"]["neighbour"]
    data = bench.load_data("neighbour", experiment, tmp_path)
    length = experiment.task["length"]
    batch = data.collate([data.splits["test"][0], {"input_ids": [1, 2], "labels": [0, 1]}])
    assert batch["attention_mask"].sum(1).tolist() == [length, 2] and (batch["labels"][1, 2:] == -100).all()
    assert len(data.splits["longer"][0]["input_ids"]) == 8 * length
    for model in ("LION-S", "softmax"):  # which has positions for the training length only
        row = bench.train(model, 0, experiment, data, tmp_path)
        assert 0 <= row["test_accuracy"] < 0.5 and (row["longer_accuracy"] is None) == (model == "softmax")
        bench.make_step(model, experiment, data, "train")()


def test_variants_are_rows_of_the_same_table(bench, tmp_path, monkeypatch, capsys):
    seen, trained = [], []

    def instead_of_training(name, seed, experiment, data, cache_dir):
        seen.append(bench.make_config(name, experiment, data))
        trained.append((experiment.steps, experiment.learning_rate))
        return dict.fromkeys(bench.METRICS, 0.1) | {"chance": 0.1, "parameters": 1, "train_seconds": 1.0}

    monkeypatch.setattr(bench, "train", instead_of_training)
    monkeypatch.setattr(bench, "measure_speed", lambda *args: None)
    monkeypatch.setattr(bench, "write_pages", lambda *args: None)
    args = ["--scale", "quick", "--tasks", "neighbour", "--models", "LION-D", "softmax", "--seeds", "0"]
    args += ["--output_dir", str(tmp_path), "--cache_dir", str(tmp_path / "cache")]
    variant = ["--set", "pooling=mean", "--set", "initializer_range=0.50"]
    for _ in range(2):  # the second time, everything is there
        bench.main(args)
        bench.main([*args, *variant])
    bench.main([*args, *variant[2:], *variant[:2]])
    bench.main([*args, "--fan_in"])
    rows = bench.read_rows(tmp_path / "quality.csv")
    names = [None, None, *2 * ["initializer_range=0.5 pooling=mean"], "fan_in", "fan_in"]
    assert [row["variant"] for row in rows] == names and len({row["settings"] for row in rows}) == 1
    assert [config.pooling for config in seen] == [*2 * ["cls"], *2 * ["mean"], *2 * ["cls"]]
    assert [config.initializer_range for config in seen] == [0.02, 0.02, 0.5, 0.5, 0.02, 0.02]
    bench.main([*args, "--set", "steps=5", "--set", "learning_rate=4e-3"])
    assert bench.read_rows(tmp_path / "quality.csv")[-1]["variant"] == "learning_rate=0.004 steps=5"
    assert trained == [*6 * [(3, 1e-3)], *2 * [(5, 4e-3)]] and len(seen) == 8
    for wrong, message in (
        ("poling=mean", "did you mean pooling"),
        ("pooling", "FIELD=VALUE"),
        ("intermediate_size=8", "equal parameters"),
    ):
        with pytest.raises(SystemExit):
            bench.main([*args, "--set", wrong])
        assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", ["LION-S", "Hydra", "Vim"])
def test_peers_may_start_as_their_authors_have_them(bench, name):
    data = bench.Data(bench.LionForMaskedLM, {"vocab_size": 99}, {}, None)
    model = bench.make_model(name, bench.LionConfig(**bench.sizes(192, 1, 4) | data.config | bench.MODELS[name]), data)
    before = {key: weight.clone() for key, weight in model.named_parameters()}
    bench.use_fan_in(model)
    changed = {key: weight for key, weight in model.named_parameters() if not torch.equal(weight, before[key])}
    assert bool(changed) == (name in bench.MAMBA_PEERS) and all("attention" in key for key in changed)
    for weight in changed.values():
        std = (3 * weight.shape[1]) ** -0.5
        # The standard error of a standard deviation of n numbers is at most std / sqrt(2 n).
        assert abs(weight.std() / std - 1) < 4 * (2 * weight.numel()) ** -0.5


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["cpu", "gpu"])
def test_parameters_are_equal(bench, scale):
    for name, experiment in bench.SCALES[scale].items():
        is_image = name in ("pathfinder", "digits", "scenes")
        config = {"modality": "image", "image_size": 24, "num_channels": 1} if is_image else {"vocab_size": 300}
        model_class = bench.LionForImageClassification if is_image else bench.LionForSequenceClassification
        data = bench.Data(model_class, config, {}, None)
        counts = [
            bench.count(model, bench.make_config(model, experiment, data), data)
            for model in bench.models_of(data, list(bench.MODELS))
        ]
        assert max(counts) <= 1.01 * min(counts)


def test_initial_decays_are_what_their_names_say(bench, tmp_path, monkeypatch):
    decays = importlib.import_module("bench_decays")
    found = {}

    def instead_of_training(name, seed, experiment, data, cache_dir):
        model = bench.make_model(name, bench.make_config(name, experiment, data), data)
        logits = torch.cat([x for key, x in model.state_dict().items() if key.endswith("mixer.decay.bias")]).double()
        found[list(decays.INITIAL_DECAYS)[len(found)]] = math.log(0.5) / torch.nn.functional.logsigmoid(logits)
        row = {"chance": 0.1, "train_seconds": 1.0, "parameters": model.num_parameters()}
        return dict.fromkeys(bench.METRICS, 0.1 + 0.1 * len(found)) | row

    monkeypatch.setattr(bench, "train", instead_of_training)
    args = ["--scale", "quick", "--tasks", "digits", "--seeds", "0", "--models", "LION-D"]
    decays.main([*args, "--output_dir", str(tmp_path), "--cache_dir", str(tmp_path / "cache")])
    assert found.keys() == decays.INITIAL_DECAYS.keys()
    context = found["default"].max()
    for name, shortest in (("default", 0.5), ("1 token to the context", 1), ("4 tokens to the context", 4)):
        expected = torch.tensor([context, shortest], dtype=torch.float64).repeat(len(found[name]) // 2)
        torch.testing.assert_close(found[name], expected, rtol=1e-3, atol=0)
    torch.testing.assert_close(found["16 tokens to 4 contexts"].max(), 4 * context, rtol=1e-3, atol=0)
    rows = bench.read_rows(tmp_path / "quality.csv")
    assert [row["initial_decays"] for row in rows] == list(decays.INITIAL_DECAYS)


@pytest.mark.slow
def test_a_mixer_from_elsewhere_is_a_model(bench, tmp_path, monkeypatch):
    source = """
import torch
from modeling_lion import register_mixer
from modeling_lion.mixers.linear import LinearMixer

@register_mixer
class HalfMixer(LinearMixer):
    name = "half"

    def log_decay(self, hidden_states):
        return torch.full((self.config.num_attention_heads,), -0.7)
"""
    (tmp_path / "half.py").write_text(source)
    models, mixers = dict(bench.MODELS), dict(bench.MIXERS)
    monkeypatch.setenv(bench.MIXER_FILES, "")
    in_new_process = bench.in_new_process
    run = lambda function, *args: in_new_process(function, *args) if "half" in args else function(*args)
    monkeypatch.setattr(bench, "in_new_process", run)
    args = ["--quick", "--tasks", "digits", "--models", "softmax", "half", "--mixers", str(tmp_path / "half.py")]
    try:
        bench.main([*args, "--output_dir", str(tmp_path / "out"), "--cache_dir", str(tmp_path / "cache")])
        rows = bench.read_rows(tmp_path / "out" / "quality.csv")
        assert [row["model"] for row in rows] == ["softmax", "half"] and rows[1]["test_accuracy"] is not None
        page = (tmp_path / "out" / "quality.md").read_text(encoding="utf-8")
        assert f"| half | {100 * rows[1]['test_accuracy']:.1f} |" in page
        speed = bench.read_rows(tmp_path / "out" / "quality_speed.csv")  # its memory is measured in another process
        assert speed[1]["peak_memory_bytes"] > 2**27
    finally:
        bench.COLORS.pop("half", None)
        for names, before in ((bench.MODELS, models), (bench.MIXERS, mixers)):
            names.clear()
            names.update(before)
        sys.path[:] = [path for path in sys.path if path != str(tmp_path)]
