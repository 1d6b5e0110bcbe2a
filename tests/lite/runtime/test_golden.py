"""Files of earlier states of the format, which `golden/write.py` wrote: they still run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from weft_lite import Interpreter

FILES = sorted((Path(__file__).parent / "golden").glob("*.weftlite"))


def test_there_are_some() -> None:
    assert len(FILES) >= 4


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_of_before_gives_what_it_gave(path: Path) -> None:
    """In the memory that it declares: an op may not want more than when the file was made."""
    runner = Interpreter(model_content=path.read_bytes()).get_signature_runner()
    with np.load(path.with_suffix(".npz")) as kept:
        given = runner(x=kept["x"])["y"]
        tolerance = 1e-5 if path.stem.endswith("float32") else 0.02  # a step of int8 or two
        np.testing.assert_allclose(given, kept["y"], atol=tolerance * np.abs(kept["y"]).max())
