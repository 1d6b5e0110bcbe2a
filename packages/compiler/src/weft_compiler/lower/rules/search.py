"""Search in rows: top-k, and binary search in sorted rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from weft_compiler.ir.expressions import (
    INDEX,
    Expr,
    Load,
    Variable,
    apply,
    cast,
    index,
    number,
    where,
)
from weft_compiler.ir.indices import clamp_index, is_inside, minus, plus, unflatten_index
from weft_compiler.ir.loops import Unique, load, nest
from weft_compiler.ir.program import Allocate, Assign, Body, Buffer, For, If, Let, Store, Var, While
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.rules.gather import require_in_range
from weft_compiler.lower.values import StatementDefinition, Value, compute_value, reduce_value
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.node import Node
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

_FEW: Final = 32
"""Largest k for which one scan keeps a sorted list of k elements; for larger ones the row is
sorted.
"""


def _comes_before(x: Expr, y: Expr) -> Expr:
    """Return the condition that x is larger than y; NaN comes last."""
    result = apply("greater", x, y)
    if x.dtype.is_floating:
        unknown = apply("bit_and", apply("is_nan", y), apply("equal", x, x))
        result = apply("bit_or", result, unknown)
    return result


def _sort_reason(node: Node) -> str:
    """Return why the kernel is preferred: NumPy sorts rows faster than this merge sort."""
    k = node.attrs["k"] if node.type == "TopK" else constant_value(node.inputs[1])
    return (
        f"it selects more than {_FEW} elements of each row"
        if k is not None and int(k) > _FEW
        else ""
    )


@lowers("TopKV2", known_operands=(1,), by_kernel=_sort_reason)
@lowers("TopK", by_kernel=_sort_reason)
def _top_k(op: Operation) -> list[Value]:
    x, shape = op.inputs[0], op.shape()
    size, count = x.shape[-1], shape[-1]
    require(count <= size < 2**31, "k is larger than the number of elements in a row")
    if not math.prod(shape):
        no_index = number(0, dtypes.int32)
        return [
            compute_value(f"{op.name}_{position}", op.dtype(position), shape, lambda *_: no_index)
            for position in range(2)
        ]
    rows = _TopK if count <= _FEW else _MergeSort

    def write(unique: Unique, result: Buffer, source: Buffer) -> Body:
        def row(*position: Expr) -> Body:
            def element_at(i: Expr) -> Expr:
                return load(source, x.shape, (*position, i))

            def store(i: Expr, place: Expr) -> Store:
                return Store(result.name, (*position, i), cast(place, dtypes.int32))

            return rows(unique, x.dtype, size, count).statements(element_at, store)

        return nest(unique, x.shape[:-1], row)

    places = Value(f"{op.name}_places", dtypes.int32, shape, StatementDefinition((x,), write))

    def value(*position: Expr) -> Expr:
        return x.at(*position[:-1], clamp_index(cast(places.at(*position), INDEX), size))

    indices = compute_value(f"{op.name}_1", op.dtype(1), shape, places.at)
    return [compute_value(f"{op.name}_0", x.dtype, shape, value), indices]


Given = Callable[[Expr], Expr]
Put = Callable[[Expr, Expr], Store]


class _TopK:
    """Writer of a top-k scan, which keeps the k largest elements in order.

    Args:
      dtype: element type.
      size, count: the number of elements, and k.
    """

    def __init__(self, unique: Unique, dtype: DType, size: int, count: int) -> None:
        self._unique, self._dtype, self._size, self._count = unique, dtype, size, count
        self._values = Buffer(unique("largest"), dtype, (count,))
        self._places = Buffer(unique("place"), INDEX, (count,))

    def statements(self, element_at: Given, put: Put) -> Body:
        """Return the loops over a row.

        Args:
          element_at: loads an element of the row.
          put: maps a rank and a position in the row to the store of that result.
        """
        first = nest(self._unique, [self._count], lambda i: self._insert(i, element_at(i), i))

        def compare_next(i: Expr) -> Body:
            position = plus(i, self._count)
            value = Variable(self._dtype, self._unique("value"))
            minimum = Load(self._dtype, self._values.name, (index(self._count - 1),))
            insert = self._insert(index(self._count - 1), value, position)
            return (
                Let(value.name, element_at(position)),
                If(_comes_before(value, minimum), insert),
            )

        remaining = nest(self._unique, [self._size - self._count], compare_next)
        result_stores = nest(
            self._unique,
            [self._count],
            lambda i: (put(i, Load(INDEX, self._places.name, (i,))),),
        )
        return (Allocate(self._values), Allocate(self._places), *first, *remaining, *result_stores)

    def _insert(self, last: Expr, value: Expr, place: Expr) -> Body:
        """Move elements smaller than a value up by one, and insert the value before them."""
        position = Variable(INDEX, self._unique("at"))
        candidate = Variable(self._dtype, self._unique("given"))
        previous_slot = clamp_index(minus(position, 1), self._count)
        slot = clamp_index(position, self._count)
        smaller = _comes_before(candidate, Load(self._dtype, self._values.name, (previous_slot,)))
        moving = apply("bit_and", apply("greater", position, index(0)), smaller)
        step = (
            Store(
                self._values.name, (slot,), Load(self._dtype, self._values.name, (previous_slot,))
            ),
            Store(self._places.name, (slot,), Load(INDEX, self._places.name, (previous_slot,))),
            Assign(position.name, minus(position, 1)),
        )
        return (
            Let(candidate.name, value),
            Var(position.name, last),
            While(moving, step),
            Store(self._values.name, (slot,), candidate),
            Store(self._places.name, (slot,), place),
        )


class _MergeSort:
    """Writer of a merge sort of the positions of a row's elements, largest element first.

    See `_TopK`.
    """

    def __init__(self, unique: Unique, dtype: DType, size: int, count: int) -> None:
        self._unique, self._dtype, self._size, self._count = unique, dtype, size, count
        self._runs = [
            (Buffer(unique("keys"), dtype, (size,)), Buffer(unique("places"), INDEX, (size,)))
            for _ in range(2)
        ]

    def statements(self, element_at: Given, put: Put) -> Body:
        """Return the loops over a row; see `_TopK.statements`."""
        (keys, indices), _ = self._runs
        width = Variable(INDEX, self._unique("width"))
        first = nest(
            self._unique,
            [self._size],
            lambda i: (Store(keys.name, (i,), element_at(i)), Store(indices.name, (i,), i)),
        )
        # Two rounds move the runs back to the first buffer.
        rounds = (
            *self._merge_runs(width, 0, 1),
            *self._merge_runs(apply("mul", width, index(2)), 1, 0),
            Assign(width.name, apply("mul", width, index(4))),
        )
        result_stores = nest(
            self._unique, [self._count], lambda i: (put(i, Load(INDEX, indices.name, (i,))),)
        )
        return (
            *[Allocate(buffer) for pair in self._runs for buffer in pair],
            *first,
            Var(width.name, index(1)),
            While(apply("less", width, index(self._size)), rounds),
            *result_stores,
        )

    def _merge_runs(self, width: Expr, source: int, target: int) -> Body:
        """Merge each pair of adjacent sorted runs."""
        unique, size = self._unique, index(self._size)
        names = ("pair", "first", "middle", "end", "i", "j", "t")
        pair, first, middle, end, i, j, t = [Variable(INDEX, unique(name)) for name in names]
        pair_width = apply("mul", width, index(2))
        count = apply("floor_div", plus(size, minus(pair_width, 1)), pair_width)
        (keys, indices), (to_keys, to_places) = self._runs[source], self._runs[target]

        def clamped_index(position: Expr) -> tuple[Expr]:
            return (clamp_index(position, self._size),)

        left_key = Load(self._dtype, keys.name, clamped_index(i))
        right_key = Load(self._dtype, keys.name, clamped_index(j))
        variable = Variable(dtypes.bool_, unique("takes_right"))
        open_right = apply("less", j, end)
        no_left = apply("greater_equal", i, middle)
        better = apply("bit_or", no_left, _comes_before(right_key, left_key))
        step = cast(variable, INDEX)
        selected = clamped_index(where(variable, j, i))
        iteration = (
            Let(variable.name, apply("bit_and", open_right, better)),
            Store(to_keys.name, clamped_index(t), Load(self._dtype, keys.name, selected)),
            Store(to_places.name, clamped_index(t), Load(INDEX, indices.name, selected)),
            Assign(j.name, apply("add", j, step)),
            Assign(i.name, apply("add", i, minus(index(1), step))),
        )
        step_of = Variable(INDEX, unique("step"))
        body = (
            Let(first.name, apply("mul", pair, pair_width)),
            Let(middle.name, apply("minimum", apply("add", first, width), size)),
            Let(end.name, apply("minimum", apply("add", first, pair_width), size)),
            Var(i.name, first),
            Var(j.name, middle),
            For(
                step_of.name,
                apply("sub", end, first),
                (Let(t.name, apply("add", first, step_of)), *iteration),
            ),
        )
        return (For(pair.name, count, body),)


@lowers("InTopK", "InTopKV2")
def _in_top_k(op: Operation) -> Value:
    predictions, targets = op.inputs[:2]
    rows, classes = predictions.shape
    require(targets.shape == (rows,), "the numbers of targets and rows differ")

    def is_valid_target(row: Expr) -> Expr:
        return is_inside(cast(targets.at(row), INDEX), classes)

    if not classes:
        return compute_value(op.name, dtypes.bool_, (rows,), is_valid_target)

    def is_above_target(row: Expr, column: Expr) -> Expr:
        target_prediction = predictions.at(row, clamp_index(cast(targets.at(row), INDEX), classes))
        return cast(apply("greater", predictions.at(row, column), target_prediction), dtypes.int32)

    zero, true = number(0, dtypes.int32), number(True, dtypes.bool_)
    count = reduce_value(f"{op.name}_above", predictions, [1], "add", zero, is_above_target)
    finite = reduce_value(
        f"{op.name}_finite",
        predictions,
        [1],
        "bit_and",
        true,
        lambda *position: apply("is_finite", predictions.at(*position)),
    )

    def element(row: Expr) -> Expr:
        k: Expr = index(int(op.attr("k"))) if len(op.inputs) == 2 else op.inputs[2].at()
        is_in_top_k = apply("less", cast(count.at(row), INDEX), cast(k, INDEX))
        return apply("bit_and", apply("bit_and", is_valid_target(row), finite.at(row)), is_in_top_k)

    return compute_value(op.name, dtypes.bool_, (rows,), element)


# ------------------------------------------------------------------------------- places


def _emit_bisection(size: int, is_before: Callable[[Expr], Expr]) -> Expr:
    """Emit a binary search for the number of sorted elements that come before a value.

    Args:
      size: the number of elements.
      is_before: maps a position to the condition that its element comes before the value.
    """
    result: Expr = index(0)
    for power in reversed(range(size.bit_length())):
        next_result = plus(result, 1 << power)
        in_range = apply("less_equal", next_result, index(size))
        position = clamp_index(minus(next_result, 1), size)
        result = where(apply("bit_and", in_range, is_before(position)), next_result, result)
    return result


@lowers("Bucketize")
def _bucketize(op: Operation) -> Value:
    x, ends = op.inputs[0], np.array(op.attr("boundaries"), np.float32).astype(np.float64)
    require(bool((ends[1:] >= ends[:-1]).all()), "its boundaries are not in ascending order")
    limits = Value(f"{op.name}_boundaries", dtypes.float64, ends.shape, constant=ends)

    def element(*position: Expr) -> Expr:
        value = cast(x.at(*position), dtypes.float64)

        def is_before(position: Expr) -> Expr:
            # NaN comes after all numbers.
            is_at_most = apply("less_equal", limits.at(position), value)
            return apply("bit_or", is_at_most, apply("is_nan", value))

        return _emit_bisection(ends.size, is_before)

    return compute_value(op.name, op.dtype(), x.shape, element)


@lowers("LowerBound", "UpperBound")
def _bound(op: Operation) -> Value:
    keys, values = op.inputs
    compares = "less_equal" if op.node.type == "UpperBound" else "less"
    require(
        keys.shape[0] == values.shape[0], "sorted_inputs and values have different numbers of rows"
    )

    def element(row: Expr, column: Expr) -> Expr:
        value = values.at(row, column)

        def is_before(position: Expr) -> Expr:
            key = keys.at(row, position)
            result = apply(compares, key, value)
            if value.dtype.is_floating:
                unknown = apply("is_nan", value)
                if compares == "less":
                    unknown = apply("bit_and", unknown, apply("equal", key, key))
                result = apply("bit_or", result, unknown)
            return result

        return _emit_bisection(keys.shape[1], is_before)

    return compute_value(op.name, op.dtype(), values.shape, element)


@lowers("UnravelIndex", known_operands=(1,))
def _unravel(op: Operation) -> Value:
    indices, sizes = op.inputs[0], [int(size) for size in op.known_value(1).reshape(-1)]
    dtype, total = op.dtype(), math.prod(sizes)
    require(all(size >= 0 for size in sizes), "a size is negative")

    def element(axis: Expr, *position: Expr) -> Expr:
        places = unflatten_index(
            cast(indices.at(*position), INDEX), [max(size, 1) for size in sizes]
        )
        result: Expr = index(0)
        for axis_index, place in enumerate(places):
            result = where(apply("equal", axis, index(axis_index)), place, result)
        return cast(result, dtype)

    result = compute_value(op.name, dtype, op.shape(), element)
    result.requires = (require_in_range(indices, total),)
    return result
