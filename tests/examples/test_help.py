# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""What a script prints before it does anything: its help, and no warning of a dependency."""

import subprocess
import sys
from pathlib import Path

import pytest


EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py") if "__main__" in path.read_text(encoding="utf-8"))


PROGRAM = """
import runpy, sys

for script in sys.argv[1:]:
    print(script, flush=True)
    print(script, file=sys.stderr, flush=True)
    sys.argv[:] = [script, "--help"]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        assert end.code == 0, script
"""


@pytest.mark.slow
def test_help_comes_without_warnings():
    """All in one new process: what they import takes most of the time, and warns once."""
    command = [sys.executable, "-c", PROGRAM, *SCRIPTS]
    done = subprocess.run(command, cwd=EXAMPLES, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and done.stderr.splitlines() == SCRIPTS
    assert len(SCRIPTS) > 10 and all(f"{script}\nusage: " in done.stdout for script in SCRIPTS)
