"""Cases of TensorArrays: small programs over one or two arrays, with results in NumPy.

Their ops take handles rather than arrays, so `CASES` is empty; `ARRAY_CASES` are run by
tests/exec/kernels/test_tensor_array.py for values and tests/autodiff/grads/test_tensor_array.py for
gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from weft_testing.cases import BOOL, NUMBERS, STRING, Case

from weft_graph.control_flow.tensor_array import TensorArray
from weft_graph.ir.node import Output
from weft_graph.ops.shapes import shape as shape_of
from weft_tensor import dtypes

Array = np.ndarray[Any, Any]
CASES: list[Case] = []
ALL = (*NUMBERS, *BOOL, *STRING)


class ArrayCase:
    """One program.

    Args:
      name: of the case.
      shapes: of its inputs.
      build: from the inputs to the outputs.
      expected: the same over NumPy arrays.
    """

    dtypes = ALL

    def __init__(
        self,
        name: str,
        shapes: Sequence[tuple[int, ...]],
        build: Callable[..., list[Output]],
        expected: Callable[..., list[Any]],
    ) -> None:
        self.name = name
        self.shapes = shapes
        self.build = build
        self.expected = expected

    def arrays(self, dtype: str, rng: np.random.Generator) -> list[Array]:
        """Values of the inputs, none of them the type's zero."""
        return [_values(shape, dtype, rng) for shape in self.shapes]


def _values(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> Array:
    numbers = rng.integers(1, 100, shape)
    if dtype == "string":
        flat = [b"%d" % number for number in numbers.reshape(-1)]
        return np.array(flat, object).reshape(shape)
    return numbers.astype(dtypes.as_dtype(dtype).numpy)


def zeros(shape: Any, like: Array) -> Array:
    """Zeros of the element type of `like`; empty strings."""
    return np.full(shape, b"", object) if like.dtype.kind == "O" else np.zeros(shape, like.dtype)


def _array(like: Output, size: Any, **options: Any) -> TensorArray:
    return TensorArray(like.dtype, size, **options)


def _write_read(a: Output, b: Output) -> list[Output]:
    ta = _array(a, 3).write(0, a).write(2, b)
    return [ta.read(2), ta.read(0)]


def _write_stack(a: Output, b: Output) -> list[Output]:
    return [_array(a, 2).write(1, a).write(0, b).stack()]


def _read_often(a: Output, b: Output) -> list[Output]:
    ta = _array(a, 2, clear_after_read=False).write(0, a).write(1, b)
    return [ta.read(0), ta.gather([1, 0, 1]), ta.stack(), ta.read(0)]


def _unstack_stack(a: Output) -> list[Output]:
    return [_array(a, 4).unstack(a).stack()]


def _unstack_read(a: Output) -> list[Output]:
    ta = _array(a, 0, dynamic_size=True).unstack(a)
    return [ta.read(2), ta.read(0)]


def _scatter_gather(a: Output) -> list[Output]:
    ta = _array(a, 5, clear_after_read=False).scatter([3, 1], a)
    return [ta.gather([1, 3, 1, 1]), ta.read(3)]


def _split_concat(a: Output) -> list[Output]:
    return [_array(a, 3, infer_shape=False).split(a, [1, 0, 4]).concat()]


def _split_more(a: Output, b: Output) -> list[Output]:
    first, second = (
        TensorArray(a.dtype, 3, dynamic_size=True).split(a, [1, 1, 1]) for _ in range(2)
    )
    rows = [b[i : i + 1] for i in range(2)]
    longer = first.write(3, rows[0]).write(4, rows[1])
    return [longer.concat(), second.write(4, rows[0]).gather([4, 0])[:, 0]]


def _split_mixed(a: Output, b: Output) -> list[Output]:
    array = TensorArray(a.dtype, 2, dynamic_size=True, infer_shape=False)
    array = array.split(a, [2, 1]).write(2, b[0])
    return [array.read(1), array.read(2)]


def _split_read(a: Output) -> list[Output]:
    ta = _array(a, 3, infer_shape=False).split(a, np.array([1, 3, 1], np.int64))
    return [ta.read(2), ta.read(1)]


def _split_evenly(a: Output) -> list[Output]:
    return [_array(a, 2).split(a, [2, 2]).stack()]


def _write_concat(a: Output, b: Output) -> list[Output]:
    return [_array(a, 2, infer_shape=False).write(1, a).write(0, b).concat()]


def _grow(a: Output) -> list[Output]:
    ta = _array(a, 1, dynamic_size=True).write(3, a).write(0, a)
    return [ta.gather([3, 0])]


def _leave_out(a: Output, b: Output) -> list[Output]:
    ta = _array(a, 4, element_shape=[2]).write(1, a).write(3, b)
    return [ta.stack()]


def _leave_out_rank_0(a: Output) -> list[Output]:
    ta = _array(a, 3, element_shape=[], clear_after_read=False).write(1, a)
    return [ta.read(0), ta.stack(), ta.read(1)]


def _leave_out_concat(a: Output) -> list[Output]:
    return [_array(a, 2, element_shape=[2, 3]).write(1, a).concat()]


def _two_arrays(a: Output) -> list[Output]:
    first = _array(a, 3).unstack(a)
    second = _array(a, 3)
    for i in range(3):
        second = second.write(2 - i, first.read(i))
    return [second.identity().stack()]


def _no_elements(a: Output) -> list[Output]:
    ta = _array(a, 0, element_shape=[3])
    concatenated = _array(a, 0, element_shape=[None, 3]).concat()
    return [ta.stack(), concatenated, _array(a, 0).unstack(a).stack()]


def _gather_nothing(a: Output) -> list[Output]:
    return [_array(a, 4).unstack(a).gather(np.zeros(0, np.int32))]


def _computed_lengths(a: Output) -> list[Output]:
    half = shape_of(a)[0] / 2
    lengths = [half, half]
    return [_array(a, 2, infer_shape=False).split(a, lengths).read(1)]


ARRAY_CASES = [
    ArrayCase("write and read", [(2, 3), (2, 3)], _write_read, lambda a, b: [b, a]),
    ArrayCase("write and read rank 0", [(), ()], _write_read, lambda a, b: [b, a]),
    ArrayCase("write and stack", [(3,), (3,)], _write_stack, lambda a, b: [np.stack([b, a])]),
    ArrayCase("write and stack rank 0", [(), ()], _write_stack, lambda a, b: [np.stack([b, a])]),
    ArrayCase(
        "write and stack no values",
        [(0, 2), (0, 2)],
        _write_stack,
        lambda a, b: [np.stack([b, a])],
    ),
    ArrayCase(
        "read often",
        [(2,), (2,)],
        _read_often,
        lambda a, b: [a, np.stack([b, a, b]), np.stack([a, b]), a],
    ),
    ArrayCase(
        "read often rank 0",
        [(), ()],
        _read_often,
        lambda a, b: [a, np.stack([b, a, b]), np.stack([a, b]), a],
    ),
    ArrayCase("unstack and stack", [(4, 3)], _unstack_stack, lambda a: [a]),
    ArrayCase("unstack and stack a vector", [(4,)], _unstack_stack, lambda a: [a]),
    ArrayCase("unstack and read", [(4, 3)], _unstack_read, lambda a: [a[2], a[0]]),
    ArrayCase("unstack and read a vector", [(4,)], _unstack_read, lambda a: [a[2], a[0]]),
    ArrayCase("scatter", [(2, 3)], _scatter_gather, lambda a: [a[[1, 0, 1, 1]], a[0]]),
    ArrayCase("split and concat", [(5, 2)], _split_concat, lambda a: [a]),
    ArrayCase("split and read", [(5,)], _split_read, lambda a: [a[4:], a[1:4]]),
    ArrayCase(
        "split and more",
        [(3, 2), (2, 2)],
        _split_more,
        lambda a, b: [np.concatenate([a, b]), np.stack([b[0], a[0]])],
    ),
    ArrayCase("split and other ranks", [(3, 2), (2, 2)], _split_mixed, lambda a, b: [a[2:], b[0]]),
    ArrayCase("split evenly", [(4, 2)], _split_evenly, lambda a: [a.reshape(2, 2, 2)]),
    ArrayCase(
        "write and concat", [(2, 2), (1, 2)], _write_concat, lambda a, b: [np.vstack([b, a])]
    ),
    ArrayCase("grow", [(2,)], _grow, lambda a: [np.stack([a, a])]),
    ArrayCase(
        "leave out",
        [(2,), (2,)],
        _leave_out,
        lambda a, b: [np.stack([zeros(2, a), a, zeros(2, a), b])],
    ),
    ArrayCase(
        "leave out rank 0",
        [()],
        _leave_out_rank_0,
        lambda a: [zeros((), a), np.stack([zeros((), a), a, zeros((), a)]), a],
    ),
    ArrayCase(
        "leave out and concat",
        [(2, 3)],
        _leave_out_concat,
        lambda a: [np.vstack([zeros((2, 3), a), a])],
    ),
    ArrayCase("two arrays", [(3, 2)], _two_arrays, lambda a: [a[::-1]]),
    ArrayCase("no elements", [(0, 3)], _no_elements, lambda a: [a, a, a]),
    ArrayCase("gather nothing", [(4, 3)], _gather_nothing, lambda a: [a[:0]]),
    ArrayCase("computed lengths", [(6, 2)], _computed_lengths, lambda a: [a[3:]]),
]
