# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Files of several types in one training, and what does not fit together."""

import gc
import json
from importlib import import_module
from pathlib import Path

import pytest
import torch
from datasets import Dataset, DatasetDict

from modeling_lion import LionConfig, LionForMaskedLM, LionTokenizer


QUIET = ["--use_cpu", "--dataloader_pin_memory", "False", "--disable_tqdm", "True", "--report_to", "none"]
ROWS = {"text": ["a fine lion", "a dull lion", "a fine day", "a dull day"], "label": ["good", "bad", "good", "bad"]}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("files") / "model"
    tokenizer = LionTokenizer.train_from_iterator(ROWS["text"], vocab_size=60)
    torch.manual_seed(0)  # a fixture of the module is made before `repeatable`
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    LionForMaskedLM(LionConfig(vocab_size=len(tokenizer), initializer_range=0.1, **sizes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write(path: Path, **columns: list) -> str:
    dataset = Dataset.from_dict(ROWS | columns)
    {".csv": dataset.to_csv, ".jsonl": dataset.to_json, ".parquet": dataset.to_parquet}[path.suffix](path)
    return str(path)


def arguments(model: Path, train: str, validation: str, output_dir: Path) -> list[str]:
    files = ["--train_file", train, "--validation_file", validation]
    more = ["--do_train", "--do_eval", "--max_steps", "20", "--learning_rate", "5e-3", "--save_strategy", "no"]
    cache = ["--cache_dir", str(output_dir.parent / "cache"), "--output_dir", str(output_dir)]
    return ["--model_name_or_path", str(model), *files, *more, *cache, *QUIET]


def test_each_file_has_its_own_type(model, tmp_path):
    """Train on CSV, evaluate on JSONL, label Parquet."""
    files = [write(tmp_path / f"data{suffix}") for suffix in (".csv", ".jsonl", ".parquet")]
    out = tmp_path / "out"
    module = import_module("run_glue")
    module.main([*arguments(model, *files[:2], out), "--do_predict", "--predict_file", files[2]])
    assert json.loads((out / "eval_results.json").read_text())["eval_accuracy"] == 1
    rows = [json.loads(line) for line in (out / "predictions.jsonl").read_text().splitlines()]
    assert [row["label"] for row in rows] == ROWS["label"]


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # which `datasets` leaves when it streams
def test_files_of_several_types_are_read_with_the_same_rows(tmp_path):
    module = import_module("training_lion.scripts.data_files")
    files = {"train": "a.csv", "validation": "b.jsonl", "predict": "c.parquet"}
    files = module.check_files({split: write(tmp_path / name) for split, name in files.items()}, module.TABLES)
    for streaming in (False, True):
        datasets = module.load_files(files, ("text",), streaming=streaming, cache_dir=str(tmp_path / "cache"))
        assert [*datasets] == [*files] and isinstance(datasets, DatasetDict) != streaming
        assert all(list(dataset) == list(Dataset.from_dict(ROWS)) for dataset in datasets.values())
    del datasets
    gc.collect()
    with pytest.raises(ValueError, match="--validation_file .*b.jsonl has no column n, but text, label"):
        module.load_files({"validation": files["validation"]}, ("n",), cache_dir=str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("train", "validation", "message"),
    [
        (
            {"label": [["a"], ["b"], ["a"], ["b"]]},
            {},
            "validation.jsonl has one label in each row, the task has a list",
        ),
        ({}, {"label": [["good"], [], [], []]}, "validation.jsonl has a list of labels in each row, the task has one"),
        (
            {"label": [0.5, 1.5, 0.5, 1.5]},
            {},
            "validation.jsonl has the label 'good' in row 1, no number, but the task is to",
        ),
        ({}, {"text": [1, 2, 3, 4]}, "validation.jsonl has int64 in the column 'text', where texts are read"),
        (
            {},
            {"label": ["good", "bad", "god", "bad"]},
            r"has the labels bad, good; the data has god \(--validation_file .*, row 3\)",
        ),
    ],
)
def test_files_that_do_not_fit_together_are_refused(model, tmp_path, train, validation, message):
    files = write(tmp_path / "train.parquet", **train), write(tmp_path / "validation.jsonl", **validation)
    with pytest.raises(ValueError, match=message):
        import_module("run_glue").main(arguments(model, *files, tmp_path / "out"))


def test_numbers_of_labels():
    module = import_module("training_lion.scripts.class_names")
    assert module.number_names({"b": "row 1"}, "ab", "It") == {"a": 0, "b": 1}
    assert module.number_names({"1": "row 1", "0": "row 2"}, "ab", "It", has_numbers=True) == {"0": 0, "1": 1}
    assert module.number_names({"1": "row 1"}, ["1", "0"], "It", has_numbers=True) == {"1": 0, "0": 1}
    with pytest.raises(ValueError, match=r"It has the labels a, b; the data has 2 \(row 7\)"):
        module.number_names({"2": "row 7", "a": "row 1"}, "ab", "It")
