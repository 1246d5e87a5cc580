# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The search of learning rates on real data: equal for all, resumable, and told beside what was published."""

import importlib
import json
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import pytest
import torch
from jackknife import with_values
from measure import append_rows, read_rows


@pytest.fixture
def images():
    return importlib.import_module("bench_images")


@pytest.fixture
def text():
    return importlib.import_module("bench_text")


@pytest.fixture
def rate_search():
    return importlib.import_module("rate_search")


@pytest.fixture
def tables():
    return importlib.import_module("reports.real")


@pytest.fixture
def no_pictures(monkeypatch):
    monkeypatch.setattr(importlib.import_module("report"), "PICTURES", {})


@pytest.fixture
def only_scores_by_time(monkeypatch):
    report = importlib.import_module("report")
    monkeypatch.setattr(report, "PICTURES", {"scores_by_time": report.PICTURES["scores_by_time"]})


def arguments(bench, rate_search, *args: str):
    return rate_search.rate_arguments("", bench.SCALES, list(bench.CONTESTANTS)).parse_args(args)


def text_arguments(text, folder: Path, *args: str):
    words = ("--scale", "quick", "--output_dir", str(folder), "--data", str(folder), *args)
    return text.text_arguments().parse_args(words)


def some_images(count: int = 200) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, (count, 28, 28), dtype=torch.uint8, generator=generator), torch.arange(count) % 10


@pytest.mark.parametrize(
    "scale, task", [("cpu", "7x7"), ("cpu", "14x14"), pytest.param("gpu", "14x14", marks=pytest.mark.slow)]
)
def test_image_models_have_equal_parameters(images, rate_search, scale, task, tmp_path, monkeypatch):
    args = arguments(images, rate_search, "--scale", scale, "--output_dir", str(tmp_path))
    experiment = images.SCALES[scale][task]
    search = images.ImageSearch(task, experiment, images.load_data(some_images(), some_images(), experiment), args)
    search.check_parameters(images.CONTESTANTS)
    trials = [search.make("Vim", number)[1] for number in range(4)]
    assert [x.learning_rate / experiment.learning_rate for x in trials] == [1, 2, 1, 2]
    assert [x.variant.get("initializer_range") for x in trials] == [None, None, 0.1, 0.1]
    assert search.numbers("softmax") == search.numbers("LION") == [0, 1, 2, 3]
    args.trials = 1  # fewer than before: what a whole search has chosen stays
    assert search.make("Vim", 3)[1] == trials[3] and search.numbers("Vim") == [0]
    assert search.make("LION-LIT", 2)[1].variant == {"feature_map": "elu", "initializer_range": 0.1}  # SPEC §1
    search.check_parameters(["LION", *search.changes])
    monkeypatch.setattr(rate_search, "count", lambda name, *args: 103 if name == "LION-LIT" else 100)
    with pytest.raises(ValueError, match="parameters differ by more than 2%"):
        search.check_parameters(["LION-LIT"])


def test_rows_are_of_the_models_that_they_name(images, rate_search):
    """Models differ in a few parameters, by which a row under another model's name shows."""
    args = arguments(images, rate_search)
    rows = read_rows(rate_search.RESULTS / "real_images.csv", scale="cpu")
    wrong, searches = [], {}
    for case in {(row["task"], row["contestant"], row["trial"], row["parameters"]) for row in rows}:
        task, name, trial, parameters = case
        if task not in searches:
            experiment = images.SCALES["cpu"][task]
            data = images.load_data(some_images(), some_images(), experiment)
            searches[task] = images.ImageSearch(task, experiment, data, args)
        model, experiment = searches[task].make(name, trial)
        data = searches[task].data
        if rate_search.count(model, rate_search.make_config(model, experiment, data), data) != parameters:
            wrong.append(case)
    assert not wrong


def test_one_field_changes_at_what_was_chosen_for_lion(images, rate_search, tmp_path, monkeypatch):
    args = arguments(images, rate_search, "--scale", "quick", "--output_dir", str(tmp_path))
    experiment = images.SCALES["quick"]["7x7"]
    search = images.ImageSearch("7x7", experiment, images.load_data(some_images(), some_images(), experiment), args)
    with pytest.raises(ValueError, match="LION has no trials for 7x7 yet"):
        search.one_change(["LION"])
    chosen = {"LION": 3, "LION-D": 1, "softmax": 1}
    monkeypatch.setattr(rate_search.Search, "choice", lambda self, name: chosen.get(name))
    trained = []
    monkeypatch.setattr(search, "train", lambda *case: trained.append(case))
    search.one_change(["softmax", "LION"])
    changes = [name for name in search.changes if name.startswith("LION,")]
    assert trained == [(name, "one change", 3, seed, None) for name in changes for seed in (1, 2, 3)]
    monkeypatch.setattr(search, "columns", lambda *args: {})
    command = search.fit({"contestant": trained[0][0], "stage": "one change"}, "LION", experiment)["command"]
    options = f"--scale quick --tasks 7x7 --contestants 'LION' --stages 'one change' --output_dir {tmp_path}"
    assert command.endswith(options)
    recommended = search.make("LION", 3)[1]
    for name in changes:
        model, changed = search.make(name, search.choice(name))
        assert model == "LION" and changed.variant == recommended.variant | search.changes[name]
        assert changed == replace(recommended, variant=changed.variant)
    trained.clear()
    search.one_change(["LION-D"])
    assert {case[0] for case in trained} == {"LION-D, no division", "LION-D, N(0, 1) decays"}
    assert search.make("LION-D, no division", 1)[1].variant == {"feature_map": "identity", "normalization": "none"}
    lit = search.make("LION-LIT, no division", 0)
    assert lit[0] == "LION-LIT" and lit[1].variant["feature_map"] == "identity"  # not the ELU of images


def test_a_choice_trains_for_three_times_the_steps(images, rate_search, tables, tmp_path):
    scale = ["--scale", "quick", "--output_dir", str(tmp_path), "--seeds", "1", "--repeats", "2"]
    experiment = replace(images.SCALES["quick"]["7x7"], steps=2)
    data = images.load_data(some_images(), some_images(), experiment)
    for stage in ("equal steps", "three times the steps"):
        args = arguments(images, rate_search, *scale, "--stages", stage)
        search = images.ImageSearch("7x7", experiment, data, args)
        rate_search.run_search(search, ["LION"], args)
    rows = read_rows(tmp_path / "real_images.csv", contestant="LION", seed=1)
    assert [(row["stage"], row["steps"]) for row in rows] == [("equal steps", 2), ("three times the steps", 6)]
    assert "--contestants 'LION' --stages 'three times the steps' --seeds 1 --output_dir " in rows[1]["command"]
    table = tables.longer(lambda name: rows if name == "real_images" else [])
    assert table.splitlines()[0] == "|  | 7 × 7 patches, test % | three times the steps, 7 × 7 patches, test % |"
    scores = [f"{100 * row['test_accuracy']:.1f}" for row in rows]
    assert table.splitlines()[2] == f"| LION | {scores[0]} | {scores[1]} |"
    assert tables.longer(lambda name: []) == ""


def test_a_change_is_told_beside_the_model_without_it(tables):
    row = {"scale": "cpu", "task": "7x7", "trial": 3}
    scores = {"LION": (0.80, 0.81, 0.82), "LION, a": (0.90, 0.91, 0.92), "LION, b": (0.81, 0.81, 0.82)}
    scores |= {"LION-D": (0.5, 0.5, 0.5), "LION-D, a": (0.5, 0.5, 0.6), "LION-S, a": (0.7, 0.7, 0.7)}
    rows = [
        row
        | {"contestant": name, "stage": "one change" if "," in name else "equal steps"}
        | {"seed": seed, "test_accuracy": x}
        for name in scores
        for seed, x in enumerate(scores[name])
    ]
    speed = [row | {"contestant": name, "ratio": x} for name, x in (("LION", 1.5), ("LION, a", 3.0))]
    read = lambda name: {"real_images": rows, "real_images_speed": speed}.get(name, [])
    table = tables.one_change(read)
    lines = [
        "| LION | 81.0 ± 1.0 | 1.00 |",
        "| LION, a | 91.0 ± 1.0; +10.0 [+10.0, +10.0] | 2.00 |",
        "| LION, b | 81.3 ± 0.6; +0.3 [−1.1, +1.8] |  |",
    ]
    assert table.splitlines()[2:5] == lines and "LION-D" not in table
    published = tables.one_change_of_published(read)
    lines = ["| LION-D | 50.0 ± 0.0 |", "| LION-D, a | 53.3 ± 5.8; +3.3 [−11.0, +17.7] |"]
    assert published.splitlines()[2:4] == lines and "LION-S" not in published  # which has nothing to compare with
    assert tables.one_change(lambda name: []) == ""
    changes = [x for x in rows if x["stage"] == "one change"]
    assert tables.one_change(lambda name: changes if name == "real_images" else []) == ""


def test_only_images_for_training_change(images):
    train, test = some_images(), some_images(50)
    experiment = replace(images.SCALES["gpu"]["14x14"], examples=1000)
    data = images.load_data(train, test, experiment)
    lengths = [len(data.splits[x]) for x in ("train", "validation", "test")]
    assert lengths == [180, 20, 50]  # the last tenth is held out
    columns = ["input_ids", "label"]
    first, second = (images.collate([data.splits["train"].select_columns(columns)[i] for i in range(9)]) for _ in "ab")
    assert not torch.equal(first["pixel_values"], second["pixel_values"])
    assert torch.equal(first["labels"], train[1][:9])
    held_out = images.collate([data.splits["validation"][i] for i in range(20)])
    assert torch.equal(held_out["pixel_values"], images.normalized(train[0][180:]))
    batch = data.splits["train"].select_columns(columns)[[3, 4]]  # in a batch, as the loader asks
    shifted = images.pixels(batch["input_ids"])
    assert shifted.dtype == torch.uint8 and shifted.shape == (2, 28, 28)
    assert {*shifted.unique().tolist()} <= {0, *train[0][3:5].unique().tolist()}


@pytest.mark.slow
def test_images_are_a_search_that_goes_on(images, only_scores_by_time, tmp_path):
    args = ["--quick", "--contestants", "softmax", "LION-S♮", "--output_dir", str(tmp_path), "--threads", "1"]
    images.main(args)
    table = tmp_path / "real_images.csv"
    rows = table.read_text(encoding="utf-8").splitlines(keepends=True)
    assert (
        len(rows) == 1 + 2 * (4 + 3)
        and "bench_images.py --scale quick --tasks 7x7 --contestants 'LION-S♮'" in rows[-1]
    )
    table.write_text("".join(rows[:-2]), encoding="utf-8")
    images.main(args)
    again = table.read_text(encoding="utf-8").splitlines(keepends=True)
    accuracies = [[row.split(",")[8:12] for row in x[-2:]] for x in (rows, again)]
    assert again[:-2] == rows[:-2] and accuracies[0] == accuracies[1]  # the same seeds give the same
    found = with_values(read_rows(table), read_rows(tmp_path / "real_images_examples.csv"))
    assert all(("jackknife" in row) == (row["stage"] == "equal steps") for row in found)
    assert all(row["jackknife"].mean() == pytest.approx(row["test_accuracy"]) for row in found if "jackknife" in row)
    page = (tmp_path / "real.md").read_text(encoding="utf-8")
    assert "| softmax | " in page and "Equal steps:" in page and "| 1.00 | 77.9 | 1 |" in page
    assert "and the error of the test examples)." in page and "Without the error" not in page
    assert (tmp_path / "images" / "scores_by_time.png").stat().st_size > 5000


@pytest.mark.slow
def test_texts_are_a_search_that_goes_on(text, no_pictures, tmp_path, monkeypatch):
    monkeypatch.setattr("reports.real.SAME_TIME", 0.0)  # the measured time of a step decides nothing
    args = ["--quick", "--contestants", "softmax", "two Mamba-2", "--tasks", "mlm", "facets", "--threads", "1"]
    args += ["--output_dir", str(tmp_path), "--data", str(tmp_path / "data")]
    text.main(args)
    rows = read_rows(tmp_path / "real_text.csv")
    stages = {"equal steps": 3, "equal time": 3}
    for (task, trials), name in product((("mlm", 6), ("facets", 4)), ("softmax", "two Mamba-2")):
        found = [row["stage"] for row in rows if (row["task"], row["contestant"]) == (task, name)]
        expected = {x: n for x, n in stages.items() if (name, x) != ("softmax", "equal time")} | {"trial": trials}
        assert {x: found.count(x) for x in found} == expected
    assert {row["metric"] for row in rows} == {"accuracy", "f1_micro"}
    folder = tmp_path / "cache" / "models" / "quick"
    models = [path.name for path in (folder / "mlm").iterdir()]
    assert len(models) == 9 + 12 and not list((folder / "facets").iterdir())
    # Without the last rows and the language model that they start from, the same comes out again.
    table = tmp_path / "real_text.csv"
    lines = table.read_text(encoding="utf-8").splitlines(keepends=True)
    table.write_text("".join(lines[:-1]), encoding="utf-8")
    last = rows[-1]
    name = next(x for x in models if x.startswith("two_Mamba-2-equal_time") and x.endswith(str(last["seed"])))
    weights = folder / "mlm" / name / "model.safetensors"
    before = weights.read_bytes()
    (weights.parent / "test" / text.RESULTS_OF_RUN).unlink()
    weights.unlink()
    text.main(args)
    again = read_rows(table)
    assert len(again) == len(rows) and weights.read_bytes() == before
    changing = ("train_seconds", "train_cpu_seconds", "day")
    assert all(again[-1][name] == value for name, value in last.items() if name not in changing)
    found = with_values(again, read_rows(tmp_path / "real_text_examples.csv"))
    found = [row for row in found if row["stage"] != "trial"]
    assert all(row["jackknife"].mean() == pytest.approx(row["test_score"], abs=0.05) for row in found)
    count = {"mlm": 3, "facets": 9}  # neighbours are pieces of one manual
    assert (
        all(len(row["jackknife"]) == count[row["task"]] for row in found)
        and len({row["test_score"] for row in found}) > 2
    )
    page = (tmp_path / "real.md").read_text(encoding="utf-8")
    assert page.startswith("# Real data\n\n**A trial of a few steps**")
    assert "Equal time: as many steps" in page and "| 69.88 | 82.95 |" in page


def test_a_fine_tuning_needs_a_language_model(text, tmp_path):
    args = text_arguments(text, tmp_path)
    folder, experiments = text.quick_texts(tmp_path / "texts"), text.SCALES["quick"]
    mlm = text.TextSearch("mlm", experiments["mlm"], folder, args)
    search = text.TextSearch("section", experiments["section"], folder, args, mlm)
    with pytest.raises(ValueError, match="--tasks mlm section"):
        search.equal_steps("softmax")
    search.check_parameters(text.CONTESTANTS)


def test_trainings_on_other_texts_are_not_in_the_same_table(text, tmp_path):
    args = text_arguments(text, tmp_path)
    folder, experiments = text.quick_texts(tmp_path / "texts"), text.SCALES["quick"]
    mlm = text.TextSearch("mlm", experiments["mlm"], folder, args)
    section = partial(text.TextSearch, "section", experiments["section"], folder, args, mlm)
    row = {"scale": "quick", "task": "section", "stage": "trial", "settings": section().experiment.settings()}
    append_rows(tmp_path / "real_text.csv", [row])
    section()
    append_rows(tmp_path / "real_text.csv", [row | {"settings": "length=32 data=0123456789ab steps=2"}])
    with pytest.raises(ValueError, match="trainings of section on other data than data=[0-9a-f]{12}.*0123456789ab"):
        section()
    text.TextSearch("mlm", experiments["mlm"], folder, args)  # its texts are the same


def test_lists_of_another_day_have_a_table_of_their_own(text, tables, tmp_path, monkeypatch):
    args = text_arguments(text, tmp_path, "--lists_of_today", "--trials", "1", "--seeds", "1", "2")
    folder, experiments = text.quick_texts(tmp_path / "texts"), text.SCALES["quick"]
    mlm = text.TextSearch("mlm", experiments["mlm"], folder, args)
    row = {"scale": "quick", "task": "section", "stage": "equal steps", "settings": "data=0123456789ab"}
    append_rows(mlm.path, [row])
    search = text.TextSearch("section", experiments["section"], folder, args, mlm)
    assert search.path == tmp_path / "real_text_today.csv"
    score = {"softmax (rotary)": 0.5, "local mean": 0.4}

    def columns(case, model, experiment, record):
        test_score = score[case["contestant"]] + case["seed"] / 100
        return {"test_score": test_score, "validation_score": 0.5, "validation_loss": 1.0}

    monkeypatch.setattr(search, "columns", columns)
    for name in score:
        search.equal_steps(name)
    rows = read_rows(search.path)
    assert len(rows) == 4 and all(" --lists_of_today " in row["command"] for row in rows)
    assert len(read_rows(mlm.path)) == 1
    table = tables.real_text_today(lambda name: read_rows(tmp_path / f"{name}.csv"))
    assert "| local mean | 41.5 ± 0.7; −10.0 [−10.0, −10.0] |" in table
    others = text.TextSearch("documents", experiments["documents"], folder, args, mlm)
    assert others.path == mlm.path


def test_text_models_have_equal_parameters(text, tmp_path):
    args = text_arguments(text, tmp_path)
    folder = text.quick_texts(tmp_path / "texts")
    for scale in ("cpu", "gpu"):
        experiment = text.SCALES[scale]["mlm"]
        text.TextSearch("mlm", experiment, folder, args).check_parameters(text.CONTESTANTS)


def test_peers_are_saved_and_loaded(text, tmp_path):
    peers = importlib.import_module("peers.auto_classes")
    config = text.make_config(
        "two Mamba-2", text.SCALES["quick"]["mlm"], text.Data(text.LionForMaskedLM, {"vocab_size": 99}, {}, None)
    )
    ids = torch.arange(1, 21)[None]
    with peers.auto_classes_of("two Mamba-2"):
        model = peers.AutoModelForMaskedLM.from_config(config).eval()
        model.save_pretrained(tmp_path)
        loaded = peers.AutoModelForMaskedLM.from_pretrained(tmp_path).eval()
        classifier = peers.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    names = [type(x).__name__ for x in (model, classifier)]
    assert names == ["TwoMamba2ForMaskedLM", "TwoMamba2ForSequenceClassification"]
    with torch.no_grad():
        assert torch.equal(model(ids).logits, loaded(ids).logits)
        assert not torch.equal(model(ids).logits, type(model)(config).eval()(ids).logits)
    mixers = [x.base_model.layers[0].attention.mixer.in_proj.weight for x in (model, classifier)]
    assert torch.equal(*mixers)
    assert type(peers.AutoModelForMaskedLM.from_config(config)).__name__ == "LionForMaskedLM"


def seeds(*scores: float) -> dict[int, float]:
    return dict(enumerate(scores, 1))


def test_differences_are_paired_by_seeds(tables):
    paired = importlib.import_module("reports.paired")
    scores = {"softmax": seeds(80.0, 85.0, 90.0, 70.0, 75.0), "LION": seeds(81.0, 86.2, 90.8), "one": {9: 50.0}}
    mean, low, high = paired.difference(scores["LION"], scores["softmax"])  # 1.0, 1.2, 0.8: of three seeds
    assert mean == pytest.approx(1.0) and high - mean == pytest.approx(4.302653 * 0.2 / 3**0.5, rel=1e-6)
    assert mean - low == pytest.approx(high - mean)
    assert paired.differ(scores["LION"], scores["softmax"])  # means and deviations of all seeds would not tell
    assert paired.cell("LION", scores, "softmax", " ↑") == "86.0 ± 4.9 (n = 3) ↑; +1.0 [+0.5, +1.5]"
    assert paired.cell("softmax", scores, "softmax") == "80.0 ± 7.9"
    assert paired.cell("one", scores, "softmax") == "50.0 (n = 1)"
    assert paired.cell("LION", {"LION": seeds(1.0, 2.0)}, "softmax") == "1.5 ± 0.7"  # nobody beside it
    diverged = {"LION": seeds(81.0, float("nan"), 90.8), "softmax": scores["softmax"]}
    assert paired.cell("LION", diverged, "softmax") == "85.9 ± 6.9 (1 of 3 NaN); +0.9 [−0.4, +2.2]"
    assert paired.ABOUT_DIVERGED in paired.note({"7x7": diverged}, "softmax", has_edges=False)
    told = paired.note({"7x7": scores}, "softmax", has_edges=False)
    assert "from softmax, paired" in told and told.endswith("where others have another number of them.")
    alone = {"7x7": {"softmax": {1: 50.0}}, "14x14": {"one": {9: 50.0}}}
    about = "No difference or interval is told where softmax has no trainings, from which it would be told: 14x14."
    assert paired.note(alone, "softmax", has_edges=False) == f"One seed. {about}"
    assert paired.note({"7x7": {"softmax": {1: 50.0}}}, "softmax", has_edges=False) == "One seed."


def test_learning_rates_at_the_edge_of_their_grid_are_marked():
    edges = importlib.import_module("reports.paired").edges
    trials = [{}, {"rate": 2.0}, {"initializer_range": 0.1}, {"initializer_range": 0.1, "rate": 4.0}]

    def rows(name: str, chosen: int, grid: list[dict]) -> list[dict]:
        case = {"task": "7x7", "contestant": name}
        of_trials = [case | {"stage": "trial", "trial": n, "setting": json.dumps(x)} for n, x in enumerate(grid)]
        return [*of_trials, case | {"stage": "equal steps", "trial": chosen, "setting": json.dumps(grid[chosen])}]

    cases = {"low": (2, trials), "high": (3, trials), "no grid": (0, trials[::2])}
    # A higher rate was tried, but with other initial weights.
    cases |= {"highest of its kind": (1, trials), "middle": (1, [{}, {"rate": 2.0}, {"rate": 4.0}])}
    found = edges([row for name, case in cases.items() for row in rows(name, *case)])
    assert {name: found.get(("7x7", name)) for name in cases} == {
        **{"low": " ↓", "middle": "", "high": " ↑"},
        **{"highest of its kind": " ↑", "no grid": None},
    }


def test_models_that_are_as_fast_are_trained_once(text, tables, tmp_path, monkeypatch):
    """Their trainings with equal steps count where time is equal, too: a step takes as long within 5 %."""
    args = text_arguments(text, tmp_path)
    folder = text.quick_texts(tmp_path / "texts")
    search, trained = text.TextSearch("mlm", text.SCALES["quick"]["mlm"], folder, args), []
    ratios = {"softmax": 1.0, "LION": 0.96, "LION-LIT": 0.8}
    monkeypatch.setattr(search, "choice", lambda name: 0)
    monkeypatch.setattr(search, "times", lambda choices: ratios)
    monkeypatch.setattr(search, "train", lambda name, stage, *case: trained.append((name, stage)))
    search.equal_time(list(ratios))
    assert trained == 3 * [("LION-LIT", "equal time")]
    # A fine-tuning whose steps are as fast, from a language model whose steps are not.
    fine_tuning = text.TextSearch("section", text.SCALES["quick"]["section"], folder, args, search)
    for name in ("choice", "train"):
        monkeypatch.setattr(fine_tuning, name, getattr(search, name))
    monkeypatch.setattr(fine_tuning, "times", lambda choices: dict.fromkeys(ratios, 1.0))
    fine_tuning.equal_time(list(ratios))
    assert trained == 6 * [("LION-LIT", "equal time")]
    row = {"scale": "cpu", "task": "mlm", "trial": 3, "seed": 1, "test_score": 0.5}
    rows = [row | {"contestant": name, "stage": "equal steps"} for name in ratios]
    rows += [row | {"contestant": "LION-LIT", "stage": "equal time", "test_score": 0.6}]
    speed = [row | {"contestant": name, "ratio": ratio} for name, ratio in ratios.items()]
    columns = ("C4 masked-LM accuracy, large, %", "GLUE, large", "training time ÷ softmax, masked LM")
    published = [{"model": name, **dict.fromkeys(columns)} for name in ratios]
    found = {"real_text": rows, "real_text_speed": speed, "published": published}
    table = tables.real_text(lambda name: found.get(name, [])).partition("Equal time")[2]
    assert all(f"| {name} | {score} |" in table for name, score in zip(ratios, ("50.0", "50.0", "60.0"), strict=True))


def search_for(best: dict[str, float], images, rate_search, folder: Path, *options: str):
    """A search without trainings, whose best learning rates are these."""
    experiment = images.SCALES["quick"]["7x7"]
    data = images.load_data(some_images(), some_images(), experiment)
    args = arguments(images, rate_search, "--scale", "quick", "--output_dir", str(folder), *options)
    found = images.ImageSearch("7x7", experiment, data, args)

    def columns(case, model, experiment, record):
        far = abs(experiment.learning_rate / best[case["contestant"]] - 1)
        far += "initializer_range" not in experiment.variant
        return {"validation_accuracy": -far, "validation_loss": far, "test_accuracy": 0.5, "chance": 0.1}

    found.columns = columns
    return found


def test_trials_go_on_beyond_the_edge_where_the_best_one_is(images, rate_search, tmp_path):
    """Of every model alike: until a higher and a lower learning rate are both worse, whatever else a trial has."""
    best = {"softmax": 0.4e-3, "LION": 5e-3, "Vim": 1.2e-3, "LION-S": 1e-9}  # learning rates
    search = partial(search_for, best, images, rate_search, tmp_path)
    before = search()
    for name in best:
        before.equal_steps(name)
    assert [before.choice(name) for name in best] == [2, 3, 2, 2]
    assert [len(before.all_trials(name)) for name in best] == [5] * 4  # the first one beyond is known
    assert [len(before.numbers(name)) for name in best] == [4] * 4
    assert len(search("--trials", "6").numbers("LION")) == 4
    widened = search("--beyond_edges")
    assert widened.choice("LION") is None  # while a trial is missing
    for name in best:
        widened.equal_steps(name)
    rates = [[trial.get("rate", 1.0) for trial in widened.all_trials(name).values()] for name in best]
    assert rates == [
        [1, 2, 1, 2, 0.5, 0.25],
        [1, 2, 1, 2, 4, 8],
        [1, 2, 1, 2, 0.5],
        [1, 2, 1, 2, *(0.5**n for n in range(1, 7))],
    ]
    choices = [widened.choice(name) for name in best]
    further = [widened.all_trials("LION")[number] for number in range(3, 6)]
    assert choices == [4, 4, 2, 9] and {x.get("initializer_range") for x in further} == {0.1}
    rows = read_rows(widened.path, contestant="LION", stage="equal steps")
    assert [row["trial"] for row in rows] == [3] * 3 + [4] * 3
    assert " --beyond_edges --output_dir" in rows[-1]["command"]
    edges = importlib.import_module("reports.paired").edges
    marks = edges(read_rows(widened.path))
    assert [marks["7x7", name] for name in best] == ["", "", "", " ↓"]  # six are enough
    change = next(name for name in widened.changes if name.startswith("LION,"))
    assert widened.make(change, 4)[1].learning_rate == pytest.approx(4e-3)
    without = search()  # the option left out undoes nothing
    assert without.choice("LION") == 4 and without.make("LION", 4)[1].learning_rate == pytest.approx(4e-3)


def test_trials_go_on_beyond_the_edge_of_a_part_of_the_grid(images, rate_search, tmp_path):
    """They have numbers behind the whole grid, which may be trained later."""
    search = partial(search_for, {"LION": 5e-3}, images, rate_search, tmp_path)
    numbers = lambda search: {row["trial"] for row in read_rows(search.path, stage="trial")}
    part = search("--trials", "2", "--beyond_edges")
    part.equal_steps("LION")
    assert numbers(part) == {0, 1, 4, 5} and part.choice("LION") == 4
    assert [part.all_trials("LION")[number] for number in (4, 5)] == [{"rate": 4.0}, {"rate": 8.0}]
    assert search("--trials", "2").choice("LION") == 4  # the option left out undoes nothing
    whole = search("--beyond_edges")
    assert whole.choice("LION") is None  # while a trial of the grid is missing
    whole.equal_steps("LION")
    assert numbers(whole) == {*range(8)} and whole.choice("LION") == 6
    assert whole.all_trials("LION")[6] == {"initializer_range": 0.1, "rate": 4.0}


def test_trials_beyond_edges_are_refused_where_they_would_mislead(images, text, rate_search, tmp_path, capsys):
    for bench, words, message in (
        (images, ["--trials", "1"], "--beyond_edges goes on from the best of several trials: give more --trials"),
        (text, ["--tasks", "mlm", "section"], "fine-tunings in the table started: leave the task mlm out"),
    ):
        with pytest.raises(SystemExit):
            bench.main(["--quick", "--beyond_edges", "--output_dir", str(tmp_path), *words])
        assert message in capsys.readouterr().err and not list(tmp_path.iterdir())
