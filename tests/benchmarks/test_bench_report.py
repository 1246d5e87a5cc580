# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Tables of results: rows survive kills and other processes; the pages are what the tables say."""

import argparse
import hashlib
import importlib
import json
import math
import multiprocessing
import re
import shutil
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from gpu import sources

from modeling_lion.triton import launch_options


ROOT = Path(__file__).parents[2]


@pytest.fixture
def measure():
    return importlib.import_module("measure")


@pytest.fixture
def report(measure):
    return importlib.import_module("report")


def test_rows_come_back(measure, tmp_path):
    path = tmp_path / "new" / "table.csv"
    assert measure.read_rows(path) == []
    measure.append_rows(path, [{"model": 'D♮, "snake"', "seed": 0, "loss": 0.123456789123, "chance": None}])
    measure.append_rows(path, [{"model": "S", "seed": 1, "loss": 1e-9, "chance": None}])
    first, second = measure.read_rows(path)
    assert (first["model"], first["seed"], first["loss"], first["chance"]) == ('D♮, "snake"', 0, 0.12345679, None)
    assert measure.machine().items() <= first.items() and re.fullmatch(r"\d{4}-\d\d-\d\d", first["day"])
    assert measure.read_rows(path, model="S") == measure.read_rows(path, seed=1, loss=1e-9) == [second]
    assert measure.latest([first, second], "chance") == {(None,): second}
    with pytest.raises(ValueError, match="accuracy"):
        measure.append_rows(path, [{"accuracy": 1.0}])
    assert measure.read_rows(path) == [first, second]


def test_measured_is_what_this_machine_measured(measure, tmp_path, monkeypatch):
    path, cases = tmp_path / "table.csv", [{"length": 1}, {"length": 2}]
    measure.append_rows(path, cases[:1])
    assert measure.is_measured(path, cases[:1]) and not measure.is_measured(path, cases)
    here = measure.machine()
    monkeypatch.setattr(measure, "machine", lambda: here | {"torch": "1.0.0"})
    assert not measure.is_measured(path, cases[:1])


def test_times_of_other_kernels_or_tiles_are_measured_again(measure, tmp_path, monkeypatch):
    """Also beside rows of a table from before there was such a column."""
    path = tmp_path / "kernels_gpu.csv"
    case = lambda: {"length": 1} | measure.gpu(measure.REHEARSAL)
    measure.append_rows(path, [{name: x for name, x in case().items() if name != "sources"} | {"note": "a, b"}])
    arguments = Namespace(device=measure.REHEARSAL, output_dir=tmp_path)
    assert measure.table_of(arguments, "kernels") == measure.table_of(arguments, "kernels") == path
    assert not measure.is_measured(path, [case()])
    measure.append_rows(path, [case()])
    first, second = measure.read_rows(path)
    assert (first["note"], first["sources"], second["note"]) == ("a, b", None, None)
    assert measure.is_measured(path, [case()])
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "H100")
    monkeypatch.setattr(launch_options, "architecture", lambda device: "sm_90")
    assert measure.gpu() == {"gpu": "H100", "tiles_measured_on": None, "sources": case()["sources"]}
    root = tmp_path / "root"
    shutil.copytree(sources.ROOT / "modeling_lion", root / "modeling_lion")
    shutil.copytree(sources.ROOT / "configuration_lion", root / "configuration_lion")
    monkeypatch.setattr(sources, "ROOT", root)
    for file, old, new in (("config.py", "sm_90 16  64| 64", "sm_90 16  64| 32"), ("decay.py", "tl.exp2", "tl.exp")):
        measure.model_sources.cache_clear()
        assert measure.is_measured(path, [case()])
        changed = root / "modeling_lion" / "triton" / file
        text = changed.read_text()
        assert old in text
        changed.write_text(text.replace(old, new))
        measure.model_sources.cache_clear()
        assert not measure.is_measured(path, [case()])
        changed.write_text(text)
    measure.model_sources.cache_clear()


def test_a_killed_process_leaves_whole_rows(measure, tmp_path):
    path = tmp_path / "table.csv"
    for seed in range(3):
        measure.append_rows(path, [{"model": "♮", "seed": seed}])
    whole = path.read_bytes()
    last = whole[: whole.rindex(b"\n", 0, -1) + 1]
    header = whole[: whole.index(b"\n") + 1]
    ends = [n for n, byte in enumerate(whole) if byte == ord("\n")]
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        # A row is whole without the end of its line, too, as an editor may leave it; titles are not.
        kept = sum(end <= length for end in ends[1:])
        assert [row["seed"] for row in measure.read_rows(path)] == list(range(kept))
        measure.append_rows(path, [{"model": "♮", "seed": 2}])
        assert path.read_bytes().startswith(header)
        assert [row["seed"] for row in measure.read_rows(path)] == [*range(kept), 2]
    assert path.read_bytes() == whole + whole[len(last) :]


def append_many(folder: str, path: Path, number: int) -> None:
    import sys

    sys.path.insert(0, folder)
    import measure

    for seed in range(40):
        measure.append_rows(path, [{"model": f"process {number}", "seed": seed, "part": part} for part in range(3)])


def test_processes_share_a_table(measure, tmp_path):
    path = tmp_path / "table.csv"
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(target=append_many, args=(str(ROOT / "benchmarks"), path, number)) for number in range(4)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    rows = [(row["model"], row["seed"], row["part"]) for row in measure.read_rows(path)]
    assert path.read_text().count("model,seed,part") == 1
    for number in range(4):  # in order, and three rows at a time
        of_process = [i for i, row in enumerate(rows) if row[0] == f"process {number}"]
        assert [rows[i][1:] for i in of_process] == [(seed, part) for seed in range(40) for part in range(3)]
        assert all(of_process[i + 2] == of_process[i] + 2 for i in range(0, 120, 3))
    assert len(rows) == 480


@pytest.fixture
def pages(report, tmp_path, monkeypatch):
    """Copies of the generated pages, in place of the originals."""
    texts = {path: path.read_text(encoding="utf-8") for path in report.PAGES}
    copies = [tmp_path / "docs" / path.relative_to(report.DOCS) for path in texts]
    for copy, text in zip(copies, texts.values(), strict=True):
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text, encoding="utf-8")
    monkeypatch.setattr(report, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(report, "PAGES", copies)
    return dict(zip(copies, texts.values(), strict=True))


def test_the_pages_are_made_of_the_tables(report, pages, monkeypatch):
    """Whoever changes a table or a text in between writes the pages anew; all figures stand in them."""
    monkeypatch.setattr(report, "PICTURES", {})
    report.main([])
    assert {path: path.read_text(encoding="utf-8") for path in pages} == pages
    waiting = [
        x for x in report.TABLES.values() if x.csv and not any((report.RESULTS / f"{y}.csv").exists() for y in x.csv)
    ]
    assert sum(text.count("Not measured.") for text in pages.values()) == len(waiting)


def test_every_block_is_on_one_page(report):
    names = [name for path in report.PAGES for name in report.marker_names(path.read_text(encoding="utf-8"))]
    assert sorted(names) == sorted(report.TABLES)


@pytest.mark.slow
def test_every_picture_is_drawn_and_on_a_page(report, pages, tmp_path):
    report.write_pages(report.RESULTS)
    drawn = {path.stem for path in (tmp_path / "docs" / "images").iterdir()}
    shown = {name for text in pages.values() for name in re.findall(r"\(\.\./images/(.*?)\.png\)", text)}
    assert shown == set(report.PICTURES) == drawn - {f"{report.IN_README}_dark"} < drawn


def test_no_tables_no_pages(report, tmp_path):
    assert report.write_pages(tmp_path) == [] and not list((tmp_path / "images").iterdir())
    assert {name for name, table in report.TABLES.items() if table.make(report.reader(tmp_path)).strip()} == {
        name for name, table in report.TABLES.items() if not table.is_measured
    }


def test_own_tables_are_for_papers_and_say_what_they_are_of(report, measure, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "PICTURES", {})
    case = {
        "scale": "cpu",
        "task": "mlm",
        "stage": "equal steps",
        "trial": 0,
        "settings": "length=8 data=0123456789ab",
    }
    rows = [case | {"contestant": name, "seed": 1, "test_score": 0.5} for name in ("LION-D", "softmax", "R&D_mixer")]
    rows += [case | {"contestant": "LION-D", "seed": 2, "test_score": 0.6}]
    measure.append_rows(tmp_path / "real_text.csv", rows)
    report.write_pages(tmp_path)
    lines = (tmp_path / "latex" / "real_text.tex").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "% Equal steps:" and lines[1].startswith(r"\begin{tabular}{lr") and r"\toprule" in lines
    cells = {line.split(" & ")[0].strip(): line.split(" & ")[1].strip() for line in lines if " & " in line}
    assert cells[r"R\&D\_mixer"] == "50.0" and cells["LION-D"] == r"55.0 $\pm$ 7.1 (n = 2)"
    about = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    digest = hashlib.sha256((tmp_path / "real_text.csv").read_bytes()).hexdigest()
    found = about["files"]["real_text.csv"]
    assert (found["rows"], found["sha256"], found["data"]) == (4, digest, ["0123456789ab"])
    assert found["torch"] == [torch.__version__] and re.fullmatch(r"[0-9a-f]{40}", about["reported_at_commit"])


def test_a_manifest_has_all_runs_and_the_data_of_each_table(report, measure, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "PICTURES", {})
    mixer = tmp_path / "own.py"
    mixer.write_text("1", encoding="utf-8")
    args = argparse.Namespace(command="python benchmarks/bench_lra.py", mixers=[str(mixer)], config=None, steps=3)
    args.output_dir = Path("out")
    run = report.run_of(args)
    digest = hashlib.sha256(b"1").hexdigest()
    assert run == {
        "command": args.command,
        "options": {"steps": 3, "output_dir": "out"},
        "files": {str(mixer): digest},
    }
    out = tmp_path / "out"
    tables = {"lra": ["length=8 steps=1", "length=8 data=ab steps=1"], "recall": ["length=8 steps=1"]}
    tables |= {"real_images": ["data=cd steps=1", "steps=1"], "length": ["length=8 steps=1"]}
    for name, settings in tables.items():
        measure.append_rows(out / f"{name}.csv", [{"scale": "no", "settings": text} for text in settings])
    for other in (run, run, None, run | {"command": "another"}):
        report.write_manifest(out, other)
    about = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    assert [x["command"] for x in about["runs"]] == [args.command, "another"]
    assert all(x["files"] == run["files"] and x["reported_at_commit"] for x in about["runs"])
    data = {name: found["data"] for name, found in about["files"].items()}
    assert data == {
        "lra.csv": ["ab", report.GENERATED],
        "recall.csv": [report.GENERATED],
        "real_images.csv": ["cd", "not recorded"],
        "length.csv": ["not recorded"],
    }
    assert all(len(found["day"]) == 1 for found in about["files"].values())


def test_latex_has_no_sign_that_it_does_not_know(report):
    latex = importlib.import_module("reports.latex")
    read, made = report.reader(report.RESULTS), {}
    for name, table in report.TABLES.items():
        made[name] = latex.latex_tables(table.make(read))
        assert made[name].isascii() and "`" not in made[name] and "**" not in made[name], name
    names = [*importlib.import_module("trainings").MODELS, "10⁻¹²", "λ_max = ½", "φ(x) ≤ 3", "a & b {c} ~ ^ < 1"]
    text = latex.latex_tables("| `x_y` | **b** [c](d.md) |\n|---|---|\n" + "".join(f"| {x} | 1 |\n" for x in names))
    assert text.isascii() and r"\texttt{x\_y} & \textbf{b} c \\" in text
    for cell in (
        r"10$^{-}$$^{1}$$^{2}$ &",
        r"$\lambda$\_max = $\frac{1}{2}$ &",
        r"$\phi$(x) $\le$ 3 &",
        r"a \& b \{c\} \textasciitilde{} \textasciicircum{} $<$ 1 &",
    ):
        assert cell in text
    assert "\n\\par{\\footnotesize Mean $\\pm$ standard deviation of" in made["real images"]


def test_a_table_without_the_reference_says_so(report):
    row = {"scale": "cpu", "task": "listops", "stage": "equal steps", "trial": 0, "chance": 0.1, "test_accuracy": 0.5}
    rows = [row | {"contestant": "LION-D", "seed": seed} for seed in (1, 2, 3)]
    make = lambda rows: report.TABLES["lra"].make(lambda name: rows if name == "lra" else [])
    reference = [x | {"contestant": "softmax (rotary)"} for x in rows]
    told = "is told where softmax (rotary) has no trainings, from which it would be told: ListOps, test %."
    elsewhere = make([*rows, *(x | {"task": "text"} for x in reference)])
    assert told in elsewhere and "No difference" in report.latex_tables(elsewhere)
    assert told not in make([*rows, *reference])
    # Nowhere: the first model takes its place.
    others = make([*rows, *(x | {"contestant": "mine", "test_accuracy": 0.6} for x in rows)])
    assert "difference from LION-D, paired" in others and "| mine | 60.0 ± 0.0; +10.0 [+10.0, +10.0] |" in others


@pytest.mark.parametrize("name", ["real images", "lra"])
def test_models_that_take_the_same_time_are_in_both_tables(report, name):
    """The reference, too: it has no trainings of its own with equal time."""
    reference = {"real images": "softmax", "lra": "softmax (rotary)"}[name]
    task = {"real images": "7x7", "lra": "listops"}[name]
    row = {"scale": "cpu", "task": task, "trial": 0, "chance": 0.1, "test_accuracy": 0.5, "seed": 1}
    rows = [row | {"contestant": x, "stage": "equal steps"} for x in (reference, "LION-D", "LION-S")]
    rows += [row | {"contestant": "LION-D", "stage": "equal time"}]
    speed = [row | {"contestant": x, "ratio": y} for x, y in ((reference, 1.0), ("LION-D", 2.0), ("LION-S", 1.03))]
    found = {"real_images": rows, "lra": rows, "real_images_speed": speed, "lra_speed": speed}
    made = report.TABLES[name].make(lambda x: found.get(x, []))
    of_time = made.partition("Equal time")[2]
    assert all(f"| {x} |" in of_time for x in (reference, "LION-D", "LION-S")) and "has no trainings" not in of_time


def luminances(color: str) -> tuple[float, ...]:
    """Of red, green and blue on a screen."""
    parts = [int(color[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    return tuple(x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)


def lab(color: str) -> tuple[float, ...]:
    """The colour in CIELAB, where distances are those that people see."""
    weights = ((0.4339, 0.3762, 0.1899), (0.2126, 0.7152, 0.0722), (0.0178, 0.1095, 0.8727))
    sums = [sum(w * x for w, x in zip(row, luminances(color), strict=True)) for row in weights]
    x, y, z = (x ** (1 / 3) if x > 0.008856 else 7.787 * x + 16 / 116 for x in sums)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def test_colours_of_ones_own_mixers_are_seen_and_told_apart():
    names, length = (importlib.import_module(f"reports.{x}") for x in ("names", "length"))
    named = {*names.COLORS.values(), *length.VARIANTS.values(), names.NOTE}
    own = [f"own {n}" for n in range(len(names.OWN_COLORS) + 1)]
    found = names.colors_of(importlib.import_module("reports.cells").in_order([*own, "softmax"]))
    assert [*found] == ["softmax", *own] and found["softmax"] == names.COLORS["softmax"]
    assert found[own[0]] == found[own[-1]]  # they take turns
    colors = [found[name] for name in own[:-1]]
    for n, color in enumerate(colors):
        assert min(math.dist(lab(color), lab(x)) for x in named | {*colors[:n]}) > 35
        red, green, blue = luminances(color)
        assert 1.05 / (0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05) > 2.6  # contrast with white


def test_ones_own_mixer_is_in_the_picture(report):
    """Also if the file of the mixer was not given, as report.py is not."""
    row = {"scale": "cpu", "task": "7x7", "trial": 0, "stage": "equal steps", "seed": 1, "test_accuracy": 0.5}
    row |= {"ratio": 1.0, "threads": 1, "cpu": "a CPU", "capability": "AVX2"}
    rows = [row | {"contestant": name} for name in ("a mixer", "softmax", "another")]
    read = lambda name, **values: rows if name in ("real_images", "real_images_speed") else []
    plt = importlib.import_module("training_lion.scripts.pictures").plt
    figure = report.PICTURES["scores_by_time"](read, plt)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["softmax", "a mixer", "another"]
    points = {container[0].get_color() for container in figure.axes[0].containers}
    plt.close(figure)
    assert len(points) == 3


def test_own_pictures_are_pdf_too(report, tmp_path, monkeypatch):
    def draw(read, plt):
        figure, axis = plt.subplots()
        axis.plot([0, 1])
        return figure

    monkeypatch.setattr(report, "PICTURES", {"drawn": draw})
    report.write_pages(tmp_path)
    assert {x.name for x in (tmp_path / "images").iterdir()} == {"drawn.png", "drawn.pdf"}
    assert (tmp_path / "images" / "drawn.pdf").read_bytes().startswith(b"%PDF")


def test_own_pages_have_what_was_measured_and_no_text_about_ours(report):
    page = """# Title

Our text, and `a command`.

![Shown](../images/shown.png)

## First

LION wins.

```sh
# not a heading
```

<!-- begin: a -->

old

<!-- end -->

### Second

<!-- begin: b -->

<!-- end -->

![Not drawn](../images/other.png)
"""
    own = "# Title\n\n![Shown](images/shown.png)\n\n## First\n\n| new |\n"
    assert report.only_measured(page, {"a": "| new |\n", "b": ""}, {"shown"}) == own
    assert report.only_measured(page, {"b": " "}, set()) == ""


def test_our_pages_show_a_part_of_a_table_and_link_to_the_rest():
    table = importlib.import_module("reports.registry").Table
    lines = ["|  | loss | accuracy |", "|---|---|---|", "| S | 1 | 2 |", "| D | 3 | 4 |"]
    whole = "\n".join(["Above:", "", *lines])
    link = "\n\nAll rows: [a.csv](../../benchmarks/results/a.csv)."
    assert table(None, ("a",), True, "", "").on_page(whole) == whole
    assert table(None, ("a",), True, r"^\| D", "").on_page(whole) == whole.replace("| S | 1 | 2 |\n", "") + link
    shown = "Above:\n\n|  | accuracy |\n|---|---|\n| S | 2 |\n| D | 4 |"
    assert table(None, ("a",), True, "", "loss").on_page(whole) == shown + link
    many = "\n".join([*lines[:2], *(f"| {i} | 1 | 2 |" for i in range(12))])
    assert table(None, ("a",), True, "", "").on_page(many) == many.rpartition("\n")[0] + link


@pytest.mark.slow
def test_a_run_that_has_begun(report, measure, tmp_path, monkeypatch):
    """One row, or one model, of each table is enough for the pages."""
    here = measure.machine()
    monkeypatch.setattr(measure, "machine", lambda: here | {"threads": 1, "capability": "AVX512"})
    for path in report.RESULTS.glob("*.csv"):
        rows = measure.read_rows(path)
        if path.stem in ("kernels", "kernels_bfloat16"):
            rows = [row for row in rows if (row["length"], row["threads"], row["capability"]) == (128, 1, "AVX512")]
        elif path.stem != "published":
            rows = rows[:1]
        if path.stem != "published":
            measure.append_rows(tmp_path / path.name, rows)
    text = "".join(path.read_text(encoding="utf-8") for path in report.write_pages(tmp_path))
    assert "| BERT, 12 layers, 109M | 15.5 s / – |" in text and "| LION-D ÷ softmax | 0.99 / 1.08 |" in text


def test_a_page_needs_its_markers(report):
    page = "above\n<!-- begin: a -->\nold\n<!-- end -->\nbelow"
    assert report.fill(page, {"a": "new", "b": "other"}) == page.replace("old", "\nnew\n")
    for wrong in (page.replace("begin: a", "begin: c"), page + page, page.replace("<!-- end -->", "")):
        with pytest.raises(ValueError, match="markers"):
            report.fill(wrong, {"a": "new"})


def test_ratios_are_of_one_day():
    """Another day may be slower: models are compared with the peer that ran beside them."""
    rows = [
        {"modality": "text", "size": 8, "mode": "infer", "model": model, "median": median, "day": day}
        | {"layers": 1, "parameters": 10**6}
        for model, median, day in [
            *(("BERT", 2.0, "a"), ("LION-S", 1.0, "a"), ("LION-LIT", 0.5, "a")),
            *(("BERT", 3.0, "b"), ("LION-D", 6.0, "b")),
        ]
    ]
    found = {
        model: row
        for (*_, model), row in importlib.import_module("reports.models").model_rows(lambda name: rows).items()
    }
    ratios = {"BERT": 1, "LION-S": 0.5, "LION-LIT": 0.25, "LION-D": 2}
    assert {model: row["ratio"] for model, row in found.items()} == ratios
    assert {model: row["median"] for model, row in found.items()} == {name: 2 * x for name, x in ratios.items()}


def test_seeds_of_an_earlier_choice_do_not_count():
    columns = ("task", "contestant", "stage", "trial", "seed")
    trials = [("mlm", "LION", "trial", n, 0) for n in range(2)]
    first = [("mlm", "LION", "equal steps", 0, n) for n in (1, 2, 3)]
    later = [("mlm", "LION", "trial", 2, 0), ("mlm", "LION", "equal steps", 2, 1)]
    other = [("mlm", "Hydra", "equal steps", 0, 1)]
    rows = [dict(zip(columns, row, strict=True)) for row in (*trials, *first, *other, *later)]
    found = importlib.import_module("reports.cells").of_last_choice(rows)
    assert [tuple(row.values()) for row in found] == [*trials, *other, *later]
    # Nor in other stages, nor with a change.
    stale = [("mlm", "LION", "equal time", 0, 1), ("mlm", "LION, a", "one change", 0, 1)]
    fresh = [("mlm", "LION", "equal time", 2, 1), ("mlm", "LION, a", "one change", 2, 1)]
    alone = [("mlm", "LION-S", "equal time", 1, 1), ("mlm", "LION-S, a", "one change", 3, 1)]
    rows += [dict(zip(columns, row, strict=True)) for row in (*stale, *fresh, *alone)]
    found = importlib.import_module("reports.cells").of_last_choice(rows)
    assert [tuple(row.values()) for row in found] == [*trials, *other, *later, *fresh, *alone]
