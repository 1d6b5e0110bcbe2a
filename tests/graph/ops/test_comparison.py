from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from weft_testing.evaluate import evaluate

from weft_graph.ir.builder import constant
from weft_graph.ir.graph import Graph
from weft_graph.ops import array, comparison
from weft_tensor import errors


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as graph:
        yield graph


def test_operators_choose_between_logic_and_bits() -> None:
    p, q = constant([True, True, False]), constant([True, False, False])
    np.testing.assert_array_equal(evaluate(p & q), [True, False, False])
    np.testing.assert_array_equal(evaluate(p | q), [True, True, False])
    np.testing.assert_array_equal(evaluate(p ^ q), [False, True, False])
    np.testing.assert_array_equal(evaluate(~p), [False, False, True])
    a, b = constant([6, 5]), constant([3, 1])
    np.testing.assert_array_equal(evaluate(a & b), [2, 1])
    np.testing.assert_array_equal(evaluate(a | b), [7, 5])
    np.testing.assert_array_equal(evaluate(a ^ b), [5, 4])
    np.testing.assert_array_equal(evaluate(a ^ 1), [7, 4])
    np.testing.assert_array_equal(evaluate(~a), [-7, -6])


def test_comparisons_are_bool_and_equality_of_outputs_is_identity() -> None:
    x, y = constant([1.0, 2.0]), constant([1.0, 3.0])
    assert (x < y).dtype == "bool"
    assert {x: 1, y: 2}[x] == 1
    np.testing.assert_array_equal(evaluate(comparison.equal(x, y)), [True, False])
    np.testing.assert_array_equal(evaluate(x >= 2), [False, True])
    np.testing.assert_array_equal(evaluate(comparison.not_equal(constant([b"a"]), "a")), [False])


def test_approximate_equal_of_unsigned_numbers_does_not_wrap() -> None:
    x, y = constant([1, 200], "uint8"), constant([3, 100], "uint8")
    np.testing.assert_array_equal(evaluate(comparison.approximate_equal(x, y, 3.0)), [True, False])


def test_shifts_clip_the_number_of_places() -> None:
    x = constant([-8, 8], "int8")
    np.testing.assert_array_equal(
        evaluate(comparison.right_shift(x, constant(100, "int8"))), [-1, 0]
    )
    np.testing.assert_array_equal(evaluate(comparison.left_shift(x, constant(-3, "int8"))), [-8, 8])


def test_select_refuses_a_condition_that_fits_neither_rows_nor_elements() -> None:
    x = array.zeros([2, 3])
    with pytest.raises(errors.InvalidArgumentError, match="rows"):
        comparison.select(constant([True, False, True]), x, x)
    with pytest.raises(errors.InvalidArgumentError):
        comparison.select(array.zeros([2, 3, 1], "bool"), x, x)
    with pytest.raises(errors.InvalidArgumentError):
        comparison.select(constant(True), x, array.zeros([2, 1]))
    assert comparison.select_v2(constant([True, False, True]), x, array.zeros([2, 1])).dims == (
        2,
        3,
    )
