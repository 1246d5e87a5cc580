# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The comparison of mixers runs, goes on where it was stopped, compares equals, and reports what it found."""

import importlib
import json
import math
from pathlib import Path

import pytest
import torch


ROOT = Path(__file__).parents[1]


@pytest.fixture
def bench(monkeypatch):
    for folder in ("benchmarks", "examples"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    return importlib.import_module("bench_quality")


def test_runs_once_and_reports(bench, tmp_path, capsys):
    out, readme = tmp_path / "out", tmp_path / "README.md"
    readme.write_text("\n".join(("above", *bench.MARKERS, "below")))
    args = ["--quick", "--tasks", "digits", "--models", "softmax", "LION-S", "LION-S♮", "--output_dir", str(out)]
    args += ["--cache_dir", str(tmp_path / "cache"), "--readme", str(readme)]
    bench.main(args)
    files = {path: path.stat().st_mtime_ns for path in out.glob("*.json")}
    assert len(files) == 4  # three trainings and the speed
    result = bench.read_json(out / "digits_LION-S-snake_seed0.json")
    lives = result["half_lives"]
    assert torch.tensor(lives["before"]).shape == (2, 2 * 2, 5) and lives["before"] != lives["after"]
    text = readme.read_text()
    assert text.startswith("above") and text.endswith("below")
    accuracy = f"{100 * result['metrics']['test_accuracy']:.1f}"
    assert f"| LION-S♮ | {accuracy} |" in text and "77.9" in text and "out/decays.png" in text
    assert (out / "scores.png").stat().st_size > 5000
    speed = bench.read_json(out / "digits_speed.json")
    assert speed.keys() == {"softmax", "LION-S", "LION-S♮"} and speed["softmax"]["peak_memory_bytes"] > 2**27

    (out / "digits_softmax_seed0.json").unlink()
    bench.main(args)
    changed = {path.name for path, time in files.items() if path.stat().st_mtime_ns != time}
    assert changed == {"digits_softmax_seed0.json"}
    content = json.loads((out / "digits_softmax_seed0.json").read_text())
    content["results"]["experiment"]["steps"] += 1
    (out / "digits_softmax_seed0.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="of another experiment"):
        bench.main(args)


def test_masked_language_modeling(bench, tmp_path):
    experiment = bench.SCALES["quick"]["mlm"]
    data = bench.load_data("mlm", experiment, tmp_path)
    result = bench.train("LION-D", 0, experiment, data, tmp_path)
    assert abs(result["metrics"]["validation_loss"] - math.log(data.config["vocab_size"])) < 1
    assert len(result["losses"]) == experiment.steps


@pytest.mark.parametrize("scale", ["cpu", "gpu"])
def test_parameters_are_equal(bench, scale):
    for name, experiment in bench.SCALES[scale].items():
        is_image = name in ("pathfinder", "digits")
        config = {"modality": "image", "image_size": 32, "num_channels": 1} if is_image else {"vocab_size": 300}
        model_class = bench.LionForImageClassification if is_image else bench.LionForSequenceClassification
        data = bench.Data(model_class, config, {}, None)
        counts = [
            bench.count(model, bench.make_config(model, experiment, data), data)
            for model in bench.models_of(data, list(bench.MODELS))
        ]
        assert max(counts) <= 1.01 * min(counts)


def test_half_lives_are_of_the_decays(bench):
    config = bench.LionConfig(**bench.sizes(16, 1, 2), mixer_type="decay", vocab_size=9)
    model = bench.LionForMaskedLM(config)
    with torch.no_grad():
        model.get_parameter("lion.layers.0.attention.mixer.decay.bias").copy_(torch.tensor([0.5, 0.75]).logit())
    mask = torch.tensor([[1, 1, 1, 0]])
    (found,) = bench.half_lives(model, {"input_ids": torch.ones(1, 4, dtype=torch.long), "attention_mask": mask})
    expected = torch.tensor([1.0, math.log(0.5) / math.log(0.75)], dtype=torch.float64)
    torch.testing.assert_close(found.nanmedian(1).values, expected, rtol=1e-5, atol=0)


def test_readme_needs_markers(bench, tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text("nothing")
    with pytest.raises(ValueError, match="quality: start"):
        bench.write_into_readme(readme, "table")
    assert all((ROOT / "README.md").read_text(encoding="utf-8").count(marker) == 1 for marker in bench.MARKERS)


def test_initial_decays_are_what_their_names_say(bench, tmp_path):
    decays = importlib.import_module("bench_decays")
    args = ["--scale", "quick", "--tasks", "digits", "--seeds", "0", "--models", "LION-D"]
    decays.main([*args, "--output_dir", str(tmp_path), "--cache_dir", str(tmp_path / "cache")])
    results = {result["initial_decays"]: result for result in map(bench.read_json, tmp_path.glob("*.json"))}
    assert results.keys() == decays.INITIAL_DECAYS.keys()
    medians = {
        name: torch.tensor(result["half_lives"]["before"])[..., 2].flatten() for name, result in results.items()
    }
    context = medians["half a token to the context"].max()
    for name, shortest in (("half a token", 0.5), ("1 token", 1), ("4 tokens", 4)):
        found = medians[f"{name} to the context"]
        expected = torch.tensor([context, shortest]).repeat(len(found) // 2)
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=0)
    torch.testing.assert_close(medians["16 tokens to 4 contexts"].max(), 4 * context, rtol=1e-3, atol=0)
    table = (tmp_path / "results.md").read_text()
    assert all(f"| {name} | " in table for name in decays.INITIAL_DECAYS)
