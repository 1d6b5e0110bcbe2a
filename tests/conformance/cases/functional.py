"""Cases of calls: functions and their results in NumPy.

A call needs its function in the library of its graph, so `CASES` is empty; `FUNCTION_CASES` are run
by tests/exec/functions/test_functions.py for values and tests/autodiff/grads/test_functions.py for
gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from weft_testing.cases import BOOL, FLOATS, NUMBERS, STRING, Case

import weft as wf
from weft_graph.ir.node import Output

Array = np.ndarray[Any, Any]
CASES: list[Case] = []
ALL = (*NUMBERS, *BOOL, *STRING)


class FunctionCase:
    """One function.

    Args:
      name: of the case.
      shapes: of its arguments.
      build: from the arguments to a list of results.
      expected: the same over NumPy arrays.
      dtypes: element types of the arguments.
    """

    def __init__(
        self,
        name: str,
        shapes: Sequence[tuple[int, ...]],
        build: Callable[..., list[Output]],
        expected: Callable[..., list[Any]],
        dtypes: Sequence[str] = FLOATS,
    ) -> None:
        self.name = name
        self.shapes = shapes
        self.build = build
        self.expected = expected
        self.dtypes = tuple(dtypes)

    def arrays(self, dtype: str, rng: np.random.Generator) -> list[Array]:
        """Values of the arguments; small whole numbers, which are exact in every type."""
        return [_values(shape, dtype, rng) for shape in self.shapes]


def _values(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> Array:
    from weft_tensor import dtypes

    numbers = rng.integers(1, 5, shape)
    if dtype == "string":
        flat = [b"%d" % number for number in numbers.reshape(-1)]
        return np.array(flat, object).reshape(shape)
    return numbers.astype(dtypes.as_dtype(dtype).numpy)


def _swap(a: Output, b: Output) -> list[Output]:
    return [b, a]


def _arithmetic(a: Output, b: Output) -> list[Output]:
    return [a * b + a, a - b]


def _nothing_used(a: Output, b: Output) -> list[Output]:
    return [b * b]


def _same_twice(a: Output) -> list[Output]:
    squared = a * a
    return [squared, squared]


def _branch(a: Output, b: Output) -> list[Output]:
    total = wf.reduce_sum(wf.cast(a, wf.float32))
    return [wf.cond(total > 8.0, lambda: a * b, lambda: a + b), b]


def _branch_expected(a: Array, b: Array) -> list[Any]:
    return [a * b if a.astype(np.float32).sum() > 8.0 else a + b, b]


def _loop(a: Output, b: Output) -> list[Output]:
    def body(i: Output, x: Output) -> tuple[Output, Output]:
        return i + 1, x * b

    return [wf.while_loop(lambda i, x: i < 2, body, [0, a])[1]]


def _array(a: Output) -> list[Output]:
    ta = wf.TensorArray(a.dtype, 3)
    for i in range(3):
        ta = ta.write(2 - i, a[i])
    return [ta.stack()]


def _constant(a: Output) -> list[Output]:
    return [wf.constant([1, 2], wf.int32), a + a]


FUNCTION_CASES = [
    FunctionCase("swap", [(2, 3), ()], _swap, lambda a, b: [b, a], ALL),
    FunctionCase(
        "arithmetic", [(2, 3), (3,)], _arithmetic, lambda a, b: [a * b + a, a - b], NUMBERS
    ),
    FunctionCase("an argument unused", [(2,), (3,)], _nothing_used, lambda a, b: [b * b]),
    FunctionCase("a result twice", [(2, 2)], _same_twice, lambda a: [a * a, a * a]),
    FunctionCase("branch", [(3,), (3,)], _branch, _branch_expected),
    FunctionCase("loop", [(3,), (3,)], _loop, lambda a, b: [a * b * b]),
    FunctionCase("array", [(3, 2)], _array, lambda a: [a[::-1]], ALL),
    FunctionCase("constant", [(0, 2)], _constant, lambda a: [np.array([1, 2], np.int32), a + a]),
    FunctionCase("large", [(100, 100), (100, 100)], _arithmetic, lambda a, b: [a * b + a, a - b]),
]
