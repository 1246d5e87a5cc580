# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Training for passages: documents as people have them, queries that passages do not contain, and the losses."""

import gzip
import io
import json
import random
import shutil
import tarfile
import zipfile
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from hub_checkpoints import text_checkpoint
from safetensors.torch import load_file
from sentence_checkpoints import sentence_checkpoint
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel

from modeling_lion import encode_passages


ANIMALS = ["lion", "owl", "wolf", "bear", "crane", "otter", "lynx", "hare"]
SENTENCES = [
    "It sleeps in the shade of tall trees all day.",
    "It hunts at dawn, with its pride, in the grass.",
    "It roars at night, loudly, over the whole plain.",
]
FILLER = " It hunts and sleeps, and roars at dawn, in the shade with its pride, night by night by night, day by day."


@pytest.fixture
def documents():
    return import_module("documents")


@pytest.fixture
def passages():
    return import_module("training_lion.scripts.passages")


@pytest.fixture
def example():
    return import_module("train_passages")


@pytest.fixture
def start(tmp_path):
    """The folder of a small encoder."""
    checkpoint = text_checkpoint(tmp_path / "model", "LionModel", pooling="mean")
    return str(sentence_checkpoint(tmp_path / "encoder", checkpoint))


@pytest.fixture
def file(tmp_path):
    """Documents about animals, whose passages are told apart by the name and the sentence."""
    lines = [{"name": f"the {x}", "passages": [f"{sentence}{FILLER}" for sentence in SENTENCES]} for x in ANIMALS]
    path = tmp_path / "documents.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


# Documents


def write(path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


TEXT = "\n\n".join(f"Paragraph {n} of a text about lions, which roar at night and hunt at dawn." for n in range(40))


def test_documents_of_a_folder_have_names(documents, tmp_path, capsys):
    write(tmp_path / "notes" / "big_cats.md", f"# Lions & others\n\n{TEXT}")
    write(tmp_path / "notes" / "deep" / "sea-birds.txt", TEXT.replace("lions", "gulls"))
    write(tmp_path / "notes" / "guide.rst", "Wolves\n======\n\n" + TEXT.replace("lions", "wolves"))
    write(tmp_path / "notes" / "copy.txt", TEXT)  # most of its paragraphs are in another one
    write(tmp_path / "notes" / "short.txt", "Too short.")
    write(tmp_path / "notes" / "family history.md", TEXT.replace("lions", "families"))
    output = tmp_path / "out" / "documents.jsonl"
    assert documents.main(["--folder", str(tmp_path / "notes"), "--output_file", str(output)]) == 4
    found = {x["name"]: x["text"] for x in map(json.loads, output.read_text().splitlines())}
    assert set(found) == {"Lions & others", "sea birds", "Wolves", "family history"} and "====" not in found["Wolves"]
    said = capsys.readouterr().out.splitlines()[-1]
    assert said in ("Left out: 1 (too short), 1 (in another one).", "Left out: 1 (in another one), 1 (too short).")
    (tmp_path / "out" / "short.txt").write_text("Too short.")
    with pytest.raises(ValueError, match="No documents of this length"):
        documents.main(["--folder", str(tmp_path / "out"), "--output_file", str(output)])
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        documents.main(["--folder", "nowhere", "--output_file", str(output)])


def test_documents_of_a_package_are_modules(documents):
    found = {document.name: document.text for document in documents.documents_of_package("json")}
    assert "json.decoder" in found and "JSONDecoder.raw_decode: Decode a JSON document" in found["json.decoder"]


@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
def test_guides_of_source_distributions(documents, tmp_path, kind):
    files = {
        "pkg/docs/start.rst": TEXT,
        "pkg/README.md": TEXT,
        "pkg/docs/conf.py": "x = 1",
        "pkg/doc/deep/a.txt": TEXT,
    }
    archive = tmp_path / f"pkg-1.0.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(archive, "w") as writer:
            for name, text in files.items():
                writer.writestr(name, text)
    else:
        with tarfile.open(archive, "w:gz") as writer:
            for name, text in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(text)
                writer.addfile(member, io.BytesIO(text.encode()))
    documents.unpack(archive, tmp_path / "guides")
    found = sorted(str(x.relative_to(tmp_path / "guides")) for x in (tmp_path / "guides").rglob("*") if x.is_file())
    assert found == ["pkg/doc/deep/a.txt", "pkg/docs/start.rst"]


@pytest.mark.skipif(shutil.which("man") is None, reason="`man` is not installed")
def test_manual_pages(documents, tmp_path):
    (tmp_path / "man1").mkdir()
    page = '.TH LION 1 2026 "" ""\n.SH NAME\nlion \\- roar\n.SH DESCRIPTION\nIt roars at\nnight.\n'
    (tmp_path / "man1" / "lion.1.gz").write_bytes(gzip.compress(page.encode()))
    (tmp_path / "man1" / "cat.1.gz").write_bytes(gzip.compress(b".so man1/lion.1\n"))
    (found,) = documents.documents_of_manuals(tmp_path, 10)
    assert found.name == "lion(1)" and "It roars at night." in found.text


# Queries and rows


def test_queries_are_not_in_their_passages(passages, file):
    originals = passages.read_documents(file)
    documents, queries = passages.take_queries(originals, random.Random(0), 1.0, at_most=2)
    assert len(queries) == 2 * len(ANIMALS)
    texts = [passage for document in documents for passage in document.passages]
    owners = [document.name for document in documents for _ in document.passages]
    for query in queries:
        assert query.text in SENTENCES and query.text not in texts[query.passage]
        assert query.name == owners[query.passage] and query.words(True) == f"{query.name}: {query.text}"
    kept = [
        passages.first_sentence(x) for x in ("A lion. It roars.", "x = {1: 2, 3: 4, 5: [6, 7, 8], 9: 10}. " + FILLER)
    ]
    assert kept == [None, None]  # too short behind it; no words


def test_lines_end_where_json_says(passages, tmp_path):
    write(tmp_path / "documents.jsonl", '{"name": "a", "text": "b\u2028c"}\n\n{"name": "d", "passages": ["e", " "]}\n')
    found = passages.read_documents(tmp_path / "documents.jsonl")
    assert [(x.name, x.passages) for x in found] == [("a", ["b c"]), ("d", ["e"])]


def test_queries_of_ones_own(passages, tmp_path):
    """Numbers count all passages of the line, empty ones, too; a part of a document keeps the queries of its own."""
    line = {"name": "owls", "passages": [" ", "They  hunt.", FILLER, "They sleep."]}
    line["queries"] = [{"passage": 3, "text": "when do they  sleep"}, {"passage": 1, "text": "prey"}]
    write(tmp_path / "documents.jsonl", "\n".join(json.dumps(x) for x in ({"name": "a", "text": "b"}, line)))
    found = passages.read_documents(tmp_path / "documents.jsonl")
    assert found[1] == passages.SplitDocument(
        "owls", ["They hunt.", FILLER.strip(), "They sleep."], [(2, "when do they sleep"), (0, "prey")]
    )
    kept, queries = passages.take_queries(found, random.Random(0), 1.0)
    assert kept == found
    assert queries == [passages.Query("when do they sleep", "owls", 3), passages.Query("prey", "owls", 1)]
    assert len(passages.take_queries(found, random.Random(0), 0.0, at_most=1)[1]) == 1
    part = found[1].part(1, 3)
    assert part == passages.SplitDocument("owls", [FILLER.strip(), "They sleep."], [(1, "when do they sleep")])


@pytest.mark.parametrize(
    "line",
    [
        *('{"name": "a"}', "[1]", "no json", '{"text": "a"}', '{"name": "a", "passages": "b"}'),
        '{"name": "a", "text": "b", "queries": [{"passage": 0, "text": "c"}]}',
        *(
            f'{{"name": "a", "passages": ["b", " "], "queries": [{query}]}}'
            for query in ('"c"', '{"text": "c"}', '{"passage": 0, "text": " "}', '{"passage": 1, "text": "c"}')
        ),
    ],
)
def test_damaged_documents(passages, tmp_path, line):
    write(tmp_path / "documents.jsonl", '{"name": "a", "text": "b"}\n' + line)
    with pytest.raises(ValueError, match="documents.jsonl, line 2: give"):
        passages.read_documents(tmp_path / "documents.jsonl")


@pytest.mark.parametrize("reading", ["pieces", "pieces with names", "one pass", "one pass with names"])
def test_rows_are_what_users_encode(passages, start, file, reading):
    """The vectors that are trained and scored are those of `encode` and of `encode_passages`."""
    documents = passages.read_documents(file)[:3]
    model, tokenizer = AutoModel.from_pretrained(start).eval(), AutoTokenizer.from_pretrained(start)
    rows = passages.make_rows(tokenizer, documents, reading, 512)
    actual = passages.encode_rows(model, rows, tokenizer.pad_token_id).numpy()
    is_whole, is_named = passages.READINGS[reading]
    served = SentenceTransformer(start, device="cpu").eval()
    if not is_whole:
        texts = [f"{x.name}: {passage}" if is_named else passage for x in documents for passage in x.passages]
        np.testing.assert_allclose(actual, served.encode(texts), atol=5e-6, rtol=0)
        return
    fronts = ["" if is_named else f"{x.name}: " for x in documents]
    texts = [front + " ".join(x.passages) for front, x in zip(fronts, documents, strict=True)]
    spans = [
        [(text.index(passage), text.index(passage) + len(passage)) for passage in x.passages]
        for text, x in zip(texts, documents, strict=True)
    ]
    names = [x.name for x in documents] if is_named else None
    expected = encode_passages(served, texts, spans, names=names)
    np.testing.assert_allclose(actual[: len(expected)], expected.vectors, atol=5e-6, rtol=0)
    np.testing.assert_allclose(actual[len(expected) :], expected.document_vectors, atol=5e-6, rtol=0)


@pytest.mark.parametrize("reading", ["pieces", "pieces with names"])
def test_pieces_fit_encoders_with_512_positions(passages, start, reading):
    tokenizer = AutoTokenizer.from_pretrained(start)
    (row,) = passages.make_rows(tokenizer, [passages.SplitDocument("owls", ["It hunts. " * 400])], reading, 6144)
    assert len(row.input_ids) == row.spans[0][1] == 512


def test_scores_are_ranks(passages):
    scores = torch.tensor([[0.9, 0.5, 0.1], [0.9, 0.5, 0.1], [0.2, 0.2, 0.2]])
    found = passages.ndcg(scores, torch.tensor([0, 1, 2]))
    torch.testing.assert_close(found, torch.tensor([1.0, 1 / np.log2(3), 0.5], dtype=torch.float64))
    assert passages.ndcg(torch.ones(1, 11), torch.tensor([0])) == 0


@pytest.mark.parametrize("reading", ["pieces", "one pass"])
def test_an_encoder_on_a_gpu_is_scored(passages, start, file, monkeypatch, reading):
    """Without a GPU: vectors have its device and no numbers."""
    documents, queries = passages.take_queries(passages.read_documents(file), random.Random(0), 1.0)
    vectors = lambda model, rows, *args: torch.empty(sum(len(row.spans) for row in rows), 32, device="cuda")
    monkeypatch.setattr(passages, "encode_rows", vectors)
    model, tokenizer = AutoModel.from_pretrained(start), AutoTokenizer.from_pretrained(start)
    with FakeTensorMode():
        found = passages.score_queries(model, tokenizer, documents, queries, reading)
    assert {(x.device.type, len(x)) for x in found.values()} == {("cpu", len(queries))}


# Training


@pytest.fixture
def train(example, start, file, tmp_path):
    """Train with these arguments besides; returns the metrics and the folder."""

    def run(name: str, *args: str) -> tuple[dict, str]:
        output = str(tmp_path / name)
        found = example.main(
            ["--model_name_or_path", start, "--train_file", file, "--validation_file", file, "--do_train"]
            + ["--do_eval", "--output_dir", output, "--learning_rate", "5e-3", "--per_device_train_batch_size", "4"]
            + ["--query_share", "1", "--use_cpu", "--report_to", "none", "--disable_tqdm", "True"]
            + ["--dataloader_pin_memory", "False", "--save_strategy", "no", *args]
        )
        return found, output

    return run


@pytest.mark.parametrize("reading", [pytest.param("pieces with names", marks=pytest.mark.slow), "one pass with names"])
def test_training_finds_passages(train, start, reading):
    """Sentences say which passage of a document, and names which document."""
    found, folder = train("after", "--reading", reading, "--max_steps", "40", "--teacher_name_or_path", start)
    assert found["eval_queries"] >= 8 and found["eval_candidates"] == 24
    assert found["eval_with_names"] > 0.3  # guessing: 0.19; tokenizers of equal texts differ
    served = SentenceTransformer(folder, device="cpu")
    assert isinstance(served[-1], Normalize) and served.encode("It roars").shape == (32,)


def test_documents_longer_than_a_table_of_positions_are_read_in_rows(train, start, file, tmp_path):
    line = json.loads(Path(file).read_text().splitlines()[0])
    Path(file).write_text(json.dumps(line | {"passages": 6 * line["passages"]}) + "\n")
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    tokenizer = AutoTokenizer.from_pretrained(start)
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=64, **sizes)
    BertModel(config).save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    encoder = str(sentence_checkpoint(tmp_path / "short", tmp_path / "bert"))
    args = ("--model_name_or_path", encoder, "--teacher_name_or_path", encoder, "--max_steps", "1")
    found, _ = train("out", *args)
    assert found["eval_candidates"] == 18


def test_few_tokens_in_memory_are_the_same_training(train, start):
    """A step of SGD, so that weights differ by as much as gradients do."""
    args = ("--reading", "one pass", "--max_steps", "1", "--optim", "sgd", "--learning_rate", "1")
    weights = lambda folder: AutoModel.from_pretrained(folder, add_pooling_layer=False).state_dict()
    whole, few = (weights(train(f"{n}", *args, "--mini_batch_tokens", str(n))[1]) for n in (10_000, 60))
    distance = lambda others: max((others[name] - weight).abs().max() for name, weight in whole.items())
    assert distance(few) <= 1e-3 * distance(weights(start))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # which peft reads
@pytest.mark.parametrize("more", [(), ("--lora_rank", "2")], ids=["all weights", "an adapter"])
def test_a_stopped_training_goes_on(train, more):
    args = ("--max_steps", "4", "--lr_scheduler_type", "constant", "--save_strategy", "steps", "--save_steps", "2")
    _, whole = train("whole", *args, *more)
    _, stopped = train("stopped", *args, *more)
    shutil.rmtree(f"{stopped}/checkpoint-4")
    (name,) = (path.name for path in Path(stopped).glob("*model.safetensors"))
    Path(stopped, name).unlink()
    train("stopped", *args, *more, "--resume_from_checkpoint")
    first, second = (load_file(Path(folder, name)) for folder in (whole, stopped))
    assert first and all(torch.equal(first[name], weight) for name, weight in second.items())


def test_what_is_missing_is_said(example, start, tmp_path):
    for args, message in (
        ([], "There is nothing to do"),
        (["--do_train"], "--do_train needs --train_file"),
        (["--do_eval"], "--do_eval needs --validation_file"),
    ):
        with pytest.raises(ValueError, match=message):
            example.main(["--model_name_or_path", start, "--output_dir", str(tmp_path / "out"), *args])


@pytest.mark.parametrize("option", ["--model_name_or_path", "--teacher_name_or_path"])
@pytest.mark.parametrize(
    ("pooling", "prompts", "message"),
    [
        ("cls", {}, "has the pooling cls: give an encoder whose `pooling_mode` is mean"),
        (("mean", "max"), {}, "has the pooling .*mean.*max"),
        ("mean", {"query": "Q: "}, "has prompts {'query': 'Q: '}, which this script does not put in front"),
    ],
)
def test_other_poolings_and_prompts_are_refused(train, tmp_path, option, pooling, prompts, message):
    modules = [Transformer(str(tmp_path / "model")), Pooling(32, pooling_mode=pooling)]
    folder = str(sentence_checkpoint(tmp_path / "other", *modules, prompts=prompts))
    with pytest.raises(ValueError, match=f"{option} .*other {message}"):
        train("out", "--max_steps", "1", option, folder)


def test_several_processes_are_refused(example, train, monkeypatch):
    monkeypatch.setattr(example.PassageTrainingArguments, "world_size", 2)
    with pytest.raises(ValueError, match="was started in 2 processes: start one"):
        train("out", "--max_steps", "1")
