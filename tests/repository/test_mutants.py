# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The mutants of tests/tools/mutants.py fit the sources: a change of a line takes its mutants along."""

from pathlib import Path

import pytest
from tools.mutants import MUTANTS


ROOT = Path(__file__).parents[2]


def test_names_are_unique():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("file", sorted({mutant.file for mutant in MUTANTS}))
def test_every_mutant_fits_its_file_once(file):
    path = ROOT / file
    source = path.read_text(encoding="utf-8") if path.exists() else ""
    misfits = [m.name for m in MUTANTS if m.file == file and (source.count(m.old) != 1 or m.old == m.new)]
    assert not misfits
