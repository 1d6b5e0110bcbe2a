"""Tensors and variables used as values of Python and NumPy: one table of uses and words."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft_tensor import errors

TYPE = errors.InvalidTypeError

Use = Callable[[Any], Any]


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    with wf.Graph().as_default():
        yield


def _loop(x: Any) -> None:
    for _ in x:
        pass


OF_TENSORS_AND_VARIABLES: list[tuple[Use, type[Exception], str]] = [
    (np.sum, TYPE, "use weft's, such as reduce_sum for np.sum"),
    (np.sqrt, TYPE, "such as reduce_sum"),
    (np.max, TYPE, "such as reduce_sum"),
    (np.asarray, TYPE, "fetch it with Session.run"),
    (lambda x: np.array([x, x]), TYPE, "stack for np.array([x, y])"),
    (lambda x: np.add(np.ones(3), x), TYPE, "such as reduce_sum"),
    (np.float32, TYPE, "fetch it with Session.run"),
    (float, TYPE, "instead of float(x) use cast(x, float32)"),
    (int, TYPE, "instead of int(x) use cast(x, int32)"),
    (complex, TYPE, "instead of complex(x) use cast(x, complex64)"),
    (math.sqrt, TYPE, "instead of math.sqrt(x) sqrt(x)"),
    (math.floor, TYPE, "fetch it with Session.run"),
    (round, TYPE, "instead of the builtin round(x)"),
    (bool, TYPE, "has no truth value at graph construction: use cond or where"),
    (lambda x: x and 1, TYPE, "logical_and instead of `and`"),
    (lambda x: max(x, 0), TYPE, "maximum instead of max()"),
    (lambda x: sorted([x, 0]), TYPE, "has no truth value"),
    (lambda x: 1 in x, TYPE, "instead of `value in x` use reduce_any(equal(x, value))"),
    (lambda x: [1, 2][x], TYPE, "instead of values[x] use gather(values, x)"),
    (range, TYPE, "instead of range(x) the graph's range or while_loop"),
    (lambda x: f"{x:.3f}", TYPE, "instead of a format such as '.3f' use as_string(x)"),
    (lambda x: x.sum(), AttributeError, "has no attribute 'sum': use reduce_sum(x)"),
    (lambda x: x.astype("f"), AttributeError, "has no attribute 'astype': use cast(x, dtype)"),
    (lambda x: x.numpy(), AttributeError, "has no attribute 'numpy': use Session.run(x)"),
    (lambda x: x.nonsense, AttributeError, "has no attribute 'nonsense'"),
]

OF_TENSORS: list[tuple[Use, type[Exception], str]] = [
    (lambda x: x.assign(3.0), AttributeError, "use a variable, which supports it"),
    (lambda x: wf.assign(x, 3.0), AttributeError, "use a variable, which supports it"),
    (lambda x: x[0.5], TYPE, "a tensor is indexed by integers"),
]

OTHERS: list[tuple[Callable[[], Any], str]] = [
    (lambda: len(wf.constant(1.0)), "has no len(): it has rank 0"),
    (lambda: _loop(wf.constant(1.0)), "cannot be iterated: it has rank 0"),
    (lambda: len(wf.placeholder(wf.float32)), "its first dimension is unknown"),
    (
        lambda: _loop(wf.placeholder(wf.float32, [None])),
        "use unstack(x, num), map_fn or while_loop",
    ),
    (lambda: len(wf.Variable([1.0])), "a variable has no len(); use variable.shape"),
    (lambda: _loop(wf.Variable([1.0])), "use unstack(variable)"),
    (lambda: np.sum(wf.SparseTensor([[0]], [1.0], [3])), "consists of several tensors"),
    (lambda: np.asarray(wf.IndexedSlices([1.0], [0])), "consists of several tensors"),
]


def _tensors_and_variables() -> list[Any]:
    return [
        wf.constant([1.0, 2.0, 3.0]),
        wf.Variable([1.0, 2.0, 3.0]),
        wf.Variable([1.0, 2.0, 3.0], use_resource=True),
    ]


def test_tensors_and_variables() -> None:
    for x in _tensors_and_variables():
        for use, kind, words in OF_TENSORS_AND_VARIABLES:
            with pytest.raises(kind, match=re.escape(words)):
                use(x)


def test_tensors() -> None:
    for use, kind, words in OF_TENSORS:
        with pytest.raises(kind, match=re.escape(words)):
            use(wf.constant([1.0, 2.0, 3.0]))


def test_others() -> None:
    for call, words in OTHERS:
        with pytest.raises(TYPE, match=re.escape(words)):
            call()


def test_what_tensors_can_do() -> None:
    x, y = wf.constant([1.0, 2.0]), wf.constant(3.0)
    assert x in [x, y] and x not in [y]
    assert f"{x}" == str(x) and len(x) == 2 and not hasattr(x, "nonsense")
    assert getattr(x, "nonsense", None) is None


def test_arrays_leave_operators_to_tensors() -> None:
    x = wf.Variable([1.0, 2.0])
    array = np.ones(2, np.float32)
    results = [array + x, np.float32(2) * x, array - x, array / x, array**x, array < x]
    array += x  # type: ignore[misc]  # NumPy's types do not know what defers to the other operand
    assert [result.op.type for result in results] == [
        "AddV2",
        "Mul",
        "Sub",
        "RealDiv",
        "Pow",
        "Greater",
    ]
    assert array.op.type == "AddV2"  # type: ignore[attr-defined]
