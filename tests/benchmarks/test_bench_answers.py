# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The benchmark of answers takes its queries out of files, knows the passages around them, and measures once."""

import random
from importlib import import_module

import pytest
from hub_checkpoints import text_checkpoint
from measure import read_rows
from retrieval_lion.documents import passages_of_text
from sentence_checkpoints import sentence_checkpoint


ANIMALS = "lion", "owl", "wolf", "bear"


WORDS = "honey", "river", "thunder", "grass", "winter"


def text_of(animal: str) -> str:
    paragraphs = (
        f"Much {x} is what every {animal} longs for, all day. {f'{x.title()} it finds. ' * 40}" for x in WORDS
    )
    return f"{animal.title()}\n=====\n\n" + "\n\n".join(x.strip() for x in paragraphs) + "\n"


def test_queries_are_taken_out_of_texts():
    bench = import_module("bench_answers")
    text = text_of("lion")
    rest, queries = bench.take_queries(text, "a.rst", random.Random(0))
    assert len(queries) == bench.MOST_QUERIES and len(text) - len(rest) == sum(len(x.text) + 1 for x in queries)
    spans = [(x.begin, x.begin + len(x.text)) for x in passages_of_text(rest, "a.rst")]
    for query in queries:
        word = query.text.split()[1]
        assert word in WORDS and query.text not in rest
        assert rest[query.place :].startswith(f"{word.title()} it finds.")
        assert sum(first <= query.place < end for first, end in spans) == 1
    assert bench.take_queries("Title\n=====\n\nshort", "a.rst", random.Random(0)) == ("Title\n=====\n\nshort", [])


def test_it_measures_once(tmp_path, monkeypatch):
    bench = import_module("bench_answers")
    # Weights large enough that vectors differ by more than bfloat16 rounds.
    checkpoint = text_checkpoint(tmp_path / "checkpoint", "LionModel", pooling="mean", initializer_range=0.5)
    sentence_checkpoint(tmp_path / "model", checkpoint)
    monkeypatch.setattr(bench, "QUICK", ANIMALS)
    monkeypatch.setattr(bench.sources, "documents_of_source", lambda package, folder: [])
    monkeypatch.setattr(bench, "in_new_process", lambda function, *args: function(*args))
    for animal in ANIMALS:
        (tmp_path / "sources" / animal).mkdir(parents=True)
        (tmp_path / "sources" / animal / "guide.rst").write_text(text_of(animal))
    cost = {"passages": 9, "index_seconds": 4.0, "cold_seconds": 3.0, "later_seconds": 0.5}
    cost |= {"memory_bytes": 10**9, "disk_bytes": 10**7}
    monkeypatch.setattr(bench, "measure_search", lambda *args: {"lion search": cost})
    model, out = str(tmp_path / "model"), str(tmp_path / "out")
    options = ["--model", model, "--teacher", model, "--output_dir", out, "--quick"]
    options += ["--data_dir", str(tmp_path / "data"), "--sources_dir", str(tmp_path / "sources")]
    bench.main(options)
    rows = {row["method"]: row for row in read_rows(tmp_path / "out" / "answers.csv")}
    whole = rows["everything read"]
    assert whole["queries"] == len(ANIMALS) * bench.MOST_QUERIES and whole["passages"] == len(ANIMALS) * len(WORDS)
    # So few passages are all candidates.
    assert (
        rows[f"{bench.CANDIDATES} read"]["ndcg"] == pytest.approx(whole["ndcg"], abs=0.1)
        and whole["index_seconds"] > 0
    )
    assert rows["BM25"]["ndcg"] > 0.9  # by the words of passages and of their names
    assert rows["BM25"]["later_seconds"] > 0
    assert (
        0 <= rows[bench.TEACHER]["ndcg"] <= 1
        and rows[bench.TITLES]["disk_bytes"] == len(ANIMALS) * len(WORDS) * 32 * 4
    )
    assert rows["lion search"]["cold_seconds"] == 3 and rows["lion search"]["ndcg"] is None
    page = (tmp_path / "out" / "retrieval.md").read_text(encoding="utf-8")
    assert "| lion search, 9 passages | 4 s | 3 s | 500 ms | 1,000 MB | 10 MB |" in page
    monkeypatch.setattr(bench, "measure_search", None)
    monkeypatch.setattr(bench, "in_new_process", None)
    bench.main(options)
    assert len(read_rows(tmp_path / "out" / "answers.csv")) == len(rows)
