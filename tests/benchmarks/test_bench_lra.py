# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Tasks after the Long Range Arena: bytes of pages, and a search that trains."""

import importlib
import json

import pytest
from measure import read_rows


@pytest.fixture
def lra():
    return importlib.import_module("bench_lra")


@pytest.fixture
def texts():
    return importlib.import_module("tasks.byte_texts")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "documents").mkdir()
    for split, parts in (("train", "abc"), ("validation", "ab"), ("test", "bc")):
        rows = [{"text": f"{part}é {n}", "label": f"manual/{part}"} for n in range(6) for part in parts]
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
        (tmp_path / "documents" / f"{split}.jsonl").write_text(text, encoding="utf-8")
    return tmp_path


def test_a_page_as_bytes_with_its_part(texts, folder):
    splits, labels = texts.text_splits(folder, 4, 5)
    assert labels == 3 and [len(splits[x]) for x in ("train", "validation", "test")] == [5, 12, 12]
    assert splits["train"][1] == {"input_ids": [1 + byte for byte in "bé ".encode()], "labels": [1]}
    assert splits["test"][1]["labels"] == [2]  # numbers are those of the training


def test_pairs_of_pages_of_a_part_or_of_two(texts, folder):
    splits, labels = texts.retrieval_splits(folder, 9, 40)
    assert labels == 2 and len(splits["train"]) == 40 and len(splits["test"]) == 20
    for row in splits["train"]:
        middle = row["input_ids"].index(texts.BETWEEN)
        first, second = row["input_ids"][:middle], row["input_ids"][middle + 1 :]
        assert row["labels"] == [int(first[0] == second[0])] and middle == len(second) == 4
    assert sum(x for row in splits["train"] for x in row["labels"]) == 20


def test_models_have_equal_parameters(lra, tmp_path, monkeypatch):
    parser = lra.rate_arguments("", lra.SCALES, list(lra.CONTESTANTS))
    args = parser.parse_args(["--cache_dir", str(tmp_path)])
    for task in ("listops", "pathfinder32"):
        monkeypatch.setitem(lra.SCALES["cpu"], task, lra.replace(lra.SCALES["cpu"][task], examples=2))
        search = lra.make_search(task, args)
        search.check_parameters(lra.CONTESTANTS)
        assert search.data.chance is not None and search.data.config["pooling"] == "mean"
    made = lra.make_search("pathfinder32", args).make("Luna", 1)
    assert made[0] == "Luna" and made[1].learning_rate == 2e-3


@pytest.mark.slow
def test_it_trains_and_is_reported(lra, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.import_module("report"), "PICTURES", {})
    args = ["--quick", "--contestants", "softmax (rotary)", "softmax", "Hydra", "--threads", "1", "--seeds", "1", "2"]
    args += ["--trials", "2", "--output_dir", str(tmp_path), "--cache_dir", str(tmp_path / "cache")]
    lra.main(args)
    rows = read_rows(tmp_path / "lra.csv")
    assert len(rows) == 2 * 3 * (2 + 2) and {row["task"] for row in rows} == {"listops", "pathfinder"}
    assert "bench_lra.py --scale quick --tasks listops --contestants 'softmax (rotary)'" in rows[0]["command"]
    page = (tmp_path / "recall.md").read_text(encoding="utf-8")
    assert "ListOps, test %" in page and "The most frequent answer alone: ListOps" in page and "| Hydra |" in page
    lra.main(args)
    assert len(read_rows(tmp_path / "lra.csv")) == len(rows)
