# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The blocks of docs/guides/recipes.md print what the page says, each in a process of its own.

Most need a client. The extra `dev` has lancedb and qdrant-client; for the others, `pip install langchain-huggingface
chromadb setfit chonkie llama-index-core`. transformers.js is looked for where `npm install -g
@huggingface/transformers` puts it.
"""

import ast
import doctest
import functools
import http.server
import importlib.util
import queue
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hub_upload_lion.publish.clean_process import HIDDEN
from made_once import CHECKPOINT, COMMANDS, PAGE, ROOT, made_by_recipes
from sentence_transformers import SentenceTransformer


BLOCKS = re.findall(r"^```(py|js|html)\n(.*?)^```\n\n```text\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
SECONDS = 600  # at most, on a busy machine
pytestmark = pytest.mark.slow


def blocks(language: str) -> list[tuple[str, str]]:
    """The blocks of a language, each with what it prints."""
    return [(code, printed) for found, code, printed in BLOCKS if found == language]


def imports(code: str) -> list[str]:
    """The modules that a block imports, in order."""
    nodes = ast.walk(ast.parse(code))
    names = (
        [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
        for node in nodes
        if isinstance(node, (ast.Import, ast.ImportFrom))
    )
    return [name for group in names for name in group]


def is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package around it
        return False


@pytest.fixture(scope="module")
def folder_with(tmp_path_factory) -> Callable[[str], Path]:
    """A folder in which the page's commands made what a block names."""

    folder = tmp_path_factory.mktemp("recipes")
    (folder / "checkpoints").symlink_to(ROOT / "checkpoints")

    def make(code: str) -> Path:
        for name in COMMANDS:
            if name in code and not (folder / name).exists():
                (folder / name).symlink_to(made_by_recipes(name, tmp_path_factory))
        return folder

    return make


def output_of(command: list[str], folder: Path, code: str = "") -> str:
    done = subprocess.run(command, cwd=folder, input=code, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_block_is_run():
    languages = re.findall(r"^```(\w+)$", PAGE, flags=re.MULTILINE)
    assert sorted(languages) == sorted(["sh", *(x for language, *_ in BLOCKS for x in (language, "text"))])
    assert len(BLOCKS) == 10


@pytest.mark.parametrize(("code", "printed"), [pytest.param(*x, id=imports(x[0])[0]) for x in blocks("py")])
def test_python(code, printed, folder_with):
    """A bundle is loaded without this package, and ONNX Runtime runs without torch."""
    for module in imports(code):
        if not is_installed(module):
            pytest.skip(f"the client {module} is not installed")
    hidden = () if "modeling_lion" in code else HIDDEN
    if "onnxruntime" in code:
        hidden += ("torch", "transformers", "sentence_transformers")
    hide = f"import sys\nsys.modules.update(dict.fromkeys({hidden}))\n"
    output = output_of([sys.executable, "-"], folder_with(code), hide + code)
    assert doctest.OutputChecker().check_output(printed, output, doctest.ELLIPSIS), output


def test_the_cosines_are_those_of_sentence_transformers():
    (code,) = (code for code, _ in blocks("py") if "onnxruntime" in code)
    texts = ast.literal_eval(re.search(r"^texts = (\[.*\])$", code, flags=re.MULTILINE)[1])
    vectors = SentenceTransformer(str(ROOT / CHECKPOINT), device="cpu").encode(texts).astype(np.float64)
    expected = " ".join(f"{cosine:.3f}" for cosine in vectors[:2] @ vectors[2]) + "\n"
    found = [printed for _, code, printed in BLOCKS if "my-graph" in code]
    assert found == [expected] * 3


@pytest.fixture
def node_modules() -> Path:
    """The folder of npm's global packages with transformers.js."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("Node is not installed")
    done = subprocess.run(["npm", "root", "-g"], capture_output=True, text=True, timeout=SECONDS)
    folder = Path(done.stdout.strip())
    if not (folder / "@huggingface/transformers").is_dir():
        pytest.skip("transformers.js is not installed: npm install -g @huggingface/transformers")
    return folder


def test_node(folder_with, node_modules):
    ((code, printed),) = blocks("js")
    folder = folder_with(code)
    (folder / "node_modules").symlink_to(node_modules)
    (folder / "recipe.mjs").write_text(code, encoding="utf-8")
    assert output_of(["node", "recipe.mjs"], folder) == printed


REPORT = """
<script type="module">
  while (!document.getElementById("answer").textContent) await new Promise((go) => setTimeout(go, 100));
  await fetch("answer?" + document.getElementById("answer").textContent.replace(" ", "+"));
</script>
"""


def test_browser(folder_with, node_modules, tmp_path):
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs a browser: apt-get install --no-install-recommends chromium")
    ((code, printed),) = blocks("html")
    package = node_modules / "@huggingface/transformers"
    runtime = next(x for x in (package / "node_modules", node_modules) if (x / "onnxruntime-web").is_dir())
    library, graphs = re.findall(r"`([\w.-]+)\.m?js`", PAGE)
    for source in (package / "dist" / f"{library}.js", *(runtime / "onnxruntime-web/dist").glob(f"{graphs}.*")):
        (tmp_path / source.name).symlink_to(source)
    (tmp_path / "my-graph").symlink_to(folder_with(code) / "my-graph")
    (tmp_path / "index.html").write_text(code + REPORT, encoding="utf-8")
    answers: queue.Queue[str] = queue.Queue()

    class Handler(http.server.SimpleHTTPRequestHandler):
        extensions_map = {".html": "text/html", ".js": "text/javascript", ".mjs": "text/javascript"} | {
            ".wasm": "application/wasm",
            "": "application/octet-stream",
        }

        def log_message(self, *args) -> None:
            pass

        def do_GET(self) -> None:
            if self.path.startswith("/answer?"):
                answers.put(self.path.removeprefix("/answer?"))
            super().do_GET()

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=tmp_path))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0"]
    address = f"http://127.0.0.1:{server.server_port}/"
    browser = subprocess.Popen(
        [chromium, *options, f"--user-data-dir={tmp_path / 'profile'}", address], stderr=subprocess.DEVNULL
    )
    try:
        assert answers.get(timeout=SECONDS) == printed.strip().replace(" ", "+")
    finally:
        browser.terminate()
        browser.wait()
        server.shutdown()
        server.server_close()
