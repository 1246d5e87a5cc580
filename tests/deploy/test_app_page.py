# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The page of `lion app` over HTTP: every panel answers, errors are sentences, and nothing is fetched from others."""

import asyncio
import re
import urllib.request
from pathlib import Path

import pytest
from deploy_lion.app.page import CHECKPOINT, build_app, launch_app
from deploy_lion.app.panels import fill_mask, load_served
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError
from hub_checkpoints import TEXTS, image_checkpoint, text_checkpoint
from PIL import Image


# Warnings about what Gradio asks pandas.
pytestmark = [
    pytest.mark.filterwarnings("ignore:'future.no_silent_downcasting' is deprecated"),
    pytest.mark.filterwarnings("ignore:The copy keyword is deprecated"),
]


@pytest.fixture
def look_at():
    """Serve a checkpoint; a client of its page."""
    served = []

    async def launch(folder: Path | None) -> str:  # Gradio leaves an event loop open unless there is one
        served.append(build_app(folder))
        return launch_app(served[0])

    def serve(folder: Path | None = None) -> Client:
        served.append(Client(asyncio.run(launch(folder)), verbose=False))
        return served[1]

    yield serve
    served[1].close()
    served[0].close(verbose=False)


def test_words_are_filled_in_and_errors_are_sentences(look_at, tmp_path):
    folder = text_checkpoint(tmp_path / "lion-tiny", head_directions="alternate")
    page, text = look_at(folder), "The lion [MASK] in the shade."
    found = page.predict(text, api_name="/fill")["data"]
    assert found == [[x.mask, x.word, f"{x.score:.3f}"] for x in fill_mask(load_served(folder), text)]
    with pytest.raises(AppError, match=r"There is no \[MASK\] in the text: write it where a word is missing\.$"):
        page.predict("The lion sleeps.", api_name="/fill")
    for picture in page.predict(TEXTS[0], 1, "decay masks", api_name="/look"):
        assert picture["type"] == "matplotlib" and len(picture["plot"]) > 5_000
    html = urllib.request.urlopen(page.src).read().decode()
    assert not re.search(r"""(src|href)=["'](https?:)?//(?!127\.0\.0\.1)[^"']*\.(js|css|woff2?)""", html)
    assert "fonts.g" not in urllib.request.urlopen(f"{page.src}theme.css").read().decode()


def test_an_image_is_classified(look_at, tmp_path):
    page = look_at(image_checkpoint(tmp_path / "lion-image"))
    Image.linear_gradient("L").save(tmp_path / "grey.png")
    picture = handle_file(str(tmp_path / "grey.png"))
    found = page.predict(picture, api_name="/classify")["confidences"]
    assert {x["label"] for x in found} == {"cat", "lion", "zebra"} and sum(x["confidence"] for x in found) > 0.99
    with pytest.raises(AppError, match="There is no image"):
        page.predict(None, api_name="/classify")
    assert len(page.predict(picture, 1, "attention weights", 2, 2, api_name="/look")) == 2


@pytest.mark.slow
def test_the_sentence_encoder_compares_and_searches(look_at, tmp_path):
    """The checkpoint of the repository, which is the page's default."""
    assert CHECKPOINT.is_dir()
    (tmp_path / "rules.txt").write_text("The parrot may not be fed after midnight, whatever it says.")
    page = look_at()
    assert page.predict("A lion.\nA big cat.", api_name="/compare")["type"] == "matplotlib"
    pages = "A linear attention passes a state from token to token.\n\nBread is kept in a paper bag."
    *_, found = page.submit("how do models read?", pages, None, False, api_name="/search")
    assert re.search(r'^<div class="passage"><b>0\.\d\d</b> [^<]*<p>A linear attention passes a state', found)
    files = [handle_file(str(tmp_path / "rules.txt"))]
    *_, found = page.submit("when do birds get nothing to eat?", pages, files, True, api_name="/search")
    assert found.index("rules.txt:1") < found.index("parrot") < found.index("paper bag")
    *_, (picture, table) = page.submit(512, api_name="/measure")
    assert picture["type"] == "matplotlib" and [row[0] for row in table["data"]][-1] == "512"
