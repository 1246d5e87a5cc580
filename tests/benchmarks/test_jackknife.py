# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Results of single test examples: what they are, how tables keep them, and what intervals make of them."""

import importlib
from types import SimpleNamespace

import numpy as np
import pytest
from measure import append_rows, read_rows


CASE = {"scale": "cpu", "task": "7x7", "contestant": "LION", "stage": "equal steps", "trial": 1, "seed": 4}


@pytest.fixture
def jackknife():
    return importlib.import_module("jackknife")


@pytest.fixture
def paired():
    return importlib.import_module("reports.paired")


def test_an_accuracy_is_made_of_right_and_wrong_examples(jackknife):
    training = importlib.import_module("training_lion.scripts.training")
    logits = np.random.default_rng(0).normal(size=(50, 4))
    labels = np.arange(50) % 4
    output = SimpleNamespace(predictions=logits, label_ids=labels)
    values = jackknife.jackknife_values(training.accuracy, "accuracy", output)
    np.testing.assert_allclose(values, logits.argmax(-1) == labels, atol=1e-12)


def test_examples_with_several_labels_are_weighed(jackknife):
    """The accuracy is a ratio of sums, as micro F1 is: the formula of both parts, written out."""
    training, glue = (importlib.import_module(x) for x in ("training_lion.scripts.training", "run_glue"))
    numbers = np.random.default_rng(1)
    answers, labels = numbers.integers(3, size=(2, 20, 7))
    labels[numbers.random(labels.shape) < 0.5] = -100
    values = jackknife.jackknife_values(
        training.accuracy, "accuracy", SimpleNamespace(predictions=answers, label_ids=labels)
    )
    right, of = ((labels == answers).sum(1), (labels != -100).sum(1))
    left_out = (right.sum() - right) / (of.sum() - of)
    np.testing.assert_allclose(values, 20 * right.sum() / of.sum() - 19 * left_out, atol=1e-12)

    logits, several = numbers.normal(size=(20, 5)), (numbers.random((20, 5)) < 0.3).astype(float)
    task = glue.Task((), ("a",) * 5, ("f1_micro",), is_multi_label=True)
    metrics = lambda prediction: glue.measure(prediction, task, [*range(5)])
    values = jackknife.jackknife_values(metrics, "f1_micro", SimpleNamespace(predictions=logits, label_ids=several))
    right, of = 2 * ((logits > 0) * several).sum(1), (logits > 0).sum(1) + several.sum(1)
    left_out = (right.sum() - right) / (of.sum() - of)
    np.testing.assert_allclose(values, 20 * right.sum() / of.sum() - 19 * left_out, atol=1e-12)


def test_many_examples_are_left_out_in_groups(jackknife):
    """Neighbours together: of an accuracy, their share of right ones."""
    training = importlib.import_module("training_lion.scripts.training")
    answers, labels = np.random.default_rng(0).integers(2, size=(2, 50))
    output = SimpleNamespace(predictions=answers, label_ids=labels)
    for most in (10, 5):
        values = jackknife.jackknife_values(training.accuracy, "accuracy", output, most)
        np.testing.assert_allclose(values, (answers == labels).reshape(most, -1).mean(1), atol=1e-12)
    odd = SimpleNamespace(predictions=answers[:-3], label_ids=labels[:-3])
    assert len(jackknife.jackknife_values(training.accuracy, "accuracy", odd, most=10)) == 10
    many = SimpleNamespace(predictions=np.zeros(2001, int), label_ids=np.zeros(2001, int))
    assert len(jackknife.jackknife_values(training.accuracy, "accuracy", many)) == 2000


def test_correlations_that_are_not_defined_are_quiet(jackknife, capsys):
    glue = importlib.import_module("run_glue")
    output = SimpleNamespace(predictions=np.ones((5, 1)), label_ids=np.arange(5.0))
    metrics = lambda prediction: glue.measure(prediction, glue.Task((), (), ("pearson",)), [])
    assert jackknife.jackknife_values(metrics, "pearson", output).tolist() == [0.0] * 5
    assert capsys.readouterr().out == ""


def test_values_are_kept_beside_the_table(jackknife, tmp_path):
    path, values = tmp_path / "real_images.csv", np.random.default_rng(0).normal(size=1001)
    append_rows(path, [CASE | {"test_accuracy": 0.5}, CASE | {"seed": 5, "test_accuracy": 0.6}])
    jackknife.append_values(path, CASE, np.zeros(3))
    jackknife.append_values(path, CASE | {"settings": "of another column"}, values)  # again: a run was stopped
    first, second = jackknife.with_values(read_rows(path), read_rows(tmp_path / "real_images_examples.csv"))
    np.testing.assert_allclose(first["jackknife"], values, rtol=2**-10, atol=2**-14)
    assert first["test_accuracy"] == 0.5 and "jackknife" not in second
    assert jackknife.with_values([{"no": "case"}], []) == [{"no": "case"}]


def trained(
    paired, numbers, seeds: int, examples: int, spread: tuple[float, float, float], with_examples: int = 2
) -> tuple[dict, dict]:
    """Scores of two models whose difference is 0 over all seeds and examples, but not over these."""
    of_seeds, of_examples, rest = spread
    values = (
        of_seeds * numbers.normal(size=(seeds, 1))
        + of_examples * numbers.normal(size=examples)
        + rest * numbers.normal(size=(seeds, examples))
    )
    first, second = {}, {}
    for seed, of_seed in enumerate(values):
        for of, x in ((first, of_seed), (second, np.zeros(examples))):
            of[seed] = paired.Score(x.mean())
            if seed < with_examples:
                of[seed].of_examples = x
    return first, second


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("seeds, with_examples", [(2, 2), (3, 3), (5, 2)])
def test_intervals_hold_the_true_difference(paired, seeds, with_examples, share):
    """
    In 95 or more of 100 repetitions with other seeds and other examples, whatever share of the variance is that of the
    examples; without these, in far fewer.
    """
    numbers, count, examples = np.random.default_rng(0), 1500, 150
    rest = (1 - share) / 2
    spread = (rest * seeds) ** 0.5, (share * examples) ** 0.5, (rest * seeds * examples) ** 0.5

    def is_inside(with_examples: int) -> float:
        found = (trained(paired, numbers, seeds, examples, spread, with_examples) for _ in range(count))
        ends = [paired.difference(*scores)[1:] for scores in found]
        return sum(low <= 0 <= high for low, high in ends) / count

    assert 0.935 <= is_inside(with_examples) <= 0.995  # 3 standard deviations of 1,500 repetitions are 0.017
    if share > 0.5:
        assert is_inside(0) < 0.87


def test_the_error_of_examples_is_what_seeds_have_in_common(paired):
    """Of many seeds and examples, it is the variance of the common part by the number of examples."""
    numbers = np.random.default_rng(0)
    found = 0.5 * numbers.normal(size=20_000) + numbers.normal(size=(6, 20_000))
    assert paired.error_of_examples(found) == pytest.approx(0.25 / 20_000, rel=0.05)
    opposite = numbers.normal(size=100)
    assert paired.error_of_examples(np.stack([opposite, -opposite])) == 0.0  # no variance is below 0


def test_tables_say_which_intervals_know_of_examples(paired):
    numbers = np.random.default_rng(0)
    make = lambda count: dict(zip(("LION", "softmax"), trained(paired, numbers, 3, 50, (1, 1, 1), count), strict=True))
    with_them, without = make(2), make(0)
    alone = "Without the error of the test examples are the intervals of {}."
    note = paired.note({"7x7": with_them, "14x14": without}, "softmax", has_edges=False)
    assert "and the error of the test examples)." in note and alone.format("14x14") in note
    assert "Without the error" not in paired.note({"7x7": with_them}, "softmax", has_edges=False)
    none = paired.note({"14x14": without}, "softmax", has_edges=False)
    assert "seeds; without the error of the test examples, which all" in none and "Without" not in none
    mixed = with_them | {"Vim": without["LION"]}
    assert alone.format("Vim in 7x7") in paired.note({"7x7": mixed}, "softmax", has_edges=False)
    low, high = paired.difference(mixed["Vim"], mixed["softmax"])[1:]  # one model has no examples
    plain = {name: {seed: float(x) for seed, x in scores.items()} for name, scores in mixed.items()}
    assert (low, high) == paired.difference(plain["Vim"], plain["softmax"])[1:]
    assert alone.format("14x14") in paired.note({"7x7": with_them, "14x14": make(1)}, "softmax", has_edges=False)


@pytest.mark.parametrize("is_kept", [True, False])
def test_each_stage_says_so_of_its_own_intervals(paired, is_kept):
    real = importlib.import_module("reports.real")
    numbers, titles = np.random.default_rng(0), {"7x7": "7 × 7 patches, test %"}
    stages = {
        stage: trained(paired, numbers, 3, 50, (1, 1, 1), 2 * (x or is_kept))
        for stage, x in (("equal steps", True), ("equal time", False))
    }
    columns = {stage: {titles["7x7"]: dict(zip(("LION", "softmax"), of, strict=True))} for stage, of in stages.items()}
    steps, time = real.score_tables(columns, {}, {}, "", "softmax", [], {}).split("Equal time")
    assert "Without the error" not in steps and ("Without the error" in time) == (not is_kept)


def test_changes_say_so_by_their_models(paired):
    """Each beside the model that it changes."""
    real, numbers = importlib.import_module("reports.real"), np.random.default_rng(0)
    rows = []
    for name, count in (("LION", 3), ("LION, a", 0), ("LION, b", 2), ("LION-S", 0), ("LION-S, a", 2)):
        for seed in (1, 2, 3):
            row = CASE | {"task": "7x7", "contestant": name, "seed": seed, "test_accuracy": 0.5 + seed / 100}
            row |= {"stage": "one change" if "," in name else "equal steps"}
            rows.append(row | ({"jackknife": numbers.normal(size=9)} if seed <= count else {}))
    found = real.scores_of(rows, "one change", real.IMAGES, "test_accuracy")["7 × 7 patches, test %"]
    found |= real.scores_of(rows, "equal steps", real.IMAGES, "test_accuracy")["7 × 7 patches, test %"]
    told = paired.over_seeds_alone({"7x7": found}, real.base_of)
    assert told.endswith("are the intervals of LION, a, LION-S, a in 7x7.")
