"""Places in sorted rows are those that NumPy finds row by row."""

from __future__ import annotations

import numpy as np
import pytest

from weft_exec.kernels.sorted_rows import FEW, search


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("shape", [(3, 5, 4), (FEW, 1, 7), (40, 33, 9), (40, 0, 2), (40, 6, 0)])
def test_rows_are_searched_as_numpy_searches_one(
    shape: tuple[int, int, int], dtype: str, right: bool
) -> None:
    rng = np.random.default_rng(0)
    rows, width, count = shape
    keys = rng.integers(-4, 5, (rows, width)).astype(dtype)
    values = rng.integers(-6, 7, (rows, count)).astype(dtype)
    if dtype == "float32":
        keys[rng.random(keys.shape) < 0.2] = np.nan
        values[rng.random(values.shape) < 0.2] = np.nan
    keys.sort(axis=1)
    side = "right" if right else "left"
    wanted = [np.searchsorted(row, own, side) for row, own in zip(keys, values, strict=True)]
    np.testing.assert_array_equal(search(keys, values, right), wanted)
