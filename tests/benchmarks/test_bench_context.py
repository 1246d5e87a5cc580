# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Queries that need the text around a passage: labels follow from structure, and rows from what was read."""

import json
from importlib import import_module
from pathlib import Path
from textwrap import dedent

import pytest
import torch
from datasets import Dataset
from hub_checkpoints import text_checkpoint
from measure import read_rows
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from transformers import AutoTokenizer


FILLER = "Lions sleep in shade all day while owls wait quietly near water. " * 9
# A passage of its own each: they are longer than a passage has to be.
POOLS = f"Connection pools keep sockets open. {FILLER}"
IT = f"It raises unless a certificate is trusted, and the certificate is renewed. {FILLER}"
OTHER = f"Wolves hunt far away from any villages. {FILLER}"


@pytest.fixture
def sections():
    return import_module("tasks.sections")


def guide(*parts: tuple[str, list[str]]) -> str:
    """A guide in Markdown of headings and paragraphs."""
    return "# Manual\n\n" + "\n\n".join(f"## {heading}\n\n" + "\n\n".join(paragraphs) for heading, paragraphs in parts)


def queries(sections, *texts: str) -> list[tuple[str, str]]:
    """The query and the passage of each label in some guides, and three that only make the word frequent enough."""
    more = [guide((f"Animal {n}", [f"A certificate is for {x}. {FILLER}"])) for n, x in enumerate(("bears", "otters"))]
    documents = [sections.cut_at_headings(f"d{n}", x, is_rst=False) for n, x in enumerate((*texts, *more))]
    kept, found = sections.take_section_queries(documents, 9, 9)
    all_passages = [passage for x in kept for passage in x.split.passages]
    return [(x.query.text, all_passages[x.query.passage]) for x in found]


def test_the_label_is_the_passage_that_only_the_text_in_front_explains(sections):
    text = guide(("Connection pools", [POOLS, IT]), ("Wolves", [OTHER]))
    assert queries(sections, text) == [("Connection pools: certificate", IT.strip())]


@pytest.mark.parametrize(
    "parts",
    [
        [("Connection pools", [IT, POOLS])],  # nothing in front
        [("Connection pools", [POOLS, f"Pools do it. {IT}"])],  # names a part of the subject itself
        [("Connection pools", [OTHER, IT])],  # the text in front does not name it
        [("Connection pools", [POOLS, IT, f"No certificate here. {FILLER}"])],  # two have the word
        [
            ("Connection pools", [POOLS, IT]),
            ("Else", [f"Connection pools and a certificate. {FILLER}"]),
        ],  # a better one
        [("Connection pools", [POOLS, IT]), ("Connection pools", [POOLS])],  # two sections
        [("Manual", [f"This manual says more. {POOLS}", IT])],  # the name of the document is no subject
        [("Connection pools", [POOLS, "It() + [0] * certificate; " * 30])],  # no prose
    ],
    ids=["first", "named", "unnamed", "twice", "better", "sections", "title", "code"],
)
def test_there_is_no_label_without_its_structure(sections, parts):
    assert not any(text.startswith(("Connection pools:", "Manual:")) for text, _ in queries(sections, guide(*parts)))


def test_distance_is_the_text_between_subject_and_passage(sections):
    document = sections.cut_at_headings("d", guide(("Connection pools", [POOLS, OTHER, IT])), is_rst=False)
    counts = [sections.Counter(sections.stems(x)) for x in document.split.passages]
    assert sections.named_by({"conne", "pools"}, counts[:2]) == 0
    assert sections.named_by({"conne", "water"}, counts[:2]) == 0 and sections.named_by({"water"}, counts[:2]) == 1
    assert sections.named_by({"certi"}, counts[:2]) is None
    more = [sections.cut_at_headings(f"m{n}", guide((f"A{n}", [f"A certificate. {FILLER}"])), False) for n in range(2)]
    _, (found,) = sections.take_section_queries([document, *more], 9, 9)
    assert found.distance == len(OTHER.strip()) and found.query.passage == 2


def test_headings_in_restructured_text_are_cut_out(sections):
    text = """
        =====
        Title
        =====

        Intro `text <there>`_.

        Part one
        --------

        Body :py:func:`~a.f`.

        .. _target:

        Part two
        --------

        .. note:: Keep this.

        Below
        '''''

        Deep text.
    """
    document = sections.cut_at_headings("p", dedent(text), is_rst=True)
    assert document.split.name == "p: Title"
    assert document.split.passages == ["Intro text.", "Body a.f.", "Keep this.", "Deep text."]
    assert document.headings == ["Title", "Title > Part one", "Title > Part two", "Title > Part two > Below"]


@pytest.fixture
def bench(tmp_path, monkeypatch, sections):
    """With a small encoder and two guides."""
    module = import_module("bench_context")
    transformer = Transformer(str(text_checkpoint(tmp_path / "model", "LionModel", pooling="mean")))
    modules = [transformer, Pooling(32, pooling_mode="mean"), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(tmp_path / "lion-minilm-l6"))
    monkeypatch.setattr(import_module("bench_passages"), "CHECKPOINTS", tmp_path)
    text = guide(("Connection pools", [POOLS, OTHER, IT]), ("Wolves", [OTHER]))
    near = guide(
        ("Window panes", [f"Window panes are glass. {FILLER}", f"It has a certificate, a certificate. {FILLER}"])
    )
    texts = [text, near, guide(("Bears", [f"A certificate. {FILLER}"]))]
    found = [sections.cut_at_headings(f"d{n}", x, is_rst=False) for n, x in enumerate(texts)]
    monkeypatch.setattr(module, "guides", lambda folder, packages: iter(found))
    monkeypatch.setattr(module, "DTYPE", torch.float32)
    readings = [module.NAMED_PIECES, "pieces with headings", module.BEFORE, module.ONE_PASS_NAMED]
    monkeypatch.setattr(module, "ENCODERS", {module.LION: readings})
    return module


def run(bench, tmp_path, *args: str, table: str = "context") -> list[dict]:
    arguments = ["--teacher", str(tmp_path / "lion-minilm-l6"), "--output_dir", str(tmp_path / "out")]
    bench.main([*arguments, "--encoders", bench.LION, *args])
    return read_rows(tmp_path / "out" / f"{table}.csv")


def test_it_measures_once_and_by_distance(bench, tmp_path, capsys):
    rows = run(bench, tmp_path)
    assert str(run(bench, tmp_path)) == str(rows)  # it finds everything done; errors of one document are NaN
    assert {row["reading"] for row in rows} == set(bench.ENCODERS[bench.LION])
    of_first = [row for row in rows if row["reading"] == bench.NAMED_PIECES]
    assert [row["queries"] for row in of_first] == [2, 1, 1]  # all, without text between, and with some
    assert all(row["time_of_named_pieces"] > 0 for row in rows)
    ranks = torch.tensor([int(x) for x in of_first[0]["ranks_with_names"].split()])
    assert of_first[0]["with_names"] == pytest.approx(bench.ndcg_of_ranks(ranks).mean().item(), rel=1e-6)
    page = (tmp_path / "out" / "retrieval.md").read_text(encoding="utf-8")
    row = next(row for row in rows if row["reading"] == bench.BEFORE)
    assert f"| lion-minilm-l6, {bench.BEFORE} | {row['with_names']:.3f} ± {row['with_names_error']:.3f} |" in page
    run(bench, tmp_path, "--show", "2")
    assert "Connection pools: certificate\n    d0: Manual > Manual > Connection pools" in capsys.readouterr().out


def test_the_training_file_has_documents_with_their_queries(bench, tmp_path, capsys):
    """Those with queries first; the third guide has none, since nothing stands in front of its passage."""
    bench.main(["--training_file", str(tmp_path / "sections.jsonl")])
    assert "3 documents, 2 of them with 3 queries" in capsys.readouterr().out
    pools, panes, bears = bench.passages.read_documents(tmp_path / "sections.jsonl")
    assert [(n, text.startswith("Connection pools: ")) for n, text in pools.queries] == [(1, True), (2, True)]
    assert pools.passages[1:3] == [OTHER.strip(), IT.strip()] and pools.queries[1][1].split()[-1] in IT
    assert panes.queries == [(1, "Window panes: certificate")] and not bears.queries


def test_training_queries_need_not_be_the_only_ones_of_the_corpus(sections):
    parts = [("Connection pools", [POOLS, f"Its pools need a certificate, a certificate. {FILLER}"])]
    texts = [guide(*parts, ("Connection pools", [OTHER])), guide(("Bears", [f"A certificate. {FILLER}"]))]
    documents = [sections.cut_at_headings(f"d{n}", x, is_rst=False) for n, x in enumerate(texts)]
    assert sections.take_section_queries(documents, 9, 9)[1] == []
    _, (found,) = sections.take_section_queries(documents, 9, 9, is_strict=False)
    assert found.query.passage == 1 and found.query.text.startswith("Connection pools: ")


def test_differences_are_of_the_same_queries():
    """Two clusters of two queries each: the error is that of the means of the clusters."""
    context = import_module("reports.context")
    row = {"ranks_x": "1 1 11 11", "owners": "0 0 5 5"}
    reference = {"ranks_x": "11 1 11 11", "owners": "0 0 5 5"}
    assert context.difference(row, reference, "x") == "+0.250 ± 0.250"
    assert context.difference(reference, row, "x") == "−0.250 ± 0.250"
    assert context.difference(row, reference | {"owners": "1 0"}, "x") == ""  # of other queries


def test_the_passage_before_is_read_and_does_not_count(bench, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "lion-minilm-l6")
    tokens = lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]
    long = "a lion roars " * 400
    documents = [bench.SplitDocument("name", ["an owl", "a wolf"]), bench.SplitDocument("other", [long, "a bear"])]
    rows = bench.read_with_passage_before(tokenizer, bench.Texts("x", documents, [], [], torch.zeros(0)))
    spans = [row.input_ids[slice(*row.spans[0][:2])] for row in rows]
    assert spans[1] == tokens("a wolf") and spans[3] == tokens("a bear")
    assert [row.spans[0][2] for row in rows] == [0, 1, 2, 3]
    assert all(len(row.input_ids) <= bench.LONGEST_PIECE for row in rows)
    assert rows[1].input_ids[: rows[1].spans[0][0]][1:] == tokens("name: an owl")


def write_set(folder: Path, ending: str, answers: list, column: str = "og_query") -> None:
    """A set of ConTEB's layout, with chunks out of order."""
    chunks = [{"chunk_id": f"rome_{n}", "chunk": f"part {n} of rome"} for n in (10, 2, 1)]
    chunks += [{"chunk_id": "new_york_0", "chunk": "a city in the north"}]
    asked = [{column: f"which {n}", "chunk_id": answer} for n, answer in enumerate(answers)]
    for part, rows in (("documents", chunks), ("queries", asked)):
        (folder / part).mkdir(parents=True)
        if ending == "parquet":
            Dataset.from_list(rows).to_parquet(folder / part / "test-00000-of-00001.parquet")
        else:
            (folder / part / "test.jsonl").write_text("\n".join(map(json.dumps, rows)))


@pytest.fixture
def conteb(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    return import_module("tasks.conteb")


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_sets_of_conteb_are_read(conteb, tmp_path, ending):
    write_set(tmp_path / "set", ending, ["rome_10", "new_york_0"])
    documents, queries = conteb.read_set(tmp_path / "set")
    assert [x.passages for x in documents] == [[f"part {n} of rome" for n in (1, 2, 10)], ["a city in the north"]]
    assert [(x.text, x.passage) for x in queries] == [("which 0", 2), ("which 1", 3)]


def test_other_layouts_are_refused(conteb, tmp_path):
    with pytest.raises(FileNotFoundError, match="documents"):
        conteb.read_set(tmp_path)
    for number, (answers, column, message) in enumerate(
        [
            (["rome_3"], "query", "'rome_3'"),
            (["rome"], "query", "DOCUMENT_NUMBER"),
            ([["rome_1", "rome_2"]], "query", "one chunk"),
            (["rome_1"], "text", "og_query or query or question"),
        ]
    ):
        write_set(tmp_path / str(number), "jsonl", answers, column)
        with pytest.raises(ValueError, match=message):
            conteb.read_set(tmp_path / str(number))


def test_sets_of_conteb_are_measured(bench, conteb, tmp_path):
    write_set(tmp_path / "sets" / "cities", "jsonl", ["rome_1", "new_york_0"])
    rows = run(bench, tmp_path, "--data", str(tmp_path / "sets"), table="conteb")
    assert run(bench, tmp_path, "--data", str(tmp_path / "sets"), table="conteb") == rows
    assert [(row["set"], row["reading"], row["queries"], row["candidates"]) for row in rows] == [
        ("cities", "one pass", 2, 4)
    ]
    page = (tmp_path / "out" / "retrieval.md").read_text(encoding="utf-8")
    score = f"{100 * rows[0]['without_names']:.1f}"
    assert f"| lion-minilm-l6, one pass | {score} | {score} |" in page
    with pytest.raises(FileNotFoundError, match="no folders"):
        run(bench, tmp_path, "--data", str(tmp_path / "nothing"))
