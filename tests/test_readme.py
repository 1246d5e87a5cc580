# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The README's promises are executed."""

import re
from pathlib import Path


ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def code_blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def test_python_blocks_run_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = code_blocks("python")
    assert len(blocks) >= 6
    namespace = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), namespace)
    assert namespace["encoder"].config._attn_implementation == "auto"


def test_make_targets_exist():
    targets = set(re.findall(r"^make (\w+)", "\n".join(code_blocks("sh")), flags=re.MULTILINE))
    assert targets == {"demo", "test"}
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{target}:", makefile, flags=re.MULTILINE) for target in targets)


def test_paths_exist():
    tree = README.split("## The tree")[1].split("```")[1]
    named = re.findall(r"^(\S+)", tree, flags=re.MULTILINE)
    named += re.findall(r"(?:modeling_lion|examples|benchmarks)/\w+\.(?:py|md)", README)
    named += re.findall(r"\]\(([\w./]+\.(?:png|md))\)", README)
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).exists()] == []
