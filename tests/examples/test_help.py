# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What a script prints before it does anything: its help, and no warning of a dependency."""

import subprocess
import sys
from pathlib import Path

import pytest


EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py") if "__main__" in path.read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_help_comes_without_warnings(script):
    done = subprocess.run([sys.executable, EXAMPLES / script, "--help"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "usage:" in done.stdout
    assert done.stderr == ""
