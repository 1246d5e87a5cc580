# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
Data as people have it, of which scripts elsewhere make wrong results without a word. Here each is read rightly, or
refused with the place. To add one, add a row to a table.
"""

import json
import os
import shutil
import unicodedata
from importlib import import_module
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pyarrow
import pytest
import torch
from datasets import ClassLabel, Dataset, Features, List, Value
from datasets import Image as ImageColumn
from PIL import Image
from pyarrow import parquet
from retrieval_lion.embed import corpus
from transformers import BertConfig, BertForMaskedLM, TrainerState

from modeling_lion import LionConfig, LionForMaskedLM, LionForSequenceClassification, LionTokenizer


QUIET = ["--use_cpu", "--dataloader_pin_memory", "False", "--disable_tqdm", "True", "--report_to", "none"]
TEXTS = ["a fine lion", "a dull lion", "a fine day", "a dull day"]
TINY = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("bad_data") / "model"
    tokenizer = LionTokenizer.train_from_iterator(TEXTS, vocab_size=60)
    torch.manual_seed(0)  # a fixture of the module is made before `repeatable`
    LionForMaskedLM(LionConfig(vocab_size=len(tokenizer), initializer_range=0.3, **TINY)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write(path: Path, content: str | bytes | dict | Dataset) -> str:
    """A file of this content; a table for columns, in the format of its ending."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, str):
        path.write_text(content, encoding="utf-8", newline="")
    elif path.suffix == ".parquet":
        (content if isinstance(content, Dataset) else Dataset.from_dict(content)).to_parquet(path)
    else:
        rows = [dict(zip(content, row, strict=True)) for row in zip(*content.values(), strict=True)]
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def run_glue(model: Path, folder: Path, *args: str):
    if "--do_train" in args:
        shutil.rmtree(folder / "out", ignore_errors=True)
    return import_module("run_glue").main(
        ["--model_name_or_path", str(model), "--output_dir", str(folder / "out"), *QUIET, *args]
        + ["--cache_dir", str(folder / "cache"), "--save_strategy", "no"]
    )


def results(folder: Path) -> dict[str, float]:
    """The metrics of an evaluation, as strict JSON."""
    return json.loads((folder / "out" / "eval_results.json").read_text(), parse_constant=pytest.fail)


def predictions(folder: Path) -> list[dict]:
    lines = (folder / "out" / "predictions.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    return [json.loads(line, parse_constant=pytest.fail) for line in lines]


# Name of a file, its content, and the rows that are read, or what is said.
TABLES = {
    "leading zeros": ("a.csv", "text,label\na,001\nb,01\nc,1\n", {"label": ["001", "01", "1"]}),
    "names that look empty": (
        "a.csv",
        "text,label\na,None\nb,NA\nc,null\nd,nan\n",
        {"label": ["None", "NA", "null", "nan"]},
    ),
    "numbers of 20 digits": ("a.csv", "text,id\na,12345678901234567890\n", {"id": ["12345678901234567890"]}),
    "an empty cell": ("a.csv", 'text,label\na,\nb,""\n', {"label": [None, None]}),
    "lines in cells": ("a.csv", 'text,label\n"a\n\nb",x\n', {"text": ["a\n\nb"]}),
    "a byte order mark": ("a.csv", "\ufefftext,label\na,x\n", {"text": ["a"]}),
    "a byte order mark alone": ("a.csv", "\ufeff", "a.csv has no rows: give a file that has some"),
    "ends of lines of Windows": ("a.csv", "text,label\r\na,x\r\n", {"label": ["x"]}),
    "other ends of lines in a cell": ("a.csv", "text,label\na\x0cb\u2028c\x85d,x\n", {"text": ["a\x0cb\u2028c\x85d"]}),
    "a cell of 200,000 characters": ("a.csv", f"text,label\n{'a' * 200_000},x\n", {"text": ["a" * 200_000]}),
    "more cells than the header": (
        "a.csv",
        "text,label\na,b,x\n",
        "a.csv line 2 has 3 cells, its header 2 .text, label.: put",
    ),
    "fewer cells than the header": ("a.csv", "text,label\na,x\nb\n", "line 3 has 1 cells, its header 2"),
    "two columns of one name": ("a.csv", "text,label,label\na,x,y\n", "two columns of one name in text, label, label"),
    "semicolons": (
        "a.csv",
        "text;label\na;x\n",
        "has one column, 'text;label': separate columns by commas, not by ';'",
    ),
    "an open quote": ("a.csv", 'text,label\n"a,x\n', "a.csv line 2 cannot be read as csv: unexpected end"),
    "numbers that JSON does not have": (
        "a.jsonl",
        '{"a": "x"}\n{"a": NaN}\n{"a": -Infinity}\n',
        {"a": ["x", None, None]},
    ),
    "capital letters": ("A.CSV", "text,label\na,x\n", {"label": ["x"]}),
    "dates": ("a.jsonl", '{"text": "a", "day": "2024-01-02"}\n', {"day": ["2024-01-02"]}),
    "dates with times": ("a.jsonl", '{"day": "2024-01-02T03:04:05Z"}\n', {"day": ["2024-01-02T03:04:05Z"]}),
    "a column that comes later": ("a.jsonl", '{"text": "a"}\n{"text": "b", "n": 1}\n', {"n": [None, 1]}),
    "names and numbers": ("a.jsonl", '{"label": 1}\n{"label": "a"}\n', {"label": ["1", "a"]}),
    "other ends of lines in JSON": ("a.jsonl", '{"text": "a\u2028b\x85c"}\n', {"text": ["a\u2028b\x85c"]}),
    "whole numbers that are fractions": ("a.jsonl", '{"label": 0.0}\n{"label": 1.0}\n', {"label": [0.0, 1.0]}),
    "text that looks like a table": (
        "a.jsonl",
        '{"text": "a: string, b: timestamp[s]"}\n',
        {"text": ["a: string, b: timestamp[s]"]},
    ),
    "quotes within a cell": ("a.csv", 'text,label\n5" wide,x\n', {"text": ['5" wide']}),
    "a quote that ends early": ("a.csv", 'text,label\na,y\n"a" b,x\n', "a.csv line 3 cannot be read as csv"),
    "an end of a line within one": ("a.csv", "text,label\na\rb,x\n", "line 2 has 1 cells, its header 2"),
    "a list of rows": ("a.json", '[{"text": "a"}, {"text": "b"}]', {"text": ["a", "b"]}),
    "numbers for rows": ("a.json", "[1, 2]", "a.json has the row 1: write rows as objects"),
    "a line that is cut": ("a.jsonl", '{"text": "a"}\n{"text": "b"\n', "a.jsonl line 2 cannot be read as json"),
    "half of a character": (
        "a.jsonl",
        '{"text": "\\ud800"}\n',
        "a.jsonl, row 1, has half of a character .*ud800. behind",
    ),
    "both halves of a character": ("a.jsonl", '{"text": "\\ud83e\\udd81"}\n', {"text": ["\U0001f981"]}),
    "nothing": ("a.txt", "", "a.txt is empty: give a file that has rows"),
    "a header alone": ("a.csv", "text\n", "a.csv has no rows"),
    "latin": ("a.txt", b"plain\n" * 9 + b"Gr\xf6\xdfe\n", r"not UTF-8 text \(line 10: byte 0xf6\).*-f windows-1252"),
    "utf-16": ("a.txt", "plain\n".encode("utf-16") * 9, "line 1: byte 0xff.*-f utf-16"),
    "no parquet": ("a.parquet", b"PAR1 noise", "a.parquet cannot be read as parquet"),
    "an unknown type": ("a.doc", "words", "none of the known types: .txt, .json, .jsonl, .csv, .parquet"),
}


@pytest.mark.parametrize("name", TABLES)
def test_cells_stay_what_they_are(name, tmp_path):
    module, (file, content, expected) = import_module("training_lion.scripts.data_files"), TABLES[name]
    files = {"train": write(tmp_path / file, content)}
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
            module.load_files(module.check_files(files))
        return
    dataset = module.load_files(module.check_files(files))["train"]
    assert {name: dataset[name][:] for name in expected} == expected
    if file.endswith(".csv"):
        rows = list(module.load_files(files, streaming=True)["train"])
        assert {name: [row[name] for row in rows] for name in expected} == expected


CLASSES = Features({"text": Value("string"), "label": ClassLabel(names=["bad", "good"])})
LISTS = Features({"text": Value("string"), "label": List(ClassLabel(names=["bad", "good"]))})
# Name of a file and its columns besides "text", or its content; for evaluation; what is said.
REFUSED = {
    "no class in ClassLabel": (
        "a.parquet",
        Dataset.from_dict({"text": TEXTS, "label": [0, 1, -1, 0]}, features=CLASSES),
        None,
        'a.parquet, row 3, has the "label" -1, which is no class: remove the row',
    ),
    "no class in lists": (
        "a.parquet",
        Dataset.from_dict({"text": TEXTS, "label": [[0], [1], [1, -1], []]}, features=LISTS),
        None,
        'row 3, has the "label" -1, which is no class',
    ),
    "the number of what does not count": ("a.jsonl", {"label": [0, 1, -100, 0]}, None, 'row 3, has the "label" -100'),
    "classes with gaps": (
        "a.jsonl",
        {"label": [0, 2, 3, 0]},
        [0, 1, 2, 0],
        "the labels 0, 2, 3; the data has 1 .*row 2",
    ),
    "numbers for names": ("a.jsonl", {"label": list("abab")}, [0, 1, 0, 1], "the labels a, b; the data has 0 .*row 1"),
    "a class of white space": ("a.jsonl", {"label": ["a", "b", " ", "a"]}, None, "row 3, has the \"label\" ' '. Give"),
    "NaN to regress on": (
        "a.jsonl",
        {"label": [0.5, 1.5, float("nan"), 2]},
        None,
        "has no 'label' in row 3: fill it in, or remove the row",
    ),
    "infinity to regress on": (
        "a.csv",
        "text,label\na b,0.5\nc d,inf\n",
        None,
        "has the label 'inf' in row 2, no number",
    ),
    "a name among fractions": (
        "a.csv",
        "text,label\na b,0.5\nc d,NA\n",
        None,
        "has the label 'NA' in row 2, no number",
    ),
    "names of files": (
        "a.csv",
        "file,label\nx/1.txt,a\nx/2.txt,b\n",
        None,
        "names of files in the column 'file' .x/1.txt.",
    ),
    "no text": (
        "a.jsonl",
        {"text": ["a", None, "b", "c"], "label": list("abab")},
        None,
        "no 'text' in row 2: fill it in",
    ),
    "no label": ("a.jsonl", {"label": ["a", None, "b", "c"]}, None, "has no 'label' in row 2: fill it in"),
    "no column of labels": (
        "a.jsonl",
        {"stars": [1, 2, 3, 4]},
        None,
        "a.jsonl has no column label, but text, stars: name the one of the labels by --label_column",
    ),
    "numbers for texts": (
        "a.jsonl",
        {"n": [1, 2, 3, 4], "label": list("abab")},
        None,
        "0 columns of texts among n, label",
    ),
    "two columns of texts": (
        "a.csv",
        "title,body,label\nab,cd,x\nef,gh,y\n",
        None,
        "2 columns of texts among title, body, label: name the one to read, or two for pairs, in --text_columns",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_tables_that_are_refused(name, model, tmp_path):
    file, content, evaluated, message = REFUSED[name]
    rows = {"text": TEXTS} if "n" not in content else {}
    train = write(tmp_path / file, rows | content if isinstance(content, dict) else content)
    validation = train if evaluated is None else write(tmp_path / "b.jsonl", {"text": TEXTS, "label": evaluated})
    with pytest.raises(ValueError, match=message):
        run_glue(model, tmp_path, "--do_train", "--do_eval", "--train_file", train, "--validation_file", validation)
    assert not (tmp_path / "out" / "config.json").exists()


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["001", "01", "1"], ["001", "01", "1"]),
        (["10", "9", "-1"], ["-1", "9", "10"]),
        (["None", "null"], ["None", "null"]),
        (["cafe\u0301", "caf\u00e9", "caf\u00e9 "], ["caf\u00e9"]),
        ([True, False], ["False", "True"]),
        (["B-X", "I-X", "O", "B-A"], ["O", "B-A", "B-X", "I-X"]),
    ],
)
def test_names_of_classes(labels, names):
    module = import_module("training_lion.scripts.class_names")
    read = module.label_names(Dataset.from_dict({"label": labels}), "label", "It")
    assert module.in_order({*read}) == names
    assert {*module.number_names(dict.fromkeys(read, "row"), names, "It")} == {*names}


def test_two_classes_of_one_name_are_refused_if_the_data_has_it():
    module = import_module("training_lion.scripts.class_names")
    assert module.number_names({"cat": "row 1"}, ["crane", "cat", "crane"], "It")["cat"] == 1
    with pytest.raises(ValueError, match="It has two classes named crane"):
        module.number_names({"crane": "row 1"}, ["crane", "cat", "crane"], "It")


def test_rows_stay_in_order(model, tmp_path):
    """Whatever the training does with its rows, each prediction is of its own text."""
    texts = [" ".join(["lion"] * length + ["fine"]) for length in (9, 1, 40, 3, 30, 2, 20, 25, 12, 7, 33)]
    rows = {"text": texts, "label": ["a", "b"] * 5 + ["a"]}
    file = write(tmp_path / "a.jsonl", rows)
    arguments = ["--train_sampling_strategy", "group_by_length", "--dataloader_drop_last", "True"]
    arguments += ["--train_file", file, "--validation_file", file, "--predict_file", file, "--max_steps", "2"]
    arguments += ["--do_train", "--do_eval", "--do_predict", "--per_device_eval_batch_size", "4"]
    trainer = run_glue(model, tmp_path, *arguments)
    labels, model = trainer.model.config.id2label, trainer.model.eval()
    found = predictions(tmp_path)
    assert [row["text"] for row in found] == texts and [row["given_label"] for row in found] == rows["label"]
    for row in found:
        with torch.no_grad():
            logits = model(**trainer.processing_class(row["text"], return_tensors="pt")).logits[0]
        expected = dict(zip(labels.values(), logits.softmax(-1).tolist(), strict=True))
        assert row["scores"] == pytest.approx(expected, abs=1e-5) and row["label"] == max(expected, key=expected.get)
    right = [row["label"] == row["given_label"] for row in found]
    assert results(tmp_path)["eval_accuracy"] == pytest.approx(np.mean(right))
    assert trainer.args.train_sampling_strategy == "group_by_length"


def test_arguments_that_leave_no_predictions_are_refused(model, tmp_path):
    file = write(tmp_path / "a.jsonl", {"text": TEXTS, "label": list("abab")})
    for option, value in (
        ("eval_do_concat_batches", "False"),
        ("batch_eval_metrics", "True"),
        ("prediction_loss_only", "True"),
    ):
        with pytest.raises(ValueError, match=f"--{option}.* leaves no predictions"):
            run_glue(model, tmp_path, "--do_predict", "--predict_file", file, f"--{option}", value)


def classifier(model: Path, folder: Path, names: dict[str, str]) -> Path:
    """A trained classifier, with `id2label` in this order in its config.json."""
    config = LionConfig.from_pretrained(model)
    config.id2label = (
        {i: names[str(i)] for i in range(len(names))} if {*names} == {*map(str, range(len(names)))} else None
    )
    torch.manual_seed(0)
    LionForSequenceClassification(config).save_pretrained(folder)
    LionTokenizer.from_pretrained(model).save_pretrained(folder)
    saved = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(saved | {"id2label": names}))
    return folder


def test_labels_go_by_their_numbers_and_not_by_their_places(model, tmp_path):
    """config.json has id2label in the order of text: 0, 1, 10, 11, 2, ..."""
    names = {key: f"class {key}" for key in sorted(map(str, range(12)))}
    folder = classifier(model, tmp_path / "model", names)
    file = write(tmp_path / "a.jsonl", {"text": [*TEXTS, "lion", "day", "fine", "dull"]})
    run_glue(folder, tmp_path, "--do_predict", "--predict_file", file)
    found = predictions(tmp_path)
    trained, tokenizer = (
        LionForSequenceClassification.from_pretrained(folder).eval(),
        LionTokenizer.from_pretrained(folder),
    )
    for row in found:
        with torch.no_grad():
            logits = trained(**tokenizer(row["text"], return_tensors="pt")).logits[0]
        assert row["label"] == trained.config.id2label[int(logits.argmax())] == names[str(int(logits.argmax()))]
    # Evaluated, and trained on: the numbers are those of the names.
    labelled = write(tmp_path / "b.jsonl", {"text": [x["text"] for x in found], "label": [x["label"] for x in found]})
    more = ("--do_train", "--do_eval", "--train_file", labelled, "--validation_file", labelled, "--learning_rate", "0")
    trainer = run_glue(folder, tmp_path, *more, "--max_steps", "1")
    assert results(tmp_path)["eval_accuracy"] == 1
    assert trainer.model.config.id2label == {int(key): name for key, name in names.items()}


def test_numbers_of_labels_with_gaps_are_refused(model, tmp_path):
    folder = classifier(model, tmp_path / "model", {"0": "a", "1": "b"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"id2label": {"0": "a", "2": "b"}}))
    file = write(tmp_path / "a.jsonl", {"text": TEXTS})
    with pytest.raises(ValueError, match=r"id2label in config.json of .* has the numbers \[0, 2\]: count from 0 on"):
        run_glue(folder, tmp_path, "--do_predict", "--predict_file", file)


def test_a_task_of_the_benchmark_goes_by_the_names_of_the_model(model, tmp_path):
    """Which has them in another order, and in capitals."""
    folder = classifier(model, tmp_path / "model", {"0": "DUPLICATE", "1": "NOT_DUPLICATE"})
    rows = {"question1": TEXTS, "question2": TEXTS[::-1]}
    run_glue(
        folder, tmp_path, "--do_predict", "--predict_file", write(tmp_path / "a.jsonl", rows), "--task_name", "qqp"
    )
    said = [row["label"].lower() for row in predictions(tmp_path)]
    numbers = {"not_duplicate": 0, "duplicate": 1}
    for labels in (said, [numbers[name] for name in said]):
        file = write(tmp_path / "b.jsonl", rows | {"label": labels})
        run_glue(folder, tmp_path, "--do_eval", "--validation_file", file, "--task_name", "qqp")
        assert results(tmp_path)["eval_accuracy"] == 1 and results(tmp_path)["eval_f1"] == float("duplicate" in said)
    file = write(tmp_path / "c.jsonl", {"sentence": TEXTS, "label": [0, 1, 0, 1]})
    with pytest.raises(
        ValueError, match="labels DUPLICATE, NOT_DUPLICATE, the task negative, positive: train it first"
    ):
        run_glue(folder, tmp_path, "--do_eval", "--validation_file", file, "--task_name", "sst2")


def test_a_model_may_have_more_classes_than_the_data(model, tmp_path):
    folder = classifier(model, tmp_path / "model", {"0": "c", "1": "a", "2": "b"})
    for labels, expected in ((["a", "c"] * 2, [1, 0]), ([["a"], ["c"]] * 2, [[0, 1, 0], [1, 0, 0]])):
        file = write(tmp_path / "a.jsonl", {"text": TEXTS, "label": labels})
        trainer = run_glue(folder, tmp_path, "--do_train", "--train_file", file, "--max_steps", "1")
        assert trainer.train_dataset["labels"][:2] == expected
        assert trainer.model.config.id2label == {0: "c", 1: "a", 2: "b"}


def test_a_model_that_regresses_is_evaluated_on_whole_numbers_too(model, tmp_path):
    config = LionConfig.from_pretrained(model, num_labels=1, problem_type="regression")
    LionForSequenceClassification(config).save_pretrained(tmp_path / "model")
    LionTokenizer.from_pretrained(model).save_pretrained(tmp_path / "model")
    file = write(tmp_path / "a.csv", "text,label\n" + "".join(f"{text},{n}\n" for n, text in enumerate(TEXTS)))
    run_glue(tmp_path / "model", tmp_path, "--do_eval", "--validation_file", file)
    assert -1 <= results(tmp_path)["eval_pearson"] <= 1 and "eval_accuracy" not in results(tmp_path)


def test_a_model_with_one_class_predicts_its_number(model, tmp_path):
    """As a converted cross-encoder, which has no `problem_type`; a softmax of one logit is 1."""
    config = LionConfig.from_pretrained(model, num_labels=1)
    LionForSequenceClassification(config).save_pretrained(tmp_path / "model")
    LionTokenizer.from_pretrained(model).save_pretrained(tmp_path / "model")
    file = write(tmp_path / "a.csv", "text\n" + "\n".join(TEXTS) + "\n")
    run_glue(tmp_path / "model", tmp_path, "--do_predict", "--predict_file", file)
    assert len({row["score"] for row in predictions(tmp_path)}) == len(TEXTS)


def test_labels_of_another_name_beside_a_column_called_label(model, tmp_path):
    file = write(tmp_path / "a.jsonl", {"text": TEXTS, "label": [7] * 4, "kind": list("abab")})
    more = ("--do_train", "--train_file", file, "--label_column", "kind", "--max_steps", "1")
    trainer = run_glue(model, tmp_path, *more)
    assert trainer.model.config.id2label == {0: "a", 1: "b"} and trainer.train_dataset["labels"][:] == [0, 1, 0, 1]


def test_what_is_beside_the_texts_stays_there(model, tmp_path):
    """Columns named like an answer, dates, bytes and numbers that are none."""
    folder = classifier(model, tmp_path / "model", {"0": "a", "1": "b"})
    import datetime

    columns = {
        "text": TEXTS,
        "label": ["mine"] * 4,
        "scores": [1, 2, 3, 4],
        "given_label": ["also mine"] * 4,
        "day": [datetime.date(2024, 1, 2)] * 4,
        "time": [datetime.datetime(2024, 1, 2, 3, 4, 5)] * 4,
        "data": [b"\xff\x00"] * 4,
        "n": [float("nan"), float("inf"), None, 0.5],
    }
    file = write(tmp_path / "a.parquet", columns)
    run_glue(folder, tmp_path, "--do_predict", "--predict_file", file, "--text_columns", "text")
    found = predictions(tmp_path)
    assert [row["given_given_label"] for row in found] == ["also mine"] * 4
    assert [row["given_label"] for row in found] == ["mine"] * 4 and {row["label"] for row in found} <= {"a", "b"}
    assert [row["given_scores"] for row in found] == [1, 2, 3, 4] and all(
        row["scores"].keys() == {"a", "b"} for row in found
    )
    assert found[0]["day"] == "2024-01-02" and found[0]["time"] == "2024-01-02T03:04:05"
    assert found[0]["data"] == "/wA=" and [row["n"] for row in found] == [None, None, None, 0.5]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("rows", [1, 4])
def test_correlations_that_are_not_defined_count_as_0(rows, model, tmp_path, capsys):
    train = write(tmp_path / "a.jsonl", {"text": TEXTS, "label": [0.5, 1.5, 2.5, 3.5]})
    same = write(tmp_path / "b.jsonl", {"text": TEXTS[:rows], "label": [0.5] * rows})
    more = ("--do_train", "--do_eval", "--train_file", train, "--validation_file", same, "--max_steps", "1")
    run_glue(model, tmp_path, *more)
    assert results(tmp_path)["eval_pearson"] == results(tmp_path)["eval_spearman"] == 0
    assert "their correlation counts as 0" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft reads it
@pytest.mark.parametrize(
    ("kind", "script", "columns"),
    [
        ("lion", "run_glue", {"text": TEXTS, "label": [["a"], ["a", "b"], [], ["b"]]}),
        ("bert", "run_glue", {"text": TEXTS, "label": [0.5, 1.5, 2.5, 3.5]}),
        ("bert", "run_glue", {"text": TEXTS, "label": list("abab")}),
        ("bert", "run_token_classification", {"tokens": [x.split() for x in TEXTS], "tags": [list("XYX")] * 4}),
        ("bert", "run_mlm", {"text": TEXTS}),
        ("bert", "finetune_lora", {"text": TEXTS, "label": list("abab")}),
    ],
    ids=["lion", "regression", "one label", "tokens", "mlm", "lora"],
)
def test_a_step_is_as_large_in_one_batch_as_in_several(kind, script, columns, model, tmp_path):
    """SGD without clipping shows the size of the gradients."""
    if kind == "bert":
        tokenizer = LionTokenizer.from_pretrained(model)
        bert = BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), hidden_dropout_prob=0.0, **TINY))
        bert.config.attention_probs_dropout_prob = 0.0
        bert.save_pretrained(tmp_path / "model")
        tokenizer.save_pretrained(tmp_path / "model")
        model = tmp_path / "model"
    file, weights = write(tmp_path / "a.jsonl", columns), {}
    more = ["--train_file", file, "--max_steps", "1", "--optim", "sgd", "--max_grad_norm", "0", *QUIET]
    if script == "finetune_lora":
        more += ["--model", str(model)]
    else:
        more += ["--model_name_or_path", str(model), "--do_train", "--cache_dir", str(tmp_path / "cache")]
    if script == "run_mlm":
        more += ["--line_by_line", "--mlm_probability", "0.99"]
    for name, size, count, rate in (("none", 4, 1, "0"), ("one", 4, 1, "0.1"), ("several", 1, 4, "0.1")):
        sizes = ["--per_device_train_batch_size", str(size), "--gradient_accumulation_steps", str(count)]
        out = ["--output_dir", str(tmp_path / name), "--save_strategy", "no", "--learning_rate", rate]
        trainer = import_module(script).main([*more, *sizes, *out])
        weights[name] = torch.nn.utils.parameters_to_vector(trainer.model.parameters())
    one, several = (weights[name] - weights["none"] for name in ("one", "several"))
    tolerance = 0.2 if script == "run_mlm" else 1e-3  # not all texts have as many masks
    assert (one - several).norm() < tolerance * one.norm() > 0


def test_short_trainings_have_curves(model, tmp_path, monkeypatch):
    """Also one of one step."""
    drawn, pictures = [], import_module("training_lion.scripts.pictures")
    monkeypatch.setattr(pictures, "save", lambda figure, path: drawn.append(figure))
    file = write(tmp_path / "a.jsonl", {"text": TEXTS, "label": list("abab")})
    for steps in (1, 3):
        run_glue(model, tmp_path / str(steps), "--do_train", "--train_file", file, "--max_steps", str(steps))
    for figure, steps in zip(drawn, (1, 3), strict=True):
        for axis in figure.axes:
            (line,) = axis.lines
            assert len(line.get_xdata()) == steps and (steps > 1 or line.get_marker() == "o")


def test_one_class_is_refused(model, tmp_path):
    table = write(tmp_path / "a.csv", "text,label\na lion,good\na cat,good\n")
    with pytest.raises(ValueError, match="a.csv has one class, 'good', in the column 'label': give texts of two"):
        run_glue(model, tmp_path, "--do_train", "--train_file", table, "--max_steps", "1")


def test_whole_numbers_that_are_written_as_fractions_are_asked_about(model, tmp_path):
    """pandas writes 1.0 for 1 in a column with an empty cell: a class, which was trained as a regression."""
    table = write(tmp_path / "a.csv", "text,label\na lion,1.0\na cat,2.0\na dog,1.0\n")
    with pytest.raises(ValueError, match="fractions, such as 1.0: write 1 if they are classes. To regress, give them"):
        run_glue(model, tmp_path, "--do_train", "--train_file", table, "--max_steps", "1")
    scores = write(tmp_path / "b.jsonl", {"text": TEXTS, "label": [1.0, 2.0, 1.0, 2.0]})
    run_glue(model, tmp_path, "--do_train", "--train_file", scores, "--max_steps", "1")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["problem_type"] == "regression"


def test_one_class_of_images_or_tags_is_refused(model, tmp_path):
    folder = photos(tmp_path / "photos", {f"cat/{n}.png": GREY for n in range(3)})
    start = ["--do_train", "--max_steps", "1", "--output_dir", str(tmp_path / "out"), *QUIET]
    config = write(tmp_path / "model" / "config.json", "{}")
    LionConfig(modality="image", image_size=8, patch_size=4, **TINY).save_pretrained(Path(config).parent)
    with pytest.raises(ValueError, match="training images have one class, cat: give two"):
        import_module("run_image_classification").main(
            [*start, "--config_name", str(tmp_path / "model"), "--train_dir", str(folder)]
        )
    words = write(tmp_path / "a.jsonl", {"tokens": [["a", "lion"]], "tags": [["O", "O"]]})
    with pytest.raises(ValueError, match="training sentences have one class, O: give two"):
        import_module("run_token_classification").main(
            [*start, "--model_name_or_path", str(model), "--train_file", words]
        )


def image_training(folder: Path, *more: str):
    """A training on photos in `folder`/photos."""
    LionConfig(modality="image", image_size=8, patch_size=4, **TINY).save_pretrained(folder / "model")
    options = ["--config_name", str(folder / "model"), "--train_dir", str(folder / "photos"), "--save_strategy", "no"]
    options += ["--do_train", "--num_train_epochs", "1", "--output_dir", str(folder / "out"), *QUIET]
    return import_module("run_image_classification").main([*options, *more])


@pytest.mark.parametrize(("number", "content"), [(1, b""), (8, b"<html>not found</html>")])
def test_an_unreadable_image_alone_in_its_batch_is_left_out(number, content, tmp_path, caplog):
    """Of 9 images in batches of 8; an evaluation counts the others, once each."""
    bright = Image.new("L", (8, 8), 250)
    names = {f"{'cat' if n % 2 else 'dog'}/{n}.png": GREY if n % 2 else bright for n in range(9)}
    for split in ("photos", "held_out"):
        photos(tmp_path / split, names)
        (tmp_path / split / ("cat" if number % 2 else "dog") / f"{number}.png").write_bytes(content)
    more = ["--do_eval", "--validation_dir", str(tmp_path / "held_out"), "--per_device_eval_batch_size", "1"]
    trainer = image_training(tmp_path, "--per_device_train_batch_size", "1", *more)
    assert any(f"{number}.png cannot be read" in message for message in caplog.messages)
    assert trainer.state.global_step == 9 and len(trainer.eval_dataset) == 8
    found = results(tmp_path)["eval_accuracy"]
    assert round(8 * found) == pytest.approx(8 * found)  # a share of 8
    logits = trainer.predict(trainer.eval_dataset).predictions
    labels = trainer.eval_dataset[:]["labels"]
    assert found == pytest.approx(np.mean(logits.argmax(-1) == labels))
    for path in (tmp_path / "photos").rglob("*.png"):
        path.write_bytes(b"no image")
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(ValueError, match="None of the images can be read"):
        image_training(tmp_path)


def test_a_class_of_one_image_is_named(tmp_path):
    photos(tmp_path / "photos", {"cat/a.png": GREY, "dog/b.png": GREY, "dog/c.png": GREY})
    with pytest.raises(ValueError, match="The class 'cat' has one image, .* add images of it, or give --"):
        image_training(tmp_path, "--do_eval", "--train_val_split", "0.5")


def test_too_few_images_to_split_for_every_class(tmp_path):
    photos(tmp_path / "photos", {f"{kind}/{n}.png": GREY for kind in "abcdefgh" for n in range(2)})
    with pytest.raises(ValueError, match="--train_val_split 0.15 splits 16 images into 13 and 3, .* 8 classes"):
        image_training(tmp_path, "--do_eval", "--train_val_split", "0.15")


def arrow_table(path: Path, **columns: tuple) -> str:
    """A Parquet file of columns of these types of Arrow."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table({name: pyarrow.array(x, kind) for name, (x, kind) in columns.items()}), path)
    return str(path)


@pytest.mark.parametrize("kind", ["large_list", "string_view", "large_string"])
def test_columns_of_other_types_of_arrow(kind, model, tmp_path):
    """Lists of polars, and the strings of newer pyarrow and DuckDB."""
    text = pyarrow.string_view() if kind == "string_view" else pyarrow.large_string()
    lists = {"large_list": pyarrow.large_list(text)}.get(kind, pyarrow.list_(text))
    load = import_module("training_lion.scripts.data_files").load_files
    file = arrow_table(tmp_path / "a.parquet", text=(TEXTS, text), label=([["a"], ["b"], [], ["a", "b"]], lists))
    rows = load({"train": file})["train"]
    assert rows["text"][:] == TEXTS and rows["label"][:] == [["a"], ["b"], [], ["a", "b"]]
    run_glue(model, tmp_path, "--do_train", "--train_file", file, "--max_steps", "1")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["problem_type"] == "multi_label_classification"
    file = arrow_table(tmp_path / "b.parquet", text=(TEXTS, text), label=(["x", "y", "x", "y"], text))
    run_glue(model, tmp_path, "--do_train", "--train_file", file, "--max_steps", "1")
    words = [["a", "lion"], ["a", "day"]]
    file = arrow_table(tmp_path / "c.parquet", tokens=(words, lists), tags=([["O", "X"], ["O", "O"]], lists))
    (sentences,) = import_module("run_token_classification").load_sentences({"train": file}, None).values()
    assert [sentence.words for sentence in sentences] == words and sentences[0].tags == ["O", "X"]
    texts = corpus.read_texts(corpus.find_files([tmp_path / "a.parquet"]).files, corpus.Columns())
    assert [x.text for _, x in texts] == TEXTS


@pytest.mark.parametrize("script", ["run_qa", "run_token_classification"])
def test_half_of_a_character_is_named_with_its_row(script, model, tmp_path):
    """In questions and in sentences: the tokenizer stopped there, and said no file."""
    good = '{"id": 1, "question": "who", "context": "a lion", "answers": [], "tokens": ["a"], "tags": ["O"]}'
    bad = good.replace("a lion", "a \\udc80 lion").replace('["a"]', '["\\udc80"]')
    file = write(tmp_path / "a.jsonl", f"{good}\n{bad}\n")
    arguments = ["--do_train", "--train_file", file, "--model_name_or_path", str(model), *QUIET]
    with pytest.raises(ValueError, match="--train_file .*a.jsonl, row 2, has half of a character .*udc80. behind"):
        import_module(script).main([*arguments, "--output_dir", str(tmp_path / "out")])


def test_a_finished_training_says_so_and_changes_nothing(model, tmp_path, capsys):
    """Neither the model, nor how long its texts may be, nor its scores."""
    table, out = write(tmp_path / "a.csv", "text,label\na lion,good\na cat,bad\n"), tmp_path / "out"
    args = ["--model_name_or_path", str(model), "--output_dir", str(out), *QUIET, "--do_train", "--train_file", table]
    args += ["--max_steps", "1", "--save_steps", "1", "--cache_dir", str(tmp_path / "cache")]
    import_module("run_glue").main([*args, "--max_seq_length", "16"])
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    assert "Nothing was trained" not in capsys.readouterr().out
    import_module("run_glue").main([*args, "--max_seq_length", "8"])
    assert "checkpoint-1 has all 1 steps. For other data, change --output_dir" in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == before
    # Nor is a model replaced that has no checkpoint any more.
    shutil.rmtree(out / "checkpoint-1")
    with pytest.raises(ValueError, match="--output_dir .*out has a trained model, which a training would replace"):
        import_module("run_glue").main(args)
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == before


def test_a_training_that_was_stopped_while_it_saved_the_model_saves_it_again(model, tmp_path):
    """The output folder has the model of an earlier, shorter training, or a part of this one."""
    table, out = write(tmp_path / "a.csv", "text,label\na lion,good\na cat,bad\n"), tmp_path / "out"
    args = ["--model_name_or_path", str(model), "--output_dir", str(out), *QUIET, "--do_train", "--train_file", table]
    args += ["--save_steps", "1", "--cache_dir", str(tmp_path / "cache"), "--max_steps"]
    import_module("run_glue").main([*args, "1"])
    shorter = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    import_module("run_glue").main([*args, "2"])
    expected = (out / "model.safetensors").read_bytes()
    for name, content in shorter.items():
        (out / name).write_bytes(content)
    for weights in (shorter["model.safetensors"], expected[:100]):
        (out / "model.safetensors").write_bytes(weights)
        import_module("run_glue").main([*args, "2"])
        assert (out / "model.safetensors").read_bytes() == expected
        (out / "trainer_state.json").write_text("{")  # and so this is the state of no training


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # by PEFT
def test_checkpoints_from_which_no_training_goes_on(model, tmp_path):
    """Of weights alone; older than another one in the folder; and of another adapter."""
    table, out = write(tmp_path / "a.csv", "text,label\na lion,good\na cat,bad\n"), tmp_path / "out"
    args = ["--model_name_or_path", str(model), "--output_dir", str(out), *QUIET, "--do_train", "--train_file", table]
    args += ["--save_steps", "1", "--cache_dir", str(tmp_path / "cache"), "--max_steps"]
    import_module("run_glue").main([*args, "2"])
    with pytest.raises(ValueError, match="checkpoint-1: .*checkpoint-2 is later"):
        import_module("run_glue").main([*args, "3", "--resume_from_checkpoint", str(out / "checkpoint-1")])
    (out / "checkpoint-2" / "rng_state.pth").unlink()
    for asked in ([], ["--resume_from_checkpoint"], ["--resume_from_checkpoint", str(out / "checkpoint-2")]):
        with pytest.raises(ValueError, match="checkpoint-2 was saved with --save_only_model"):
            import_module("run_glue").main([*args, "3", *asked])
    lora = ["--model", str(model), "--train_file", table, "--output_dir", str(tmp_path / "lora"), *QUIET]
    lora += ["--max_steps", "1", "--save_steps", "1"]
    import_module("finetune_lora").main(lora)
    with pytest.raises(ValueError, match=r"checkpoint-1 is of another model: lora_alpha 16 \(now 8\), r 8 \(now 4\)"):
        import_module("finetune_lora").main([*lora, "--rank", "4", "--resume_from_checkpoint"])


@pytest.mark.parametrize("script", ["train_embeddings", "finetune_lora"])
def test_a_trained_model_is_not_replaced(script, model, tmp_path):
    out, table = tmp_path / "out", write(tmp_path / "a.csv", "text,label\na lion,good\na cat,bad\n")
    write(out / "adapter_model.safetensors", "trained")
    with pytest.raises(ValueError, match="--output_dir .*out has a trained model, which a training would replace"):
        import_module(script).main(["--model", str(model), "--train_file", table, "--output_dir", str(out), *QUIET])
    assert [path.read_text() for path in out.iterdir()] == ["trained"]
    # Nor if a training goes on there from a checkpoint of another folder.
    elsewhere = tmp_path / "elsewhere" / "checkpoint-5"
    TrainerState().save_to_json(write(elsewhere / "trainer_state.json", ""))
    command = ["--model", str(model), "--train_file", table, "--output_dir", str(out), *QUIET]
    with pytest.raises(ValueError, match="has a trained model, which a training would replace"):
        import_module(script).main([*command, "--resume_from_checkpoint", str(elsewhere)])
    # Nor are checkpoints, from which training could resume.
    TrainerState().save_to_json(write(out / "checkpoint-5" / "trainer_state.json", ""))
    with pytest.raises(ValueError, match="has the checkpoint .*checkpoint-5: give --resume_from_checkpoint to go on"):
        import_module(script).main(command)
    assert (out / "adapter_model.safetensors").read_text() == "trained"


def test_a_folder_of_other_files_is_no_output(model, tmp_path):
    texts = tmp_path / "texts"
    table = write(texts / "a.csv", "text,label\na lion,good\na cat,bad\n")
    args = [
        "--model_name_or_path",
        str(model),
        "--output_dir",
        str(texts),
        *QUIET,
        "--do_train",
        "--train_file",
        table,
    ]
    with pytest.raises(ValueError, match="--output_dir .*texts has other files .a.csv.: give a folder of its own"):
        import_module("run_glue").main(args)
    assert [path.name for path in texts.iterdir()] == ["a.csv"]
    # A folder with a tokenizer alone is: several processes that train from scratch share it there.
    LionTokenizer.from_pretrained(model).save_pretrained(tmp_path / "begun")
    import_module("training_lion.scripts.checkpoints").check_free(tmp_path / "begun")


def test_a_folder_of_texts_that_is_not_there(model, tmp_path):
    table = write(tmp_path / "a.csv", "file,label\n1.txt,a\n2.txt,b\n")
    with pytest.raises(ValueError, match="--text_files .*note is no folder: give the one that the names in --train"):
        run_glue(model, tmp_path, "--do_train", "--train_file", table, "--text_files", str(tmp_path / "note"))


def test_texts_in_files(model, tmp_path):
    """A folder of files, and a table of their names and labels."""
    for n, text in enumerate(TEXTS):
        write(tmp_path / "texts" / f"{n}.txt", text)
    table = write(tmp_path / "a.csv", "file,label\n" + "".join(f"{n}.txt,{'ab'[n % 2]}\n" for n in range(4)))
    more = ("--do_train", "--train_file", table, "--max_steps", "1")
    with pytest.raises(ValueError, match="names of files in the column 'file' .0.txt.: give --text_files FOLDER"):
        run_glue(model, tmp_path, *more)
    trainer = run_glue(model, tmp_path, *more, "--text_files", str(tmp_path / "texts"))
    expected = [trainer.processing_class(text)["input_ids"] for text in TEXTS]
    assert trainer.train_dataset["input_ids"][:] == expected
    trainer = run_glue(model, tmp_path / "names", *more, "--text_files", "no")
    assert trainer.train_dataset["input_ids"][0] == trainer.processing_class("0.txt")["input_ids"]
    (tmp_path / "texts" / "2.txt").unlink()
    with pytest.raises(ValueError, match="a.csv row 3: the file '2.txt' cannot be read"):
        run_glue(model, tmp_path, *more, "--text_files", str(tmp_path / "texts"))
    write(tmp_path / "texts" / "2.txt", " \n")
    with pytest.raises(ValueError, match="a.csv row 3: the file '2.txt' is empty: fill it in, or remove the row"):
        run_glue(model, tmp_path, *more, "--text_files", str(tmp_path / "texts"))
    # All rows are named at once.
    (tmp_path / "texts" / "1.txt").unlink()
    with pytest.raises(ValueError, match="a.csv row 2: .*cannot be read.*\nrow 3: .*is empty"):
        run_glue(model, tmp_path, *more, "--text_files", str(tmp_path / "texts"))
    # A table may have the names only.
    names, read = (
        Dataset.from_dict({"file": ["3.txt"]}),
        import_module("training_lion.scripts.data_files").read_text_files,
    )
    assert read(names, ("file",), "--predict_file a.csv", tmp_path / "texts")["file"][:] == [TEXTS[3]]
    write(tmp_path / "texts" / "1.txt", TEXTS[1])
    # The names of classes stay.
    rows = {"text": [f"{n}.txt" for n in range(2)], "label": [0, 1]}
    table = write(tmp_path / "a.parquet", Dataset.from_dict(rows, features=CLASSES))
    dataset = import_module("training_lion.scripts.data_files").load_texts(
        table, ("text",), ("label",), str(tmp_path / "texts")
    )
    assert dataset["text"][:] == TEXTS[:2] and dataset.features["label"].names == ["bad", "good"]
    # Names without an ending, beside the table.
    for n, text in enumerate(TEXTS):
        write(tmp_path / "wxyz"[n], text)
    table = write(tmp_path / "b.jsonl", {"text": list("wxyz"), "label": list("abab")})
    with pytest.raises(ValueError, match="names of files in the column 'text'"):
        run_glue(model, tmp_path, "--do_train", "--train_file", table)


# Content, the words and tags of its sentences, or what is said.
SENTENCES = {
    "comments as wide as rows": (
        "# id 17\tdomain=en\nAnna\tB-X\n#\tO\n\n# id 18\tdomain=en\nBen\tB-X\n",
        [(["Anna", "#"], ["B-X", "O"]), (["Ben"], ["B-X"])],
    ),
    "comments between blanks": ("# id = 17\nAnna B-X\n", [(["Anna"], ["B-X"])]),
    "a hash among words": ("Anna B-X\n# O\n", [(["Anna", "#"], ["B-X", "O"])]),
    "hashtags": ("#lion B-X\n", [(["#lion"], ["B-X"])]),
    "a comment that has two words": ("# 17\nAnna B-X\n", [(["Anna"], ["B-X"])]),
    "a hash in front": ("Anna B-X\nis O\n\n# O\n", [(["Anna", "is"], ["B-X", "O"]), (["#"], ["O"])]),
    "a hash and a blank": ("Anna\tB-X\n# 1\tB-X\n\n# 1\tB-X\n", [(["Anna", "# 1"], ["B-X"] * 2), (["# 1"], ["B-X"])]),
    "numbers in front": (
        "1\tAnna\tB-X\n2\tlikes\tO\n\n1\tBen\tB-X\n",
        "has the numbers of the words in its first column: remove",
    ),
    "numbers from 0 on": ("0 Anna B-X\n1 likes O\n", "has the numbers of the words in its first column"),
    "words that are numbers": ("1\tO\n2\tO\n\n7\tB-X\n", [(["1", "2"], ["O", "O"]), (["7"], ["B-X"])]),
    "other ends of lines in words": ("a\u2028b\x85c\tO\n", [(["a\u2028b\x85c"], ["O"])]),
}


@pytest.mark.parametrize("name", SENTENCES)
def test_lines_of_words(name, tmp_path):
    module, (content, expected) = import_module("run_token_classification"), SENTENCES[name]
    files = {"train": write(tmp_path / "a.conll", content)}
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
            module.load_sentences(files, None)
    else:
        assert [(x.words, x.tags) for x in module.load_sentences(files, None)["train"]] == expected


def test_a_comment_or_a_word_without_tags(tmp_path):
    files = {"predict": write(tmp_path / "a.conll", "# 17\nAnna NN\n")}
    with pytest.raises(ValueError, match="line 1: '# 17' is a comment or a word: separate the columns by tabs"):
        import_module("run_token_classification").load_sentences(files, None)


@pytest.mark.parametrize("number", [-1, -100, 2])
@pytest.mark.parametrize("is_class", [True, False])
def test_numbers_that_are_no_tags(number, is_class, tmp_path):
    module = import_module("run_token_classification")
    kind = ClassLabel(names=["O", "B-X"]) if is_class else Value("int64")
    features = Features({"tokens": List(Value("string")), "ner_tags": List(kind)})
    rows = {"tokens": [["a"], ["b", "c"]], "ner_tags": [[0], [1, min(number, 1) if is_class else number]]}
    dataset = Dataset.from_dict(rows, features=features)
    files = {"train": write(tmp_path / "a.parquet", dataset)}
    if number == 2:  # a number of its own
        tags = module.load_sentences(files, None)["train"][1].tags
        assert tags == (["B-X", "B-X"] if is_class else ["1", "2"])
        return
    with pytest.raises(ValueError, match=f'a.parquet, row 2, has the "ner_tags" {number}, which is no class'):
        module.load_sentences(files, None)


def photos(folder: Path, files: dict[str, Image.Image]) -> Path:
    for name, image in files.items():
        path = Path(os.fsdecode(os.path.join(os.fsencode(folder), os.fsencode(name))))
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path)
    return folder


GREY = Image.new("L", (8, 8), 127)


def test_classes_are_the_first_folders(tmp_path):
    names = ["cat/2023/a.png", "dog/2023/b.png", "dog/c.png", "test/d.png", ".git/e.png", "cat/._a.png"]
    read = import_module("training_lion.scripts.image_files").read_class_folders
    dataset = read(photos(tmp_path, dict.fromkeys(names, GREY)))
    files = [os.fsdecode(file).removeprefix(f"{tmp_path}/") for file in dataset["image"]]
    assert dict(zip(files, dataset["label"], strict=True)) == {
        "cat/2023/a.png": 0,
        "dog/2023/b.png": 1,
        "dog/c.png": 1,
        "test/d.png": 2,
    }
    assert dataset.features["label"].names == ["cat", "dog", "test"]
    photos(tmp_path, {"lost.png": GREY})
    with pytest.raises(ValueError, match="lost.png is in no sub-folder"):
        import_module("training_lion.scripts.image_files").read_class_folders(tmp_path)


def test_folders_that_are_linked(tmp_path):
    """They are read, once, also if a link leads to a folder that it is in."""
    photos(tmp_path / "elsewhere", {"a.png": GREY, "train.png": GREY})
    (tmp_path / "photos" / "dog").mkdir(parents=True)
    (tmp_path / "photos" / "cat").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "photos" / "dog" / "again").symlink_to(tmp_path / "photos")
    names = [
        str(path.relative_to(tmp_path))
        for path in import_module("training_lion.scripts.image_files").find_images(tmp_path / "photos")
    ]
    assert names == ["photos/cat/a.png", "photos/cat/train.png"]


def test_images_without_a_class_are_refused_only_where_they_are_needed(tmp_path):
    """As in the test data of many datasets; and classes are named as elsewhere."""
    names = ["cafe\u0301 ", "dog"]
    features = Features({"image": ImageColumn(), "label": ClassLabel(names=names)})
    for split, labels in (("train", [0, 1]), ("validation", [1, 0]), ("test", [-1, -1])):
        rows = Dataset.from_dict({"image": [GREY] * 2, "label": labels}, features=features)
        rows.to_parquet(tmp_path / "data" / f"{split}.parquet")
    size = "image_size=8,patch_size=4,hidden_size=32,num_hidden_layers=1,num_attention_heads=2,intermediate_size=32"
    more = ["--dataset_name", str(tmp_path / "data"), "--cache_dir", str(tmp_path / "cache"), *QUIET]
    more += ["--do_train", "--do_eval", "--max_steps", "1", "--save_strategy", "no"]
    start = ["--config_name", "lion-image-small", "--config_overrides", size]
    for out in ("first", "again"):
        trainer = import_module("run_image_classification").main([*start, *more, "--output_dir", str(tmp_path / out)])
        assert trainer.model.config.id2label == {0: "caf\u00e9", 1: "dog"}
        start = ["--model_name_or_path", str(tmp_path / "first")]


def test_photos_stand_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (8, 4)).save(tmp_path / "a.jpg", exif=exif)
    assert import_module("training_lion.scripts.image_files").read_image(bytes(tmp_path / "a.jpg"), "RGB").size == (
        4,
        8,
    )


def test_a_parquet_file_is_read_as_it_is_now(tmp_path):
    """Also with the name, size and time of an earlier one; and with the categories of pandas."""
    module, file = import_module("training_lion.scripts.data_files"), tmp_path / "a.parquet"
    for value in ("one", "two"):
        frame = pd.DataFrame({"text": pd.Categorical([value] * 3), "label": ["a", "b", "a"]})
        frame.to_parquet(file)
        os.utime(file, (1, 1))
        dataset = module.load_files({"train": str(file)}, cache_dir=str(tmp_path / "cache"))["train"]
        assert dataset["text"][:] == [value] * 3 and dataset.features["text"] == Value("string")


def test_images_in_a_table_are_not_decoded(tmp_path):
    """To see that each row has one."""
    features = Features({"image": ImageColumn()})
    dataset = Dataset.from_dict({"image": [{"bytes": b"no image", "path": None}] * 2}, features=features)
    file, module = write(tmp_path / "a.parquet", dataset), import_module("training_lion.scripts.data_files")
    read = module.load_files({"train": file}, ("image",))["train"]
    assert read.features == features and len(read) == 2
    dataset = Dataset.from_dict({"image": [{"bytes": b"no image", "path": None}, None]}, features=features)
    with pytest.raises(ValueError, match="no 'image' in row 2"):
        module.load_files({"train": write(tmp_path / "b.parquet", dataset)}, ("image",))


def test_files_that_are_no_images_are_named(tmp_path, caplog):
    photos(tmp_path, {"cat/a.png": GREY})
    (tmp_path / "cat" / "b.heic").write_bytes(b"")
    assert len(import_module("training_lion.scripts.image_files").find_images(tmp_path)) == 1
    assert any("1 files in" in message and "b.heic is left out" in message for message in caplog.messages)


def test_names_of_folders_are_equal_in_all_forms(tmp_path):
    """Two letters, as Apple writes it, or one; and bytes that are not UTF-8."""
    module, paths = import_module("training_lion.scripts.image_files"), []
    for form in ("NFD", "NFC"):
        paths.append(photos(tmp_path / form, {f"{unicodedata.normalize(form, 'é')}/a.png": GREY}))
    first, second = (module.read_class_folders(path).features["label"].names for path in paths)
    assert first == second == ["\u00e9"]


@pytest.mark.parametrize(
    ("image", "mean"),
    [
        (GREY, 127),
        (Image.fromarray(np.full((8, 8), 127 * 257, np.uint16)), 127),
        (Image.fromarray(np.full((8, 8), 127 / 255, np.float32)), 127),
        (Image.new("RGB", (8, 8), (127, 127, 127)), 127),
        (Image.new("1", (8, 8), 1), 255),
        (Image.fromarray(np.full((8, 8), 1.5, np.float32)), None),
        (Image.fromarray(np.full((8, 8), np.nan, np.float32)), None),
        (Image.fromarray(np.full((8, 8), 127, np.int32)), None),
    ],
)
def test_images_have_8_bits(image, mean, tmp_path, caplog):
    file = tmp_path / ("a.png" if image.mode in ("L", "I;16", "RGB", "1") else "a.tif")
    image.save(file)
    for mode in ("L", "RGB"):
        read = import_module("training_lion.scripts.image_files").read_image(bytes(file), mode)
        if mean is None:
            assert read is None and any(
                "a.tif cannot be read (it has numbers of 32 bits" in x for x in caplog.messages
            )
        else:
            assert read.mode == mode and np.asarray(read).mean() == mean


@pytest.mark.slow
def test_images_whose_names_are_not_utf8(tmp_path):
    """They are trained on, measured, and segmented."""
    size = "image_size=8,patch_size=4,hidden_size=32,num_hidden_layers=1,num_attention_heads=2,intermediate_size=32"
    common = ["--config_name", "lion-image-small", "--config_overrides", size, "--do_train", "--do_eval", *QUIET]
    common += ["--max_steps", "1", "--save_strategy", "no"]
    names = [f"{kind}/{name}.png" for kind in ("cat", "dog") for name in ("caf\udce9", "b", "c", "d")]
    folder = photos(tmp_path / "photos", dict.fromkeys(names, GREY))
    common += ["--train_dir", str(folder), "--validation_dir", str(folder)]
    trainer = import_module("run_image_classification").main([*common, "--output_dir", str(tmp_path / "out")])
    assert len(trainer.train_dataset) == len(trainer.eval_dataset) == 8
    for kind in ("images", "masks"):
        photos(folder / kind, {"caf\udce9.png": Image.new("L", (8, 8), 1)})
    (folder / "classes.txt").write_text("a\x0cb\nc")
    predict = ["--do_predict", "--predict_dir", str(folder / "images")]
    module = import_module("run_semantic_segmentation")
    trainer = module.main([*common, *predict, "--output_dir", str(tmp_path / "masks")])
    assert trainer.model.config.id2label == {0: "a\x0cb", 1: "c"}
    assert os.listdir(bytes(tmp_path / "masks" / "predictions")) in (
        [b"caf\xe9.png", b"classes.txt"],
        [b"classes.txt", b"caf\xe9.png"],
    )


def test_search_takes_names_that_are_not_utf8_and_counts_lines_as_editors_do(tmp_path, monkeypatch):
    """A form feed and other characters at which `str.splitlines` cuts are no ends of lines."""
    from bag_of_words import use_bag_of_words
    from retrieval_lion.documents import passages_of, passages_of_text
    from retrieval_lion.search.index import Index
    from retrieval_lion.search.searcher import best

    text = "Tales\n\nOne\x0ctwo\u2028three.\nAn owl hunts\x85at night.\nA lion roars.\n"
    (tmp_path / "caf\udce9.txt").write_text(text, encoding="utf-8")
    index = Index(None, use_bag_of_words(monkeypatch))
    file = str(tmp_path / "caf\udce9.txt")
    list(index.update([file], lambda file: passages_of(file, str(tmp_path))))
    list(index.read(index.keys))
    answers: list[dict] = []
    assert list(best("a lion roars", index, 1, answers)) == []  # no steps: it is one answer
    (answer,) = answers
    assert (answer["snippet"], answer["place"]) == ("A lion roars.", "caf\ufffd.txt:5")
    assert answer["document"].encode() and index.candidates("lion", 5) == index.keys
    (passage,) = passages_of_text(text, "caf\udce9.txt")
    assert passage.place == "caf\ufffd.txt:1"


@pytest.mark.parametrize(
    "columns", [{"positive": ["a", None, "c"]}, {"anchor": ["a", "b", None]}, {"positive": [1, 2, 3]}]
)
def test_pairs_that_are_refused(columns, model, tmp_path):
    file = write(tmp_path / "a.jsonl", {"anchor": list("abc"), "positive": list("abc")} | columns)
    ((name, values),) = columns.items()
    message = (
        f"no '{name}' in row {values.index(None) + 1}: fill it in" if None in values else "has int64 in the column"
    )
    with pytest.raises(ValueError, match=message):
        import_module("train_embeddings").main(
            ["--model", str(model), "--train_file", file, "--output_dir", str(tmp_path / "out"), "--use_cpu"]
        )


def test_texts_that_are_there_twice_are_no_negatives_of_their_own(model, tmp_path, monkeypatch):
    """And each counts as found if the nearest text is the same."""
    module, trained = import_module("train_embeddings"), Mock()
    for positives, sampler in (
        ("abcdefghij", "batch_sampler"),
        ("aabbccddee", "no_duplicates"),
        ("lmnopqrstu", "no_duplicates"),  # of one pair the positive, of another the anchor
    ):
        file = write(tmp_path / "a.jsonl", {"anchor": list("klmnopqrst"), "positive": list(positives)})
        arguments = ["--model", str(model), "--train_file", file, "--output_dir", str(tmp_path / positives), *QUIET]
        monkeypatch.setattr(module.SentenceTransformerTrainer, "train", lambda trainer, **x: trained(trainer.args))
        encoder = module.main([*arguments, "--max_steps", "1"])
        assert trained.call_args.args[0].batch_sampler.value == sampler
    pairs = {"anchor": TEXTS + TEXTS, "positive": TEXTS + TEXTS}
    assert module.share_found(encoder, pairs) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text,label\na,x\n,y\n", "no 'text' in row 2: fill it in"),
        ("text,label\na,x\nb,\n", "no 'label' in row 2: fill it in"),
        ("text,label\na,0.5\nb,1\n", "has the label '0.5': give each text a class"),
        ("text,label\na,x\nb,x\n", "has one class, 'x', in the column 'label': give texts of two or more"),
    ],
)
def test_adapters_refuse(content, message, model, tmp_path):
    file = write(tmp_path / "a.csv", content)
    with pytest.raises(ValueError, match=message):
        import_module("finetune_lora").main(
            ["--model", str(model), "--train_file", file, "--output_dir", str(tmp_path / "out"), "--use_cpu"]
        )


def test_a_text_of_one_row_cannot_be_split(tmp_path):
    arguments = ["--config_name", "lion-text-small", "--train_file", write(tmp_path / "a.txt", "One row.\n")]
    with pytest.raises(ValueError, match="The data has 1 rows, too few to split some off: give --validation_file"):
        import_module("run_mlm").main(
            [*arguments, "--do_train", "--do_eval", *QUIET, "--output_dir", str(tmp_path / "out")]
        )


def test_texts_of_which_none_is_known_are_refused():
    find = import_module("training_lion.scripts.data_files").find_texts
    for rows in ([{"id": "x", "body": "y"}], [{"a": 1, "b": 2}]):
        with pytest.raises(ValueError, match='It has . columns of texts among .*: name the one to read "text"'):
            find(Dataset.from_list(rows), "It")
    assert find(Dataset.from_list([{"n": "1", "body": "y"}]), "It") == ("body",)
    assert find(Dataset.from_list([{"title": "x", "text": "y"}]), "It") == ("text",)
    assert find(Dataset.from_list([{"body": None}]), "It") == ("body",)  # rows may be empty at first


@pytest.mark.parametrize("name", ["max_seq_length", "max_train_samples", "max_eval_samples"])
def test_limits_below_one_are_refused(name, tmp_path):
    with pytest.raises(ValueError, match=f"--{name} is -1; give 1 or more"):
        run_glue(tmp_path / "model", tmp_path, "--do_train", "--train_file", "a.csv", f"--{name}", "-1")
