# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The generated tasks: labels that are right, splits without overlap, the same examples again."""

import importlib
import json
from itertools import combinations, product
from pathlib import Path

import pytest


LIBRARY = Path(json.__file__).parents[1]
FOLDERS = tuple(str(LIBRARY / name) for name in ("asyncio", "concurrent", "email", "importlib"))
SIZES = {"train": 24, "validation": 12, "test": 12}


@pytest.fixture
def generated():
    return importlib.import_module("tasks.generated")


@pytest.fixture
def tasks(generated) -> dict:
    """With small sizes."""
    return {
        "neighbour": generated.Neighbour(length=8),
        "recall": generated.Recall(length=24),
        "definitions": generated.Definitions(length=96, folders=FOLDERS),
    }


def rows(task, split: str, count: int, seed: int = 0) -> list[dict]:
    return [task.example(split, index, seed) for index in range(count)]


def value_of(symbols: list[str]) -> int:
    """The value of a ListOps expression, by a stack."""
    stack: list = []
    for symbol in symbols:
        if symbol != "]":
            stack.append(symbol if symbol.startswith("[") else int(symbol))
            continue
        values = []
        while not isinstance(stack[-1], str):
            values.append(stack.pop())
        values.sort()
        middle = len(values) // 2
        median = values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) // 2
        results = {"[MIN": values[0], "[MAX": values[-1], "[MED": median, "[SM": sum(values) % 10}
        stack[-1] = results[stack[-1]]
    (value,) = stack
    return value


def test_values_of_lists(generated):
    symbols = importlib.import_module("tasks.generated.listops").SYMBOLS
    assert value_of(["[MAX", "2", "9", "[MIN", "4", "7", "]", "0", "]"]) == 9
    task, seen = generated.ListOps(length=40, shortest=12, most_arguments=5, depth=3), set()
    for row in rows(task, "test", 40):
        words = [symbols[x - 1] for x in row["input_ids"]]
        assert row["labels"] == [value_of(words)] and 12 <= len(words) <= 40
        depth, deepest = 0, 0
        for word in words:
            depth += word.startswith("[") - (word == "]")
            deepest = max(deepest, depth)
        assert depth == 0 and deepest <= 3
        seen |= {*words}
    assert seen == {*symbols} and task.vocab_size == 16 and task.num_labels == 10
    with pytest.raises(ValueError, match="4 ≤ shortest ≤ length"):
        generated.ListOps(length=8, shortest=12)


@pytest.mark.parametrize("fields", [{}, {"length": 1024, "dashes": 9, "shorter": 3}])
def test_discs_lie_on_one_curve_or_on_two(generated, fields, monkeypatch):
    """The curves and discs that an image was drawn from say the label; curves of all images are alike."""
    task, drawn = generated.Pathfinder(**fields), []
    draw = type(task).draw
    monkeypatch.setattr(
        type(task), "draw", lambda self, curves, discs: drawn.append((curves, discs)) or draw(self, curves, discs)
    )
    monkeypatch.setattr("tasks.generated.pathfinder.split_of", lambda content: "train")
    labels = []
    for row, (curves, (first, second)) in zip(rows(task, "train", 30), drawn, strict=True):
        ends = [{curve[0], curve[-1]} for curve in curves]
        on = [{n for n, of_curve in enumerate(ends) if disc in of_curve} for disc in (first, second)]
        assert row["labels"] == [int(on[0] == on[1])] and on[0] | on[1] <= {0, 1} and first != second
        assert [len(curve) / 2 for curve in curves] == [task.dashes] * 2 + [task.dashes // 3] * task.shorter
        assert min(abs(x - y) for of_two in combinations(curves, 2) for x, y in product(*of_two)) >= 2.5
        assert len(row["input_ids"]) == task.length and 1 <= min(row["input_ids"]) <= max(row["input_ids"]) <= 16
        assert row["input_ids"].count(16) >= 2  # the middles of the discs are white
        labels += row["labels"]
    assert 5 < sum(labels) < 25
    with pytest.raises(ValueError, match="`length` is 250, and images are square"):
        generated.Pathfinder(length=250)


def test_neighbour_is_on_the_left(generated):
    task = generated.Neighbour(length=9, num_symbols=5)
    for row in rows(task, "test", 5):
        assert row["labels"] == [0, *row["input_ids"][:-1]] and set(row["input_ids"]) <= set(range(1, 6))


@pytest.mark.parametrize("filler", [0, 7])
def test_recalled_values_are_those_of_the_pairs(generated, filler):
    task, seen = generated.Recall(length=25 + filler, num_pairs=8, num_keys=9, num_values=3), set()
    for split in generated.SPLITS:
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
            generated.Recall(**wrong)


def test_definitions_are_far_above_what_asks_for_them(generated):
    from tasks.generated.definitions import GET_ID, SET_ID

    seen = set()
    for length, split in ((96, "train"), (96, "test"), (1000, "test")):
        task = generated.Definitions(length=length, num_definitions=3, num_names=5, num_values=4, folders=FOLDERS)
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
            assert [i for i, label in enumerate(row["labels"]) if label != generated.NO_LABEL] == sorted(labelled)
            assert all(row["labels"][i] == names[tokens[i]][1] for i in labelled)
            # The rest is text: nothing in it looks like a definition.
            others = [i for i in range(length) if i not in {p + k for p in places for k in range(3)}]
            others = [i for i in others if i not in {p - k for p in asked for k in range(2)}]
            assert all(tokens[i] == 1 or tokens[i] >= task.first_word for i in others)
            seen.add(tuple(places))
    assert len(seen) > 12
    for wrong in ({"length": 95, "num_definitions": 8}, {"num_definitions": 4, "num_names": 3}):
        with pytest.raises(ValueError, match=list(wrong)[-1]):
            generated.Definitions(**wrong)


@pytest.mark.parametrize("name", ["neighbour", "recall", "definitions"])
def test_examples_come_again_and_splits_do_not_overlap(generated, tasks, name):
    task = tasks[name]
    found = {split: rows(task, split, 8) for split in generated.SPLITS}
    assert found["test"] == rows(task, "test", 8)
    assert found["test"] != rows(task, "test", 8, seed=1)
    inputs = [{tuple(row["input_ids"]) for row in part} for part in found.values()]
    assert not (inputs[0] & inputs[1] or inputs[0] & inputs[2] or inputs[1] & inputs[2])
    for row in sum(found.values(), []):
        labels = row["labels"]
        assert len(labels) == len(row["input_ids"]) == task.length
        assert set(labels) - {generated.NO_LABEL}
        assert set(labels) <= {generated.NO_LABEL, *range(task.num_labels)}
        assert min(row["input_ids"]) >= 1 and max(row["input_ids"]) < task.vocab_size


def test_loaded_once(generated, tasks, tmp_path, monkeypatch):
    task = tasks["recall"]
    first = generated.load_task(task, SIZES, str(tmp_path))
    assert {split: len(part) for split, part in first.items()} == SIZES
    assert first["test"][3] == task.example("test", 3, seed=0)
    with monkeypatch.context() as patch:
        patch.setattr(type(task), "example", lambda *args: pytest.fail("made anew"))
        again = generated.load_task(task, SIZES, str(tmp_path))
    assert again["train"][:] == first["train"][:]
    other = generated.load_task(task, {"test": 2}, str(tmp_path), seed=1)
    assert other["test"][0] != first["test"][0]
    with pytest.raises(ValueError, match="no split 'dev'"):
        generated.load_task(task, {"dev": 2}, str(tmp_path))
    with pytest.raises(ValueError, match="'test' is 0"):
        generated.load_task(task, {"test": 0}, str(tmp_path))
