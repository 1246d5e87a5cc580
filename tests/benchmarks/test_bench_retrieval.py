# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The comparison of encoders on retrieval is fair, and goes on where it was."""

import json
from importlib import import_module
from pathlib import Path

import pytest
import torch
from hub_checkpoints import text_checkpoint
from sentence_transformers import SentenceTransformer
from sklearn.metrics import ndcg_score
from transformers import BertConfig, BertModel

from modeling_lion import linearize


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
        mean, error = import_module("training_lion.scripts.ranking").mean_and_error(x, torch.arange(len(x)))
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
    torch.testing.assert_close(bench.best_pieces(query, [one_good_piece, fair], 2), torch.tensor([0.5, 0.8]))
    expected = torch.tensor([1 / 5**0.5, 0.8])
    torch.testing.assert_close(bench.mean_of_pieces(query, [one_good_piece, fair]), expected)


def test_by_softmax_an_encoder_is_its_source(bench, tmp_path):
    tokenizer = import_module("hub_checkpoints").text_tokenizer()
    torch.manual_seed(0)
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    encoder = BertModel(BertConfig(vocab_size=len(tokenizer), initializer_range=0.5, **size), add_pooling_layer=False)
    for name in ("source", "linear"):
        encoder.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
        encoder = encoder if name == "linear" else linearize(encoder, exact_length=8, window=2, positions="cyclic")
    rows = [list(range(5, 45)), list(range(9, 20))]
    source = bench.load_encoder(str(tmp_path / "source"))(rows)
    torch.testing.assert_close(bench.load_encoder(str(tmp_path / "linear"), "sdpa")(rows), source)
    assert (bench.load_encoder(str(tmp_path / "linear"))(rows) - source).abs().max() > 1e-3


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
    assert len(rows) == 2 * len(of_method) == 2 * 9
    assert all(0 <= row["ndcg"] <= 1 and row["seconds"] > 0 and row["candidates"] == 3 for row in rows)
    assert of_method["first 4096"]["ndcg"] == of_method["whole"]["ndcg"]
    assert of_method["first 4096"]["seconds"] == of_method["whole"]["seconds"]  # nothing was cut off
    page = (tmp_path / "out" / "retrieval.md").read_text(encoding="utf-8")
    assert "| LION, first 512 |" in page and "| nDCG@10 |" in page and "| 2,048–4,096 tokens (1) |" in page


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*bfloat16.*")  # a CPU without products in it says so
def test_retrieval_of_encoders_that_are_trained_for_it(retrieve, bench, tmp_path):
    rows = retrieve("LION trained on pieces", "LION trained on whole documents")
    assert {row["method"] for row in rows} == {"256, mean", "256, best", "256, best three", "first 256", "whole"}
    pairs = {}
    for name, tokens in (("pieces", bench.PIECE), ("whole-documents", bench.TRAINING_TOKENS)):
        (folder,) = (tmp_path / "trained").glob(f"LION-trained-on-{name}-{rows[0]['weights']}")
        lines = Path(f"{folder}-pairs.jsonl").read_text(encoding="utf-8").splitlines()
        pairs[name] = [json.loads(line) for line in lines]
        assert SentenceTransformer(str(folder)).max_seq_length == tokens
        assert bench.weights_hash(folder) != rows[0]["weights"] == bench.weights_hash(tmp_path / "model")
    assert len(pairs["pieces"]) == len(pairs["whole-documents"]) > 2 * bench.TRAINING_EPOCHS
    for piece, whole in zip(*pairs.values(), strict=True):
        assert piece["anchor"] == whole["anchor"] and len(piece["positive"]) < len(whole["positive"])
