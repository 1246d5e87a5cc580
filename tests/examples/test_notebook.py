# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The notebook runs from top to bottom, shortened by its own parameters; what is committed is what such a run gave."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient


pytestmark = pytest.mark.slow


NOTEBOOK = Path(__file__).parents[2] / "examples" / "lion.ipynb"


@pytest.fixture
def notebook():
    return nbformat.read(NOTEBOOK, as_version=4)


def code_cells(notebook) -> list:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def printed(notebook) -> str:
    return "".join(x.text for cell in code_cells(notebook) for x in cell.outputs if x.output_type == "stream")


def pictures(notebook) -> int:
    return sum("image/png" in x.get("data", {}) for cell in code_cells(notebook) for x in cell.outputs)


def test_what_is_committed_ran_in_order_on_any_machine(notebook):
    assert [cell.execution_count for cell in code_cells(notebook)] == list(range(1, len(code_cells(notebook)) + 1))
    outputs = [x for cell in code_cells(notebook) for x in cell.outputs]
    assert not [x for x in outputs if x.output_type == "error" or x.get("name") == "stderr"]
    assert pictures(notebook) == 2 and NOTEBOOK.stat().st_size < 500_000
    assert not re.search(r"/(root|home|work|Users)/", NOTEBOOK.read_text(encoding="utf-8"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Jupyter's own libraries
def test_runs_from_top_to_bottom(notebook, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (parameters,) = (cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", []))
    small = {"texts_to_search": 20, "training_steps": 20, "long_text_tokens": 2000, "output": str(tmp_path)}
    for name, value in small.items():
        parameters.source, count = re.subn(rf"^{name} = .*$", f"{name} = {value!r}", parameters.source, flags=re.M)
        assert count == 1
    (reading,) = (cell for cell in code_cells(notebook) if "max_bytes=1_000_000" in cell.source)
    reading.source = reading.source.replace("max_bytes=1_000_000", "max_bytes=100_000")
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(NOTEBOOK.parent)}}).execute()
    text = printed(notebook)
    assert "(20, 384)" in text and "2,000 tokens; segments differ" in text and "All kernels agree." in text
    assert pictures(notebook) == 2
