# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""`lion search` finds the right text, reads again only what has changed, and says what is missing."""

import json
import os
import re
import subprocess
import sys
import zlib
from collections.abc import KeysView
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from deploy_lion import cli
from hub_checkpoints import text_checkpoint
from retrieval_lion import documents as texts
from retrieval_lion import encoders, sources
from retrieval_lion.documents import Document
from retrieval_lion.search import command, searcher, vectors
from retrieval_lion.search import index as indices
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from modeling_lion import encode_passages


TEXTS = {
    "zip.txt": "Compressed archives\n\nHow to open and read a zip archive of files.",
    "deep/dates.md": "# Dates\n\nTurn a date into words and parse a date from words.",
    "tool.py": '"""Tools."""\n\ndef remove(path):\n    """Delete a folder and everything below it.\n\n    Slow."""\n',
    ".git/config.txt": "Delete a folder: not to be read.",
    "empty.rst": " \n",
}


class BagOfWords:
    """Unit vectors of the words of passages, and how many passages it was given."""

    in_pieces = True

    def __init__(self):
        self.count, self.cut = 0, encoders.Cut()

    def encode_queries(self, texts):
        return self.encode_texts(texts)

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
def bag(monkeypatch):
    """What `lion search` takes as its encoder."""
    bag = BagOfWords()
    monkeypatch.setattr(searcher, "load_encoder", lambda model, base: bag)
    monkeypatch.setattr(searcher, "SentenceEncoder", lambda encoder, in_pieces: encoder)
    return bag


@pytest.fixture
def folder(tmp_path) -> Path:
    for name, text in TEXTS.items():
        path = tmp_path / "texts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_text("first")
    return tmp_path / "texts"


def run(capsys, folder: Path, query: str, *more: str) -> dict:
    """What a call prints as JSON, in this process, with the standard error in `said`."""
    options = ["--model", str(folder.parent / "model"), "--cache_dir", str(folder.parent / "cache")]
    assert cli.main(["search", str(folder), query, *options, "--keep_minutes", "0", "--json", *more]) == 0
    printed = capsys.readouterr()
    return json.loads(printed.out) | {"said": printed.err}


def places(found: dict) -> list[str]:
    return [answer["place"] for answer in found["answers"]]


def everything(folder: Path, name: str = "index") -> indices.Index:
    """The index of a folder."""
    found, _ = searcher.Texts(str(folder), None).documents()
    return indices.Index(found, vectors.SavedVectors(folder.parent / name))


def test_files_as_people_have_them(bag, folder, capsys):
    """Latin-1, binary under the name of a text, links out of the folder, lines of 100 kB and megabytes of text."""
    (folder / "latin.txt").write_bytes("Où est le café, près de la gare".encode("latin-1"))
    (folder / "wide.txt").write_text("Un thé au citron", encoding="utf-16")
    (folder / "broken.md").write_bytes(b"\x00\x01\x02 delete")
    with (folder / "huge.txt").open("wb") as file:
        file.write(b"word " * 10_000)
        file.truncate(200_000_000)
    (folder / "LOUD.TXT").write_text("an umbrella in capital letters")
    (folder.parent / "secret.txt").write_text("the secret umbrella of nobody")
    (folder / "link.txt").symlink_to(folder.parent / "secret.txt")
    (folder / "long.txt").write_text("word " * 22_000)
    pages = [f"Page {n} of the book.\n" + "Nothing happens on it. " * 40 for n in range(600)]
    (folder / "book.txt").write_text("\n\n".join(pages) + "\n\nThe umbrella is opened at last.")
    found = run(capsys, folder, "où est le café, près de la gare")
    best = found["answers"][0]
    assert (best["place"], best["text"]) == ("latin.txt:1", "Où est le café, près de la gare")
    assert (
        "\nSkipped 2 files: broken.md (no text), huge.txt (over 100 MB); besides 1 (link out of the folder)."
        in found["said"]
    )
    assert places(run(capsys, folder, "un thé au citron"))[0] == "wide.txt:1"
    best, second, *_ = run(capsys, folder, "the umbrella is opened at last")["answers"]
    assert best["place"] == "book.txt:1801" and "secret" not in second["text"]
    assert places(run(capsys, folder, "an umbrella in capital letters"))[0] == "LOUD.TXT:1"
    found = run(capsys, folder, "word", "--top", "3")
    assert max(map(len, command.lines_of("word", found["answers"]))) < 150


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_what_was_read_before_a_run_was_stopped_is_kept(error, bag, folder, monkeypatch):
    """Ctrl-C ends the reading, and an error nobody foresaw: what was read before is there for the next run."""
    monkeypatch.setattr(texts, "BATCH_CHARACTERS", 1)

    def encode_documents(documents, encode=bag.encode_documents):
        if bag.count == 2:
            raise error
        return encode(documents)

    monkeypatch.setattr(bag, "encode_documents", encode_documents)
    with pytest.raises(error):
        list(everything(folder).read_and_save(bag))
    assert len(vectors.SavedVectors(folder.parent / "index").keys) == 2
    reading = everything(folder, "closed").read_and_save(bag)
    monkeypatch.setattr(bag, "encode_documents", BagOfWords().encode_documents)
    next(reading)
    reading.close()  # as when nobody listens any more
    assert len(vectors.SavedVectors(folder.parent / "closed").keys) == 1


def test_lines_without_spaces_are_shown():
    long = command.shown("\u72ee" * 300)
    assert long.startswith("\u72ee" * 90) and len(long) <= command.WIDTH
    assert command.shown(" A lion\troars.") == "A lion roars." and command.shown("word " * 50).endswith("word …")


def test_the_nearest_line_is_shown_at_its_place():
    bag = BagOfWords()
    nearest = lambda query, text, document="Lion", place="a.md:7": indices.nearest_line(
        bag, bag.vector(query), indices.Answer(0.5, document, place, text)
    )
    text = "# Lion\n\nA lion sleeps. It roars at night.\n\n    An owl hunts."
    assert nearest("roars at night", text) == ("It roars at night.", "a.md:9")
    assert nearest("an owl", text) == ("An owl hunts.", "a.md:11")
    assert nearest("lion", "# Lion") == ("Lion", "a.md:7")
    assert nearest("an owl", "A lion.\nAn owl.", "zoo.lion", "zoo.lion") == ("A lion.", "zoo.lion")


def test_vectors_are_kept(tmp_path):
    """Added, removed, saved and loaded, in any order; the best are the nearest by cosine."""
    generator = torch.Generator().manual_seed(0)
    make = lambda n: torch.nn.functional.normalize(torch.randn(n, 16, generator=generator), dim=-1)
    documents = {f"document {n}": make(n % 5 + 1) for n in range(100)}
    added = vectors.SavedVectors(tmp_path / "deep" / "index")
    assert added.keys == set() and added.search(make(1)[0], 5) == []
    for key, rows in documents.items():
        added.add(key, rows)
    for key in ("document 7", "document 60"):
        added.remove(key)
        del documents[key]
    added.save()
    for kept in (added, vectors.SavedVectors(tmp_path / "deep" / "index")):
        kept.add("last", documents.setdefault("last", make(3)))
        kept.remove("document 5")
        kept.add("document 5", documents["document 5"])
        assert kept.keys == set(documents)
        for key, n in (("last", 2), ("document 3", 1), ("document 99", 4)):
            query = documents[key][n]
            (score, *place), *more = kept.search(query, 5)
            assert place == [key, n] and score == pytest.approx(1, abs=1e-5)
            (expected, _) = (torch.cat(list(documents.values())) @ query).sort(descending=True)
            assert [score for score, *_ in more] == pytest.approx(expected[1:5].tolist(), abs=1e-5)
        kept.save()
    found = kept.search(query, 10_000)
    assert len(found) == sum(map(len, documents.values()))
    again = vectors.SavedVectors(tmp_path / "deep" / "index")
    assert sorted(again.search(query, 10_000)) == sorted(found) and again.note is None
    for key in list(again.keys):
        again.remove(key)
    again.save()
    assert vectors.SavedVectors(tmp_path / "deep" / "index").keys == set()
    assert os.listdir(tmp_path / "deep") == ["index.sqlite"]


# A process that saves a document, and is killed in the midst of saving others, of which a part is on the disk.
KILLED = """
import os, sys
import torch
from pathlib import Path
from retrieval_lion.search.vectors import SavedVectors

class Killing:
    def __len__(self):
        os.kill(os.getpid(), 9)

vectors = SavedVectors(Path(sys.argv[1]))
vectors.add("first", torch.eye(16))
vectors.save()
vectors.remove("first")
for n in range(20):
    vectors.add(str(n), torch.ones(20_000, 16))
vectors.add("last", Killing())
vectors.save()
"""


def test_a_process_that_is_killed_keeps_what_was_saved(tmp_path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "ignore", "-c", KILLED, str(tmp_path / "index")]
    assert subprocess.run(command, env=environment).returncode == -9
    assert (tmp_path / "index.sqlite").stat().st_size > 2_000_000 and (tmp_path / "index.sqlite-journal").is_file()
    kept = vectors.SavedVectors(tmp_path / "index")
    assert kept.keys == {"first"} and kept.note is None
    kept.add("later", -torch.ones(1, 16))
    kept.save()
    assert vectors.SavedVectors(tmp_path / "index").search(torch.eye(16)[2], 1) == [(1.0, "first", 2)]


# A process that opens an index, and for each line of its input adds and saves documents, each a row of ones at n.
SHARING = """
import sys
import torch
from pathlib import Path
from retrieval_lion.search.vectors import SavedVectors

vectors = SavedVectors(Path(sys.argv[1]))
print("open", flush=True)
for line in sys.stdin:
    for word in line.split():
        if word[0] == "-":
            vectors.remove(word[1:])
        else:
            vectors.add(word, torch.eye(256)[int(word) : int(word) + 1])
        vectors.save()
    print(*sorted(vectors.keys), flush=True)
"""


def test_two_processes_save_into_one_index(tmp_path):
    """In turns and at once: nothing is lost, nothing comes back, and each takes in what the other has saved."""
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    options["env"] = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    arguments = [sys.executable, "-W", "ignore", "-c", SHARING, str(tmp_path / "index")]
    with subprocess.Popen(arguments, **options) as one, subprocess.Popen(arguments, **options) as other:
        tell = lambda process, line: print(line, file=process.stdin, flush=True)
        hear = lambda process: process.stdout.readline().split()
        assert [hear(process) for process in (one, other)] == [["open"]] * 2  # both an empty one
        turns = ((one, "0 1", "01"), (other, "2", "012"), (one, "-0 3", "123"), (other, "4 -2", "134"))
        for process, line, keys in turns:
            tell(process, line)
            assert hear(process) == list(keys)
        tell(one, " ".join(map(str, range(100, 120))))
        tell(other, " ".join(map(str, range(200, 220))))
        assert all(hear(process) for process in (one, other))
    assert one.returncode == other.returncode == 0
    kept = vectors.SavedVectors(tmp_path / "index")
    expected = [1, 3, 4, *range(100, 120), *range(200, 220)]
    assert kept.keys == set(map(str, expected))
    assert all(kept.search(torch.eye(256)[n], 1)[0][1] == str(n) for n in expected)


def test_a_save_that_fails_writes_nothing_and_the_next_one_everything(tmp_path):
    class Failing:
        def __len__(self):
            raise MemoryError

    kept = vectors.SavedVectors(tmp_path / "index")
    kept.add("first", torch.eye(4)[:2])
    kept.save()
    kept.remove("first")
    kept.add("second", torch.eye(4)[2:])
    kept.added["third"] = Failing()
    with pytest.raises(MemoryError):
        kept.save()
    assert vectors.SavedVectors(tmp_path / "index").keys == {"first"}
    kept.added["third"] = torch.eye(4)
    kept.save()
    assert vectors.SavedVectors(tmp_path / "index").keys == kept.keys == {"second", "third"}


def test_a_disk_that_cannot_be_written_is_searched(tmp_path, monkeypatch):
    saved = vectors.SavedVectors(tmp_path / "index")
    saved.add("document", torch.eye(4))
    saved.save()
    connect = vectors.sqlite3.connect
    for mode, message in (("ro", "attempt to write a readonly database"), ("rw", "unable to open database file")):
        read_only = lambda file, mode=mode, **options: connect(f"file:{file}?mode={mode}", uri=True, **options)
        monkeypatch.setattr(vectors.sqlite3, "connect", read_only)
        kept = vectors.SavedVectors(tmp_path / "index")
        assert [x[1:] for x in kept.search(torch.eye(4)[2], 1)] == [("document", 2)]
        kept.save()  # nothing is new
        kept.add("other", torch.eye(4))
        kept.file = kept.file if mode == "ro" else tmp_path / "other"
        with pytest.raises(OSError, match=message):
            kept.save()


@pytest.mark.parametrize("state", ["damaged", "of another version"])
def test_an_index_that_cannot_be_read_is_made_anew(state, bag, folder, capsys):
    """And so is one that the versions before this one have left: folders of files, and an index of usearch."""
    assert not run(capsys, folder, "zip")["said"].count("made anew")
    (index,) = (folder.parent / "cache").iterdir()
    if state == "damaged":
        index.write_bytes(b"SQLite format 3\0" + bytes(5000))
    else:
        index.unlink()
        index.with_suffix(".lock").touch()
        (index.with_suffix(".vectors")).mkdir()
        (index.with_suffix(".vectors") / "000000000-1.safetensors").write_bytes(b"old")
        (index.with_name(f"{index.stem}-12-abc")).write_bytes(b"old")
    found = run(capsys, folder, "zip")
    assert f"is {state}" in found["said"] and "the index is made anew" in found["said"] and bag.count == 8
    assert found["complete"] and places(found)[0] == "zip.txt:3"
    assert list((folder.parent / "cache").iterdir()) == [index]
    assert "made anew" not in run(capsys, folder, "zip")["said"] and bag.count == 8


def test_vectors_of_other_texts_leave_the_disk(bag, tmp_path):
    """As when every key has changed: the file does not grow."""
    sizes = []
    for name in "abc":
        documents = [Document(name, f"{name}{n}", ((0, 2),), (str(n),)) for n in range(20)]
        list(indices.Index(documents, vectors.SavedVectors(tmp_path / "index")).read_and_save(bag))
        sizes.append(sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()))
    assert max(sizes) < 1.1 * sizes[0]


def test_encoders_of_other_poolings_read_pieces(tmp_path):
    folder = text_checkpoint(tmp_path / "model", "LionModel", pooling="cls")
    modules = [Transformer(str(folder)), Pooling(32, pooling_mode="cls")]
    encoder = encoders.SentenceEncoder(SentenceTransformer(modules=modules, device="cpu"))
    assert encoder.in_pieces
    document = Document("lion", "A lion sleeps.", ((0, 14),), ("lion.txt:1",))
    (vectors,) = encoder.encode_documents([document])
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(1))


def test_documents_have_the_names_of_their_headings():
    heading = "Lions\n=====\n\nThey roar."
    for text, path, name in (
        (heading, "a.rst", "Lions"),
        ("# Big *cats* #\n\nThey roar.", "a.md", "Big *cats"),
        ("They roar.", "deep/big_cats.txt", "big cats"),
    ):
        (found,) = texts.documents_of_text(text, path)
        assert found.name == name and found.text == text and found.places == (f"{path}:1",)
    assert list(texts.documents_of_text(" \n\n", "a.txt")) == []


def test_documents_have_no_single_surrogates(tmp_path):
    (tmp_path / "a.py").write_text('"\\ud800 ends no pair."')
    (found,) = texts.documents_of_docstrings(str(tmp_path / "a.py"), str(tmp_path))
    assert found.text == "\ufffd ends no pair."


def test_documents_of_long_files(tmp_path, monkeypatch):
    """Parts have all passages, each at its place."""
    monkeypatch.setattr(texts, "LONGEST_DOCUMENT", 5000)
    (tmp_path / "book.txt").write_text("\n\n".join(f"Page {n}. " + "Nothing happens. " * 40 for n in range(50)))
    parts = list(texts.documents_of(str(tmp_path / "book.txt"), str(tmp_path)))
    assert len(parts) > 5 and all(x.name == "book" and len(x.text) <= 5000 for x in parts)
    spans = [(x.text, *span) for x in parts for span in x.spans]
    places = [place for x in parts for place in x.places]
    assert places == [f"book.txt:{2 * n + 1}" for n in range(50)]
    assert [text[first:end].split(". ")[0] for text, first, end in spans] == [f"Page {n}" for n in range(50)]


@pytest.mark.parametrize("in_pieces", [True, False])
def test_passages_are_read_with_their_names(in_pieces, tmp_path):
    folder = text_checkpoint(tmp_path / "model", "LionModel", pooling="mean")
    encoder = encoders.SentenceEncoder(SentenceTransformer(str(folder)), in_pieces)
    text = "A lion sleeps. It roars."
    document = Document("lion", text, ((0, 14), (15, 24)), ())
    (found,) = encoder.encode_documents([document])
    if in_pieces:
        expected = encoder.encoder.encode(["lion: A lion sleeps.", "lion: It roars."], normalize_embeddings=True)
    else:
        expected = encode_passages(encoder.encoder, [text], [document.spans], names=["lion"]).vectors
        expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    torch.testing.assert_close(found, torch.from_numpy(expected), atol=1e-5, rtol=1e-5)
    assert encoder.encode_texts(["lion"]).shape == (1, found.shape[1])


def test_an_encoder_that_cuts_texts_off_does_so_here_too(tmp_path):
    encoder = SentenceTransformer(str(text_checkpoint(tmp_path / "model", "LionModel", pooling="mean")))
    document = Document("lion", "A lion sleeps in the shade, and it roars at night.", ((0, 50),), ())
    whole, cut = [], []
    for found, length in ((whole, 4096), (cut, 6)):
        encoder.max_seq_length = length
        found += encoders.SentenceEncoder(encoder, in_pieces=True).encode_documents([document])
        expected = encoder.encode(["lion: " + document.text], normalize_embeddings=True)
        torch.testing.assert_close(found[0], torch.from_numpy(expected), atol=1e-5, rtol=1e-5)
    assert (whole[0] - cut[0]).abs().max() > 1e-3


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")  # of PEFT
def test_an_adapter_is_merged_into_its_base(tmp_path, monkeypatch):
    """Its base is named as seen from a folder above, and the vectors are those of PEFT's own model."""
    peft = pytest.importorskip("peft")
    base = text_checkpoint(tmp_path / "models" / "base", "LionModel", pooling="mean")
    encoder = SentenceTransformer(str(base))
    config = peft.LoraConfig(target_modules="all-linear", init_lora_weights=False)
    changed = peft.get_peft_model(encoder[0].auto_model, config)
    changed.save_pretrained(tmp_path / "models" / "adapter")
    settings = tmp_path / "models" / "adapter" / sources.ADAPTER
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"base_model_name_or_path": "models/base"}))
    expected = torch.from_numpy(encoder.encode(["A lion sleeps."]))  # its layers have been changed in place
    monkeypatch.chdir(tmp_path / "models")
    monkeypatch.setattr(encoders, "has_fast_bfloat16", lambda: False)
    loaded = encoders.load_encoder(tmp_path / "models" / "adapter")
    torch.testing.assert_close(torch.from_numpy(loaded.encode(["A lion sleeps."])), expected, atol=1e-5, rtol=1e-5)
    plain = encoders.load_encoder(base).encode(["A lion sleeps."])
    assert (torch.from_numpy(plain) - expected).abs().max() > 1e-2
    assert not any("lora" in name for name, _ in loaded.named_parameters())
    files = {Path(name).parent.name for name, *_ in sources.files_of_model(str(tmp_path / "models" / "adapter"))}
    assert files == {"adapter", "base"}


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")  # of PEFT
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_adapter_has_the_dtypes_of_its_base(dtype, tmp_path, monkeypatch):
    """Decays are float32 in both (SPEC §5)."""
    peft = pytest.importorskip("peft")
    base = text_checkpoint(tmp_path / "base", "LionModel", pooling="mean", mixer_type="selective")
    model = SentenceTransformer(str(base))[0].auto_model
    model.name_or_path = str(base)
    peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"])).save_pretrained(tmp_path / "adapter")
    monkeypatch.setattr(encoders, "has_fast_bfloat16", lambda: dtype == torch.bfloat16)
    expected, found = (
        {name: x.dtype for of in (encoder.named_parameters(), encoder.named_buffers()) for name, x in of}
        for encoder in map(encoders.load_encoder, (base, tmp_path / "adapter"))
    )
    assert found == expected and {x for name, x in found.items() if "decay" in name} == {torch.float32}
    assert {x for name, x in found.items() if "q_proj" in name} == {dtype}


def test_a_damaged_adapter_is_named(tmp_path):
    for settings in ("{}", '{"base_model_name_or_path": ""}'):
        (tmp_path / sources.ADAPTER).write_text(settings)
        with pytest.raises(ValueError, match="names no `base_model_name_or_path`: save the adapter again"):
            sources.base_of_adapter(tmp_path)


def test_a_missing_base_is_not_looked_up_on_the_hub(tmp_path):
    def base(name):
        (tmp_path / sources.ADAPTER).write_text(json.dumps({"base_model_name_or_path": name}))
        return sources.base_of_adapter(tmp_path)

    for name in ("a/b/c", "./a", "../a", "~/a", "checkpoints/a", str(tmp_path / "a")):
        with pytest.raises(FileNotFoundError, match=f"`base_model_name_or_path` '{name}' is no folder"):
            base(name)
    assert base(sources.ON_THE_HUB) == sources.ON_THE_HUB and base("bert-base-uncased") == "bert-base-uncased"


def test_the_right_text_is_found_and_printed(bag, folder, capsys):
    best = run(capsys, folder, "delete everything in a folder")["answers"][0]
    assert (best["place"], best["document"]) == ("tool.py:4", "tool.remove")
    assert best["text"].startswith('def remove(path):\n    """Delete a folder')
    found = run(capsys, folder, "parse dates: a date from words", "--top", "1")
    (best,) = found["answers"]
    assert best["place"] == str(Path("deep") / "dates.md:3") and best["document"] == "Dates"
    assert found["complete"] and found["searched"] == found["passages"] == 4
    assert "Searched 4 of 4 passages." in found["said"]
    assert any(re.search(r"dates\.md:3 +Dates: Turn a date into words", x) for x in command.lines_of("", [best]))
    found = run(capsys, folder, "everything", "--top", "99")
    assert set(places(found)) == {"tool.py:1", "tool.py:4", "zip.txt:1", str(Path("deep") / "dates.md:3")}
    scores = [answer["score"] for answer in found["answers"]]
    assert scores == sorted(scores, reverse=True)
    options = ["--model", str(folder.parent / "model"), "--cache_dir", str(folder.parent / "cache")]
    cli.main(["search", str(folder), "delete", "a", "folder", *options, "--keep_minutes", "0"])
    printed = capsys.readouterr().out
    assert printed.startswith("  delete a folder\n") and re.search(
        r"0\.\d\d  tool\.py:4 +tool.remove: \W*Delete a folder", printed
    )


def test_only_what_has_changed_is_read_again(bag, folder, capsys):
    def texts_read(query: str = "zip") -> int:
        before = bag.count
        run(capsys, folder, query)
        return bag.count - before

    assert texts_read() == 4 and texts_read() == 0
    (folder / "zip.txt").write_text("Now of umbrellas", encoding="utf-8")
    (folder / "new.txt").write_text("Also of umbrellas, and more", encoding="utf-8")
    assert texts_read("umbrellas") == 2
    assert places(run(capsys, folder, "umbrellas"))[0] == "zip.txt:1"
    (folder / "new.txt").unlink()
    assert texts_read() == 0 and "new.txt:1" not in places(run(capsys, folder, "umbrellas", "--top", "9"))
    (folder.parent / "model" / "weights").write_text("others, and more")
    assert texts_read() == 4


def test_the_work_beside_the_encoder_grows_with_the_documents(bag, tmp_path, monkeypatch):
    """However many batches there are: each key is computed once, and no batch looks at all documents."""
    monkeypatch.setattr(texts, "BATCH_CHARACTERS", 1)
    hashed, looked = [], []
    key, missing = Document.key, indices.Index.missing
    monkeypatch.setattr(Document, "key", property(lambda self: hashed.append(self) or key.fget(self)))
    monkeypatch.setattr(indices.Index, "missing", lambda self: looked.append(self) or missing(self))
    documents = [Document("page", text, ((0, len(text)),), (text,)) for text in map(str, range(50))]
    kept = vectors.SavedVectors(tmp_path / "index")
    keys = kept.keys
    index = indices.Index(documents, kept)
    assert list(index.read(bag)) == [(n, 50) for n in range(1, 51)]
    assert hashed == documents and len(looked) == 2  # at all documents, before the first batch
    assert isinstance(keys, KeysView) and len(keys) == 50  # no copy


def test_equal_passages_are_read_once_and_found_in_every_place(bag, folder, capsys):
    for name in ("a.md", "b.md", "deep/c.md"):
        (folder / name).write_text("# Licence\n\nThe umbrella is free software.")
    found = run(capsys, folder, "the umbrella is free software", "--top", "4")
    assert places(found)[:3] == ["a.md:3", "b.md:3", str(Path("deep") / "c.md:3")] and len(found["answers"]) == 4
    assert found["searched"] == found["passages"] == 7 and bag.count == 5
    assert places(run(capsys, folder, "the umbrella is free software", "--top", "2")) == ["a.md:3", "b.md:3"]


def test_a_python_file_whose_name_is_not_utf8(folder, capsys, monkeypatch):
    """Neither the encoder nor SQLite gets bytes that are not UTF-8, and what is found can be printed."""
    try:
        (folder / "caf\udce9.py").write_text('"""An umbrella of letters."""')
    except OSError:
        pytest.skip("this file system takes no such names")

    class Strict(BagOfWords):
        def encode_documents(self, documents):
            assert all(document.name.encode() for document in documents)
            return super().encode_documents(documents)

    monkeypatch.setattr(searcher, "load_encoder", lambda model, base: Strict())
    monkeypatch.setattr(searcher, "SentenceEncoder", lambda encoder, in_pieces: encoder)
    best, *_ = run(capsys, folder, "an umbrella of letters")["answers"]
    assert (best["place"], best["document"]) == ("caf\ufffd.py:1", "caf\ufffd")
    assert "An umbrella of letters." in best["line"]
    documents = [
        Document("caf\udce9", "An umbrella.", ((0, 12),), ("a",)),
        Document(None, "A lion.", ((0, 7),), ("b",)),
    ]
    assert indices.by_words("lion", documents) == documents[::-1]


def test_a_searcher_opens_only_files_that_have_changed(bag, folder, monkeypatch):
    opened = []
    read = texts.read_bytes
    monkeypatch.setattr(searcher, "TICK", -(10**12))  # what was written just now counts as settled
    monkeypatch.setattr(texts, "read_bytes", lambda path: opened.append(Path(path).name) or read(path))
    found = searcher.Texts(str(folder), None)
    first, _ = found.documents()
    again, _ = found.documents()
    assert first == again and sorted(opened) == ["dates.md", "empty.rst", "tool.py", "zip.txt"]
    (folder / "zip.txt").write_text("Of umbrellas")
    (folder / "deep" / "dates.md").unlink()
    changed, _ = found.documents()
    assert opened[4:] == ["zip.txt"] and [x.text for x in changed if x.name == "zip"] == ["Of umbrellas"]
    assert "Dates" not in {x.name for x in changed}


def test_reading_stops_and_goes_on(bag, folder, monkeypatch, capsys):
    monkeypatch.setattr(texts, "BATCH_CHARACTERS", 1)  # one text a batch
    found = run(capsys, folder, "anything", "--seconds", "-1")
    assert len(found["answers"]) == 1 and not found["complete"]
    assert "Searched 1 of 4 passages; call again to read on." in found["said"]
    more = run(capsys, folder, "anything", "--seconds", "-1")
    assert len(more["answers"]) == 2 and set(places(found)) < set(places(more))
    assert len(run(capsys, folder, "anything")["answers"]) == 4


def test_a_folder_is_edited_while_it_is_read(bag, folder, monkeypatch):
    """A second request in the same process sees the new text, and the first goes on with the old one."""
    monkeypatch.setattr(texts, "BATCH_CHARACTERS", 1)
    shared = searcher.Searcher("model")
    request = {"query": "archive", "folder": str(folder), "package": None, "top": 99, "seconds": None}
    request |= {"one_pass": False, "cache_dir": str(folder.parent / "cache")}
    first = shared.answers(request)
    assert [next(first)["progress"] for _ in range(2)] == [(0, 4), (1, 4)]
    (folder / "zip.txt").write_text("An umbrella")
    *_, second = shared.answers(request)
    assert "An umbrella" in [answer["text"] for answer in second["answers"]]
    *_, last = first
    assert last["answers"] and "An umbrella" not in [answer["text"] for answer in last["answers"]]


def test_first_answers_come_from_documents_with_the_words_of_the_query(bag, folder, monkeypatch, capsys):
    """They are printed while reading goes on, and the last answers are of everything."""
    monkeypatch.setattr(texts, "BATCH_CHARACTERS", 1)
    monkeypatch.setattr(searcher, "FIRST_ANSWER", -1)
    options = ["--model", str(folder.parent / "model"), "--cache_dir", str(folder.parent / "cache")]
    assert cli.main(["search", str(folder), "archive", *options, "--keep_minutes", "0"]) == 0
    printed = capsys.readouterr()
    first = printed.err.split("First answers; reading goes on:")[1]
    assert "zip.txt:3" in first and "tool" not in first
    assert printed.out.count("  archive\n") == 1 and "tool.remove" in printed.out
    names = [x.name for x in indices.by_words("Delete an ARCHIVE of files", everything(folder).missing())]
    assert names[:2] == ["zip", "tool.remove"]


def test_without_a_query_it_asks(bag, folder, monkeypatch, capsys):
    queries = iter(["zip archive", "delete", ""])
    monkeypatch.setattr("builtins.input", lambda prompt: next(queries))
    options = ["--model", str(folder.parent / "model"), "--cache_dir", str(folder.parent / "cache")]
    cli.main(["search", str(folder), *options, "--keep_minutes", "0"])
    printed = capsys.readouterr().out
    assert printed.index("zip.txt") < printed.index("  delete\n") < printed.rindex("tool.remove")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing", "query"], "missing does not exist: give a folder with files to search"),
        (["hollow", "query"], "hollow has no files to search"),
        (["silent", "query"], "nothing to search in .*silent"),
        (["--package", "no_such_package", "query"], "--package no_such_package"),
        (["--package", "math", "query"], "--package math"),  # or a built-in one
        (["hollow", "query", "--top", "0"], "--top is 0"),
        ([], "give a folder to search, or --package NAME"),
        (["full", " "], "the query is empty: give words"),
        (["full", "query", "--model", "gone"], "gone is no folder: give that of a sentence encoder"),
    ],
)
def test_what_is_missing_is_said(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("hollow", "silent", "model", "full"):
        (tmp_path / name).mkdir()
    (tmp_path / "silent" / "code.py").write_text(" \n")
    (tmp_path / "full" / "a.txt").write_text("A lion.")
    options = ["--model", "model", "--cache_dir", "index", "--keep_minutes", "0"]
    assert cli.main(["search", *options, *words]) == 1
    assert re.search(f"lion search: .*{message}", capsys.readouterr().err)


def test_a_missing_model_stops_the_demo():
    with pytest.raises(FileNotFoundError, match="gone is no folder: give that of a sentence encoder"):
        import_module("demo").main(["--search_model", "gone"])


def test_the_default_encoder_is_the_checkpoint_or_one_on_the_hub(tmp_path, monkeypatch):
    assert Path(sources.default_model()) == Path(__file__).resolve().parents[2] / sources.CHECKPOINT
    monkeypatch.setattr(sources, "__file__", str(tmp_path / "retrieval_lion" / "sources.py"))
    monkeypatch.chdir(tmp_path)
    assert sources.default_model() == sources.ON_THE_HUB
    sources.check_source(sources.ON_THE_HUB)
    (tmp_path / sources.CHECKPOINT).mkdir(parents=True)
    assert sources.default_model() == str(tmp_path / sources.CHECKPOINT)


def test_packages_have_their_import_names():
    files, folder = texts.files_of_package("json")
    names = {place for file in files for x in texts.documents_of_docstrings(file, folder) for place in x.places}
    assert {"json", "json.dumps", "json.decoder.JSONDecoder.raw_decode"} <= names
    assert not [name for name in names if "._" in name]
    files, folder = texts.files_of_package("zipfile")
    (found,) = [x for file in files for x in texts.documents_of_docstrings(file, folder) if x.name == "zipfile"]
    assert found.text == "Read and write ZIP files."
    files, _ = texts.files_of_package(texts.STANDARD_LIBRARY)
    assert os.path.realpath(json.__file__) in files


def test_searches_the_documentation_of_a_package(bag, tmp_path, monkeypatch, capsys):
    (tmp_path / "model").mkdir()
    options = ["--package", "zipfile", "--model", str(tmp_path / "model"), "--cache_dir", str(tmp_path / "cache")]
    assert cli.main(["search", "read a zip file", *options, "--keep_minutes", "0"]) == 0
    assert "zipfile" in capsys.readouterr().out


def test_the_demo_begins_with_a_search(bag, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(searcher, "files_of_package", lambda package, find=searcher.files_of_package: find("zipfile"))
    (tmp_path / "model").mkdir()
    summary = import_module("demo").search_part(tmp_path, tmp_path / "model", 60)
    assert summary["texts"] > 20 and len(summary["answers"]) == 5
    assert summary["answers"]["how do I read a zip file"][0]["place"].startswith("zipfile")
    assert "  how do I read a zip file\n" in capsys.readouterr().out
