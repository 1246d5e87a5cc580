# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""`lion search` finds the right text, reads again only what has changed, and says what is missing."""

import json
import os
import re
import shutil
import sys
import time
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from bag_of_words import BagOfWords, use_bag_of_words
from deploy_lion import cli
from hub_checkpoints import text_checkpoint
from retrieval_lion import documents as texts
from retrieval_lion import encoders, sources
from retrieval_lion.documents import Document
from retrieval_lion.search import command, index, searcher
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


@pytest.fixture
def bag(monkeypatch) -> BagOfWords:
    return use_bag_of_words(monkeypatch)


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


def test_a_part_of_a_folder_is_searched_by_the_same_index(bag, folder, capsys):
    """Nothing is indexed or read again, and the rest of the index stays."""
    whole = run(capsys, folder, "delete", "--read_all")
    part = run(capsys, folder, "delete", "--include", "*.py")
    assert {place.split(":")[0] for place in places(part)} == {"tool.py"} < {x.split(":")[0] for x in places(whole)}
    assert 0 < part["passages"] == part["read"] < whole["passages"]
    again = run(capsys, folder, "delete")
    assert (again["passages"], again["read"]) == (whole["passages"], whole["read"])
    assert len(list((folder.parent / "cache").glob("*.sqlite"))) == 1
    (folder / "tool.py").unlink()
    assert run(capsys, folder, "delete", "--exclude", "*.py")["passages"] == whole["passages"] - part["passages"]


def test_requests_at_the_same_time_have_their_own_files(bag, folder, capsys):
    asked = {"query": "delete", "folder": str(folder), "package": None, "top": 5, "seconds": None}
    asked |= {"cache_dir": str(folder.parent / "cache")}
    requests, found = [asked | {"include": ["*.py"]}, asked], []
    of_all = searcher.Searcher(str(folder.parent / "model"))
    assert len([list(of_all.answers(request)) for request in requests]) == 2  # nothing is to be indexed
    turns = zip_longest(*map(of_all.answers, requests))
    for last in zip(*turns, strict=True):
        last = [event for event in last if event][-1]
        found.append((last["passages"], {place.split(":")[0] for place in places(last)}))
    assert found == [(2, {"tool.py"}), (4, {"tool.py", "zip.txt", os.path.join("deep", "dates.md")})]


def test_a_damaged_index_is_made_anew_within_a_search(bag, folder, capsys):
    run(capsys, folder, "delete", "--read_all")
    (path,) = (folder.parent / "cache").glob("*.sqlite")
    data = bytearray(path.read_bytes())
    data[16384 * 2 :] = b"\xff" * (len(data) - 16384 * 2)
    path.write_bytes(data)
    found = run(capsys, folder, "delete")
    assert "is damaged" in found["said"] and "the index is made anew" in found["said"] and len(found["answers"]) == 4


def test_as_many_answers_as_asked_for(bag, folder, monkeypatch, capsys):
    monkeypatch.setattr(searcher, "CANDIDATES", 1)
    assert len(run(capsys, folder, "a zip archive of files", "--top", "3")["answers"]) == 3


def test_chinese_and_japanese_are_found_by_parts_of_words(bag, folder, capsys):
    (folder / "ja.txt").write_text("ライオンは夜に狩りをする。全文検索の例。", encoding="utf-8")
    (folder / "zh.txt").write_text("狮子在树荫下睡觉。", encoding="utf-8")
    run(capsys, folder, "delete")
    of_all = searcher.Searcher(str(folder.parent / "model"))
    request = {"query": "", "folder": str(folder), "package": None, "top": 5, "seconds": None}
    request |= {"cache_dir": str(folder.parent / "cache")}
    list(of_all.answers(request))
    (found,) = of_all.indexes.values()
    for word, file in (("検索", "ja.txt:1"), ("睡觉", "zh.txt:1"), ("狮子", "zh.txt:1")):
        assert [x.place for row in found.by_words(word) for x in found.get([found.keys[row]])] == [file]
    (folder / "ja.txt").unlink()
    list(of_all.answers(request))
    assert found.by_words("検索") == []


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


def test_lines_without_spaces_are_shown():
    long = command.shown("\u72ee" * 300)
    assert long.startswith("\u72ee" * 90) and len(long) <= command.WIDTH
    assert command.shown(" A lion\troars.") == "A lion roars." and command.shown("word " * 50).endswith("word …")


def test_encoders_of_other_poolings_read_pieces(tmp_path):
    folder = text_checkpoint(tmp_path / "model", "LionModel", pooling="cls")
    modules = [Transformer(str(folder)), Pooling(32, pooling_mode="cls")]
    encoder = encoders.SentenceEncoder(SentenceTransformer(modules=modules, device="cpu"))
    assert encoder.in_pieces
    document = Document("lion", "A lion sleeps.", ((0, 14),))
    (vectors,) = encoder.encode_documents([document])
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(1))


def test_documents_have_the_names_of_their_headings():
    heading = "Lions\n=====\n\nThey roar."
    for text, path, name in (
        (heading, "a.rst", "Lions"),
        ("# Big *cats* #\n\nThey roar.", "a.md", "Big *cats"),
        ("They roar.", "deep/big_cats.txt", "big cats"),
    ):
        assert [*texts.passages_of_text(text, path)] == [texts.Passage(name, text, f"{path}:1")]
    assert list(texts.passages_of_text(" \n\n", "a.txt")) == []


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("---\ntitle: 'My page'\ndate: 2026\n---\n\n# Intro\n", "a.md", ["My page", "Intro"]),
        ("---\r\nlayout: x\r\n---\r\n\r\nIntro here\r\n-----\r\n", "a.md", ["Intro here", "Intro here"]),
        ("---\n# no: heading\ntitle: >-\n  Long\n---\nx", "a_b.md", ["no: heading", "no: heading"]),
        ("---\nkey: x\n# no\ntitle: >-\n  Long\n---\nx", "a_b.md", ["a b"]),
        ("---\n---\nx", "a_b.md", ["a b"]),
        ("---\n\n# Lions\n\n---\nx", "a.md", ["Lions", "Lions"]),
        ("- a list\n---\n> a quote\n---\n* more\n---\n", "a_b.md", ["a b"]),
        ("```\n# no\n```\n# Lions #\r\n~~~\n# no\n~~~\n## Owls\n", "a.md", ["Lions", "Lions", "Owls"]),
        ("# a comment\n\nLions\n=====\n", "a.rst", ["Lions", "Lions"]),
    ],
)
def test_titles_and_headings(text, path, expected):
    """The title, and the headings, of which none is in front matter and code."""
    headings = [words for *_, words in texts.headings_of(text, path.endswith(".rst"))]
    assert [texts.name_of(text, path), *headings] == expected


def test_a_title_with_the_end_of_lines_of_windows_is_not_doubled():
    assert [x.name for x in texts.passages_of_text("# Title here\r\n\r\nText.", "a.md")] == ["Title here"]


def test_many_headings_and_fences_are_found_in_linear_time():
    begin = time.process_time()
    assert len(texts.headings_of("```\nx\n```\n\n# b c\n" * 20_000, is_rst=False)) == 20_000
    assert time.process_time() - begin < 5


def test_documents_have_no_single_surrogates(tmp_path):
    (tmp_path / "a.py").write_text('"\\ud800 ends no pair."')
    (found,) = texts.passages_of_docstrings(str(tmp_path / "a.py"), str(tmp_path))
    assert found.text == "\ufffd ends no pair."


@pytest.mark.parametrize("name", ["book.txt", "book.html"])
def test_passages_of_a_file_are_at_their_places_and_indices(name, tmp_path):
    """Of a text those of its file, else of the text that is taken out of it, under all headings."""
    pages = [f"Page {n}. {'Nothing happens. ' * 40}".strip() for n in range(50)]
    text = "\n\n".join(pages)
    (tmp_path / "book.txt").write_text(text)
    (tmp_path / "book.html").write_text("".join(f"<h1>{n}</h1><p>{page}</p>" for n, page in enumerate(pages)))
    found = list(texts.passages_of(str(tmp_path / name), str(tmp_path)))
    assert [x.text for x in found] == pages
    assert all(text[x.begin : x.begin + len(x.text)] == x.text for x in found)
    if name == "book.txt":
        assert [x.place for x in found] == [f"book.txt:{2 * n + 1}" for n in range(50)]


@pytest.mark.parametrize("in_pieces", [True, False])
def test_passages_are_read_with_their_names(in_pieces, tmp_path):
    folder = text_checkpoint(tmp_path / "model", "LionModel", pooling="mean")
    encoder = encoders.SentenceEncoder(SentenceTransformer(str(folder)), in_pieces)
    text = "A lion sleeps. It roars."
    document = Document("lion", text, ((0, 14), (15, 24)))
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
    document = Document("lion", "A lion sleeps in the shade, and it roars at night.", ((0, 50),))
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
    assert found["complete"] and found["read"] == found["passages"] == 4
    assert "4 passages, of which the encoder has read 4 so far." in found["said"]
    snippet = best["text"][best["snippet_start"] : best["snippet_end"]]
    assert snippet == best["snippet"] == "Turn a date into words and parse a date from words."
    assert (folder / "deep" / "dates.md").read_text()[best["start"] : best["end"]] == best["text"]
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


def test_equal_passages_are_read_once_and_found_in_every_place(bag, folder, capsys):
    for name in ("a.md", "b.md", "deep/c.md"):
        (folder / name).write_text("# Licence\n\nThe umbrella is free software.")
    found = run(capsys, folder, "the umbrella is free software", "--top", "4")
    assert places(found)[:3] == ["a.md:3", "b.md:3", str(Path("deep") / "c.md:3")] and len(found["answers"]) == 4
    assert found["read"] == found["passages"] == 7 and bag.count == 5
    assert places(run(capsys, folder, "the umbrella is free software", "--top", "2")) == ["a.md:3", "b.md:3"]


def test_equal_passages_of_files_that_are_left_out_are_not_found(bag, folder, capsys):
    for name in ("new/guide.md", "old/guide.md"):
        (folder / name).parent.mkdir()
        (folder / name).write_text("# Licence\n\nThe umbrella is free software.")
    query = "the umbrella is free software"
    assert len([place for place in places(run(capsys, folder, query)) if "guide.md" in place]) == 2
    found = places(run(capsys, folder, query, "--exclude", "old/"))
    assert [place for place in found if "guide.md" in place] == [str(Path("new") / "guide.md:3")]


def test_an_index_that_is_deleted_is_made_anew(bag, folder, capsys):
    """While the process that has it open lives."""
    kept = searcher.Searcher(str(folder.parent / "model"))
    request = {"query": "a zip archive", "folder": str(folder), "package": None, "top": 1, "seconds": None}
    request["cache_dir"] = str(folder.parent / "cache")
    first = list(kept.answers(request))[-1]["answers"]
    shutil.rmtree(folder.parent / "cache")
    (folder / "more.txt").write_text("An umbrella.")
    assert list(kept.answers(request))[-1]["answers"] == first
    assert list((folder.parent / "cache").glob("*.sqlite"))


def test_a_python_file_whose_name_is_not_utf8(bag, folder, capsys, monkeypatch):
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
    assert "An umbrella of letters." in best["snippet"]


def test_terminals_and_tokenizers_get_characters_that_they_can_read(bag, folder, capsys, monkeypatch):
    (folder / "a\x1b[31m.txt").write_text("An umbrella\x1b]0;title\x07 of letters.")

    class Strict(BagOfWords):
        def encode_queries(self, texts):
            assert all(text.encode() for text in texts)
            return super().encode_queries(texts)

    monkeypatch.setattr(searcher, "load_encoder", lambda model, base: Strict())
    monkeypatch.setattr(searcher, "SentenceEncoder", lambda encoder, in_pieces: encoder)
    options = ["--model", str(folder.parent / "model"), "--cache_dir", str(folder.parent / "cache")]
    cli.main(["search", str(folder), "umbrella \udcff", *options, "--keep_minutes", "0"])
    printed = capsys.readouterr().out
    assert "a\ufffd[31m.txt:1" in printed and not {"\x1b", "\x07"} & set(printed)


def test_a_searcher_opens_only_files_that_have_changed(bag, folder, monkeypatch, capsys):
    """Also in another process: what was read of a file is in the index."""
    opened = []
    read = texts.read_bytes
    monkeypatch.setattr(index, "TICK", -(10**12))  # what was written just now counts as settled
    monkeypatch.setattr(texts, "read_bytes", lambda path: opened.append(Path(path).name) or read(path))
    run(capsys, folder, "zip")
    assert sorted(opened) == ["dates.md", "empty.rst", "tool.py", "zip.txt"]
    run(capsys, folder, "zip")
    (folder / "zip.txt").write_text("Of umbrellas")
    (folder / "deep" / "dates.md").unlink()
    found = run(capsys, folder, "umbrellas", "--top", "9")
    assert opened[4:] == ["zip.txt"] and found["answers"][0]["text"] == "Of umbrellas" and found["passages"] == 3


def test_the_encoder_reads_only_candidates(bag, folder, monkeypatch, capsys):
    """The answer is among them, though nothing of the folder had been read; `--read_all` reads the others, too."""
    monkeypatch.setattr(searcher, "CANDIDATES", 1)
    for count, (query, place) in enumerate([("turn a date", "dates.md:3"), ("read a zip archive", "zip.txt:3")], 1):
        found = run(capsys, folder, query, "--top", "1")
        assert places(found)[0].endswith(place) and found["read"] == bag.count == count and found["complete"]
    found = run(capsys, folder, "read a zip archive", "--read_all")
    assert found["read"] == found["passages"] == bag.count == 4 and len(found["answers"]) == 4
    assert run(capsys, folder, "zip", "--read_all")["read"] == bag.count == 4


def test_read_all_without_a_query(bag, folder, monkeypatch, capsys):
    monkeypatch.setattr("builtins.input", lambda prompt: "")
    options = ["--model", str(folder.parent / "model"), "--cache_dir", str(folder.parent / "cache")]
    assert cli.main(["search", str(folder), "--read_all", *options, "--keep_minutes", "0"]) == 0
    printed = capsys.readouterr()
    assert bag.count == 4 and printed.out == "" and "the encoder has read 4 so far" in printed.err


def test_sentences_of_many_answers_are_chosen_in_steps(bag, folder, monkeypatch, capsys):
    """So that a search with a large `--top` ends in time, too, with the best answers."""
    expected = run(capsys, folder, "turn a date into words", "--top", "3")["answers"]
    monkeypatch.setattr(searcher, "ANSWERS_AT_ONCE", 1)
    assert run(capsys, folder, "turn a date into words", "--top", "3")["answers"] == expected and len(expected) == 3
    is_over = searcher.Clock.is_over
    monkeypatch.setattr(searcher.Clock, "is_over", lambda clock, seconds=0.0: clock.is_late or is_over(clock, seconds))
    monkeypatch.setattr(searcher.Clock, "is_late", False, raising=False)
    choose = searcher.snippets

    def chosen(*args):
        searcher.Clock.is_late = True
        return choose(*args)

    monkeypatch.setattr(searcher, "snippets", chosen)
    found = run(capsys, folder, "turn a date into words", "--top", "3")
    assert found["answers"] == expected[:1] and not found["complete"]


def test_a_search_ends_in_time(bag, folder, monkeypatch, capsys):
    """With what was read by then, and the next one goes on; or without an answer, if a step takes too long."""
    monkeypatch.setattr(index, "BATCH", 1)
    steps = iter(range(1000))
    monkeypatch.setattr(searcher.time, "monotonic", lambda: float(next(steps)))
    found = run(capsys, folder, "turn a date into words", "--seconds", "10")
    assert not found["complete"] and 0 < found["read"] < 4 and found["answers"]
    assert "There was no time for everything: call again" in found["said"]
    more = run(capsys, folder, "turn a date into words")
    assert more["read"] == 4 and more["complete"]
    monkeypatch.undo()
    monkeypatch.setattr(searcher, "files_of_model", lambda *args: time.sleep(60))
    options = ["--model", str(folder.parent / "model"), "--keep_minutes", "0", "--seconds", "-0.95"]
    assert cli.main(["search", str(folder), "query", *options]) == 1
    assert "there was no answer within -0.95 seconds: try again" in capsys.readouterr().err


def test_a_long_job_is_announced(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(searcher.time, "monotonic", lambda: now[0])

    def steps(seconds):
        for done in range(1, 101):
            now[0] += seconds
            yield done, 100

    said = lambda seconds: [
        x["message"] for x in searcher.Clock(None).run(steps(seconds), "Reading") if "message" in x
    ]
    assert said(0.5) == [] and said(1.2) == ["Reading will take about 2 minutes."]
    assert said(90.0) == ["Reading will take about 2 hours."]


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
        (["--package", "no_such_package", "query"], "--package no_such_package"),
        (["--package", "math", "query"], "--package math"),  # or a built-in one
        (["hollow", "query", "--top", "0"], "--top is 0"),
        ([], "give a folder to search, or --package NAME"),
        (["", "query"], "the folder has an empty name"),
        (["full", "query", "--package", "json"], "full is a folder, and --package json"),
        (["--package", "json", "query", "--include", "*.py"], r"--include \*.py chooses files of a folder"),
        (["full", " "], "the query is empty: give words"),
        (["full", "query", "--model", "gone"], "gone is no folder: give that of a sentence encoder"),
    ],
)
def test_what_is_missing_is_said(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("hollow", "model", "full"):
        (tmp_path / name).mkdir()
    (tmp_path / "full" / "a.txt").write_text("A lion.")
    options = ["--model", "model", "--cache_dir", "index", "--keep_minutes", "0"]
    assert cli.main(["search", *options, *words]) == 1
    assert re.search(f"lion search: .*{message}", capsys.readouterr().err)


def test_a_folder_without_text_is_refused(bag, folder, capsys):
    for path in [x for x in folder.rglob("*") if x.is_file()]:
        path.write_text(" \n")
    options = ["--model", str(folder.parent / "model"), "--cache_dir", str(folder.parent / "cache")]
    assert cli.main(["search", str(folder), "query", *options, "--keep_minutes", "0"]) == 1
    assert re.search("lion search: There is nothing to search in .*texts: no text", capsys.readouterr().err)


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
    names = {x.place for file in files for x in texts.passages_of_docstrings(file, folder)}
    assert {"json", "json.dumps", "json.decoder.JSONDecoder.raw_decode"} <= names
    assert not [name for name in names if "._" in name]
    files, folder = texts.files_of_package("zipfile")
    (found,) = [x for file in files for x in texts.passages_of_docstrings(file, folder) if x.name == "zipfile"]
    assert found.text == "Read and write ZIP files."
    for package in ("os", "abc", "codecs"):  # frozen into Python
        assert texts.files_of_package(package) == ([os.path.join(folder, f"{package}.py")], folder)
    files, _ = texts.files_of_package(sources.STANDARD_LIBRARY)
    assert os.path.realpath(json.__file__) in files


def test_searches_the_documentation_of_a_package(bag, tmp_path, monkeypatch, capsys):
    (tmp_path / "model").mkdir()
    options = ["--package", "zipfile", "--model", str(tmp_path / "model"), "--cache_dir", str(tmp_path / "cache")]
    assert cli.main(["search", "read a zip file", *options, "--keep_minutes", "0"]) == 0
    assert "zipfile" in capsys.readouterr().out


def test_packages_are_those_of_the_caller(tmp_path, monkeypatch):
    """The process in the background, which answers, may have been started where another has this name."""
    for project in ("one", "two"):
        (tmp_path / project).mkdir()
        (tmp_path / project / "lion_project.py").write_text(f'"""Project {project}."""\n')
    asked = []
    monkeypatch.setattr(command.background, "ask", lambda model, request, *_: asked.append(request) or (x for x in ()))
    for project in ("one", "two"):
        with monkeypatch.context() as context:
            context.syspath_prepend(tmp_path / project)
            assert cli.main(["search", "--package", "lion_project", "what", "--model", str(tmp_path)]) == 0
    files = [searcher.find_files(request)[0] for request in asked]
    assert files == [[str(tmp_path / project / "lion_project.py")] for project in ("one", "two")]
    with pytest.raises(ValueError, match="--package __main__: this Python has no Python files under"):
        monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
        sources.place_of_package("__main__")


def test_a_place_is_one_hit(bag, tmp_path):
    """Of names that are defined twice with the same words, as a property and its setter."""
    file = tmp_path / "boxes.py"
    definition = '    def size(self):\n        """The size of a box."""\n\n'
    file.write_text(f"class A:\n{definition * 2}")
    read = lambda file: list(texts.passages_of_docstrings(file, str(tmp_path)))
    assert [x.place for x in read(str(file))] == ["boxes.A.size"] * 2
    made = index.Index(None, bag)
    list(made.update([str(file)], read))
    list(made.read(made.keys))
    assert [x.place for x in made.search(bag.vector("the size of a box"), 5)] == ["boxes.A.size"]


def test_a_new_commit_of_a_model_on_the_hub_is_another_model(bag, folder, tmp_path, monkeypatch):
    """Its vectors are not mixed with those of the commit before."""
    cache = tmp_path / "hub"
    monkeypatch.setenv("SENTENCE_TRANSFORMERS_HOME", str(cache))
    repository = cache / "models--me--encoder"
    for commit in ("a" * 40, "b" * 40):
        (repository / "snapshots" / commit).mkdir(parents=True)
        (repository / "snapshots" / commit / "config.json").write_text("{}")
    (repository / "refs").mkdir()
    request = {"query": "delete", "folder": str(folder), "package": None, "top": 1, "seconds": None}
    request |= {"cache_dir": str(tmp_path / "cache")}
    for commit in ("a" * 40, "a" * 40, "b" * 40):
        (repository / "refs" / "main").write_text(commit)
        assert sources.hash_of_model("me/encoder") == f"me/encoder {commit}"
        list(searcher.Searcher("me/encoder").answers(request))
    assert len(list((tmp_path / "cache").glob("*.sqlite"))) == 2
    assert sources.commit_of("me/other", is_loaded=True) is sources.commit_of(str(folder)) is None
    assert sources.hash_of_model("me/other") == "me/other"


def test_the_demo_begins_with_a_search(bag, tmp_path, monkeypatch, capsys):
    demo = import_module("demo")
    monkeypatch.setattr(demo, "place_of_package", lambda package, find=demo.place_of_package: find("zipfile"))
    (tmp_path / "model").mkdir()
    summary = demo.search_part(tmp_path, tmp_path / "model")
    assert summary["texts"] > 20 and len(summary["answers"]) == 5
    assert summary["answers"]["how do I read a zip file"][0]["place"].startswith("zipfile")
    assert "  how do I read a zip file\n" in capsys.readouterr().out
