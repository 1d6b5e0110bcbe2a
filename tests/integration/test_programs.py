"""Programs in the style of 2016 to 2018 return the same on weft as on TensorFlow.

Initial values and noise come from NumPy, so whole courses of training are compared value by value.
`programs/record.py` made `programs/expected.json`.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from weft_testing.loading import load

import weft

PROGRAMS = Path(__file__).parent / "programs"
EXPECTED = json.loads((PROGRAMS / "expected.json").read_text())["programs"]


def test_every_program_is_recorded() -> None:
    assert {path.stem for path in PROGRAMS.glob("*.py")} - {"record"} == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_program(name: str) -> None:
    results = load(PROGRAMS / f"{name}.py").program(weft)

    assert set(results) == set(EXPECTED[name])
    for key, recorded in EXPECTED[name].items():
        got, expected = np.asarray(results[key]), np.asarray(recorded)
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6, err_msg=key)
        else:
            np.testing.assert_array_equal(got, expected, err_msg=key)
