# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The tasks of the Long Range Arena: labels that are right, splits without overlap, the same examples again."""

import importlib
import json
import shutil
from pathlib import Path
from statistics import median_low

import numpy as np
import pytest
from datasets import load_from_disk
from scipy import ndimage


LIBRARY = Path(json.__file__).parents[1]
FOLDERS = tuple(str(LIBRARY / name) for name in ("asyncio", "concurrent", "email", "importlib"))
SIZES = {"train": 24, "validation": 12, "test": 12}


@pytest.fixture
def lra():
    return importlib.import_module("tasks.lra")


@pytest.fixture(scope="module")
def packages(tmp_path_factory) -> Path:
    """A folder with some packages of the standard library: to read all of it takes seconds."""
    folder = tmp_path_factory.mktemp("library")
    for name in ("asyncio", "ctypes", "email", "multiprocessing", "unittest"):
        shutil.copytree(LIBRARY / name, folder / name)
    return folder


@pytest.fixture
def tasks(lra, packages) -> dict:
    """With small sizes."""
    return {
        "listops": lra.ListOps(min_length=5, longest=30, max_depth=3, max_arguments=4),
        "text": lra.Text(longest=128, num_packages=2, folders=(str(packages),)),
        "retrieval": lra.Retrieval(longest=200, folders=FOLDERS),
        "pathfinder": lra.Pathfinder(),
        "digits": lra.Digits(),
        "neighbour": lra.Neighbour(length=8),
        "recall": lra.Recall(length=24),
        "scenes": lra.Scenes(),
        "definitions": lra.Definitions(length=96, folders=FOLDERS),
    }


def rows(task, split: str, count: int, seed: int = 0) -> list[dict]:
    return [task.example(split, index, seed) for index in range(count)]


def evaluate(tokens: list[str]) -> int:
    """The value of a ListOps expression, with a stack."""
    stack: list = []
    for token in tokens:
        if token != "]":
            stack.append(int(token) if token.isdigit() else token)
            continue
        start = max(i for i, item in enumerate(stack) if isinstance(item, str))
        operator, values = stack[start], np.array(stack[start + 1 :])
        value = {
            "[MIN": values.min,
            "[MAX": values.max,
            "[MED": lambda v=values: int(np.median(v)),
            "[SM": lambda v=values: v.sum() % 10,
        }[operator]()
        stack[start:] = [int(value)]
    (result,) = stack
    return result


def test_evaluate_knows_examples():
    assert evaluate(["[MAX", "2", "9", "[MIN", "4", "7", "]", "0", "]"]) == 9
    assert evaluate(["[SM", "8", "7", "[MED", "1", "4", "9", "]", "]"]) == 9
    assert evaluate(["[MED", "3", "4", "8", "9", "]"]) == 6 != median_low([3, 4, 8, 9])


@pytest.mark.parametrize("sizes", [{}, {"min_length": 5, "longest": 40, "max_depth": 3, "max_arguments": 4}])
def test_listops_answers(lra, sizes):
    from tasks.lra.listops import TOKENS

    task = lra.ListOps(**sizes)
    seen = set()
    for row in rows(task, "validation", 25 if sizes else 6):
        tokens = [TOKENS[i] for i in row["input_ids"]]
        assert task.min_length <= len(tokens) <= task.longest
        assert evaluate(tokens) == row["label"]
        depth = np.cumsum([token.startswith("[") - (token == "]") for token in tokens])
        assert depth.max() <= task.max_depth and depth[-1] == 0 and (depth[:-1] > 0).all()
        seen.update(tokens)
    assert seen == set(TOKENS) - {"[PAD]"}


@pytest.mark.slow
def test_pathfinder_dots_are_connected_or_not(lra):
    """The faintest ink joins the dashes of a curve, and not two curves; dots are what is thicker than a dash."""
    task = lra.Pathfinder()
    examples = rows(task, "test", 20)
    for row in examples:
        image = np.array(row["input_ids"]).reshape(task.grid)
        dots, count = ndimage.label(ndimage.binary_erosion(image > 150))
        assert count == 2
        curves, _ = ndimage.label(image > 8, np.ones((3, 3)))
        first, second = (curves[dots == n][0] for n in (1, 2))
        assert (first == second) == row["label"]
        assert len(np.unique(curves)) - 1 >= 2
    assert 4 < sum(row["label"] for row in examples) < 16


def test_text_is_of_the_package_without_its_name(tasks):
    task = tasks["text"]
    assert len(task.labels) == 2
    originals = dict.fromkeys(task.labels, "")
    for package in task.labels:
        for file in sorted((LIBRARY / package).rglob("*.py")):
            originals[package] += " ".join(file.read_text(errors="replace").split())
    for row in rows(task, "train", 12):
        text = bytes(i - 1 for i in row["input_ids"]).decode(errors="ignore")
        assert len(row["input_ids"]) <= 128 and not any(name in text.lower() for name in task.labels)
        package = task.labels[row["label"]]
        piece = max(text.split("_"), key=len)[:30].strip()
        assert piece in originals[package].replace("\\", "") and len(piece) > 5


@pytest.mark.slow
def test_retrieval_documents_are_of_one_file_or_two(lra, tasks):
    from tasks.lra.documents import documents
    from tasks.lra.retrieval import SEPARATOR_ID

    task = tasks["retrieval"]
    found = documents(task.folders, task.max_bytes)
    labels = []
    for split in ("train", "test"):
        files = [" ".join(file) for package in found[split].values() for file in package.values()]
        for row in rows(task, split, 10):
            cut = row["input_ids"].index(SEPARATOR_ID)
            halves = row["input_ids"][:cut], row["input_ids"][cut + 1 :]
            left, right = (bytes(i - 1 for i in half).decode(errors="ignore") for half in halves)
            of = [{n for n, file in enumerate(files) if half in file} for half in (left, right)]
            assert all(of) and bool(of[0] & of[1]) == row["label"]
            labels.append(row["label"])
            if row["label"]:
                assert left not in right and right not in left
    assert 0 < sum(labels) < len(labels)
    everything = [{f for p in found[split].values() for f in p} for split in lra.SPLITS]
    assert not (everything[0] & everything[1] or everything[0] & everything[2] or everything[1] & everything[2])


def test_digits_are_the_scans(lra):
    from sklearn.datasets import load_digits

    digits = load_digits()
    known = {
        np.round(x * (255 / 16)).astype(int).tobytes(): y for x, y in zip(digits.data, digits.target, strict=True)
    }
    task, count = lra.Digits(), 0
    for split in lra.SPLITS:
        for row in rows(task, split, task.size_of(split)):
            assert known[np.array(row["input_ids"]).tobytes()] == row["label"]
            count += 1
    assert count == len(known)


def test_neighbour_is_on_the_left(lra):
    task = lra.Neighbour(length=9, num_symbols=5)
    for row in rows(task, "test", 5):
        before = [lra.Neighbour().labels[0], *map(str, row["input_ids"][:-1])]
        assert [task.labels[label] for label in row["labels"]] == before and set(row["input_ids"]) <= set(range(1, 6))


def test_scenes_are_named_after_the_leftmost_digit(lra, monkeypatch):
    """Drawn as blocks of the digit's brightness: the scene of a split has none but its scans."""
    from tasks.lra import scenes

    known = {split: [(np.full(64, 20 * n + 15), n) for n in range(10)] for split in lra.SPLITS}
    monkeypatch.setattr(scenes, "scans", lambda seed: known)
    monkeypatch.setattr(scenes, "distort", lambda generator, scan: np.full((scenes.SIDE, scenes.SIDE), scan[0, 0]))
    seen = set()
    for row in rows(lra.Scenes(scraps=0), "test", 20):
        image = np.array(row["input_ids"]).reshape(24, 24)
        left = image[:, np.flatnonzero(image.any(0))[0]].max()
        assert (left - 15) // 20 == row["label"] and len(np.unique(image)) <= 3
        seen.add(row["label"])
    assert len(seen) > 4
    with pytest.raises(ValueError, match="digits"):
        lra.Scenes(digits=3)


def test_distorted_digits_keep_their_ink(lra):
    from tasks.lra import scenes

    for index, (pixels, _) in enumerate(scenes.scans(0)["test"][:20]):
        scan = pixels.reshape(8, 8)
        drawn = scenes.distort(np.random.default_rng(index), scan)
        assert drawn.shape == (scenes.SIDE, scenes.SIDE) and drawn.min() >= 0 and drawn.max() <= scan.max() + 1e-9
        share = drawn.sum() / scan.astype(float).sum()
        # Ink grows with the area: by the squares of SCALES, less what a corner loses outside of the square.
        assert 0.8 * scenes.SCALES[0] ** 2 < share < 1.1 * scenes.SCALES[1] ** 2


@pytest.mark.parametrize("filler", [0, 7])
def test_recalled_values_are_those_of_the_pairs(lra, filler):
    task, seen = lra.Recall(length=25 + filler, num_pairs=8, num_keys=9, num_values=3), set()
    for split in lra.SPLITS:
        for row in rows(task, split, 4):
            tokens = row["input_ids"]
            middle = tokens.index(1)
            assert len(tokens) == len(row["labels"]) == task.length and middle == 16 + filler // 2
            first = [token for token in tokens[:middle] if token != 2]
            values = {key: name - 3 for key, name in zip(first[::2], first[1::2], strict=True)}
            assert len(values) == 8 and set(values.values()) <= {0, 1, 2}
            assert min(values) >= 6 and max(values) < task.vocab_size == 15
            assert sorted(token for token in tokens[middle + 1 :] if token != 2) == sorted(values)
            asked = range(0 if split == "train" else middle, task.length)
            expected = [values.get(token, -100) if i in asked else -100 for i, token in enumerate(tokens)]
            assert row["labels"] == expected
            assert all(3 <= tokens[i + 1] < 6 for i in range(middle) if tokens[i] in values)
            seen.add(tuple(token == 2 for token in tokens))
    assert len(seen) == 1 if filler == 0 else len(seen) > 6
    for wrong in ({"length": 6}, {"length": 64, "num_keys": 20}, {"length": 64, "num_pairs": 22}):
        with pytest.raises(ValueError, match=list(wrong)[-1]):
            lra.Recall(**wrong)


def test_definitions_are_far_above_what_asks_for_them(lra):
    from tasks.lra.definitions import GET_ID, SET_ID

    seen = set()
    for length, split in ((96, "train"), (96, "test"), (1000, "test")):
        task = lra.Definitions(length=length, num_definitions=3, num_names=5, num_values=4, folders=FOLDERS)
        for row in rows(task, split, 6):
            tokens = row["input_ids"]
            assert len(tokens) == len(row["labels"]) == length and max(tokens) < task.vocab_size
            places = [i for i, token in enumerate(tokens) if token == SET_ID]
            names = {tokens[i + 1]: (i + 1, tokens[i + 2] - GET_ID - 1) for i in places}
            assert len(names) == 3 and max(places) + 2 < length // 4
            assert all(task.first_name <= name < task.first_word for name in names)
            asked = [i + 1 for i, token in enumerate(tokens) if token == GET_ID]
            assert sorted(tokens[i] for i in asked) == sorted(names)
            assert all(i - names[tokens[i]][0] >= length // 2 for i in asked)
            labelled = asked + ([i + 1 for i in places] if split == "train" else [])
            assert [i for i, label in enumerate(row["labels"]) if label != lra.NO_LABEL] == sorted(labelled)
            assert all(row["labels"][i] == names[tokens[i]][1] for i in labelled)
            # The rest is text: nothing in it looks like a definition.
            others = [i for i in range(length) if i not in {p + k for p in places for k in range(3)}]
            others = [i for i in others if i not in {p - k for p in asked for k in range(2)}]
            assert all(tokens[i] == 1 or tokens[i] >= task.first_word for i in others)
            seen.add(tuple(places))
    assert len(seen) > 12
    for wrong in ({"length": 95, "num_definitions": 8}, {"num_definitions": 4, "num_names": 3}):
        with pytest.raises(ValueError, match=list(wrong)[-1]):
            lra.Definitions(**wrong)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "listops",
        "text",
        "retrieval",
        "pathfinder",
        "digits",
        "neighbour",
        "recall",
        "scenes",
        "definitions",
    ],
)
def test_examples_come_again_and_splits_do_not_overlap(lra, tasks, name):
    task = tasks[name]
    counts = {split: min(8, task.size_of(split) or 8) for split in lra.SPLITS}
    found = {split: rows(task, split, count) for split, count in counts.items()}
    assert found["test"] == rows(task, "test", counts["test"])
    assert found["test"] != rows(task, "test", counts["test"], seed=1)
    inputs = [{tuple(row["input_ids"]) for row in part} for part in found.values()]
    assert not (inputs[0] & inputs[1] or inputs[0] & inputs[2] or inputs[1] & inputs[2])
    low = 0 if task.grid else 1
    for row in sum(found.values(), []):
        assert 0 < len(row["input_ids"]) <= task.max_length
        labels = row["labels"] if task.per_token else [row["label"]]
        assert set(labels) - {lra.NO_LABEL} and set(labels) <= {lra.NO_LABEL, *range(len(task.labels))}
        assert not task.per_token or len(labels) == len(row["input_ids"])
        assert low <= min(row["input_ids"]) and max(row["input_ids"]) < task.vocab_size


def test_loaded_once(lra, tasks, tmp_path, monkeypatch):
    task = tasks["listops"]
    first = lra.load_task(task, SIZES, str(tmp_path))
    assert {split: len(part) for split, part in first.items()} == SIZES
    assert first["test"][3] == task.example("test", 3, seed=0)
    assert first["test"].features["label"].names == list(task.labels)
    with monkeypatch.context() as patch:
        patch.setattr(type(task), "example", lambda *args: pytest.fail("made anew"))
        again = lra.load_task(task, SIZES, str(tmp_path))
    assert again["train"][:] == first["train"][:]
    other = lra.load_task(task, {"test": 2}, str(tmp_path), seed=1)
    assert other["test"][0] != first["test"][0]
    assert len(lra.load_task(lra.Digits(), {"test": 10**6}, str(tmp_path))["test"]) == lra.Digits().size_of("test")
    with pytest.raises(ValueError, match="no split 'dev'"):
        lra.load_task(task, {"dev": 2}, str(tmp_path))
    with pytest.raises(ValueError, match="'test' is 0"):
        lra.load_task(task, {"test": 0}, str(tmp_path))


def test_too_little_text(lra):
    with pytest.raises(ValueError, match="num_packages"):
        lra.Text(folders=FOLDERS[:1], num_packages=100).labels  # noqa: B018


def test_make_lra(lra, tmp_path, capsys):
    importlib.import_module("make_lra").main(
        ["--output_dir", str(tmp_path / "out"), "--cache_dir", str(tmp_path / "cache")]
        + ["--tasks", "digits", "pathfinder", "--train_size", "5", "--eval_size", "3"]
    )
    assert "1024 to 1024 tokens" in capsys.readouterr().out
    assert {split: len(part) for split, part in load_from_disk(tmp_path / "out" / "pathfinder").items()} == {
        "train": 5,
        "validation": 3,
        "test": 3,
    }
