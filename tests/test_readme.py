# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The README's promises are executed."""

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path


ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def code_blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def test_python_blocks_run_by_themselves_in_order(tmp_path):
    blocks = code_blocks("python")
    assert len(blocks) >= 8
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for block in blocks:
        result = subprocess.run(
            [sys.executable, "-c", block], cwd=tmp_path, env=environment, input="", capture_output=True, text=True
        )
        assert result.returncode == 0, f"{block}\n{result.stderr}"


def test_scripts_and_the_command_take_the_arguments():
    commands = "\n".join(code_blocks("sh")).replace("\\\n", " ").splitlines()
    # A launcher and its own options before the script are as good as python.
    commands = [re.sub(r"^torchrun .*?(?=examples/)", "python ", line) for line in commands]
    scripts = [words for line in commands if (words := line.split("#")[0].split())[:1] in (["python"], ["lion"])]
    assert len(scripts) >= 5

    @cache  # a script imports much, and may be there more than once
    def help_of(*entry: str) -> str:
        command = [sys.executable, *entry, "--help"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    for words in scripts:
        helped = help_of(*(("-m", "hub_upload_lion.cli", words[1]) if words[0] == "lion" else (str(ROOT / words[1]),)))
        assert [word for word in words if word.startswith("--") and word not in helped] == []


def test_make_targets_exist():
    targets = set(re.findall(r"^make (\w+)", "\n".join(code_blocks("sh")), flags=re.MULTILINE))
    assert targets == {"demo", "test"}
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{target}:", makefile, flags=re.MULTILINE) for target in targets)


def test_paths_exist():
    tree = README.split("## The tree")[1].split("```")[1]
    named = re.findall(r"^(\S+)", tree, flags=re.MULTILINE)
    named += re.findall(r"(?:modeling_lion|examples|benchmarks)/(?:recipes/)?[\w-]+\.(?:py|md|yaml)", README)
    named += re.findall(r"\]\(([\w./]+\.(?:png|md))\)", README)
    assert len(named) > 10 and sum(name.endswith(".png") for name in named) >= 4
    assert [name for name in named if not (ROOT / name).exists()] == []
