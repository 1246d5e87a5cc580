# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Every command of the README, the pages and the scripts themselves has arguments that exist, and that a CPU takes."""

import argparse
import ast
import importlib
import re
import shlex
import sys
from pathlib import Path

import pytest
from deploy_lion import cli
from transformers import HfArgumentParser


ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").glob("*.py"))]
COMMAND = re.compile(r"^ *(?:\$ )?((?:python (?:examples|benchmarks)/\w+\.py|lion) (?:\\\n|.)*)", re.MULTILINE)
PARSED = (
    (argparse.ArgumentParser, "parse_args"),
    (argparse.ArgumentParser, "parse_intermixed_args"),
    (HfArgumentParser, "parse_args_into_dataclasses"),
)


class Parsed(Exception):
    """The arguments were read: the work would begin here."""


def commands() -> dict[str, str]:
    """The commands without duplicates, on one line each, and the file that has the first of each."""
    places = {}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if page.suffix == ".md":
            text = "\n".join(re.findall(r"^```(?:sh|bash)\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
        else:  # what is indented in the description of a script
            lines = (ast.get_docstring(ast.parse(text)) or "").splitlines()
            text = "\n".join(line for line in lines if line.startswith("    "))
        for match in COMMAND.finditer(text):
            command = shlex.join(shlex.split(match[1].replace("\\\n", " "), comments=True))
            places.setdefault(command, page.relative_to(ROOT).as_posix())
    return places


@pytest.fixture
def read_only(monkeypatch):
    """Parsers that stop what they are part of once they have parsed."""

    def stopping(parse):
        def parse_and_stop(*args, **kwargs):
            parse(*args, **kwargs)
            raise Parsed

        return parse_and_stop

    for parser, method in PARSED:
        monkeypatch.setattr(parser, method, stopping(getattr(parser, method)))
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


def test_arguments_exist(read_only, monkeypatch):
    wrong = []
    assert len(commands()) > 20
    for command, page in commands().items():
        program, *arguments = shlex.split(command)
        script = Path(arguments.pop(0)) if program == "python" else None
        monkeypatch.setattr(sys, "argv", [str(script or program), *arguments])
        try:
            (importlib.import_module(script.stem) if script else cli).main()
        except Parsed:
            continue
        except (Exception, SystemExit) as error:
            wrong.append((page, command, error))
        else:
            wrong.append((page, command, "parsed nothing"))
    assert wrong == []
