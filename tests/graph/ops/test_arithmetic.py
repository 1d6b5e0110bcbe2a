""""""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from weft_testing.evaluate import evaluate

import weft as wf
from weft_graph.ir.builder import constant, out
from weft_graph.ir.graph import Graph
from weft_graph.ir.indexed_slices import IndexedSlices
from weft_graph.ir.node import Output
from weft_graph.ops import array
from weft_tensor import dtypes, errors


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as graph:
        yield graph


def value(x: Any, dtype: str = "float32") -> Output:
    return constant(x, dtype)


def test_a_python_number_takes_the_type_of_the_tensor_beside_it() -> None:
    x = value([1.0, 2.0], "float16")
    for result in (x + 1, 1 + x, x - 1, 2 * x, x / 2, 1 / x, x // 2, x % 2, x**2, 2**x):
        assert result.dtype == "float16"
    np.testing.assert_array_equal(evaluate(7 - value([1, 2], "int32")), [6, 5])
    np.testing.assert_array_equal(evaluate(7 // value([2, -2], "int32")), [3, -4])
    np.testing.assert_array_equal(evaluate(-7 % value([2, 3], "int32")), [1, 2])


@pytest.mark.parametrize("operation", [lambda x: x + 1.5, lambda x: x / 1.5, lambda x: 1.5 * x])
def test_a_float_beside_integers_is_refused(operation: Any) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="int32"):
        operation(value(3, "int32"))


def test_tensors_of_different_types_are_refused() -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"float32|float64"):
        value(1.0, "float32") / value(1.0, "float64")


def test_shapes_that_do_not_broadcast_are_refused_with_both() -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"\[2,3\].*\[4\]"):
        wf.add(array.zeros([2, 3]), array.zeros([4]))


def test_integers_to_negative_powers_are_refused() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="negative integer powers"):
        evaluate(wf.pow(value([2, 3], "int32"), value([1, -1], "int32")))


def test_scalar_mul_takes_a_scalar_and_keeps_slices_sparse() -> None:
    np.testing.assert_array_equal(evaluate(wf.scalar_mul(2, value([1.0, 2.0]))), [2, 4])
    slices = IndexedSlices(value([[1.0]]), value([3], "int32"))
    scaled = wf.scalar_mul(2.0, slices)
    assert isinstance(scaled, IndexedSlices)
    np.testing.assert_array_equal(evaluate(scaled.values), [[2.0]])
    with pytest.raises(errors.InvalidArgumentError, match="scalar"):
        wf.scalar_mul([1.0, 2.0], value([1.0, 2.0]))


def test_add_n() -> None:
    x = value([1.0, 2.0])
    assert wf.add_n([x]) is x
    np.testing.assert_array_equal(evaluate(wf.add_n([x, x, [1.0, 1.0]])), [3, 5])
    with pytest.raises(errors.InvalidArgumentError, match="at least one"):
        wf.add_n([])
    with pytest.raises(errors.InvalidArgumentError, match=r"\[2\]"):
        wf.add_n([x, value([1.0])])


def test_accumulate_n_knows_its_shape() -> None:
    x = out("Placeholder", (), {"dtype": dtypes.float32, "shape": None})
    assert wf.accumulate_n([x, x], shape=[2, 3]).dims == (2, 3)
    with pytest.raises(errors.InvalidArgumentError):
        wf.accumulate_n([value([1.0])] * 2, shape=[3])


def test_clip_by_value_refuses_bounds_that_would_enlarge_the_result() -> None:
    clipped = wf.clip_by_value(value([-2.0, 0.5, 3.0]), -1.0, [2.0, 2.0, 2.5])
    np.testing.assert_array_equal(evaluate(clipped), [-1, 0.5, 2.5])
    with pytest.raises(errors.InvalidArgumentError, match="broadcast"):
        wf.clip_by_value(value([1.0, 2.0]), array.zeros([3, 2]), 1.0)


def test_round_and_abs_by_kind() -> None:
    whole = value([1, -2], "int32")
    assert wf.round(whole) is whole
    np.testing.assert_array_equal(evaluate(wf.round(value([0.5, 1.5, 2.5]))), [0, 2, 2])
    magnitude = wf.abs(value(3 + 4j, "complex64"))
    assert magnitude.dtype == "float32"
    assert evaluate(magnitude) == 5


def test_a_result_is_a_numpy_scalar_of_the_exact_type() -> None:
    for dtype in ("int8", "uint8", "float16", "bfloat16", "float32"):
        result = evaluate(value(3, dtype) * value(5, dtype) - value(1, dtype))
        assert result.dtype == dtypes.as_dtype(dtype).numpy
        assert float(result) == 14


def test_large_results_come_from_the_pool() -> None:
    from weft_testing.evaluate import Evaluator

    from weft_exec.kernels import common

    x = out("Placeholder", (), {"dtype": dtypes.float32, "shape": None})
    evaluator = Evaluator()
    evaluator.run(x * 2.0, {x: np.ones(common.LARGE // 4)})
    assert evaluator.device.pooled == 0
    evaluator.run(x * 2.0, {x: np.ones(common.LARGE // 4 + 1)})
    assert evaluator.device.pooled == 1
