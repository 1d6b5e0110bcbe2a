"""Kernels of all elementwise ops agree with their scalar definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from weft_testing import scalars
from weft_testing.cases import Case, load_cases, widen
from weft_testing.evaluate import evaluate

from weft_graph.ir.builder import create, out
from weft_graph.ir.graph import Graph
from weft_graph.ir.op_def import lookup_op
from weft_graph.ir.scalar import PRIMITIVES
from weft_tensor import dtypes

MOST = 12
"""Elements of a case that are looked at."""


def _flat(arrays: list[Any]) -> list[Any]:
    return [each for item in arrays for each in (item if isinstance(item, list) else [item])]


def _broadcasts(case: Case, dtype: str) -> bool:
    """Return True if the inputs broadcast like NumPy's, which selects by row and NCHW do not."""
    shapes = [array.shape for array in _flat(case.arrays(dtype))]
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return False
    return case.op != "Select" or shapes[0] in ((), shapes[1])


def _cases() -> dict[str, list[Case]]:
    """The cases of each op that has a scalar definition."""
    found: dict[str, list[Case]] = {}
    for cases in load_cases().values():
        for case in cases:
            if case.op_def.traits.scalar is not None:
                found.setdefault(case.op, []).append(case)
    return found


@pytest.mark.parametrize("op", sorted(_cases()))
def test_a_kernel_computes_the_definition(op: str) -> None:
    rows = [(c, t) for c in _cases()[op] for t in c.dtypes if _broadcasts(c, t)]
    assert rows
    for case, dtype in rows:
        _compare(case, dtype)


def _compare(case: Case, dtype: str) -> None:
    arrays = case.arrays(dtype)
    attrs = dict(case.attrs)
    if dtype and case.type_attr in case.op_def.attrs:
        attrs[case.type_attr] = dtypes.as_dtype(dtype)
    with Graph().as_default():
        point = {}

        def feed(array: Any) -> Any:
            element = dtypes.string if array.dtype.kind == "O" else dtypes.from_numpy(array.dtype)
            fed = out("TestInput", (), {"dtype": element, "shape": array.shape})
            point[fed] = array
            return fed

        inputs = [list(map(feed, x)) if isinstance(x, list) else feed(x) for x in arrays]
        node = create(case.op, inputs, attrs)
        result = np.asarray(evaluate(node.outputs[0], point))
    definition = node.op_def.traits.scalar
    assert definition is not None
    output = node.outputs[0].dtype
    expression = definition.expression([value.dtype for value in node.inputs], output)
    whole = [np.broadcast_to(array, result.shape) for array in _flat(arrays)]
    for at in list(np.ndindex(result.shape))[:MOST]:
        want = scalars.computed(expression, [array[at] for array in whole], node.attrs)
        limits = case.tolerance.get(output.name)
        if limits is None:
            assert result[at] == want, (case, dtype, at, result[at], want)
        else:
            got = widen(np.asarray(result[at]))
            np.testing.assert_allclose(got, want, *limits, err_msg=f"{case} {dtype} {at}")


def test_the_reference_knows_every_primitive() -> None:
    known = {"cast", "popcount", "next_after", *scalars._OF_ALL, *scalars._OF_OTHERS}
    assert set(PRIMITIVES) <= known | set(scalars._OF_INTEGERS) | set(scalars._OF_COMPLEX)


def test_the_reference_computes() -> None:
    definition = lookup_op("Relu").traits.scalar
    assert definition is not None
    relu = definition.expression([dtypes.float32], dtypes.float32)
    assert [scalars.computed(relu, [np.float32(x)], {}) for x in (-2, 3)] == [0, 3]
