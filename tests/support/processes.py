# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Processes in which this package does not exist, and those that hold a lock."""

import contextlib
import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

from hub_upload_lion.publish.clean_process import HIDDEN


def run_without_package(code: str, folder: Path, **environment: str) -> str:
    """Run code where none of this package's names can be imported; what it prints."""
    hide = f"import sys\nsys.modules.update(dict.fromkeys({HIDDEN}))\n"
    environment = os.environ | {"HF_MODULES_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"} | environment
    command = [sys.executable, "-W", "error", "-c", hide + code]
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return result.stdout


def wait_until_free(lock: Path, seconds: float = 60) -> None:
    """Wait until no process holds a lock of `fcntl.flock`."""
    stop = time.monotonic() + seconds
    with lock.open("w") as file:
        while True:
            with contextlib.suppress(OSError):
                return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            assert time.monotonic() < stop, f"a process still holds {lock}"
            time.sleep(0.2)
