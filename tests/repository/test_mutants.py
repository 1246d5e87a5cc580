# Copyright 2026 The LION for transformers authors. Licensed under the Apache License, Version 2.0.
"""The mutants of tests/tools/mutants.py fit the code: each has its function, its expression and its tests."""

import pytest
from tools.mutants import MUTANTS, mutate, path_of


@pytest.mark.slow
def test_every_mutant_fits():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    misfits = []
    for mutant in MUTANTS:
        try:
            mutate(mutant)
            for test in mutant.tests.split():
                path_of(test)
        except (ValueError, SyntaxError) as error:
            misfits.append(str(error))
    assert misfits == []
