# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Docstrings begin with what a thing is or does."""

import ast
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[2]
FOLDERS = ["benchmarks", "configuration_lion", "examples", "hub_upload", "modeling_lion", "retrieval", "tests"]
FOLDERS += ["tokenization", "training"]
# A reader who sees a name and these words does not know what they complete.
NO_BEGINNING = ("Of ", "By ", "Those ")
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_begin_with_a_subject_or_a_verb(folder):
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / folder).rglob("*.py")}
    nodes = [(path, node) for path, tree in trees.items() for node in ast.walk(tree) if isinstance(node, DOCUMENTED)]
    texts = [(path.relative_to(ROOT).as_posix(), ast.get_docstring(node) or "") for path, node in nodes]
    assert texts and [x for x in texts if x[1].startswith(NO_BEGINNING)] == []
