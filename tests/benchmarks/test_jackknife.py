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


def trained(paired, numbers, seeds: int, examples: int, spread: tuple[float, float, float], has_examples: bool = True):
    """Scores of two models whose difference is 0 over all seeds and examples, but not over these."""
    of_seeds, of_examples, rest = spread
    numbers = (
        of_seeds * numbers.normal(size=(seeds, 1))
        + of_examples * numbers.normal(size=examples)
        + rest * numbers.normal(size=(seeds, examples))
    )
    first, second = {}, {}
    for seed, values in enumerate(numbers):
        for of, x in ((first, values), (second, np.zeros(examples))):
            of[seed] = paired.Score(x.mean())
            if has_examples and seed < 2:  # two of the seeds are enough
                of[seed].of_examples = x
    return first, second


@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("spread", [(0.01, 1.0, 1.0), (0.1, 1.0, 1.0), (0.1, 0.0, 1.0)])
def test_intervals_hold_the_true_difference(paired, seeds, spread):
    """In 95 of 100 repetitions with other seeds and other examples; without the examples, in far fewer."""
    numbers, count, examples = np.random.default_rng(0), 1000, 200

    def is_inside(has_examples: bool) -> float:
        found = (trained(paired, numbers, seeds, examples, spread, has_examples) for _ in range(count))
        ends = [paired.difference(*scores)[1:] for scores in found]
        return sum(low <= 0 <= high for low, high in ends) / count

    assert 0.93 <= is_inside(True) <= 0.985  # an error of the examples below 0 counts as none
    if spread == (0.01, 1.0, 1.0):
        assert is_inside(False) < 0.9


def test_the_error_of_examples_is_what_seeds_have_in_common(paired):
    """Of many seeds and examples, it is the variance of the common part by the number of examples."""
    numbers = np.random.default_rng(0)
    found = 0.5 * numbers.normal(size=20_000) + numbers.normal(size=(6, 20_000))
    assert paired.error_of_examples(found) == pytest.approx(0.25 / 20_000, rel=0.05)
    opposite = numbers.normal(size=100)
    assert paired.error_of_examples(np.stack([opposite, -opposite])) == 0.0  # no variance is below 0


def test_tables_say_which_intervals_know_of_examples(paired):
    numbers = np.random.default_rng(0)
    with_them = dict(zip(("LION", "softmax"), trained(paired, numbers, 3, 50, (1, 1, 1)), strict=True))
    without = dict(zip(("LION", "softmax"), trained(paired, numbers, 3, 50, (1, 1, 1), False), strict=True))
    alone = "Over seeds alone, since results of single examples were not kept: the intervals of {}."
    note = paired.note({"7x7": with_them, "14x14": without}, "softmax", has_edges=False)
    assert "over seeds and test examples." in note and alone.format("14x14") in note
    assert "alone" not in paired.note({"7x7": with_them}, "softmax", has_edges=False)
    mixed = with_them | {"Vim": without["LION"]}
    assert alone.format("Vim in 7x7") in paired.note({"7x7": mixed}, "softmax", has_edges=False)
    low, high = paired.difference(mixed["Vim"], mixed["softmax"])[1:]  # one model has no examples
    plain = {name: {seed: float(x) for seed, x in scores.items()} for name, scores in mixed.items()}
    assert (low, high) == paired.difference(plain["Vim"], plain["softmax"])[1:]
