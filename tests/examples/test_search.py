# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Search finds the right text, reads again only what has changed, and says what is missing; retrieval is fair."""

import contextlib
import json
import os
import re
import subprocess
import sys
import zlib
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from hub_checkpoints import text_checkpoint
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from sklearn.metrics import ndcg_score

from modeling_lion import encode_passages


KINDS = list(import_module("search").VECTORS.values())
shared = import_module("hub_upload_lion.app.search")
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
    """Unit vectors of the words of passages, and how many passages it was given."""

    def __init__(self):
        self.count = 0

    def vector(self, text: str) -> torch.Tensor:
        vector = torch.zeros(4096)
        for word in re.findall("[a-z]+", text.lower()):
            vector[zlib.crc32(word.encode()) % 4096] += 1
        return torch.nn.functional.normalize(vector, dim=0)

    def encode_texts(self, texts):
        return torch.stack([self.vector(text) for text in texts])

    def encode_documents(self, documents):
        self.count += sum(len(document.spans) for document in documents)
        return [torch.stack([self.vector(x.text[first:end]) for first, end in x.spans]) for x in documents]


@pytest.fixture
def search(monkeypatch):
    """The script, whose encoder is a bag of words, in `search.bag`."""
    module = import_module("search")
    bag = BagOfWords()
    monkeypatch.setattr(module, "load_encoder", lambda folder, in_pieces: bag)
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
    with (folder / "huge.txt").open("wb") as file:
        file.truncate(200_000_000)
    (folder / "LOUD.TXT").write_text("an umbrella in capital letters")
    (folder.parent / "secret.txt").write_text("the secret umbrella of nobody")
    (folder / "link.txt").symlink_to(folder.parent / "secret.txt")
    (folder / "long.txt").write_text("word " * 22_000)
    pages = [f"Page {n} of the book.\n" + "Nothing happens on it. " * 40 for n in range(600)]
    (folder / "book.txt").write_text("\n\n".join(pages) + "\n\nThe umbrella is opened at last.")
    (best, *_) = run(search, folder, "où est le café, près de la gare")
    assert (best.place, best.text) == ("latin.txt:1", "Où est le café, près de la gare")
    assert run(search, folder, "un thé au citron")[0].place == "wide.txt:1"
    (best, second, *_) = run(search, folder, "the umbrella is opened at last")
    assert best.place == "book.txt:1801" and "secret" not in second.text
    run(search, folder, "word", "--top", "3")
    out = capsys.readouterr().out
    assert "Left out: huge.txt has 200,000,000 bytes, and up to 100,000,000 are read: split it." in out
    assert run(search, folder, "an umbrella in capital letters")[0].place == "LOUD.TXT:1"
    assert "Left out: broken.md is no text" in out and max(map(len, out.splitlines())) < 150


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_what_was_read_before_a_run_was_stopped_is_kept(error, kind, search, folder, tmp_path, monkeypatch):
    """Ctrl-C ends the reading; what nobody sees coming loses what was read since the last time that it was saved."""
    monkeypatch.setattr(shared, "BATCH_CHARACTERS", 1)
    monkeypatch.setattr(kind, "save_every", 0)

    def encode_documents(documents, encode=search.bag.encode_documents):
        if search.bag.count == 2:
            raise error
        return encode(documents)

    monkeypatch.setattr(search.bag, "encode_documents", encode_documents)
    index = search.make_index(*search.files_of_folder(folder), kind(tmp_path / "index"))
    with contextlib.suppress(MemoryError):
        search.read(index, search.bag, 60, show_progress=False)
    assert len(kind(tmp_path / "index").keys) == 2


def test_an_index_that_was_not_saved_to_its_end_is_the_one_before(tmp_path, monkeypatch):
    search = import_module("search")
    vectors = search.UsearchVectors(tmp_path / "index")
    vectors.add("first", torch.eye(4)[:2])
    vectors.save()
    vectors.add("second", torch.eye(4)[2:])
    monkeypatch.setattr(search.json, "dumps", lambda saved: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        vectors.save()
    monkeypatch.undo()
    kept = search.UsearchVectors(tmp_path / "index")
    assert kept.keys == {"first"} and len(kept.search(torch.eye(4)[0], 9)) == 2
    kept.add("third", torch.eye(4)[2:])
    kept.save()
    assert len(search.UsearchVectors(tmp_path / "index").search(torch.eye(4)[0], 9)) == 4


def test_lines_without_spaces_are_shown():
    search = import_module("search")
    assert search.shown("\u72ee" * 300).startswith("\u72ee" * 90) and len(search.shown("\u72ee" * 300)) <= search.WIDTH
    assert search.shown(" A lion\troars.") == "A lion roars." and search.shown("word " * 50).endswith("word …")


def test_the_nearest_line_is_shown_at_its_place():
    search, bag = import_module("search"), BagOfWords()
    nearest = lambda query, text, document="Lion", place="a.md:7": search.nearest_line(
        bag, bag.vector(query), search.Answer(0.5, document, place, text)
    )
    text = "# Lion\n\nA lion sleeps. It roars at night.\n\n    An owl hunts."
    assert nearest("roars at night", text) == ("It roars at night.", "a.md:9")
    assert nearest("an owl", text) == ("An owl hunts.", "a.md:11")
    assert nearest("lion", "# Lion") == ("Lion", "a.md:7")
    assert nearest("an owl", "A lion.\nAn owl.", "zoo.lion", "zoo.lion") == ("A lion.", "zoo.lion")


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_are_kept(kind, tmp_path):
    """Added, removed, saved and loaded, in any order; the best are the nearest by cosine."""
    generator = torch.Generator().manual_seed(0)
    make = lambda n: torch.nn.functional.normalize(torch.randn(n, 16, generator=generator), dim=-1)
    documents = {f"document {n}": make(n % 5 + 1) for n in range(100)}
    vectors = kind(tmp_path / "deep" / "index")
    assert vectors.keys == set()
    for key, rows in documents.items():
        vectors.add(key, rows)
    for key in ("document 7", "document 60"):
        vectors.remove(key)
        del documents[key]
    vectors.save()
    for kept in (vectors, kind(tmp_path / "deep" / "index")):
        kept.add("last", documents.setdefault("last", make(3)))
        assert kept.keys == set(documents)
        for key, n in (("last", 2), ("document 3", 1), ("document 99", 4)):
            query = documents[key][n]
            (score, *place), *more = kept.search(query, 5)
            assert place == [key, n] and score == pytest.approx(1, abs=1e-5)
            (expected, _) = (torch.cat(list(documents.values())) @ query).sort(descending=True)
            assert [score for score, *_ in more] == pytest.approx(expected[1:5].tolist(), abs=1e-5)
    assert len(kept.search(query, 10_000)) == sum(map(len, documents.values()))
    assert len(list((tmp_path / "deep").iterdir())) == (1 if kind is KINDS[0] else 2)


# For each place a process of its own saves nine documents and is killed there: it prints what it has saved.
KILLED = """
import os, sys
import torch
import search

def run(folder, where, count, parts):
    search.MOST_PARTS = parts
    save_file, unlink, calls = search.save_file, search.Path.unlink, []

    def die_in_the_middle(name, target, half):
        calls.append(name)
        if where == name and calls.count(name) == count:
            if half:
                target.write_bytes(b"half of a file")
            os.kill(os.getpid(), 9)

    def save(tensors, target, *args):
        die_in_the_middle("save", target, True)
        save_file(tensors, target, *args)

    def delete(path, **options):
        if path.suffix == ".safetensors":
            die_in_the_middle("delete", path, False)
        unlink(path, **options)

    search.save_file, search.Path.unlink = save, delete
    vectors = search.FileVectors(search.Path(folder))
    for n in range(9):
        vectors.add(f"document {n}", torch.eye(16)[n : n + 1])
        vectors.save()
        print(folder, n, flush=True)

for case in sys.argv[1:]:
    folder, where, count, parts = case.split(",")
    if os.fork() == 0:
        run(folder, where, int(count), int(parts))
    print(folder, "status", os.wait()[1], flush=True)
"""


def test_a_process_that_is_killed_keeps_what_was_saved(search, tmp_path):
    """In the middle of a file, in that of a joined file, and between joining files and deleting them."""
    cases = {"file": "save,4,64", "joined": "save,6,3", "behind": "delete,2,4"}
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", KILLED, *(f"{tmp_path / name},{x}" for name, x in cases.items())],
        capture_output=True,
        text=True,
        env=environment,
    )
    lines = [line.split() for line in result.stdout.splitlines()]
    assert [line[1:] for line in lines if line[1] == "status"] == [["status", "9"]] * 3, result.stderr
    for name, last in (("file", 2), ("joined", 4), ("behind", 2)):
        saved = [f"document {n}" for folder, n, *_ in lines if folder == str(tmp_path / name) and n != "status"]
        assert saved == [f"document {n}" for n in range(last + 1)]
        kept = search.FileVectors(tmp_path / name)
        # The file that was being written is lost; that of the last case was complete.
        assert kept.keys == {*saved, *(["document 3"] if name == "behind" else [])}
        kept.add("later", torch.eye(16)[15:])
        kept.save()
        again = search.FileVectors(tmp_path / name)
        assert again.keys == kept.keys and again.search(torch.eye(16)[2], 1)[0][1] == "document 2"


def test_a_save_writes_what_is_new(search, tmp_path, monkeypatch):
    """Files are joined when there are many, or when most of them is removed; a damaged one is left out."""
    monkeypatch.setattr(search, "MOST_PARTS", 5)
    written = []
    save_file = search.save_file
    monkeypatch.setattr(
        search,
        "save_file",
        lambda tensors, *args: written.append(len(tensors["vectors"])) or save_file(tensors, *args),
    )
    vectors, expected = search.FileVectors(tmp_path / "index"), {}
    rows = torch.nn.functional.normalize(torch.randn(60, 8, generator=torch.Generator().manual_seed(0)), dim=-1)
    for n in range(6):
        for key in (2 * n, 2 * n + 1):
            expected[str(key)] = rows[5 * key : 5 * key + 5]
            vectors.add(str(key), expected[str(key)])
        vectors.save()
        vectors.save()  # nothing is new
    assert written == [10, 10, 10, 10, 50, 10]
    for n in range(9):
        vectors.remove(str(n))
        del expected[str(n)]
    before = {part: part.read_bytes() for part in vectors.parts}
    vectors.save()
    assert written[6:] == [15] and len(vectors.parts) == 1
    for part, content in before.items():  # as if they had not been deleted
        part.write_bytes(content)
    assert search.FileVectors(tmp_path / "index").keys == expected.keys()
    for part in before:
        part.unlink()
    vectors.remove("9")
    vectors.add("9", expected["9"])
    vectors.save()
    kept = search.FileVectors(tmp_path / "index")
    assert kept.keys == expected.keys()
    for key, own in expected.items():
        assert [x[1:] for x in kept.search(own[3], 1)] == [(key, 3)]
    kept.parts[-1].write_bytes(b"damaged")
    assert search.FileVectors(tmp_path / "index").keys == expected.keys()
    assert len(list((tmp_path / "index.vectors").iterdir())) == 1


def test_all_vectors_can_be_removed(search, tmp_path):
    vectors = search.FileVectors(tmp_path / "index")
    vectors.add("document", torch.eye(3))
    vectors.save()
    vectors.remove("document")
    vectors.save()
    assert search.FileVectors(tmp_path / "index").keys == set() and vectors.search(torch.eye(3)[0], 5) == []


def test_encoders_of_other_poolings_read_pieces(search, tmp_path):
    folder = text_checkpoint(tmp_path / "model", "LionModel", pooling="cls")
    modules = [Transformer(str(folder)), Pooling(32, pooling_mode="cls")]
    encoder = search.SentenceEncoder(SentenceTransformer(modules=modules, device="cpu"))
    assert encoder.in_pieces
    document = search.Document("lion", "A lion sleeps.", ((0, 14),), ("lion.txt:1",))
    (vectors,) = encoder.encode_documents([document])
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(1))


def test_documents_have_the_names_of_their_headings():
    heading = "Lions\n=====\n\nThey roar."
    for text, path, name in (
        (heading, "a.rst", "Lions"),
        ("# Big *cats* #\n\nThey roar.", "a.md", "Big *cats"),
        ("They roar.", "deep/big_cats.txt", "big cats"),
    ):
        (found,) = shared.documents_of_text(text, path)
        assert found.name == name and found.text == text and found.places == (f"{path}:1",)
    assert list(shared.documents_of_text(" \n\n", "a.txt")) == []


def test_documents_of_long_files(search, tmp_path, monkeypatch):
    """Parts have all passages, each at its place."""
    monkeypatch.setattr(shared, "LONGEST_DOCUMENT", 5000)
    (tmp_path / "book.txt").write_text("\n\n".join(f"Page {n}. " + "Nothing happens. " * 40 for n in range(50)))
    parts = list(search.documents_of(str(tmp_path / "book.txt"), str(tmp_path)))
    assert len(parts) > 5 and all(x.name == "book" and len(x.text) <= 5000 for x in parts)
    spans = [(x.text, *span) for x in parts for span in x.spans]
    places = [place for x in parts for place in x.places]
    assert places == [f"book.txt:{2 * n + 1}" for n in range(50)]
    assert [text[first:end].split(". ")[0] for text, first, end in spans] == [f"Page {n}" for n in range(50)]


@pytest.mark.parametrize("in_pieces", [True, False])
def test_passages_are_read_with_their_names(in_pieces, tmp_path):
    search = import_module("search")
    encoder = search.load_encoder(text_checkpoint(tmp_path / "model", "LionModel", pooling="mean"), in_pieces)
    text = "A lion sleeps. It roars."
    document = search.Document("lion", text, ((0, 14), (15, 24)), ())
    (vectors,) = encoder.encode_documents([document])
    if in_pieces:
        expected = encoder.encoder.encode(["lion: A lion sleeps.", "lion: It roars."], normalize_embeddings=True)
    else:
        expected = encode_passages(encoder.encoder, [text], [document.spans], names=["lion"]).vectors
        expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    torch.testing.assert_close(vectors, torch.from_numpy(expected), atol=1e-5, rtol=1e-5)
    assert encoder.encode_texts(["lion"]).shape == (1, vectors.shape[1])


def test_the_right_text_is_found_and_printed(search, folder, capsys):
    (best, *_) = run(search, folder, "delete everything in a folder")
    assert best.place == "tool.remove" and best.text == "Delete a folder and everything below it."
    (best,) = run(search, folder, "parse dates: a date from words", "--top", "1")
    assert best.place == str(Path("deep") / "dates.md:1") and best.document == "Dates"
    out = capsys.readouterr().out
    assert "Searching 4 of 4 passages." in out and re.search(r"0\.\d\d  tool\.remove +Delete a folder", out)
    assert re.search(r"dates\.md:3 +Dates: Turn a date into words", out)
    answers = run(search, folder, "everything", "--top", "99")
    assert {answer.place for answer in answers} == {
        "tool",
        "tool.remove",
        "zip.txt:1",
        str(Path("deep") / "dates.md:1"),
    }
    assert [answer.score for answer in answers] == sorted((answer.score for answer in answers), reverse=True)


@pytest.mark.parametrize("index", ["file", "usearch"])
def test_only_what_has_changed_is_read_again(index, search, folder):
    def texts_read(query: str = "zip") -> int:
        before = search.bag.count
        run(search, folder, query, "--index", index)
        return search.bag.count - before

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
    monkeypatch.setattr(shared, "BATCH_CHARACTERS", 1)  # one text a batch
    found = {answer.place for answer in run(search, folder, "anything", "--seconds", "-1")}
    assert len(found) == 1 and "Searching 1 of 4 passages; run again to read on." in capsys.readouterr().out
    more = {answer.place for answer in run(search, folder, "anything", "--seconds", "-1")}
    assert len(more) == 2 and found < more
    assert len(run(search, folder, "anything")) == 4


def test_a_query_needs_no_quotes(search, folder, capsys):
    folders = ["--folder", str(folder), "--model", str(folder.parent / "model"), "--index_dir", str(folder.parent)]
    answers = search.main(["parse", "dates", "a", "date", "from", "words", *folders])
    assert answers[0].document == "Dates" and "  parse dates a date from words\n" in capsys.readouterr().out


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
    names = {place for file in files for x in search.documents_of(file, folder) for place in x.places}
    assert {"json", "json.dumps", "json.decoder.JSONDecoder.raw_decode"} <= names
    assert not [name for name in names if "._" in name]
    files, folder = search.files_of_package("zipfile")
    (found,) = [x for file in files for x in search.documents_of(file, folder) if x.name == "zipfile"]
    assert found.text == "Read and write ZIP files."


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
    documents = bench.find_documents(["email"], [], tmp_path)
    chosen = bench.collect(documents, tokenizer, {bench.RANGES[0]: 3, bench.RANGES[1]: 2})
    found = [(limits, *pair) for limits, pairs in chosen.items() for pair in pairs]
    assert len(found) == 5 and len({document.module for _, document, _ in found}) == 5
    for (low, high), document, ids in found:
        assert low <= len(ids) + 2 < high and document.query not in document.text
        for line in document.text.split("\n"):
            assert not bench.is_near(bench.words(line), bench.words(document.query))


def test_guides_are_documents(bench, tmp_path, monkeypatch):
    """The query is the first paragraph of prose, and nothing like it is in the document."""
    prose = "A lion finds its prey by its smell, and it hunts with its pride at night."
    text = f"Hunting\n\n.. toctree::\n\n{prose}\n\nIt sleeps by day.\n\nBy its smell a lion finds its prey at night."
    found = bench.document_of_guide("lions: Hunting", text)
    assert (found.module, found.query) == ("lions: Hunting", prose)
    assert found.text.split("\n") == ["Hunting", ".. toctree::", "It sleeps by day."]
    assert bench.document_of_guide("lions", "Copyright of all the lions that were ever seen by anybody.") is None
    monkeypatch.setattr(bench, "guides_of_packages", lambda names, *more: [(name, text) for name in names])
    assert found in list(bench.find_documents(["json"], ["lions: Hunting"], tmp_path))


def test_errors_of_all_ranges_are_those_of_their_documents():
    gains = [torch.tensor([1.0, 0.5, 0.0, 0.6]), torch.tensor([0.3]), torch.tensor([1.0, 1.0, 0.4])]
    parts = []
    for x in gains:
        mean, error = import_module("passages").mean_and_error(x, torch.arange(len(x)))
        parts.append({"documents": len(x), "ndcg": mean, "ndcg_error": error})
    expected = torch.cat(gains)
    error = expected.std() / len(expected) ** 0.5
    assert import_module("reports.retrieval").all_ranges(parts) == f"{expected.mean():.3f} ± {error:.3f}"


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
        args += ["--output_dir", str(tmp_path / "out"), "--trained_dir", str(tmp_path / "trained"), "--guides"]
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
