# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Docstrings begin with what a thing is or does."""

import ast
from pathlib import Path


ROOT = Path(__file__).parents[2]
FOLDERS = ["benchmarks", "configuration_lion", "examples", "hub_upload", "modeling_lion", "retrieval", "tests"]
FOLDERS += ["tokenization", "training"]
# A reader who sees a name and these words does not know what they complete.
NO_BEGINNING = ("Of ", "By ", "Those ")
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def test_docstrings_begin_with_a_subject_or_a_verb():
    found, files = [], [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    for path in files:
        nodes = [x for x in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(x, DOCUMENTED)]
        texts = [ast.get_docstring(node) or "" for node in nodes]
        found += [(path.relative_to(ROOT).as_posix(), text) for text in texts if text.startswith(NO_BEGINNING)]
    assert len(files) > 300 and found == []
