# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What the panels of `lion app` answer is what the model computes, and what goes wrong is a sentence."""

import os
import re
from importlib.util import find_spec

import gradio
import pytest
import torch
from apps import built_app
from deploy_lion.app import page as app
from deploy_lion.app import panels as app_panels
from deploy_lion.app.figures import mask_figure, reach_figure, similarity_figure, time_figure
from deploy_lion.app.panels import load_served
from deploy_lion.cli import main
from hub_checkpoints import image_checkpoint, linear_checkpoint, text_checkpoint
from PIL import Image
from retrieval_lion import encoders
from retrieval_lion.search import index
from sentence_checkpoints import sentence_checkpoint
from torch.testing import assert_close


TEXT, OTHER = "The lion sleeps in the shade.", "It hunts at dawn."
LABELS = {"id2label": {0: "bad", 1: "good", 2: "neither"}}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Small checkpoints, made when first asked for."""
    made = {}
    folder = tmp_path_factory.mktemp("app")

    makers = {
        "masked": lambda path: text_checkpoint(path, head_directions="alternate"),
        "table": lambda path: text_checkpoint(path, position_embedding_type="absolute"),
        "classifier": lambda path: text_checkpoint(path, "LionForSequenceClassification", **LABELS),
        "image": image_checkpoint,
        "encoder": lambda path: sentence_checkpoint(path, text_checkpoint(folder / "plain", "LionModel")),
        "luna": lambda path: text_checkpoint(path, mixer_type="luna"),
        "hybrid": lambda path: text_checkpoint(path, layer_types=["full_attention", "linear_attention"]),
        "linear": linear_checkpoint,
        "full": lambda path: text_checkpoint(path, layer_types=["full_attention", "full_attention"]),
    }

    def find(name):
        if name not in made:
            made[name] = makers[name](folder / name)
        return made[name]

    return find


@pytest.fixture
def served(folders):
    return lambda name: load_served(folders(name))


def tokens(served, *texts):
    return served.preprocessor(*texts, return_tensors="pt")


def test_facts_say_what_the_attention_is(served):
    assert "LION-S is linear attention with a decay" in app_panels.facts(served("hybrid"))
    assert "where an input has more than 24 tokens" in app_panels.facts(served("linear"))
    assert "Luna in the backbone of LION is attention through a memory" in app_panels.facts(served("luna"))
    assert "Softmax attention in the backbone of LION is attention as in BERT" in app_panels.facts(served("full"))


@torch.no_grad()
def test_words_for_masks_are_those_of_the_model(served):
    masked = served("masked")
    text = "The [MASK] sleeps in the [MASK]."
    found = app_panels.fill_mask(masked, f"  {text} ", top=3)
    inputs = tokens(masked, text)
    logits = masked.model(**inputs).logits[0, inputs["input_ids"][0] == masked.preprocessor.mask_token_id]
    scores, ids = logits.softmax(-1).topk(3)
    assert [x.mask for x in found] == [1, 1, 1, 2, 2, 2]
    assert [x.word for x in found] == masked.preprocessor.convert_ids_to_tokens(ids.flatten().tolist())
    assert_close(torch.tensor([x.score for x in found]), scores.flatten())
    assert len(app_panels.fill_mask(masked, "A [MASK].")) == 5  # the pipeline answers this in another shape


@torch.no_grad()
def test_classes_are_those_of_the_model(served):
    classifier, image = served("classifier"), served("image")
    for pair in ((TEXT,), (TEXT, OTHER)):
        found = app_panels.classify_text(classifier, *pair)
        expected = classifier.model(**tokens(classifier, *pair)).logits[0].softmax(-1)
        assert_close(torch.tensor([found[name] for name in LABELS["id2label"].values()]), expected)
    picture = Image.linear_gradient("L").convert("RGB")
    found = app_panels.classify_image(image, picture)
    expected = image.model(**image.preprocessor(picture, return_tensors="pt")).logits[0].softmax(-1)
    assert_close(torch.tensor([found[name] for name in ("cat", "lion", "zebra")]), expected)


@torch.no_grad()
def test_texts_are_compared_by_the_encoder(served):
    encoder = served("encoder")
    texts, cosines = app_panels.compare_texts(encoder, f"{TEXT}\n\n {OTHER}\n{TEXT}")
    assert texts == [TEXT, OTHER, TEXT]
    vectors = [encoder.model(**tokens(encoder, text)).last_hidden_state[0].mean(0) for text in texts]
    expected = torch.nn.functional.normalize(torch.stack(vectors), dim=1)
    assert_close(cosines, expected @ expected.T, rtol=1e-4, atol=1e-5)
    assert cosines[0, 2] > cosines[0, 1] and len(similarity_figure(texts, cosines).axes[0].texts) == 9


def test_the_passage_is_found_in_files_that_are_read_once(served, tmp_path, monkeypatch):
    encoder, find = served("encoder"), app_panels.search_texts
    texts = [f"{TEXT} {'A lion roars at night. ' * 25}".strip(), f"{OTHER} {'With its pride. ' * 36}".strip()]
    (tmp_path / "lions.md").write_text(f"# Lions\n\n{texts[0]}\n\n{texts[1]}")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "lions.md").write_text("Of the same name.")
    (tmp_path / "picture.png").write_bytes(b"\x00\x01")
    (tmp_path / "empty.txt").write_text("")
    files = [str(tmp_path / name) for name in ("lions.md", "empty.txt", "picture.png", "other/lions.md")]
    read = []
    encode_documents = encoders.SentenceEncoder.encode_documents
    monkeypatch.setattr(
        encoders.SentenceEncoder,
        "encode_documents",
        lambda self, documents: read.extend(x.name for x in documents) or encode_documents(self, documents),
    )
    monkeypatch.setattr(index, "BATCH", 2)
    first, last = find(encoder, "Lions: " + texts[1], "A zebra.", files)
    assert (first.share, last.share) == (0.5, 1) and len(first.answers) == 2
    assert sorted(read) == ["Lions", "Lions", "lions", "pasted text"]
    no_text, not_read = last.left_out
    assert no_text == "picture.png is no text: give text files, such as .txt, .md or .py."
    assert re.fullmatch(r"\d+ tokens of \d texts? were not read: .*", not_read)
    best, *others = last.answers
    assert best[1:4] == ("Lions", "lions.md:5", texts[1]) and best.score > 0.999
    assert {x[1:3] for x in others} == {
        ("Lions", "lions.md:1"),
        ("lions", "lions.md:1"),
        ("pasted text", "pasted text:1"),
    }
    assert [x.score for x in last.answers] == sorted((x.score for x in last.answers), reverse=True)
    (_,) = find(encoder, "zebra", "A zebra.", files)
    assert len(read) == 4
    stopped = find(encoder, "zebra", "\n\n".join(f"{x} {'b' * 600}" for x in ("A zebra.", "One.", "Two.")), None)
    next(stopped)
    stopped.close()
    assert len(encoder.index.vectors) == 2  # what was read stays
    (_,) = find(encoder, "zebra", "Another.", None)
    assert len(encoder.index.vectors) == 1


def test_heads_read_what_their_masks_leave(served):
    masked = served("masked")
    found = app_panels.heads_of_text(masked, TEXT, 2, "decay masks")
    inputs = tokens(masked, TEXT)
    length = inputs["input_ids"].shape[1]
    report = masked.model.attention_report(list(range(length)), **inputs)[1]
    assert_close(found.rows, report.mask[0])
    assert found.words[0] == "[CLS]" and found.readers == list(range(length))
    assert [(x.layer, x.head) for x in found.heads] == [(layer, head) for layer in (1, 2) for head in (1, 2, 3, 4)]
    assert_close(torch.tensor([x.tokens for x in found.heads[4:]]), report.mask[0].sum(-1).median(-1).values)
    for head in found.heads[4:]:
        is_closed = torch.triu if head.reads == "what precedes" else torch.tril
        assert not is_closed(found.rows[head.head - 1], 1 if is_closed is torch.triu else -1).any()
    assert [x.reads for x in found.heads[:2]] == ["what precedes", "what follows"]
    figure = mask_figure(found, 2)
    assert [x.get_title() for x in figure.axes[:2]] == ["head 1, what precedes", "head 2, what follows"]
    assert len(reach_figure(found.heads).axes[0].texts) == 8
    figure.draw_without_rendering()


def test_heads_of_a_long_text_and_of_an_image(served):
    found = app_panels.heads_of_text(served("masked"), "lion " * 300, 1, "decay masks")
    assert found.rows.shape == (4, app_panels.MOST_ROWS, 302) and found.readers[-1] == 301
    mask_figure(found, 1).draw_without_rendering()
    image = served("image")
    picture = Image.linear_gradient("L").convert("RGB")
    found = app_panels.heads_of_image(image, picture, 1, "attention weights", 2, 4)
    (report, _) = image.model.attention_report([1 + 4 + 3], **image.preprocessor(picture, return_tensors="pt"))
    assert_close(found.rows.flatten(1), report.attention[0, :, 0, 1:])
    assert found.rows.shape == (4, 3, 4)
    mask_figure(found, 1).draw_without_rendering()
    assert app_panels.linear_layers(served("hybrid")) == [2]
    assert {x.layer for x in app_panels.heads_of_text(served("hybrid"), TEXT, 2, "decay masks").heads} == {2}


def test_times_come_length_by_length(served):
    times = list(app_panels.time_by_length(served("masked"), 16, lengths=(8, 16, 32)))
    assert [time.length for time in times] == [8, 16] and all(time.lion > 0 and time.softmax > 0 for time in times)
    assert [time.length for time in app_panels.time_by_length(served("table"), 8192)] == [128]
    linear = list(app_panels.time_by_length(served("linear"), 64, lengths=(16, 64)))  # the peer is what it was
    assert [time.length for time in linear] == [16, 64]
    peer = app_panels.softmax_peer(served("linear"), 64)
    assert peer.config._attn_implementation == "sdpa" and served("linear").model.config._attn_implementation == "lion"
    assert len(time_figure(times, "lion", "BERT").axes[0].lines) == 2


@pytest.mark.parametrize(
    ("name", "titles", "reason"),
    [
        ("masked", ["Fill a mask", "What heads read", "Time by length"], "was not saved by sentence-transformers"),
        ("classifier", ["Classify", "What heads read", "Time by length"], "needs a LionForMaskedLM"),
        ("image", ["Classify", "What heads read"], "reads images"),
        ("encoder", ["Compare texts", "Search", "What heads read", "Time by length"], "is a LionModel"),
        ("luna", ["Fill a mask", "Time by length"], "is 'luna'"),
        ("linear", ["Fill a mask", "Time by length"], "shows the layers of a LionModel, and linear is a LionBertFor"),
    ],
)
def test_a_model_has_the_panels_that_it_can_serve(folders, name, titles, reason):
    page = built_app(folders(name))
    blocks = page.config["components"]
    assert [block["props"]["label"] for block in blocks if block["type"] == "tabitem"] == titles
    (missing,) = [block["props"]["value"] for block in blocks if block["props"].get("elem_id") == "missing"]
    assert reason in missing and all(f"**{title}**" in missing for title in app.PANELS.keys() - set(titles))
    assert not page.analytics_enabled and os.environ["GRADIO_ANALYTICS_ENABLED"] == "False"


LONG = "lion " * 200


@pytest.mark.parametrize(
    ("name", "function", "given", "message"),
    [
        ("masked", "fill_mask", [TEXT], r"There is no \[MASK\] in the text"),
        ("masked", "fill_mask", [" \n"], "There is no text in “Text”: write some"),
        ("table", "fill_mask", [f"[MASK] {LONG}"], "The text has 203 tokens, and table reads up to 128"),
        ("table", "time_by_length", [64], "reads up to 64 tokens, which is too short"),
        ("classifier", "classify_text", [None], "There is no text"),
        ("image", "classify_image", [None], "There is no image"),
        (
            "image",
            "heads_of_image",
            [Image.new("RGB", (9, 9)), 1, "decay masks", 4, 1],
            "no patch in row 4 and column 1",
        ),
        (
            "masked",
            "heads_of_text",
            ["lion " * 5000, 1, "decay masks"],
            "The text has 5,002 tokens, and heads of up to 4,096",
        ),
        ("encoder", "compare_texts", [TEXT], "There are 1 texts, one a line: give 2 to 20"),
        ("encoder", "search_texts", ["", TEXT, None], "no text in “Query”"),
        ("encoder", "search_texts", ["lion", " ", []], "There is nothing to search"),
        ("encoder", "search_texts", ["lion", "x" * 10_000_001, None], "have 10,000,001 characters"),
        ("encoder", "search_texts", ["lion", None, ["picture.png"]], "picture.png is no text: give"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(served, tmp_path, monkeypatch, name, function, given, message):
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (9, 9)).save("picture.png")
    with pytest.raises(ValueError, match=message):
        tuple(getattr(app_panels, function)(served(name), *given))


def test_pages_show_no_traceback(caplog):
    def refuse(text):
        raise ValueError(f"“{text}” is nothing.")

    def fail(text):
        yield text
        raise KeyError(text)

    with pytest.raises(gradio.Error) as shown:
        next(app.page(refuse)("<b>"))
    assert shown.value.message == "“&lt;b&gt;” is nothing." and not shown.value.print_exception
    answers = app.page(fail)("roar")
    assert next(answers) == "roar"
    with pytest.raises(gradio.Error, match="This failed .KeyError.: the terminal"):
        next(answers)
    assert "roar" in caplog.text  # for the owner of the terminal
    answers = [
        index.Answer(0.5, "A<B", "a<b.txt:1", "1 < 2", 0, 5),
        index.Answer(0.4, "pasted", "pasted:1", "2 < 3", 0, 5),
    ]
    found = app_panels.Found(0.5, answers, ["c<d is no text"])
    shown = app.found_html(found)
    assert "<" not in re.sub("</?(div|p|b)( class=.passage.)?>", "", shown)
    assert all(x in shown for x in ("Read 50%", "Left out: c&lt;d", "<b>0.50</b> A&lt;B · a&lt;b.txt:1", "1 &lt; 2"))
    assert "<b>0.40</b> pasted:1<p>" in shown


def test_what_is_missing_is_said(monkeypatch, tmp_path, capsys):
    assert main(["app", str(tmp_path)]) == 1
    assert "There is no checkpoint in" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("retrieval_lion.sources.__file__", str(tmp_path / "retrieval_lion" / "sources.py"))
    assert main(["app"]) == 1
    assert "give the MODEL to look at" in capsys.readouterr().err
    without = lambda name: None if name == "gradio" else find_spec(name)
    monkeypatch.setattr("deploy_lion.export.exported.find_spec", without)
    assert main(["app"]) == 1
    assert "gradio cannot be imported: in a clone of the repository, pip install '.[app]'" in capsys.readouterr().err
