# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The pages of `lion app` in a real browser, without a network: every panel is used, and an error is a sentence.

LION_SCREENSHOTS=docs/images makes the pictures of docs/guides/app.md.
"""

import asyncio
import io
import json
import os
import re
import shutil
from pathlib import Path

import pytest
import torch
from deploy_lion.app.page import CHECKPOINT, build_app, launch_app
from deploy_lion.app.panels import fill_mask, load_served
from hub_checkpoints import TEXTS, image_checkpoint, text_checkpoint
from hub_upload_lion.checkpoint import load_model, load_preprocessor
from PIL import Image
from selenium import webdriver
from selenium.common.exceptions import ElementClickInterceptedException, StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.utils import free_port
from selenium.webdriver.support.wait import WebDriverWait


CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None,
        reason="needs a browser: apt-get install --no-install-recommends chromium chromium-driver",
    ),
    # Warnings about what Gradio asks pandas.
    pytest.mark.filterwarnings("ignore:'future.no_silent_downcasting' is deprecated"),
    pytest.mark.filterwarnings("ignore:The copy keyword is deprecated"),
]
OPTIONS = """--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-quic --no-first-run --disable-sync
--disable-background-networking --disable-component-update --hide-scrollbars --window-size=1100,1000"""
SECONDS = 600  # at most, on a busy machine


class Browser:
    """A page of ours, as somebody uses it."""

    def __init__(self, folder: Path):
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for option in [*OPTIONS.split(), f"--user-data-dir={folder}"]:
            options.add_argument(option)
        options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
        self.driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))

    def open(self, address: str) -> None:
        self.driver.get(address)
        self.find("button[role=tab]")

    def wait(self, condition):
        waiting = WebDriverWait(
            self.driver, SECONDS, 0.1, [StaleElementReferenceException, ElementClickInterceptedException]
        )
        return waiting.until(lambda driver: condition())

    def find(self, css: str, text: str = ""):
        """The first element that is seen and has a text."""
        matches = lambda element: element.is_displayed() and text in element.text
        return self.wait(lambda: next(filter(matches, self.driver.find_elements(By.CSS_SELECTOR, css)), None))

    def click(self, css: str, text: str = "") -> None:
        """Again, where the page moved, or put something over it, since it was found."""
        self.wait(lambda: [self.find(css, text).click()])

    def tab(self, title: str) -> None:
        self.click("button[role=tab]", title)

    def write(self, css: str, text: str) -> None:
        box = self.find(css)
        box.clear()
        box.send_keys(text)

    def picture(self, css: str) -> tuple[int, int]:
        """Width and height of a picture that has arrived."""
        size = "return [arguments[0].naturalWidth, arguments[0].naturalHeight]"
        return self.wait(lambda: [x for x in [self.driver.execute_script(size, self.find(f"{css} img"))] if x[0]])[0]

    def error(self) -> str:
        """The sentence of an error, whose message is closed then."""
        toast = self.find(".toast-body.error")
        words = toast.text
        self.click(".toast-close")
        self.wait(lambda: not self.driver.find_elements(By.CSS_SELECTOR, ".toast-body.error"))
        return words

    def shoot(self, name: str) -> None:
        """A picture of the whole page for the docs, if it is wanted."""
        if folder := os.environ.get("LION_SCREENSHOTS"):
            height = self.driver.execute_script("return document.querySelector('gradio-app').scrollHeight")
            self.driver.set_window_size(1100, height + 160)
            self.driver.execute_script("window.scrollTo(0, 0); document.activeElement.blur()")
            self.driver.implicitly_wait(1)
            image = Image.open(io.BytesIO(self.driver.get_screenshot_as_png())).convert("RGB")
            image.quantize(96, dither=Image.Dither.NONE).save(Path(folder) / f"app_{name}.png", optimize=True)
            self.driver.set_window_size(1100, 1000)

    def strangers(self, address: str) -> list[str]:
        """What pages asked of others than their server."""
        events = (json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance"))
        asked = [x["params"]["request"]["url"] for x in events if x["method"] == "Network.requestWillBeSent"]
        assert any(url.startswith(address) for url in asked)
        return [url for url in asked if not url.startswith((address, "data:", "blob:", "chrome"))]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.driver.quit()


@pytest.fixture
def look_at(browser):
    """Serve a checkpoint, and open the page."""
    served = []

    async def launch(folder) -> None:  # Gradio leaves an event loop open unless there is one
        served.append(build_app(folder))
        served.append(launch_app(served[0], port=free_port()))

    def serve(folder) -> Browser:
        asyncio.run(launch(folder))
        browser.open(served[1])
        return browser

    yield serve
    try:
        assert browser.strangers(served[1]) == []
    finally:
        served[0].close(verbose=False)


def learn_by_heart(folder: Path) -> None:
    """Teach the masked language model in a folder its three sentences."""
    model, tokenizer = load_model(folder).train(), load_preprocessor("text", folder)
    batch = tokenizer(TEXTS[:3], return_tensors="pt", padding=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    is_word = batch["attention_mask"].bool() & (batch["input_ids"] > 4)
    for _ in range(150):
        is_masked = is_word & (torch.rand(is_word.shape) < 0.25)
        ids = batch["input_ids"].where(~is_masked, tokenizer.mask_token_id)
        labels = batch["input_ids"].where(is_masked, -100)
        model(input_ids=ids, attention_mask=batch["attention_mask"], labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)


def test_words_are_filled_in_and_errors_are_sentences(look_at, tmp_path):
    folder = text_checkpoint(tmp_path / "lion-tiny", head_directions="alternate")
    learn_by_heart(folder)
    page = look_at(folder)
    assert "Compare texts: lion-tiny was not saved by sentence-transformers" in page.find("#missing").text
    text = "The lion [MASK] in the shade."
    page.write("#masked textarea", text)
    page.click("#fill")
    # Until then, there are the seconds for which it computes.
    shown = page.wait(lambda: re.findall(r"1\s+(\S+)\s+0\.\d{3}", page.find("#filled").text))
    assert shown == [x.word for x in fill_mask(load_served(folder), text)]
    page.shoot("fill")
    page.write("#masked textarea", "The lion sleeps.")
    page.click("#fill")
    page.find(".toast-body.error")
    words = page.error()
    assert "There is no [MASK] in the text: write it where a word is missing." in words and "Traceback" not in words
    page.tab("What heads read")
    page.write("textarea", TEXTS[0])
    page.click("#look")
    assert min(page.picture("#masks")) > 200 and min(page.picture("#reach")) > 100
    assert "←" in page.find(".prose", "Heads read").text
    page.shoot("heads")


def test_an_image_is_classified(look_at, tmp_path):
    folder = image_checkpoint(tmp_path / "lion-image")
    Image.linear_gradient("L").save(tmp_path / "grey.png")
    page = look_at(folder)
    upload = lambda n: page.driver.find_elements(By.CSS_SELECTOR, "input[type=file]")[n].send_keys(
        str(tmp_path / "grey.png")
    )
    page.click("#classify")
    assert "There is no image" in page.error()
    upload(0)
    page.find("button[aria-label='Remove Image'], button[aria-label='Clear']")
    page.click("#classify")
    page.find("#classes", "zebra")
    page.tab("What heads read")
    page.wait(lambda: len(page.driver.find_elements(By.CSS_SELECTOR, "input[type=file]")))
    upload(-1)
    page.find("button[aria-label='Remove Image'], button[aria-label='Clear']")
    page.click("#look")
    assert min(page.picture("#masks")) > 200


def test_the_sentence_encoder_compares_and_searches(look_at, tmp_path):
    """The checkpoint of the repository, which is the page's default."""
    assert CHECKPOINT.is_dir()
    (tmp_path / "rules.txt").write_text(
        "The parrot may not be fed after midnight, whatever it says.", encoding="utf-8"
    )
    page = look_at(None)
    page.click("#compare")
    assert min(page.picture("#similarity")) > 200
    page.shoot("compare")
    page.tab("Search")
    page.click("#search")
    assert "A linear attention passes a state" in page.find("#passages .passage").text
    page.shoot("search")
    page.driver.find_element(By.CSS_SELECTOR, "input[type=file]").send_keys(str(tmp_path / "rules.txt"))
    page.find(".file-preview", "rules")
    page.write("#query textarea, #query input", "when do birds get nothing to eat?")
    page.click("#search")
    assert "rules.txt:1" in page.find("#passages .passage", "parrot").text
    assert "What heads read: it shows the layers of a LionModel" in page.find("#missing").text
    page.tab("Time by length")
    if not os.environ.get("LION_SCREENSHOTS"):  # they show more
        page.click("#longest label", "512")
    page.click("#measure")
    longest = "2,048" if os.environ.get("LION_SCREENSHOTS") else "512"
    page.wait(lambda: "%" not in page.find("#seconds", longest).text)  # the progress, which names it, too
    assert min(page.picture("#times")) > 200
    page.shoot("time")
