from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from weft_testing.evaluate import evaluate

import weft as wf
from weft_graph.ir.builder import constant
from weft_graph.ir.graph import Graph
from weft_graph.ir.indexed_slices import IndexedSlices, SparseTensor
from weft_tensor import dtypes, errors


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as graph:
        yield graph


def test_a_cast_to_its_own_type_adds_no_node() -> None:
    x = constant([1.0])
    assert wf.cast(x, "float32") is x
    assert wf.to_float(x) is x
    assert wf.to_int64(x).dtype == "int64"


def test_casts_reach_into_sparse_values() -> None:
    values, rows = constant([[1.5]]), constant([3])
    slices = wf.cast(IndexedSlices(values, rows), "float64")
    assert isinstance(slices, IndexedSlices)
    assert slices.values.dtype == "float64"
    indices, shape = constant([[0, 1]], "int64"), constant([2, 2], "int64")
    sparse = wf.cast(SparseTensor(indices, constant([1.5]), shape), "int32")
    assert isinstance(sparse, SparseTensor)
    np.testing.assert_array_equal(evaluate(sparse.values), [1])


def test_strings_are_not_cast() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="string"):
        wf.cast(constant(["a"]), "int32")


@pytest.mark.parametrize(
    ("values", "source", "target", "expected"),
    [
        ([300.0, -5.0, 7.9], "float32", "uint8", [255, 0, 7]),
        ([3e9, -3e9, 1.5], "float32", "int32", [2147483520, -(2**31), 1]),
        ([1e30, -1e30], "float64", "int64", [9223372036854774784, -(2**63)]),
        ([70000.0, -70000.0], "float32", "float16", [65504, -65504]),
        ([-1, 70000, 5], "int32", "uint16", [0, 65535, 5]),
        ([60000.0, -60000.0], "float16", "int8", [127, -128]),
        ([60000.0, 1.0], "float16", "int64", [60000, 1]),
        ([1e39, 1.0], "float64", "bfloat16", [3.3895313892515355e38, 1]),
    ],
)
def test_saturate_cast(values: Any, source: str, target: str, expected: Any) -> None:
    x = constant(np.array(values, dtypes.as_dtype(source).numpy))
    result = evaluate(wf.saturate_cast(x, target))
    assert result.dtype == dtypes.as_dtype(target).numpy
    np.testing.assert_array_equal(result.astype(np.float64), np.array(expected, np.float64))


def test_parts_of_real_numbers() -> None:
    x = constant([1.0, -2.0])
    assert wf.real(x) is x
    assert wf.conj(x) is x
    np.testing.assert_array_equal(evaluate(wf.imag(x)), [0, 0])
    np.testing.assert_allclose(evaluate(wf.angle(x)), [0, np.pi], rtol=1e-6)


def test_parts_of_complex_numbers_have_the_real_type() -> None:
    z = wf.complex(constant([3.0], "float64"), [4.0])
    assert z.dtype == "complex128"
    assert wf.imag(z).dtype == "float64"
    assert evaluate(wf.abs(z)) == [5.0]


def test_bitcast_refuses_a_last_axis_of_another_size() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="size 4"):
        wf.bitcast(constant([[1, 2]], "uint8"), "int32")
    assert wf.bitcast(constant([[1, 2]], "int32"), "uint8").dims == (1, 2, 4)


def test_quantized_numbers_are_cast_as_the_integers_that_hold_them() -> None:
    for name in ("qint8", "quint8", "qint16", "quint16", "qint32"):
        with wf.Graph().as_default(), wf.Session() as session:
            numbers = wf.placeholder(wf.float32, [None])
            quantized = wf.cast(numbers, name)
            plain = [wf.cast(quantized, kind) for kind in ("float32", "int64", "bool", "qint32")]
            found = session.run(plain, {numbers: [0.0, 1.9, 100.0]})
            assert quantized.dtype.name == name
            assert [value.tolist() for value in found] == [
                [0.0, 1.0, 100.0], [0, 1, 100], [False, True, True], [0, 1, 100],
            ]  # fmt: skip
