"""Maps of pixels as matrices, and their transposes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from weft_tensor.resampling import Taps, cubic_taps, linear_taps

SIZES = list(itertools.product((1, 2, 5), (1, 2, 3, 5, 8)))


@pytest.mark.parametrize("taps_of", [linear_taps, cubic_taps])
def test_the_map_back_is_the_transposed_matrix(taps_of: Any) -> None:
    for (size, count), align, half in itertools.product(SIZES, (False, True), (False, True)):
        taps = taps_of(size, count, align, half)
        matrix, back = taps.matrix(), taps.transposed()
        assert matrix.shape == (count, size) and back.size == count
        np.testing.assert_allclose(matrix.sum(1), 1, rtol=1e-6)
        np.testing.assert_array_equal(back.matrix(), matrix.T)
        if taps.is_identity() or (taps_of is linear_taps and size == count):
            assert taps.is_identity() and np.array_equal(matrix, np.eye(count, size))


@pytest.mark.parametrize(
    ("index", "weight", "size", "is_identity"),
    [
        ([[0], [1]], [[1], [1]], 2, True),
        ([[0], [1]], [[1], [1]], 3, False),
        ([[1], [0]], [[1], [1]], 2, False),
        ([[0], [1]], [[1], [2]], 2, False),
        ([[0, 1], [1, 0]], [[1, 0], [1, 0]], 2, True),
        ([[0, 1], [1, 0]], [[1, 0], [1, 0.5]], 2, False),
    ],
)
def test_identities(
    index: list[list[int]], weight: list[list[float]], size: int, is_identity: bool
) -> None:
    taps = Taps(np.array(index), np.array(weight, np.float32), size)
    assert taps.is_identity() is is_identity


def test_transposed_weights_of_0_need_no_place() -> None:
    taps = Taps(np.array([[0, 1], [0, 2]]), np.array([[1, 0], [0.5, 0.25]], np.float32), 4)
    back = taps.transposed()
    assert back.index.tolist() == [[0, 1], [0, 0], [1, 0], [0, 0]]
    assert back.weight.tolist() == [[1, 0.5], [0, 0], [0.25, 0], [0, 0]]
