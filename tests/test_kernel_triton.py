# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""
The Triton kernels: what they compute (triton_cases.py), in Triton's interpreter or on a GPU, and that they compile for
GPUs that are not there.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from modeling_lion import kernel_triton, lion_kernel, triton_config


ROOT = Path(__file__).parent.parent
pytest.importorskip("triton", reason="triton is not installed")
no_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def run(*command: str, **environment: str) -> str:
    """The output of a Python process, which must succeed."""
    result = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert result.returncode == 0, result.stdout[-8000:]
    return result.stdout


@pytest.mark.parametrize("part", ["naive_form", "not naive_form"])
def test_in_the_interpreter(part):
    cases = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/triton_cases.py", "-k", part)
    assert " passed" in run(*cases, TRITON_INTERPRET="1", CUDA_VISIBLE_DEVICES="")


@no_gpu
def test_on_a_gpu():
    assert " passed" in run("-m", "pytest", "-q", "tests/triton_cases.py", TRITON_INTERPRET="0")
