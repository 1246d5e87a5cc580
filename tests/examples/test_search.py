# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Search finds the right text, reads again only what has changed, and says what is missing; retrieval is fair."""

import contextlib
import json
import re
import zlib
from importlib import import_module
from pathlib import Path

import pytest
import torch
from hub_checkpoints import text_checkpoint
from sentence_transformers import SentenceTransformer
from sklearn.metrics import ndcg_score


TEXTS = {
    "zip.txt": "Compressed archives\n\nHow to open and read a zip archive of files.",
    "deep/dates.md": "# Dates\n\nTurn a date into words and parse a date from words.",
    "tool.py": '"""Tools."""\n\ndef remove(path):\n    """Delete a folder and everything below it.\n\n    Slowly."""\n'
    '\ndef _hidden():\n    """Delete a folder and everything, secretly."""\n',
    ".git/config.txt": "Delete a folder: not to be read.",
    "data.bin": "Delete a folder: not a text.",
    "empty.rst": " \n",
}


class BagOfWords:
    """Unit vectors of the words of a text, and how many texts it was given."""

    def __init__(self):
        self.count = 0

    def __call__(self, texts: list[str]) -> torch.Tensor:
        self.count += len(texts)
        vectors = torch.zeros(len(texts), 4096)
        for vector, text in zip(vectors, texts, strict=True):
            for word in re.findall("[a-z]+", text.lower()):
                vector[zlib.crc32(word.encode()) % 4096] += 1
        return torch.nn.functional.normalize(vectors, dim=1)


@pytest.fixture
def search(monkeypatch):
    """The script, whose encoder is a bag of words, in `search.bag`."""
    module = import_module("search")
    bag = BagOfWords()
    monkeypatch.setattr(module, "load_encoder", lambda folder: bag)
    monkeypatch.setattr(module, "bag", bag, raising=False)
    return module


@pytest.fixture
def folder(tmp_path) -> Path:
    for name, text in TEXTS.items():
        path = tmp_path / "texts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_text("first")
    return tmp_path / "texts"


def run(search, folder: Path, query: str, *more: str):
    model = str(folder.parent / "model")
    return search.main([query, "--folder", str(folder), "--model", model, "--index_dir", str(folder.parent), *more])


def test_files_as_people_have_them(search, folder, monkeypatch, capsys):
    """Latin-1, binary under the name of a text, links out of the folder, lines of 100 kB and megabytes of text."""
    (folder / "latin.txt").write_bytes("Où est le café, près de la gare".encode("latin-1"))
    (folder / "wide.txt").write_text("Un thé au citron", encoding="utf-16")
    (folder / "broken.md").write_bytes(b"\x00\x01\x02 delete")
    (folder.parent / "secret.txt").write_text("the secret umbrella of nobody")
    (folder / "link.txt").symlink_to(folder.parent / "secret.txt")
    (folder / "long.txt").write_text("word " * 22_000)
    pages = [f"Page {n} of the book.\n" + "Nothing happens on it. " * 40 for n in range(600)]
    (folder / "book.txt").write_text("\n\n".join(pages) + "\n\nThe umbrella is opened at last.")
    (best, *_) = run(search, folder, "où est le café, près de la gare")
    assert (best.place, best.first_line) == ("latin.txt:1", "Où est le café, près de la gare")
    assert run(search, folder, "un thé au citron")[0].place == "wide.txt:1"
    (best, second, *_) = run(search, folder, "the umbrella is opened at last")
    assert best.place == "book.txt:1801" and "secret" not in second.first_line
    run(search, folder, "word", "--top", "3")
    out = capsys.readouterr().out
    assert "Left out: broken.md is no text" in out and max(map(len, out.splitlines())) < 150


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_what_was_read_before_a_run_was_stopped_is_kept(error, search, folder, tmp_path, monkeypatch):
    """Ctrl-C ends the reading; what nobody sees coming loses what was read since the last time that it was saved."""
    monkeypatch.setattr(search, "BATCH_CHARACTERS", 1)
    monkeypatch.setattr(search, "SAVE_EVERY", -1)
    source = (*search.files_of_folder(folder), tmp_path / "model", tmp_path / "index")

    def encode(texts):
        if search.bag.count == 2:
            raise error
        return search.bag(texts)

    with contextlib.suppress(MemoryError):
        search.Index(*source).read(encode, 60, show_progress=False)
    assert len(search.Index(*source).vectors) == 2


def test_a_hundred_thousand_passages(search, tmp_path):
    """What is searched is one matrix, made once."""
    (tmp_path / "text.txt").write_text("\n\n".join(f"{n} " + "a" * 200 for n in range(1000)))
    (tmp_path / "model").mkdir()
    index = search.Index([str(tmp_path / "text.txt")], str(tmp_path), tmp_path / "model", tmp_path / "index")
    index.read(search.bag, 60, show_progress=False)
    entries, vectors = index.found()
    assert len(entries) == 1000 and vectors.shape == (1000, 4096)
    assert index.search("1", search.bag)[0].score <= 1 and index.found()[1] is vectors


def test_the_right_text_is_found_and_printed(search, folder, capsys):
    (best, *_) = run(search, folder, "delete everything in a folder")
    assert best.place == "tool.remove" and best.first_line == "Delete a folder and everything below it."
    (best,) = run(search, folder, "parse dates: a date from words", "--top", "1")
    assert best.place == str(Path("deep") / "dates.md:1") and best.first_line == "# Dates"
    out = capsys.readouterr().out
    assert "Searching 4 of 4 texts." in out and re.search(r"0\.\d\d  tool\.remove +Delete a folder", out)
    answers = run(search, folder, "everything", "--top", "99")
    assert {answer.place for answer in answers} == {
        "tool",
        "tool.remove",
        "zip.txt:1",
        str(Path("deep") / "dates.md:1"),
    }
    assert [answer.score for answer in answers] == sorted((answer.score for answer in answers), reverse=True)


def test_only_what_has_changed_is_read_again(search, folder):
    def texts_read(query: str = "zip") -> int:
        before = search.bag.count
        run(search, folder, query)
        return search.bag.count - before - 1  # the query

    assert texts_read() == 4 and texts_read() == 0
    (folder / "zip.txt").write_text("Now of umbrellas", encoding="utf-8")
    (folder / "new.txt").write_text("Also of umbrellas, and more", encoding="utf-8")
    assert texts_read("umbrellas") == 2
    assert run(search, folder, "umbrellas")[0].place == "zip.txt:1"
    (folder / "new.txt").unlink()
    assert texts_read() == 0 and "new.txt:1" not in {x.place for x in run(search, folder, "umbrellas", "--top", "9")}
    (folder.parent / "model" / "weights").write_text("others")
    assert texts_read() == 4


def test_reading_stops_and_goes_on(search, folder, monkeypatch, capsys):
    monkeypatch.setattr(search, "BATCH_CHARACTERS", 1)  # one text a batch
    found = {answer.place for answer in run(search, folder, "anything", "--seconds", "-1")}
    assert len(found) == 1 and "Searching 1 of 4 texts; run again to read on." in capsys.readouterr().out
    more = {answer.place for answer in run(search, folder, "anything", "--seconds", "-1")}
    assert len(more) == 2 and found < more
    assert len(run(search, folder, "anything")) == 4


def test_without_a_query_it_asks(search, folder, monkeypatch, capsys):
    queries = iter(["zip archive", "delete", ""])
    monkeypatch.setattr("builtins.input", lambda prompt: next(queries))
    answers = search.main(
        ["--folder", str(folder), "--model", str(folder.parent / "model"), "--index_dir", str(folder.parent)]
    )
    out = capsys.readouterr().out
    assert answers[0].place == "tool.remove" and out.index("zip.txt") < out.index("  delete\n")


@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        (["--folder", "missing"], FileNotFoundError, "--folder missing does not exist"),
        (["--folder", "hollow"], ValueError, "--folder hollow has no files to search"),
        (["--folder", "silent"], ValueError, "nothing to search in silent"),
        (["--package", "no_such_package"], ValueError, "--package no_such_package"),
        (["--package", "math"], ValueError, "--package math"),  # or a built-in one
        (["--top", "0"], ValueError, "--top is 0"),
    ],
)
def test_what_is_missing_is_said(search, tmp_path, monkeypatch, more, error, message):
    monkeypatch.chdir(tmp_path)
    for name in ("hollow", "silent", "model"):
        (tmp_path / name).mkdir()
    (tmp_path / "silent" / "code.py").write_text("x = 1")
    with pytest.raises(error, match=message):
        search.main(["query", "--model", "model", "--index_dir", "index", *more])


def test_a_missing_model_is_said(tmp_path):
    search, demo = import_module("search"), import_module("demo")
    for run_it in (lambda: search.main(["query", "--model", "gone"]), lambda: demo.main(["--search_model", "gone"])):
        with pytest.raises(FileNotFoundError, match="gone is no folder: give that of a sentence encoder"):
            run_it()


def test_packages_have_their_import_names(search):
    files, folder = search.files_of_package("json")
    names = {entry.place for file in files for entry in search.entries_of(file, folder)}
    assert {"json", "json.dumps", "json.decoder.JSONDecoder.raw_decode"} <= names
    assert not [name for name in names if "._" in name]
    files, folder = search.files_of_package("zipfile")
    (entry,) = [entry for file in files for entry in search.entries_of(file, folder) if entry.place == "zipfile"]
    assert entry.text == "zipfile: Read and write ZIP files."


def test_the_demo_begins_with_a_search(search, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(search, "files_of_package", lambda package, find=search.files_of_package: find("zipfile"))
    (tmp_path / "model").mkdir()
    summary = import_module("demo").search_part(tmp_path, tmp_path / "model", 60)
    assert summary["texts"] > 20 and len(summary["answers"]) == 5
    assert summary["answers"]["how do I read a zip file"][0]["place"].startswith("zipfile")
    assert "  how do I read a zip file\n" in capsys.readouterr().out


# Retrieval


@pytest.fixture
def bench():
    return import_module("bench_retrieval")


def test_ndcg_is_that_of_scikit_learn(bench):
    generator = torch.Generator().manual_seed(0)
    for relevant in range(40):
        scores = torch.rand(40, generator=generator)
        truth = (torch.arange(40) == relevant).float()
        expected = ndcg_score(truth[None], scores[None].double(), k=10)
        assert bench.ndcg(scores, relevant) == pytest.approx(expected, abs=1e-6)
    assert bench.ndcg(torch.ones(11), 0) == 0  # an encoder that tells nothing apart finds nothing


MODULE = '''"""
Read and write archives of compressed files
===========================================

An archive may have comments.

This module can read and write archives of compressed files, too.
"""

class Archive:
    """Reads and writes the compressed files of archives.

    With a password it is slow."""

    def close(self):
        """Read and write archives of compressed files."""

def later():
    """Walk in the order of names."""
'''


def test_documents_do_not_contain_their_queries(bench, tmp_path):
    (tmp_path / "archive.py").write_text(MODULE)
    document = bench.document_of(str(tmp_path / "archive.py"), "archive")
    assert document.query == "Read and write archives of compressed files"
    lines = ["An archive may have comments.", "Archive", "With a password it is slow."]
    assert document.text.split("\n") == [*lines, "later", "Walk in the order of names."]

    tokenizer = import_module("hub_checkpoints").text_tokenizer()
    chosen = bench.collect(["email"], tokenizer, {bench.RANGES[0]: 3, bench.RANGES[1]: 2})
    found = [(limits, *pair) for limits, pairs in chosen.items() for pair in pairs]
    assert len(found) == 5 and len({document.module for _, document, _ in found}) == 5
    for (low, high), document, ids in found:
        assert low <= len(ids) + 2 < high and document.query not in document.text
        for line in document.text.split("\n"):
            assert not bench.is_near(bench.words(line), bench.words(document.query))


def test_pieces_make_the_scores(bench):
    assert bench.pieces(list(range(10)), 6) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert bench.pieces(list(range(10)), None) == [list(range(10))]
    query = torch.tensor([1.0, 0.0])
    one_good_piece, fair = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), torch.tensor([[0.8, 0.6]])
    torch.testing.assert_close(bench.best_piece(query, [one_good_piece, fair]), torch.tensor([1.0, 0.8]))
    expected = torch.tensor([1 / 5**0.5, 0.8])
    torch.testing.assert_close(bench.mean_of_pieces(query, [one_good_piece, fair]), expected)


@pytest.fixture
def retrieve(bench, tmp_path, monkeypatch):
    """Run it with a small random model, in this process, since starting another takes time; returns its rows."""
    monkeypatch.setattr(bench, "in_new_process", lambda function, *args: function(*args))
    monkeypatch.setattr(bench, "TRAINING_PACKAGES", ["json", "email"])
    monkeypatch.setattr(bench, "TRAINING_ARGUMENTS", [*bench.TRAINING_ARGUMENTS, "--warmup_steps=0"])
    folder = str(text_checkpoint(tmp_path / "model", "LionModel", pooling="mean"))

    def run(*encoders: str) -> list[dict]:
        args = ["--model", folder, "--teacher", folder, "--packages", "email", "--documents", "2", "1", "0", "0", "0"]
        args += ["--output_dir", str(tmp_path / "out"), "--trained_dir", str(tmp_path / "trained")]
        bench.main([*args, "--encoders", *encoders])
        return import_module("measure").read_rows(tmp_path / "out" / "retrieval.csv")

    return run


def test_retrieval_runs_and_reports(retrieve, tmp_path):
    retrieve("LION")
    rows = retrieve("LION")  # goes on, and finds everything done
    of_method = {row["method"]: row for row in rows if row["min_tokens"] == 1024}
    assert len(rows) == 2 * len(of_method) == 2 * 8
    assert all(0 <= row["ndcg"] <= 1 and row["seconds"] > 0 and row["candidates"] == 3 for row in rows)
    assert of_method["first 4096"]["ndcg"] == of_method["whole"]["ndcg"]
    assert of_method["first 4096"]["seconds"] == of_method["whole"]["seconds"]  # nothing was cut off
    page = (tmp_path / "out" / "retrieval.md").read_text(encoding="utf-8")
    assert "| LION, first 512 |" in page and "nDCG@10, 2,048–4,096 tokens (1)" in page


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*bfloat16.*")  # a CPU without products in it says so
def test_retrieval_of_encoders_that_are_trained_for_it(retrieve, bench, tmp_path):
    rows = retrieve("LION trained on pieces", "LION trained on whole documents")
    assert {row["method"] for row in rows} == {"256, mean", "256, best", "first 256", "whole"}
    pairs = {}
    for name, tokens in (("pieces", bench.PIECE), ("whole-documents", bench.TRAINING_TOKENS)):
        (folder,) = (tmp_path / "trained").glob(f"LION-trained-on-{name}-{rows[0]['weights']}")
        lines = (folder / "pairs.jsonl").read_text(encoding="utf-8").splitlines()
        pairs[name] = [json.loads(line) for line in lines]
        assert SentenceTransformer(str(folder)).max_seq_length == tokens
        assert bench.weights_hash(folder) != rows[0]["weights"] == bench.weights_hash(tmp_path / "model")
    assert len(pairs["pieces"]) == len(pairs["whole-documents"]) > 2 * bench.TRAINING_EPOCHS
    for piece, whole in zip(*pairs.values(), strict=True):
        assert piece["anchor"] == whole["anchor"] and len(piece["positive"]) < len(whole["positive"])
