# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""An index keeps what it has, shares it, and scores all passages before the encoder reads any."""

import math
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from bag_of_words import BagOfWords, number_of, use_bag_of_words
from hub_checkpoints import text_checkpoint
from retrieval_lion.documents import Passage, passages_of_text
from retrieval_lion.search import index, tokens
from sentence_transformers import SentenceTransformer


@pytest.fixture
def bag(monkeypatch) -> BagOfWords:
    return use_bag_of_words(monkeypatch)


WORDS = [f"{a}{b}" for a in ("lion", "owl", "wolf", "bear", "crane") for b in ("", "s", "let", "like")]


def make_files(folder: Path, count: int, seed: int = 0) -> list[str]:
    """Files with three passages of random words each."""
    generator, files = np.random.default_rng(seed), []
    for n in range(count):
        passages = (" ".join(generator.choice(WORDS, 100)) for _ in range(3))
        (folder / f"{n:03}.txt").write_text("\n\n".join(passages))
        files.append(str(folder / f"{n:03}.txt"))
    return files


def read_file(file: str) -> list[Passage]:
    return list(passages_of_text(Path(file).read_text(), Path(file).name))


def make_index(path: Path | None, bag: BagOfWords, files: list[str]) -> index.Index:
    found = index.Index(path, bag)
    list(found.update(files, read_file))
    return found


def test_what_was_read_is_kept_and_searched(bag, tmp_path):
    """The best are the nearest by cosine, also of an index that is opened again, and after changes."""
    files, path = make_files(tmp_path, 5), tmp_path / "deep" / "index.sqlite"
    made = make_index(path, bag, files)
    assert made.passages() == (0, 15) and made.search(bag.vector("lion"), 5) == []
    assert list(made.read(made.keys[:10])) == [(10, 10)] and list(made.read(made.keys[:10])) == []
    Path(files[0]).write_text("A lion sleeps.\n\n" + "x" * 600)
    os.unlink(files[1])
    for again in (made, index.Index(path, bag)):
        list(again.update([files[0], *files[2:]], read_file))
        assert again.passages() == (4, 10) or again.passages() == (10, 10)
        list(again.read(again.keys))
        assert again.passages() == (10, 10)
        texts = [passage.text for passage in again.get(again.keys)]
        for query in ("lion owl bear", "a lion sleeps"):
            scores = torch.stack([bag.vector(text) for text in texts]) @ bag.vector(query)
            answers = again.search(bag.vector(query), 10)
            expected = scores.sort(descending=True).values.tolist()
            assert [x.score for x in answers] == pytest.approx(expected, abs=1e-5)
            assert answers[0].text == texts[int(scores.argmax())]
    assert bag.count == 10 + 6
    (count,) = made.database.execute("SELECT count(*) FROM vectors").fetchone()
    assert count == 10  # those of other texts have left the disk
    kept = made.database.execute("SELECT count(*) FROM words WHERE words MATCH 'lion OR sleeps'").fetchone()
    made.database.execute("INSERT INTO words (words) VALUES ('integrity-check')")
    assert kept[0] > 0 and os.listdir(path.parent) == ["index.sqlite"]


def test_candidates_have_the_words_or_near_ones(bag, monkeypatch, tmp_path):
    """The vectors of tokens find a synonym, which BM25 does not."""
    synonyms = {number_of("cat"): 1, number_of("feline"): 1, number_of("dog"): 2, number_of("hound"): 2}
    near = lambda encoder, ids: np.stack(
        [np.random.default_rng(synonyms.get(int(n), int(n) + 3)).standard_normal(64) for n in ids]
    ).astype(np.float16)
    monkeypatch.setattr(index, "token_vectors", near)
    texts = {"a": "the cat sleeps", "b": "the dog barks", "c": "the owl flies", "d": "an empty page"}
    read = lambda name: [Passage(name, texts[name], name)]
    made = index.Index(None, bag)
    list(made.update(list(texts), read))
    place = lambda query: [passage.name for passage in made.get(made.candidates(query, 2))]
    assert place("hound")[0] == "b" and place("feline")[0] == "a" and place("owls")[0] == "c"
    assert made.by_words("hound") == [] and len(made.by_words("the")) == 3
    assert made.by_words('"') == [] and made.by_tokens("") == [] and made.candidates("", 5) == []
    (passage,) = made.get(made.candidates("owl", 1))
    assert passage.text == "the owl flies"


def test_as_many_candidates_as_are_asked_for(bag, monkeypatch):
    """Those that neither words nor tokens have listed come last; of no query there are none."""
    monkeypatch.setattr(index, "LISTED", 2)
    made = index.Index(None, bag)
    list(made.update(WORDS, lambda name: [Passage(name, name, name)]))
    assert len(made.candidates("owl", len(WORDS))) == len({*made.keys}) == len(WORDS)
    assert made.candidates("owl", 9)[0] == made.candidates("owl", 1)[0] and made.candidates("", 9) == []
    assert len(made.by_words("owl", 1)) == len(made.by_tokens("owl", 1)) == 1


def test_words_are_ranked_among_the_files_that_are_searched(bag):
    """However many others have them."""
    texts = {f"{n}": "quokka quokka" for n in range(9)} | {"a": "the quokka sleeps in the shade", "b": "an owl"}
    made = index.Index(None, bag)
    read = lambda name: [Passage(name, texts[name], name)]
    list(made.update(list(texts), read))
    list(made.update(["a", "b"], read, is_part=True))
    (found,) = made.get([made.keys[row] for row in made.by_words("quokka", 2)])
    assert found.name == "a"


def test_the_beginning_of_a_long_query_chooses(bag, monkeypatch):
    read = lambda name: [Passage(name, name, name)]
    made = index.Index(None, bag)
    list(made.update(["lion", "owl", "wolf"], read))
    monkeypatch.setattr(index, "QUERY", len("owl "))
    assert made.candidates("owl wolf", 3) == made.candidates("owl", 3) != made.candidates("wolf", 3)


def test_scores_of_tokens_are_as_written():
    """Against loops in float64."""
    generator = np.random.default_rng(0)
    vectors = {n: generator.standard_normal(16).astype(np.float16) for n in range(0, 60, 2)}
    texts = [generator.choice(list(vectors), size) for size in (5, 9, 1, 30)]
    passages = [np.stack(np.unique(ids, return_counts=True)).astype(np.uint32) for ids in texts]
    query = [4, 10, 7]  # no passage has 7
    of_query = np.stack([vectors.get(n, np.ones(16, np.float16)) for n in query])
    found = tokens.TokenScores({n: vectors[n] for n in sorted(set(np.concatenate(texts)))}, passages).of_query(
        query, of_query
    )
    used = {n: vectors[n].astype(float) for n in sorted(set(np.concatenate(texts)))}
    mean, mean_length = np.mean(list(used.values()), axis=0), np.mean([len(ids) for ids in texts])
    expected = []
    for ids in texts:
        total = 0.0
        for token, vector in zip(query, of_query.astype(float), strict=True):
            frequency = sum(token in other for other in texts)
            rarity = math.log(1 + (len(texts) - frequency + 0.5) / (frequency + 0.5))
            best = 0.0
            for other in set(ids.tolist()):
                x, y = vector - mean, used[other] - mean
                cosine = x @ y / np.linalg.norm(x) / np.linalg.norm(y)
                count = (ids == other).sum()
                slow = 1.2 * (0.25 + 0.75 * len(ids) / mean_length)
                best = max(best, max(cosine, 0) ** 3 * count * 2.2 / (count + slow))
            total += rarity * best
        expected.append(total)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_vectors_of_tokens_are_those_of_the_encoder(tmp_path):
    encoder = SentenceTransformer(str(text_checkpoint(tmp_path / "model", "LionModel", pooling="mean"))).eval()
    ids = [7, 11, 30]
    found = tokens.token_vectors(encoder, ids)
    prefix, suffix = tokens.special_tokens(encoder.tokenizer)
    model = encoder[0].auto_model
    for token, vector in zip(ids, found, strict=True):
        with torch.no_grad():
            states = model(torch.tensor([[*prefix, token, *suffix]])).last_hidden_state[0]
        np.testing.assert_allclose(vector, states[len(prefix)].numpy(), atol=2e-3)
    ((numbers, counts), (none, _)) = tokens.tokens_of(encoder, ["a lion, a lion", ""])
    whole = encoder.tokenizer("a lion, a lion", add_special_tokens=False)["input_ids"]
    assert dict(zip(numbers.tolist(), counts.tolist(), strict=True)) == {n: whole.count(n) for n in whole}
    assert not len(none) and tokens.tokens_of(encoder, []) == []


def test_rankings_are_joined_by_reciprocal_ranks():
    assert tokens.fused([1, 2, 3], [3, 1]) == [1, 3, 2]  # 1/61 + 1/62 > 1/63 + 1/61 > 1/62
    assert tokens.fused([], []) == []


# A process that indexes files and reads the first passage of each, and is killed in the midst of saving another one.
KILLED = """
import os, sys
from pathlib import Path
sys.path[:0] = sys.argv[3:]
from bag_of_words import BagOfWords, vectors_of_tokens
from retrieval_lion.documents import passages_of_text
from retrieval_lion.search import index

index.token_vectors = vectors_of_tokens
read = lambda file: list(passages_of_text(Path(file).read_text(), Path(file).name))
made = index.Index(Path(sys.argv[1]), BagOfWords())
files = sorted(map(str, Path(sys.argv[2]).glob("*.txt")))
list(made.update(files[:-1], read))
list(made.read(made.keys[:4]))
def killing(file):
    if file == files[-1]:
        os.kill(os.getpid(), 9)
    return read(file)
os.utime(files[0])
list(made.update(files, killing))
"""


@pytest.mark.slow
def test_a_process_that_is_killed_keeps_what_was_saved(bag, tmp_path):
    files, path = make_files(tmp_path, 4), tmp_path / "index.sqlite"
    places = [str(Path(__file__).parents[1] / "support"), *filter(None, sys.path)]
    command = [sys.executable, "-W", "ignore", "-c", KILLED, str(path), str(tmp_path), *places]
    assert subprocess.run(command).returncode == -9
    kept = index.Index(path, bag)
    assert kept.note is None and kept.passages() == (4, 9)
    list(kept.update(files, read_file))
    assert kept.passages() == (4, 12) and len(kept.candidates("lion", 50)) == 12


def test_two_processes_share_an_index(bag, tmp_path):
    """Each takes in what the other has indexed and read."""
    files, path = make_files(tmp_path, 4), tmp_path / "index.sqlite"
    one, other = make_index(path, bag, files[:2]), index.Index(path, bag)
    assert other.passages() == (0, 6)
    list(one.read(one.keys[:3]))
    other.load()
    assert other.passages() == (3, 6)
    list(other.update(files, read_file))
    list(other.read(other.keys[3:]))
    one.load()
    assert one.passages() == (12, 12) and bag.count == 12
    assert one.search(bag.vector("lion owl"), 12) == other.search(bag.vector("lion owl"), 12)


def test_a_change_that_fails_changes_nothing(bag, tmp_path):
    files = make_files(tmp_path, 2)
    made = make_index(tmp_path / "index.sqlite", bag, files)

    def failing(file):
        raise MemoryError

    Path(files[0]).write_text("other text")
    with pytest.raises(MemoryError):
        list(made.update(files, failing))
    assert made.passages() == (0, 6) and len(made.candidates("lion", 50)) == 6


def test_a_disk_that_cannot_be_written_is_searched(bag, tmp_path, monkeypatch):
    files, path = make_files(tmp_path, 2), tmp_path / "index.sqlite"
    monkeypatch.setattr(index, "TICK", -(10**12))
    list((made := make_index(path, bag, files)).read(made.keys[:2]))
    connect = sqlite3.connect
    monkeypatch.setattr(
        index.sqlite3, "connect", lambda name, *x, **y: connect(f"file:{name}?mode=ro", *x, uri=True, **y)
    )
    kept = index.Index(path, bag)
    assert list(kept.update(files, read_file)) == []  # nothing is new
    list(kept.read(kept.keys))
    assert kept.passages() == (6, 6) and "What is read is not kept" in kept.note and "readonly" in kept.note
    list(kept.read(kept.keys))
    assert len(kept.search(bag.vector("lion"), 6)) == 6
    assert list(kept.update(files[:1], read_file)) == [] and "What has changed is not indexed" in kept.note
    list(kept.read(kept.keys))
    assert len(kept.search(bag.vector("lion"), 6)) == 6


def test_a_damaged_index_is_made_anew(bag, tmp_path):
    files, path = make_files(tmp_path, 2), tmp_path / "index.sqlite"
    path.write_bytes(b"SQLite format 3\0" + bytes(5000))
    made = index.Index(path, bag)
    assert "is damaged" in made.note and "the index is made anew" in made.note
    list(made.update(files, read_file))
    assert made.passages() == (0, 6) and index.Index(path, bag).note is None
