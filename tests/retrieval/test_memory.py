# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""Memory that the commands keep: pages that a process gets anew, counted by the system."""

import platform
import subprocess
import sys

import pytest
from retrieval_lion import memory


SCRIPT = """
import resource, sys, threading
import torch

if sys.argv[1] == "kept":
    from retrieval_lion.memory import keep_freed_memory
    keep_freed_memory()

def compute():
    for _ in range(8):
        x = torch.ones(2**24) + 1
        del x
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(3):
        x = torch.ones(2**24) + 1
        del x
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

thread = threading.Thread(target=compute)  # as a server computes
thread.start()
thread.join()
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries are left as they are")
def test_freed_memory_is_kept():
    def pages(how: str) -> int:
        run = subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=True)
        return int(run.stdout)

    assert pages("kept") < pages("returned") / 4  # of six tensors one is new in a quarter of all processes


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (2**30, [(-3, 2**30), (-1, 2**30), (-8, 1)]),
        (2**25, [(-3, 2**30), (-3, 2**25), (-1, 2**30), (-8, 1)]),
        (0, [(-3, 2**30), (-3, 2**25)]),  # then nothing else, which would turn off glibc's own limits
    ],
)
def test_a_limit_that_is_refused(most, expected, monkeypatch):
    calls = []

    class Library:
        def mallopt(self, option, value):
            calls.append((option, value))
            return int(option != memory.M_MMAP_THRESHOLD or value <= most)

    monkeypatch.setattr(memory.sys, "platform", "linux")
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: Library())
    memory.keep_freed_memory()
    assert calls == expected
