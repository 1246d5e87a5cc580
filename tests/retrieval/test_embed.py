# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""`lion embed` loses nothing and writes nothing twice, whoever dies; vectors are those of sentence-transformers."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deploy_lion import cli
from hub_checkpoints import text_checkpoint
from retrieval_lion import encoders
from retrieval_lion.documents import Document
from retrieval_lion.embed import corpus, job
from retrieval_lion.files import replaced, state_of
from retrieval_lion.passages import LONGEST
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from modeling_lion import LionTokenizer, encode_passages, split_passages


WORDS = ["lion", "sleeps", "in", "shade", "and", "roars", "at", "night", "hunts", "dawn", "its", "pride"]


def sentence(number: int, words: int = 9) -> str:
    generator = np.random.default_rng(number)
    return " ".join(generator.choice(WORDS, words)).capitalize() + "."


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = text_checkpoint(tmp_path_factory.mktemp("encoder") / "model", "LionModel", pooling="mean")
    LionTokenizer.from_pretrained(folder, model_max_length=4096).save_pretrained(folder)  # so that texts are packed
    return folder


@pytest.fixture(autouse=True)
def float32(monkeypatch):
    monkeypatch.setattr("retrieval_lion.encoders.has_fast_bfloat16", lambda: False)


def write_lines(path: Path, rows) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def all_texts(sources: list[Path]) -> list[corpus.Text]:
    return [text for _, text in corpus.read_texts(corpus.find_files(sources).files, corpus.Columns())]


def embed(model: Path, out: Path, *files, options=()) -> list[dict]:
    """The rows that a call writes, in the order of ids and passages."""
    arguments = ["embed", *map(str, files), "--out", str(out), "--model", str(model), *map(str, options)]
    assert cli.main(arguments) == 0
    return sorted(pq.read_table(out).to_pylist(), key=lambda row: (row["id"], row["passage"]))


def test_vectors_are_those_of_sentence_transformers(model, tmp_path):
    """Passages and whole texts, with names and without; long texts have several passages."""
    rows = [{"id": f"{n:02}", "text": sentence(n), "name": "lion" if n % 3 else None} for n in range(20)]
    rows.append({"id": "long", "text": "\n\n".join(sentence(n, 100) for n in range(5))})
    file = write_lines(tmp_path / "rows.jsonl", rows)
    encoder = SentenceTransformer(str(model))
    found = embed(model, tmp_path / "out", file, options=["--with_text", "--shard_passages", 3])
    texts = {row["id"]: row for row in rows}
    for row in found:
        text, name = texts[row["id"]]["text"], texts[row["id"]].get("name")
        assert (row["first"], row["end"]) == split_passages(text)[row["passage"]]
        assert row["text"] == text[row["first"] : row["end"]]
        expected = encoder.encode(f"{name}: {row['text']}" if name else row["text"], normalize_embeddings=True)
        np.testing.assert_allclose(row["vector"], expected, atol=1e-5)
    assert {row["id"] for row in found} == set(texts) and sum(row["id"] == "long" for row in found) > 1
    whole = embed(model, tmp_path / "whole", file, options=["--whole_texts", "--name_column", "none"])
    expected = encoder.encode([texts[row["id"]]["text"] for row in whole], normalize_embeddings=True)
    np.testing.assert_allclose([row["vector"] for row in whole], expected, atol=1e-5)
    assert len(whole) == len(rows) and all(row["first"] == row["passage"] == 0 for row in whole)


def test_texts_are_read_in_one_pass(model, tmp_path):
    text = "\n\n".join(sentence(n, 100) for n in range(4))
    rows = [{"id": "a", "text": text, "name": "lion"}, {"id": "b", "text": text}, {"id": "c", "text": "", "name": "x"}]
    found = embed(model, tmp_path / "out", write_lines(tmp_path / "a.jsonl", rows), options=["--one_pass"])
    for own, names in (("a", ["lion"]), ("b", None)):
        expected = encode_passages(str(model), [text], names=names).vectors
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        np.testing.assert_allclose([row["vector"] for row in found if row["id"] == own], expected, atol=1e-5)
    assert {row["id"] for row in found} == {"a", "b"}


def test_all_kinds_of_files_are_read(model, tmp_path, capsys):
    folder = tmp_path / "corpus"
    (folder / "deep").mkdir(parents=True)
    texts = pa.table({"body": [sentence(n) for n in range(50)], "number": range(50)})
    pq.write_table(texts, folder / "deep" / "rows.parquet", row_group_size=20)
    write_lines(folder / "lines.jsonl", [{"body": sentence(n), "number": n} for n in range(50, 60)])
    (folder / "note.md").write_text("# A heading\n\nA lion sleeps.")
    for ignored in (".hidden.txt", "_part.txt", "data.bin"):
        (folder / ignored).write_text("no")
    (folder / "picture.txt").write_bytes(b"\x89PNG\0\0")
    (folder / "blank.txt").write_text(" \n")
    options = ["--text_column", "body", "--id_column", "number", "--with_text", "--shard_passages", 7]
    found = {row["id"]: row["text"] for row in embed(model, tmp_path / "out", folder, options=options)}
    assert (
        "Skipped 2 files: data.bin (another kind), picture.txt (no text); besides 2 (hidden). Left out 1 empty text."
        in capsys.readouterr().err
    )
    assert found.pop("note.md") == "# A heading\n\nA lion sleeps."
    of_name = list(corpus.read_texts(corpus.find_files([folder / "note.md"]).files, corpus.Columns("name")))
    assert [x.text for _, x in of_name] == ["# A heading\n\nA lion sleeps."]
    assert found == {str(n): sentence(n) for n in range(60)}
    options[3] = "none"
    found = {row["id"]: row["text"] for row in embed(model, tmp_path / "again", folder, options=options)}
    assert len(found) == 61 and found[str(Path("deep", "rows.parquet")) + ":33"] == sentence(33)
    assert found["lines.jsonl:0"] == sentence(50)


def passages_of_shards(sources: list[Path], **fields) -> list[list[tuple[str, int, str]]]:
    """For each shard, the passages that a worker finds in it: id of the text, number in the text, and passage."""
    settings, files = job.Settings(**fields), corpus.find_files(sources).files
    shards, states = list(job.make_shards(files, settings)), [state_of(file.path)[:2] for file in files]
    worker = job.Worker.__new__(job.Worker)
    worker.job, worker.find = job.Job(settings, files, states, shards, Path(), ""), settings.find()
    found = [
        [(own, first + n, x.text[a:b]) for own, first, x in worker.texts(shard) for n, (a, b) in enumerate(x.spans)]
        for shard in shards
    ]
    assert list(map(len, found)) == [shard.passages for shard in shards]
    return found


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n"])
@pytest.mark.parametrize("rows_of_group", [1, 7, 30])
def test_every_passage_is_in_one_shard(end, rows_of_group, tmp_path, monkeypatch):
    """Of lines, the last of which may have no end, of rows in groups, and of a text that is longer than a shard."""
    monkeypatch.setattr(corpus, "ROWS_AT_ONCE", 4)
    lines = [json.dumps({"text": "é" * n, "id": n}, ensure_ascii=False) for n in range(1, 30)]
    (tmp_path / "a.jsonl").write_bytes(end.join(lines).encode())
    texts = [None if n == 5 else sentence(n) for n in range(30)]
    pq.write_table(pa.table({"text": texts, "other": [[1, 2]] * 30}), tmp_path / "b.parquet", rows_of_group)
    book = "\n\n".join(sentence(n, 100) for n in range(40))
    (tmp_path / "c.txt").write_text(book)
    expected = [(str(n), 0, "é" * n) for n in range(1, 30)]
    expected += [(f"b.parquet:{n}", 0, sentence(n)) for n in range(30) if n != 5]
    pages = [("c.txt", n, book[slice(*span)]) for n, span in enumerate(split_passages(book))]
    assert len(pages) > 20
    for shard_passages in (1, 7, 1000):
        found = passages_of_shards([tmp_path], shard_passages=shard_passages)
        assert all(len(shard) == shard_passages for shard in found[:-1])
        assert [passage for shard in found for passage in shard] == [*expected, *pages]
    *_, last = passages_of_shards([tmp_path], shard_passages=7, one_pass=True)
    assert last[-len(pages) :] == pages  # a text that is read in one pass is not divided
    *_, last = passages_of_shards([tmp_path], shard_passages=7, whole_texts=True)
    assert last[-1] == ("c.txt", 0, book) and len(book) > 7 * LONGEST and len(last) <= 7


def test_texts_of_parquet_may_be_large_or_of_a_dictionary(tmp_path):
    texts = [sentence(n) for n in range(3)]
    kinds = (pa.large_string(), pa.dictionary(pa.int32(), pa.string()))
    for n, kind in enumerate(kinds):
        pq.write_table(pa.table({"text": pa.array(texts).cast(kind)}), tmp_path / f"{n}.parquet")
    assert [text.text for text in all_texts([tmp_path])] == texts * len(kinds)


def test_single_surrogates_are_replaced(model, tmp_path):
    row = {"id": "a\ud800", "text": "A lion\udfff sleeps.", "name": "\udc00lion"}
    (found,) = embed(model, tmp_path / "out", write_lines(tmp_path / "a.jsonl", [row]), options=["--with_text"])
    assert found["id"] == "a\ufffd" and found["text"] == "A lion\ufffd sleeps." and found["end"] == len(row["text"])
    (text,) = all_texts([tmp_path / "a.jsonl"])
    assert text.name == "\ufffdlion"


def test_ids_are_of_one_text(tmp_path):
    """Also if files in several folders have the same name; a file that is given twice is read once."""
    for name in ("x/data/a.txt", "y/data/a.txt", "y/data/b.txt", "z/data/a.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"A lion in {name}.")
    folders = [tmp_path / name / "data" for name in "xy"]
    found = {text.id: text.text for text in all_texts([*folders, folders[1] / "b.txt", folders[0], tmp_path / "z"])}
    # One folder in front of the first two gives "data/a.txt", as the last source calls its own.
    assert found == {
        "x/data/a.txt": "A lion in x/data/a.txt.",
        "y/data/a.txt": "A lion in y/data/a.txt.",
        "b.txt": "A lion in y/data/b.txt.",
        "z/data/a.txt": "A lion in z/data/a.txt.",
    }


def test_vectors_are_no_corpus(model, tmp_path):
    """Vectors of this job and of others stay out, with --out in a folder that is read."""
    write_lines(tmp_path / "a.jsonl", [{"id": n, "text": sentence(n)} for n in range(3)])
    (tmp_path / "mine").mkdir()
    for name in ("mine", "other"):
        for sources in ([tmp_path], [tmp_path], sorted(tmp_path.iterdir()))[: 3 if name == "mine" else 1]:
            found = embed(model, tmp_path / name, *sources, options=["--with_text"])
            assert [row["id"] for row in found] == ["0", "1", "2"]


def test_it_goes_on_with_what_is_missing(model, tmp_path, monkeypatch):
    file = write_lines(tmp_path / "a.jsonl", [{"id": n, "text": sentence(n)} for n in range(60)])
    options = ["--shard_passages", 8]
    expected = embed(model, tmp_path / "whole", file, options=options)
    out, made = tmp_path / "out", []

    def make(worker, number, make=job.Worker.make):
        made.append(number)
        if len(made) == 3:
            raise KeyboardInterrupt
        yield from make(worker, number)

    monkeypatch.setattr(job.Worker, "make", make)
    arguments = ["embed", str(file), "--out", str(out), "--model", str(model), *map(str, options)]
    assert cli.main(arguments) == 130
    (out / "_part-000002.parquet.1234").write_bytes(b"half of a file")  # of a process that was killed
    kept = {path: path.stat().st_mtime_ns for path in out.glob("part-*")}
    assert len(kept) == 2
    assert embed(model, out, file, options=options) == expected
    assert made == [0, 1, 2, *range(2, len(list(out.glob("part-*"))))]
    assert all(path.stat().st_mtime_ns == time for path, time in kept.items()) and not list(out.glob("_part*"))


def test_a_file_that_changes_stops_the_job(model, tmp_path):
    files = [tmp_path / f"{n}.txt" for n in range(3)]
    for n, file in enumerate(files):
        file.write_text("\n\n".join(sentence(n, 100) for _ in range(4)))
    begun = job.begin_job(files, tmp_path / "out", str(model), job.Settings(shard_passages=5))
    work = job.work(begun)
    while not begun.part(0).is_file():
        next(work)
    files[2].write_text("One passage.")  # the second shard, which ends in it, has read it
    with pytest.raises(ValueError, match="2.txt has changed since the job began"):
        list(work)
    assert len(list((tmp_path / "out").glob("part-*"))) == 2


def test_one_pass_is_refused_where_an_encoder_cannot(tmp_path, capsys):
    model, other = text_checkpoint(tmp_path / "model", "LionModel"), tmp_path / "other"
    SentenceTransformer(modules=[Transformer(str(model)), Pooling(32, pooling_mode="cls")]).save(str(other))
    file = write_lines(tmp_path / "a.jsonl", [{"text": "A lion."}])
    arguments = ["embed", str(file), "--model", str(other), "--out", str(tmp_path / "out"), "--one_pass"]
    assert cli.main(arguments) == 1 and "leave --one_pass out" in capsys.readouterr().err


def test_progress_is_of_passages_within_a_file(model, tmp_path, monkeypatch, capsys):
    """They are counted before the encoder is loaded."""
    monkeypatch.setattr("retrieval_lion.embed.job.BATCH_CHARACTERS", 400)
    file = write_lines(tmp_path / "a.jsonl", [{"id": n, "text": sentence(n, 5 + n % 9)} for n in range(60)])
    begun = job.begin_job([file], tmp_path / "out", str(model), job.Settings())
    assert [shard.passages for shard in begun.shards] == [60]
    counts = list(job.work(begun))
    assert len(counts) > 5 and sum(counts) == 60
    assert job.begin_job([file], tmp_path / "out", str(model), job.Settings()).shards == begun.shards
    assert cli.main(["embed", str(file), "--out", str(tmp_path / "out"), "--model", str(model)]) == 0
    said = capsys.readouterr().err
    assert said.index("Encoder:") < said.index("Counting") < said.index("60/60")


def test_a_corpus_without_a_text_is_refused(model, tmp_path, capsys):
    file = write_lines(tmp_path / "a.jsonl", [{"text": " "}, {"text": None}])
    assert cli.main(["embed", str(file), "--out", str(tmp_path / "out"), "--model", str(model)]) == 1
    assert "There is nothing to encode: no file has a text in 'text'" in capsys.readouterr().err


@pytest.mark.parametrize("longest", [10**9, 4096])
def test_a_very_long_text_is_read_in_parts_unless_the_encoder_cuts_it(longest, model, monkeypatch):
    """Beside others, in its place; each part has the special tokens that a text has."""
    encoder = SentenceTransformer(str(model), device="cpu")
    encoder.max_seq_length = longest
    monkeypatch.setattr("retrieval_lion.encoders.LONGEST_AT_ONCE", 200)
    texts, parts = [sentence(0), sentence(1, 100), sentence(2)], []
    encode = encoders.encode_passages
    monkeypatch.setattr(
        "retrieval_lion.encoders.encode_passages", lambda *args: parts.append(args[1]) or encode(*args)
    )
    documents = [Document(None, text, ((0, len(text)),)) for text in texts]
    found = encoders.SentenceEncoder(encoder, in_pieces=True).encode_documents(documents)
    assert parts == ([[texts[1]]] if longest == 10**9 else [])
    np.testing.assert_allclose(np.concatenate(found), encoder.encode(texts, normalize_embeddings=True), atol=1e-5)


def test_other_settings_and_other_files_are_refused(model, tmp_path, capsys):
    file, out = write_lines(tmp_path / "a.jsonl", [{"text": "A lion."}]), tmp_path / "out"
    embed(model, out, file)
    arguments = ["embed", str(file), "--model", str(model), "--out"]
    assert cli.main([*arguments, str(out), "--whole_texts"]) == 1
    assert "has vectors with other settings (whole_texts): give the same to go on" in capsys.readouterr().err
    other = text_checkpoint(tmp_path / "other", "LionModel", pooling="mean", num_hidden_layers=1)
    assert cli.main([*arguments[:2], "--model", str(other), "--out", str(out)]) == 1
    assert "other settings (model)" in capsys.readouterr().err
    for text in ("A lion roars.", "A lion", "A crow"):  # the last two have as many bytes
        file.write_text(json.dumps({"text": text}))
        assert cli.main([*arguments, str(out)]) == 1 and "other settings (files)" in capsys.readouterr().err
    assert cli.main([*arguments, str(tmp_path)]) == 1
    assert "was not written by `lion embed`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"text": "A lion."}\n{"text": 5}\n', "a.jsonl, byte 20: give a JSON object with a text 'text'"),
        ("a.jsonl", '{"body": "A lion."}\n', "a.jsonl, byte 0: give a JSON object"),
        ("a.jsonl", "no JSON", "a.jsonl, byte 0: give a JSON object"),
        ("a.csv", "text", "a.csv has none of the endings .parquet, .pq, .jsonl"),
        ("a.parquet", {"body": ["A lion."]}, "a.parquet has no texts 'text'; it has body: give --text_column"),
        ("a.parquet", "", "a.parquet is no Parquet file"),
        ("a.parquet", {"text": [1]}, "a.parquet has no texts 'text'"),
        ("a.parquet", {"text": [["A lion."]]}, "a.parquet has no texts 'text'"),
    ],
)
def test_what_cannot_be_read_is_named(name, content, message, model, tmp_path, capsys):
    file = tmp_path / name
    pq.write_table(pa.table(content), file) if isinstance(content, dict) else file.write_text(content)
    assert cli.main(["embed", str(file), "--model", str(model), "--out", str(tmp_path / "out")]) == 1
    assert message in capsys.readouterr().err
    assert cli.main(["embed", str(tmp_path / "gone"), "--model", str(model), "--out", str(tmp_path / "out")]) == 1
    assert "gone is neither a file nor a folder" in capsys.readouterr().err


def test_a_file_is_there_as_a_whole_or_not_at_all(tmp_path):
    with pytest.raises(ZeroDivisionError), replaced(tmp_path / "file") as unfinished:
        unfinished.write_text("half")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
    with replaced(tmp_path / "file") as unfinished:
        unfinished.write_text("all")
        assert not (tmp_path / "file").exists() and unfinished.name.startswith("_")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["all"]


# Processes that are killed


def start(model: Path, out: Path, file: Path, *options: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "deploy_lion.cli", "embed", str(file), "--out", str(out)]
    command += ["--model", str(model), "--shard_passages", "60", *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    with (out.parent / "log").open("a") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


def wait_for_files(process: subprocess.Popen, out: Path, count: int) -> None:
    stop = time.monotonic() + 300
    while len(list(out.glob("part-*"))) < count:
        log = (out.parent / "log").read_text()
        assert process.poll() is None and time.monotonic() < stop, log[-3000:]
        time.sleep(0.02)


def check_all(model: Path, out: Path, count: int) -> None:
    """Every id once, with the vector of `SentenceTransformer.encode`."""
    rows = sorted(pq.read_table(out).to_pylist(), key=lambda row: int(row["id"]))
    assert [int(row["id"]) for row in rows] == list(range(count))
    expected = SentenceTransformer(str(model)).encode(
        [sentence(n) for n in range(count)], normalize_embeddings=True, convert_to_numpy=True
    )
    # Processes of their own compute in bfloat16 on some CPUs.
    assert (np.array([row["vector"] for row in rows]) * expected).sum(1).min() > 0.99


@pytest.mark.slow
def test_a_killed_process_goes_on(model, tmp_path):
    count, out = 3000, tmp_path / "out"
    file = write_lines(tmp_path / "a.jsonl", [{"id": n, "text": sentence(n)} for n in range(count)])
    process = start(model, out, file)
    wait_for_files(process, out, 3)
    process.kill()
    process.wait()
    assert len(list(out.glob("part-*"))) < 40  # of more than that
    assert start(model, out, file).wait(timeout=300) == 0, (tmp_path / "log").read_text()[-3000:]
    check_all(model, out, count)


def ray_workers() -> list[int]:
    """Processes that run a worker of Ray."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                name = (process / "cmdline").read_text()
            except OSError:
                continue
            if name.startswith("ray::") and "MapWorker" in name:
                found.append(int(process.name))
    return found


@pytest.mark.slow
def test_killed_workers_and_drivers_of_a_cluster_go_on(model, tmp_path):
    """A local Ray cluster of two workers: one of them is killed, then the process that gives them work."""
    pytest.importorskip("ray")
    count, out = int(os.environ.get("LION_RAY_PASSAGES", 4000)), tmp_path / "out"
    file = write_lines(tmp_path / "a.jsonl", [{"id": n, "text": sentence(n)} for n in range(count)])
    first = start(model, out, file, "--ray")
    wait_for_files(first, out, 2)
    (worker, *_) = ray_workers()
    os.kill(worker, signal.SIGKILL)
    wait_for_files(first, out, len(list(out.glob("part-*"))) + 3)  # others work on
    first.kill()
    first.wait()
    kept = len(list(out.glob("part-*")))
    assert start(model, out, file, "--ray").wait(timeout=600) == 0, (tmp_path / "log").read_text()[-3000:]
    assert kept < len(list(out.glob("part-*")))
    check_all(model, out, count)
