# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The promises of the README and of the pages in docs/ are executed."""

import contextlib
import doctest
import inspect
import io
import re
import runpy
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from transformers import PreTrainedConfig

from modeling_lion import LionConfig


ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
OPTIONAL = ("optuna",)  # libraries of the extra `dev` whose blocks are left out where they are not installed
PRINTED = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
NAMES = {page: page.relative_to(ROOT).as_posix() for page in PAGES}
TEXTS = {name: page.read_text(encoding="utf-8") for page, name in NAMES.items()}


def code_blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def blocks_with_output(text: str) -> list[tuple[str, str]]:
    """The Python blocks of a page, each with what it prints by the block ```text behind it; "..." is anything."""
    return re.findall(r"^```python\n(.*?)^```\n(?:\n+```text\n(.*?)^```$)?", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Version v4.12.0 introduces a better way to train:FutureWarning")  # any composite
@pytest.mark.parametrize(
    "page", [name for name, text in TEXTS.items() if code_blocks("python", text) and name != "README.md"]
)
def test_python_blocks_run_in_order_and_print_what_the_page_says(page, tmp_path, monkeypatch):
    blocks, expected = zip(*blocks_with_output(TEXTS[page]), strict=True)
    assert list(blocks) == code_blocks("python", TEXTS[page])
    # These tests have imported modeling_lion already; readers have not.
    first_use = next(
        (x for x in blocks if re.search(r"\b(Auto|pipeline|SentenceTransformer|[lL]ion_?\w)", x)),
        "import modeling_lion",
    )
    assert re.search(r"^(from|import) (modeling_lion|hub_upload_lion)\b", first_use, flags=re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checkpoints").symlink_to(ROOT / "checkpoints")  # pages of a clone
    namespace, left_out = {"__name__": "__main__"}, []
    for block, want in zip(blocks, expected, strict=True):
        if missing := [x for x in OPTIONAL if f'"{x}"' in block and find_spec(x) is None]:
            left_out += missing
            continue
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(compile(block, page, "exec"), namespace)
        matches = doctest.OutputChecker().check_output(want, output.getvalue(), PRINTED)
        assert matches, f"{block}\nprinted\n{output.getvalue()}"
    if left_out:
        pytest.skip(f"all blocks ran but those that need {' and '.join(left_out)}, which is not installed")


@pytest.mark.slow
def test_the_readme_prints_what_it_says_and_nothing_else(tmp_path):
    """No warning of any library, either, in a new process with what the README installs, thus without bitsandbytes."""
    (tmp_path / "checkpoints").symlink_to(ROOT / "checkpoints")
    begin = """
import importlib.util, sys
sys.modules["bitsandbytes"] = None
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *args: None if name == "bitsandbytes" else find_spec(name, *args)
"""
    blocks, printed = zip(*blocks_with_output(TEXTS["README.md"]), strict=True)
    assert list(blocks) == code_blocks("python", TEXTS["README.md"])
    command = [sys.executable, "-c", "\n".join([begin, *blocks])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    printed = re.sub(r"\d+\.\d(?= s$)", "...", "".join(printed), flags=re.MULTILINE)  # of another machine
    assert doctest.OutputChecker().check_output(printed, done.stdout, PRINTED), done.stdout
    lines = [line for line in re.split(r"[\r\n]+", done.stderr) if line and not re.search(r"\d+%\|", line)]  # but bars
    assert lines == []


def test_scripts_and_the_command_take_the_arguments(monkeypatch):
    """Commands in sentences, and those by launchers; tests/examples/test_commands.py parses the others as a whole."""
    text = "\n".join(TEXTS.values())
    commands = "\n".join(code_blocks("sh", text)).replace("\\\n", " ").splitlines()
    commands = [line for line in commands if not re.match(r"(python (examples|benchmarks)/\w+\.py|lion) ", line)]
    commands += re.findall(r"`((?:python|lion) [^`]*)`", text.replace("\n", " "))
    # A launcher and its own options before the script are as good as python.
    commands = [re.sub(r"^torchrun .*?(?=examples/)", "python ", line) for line in commands]
    scripts = [words for line in commands if (words := line.split("#")[0].split())[:1] in (["python"], ["lion"])]
    scripts = [words for words in scripts if words[0] == "lion" or words[1].endswith(".py")]
    assert {words[1] for words in scripts} >= {"convert", "upload", "verify", "examples/run_mlm.py"}

    @cache  # a script imports much, and may be there more than once
    def help_of(*entry: str) -> str:
        monkeypatch.setattr(sys, "argv", [*entry, "--help"])
        with contextlib.redirect_stdout(io.StringIO()) as output, pytest.raises(SystemExit) as stop:
            if entry[0] == "lion":
                monkeypatch.delitem(sys.modules, "deploy_lion.cli", raising=False)
                runpy.run_module("deploy_lion.cli", run_name="__main__")
            else:
                runpy.run_path(str(ROOT / entry[0]), run_name="__main__")
        assert stop.value.code == 0
        return output.getvalue()

    for words in scripts:
        helped = help_of(*words[:2]) if words[0] == "lion" else help_of(words[1])
        assert [word for word in words if word.startswith("--") and word not in helped] == []


def test_the_table_of_fields_is_complete():
    page = TEXTS["docs/reference/configuration.md"]
    table = re.search(r"^\| group .*?\n\n", page, flags=re.MULTILINE | re.DOTALL)[0]
    inherited = inspect.signature(PreTrainedConfig).parameters.keys() - {"tie_word_embeddings"}
    fields = {name.lstrip("_") for name in inspect.signature(LionConfig).parameters.keys() - inherited}
    named = re.findall(r"`(\w+)`", table)
    assert sorted(named) == sorted(fields)


def anchors(text: str) -> set[str]:
    """The names by which headings are linked, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere():
    anchors_of, lost = cache(lambda path: anchors(path.read_text(encoding="utf-8"))), []
    for page, name in NAMES.items():
        for path, anchor in re.findall(r"\]\((?!http)([^)#]*)(?:#([^)]*))?\)", TEXTS[name]):
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (anchor and anchor not in anchors_of(target)):
                lost.append((name, path, anchor))
    assert lost == []


def test_named_files_exist():
    missing = []
    for page, name in NAMES.items():
        named = re.findall(r"(?:^|[`\s(])((?:[.\w]+/)+[\w*-]+\.(?:py|md|yaml|json|csv))", TEXTS[name])
        folders = [ROOT, page.parent]
        if page.name == "architecture.md":
            folders.append(ROOT / "modeling_lion")
            named += re.findall(r"`([\w*/]+\.py)`", TEXTS[name])
        named += [f"tests/**/{name}" for name in re.findall(r"`(test_\w+\.py)", TEXTS[name])]
        missing += [(name, file) for file in named if not any(any(folder.glob(file)) for folder in folders)]
    assert missing == []
