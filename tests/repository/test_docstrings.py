# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Docstrings begin with what a thing is or does."""

import re
from pathlib import Path


ROOT = Path(__file__).parents[2]
FOLDERS = ["benchmarks", "configuration_lion", "examples", "hub_upload", "modeling_lion", "retrieval", "tests"]
FOLDERS += ["tokenization", "training"]
# A reader who sees a name and these words does not know what they complete.
BEGINNING = re.compile(r'^ *r?"""\s*(?:Of|By|Those) .*', re.MULTILINE)


def test_docstrings_begin_with_a_subject_or_a_verb():
    texts = {path: path.read_text(encoding="utf-8") for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    found = [(path.name, line.strip()) for path, text in texts.items() for line in BEGINNING.findall(text)]
    assert len(texts) > 300 and found == []
