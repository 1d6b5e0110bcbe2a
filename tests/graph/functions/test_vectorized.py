"""`vectorized_map`: rows in any structure, results of any type, gradients, nesting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_tensor import errors


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    with wf.Graph().as_default():
        yield


def test_results_have_types_and_a_structure_of_their_own() -> None:
    x = wf.constant([[1.0, 2.0], [3.0, 4.0]])
    found = wf.vectorized_map(lambda row: (wf.reduce_sum(row), {"large": row > 1.5}, 5), x)
    with wf.Session() as session:
        total, named, five = session.run(found)
    assert total.tolist() == [3.0, 7.0]
    assert named["large"].tolist() == [[False, True], [True, True]]
    assert five.tolist() == [5, 5]


def test_one_row_goes_with_all() -> None:
    x, y = wf.constant([[1.0, 2.0], [3.0, 4.0]]), wf.constant([[10.0, 20.0]])
    z = wf.vectorized_map(lambda rows: rows[0] * rows[1], (x, y))
    with wf.Session() as session:
        assert session.run(z).tolist() == [[10.0, 40.0], [30.0, 80.0]]
        assert session.run(wf.gradients(z, y)[0]).tolist() == [[4.0, 6.0]]


def test_variables_and_sizes_that_are_not_known() -> None:
    x = wf.placeholder(wf.float32, [None, 3])
    weights = wf.get_variable("weights", [3, 2])
    y = wf.vectorized_map(lambda row: wf.linalg.matvec(weights, row, transpose_a=True), x)
    assert y.dims == (None, 2)
    with wf.Session() as session:
        session.run(weights.initializer)
        for count in (4, 0):
            rows = np.arange(3.0 * count).reshape(count, 3)
            got, wanted = session.run([y, wf.matmul(x, weights)], {x: rows})
            np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_maps_within_maps() -> None:
    x = wf.constant([[1, 2], [3, 4]])
    y = wf.vectorized_map(lambda row: wf.vectorized_map(lambda each: each * 2, row), x)
    assert wf.Session().run(y).tolist() == [[2, 4], [6, 8]]


@pytest.mark.parametrize("elems", [(), 5.0, [[1.0, 2.0], [1.0, 2.0, 3.0]]])
def test_elements_without_rows_are_refused(elems: Any) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"rank 1|length|shape"):
        wf.vectorized_map(lambda row: row, elems)
    with pytest.raises(errors.InvalidTypeError, match="callable"):
        wf.vectorized_map(3, [1.0])
