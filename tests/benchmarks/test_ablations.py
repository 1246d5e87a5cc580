# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""All variants of the trainings of bench_quality.py, and all patterns of layers, each in one table."""

import importlib

import pytest


HEADER = "scale,task,model,initial_decays,seed,variant,validation_loss,validation_accuracy,test_accuracy,settings\n"
ROWS = """\
cpu,mlm,Vim,default,0,,4.5,,,steps=90 x=1
cpu,mlm,Vim,default,0,,4,,,steps=100 x=1
cpu,mlm,Vim,default,0,fan_in,3.5,,,steps=120 x=1
cpu,recall,LION-S,default,0,,1,0.5,0.8,steps=10 x=1
cpu,recall,LION-S,default,1,,1,0.5,0.9,steps=20 x=1
cpu,recall,LION-S,default,0,pooling=mean,1,0.6,0.7,steps=30 x=1
cpu,recall,LION-S,default,1,pooling=mean,1,0.6,0.6,steps=40 x=1
cpu,recall,LION-S,default,0,fan_in,1,0.4,0.9,steps=50 x=1
cpu,recall,LION-S,default,0,learning_rate=0.1 steps=60,1,0.9,0.9,steps=60 x=1
cpu,recall,LION-S,default,1,learning_rate=0.1 steps=60,1,nan,nan,steps=60 x=1
cpu,recall,LION-S,normal logits,0,,1,1,1,steps=1 x=1
gpu,recall,LION-S,default,0,,1,1,1,steps=1 x=1
"""


@pytest.fixture
def learning():
    return importlib.import_module("reports.ablations")


@pytest.fixture
def read(tmp_path):
    (tmp_path / "quality.csv").write_text(HEADER + ROWS, encoding="utf-8")
    return importlib.import_module("report").reader(tmp_path)


def test_all_variants_are_in_one_table(learning, read):
    lines = learning.ablations(read).splitlines()
    assert lines[0] == "| model | variant | mlm, validation loss | recall, test % |"
    assert lines[2:] == [
        "| LION-S | default |  | 85.0 ± 7.1 |",
        "| LION-S | fan_in |  | 90.0 |",
        "| LION-S | learning_rate=0.1 steps=60 |  | 90.0 |",  # the other one diverged
        "| LION-S | pooling=mean |  | 65.0 ± 7.1 |",
        "| Vim | default | 4.50 |  |",  # the first of two
        "| Vim | fan_in | 3.50 |  |",
        "",
        "Mean ± standard deviation of 2 seeds, or one seed.",
    ]
    assert learning.load_scores([]).empty and learning.ablations(lambda name: []) == ""


def test_patterns_of_layers_are_in_one_table(learning):
    types = lambda *words: "layer_types=" + str([f"{word}_attention" for word in words]).replace("'", '"')
    rows = [("mlm", None, 3.9), ("mlm", f"{types('linear', 'linear', 'sliding')} sliding_window=8", 4.0)]
    rows += [("recall", None, 0.2), ("recall", f"conv_kernel=0 head_directions=both {types('full', 'full')}", 1.0)]
    rows = [
        {"task": task, "variant": variant, "model": "LION", "seed": seed, "initial_decays": "default"}
        | {"validation_loss": score, "validation_accuracy": score, "test_accuracy": score, "settings": "steps=5"}
        for task, variant, score in rows
        for seed in range(2)
    ]
    other = rows[0] | {"model": "LION-S", "validation_loss": 9.0}
    assert learning.layer_patterns(lambda name: [*rows, other]).splitlines()[2:] == [
        "| LLL | 3.90 ± 0.00 |  |",
        "| LLS sliding_window=8 | 4.00 ± 0.00 |  |",
        "| FF |  | 100.0 ± 0.0 |",
        "| LL |  | 20.0 ± 0.0 |",
        "",
        "Mean ± standard deviation of 2 seeds.",
    ]


def test_models_of_an_iterator_are_all_in_order():
    in_order = importlib.import_module("reports.cells").in_order
    assert in_order(iter(["Vim", "softmax", "Hydra"])) == [
        "softmax",
        "Hydra",
        "Vim",
    ]
