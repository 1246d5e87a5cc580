# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Options that all benchmarks of trainings share: a file of options, steps, a folder for what is prepared, reports."""

import importlib
import json
import os
import shlex
import subprocess
import sys
import types
from pathlib import Path

import pytest
from measure import read_rows


ROOT = Path(__file__).parents[2]
BENCHMARKS = ("recall", "length", "search", "bindings", "images", "text", "lra")


@pytest.fixture
def trainings():
    return importlib.import_module("trainings")


@pytest.fixture
def recall(monkeypatch):
    bench = importlib.import_module("bench_recall")
    monkeypatch.setattr(importlib.import_module("report"), "PICTURES", {})
    return bench


@pytest.fixture
def parser(trainings):
    parser = trainings.training_arguments("", {"cpu": {"a": None, "b": None}, "gpu": {"a": None}})
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--quick", action="store_true")
    return parser


def test_a_file_has_options_and_the_command_line_wins(parser, tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("steps: 400\nseeds: [1, 2]\ntasks: b\nquick: true\nthreads:\noutput_dir: mine\n", encoding="utf-8")
    args = parser.parse_args(["--config", str(path)])
    assert (args.steps, args.seeds, args.tasks, args.quick, args.threads) == (400, [1, 2], ["b"], True, None)
    assert args.output_dir == Path("mine")
    args = parser.parse_args([f"--config={path}", "--steps", "5", "--seeds=3"])
    assert (args.steps, args.seeds, args.tasks) == (5, [3], ["b"])
    path.with_suffix(".json").write_text(json.dumps({"steps": 7, "quick": False}), encoding="utf-8")
    args = parser.parse_args(["--config", str(path.with_suffix(".json"))])
    assert (args.steps, args.quick) == (7, False) and args.command.endswith("run.json")


@pytest.mark.parametrize(
    "text, message",
    [
        ("stepz: 4", "'stepz' is no option; those are cache_dir, output_dir, quick,"),
        ("config: a.yaml", "'config' is no option"),
        ("steps: [4, 5]", "'steps' is [4, 5]: give one value"),
        ("steps: true", "'steps' is True: give one value"),
        ("quick: 1", "'quick' is 1: give true or false"),
        ("seeds: []", "'seeds' is []: give values"),
        ("seeds: {a: 1}", "'seeds' is {'a': 1}: give values"),
        ("steps: none", "--steps: 'none' is no number"),
        ("tasks: [c]", "invalid choice: 'c'"),
        ("- steps", "has no options"),
        ("a: [", "neither YAML nor JSON"),
    ],
)
def test_wrong_files_are_named(parser, tmp_path, capsys, text, message):
    path = tmp_path / "run.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit):
        parser.parse_args(["--config", str(path)])
    assert message in capsys.readouterr().err


def test_a_missing_file_is_named(parser, capsys):
    with pytest.raises(SystemExit):
        parser.parse_args(["--config", "none.yaml"])
    assert "--config names none.yaml, which is not a file" in capsys.readouterr().err


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_of_trainings_has_the_options(name, capsys):
    with pytest.raises(SystemExit):
        importlib.import_module(f"bench_{name}").main(["--help"])
    helped = capsys.readouterr().out
    assert all(f"--{x} " in helped for x in ("config", "steps", "report_to", "cache_dir", "seeds"))


def test_what_is_prepared_lies_in_a_folder_of_ones_own(parser, trainings, tmp_path):
    assert parser.parse_args([]).cache_dir == trainings.CACHE_DIR
    assert parser.parse_args(["--output_dir", str(trainings.RESULTS)]).cache_dir == trainings.CACHE_DIR
    assert parser.parse_args(["--output_dir", str(tmp_path)]).cache_dir == tmp_path / "cache"
    assert parser.parse_args(["--output_dir", str(tmp_path), "--cache_dir", "c"]).cache_dir == Path("c")


def test_what_is_fetched_lies_there_unless_it_is_shared(parser, trainings, tmp_path, monkeypatch):
    parser.add_argument("--data", type=Path)
    own = ["--output_dir", str(tmp_path / "own")]
    monkeypatch.setattr(trainings, "REAL_DATA", tmp_path / "real")
    assert parser.parse_args([]).data == tmp_path / "real"
    assert parser.parse_args(own).data == tmp_path / "own" / "data"
    assert parser.parse_args([*own, "--data", "d"]).data == Path("d")
    (tmp_path / "real").mkdir()
    assert parser.parse_args(own).data == tmp_path / "real"


def test_mixers_and_settings_of_a_file(recall, trainings, tmp_path, own_mixer):
    path = tmp_path / "run.yaml"
    options = {"mixers": [str(own_mixer)], "set": ["conv_kernel=3", "steps=2"], "output_dir": str(tmp_path / "out")}
    options |= {"models": "LION-D", "tasks": "neighbour", "quick": True, "threads": 1}
    path.write_text(json.dumps(options), encoding="utf-8")
    recall.main(["--config", str(path)])
    rows = read_rows(tmp_path / "out" / "recall.csv")
    assert [(row["model"], row["variant"]) for row in rows] == [
        (name, "conv_kernel=3 steps=2") for name in ("LION-D", own_mixer.stem)
    ]
    assert (tmp_path / "out" / "cache").is_dir()
    (run,) = json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="utf-8"))["runs"]
    assert run["command"].endswith(f"--config {path}") and [*run["files"]] == [str(own_mixer), str(path)]


def test_stages_share_the_steps(trainings):
    stages = tuple(trainings.Experiment({}, {}, steps) for steps in (400, 100))
    steps = lambda *of: [stage.steps for stage in trainings.divided(stages, *of)]
    assert steps(None, 1) == [400, 100] and steps(None, 3) == [1200, 300]
    assert steps(50, 1) == [40, 10] and steps(50, 2) == [80, 20] and steps(1, 1) == [1, 1]


def test_rows_say_how_many_steps_were_asked_for(monkeypatch, tmp_path):
    args = ["--quick", "--output_dir", str(tmp_path), "--models", "LION", "--steps"]
    scores = {"train_seconds": 1.0, "accuracy": 0.1}
    for name, replaced in (("length", "train_and_test"), ("bindings", "in_new_process"), ("recall", "train")):
        bench = importlib.import_module(f"bench_{name}")
        made = scores | dict.fromkeys(importlib.import_module("trainings").METRICS)
        rows = made if name == "recall" else [made | {"tokens": 512, "min_distance": 0, "names": 1}]
        monkeypatch.setattr(bench, replaced, lambda *args, rows=rows: rows)
        monkeypatch.setattr(bench, "write_pages", lambda *args: None)
        if name == "bindings":
            monkeypatch.setattr(bench, "guess", lambda *args, rows=rows: rows)
        options = ["--tasks", "neighbour"] if name == "recall" else []
        bench.main([*args, "8", *options])
        found = read_rows(tmp_path / f"{name}.csv", model="LION")
        expected = ["8"] if name == "recall" else ["4", "4"]
        assert found and all(steps_of(row["settings"]) == expected for row in found)
        with pytest.raises(ValueError, match="of another experiment"):
            bench.main([*args, "10", *options])


def steps_of(settings: str) -> list[str]:
    return [word.partition("=")[2] for word in settings.split() if word.startswith("steps=")]


def test_runs_are_reported_to_tensorboard(recall, tmp_path, monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", "restored by the fixture")
    args = ["--quick", "--tasks", "neighbour", "--models", "LION-D", "--output_dir", str(tmp_path), "--threads", "1"]
    recall.main([*args, "--report_to", "tensorboard"])
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name == "neighbour-LION-D-default-0"
    events = EventAccumulator(str(folder))
    events.Reload()
    assert {"train/loss", "train/learning_rate"} <= {*events.Tags()["scalars"]}
    assert len(events.Scalars("train/loss")) == 3  # each of the steps


def test_nothing_is_reported_unless_it_is_asked_for(trainings, parser):
    before = os.environ.get("TENSORBOARD_LOGGING_DIR")
    assert trainings.reporting(parser.parse_args([]), "task", "LION") == {}
    assert os.environ.get("TENSORBOARD_LOGGING_DIR") == before


def test_make_passes_options_on():
    options = "--steps 400 --seeds 1 2"
    command = ["make", "--dry-run", "results", "PART=images", "OUT=mine", f"ARGS={options}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert f"--output_dir mine {options} ||" in done.stdout


def test_the_command_of_a_row_trains_it_again(own_mixer, tmp_path, monkeypatch, forget_mixers):
    rate_search, images = (importlib.import_module(x) for x in ("rate_search", "bench_images"))
    parser = rate_search.rate_arguments("", images.SCALES, list(images.CONTESTANTS))
    known, name = list(images.CONTESTANTS), own_mixer.stem
    out = tmp_path / "my folder"
    words = ["--tasks", "7x7", "--contestants", name, "--mixers", str(own_mixer), "--output_dir", str(out)]
    words += ["--steps", "9", "--trials", "2", "--seeds", "4", "5"]
    args = parser.parse_args(words)
    assert rate_search.chosen_contestants(parser, args, known) == [name]
    experiment = images.SCALES["cpu"]["7x7"]
    search = images.ImageSearch("7x7", experiment, images.Data(None, {}, {}, None), args)
    monkeypatch.setattr(search, "columns", lambda *args: {})
    command = search.fit({"contestant": name, "stage": "trial"}, name, experiment)["command"]
    forget_mixers()
    again = parser.parse_args(shlex.split(command)[2:])
    assert rate_search.chosen_contestants(parser, again, known) == [name]
    same = ("scale", "tasks", "contestants", "mixers", "output_dir", "steps", "trials", "seeds")
    assert all(getattr(again, x) == getattr(args, x) for x in same)
    of_time = search.fit({"contestant": name, "stage": "equal time"}, name, experiment)["command"]
    assert "--stages 'equal steps' 'equal time'" in of_time
    # A row of the repository has what it had.
    args = parser.parse_args(["--mixers", str(own_mixer)])
    search = images.ImageSearch("7x7", experiment, images.Data(None, {}, {}, None), args)
    monkeypatch.setattr(search, "columns", lambda *args: {})
    command = search.fit({"contestant": "softmax", "stage": "trial"}, "softmax", experiment)["command"]
    assert command == "python benchmarks/bench_images.py --scale cpu --tasks 7x7 --contestants 'softmax'"


def test_rows_of_a_mixer_are_those_of_its_file(own_mixer, trainings, tmp_path, monkeypatch, forget_mixers):
    """A file that has changed is another model: its rows in the table are not taken for it."""
    rate_search, images = (importlib.import_module(x) for x in ("rate_search", "bench_images"))
    parser = rate_search.rate_arguments("", images.SCALES, list(images.CONTESTANTS))
    name, experiment = own_mixer.stem, images.SCALES["cpu"]["7x7"]
    trained = []

    def train() -> None:
        forget_mixers()
        args = parser.parse_args(["--mixers", str(own_mixer), "--output_dir", str(tmp_path)])
        rate_search.chosen_contestants(parser, args, [])
        search = images.ImageSearch("7x7", experiment, images.Data(None, {}, {}, None), args)
        monkeypatch.setattr(search, "columns", lambda case, *_: trained.append(case) or {})
        search.train(name, "trial", 0, 1)

    train()
    train()
    assert len(trained) == 1
    own_mixer.write_text(own_mixer.read_text(encoding="utf-8").replace("-0.7", "-0.6"), encoding="utf-8")
    importlib.invalidate_caches()
    with pytest.raises(ValueError, match="another training .* mixer=[0-9a-f]{12}.*give another --output_dir"):
        train()
    assert experiment.settings(name) != experiment.settings() == experiment.settings("softmax")


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"@register_mixer": ""}, "registers no mixer: decorate its class with @register_mixer"),
        ({"half_of_ones_own": "LION-D"}, "a row is called 'LION-D': give the mixer another `name`"),
        ({"half_of_ones_own": "a|b"}, "tables do not take '|' in the `name` 'a|b'"),
        ({"half_of_ones_own": "gla", "HalfMixer": "GlaMixer"}, "replaces the mixer 'gla'"),
    ],
)
def test_mixers_that_would_be_taken_for_others_are_refused(own_mixer, tmp_path, capsys, changes, message):
    rate_search, images = (importlib.import_module(x) for x in ("rate_search", "bench_images"))
    parser = rate_search.rate_arguments("", images.SCALES, list(images.CONTESTANTS))
    text = own_mixer.read_text(encoding="utf-8")
    for old, new in changes.items():
        text = text.replace(old, new)
    own_mixer.write_text(text, encoding="utf-8")
    args = parser.parse_args(["--mixers", str(own_mixer), "--output_dir", str(tmp_path)])
    with pytest.raises(SystemExit):
        rate_search.chosen_contestants(parser, args, list(images.CONTESTANTS))
    assert message in capsys.readouterr().err


def test_two_files_of_one_name_are_refused(own_mixer, trainings, monkeypatch):
    second = own_mixer.with_stem("second_of_ones_own")
    second.write_text(own_mixer.read_text(encoding="utf-8").replace("-0.7", "-0.6"), encoding="utf-8")
    monkeypatch.setitem(sys.modules, second.stem, None)  # so that it is forgotten afterwards
    del sys.modules[second.stem]
    assert trainings.add_mixers([own_mixer, own_mixer]) == [own_mixer.stem] * 2
    with pytest.raises(ValueError, match=f"replaces the mixer '{own_mixer.stem}'"):
        trainings.add_mixers([second])


def test_rows_of_other_steps_are_not_put_beside_each_other(trainings, tmp_path, monkeypatch):
    images = importlib.import_module("bench_images")
    monkeypatch.setattr(importlib.import_module("report"), "PICTURES", {})
    out = ["--quick", "--output_dir", str(tmp_path), "--seeds", "1"]
    monkeypatch.setattr(images.ImageSearch, "columns", lambda *_: {"test_accuracy": 0.5, "validation_accuracy": 0.5})
    monkeypatch.setattr(images.ImageSearch, "best", lambda self, rows: rows[0])
    monkeypatch.setattr(images.ImageSearch, "times", lambda self, choices: dict.fromkeys(choices, 1.0))
    images.main([*out, "--contestants", "softmax", "LION-D"])
    with pytest.raises(ValueError, match="not comparable .*steps=3.*steps=4.*another --output_dir"):
        images.main([*out, "--contestants", "LION-S", "--steps", "4"])
    images.main([*out, "--contestants", "LION-S", "LION-D", "--trials", "2"])  # fewer trials of more than there are
    page = (tmp_path / "real.md").read_text(encoding="utf-8")
    assert "Trials to choose from were not as many for all: 7 × 7 patches: LION-S 2; softmax, LION-D 4." in page
    runs = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))["runs"]
    assert [run["options"]["steps"] for run in runs] == [None, 4, None]  # also of the run that was stopped
    assert "A trial of a few steps" in (tmp_path / "latex" / "real_images.tex").read_text(encoding="utf-8")


def test_a_table_of_an_earlier_version_gets_new_columns(tmp_path, monkeypatch):
    images = importlib.import_module("bench_images")
    monkeypatch.setattr(importlib.import_module("report"), "PICTURES", {})
    monkeypatch.setattr(images.ImageSearch, "times", lambda self, choices: dict.fromkeys(choices, 1.0))
    out = ["--quick", "--output_dir", str(tmp_path), "--seeds", "1", "--trials", "1"]
    (tmp_path / "real_images.csv").touch()  # as a process that was killed leaves it
    for name, row in (("softmax", {"test_accuracy": 0.5}), ("LION-D", {"chance": 0.1, "test_accuracy": 0.6})):
        monkeypatch.setattr(images.ImageSearch, "columns", lambda *_, row=row: dict(row))
        images.main([*out, "--contestants", name])
    found = [
        (row["contestant"], row["chance"], row["test_accuracy"]) for row in read_rows(tmp_path / "real_images.csv")
    ]
    assert found == [("softmax", None, 0.5), ("LION-D", 0.1, 0.6)]


def test_each_training_has_a_run_of_its_own_in_wandb(trainings, parser, tmp_path, monkeypatch):
    """transformers goes on with the run that is there."""
    ended = []
    wandb = types.SimpleNamespace(run=None, finish=lambda: ended.append(True))
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setattr(trainings, "get_available_reporting_integrations", lambda: ["wandb"])
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", "restored by the fixture")
    args = parser.parse_args(["--report_to", "wandb", "--output_dir", str(tmp_path)])
    trainings.reporting(args, "task", "LION")
    assert not ended
    wandb.run = "of the first training"
    assert trainings.reporting(args, "task", "softmax")["run_name"] == "task-softmax" and ended


@pytest.mark.parametrize(
    "options, message",
    [
        (["--report_to", "nowhere"], "'nowhere' is not installed, or unknown: none, "),
        (["--output_dir", __file__], "is a file: name a folder"),
    ],
)
def test_what_cannot_be_written_to_is_refused_at_once(parser, capsys, options, message):
    with pytest.raises(SystemExit):
        parser.parse_args(options)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "steps, stages, told",
    [
        (100, ["equal steps"], "7 of softmax; some 14.0 minutes of CPU time, as trainings of the repository say."),
        (100, ["equal steps", "equal time"], "7 of softmax, and up to 3 with equal time; some 20.0 minutes"),
        (50, ["equal steps"], "7 of softmax; at least some 7.0 minutes of CPU time"),
    ],
)
def test_an_estimate_of_other_steps_is_a_bound(steps, stages, told, tmp_path, monkeypatch):
    rate_search, images = (importlib.import_module(x) for x in ("rate_search", "bench_images"))
    row = {"scale": "cpu", "task": "7x7", "stage": "equal steps", "steps": 100}
    rows = [row | {"train_cpu_seconds": 60.0 * x, "contestant": name} for x, name in ((2, "softmax"), (4, "LION"))]
    importlib.import_module("measure").append_rows(tmp_path / "real_images.csv", rows)
    monkeypatch.setattr(rate_search, "RESULTS", tmp_path)
    parser = rate_search.rate_arguments("", images.SCALES, list(images.CONTESTANTS))
    args = parser.parse_args(["--steps", str(steps), "--output_dir", str(tmp_path / "mine"), "--stages", *stages])
    search = images.ImageSearch("7x7", images.SCALES["cpu"]["7x7"], images.Data(None, {}, {}, None), args)
    text = rate_search.what_comes(search, ["softmax"])
    assert f"trainings to come: {told}" in text
    assert "7 of softmax, 7 of mine" in rate_search.what_comes(search, ["softmax", "mine"])


def test_images_name_their_data(trainings, tmp_path, monkeypatch):
    images = importlib.import_module("bench_images")
    searches = []
    monkeypatch.setattr(images, "run_search", lambda search, *args: searches.append(search))
    monkeypatch.setattr(images, "write_pages", lambda *args: None)
    images.main(["--quick", "--output_dir", str(tmp_path)])
    settings = searches[0].experiment.settings()
    assert settings.startswith("data=") and len(settings.split()[0]) == len("data=") + 12
    one, other = (images.torch.full((2, 3), x) for x in (1, 2))
    assert len({images.digest(one, other), images.digest(other, one), images.digest(one)}) == 3
    first = settings.partition(" ")[2]  # rows of the repository from before
    assert trainings.same_settings(first, settings) and trainings.same_settings(settings, settings)
    assert not trainings.same_settings(settings.replace("data=", "data=f"), settings)
    assert not trainings.same_settings(first.replace("steps=3", "steps=4"), settings)
