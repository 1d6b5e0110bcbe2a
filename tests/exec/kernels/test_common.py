from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from weft_testing.evaluate import Evaluator, HostDevice

import weft as wf
from weft_exec.kernels import bessel, common, special
from weft_exec.kernels.registry import find_kernel
from weft_graph.ir.builder import out
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Output
from weft_tensor import dtypes


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as graph:
        yield graph


def feed(shape: Any, dtype: str = "float32") -> Output:
    return out("Placeholder", (), {"dtype": dtypes.as_dtype(dtype), "shape": shape})


def made(output: Output, device: HostDevice) -> Any:
    entry = find_kernel(output.node, "CPU")
    assert entry is not None
    return entry.make(output.node, device)


def test_scalars_take_pythons_operator_and_small_arrays_the_bare_function() -> None:
    device = HostDevice()
    assert made(feed([]) + feed([]), device) is operator.add
    assert made(feed([8]) + feed([8]), device) is np.add
    assert made(wf.exp(feed([8])), device) is np.exp


BUILDERS: dict[str, Any] = {
    "Neg": wf.negative,
    "Mul": lambda x: wf.multiply(x, x),
    "AddN": lambda x: wf.add_n([x, x, x]),
    "Cast": lambda x: wf.cast(x, "int32"),
    "Erf": wf.erf,
    "Sigmoid": wf.sigmoid,
    "Cumsum": wf.cumsum,
    "ClipByValue": lambda x: wf.clip_by_value(x, 0.0, 1.0),
    "MatMul": lambda x: wf.matmul(wf.cast(1.0, "float32") * [[1.0]], x),
    "Sum": lambda x: wf.reduce_sum(x, 0),
}


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("op", sorted(BUILDERS))
@pytest.mark.parametrize("extra", [0, 1])
def test_results_over_the_limit_come_from_the_pool(op: str, known: bool, extra: int) -> None:
    value = np.ones((1, common.LARGE // 4 + extra), np.float32)
    x = feed(value.shape if known else (None, None))
    evaluator = Evaluator()
    result = evaluator.run(BUILDERS[op](x), {x: value})
    assert result.nbytes == common.LARGE + 4 * extra
    assert evaluator.device.pooled == extra


def test_matrices_are_transposed_without_a_copy() -> None:
    seen: list[Any] = []

    class Recorder(np.ndarray[Any, Any]):
        def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
            seen.extend(inputs)
            plain = [np.asarray(value) for value in inputs]
            return getattr(ufunc, method)(*plain, **kwargs)

    a = np.ones((40, 50), np.float32).view(Recorder)
    fn = made(wf.matmul(feed([40, 50]), feed([40, 50]), transpose_a=True), HostDevice())
    assert fn(a, a).shape == (50, 50)
    assert all(np.shares_memory(value, a) for value in seen)
    assert seen[0].strides == a.T.strides


def test_widening_is_for_narrow_floats_only() -> None:
    assert common.accumulation_dtype(dtypes.bfloat16) == np.float32
    assert common.accumulation_dtype(dtypes.float16) == np.float32
    assert common.accumulation_dtype(dtypes.int8) == np.int8
    assert common.widen_value(np.ones(2, dtypes.bfloat16.numpy)).dtype == np.float32
    assert common.widen_value(np.ones(2, np.int16)).dtype == np.int16


def test_special_functions_cross_block_borders() -> None:
    x = np.linspace(-3, 3, 2 * special.BLOCK + 7)
    for function in (special.erf, special.erfc, special.lgamma, bessel.i0e, bessel.i1e):
        whole = function(x)
        parts = np.concatenate([function(x[:100]), function(x[100:])])
        np.testing.assert_array_equal(whole, parts)
        into = np.empty((2, len(x) // 2))
        function(x[: into.size].reshape(into.shape), out=into)
        np.testing.assert_array_equal(into.reshape(-1), whole[: into.size])
        assert function(np.float32(0.5)).dtype == np.float32


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_tail_of_the_error_function(dtype: Any) -> None:
    x = np.linspace(-6, 9 if dtype == np.float32 else 26, 3001).astype(dtype)
    want = np.array([math.erfc(v) for v in x.tolist()], dtype)
    assert (np.abs(special.erfc(x) - want) <= 6 * np.spacing(want)).all()
    ends = np.array([0.0, -0.0, np.inf, -np.inf, 1e30, -1e30, np.nan], dtype)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        np.testing.assert_array_equal(special.erfc(ends), [1, 1, 0, 2, 0, 2, np.nan])


def test_special_functions_take_views() -> None:
    x = np.linspace(0.1, 5, 24).reshape(4, 6)
    np.testing.assert_array_equal(special.erf(x.T), special.erf(x).T)
    column = np.array([[1.0], [2.0]])
    assert special.igamma(column, np.ones(3)).shape == (2, 3)
