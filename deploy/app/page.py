# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The command `lion app`: a page in the browser to explore a checkpoint. It uses no network but that of this machine.

Results come from app/panels.py and figures from app/figures.py; this module puts them on a page with Gradio.
"""

import argparse
import html
import logging
import os
from collections.abc import Callable, Iterator
from functools import wraps
from inspect import isgenerator
from pathlib import Path
from typing import NamedTuple

from hub_upload_lion.traits import LinearizedTraits
from retrieval_lion.sources import in_clone

from ..export.exported import check_installed
from . import panels
from .panels import Served


os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # read when gradio is imported

# The default model, in a clone of the repository.
CHECKPOINT = Path("checkpoints", "lion-minilm-l6")
# Packages that the page needs.
NEEDED = ("gradio", "matplotlib", "sentence_transformers", "PIL")
CSS = """
.passage { border-left: 3px solid #2563a8; padding: 0.2em 0.8em; margin: 0.8em 0 }
.passage p { white-space: pre-wrap; margin: 0.2em 0; overflow-wrap: anywhere }
"""
SENTENCES = """The lion sleeps in the shade of a tree.
A big cat rests where the sun does not reach it.
Lions hunt at night, together.
The stock market fell by two percent.
Shares lost value on Tuesday."""
PAGES = (
    "Lions live in groups, called prides. A pride has related females, their cubs and a few males, and it defends a "
    "territory. Members rest for most of the day, and groom each other in the shade. They hunt at night or at dawn, "
    "several females at a time. One drives the prey towards the others, which wait in the grass. Of four hunts one "
    "succeeds, and the males eat first. When a male grows old, younger ones drive him away and take over the pride. "
    "Cubs of a pride are fed by all of its females, and play together.\n\n"
    "A linear attention passes a state from token to token, in place of a matrix of all pairs. So the time to read a "
    "text grows with its length, and not with the square of it. What the state forgets on the way is given by a "
    "decay: with a slow one a word counts thousands of tokens later, with a fast one only its neighbours read it. A "
    "document of twice the length takes twice the time, and the state in memory has the same size at every place of "
    "it. So a book is read in one pass, from its first page to its last one.\n\n"
    "To save bread from going stale, keep it in a paper bag at room temperature. In a fridge it dries faster; frozen, "
    "it keeps for months."
)
READ = "The lion sleeps in the shade, and the hunter who saw it walks on."


def page(function: Callable) -> Callable:
    """Wrap the function of a panel for Gradio: errors become a sentence on the page."""
    import gradio

    def explain(error: Exception) -> gradio.Error:
        if isinstance(error, (ValueError, OSError)):
            return gradio.Error(html.escape(str(error)), duration=None, print_exception=False)
        logging.getLogger(__name__).error("A panel of the page failed", exc_info=error)
        words = f"This failed ({type(error).__name__}): the terminal that started the page says more."
        return gradio.Error(words, duration=None, print_exception=False)

    @wraps(function)
    def answers(*args):
        try:
            found = function(*args)
            yield from found if isgenerator(found) else [found]
        except Exception as error:
            raise explain(error) from None

    return answers


def on_click(button, function: Callable, inputs: list, outputs: list, name: str) -> None:
    """Run a panel's function on a click, one at a time: two would mix their hooks on the model, and their times."""
    button.click(page(function), inputs, outputs, api_name=name, concurrency_limit=1, concurrency_id="model")


def build_fill(served: Served) -> None:
    import gradio

    mask = served.preprocessor.mask_token
    label = f"Text, with {mask} where words are missing"
    text = gradio.Textbox(f"The lion {mask} in the shade.", label=label, lines=2, elem_id="masked")
    button = gradio.Button("Fill", variant="primary", elem_id="fill")
    table = gradio.Dataframe(
        headers=["mask", "word", "probability"], interactive=False, label="Words", elem_id="filled"
    )

    def fill(text: str) -> list[list]:
        return [[x.mask, x.word, f"{x.score:.3f}"] for x in panels.fill_mask(served, text)]

    on_click(button, fill, [text], [table], "fill")


def build_classify(served: Served) -> None:
    import gradio

    with gradio.Row():
        if served.is_text:
            first = gradio.Textbox("I loved every minute.", label="Text", lines=3)
            second = gradio.Textbox(label="Second text, for a model of pairs", lines=3)
            inputs, function = [first, second], panels.classify_text
        else:
            inputs, function = (
                [gradio.Image(type="pil", label="Image", sources=["upload", "clipboard"])],
                panels.classify_image,
            )
        classes = gradio.Label(num_top_classes=10, label="Class", elem_id="classes")
    button = gradio.Button("Classify", variant="primary", elem_id="classify")
    on_click(button, lambda *given: function(served, *given), inputs, [classes], "classify")


def build_compare(served: Served) -> None:
    import gradio

    from .figures import similarity_figure

    texts = gradio.Textbox(SENTENCES, label="Texts, one a line", lines=6)
    button = gradio.Button("Compare", variant="primary", elem_id="compare")
    picture = gradio.Plot(show_label=False, elem_id="similarity")
    on_click(
        button, lambda lines: similarity_figure(*panels.compare_texts(served, lines)), [texts], [picture], "compare"
    )


def build_search(served: Served) -> None:
    import gradio

    with gradio.Row():
        with gradio.Column():
            pasted = gradio.Textbox(PAGES, label="Text to search", lines=10, max_lines=16)
            files = gradio.File(file_count="multiple", label="Or your own files (.md, .html, .pdf, …)", height=140)
        with gradio.Column():
            query = gradio.Textbox("why is it fast on long documents?", label="Query", elem_id="query")
            with gradio.Row():
                button = gradio.Button("Search", variant="primary", elem_id="search")
                stop = gradio.Button("Stop", elem_id="stop")
            found = gradio.HTML(elem_id="passages")

    def search(query: str, pasted: str, files: list[str] | None) -> Iterator[str]:
        if files and pasted == PAGES:  # the example
            pasted = ""
        for found in panels.search_texts(served, query, pasted, files):
            yield found_html(found)

    # The encoder is loaded by itself: it is not the model of the other panels.
    options = {"concurrency_limit": 1, "concurrency_id": "encoder"}
    inputs = [query, pasted, files]
    clicked = button.click(page(search), inputs, [found], api_name="search", **options)
    submitted = query.submit(page(search), inputs, [found], api_visibility="private", **options)
    stop.click(None, cancels=[clicked, submitted])


def found_html(found: panels.Found) -> str:
    """Show how much has been read, what was left out, and the passages found with their documents and locations."""
    notes = [] if found.share == 1 else [f"Read {found.share:.0%}; the best so far:"]
    notes += [f"Left out: {reason}" for reason in found.left_out]
    passages = []
    for answer in found.answers:
        document, place = answer.document, answer.place
        where = place if place.startswith(document) else f"{document} · {place}"
        words = f"<b>{answer.score:.2f}</b> {html.escape(where)}<p>{html.escape(answer.text)}</p>"
        passages.append(f'<div class="passage">{words}</div>')
    return "".join([*(f"<p>{html.escape(note)}</p>" for note in notes), *passages])


def build_heads(served: Served) -> None:
    import gradio

    from .figures import mask_figure, reach_figure

    layers = panels.linear_layers(served)
    with gradio.Row():
        if served.is_text:
            inputs = [gradio.Textbox(READ, label="Text", lines=3, scale=3)]
        else:
            rows, columns = served.model.config.patch_grid
            inputs = [gradio.Image(type="pil", label="Image", sources=["upload", "clipboard"])]
        with gradio.Column():
            layer = gradio.Dropdown(layers, value=layers[0], label="Layer")
            shown = gradio.Radio(list(panels.SHOWN), value="attention weights", label="What to show", elem_id="shown")
            sides = [] if served.is_text else [("Row", rows), ("Column", columns)]
            inputs += [
                layer,
                shown,
                *(gradio.Slider(1, n, n // 2 + 1, step=1, label=f"{x} of the patch") for x, n in sides),
            ]
            button = gradio.Button("Look", variant="primary", elem_id="look")
    note = "Heads read what precedes a token (←), what follows it (→), or both (↔). "
    if others := served.model.config.num_hidden_layers - len(layers):
        note += f"{others} layers of this model read by softmax, and have no decay masks."
    gradio.Markdown(note)
    reach = gradio.Plot(show_label=False, elem_id="reach")
    masks = gradio.Plot(show_label=False, elem_id="masks")
    function = panels.heads_of_text if served.is_text else panels.heads_of_image

    def look(given, layer: int, shown: str, *patch: int) -> tuple:
        reading = function(served, given, layer, shown, *patch)
        return reach_figure(reading.heads), mask_figure(reading, layer)

    on_click(button, look, inputs, [reach, masks], "look")


def build_time(served: Served) -> None:
    import gradio

    from .figures import time_figure

    longest = gradio.Radio([512, 2048, 8192], value=2048, label="Tokens in the longest text", elem_id="longest")
    button = gradio.Button("Measure", variant="primary", elem_id="measure")
    is_linearized = isinstance(served.traits, LinearizedTraits)
    peer = "the encoder before" if is_linearized else "BERT"
    what = "the same with" if is_linearized else "of the same size, with random weights and"
    gradio.Markdown(
        "CPU time of this machine to read one random text with one thread, medians. "
        f"{peer[0].upper()}{peer[1:]} is {what} PyTorch's fused attention."
    )
    picture = gradio.Plot(show_label=False, elem_id="times")
    headers = ["tokens", "this model, seconds", f"{peer}, seconds", "ratio"]
    table = gradio.Dataframe(headers=headers, interactive=False, label="Times", elem_id="seconds")

    def measure(longest: int, progress=gradio.Progress()) -> Iterator[tuple]:  # noqa: B008
        times = []
        progress(0, "Measuring")
        for time in panels.time_by_length(served, longest):
            times.append(time)
            progress(time.length / longest, f"{time.length:,} tokens")
            rows = [[f"{x.length:,}", f"{x.lion:.3f}", f"{x.softmax:.3f}", f"{x.lion / x.softmax:.2f}"] for x in times]
            yield time_figure(times, served.name, peer), rows

    on_click(button, measure, [longest], [picture, table], "measure")


class Panel(NamedTuple):
    """A tab: why a checkpoint does not have it (a sentence; `None` if it does), and its contents."""

    why_not: Callable[[Served], str | None]
    build: Callable[[Served], None]


PANELS = {
    "Fill a mask": Panel(panels.why_not_fill, build_fill),
    "Classify": Panel(panels.why_not_classify, build_classify),
    "Compare texts": Panel(panels.why_not_compare, build_compare),
    "Search": Panel(panels.why_not_compare, build_search),
    "What heads read": Panel(panels.why_not_heads, build_heads),
    "Time by length": Panel(panels.why_not_time, build_time),
}


def build_app(model: str | Path | None = None):
    """
    Build the page for a checkpoint, with the panels that it supports.

    Args:
        model: a folder or a Hub repository; by default the sentence encoder in a clone of the repository.

    Returns:
        A `gradio.Blocks`. `launch_app` serves it.

    Raises:
        ImportError: if a package that the page needs is not installed.
        ValueError: if this is not a complete LION checkpoint, or no model is given and there is no default.
        OSError: if the checkpoint does not exist or is damaged.
    """
    check_installed("app", NEEDED)
    import gradio

    if model is None and (model := in_clone(CHECKPOINT)) is None:
        raise ValueError(
            f"There is no {CHECKPOINT} in {Path.cwd()}: start in the folder of the repository, or give the MODEL to "
            "look at."
        )
    served = panels.load_served(model)
    reasons = {title: panel.why_not(served) for title, panel in PANELS.items()}
    with gradio.Blocks(title=f"LION: {served.name}", analytics_enabled=False) as app:
        gradio.Markdown(f"# LION\n\n{panels.facts(served)}")
        with gradio.Tabs():
            for title, panel in PANELS.items():
                if reasons[title] is None:
                    with gradio.Tab(title):
                        panel.build(served)
        if missing := [f"- **{title}**: {reason}" for title, reason in reasons.items() if reason is not None]:
            gradio.Markdown("\n".join(["Panels that this model cannot serve:\n", *missing]), elem_id="missing")
    return app


def launch_app(app, host: str | None = None, port: int | None = None, **options) -> str:
    """
    Serve a page until `app.close()`.

    Args:
        app: the page, from `build_app`.
        host, port: the address; by default GRADIO_SERVER_NAME and GRADIO_SERVER_PORT, or else this machine only and a
            free port from 7860 on.
        options: further arguments of `Blocks.launch`.

    Returns:
        The URL of the page.
    """
    import gradio

    fonts = {"font": ["system-ui", "sans-serif"], "font_mono": ["ui-monospace", "monospace"]}  # no downloads
    theme = gradio.themes.Default(primary_hue="blue", **fonts)
    quiet = {"quiet": True, "prevent_thread_lock": True, "share": False, "ssr_mode": False, "footer_links": []}
    _, address, _ = app.launch(
        server_name=host, server_port=port, theme=theme, css=CSS, max_file_size="50mb", **(quiet | options)
    )
    return address


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", help="folder or Hub repository (default: the sentence encoder in a clone)")
    parser.add_argument("--host", default="127.0.0.1", help="address to serve at (default: %(default)s, this machine)")
    parser.add_argument("--port", type=int, help="port (default: the first free one from 7860 on)")
    parser.add_argument("--browser", action="store_true", help="open a browser")


def run(args: argparse.Namespace) -> None:
    if args.port is not None and not 0 <= args.port < 2**16:
        raise ValueError(f"--port is {args.port}: ports are 0 to 65535.")
    app = build_app(args.model)
    address = launch_app(app, args.host, args.port, inbrowser=args.browser)
    print(f"Look at {address} (Ctrl-C ends it).", flush=True)
    app.block_thread()
