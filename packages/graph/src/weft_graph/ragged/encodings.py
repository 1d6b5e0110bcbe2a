"""Row partitions from encodings passed by a program: conversion and checks.

Python and NumPy values are checked at graph construction, and their splits become a constant. For
tensors, the same conditions become nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft_graph.ir.builder import constant_of, convert_to_tensor, out, output_of
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Output
from weft_graph.ir.traits import Role
from weft_graph.ops import casting, identity, reduction, sequence, shapes
from weft_graph.ops.control import Assert
from weft_graph.ops.join import concat
from weft_graph.ops.search import searchsorted
from weft_graph.ragged.rows import Rows
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType

Array = np.ndarray[Any, Any]
Condition = Callable[..., Any]
"""A condition on arrays or outputs, which have the same operators."""

SPLITS = (dtypes.int32, dtypes.int64)
"""The element types of row partitions."""


class Encoding:
    """A number or vector that encodes a row partition: an output, and an array if it is static.

    Args:
      value: the argument of the program.
      name: its name in messages.
      rank: 0 or 1.
    Raises: InvalidTypeError, InvalidArgumentError: the value does not consist of integers, or its
      rank is wrong.
    """

    def __init__(self, value: Any, name: str, rank: int = 1) -> None:
        self.name = name
        self.array: Array | None = None
        output = output_of(value)
        if output is None:
            keeps = isinstance(value, np.ndarray | np.generic) and value.dtype == np.int32
            try:
                int32 = dtypes.int32 if keeps else dtypes.int64
                output = convert_to_tensor(value, int32, name.replace(" ", "_"))
            except errors.InvalidTypeError as error:
                raise errors.InvalidTypeError(
                    f"{name} must be int32 or int64: {error.message}"
                ) from error
            if output.node.role is Role.CONSTANT:
                self.array = output.node.attrs["value"]
        if output.dtype.base_dtype not in SPLITS:
            raise errors.InvalidTypeError(f"{name} must be int32 or int64, got {output!r}")
        if output.dims is None:
            output = identity.identity(output)
            output.set_shape([None] * rank)
        if len(output.dims or ()) != rank:
            raise errors.InvalidArgumentError(f"{name} must have rank {rank}, got {output!r}")
        self.output = output

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.output.dtype.base_dtype

    def cast(self, dtype: DType) -> None:
        """Convert the encoding to another type."""
        self.output = casting.cast(self.output, dtype)

    def vector(self, array: Any, name: str) -> Output:
        """Return a constant vector of the element type."""
        return constant_of(np.array(array, self.dtype.numpy), name=name)


class Count(Encoding):
    """The number of partitioned values, created as an output on use."""

    def __init__(self, values: Any, dtype: DType) -> None:
        self.name = "values"
        self._values = values
        self._dtype = dtype
        dims = values.dims
        static_count = dims[0] if dims else None
        self.array = None if static_count is None else np.array(static_count)

    @property
    def output(self) -> Output:  # type: ignore[override]  # created on use
        """The number of values, shape ()."""
        nrows = getattr(self._values, "nrows", None)
        if nrows is not None:
            return out("Cast", [nrows()], {"DstT": self._dtype})
        return shapes.shape(self._values, out_type=self._dtype)[0]


class Checks:
    """Checks of encodings: of static ones at construction, of others at run time.

    Args:
      validate: True to check encodings at run time.
    """

    def __init__(self, validate: bool) -> None:
        self._validate = validate
        self._asserts: list[Any] = []

    def require(self, label: str, condition: Condition, *parts: Encoding) -> None:
        """Require that a condition on encodings is true for all elements.

        Raises: InvalidArgumentError: the encodings are static and do not meet it.
        """
        arrays = [part.array for part in parts]
        if all(array is not None for array in arrays):
            if not np.all(condition(*arrays)):
                actual = ", ".join(
                    f"{part.name} {np.array2string(array, threshold=8, separator=', ')}"
                    for part, array in zip(parts, arrays, strict=True)
                    if array is not None
                )
                raise errors.InvalidArgumentError(f"{label}, got {actual}")
        elif self._validate:
            outputs = [part.output for part in parts]
            holds = reduction.reduce_all(condition(*outputs))
            self._asserts.append(Assert(holds, [label, *outputs], summarize=8))

    def after(self, part: Encoding) -> Output:
        """Return an encoding that is available only after all checks have passed."""
        if not self._asserts:
            return part.output
        with get_default_graph().control_dependencies(self._asserts):
            return identity.identity(part.output)

    def after_checks(self, value: Any) -> Any:
        """Return a tensor, ragged or not, that is available only after all checks have passed."""
        if not self._asserts:
            return value
        with get_default_graph().control_dependencies(self._asserts):
            if hasattr(value, "map_elements"):
                return value.map_elements(identity.identity)
            return identity.identity(value)


def equal(a: Any, b: Any) -> Any:
    """Return element-wise equality of arrays or outputs; `==` compares outputs by identity."""
    return (a >= b) & (a <= b)


def _ascends(a: Any) -> Any:
    return a[1:] >= a[:-1]


def unify_types(*parts: Encoding | None) -> None:
    """Cast all encodings to int64 if one of them is int64."""
    present = [part for part in parts if part is not None]
    if any(part.dtype is dtypes.int64 for part in present):
        for part in present:
            part.cast(dtypes.int64)


def splits_of(lengths: Output) -> Output:
    """Return the row splits for row lengths."""
    zero = constant_of(np.zeros(1, lengths.dtype.base_dtype.numpy))
    return concat([zero, reduction.cumsum(lengths)], 0)


def from_splits(row_splits: Any, values: Any, validate: bool) -> Rows:
    """Return rows from their splits.

    Raises: InvalidArgumentError: they do not begin with 0, decrease, or do not end with the number
      of values; for tensors at run time, if `validate` is set.
    """
    splits = Encoding(row_splits, "row_splits")
    if splits.output.dims == (0,):
        raise errors.InvalidArgumentError("row_splits must have at least one element, got none")
    checks = Checks(validate)
    checks.require("row_splits must begin with 0", lambda s: equal(s[:1], 0), splits)
    checks.require("row_splits must not decrease", _ascends, splits)
    _fits(checks, "row_splits must end with the number of values", lambda s: s[-1], splits, values)
    return Rows(checks.after(splits))


def _fits(checks: Checks, label: str, total: Condition, part: Encoding, values: Any) -> None:
    checks.require(label, lambda p, n: equal(total(p), n), part, Count(values, part.dtype))


def from_lengths(row_lengths: Any, values: Any, validate: bool) -> Rows:
    """Return rows from their lengths.

    Raises: InvalidArgumentError: one is negative, or they do not add up to the number of values;
      for tensors at run time, if `validate` is set.
    """
    lengths = Encoding(row_lengths, "row_lengths")
    checks = Checks(validate)
    checks.require("row_lengths must not be negative", lambda n: n >= 0, lengths)
    label = "row_lengths must add up to the number of values"
    _fits(checks, label, sum_of_lengths, lengths, values)
    checked = checks.after(lengths)
    if lengths.array is not None and checked is lengths.output:
        splits = lengths.vector([0, *np.cumsum(lengths.array)], "row_splits")
        return Rows(splits, lengths=checked)
    return Rows(splits_of(checked), lengths=checked)


def sum_of_lengths(lengths: Any) -> Any:
    """Return the sum of an array or of an output."""
    return reduction.reduce_sum(lengths) if isinstance(lengths, Output) else lengths.sum()


_MAX_STATIC_ROWS = 1 << 20
"""Largest number of rows with constant splits; more splits are computed at run time."""


def from_ids(value_rowids: Any, values: Any, nrows: Any, validate: bool) -> Rows:
    """Return rows from the row index of each value.

    Args:
      nrows: number of rows; None for the last id plus one.
    Raises: InvalidArgumentError: ids decrease, are not in [0, nrows), or their number is not that
      of the values; for tensors at run time, if `validate` is set.
    """
    ids = Encoding(value_rowids, "value_rowids")
    count = None if nrows is None else Encoding(nrows, "nrows", 0)
    unify_types(ids, count)
    checks = Checks(validate)
    checks.require("value_rowids must not decrease", _ascends, ids)
    checks.require("value_rowids must not be negative", lambda i: i[:1] >= 0, ids)
    _fits(checks, "value_rowids must be as many as the values", _length, ids, values)
    if count is not None:
        checks.require("nrows must not be negative", lambda n: n >= 0, count)
        checks.require("value_rowids must be less than nrows", lambda i, n: i[-1:] < n, ids, count)
    checked = checks.after(ids)
    total = _rows_of(ids, count)
    if total is not None and total <= _MAX_STATIC_ROWS and checked is ids.output:
        assert ids.array is not None
        splits = ids.vector(np.searchsorted(ids.array, np.arange(total + 1)), "row_splits")
        return Rows(splits, value_rowids=checked, nrows=None if count is None else count.output)
    if count is None:
        first = constant_of(np.array([-1], ids.dtype.numpy))
        last = concat([first, checked], 0)[-1]
        number = last + 1
    else:
        number = count.output
    splits = splits_by_ids(checked, number)
    if count is not None and count.array is not None:
        splits.set_shape([int(count.array) + 1])
    return Rows(splits, value_rowids=checked, nrows=number)


def _length(vector: Any) -> Any:
    if isinstance(vector, Output):
        return shapes.shape(vector, out_type=vector.dtype.base_dtype)[0]
    return len(vector)


def _rows_of(ids: Encoding, count: Encoding | None) -> int | None:
    """Return the static number of rows, or None if ids or count are not static."""
    if ids.array is None:
        return None
    if count is None:
        return int(ids.array[-1]) + 1 if ids.array.size else 0
    return None if count.array is None else int(count.array)


def splits_by_ids(ids: Output, nrows: Output) -> Output:
    """Return row splits from the row index of each value."""
    return searchsorted(ids, sequence.range(nrows + 1), out_type=ids.dtype.base_dtype)


def from_starts(row_starts: Any, values: Any, validate: bool) -> Rows:
    """Return rows from their starts.

    Raises: InvalidArgumentError: the first is not 0, they decrease, or there are values without
      rows; for tensors at run time, if `validate` is set.
    """
    starts = Encoding(row_starts, "row_starts")
    checks = Checks(validate)
    total = Count(values, starts.dtype)
    checks.require("row_starts must begin with 0", lambda s: equal(s[:1], 0), starts)
    checks.require("row_starts must not decrease", _ascends, starts)
    label = "row_starts must not be above the number of values"
    checks.require(label, lambda s, n: s <= n, starts, total)
    label = "there must be no values without row_starts"
    checks.require(label, lambda s, n: (n <= 0) | (_length(s) > 0), starts, total)
    return Rows(_concat_splits(checks, starts, [starts, total]))


def from_limits(row_limits: Any, values: Any, validate: bool) -> Rows:
    """Return rows from their limits.

    Raises: InvalidArgumentError: they decrease, are negative, or do not end with the number of
      values; for tensors at run time, if `validate` is set.
    """
    limits = Encoding(row_limits, "row_limits")
    checks = Checks(validate)
    checks.require("row_limits must not decrease", _ascends, limits)
    checks.require("row_limits must not be negative", lambda s: s[:1] >= 0, limits)
    zero = Encoding(np.array(0, limits.dtype.numpy), "zero", 0)
    label = "row_limits must end with the number of values"
    _fits(checks, label, _last_or_zero, limits, values)
    return Rows(_concat_splits(checks, limits, [zero, limits]))


def _last_or_zero(limits: Any) -> Any:
    if isinstance(limits, Output):
        return concat([constant_of(np.zeros(1, limits.dtype.base_dtype.numpy)), limits], 0)[-1]
    return limits[-1] if len(limits) else 0


def _concat_splits(checks: Checks, template: Encoding, parts: Sequence[Encoding]) -> Output:
    """Concatenate parts of splits; the result is a constant if all parts are static."""
    arrays = [part.array for part in parts]
    checked = checks.after(template)
    if checked is template.output and all(array is not None for array in arrays):
        flat_arrays = [np.reshape(array, -1) for array in arrays if array is not None]
        return template.vector(np.concatenate(flat_arrays), "row_splits")
    return concat(
        [shapes.reshape(checked if part is template else part.output, [-1]) for part in parts], 0
    )


def from_uniform(uniform_row_length: Any, values: Any, nrows: Any, validate: bool) -> Rows:
    """Return rows of the same length.

    Args:
      nrows: number of rows; required if the length is 0.
    Raises: InvalidArgumentError: the number of values does not match; for tensors at run time, if
      `validate` is set.
    """
    length = Encoding(uniform_row_length, "uniform_row_length", 0)
    count = None if nrows is None else Encoding(nrows, "nrows", 0)
    unify_types(length, count)
    checks = Checks(validate)
    total = Count(values, length.dtype)
    checks.require("uniform_row_length must not be negative", lambda n: n >= 0, length)
    if count is not None:
        checks.require("nrows must not be negative", lambda n: n >= 0, count)
        label = "uniform_row_length times nrows must be the number of values"
        checks.require(label, lambda n, k, v: equal(n * k, v), length, count, total)
    else:
        label = "uniform_row_length must divide the number of values, and without nrows not be 0"
        checks.require(label, _divides, length, total)
    checked = checks.after(length)
    parts = [part.array for part in (length, count or total)]
    if checked is length.output and all(array is not None for array in parts):
        size, number = [int(array) for array in parts if array is not None]
        rows = number if count is not None else number // max(size, 1)
        if rows > _MAX_STATIC_ROWS:
            return uniform_rows(checked, constant_of(np.array(rows, length.dtype.numpy)))
        splits = length.vector(np.arange(rows + 1) * size, "row_splits")
        output = None if count is None else count.output
        return Rows(splits, nrows=output, uniform=checked)
    if count is None:
        unit = constant_of(np.array(1, length.dtype.numpy))
        number_of_rows = total.output // out("Maximum", [checked, unit])
    else:
        number_of_rows = count.output
    return uniform_rows(checked, number_of_rows)


def _divides(size: Any, total: Any) -> Any:
    if isinstance(size, Output):
        return (size * (total // out("Maximum", [size, 1])) >= total) & ((size > 0) | (total <= 0))
    return size * (total // max(size, 1)) == total and (size > 0 or total == 0)


def uniform_rows(length: Output, nrows: Output) -> Rows:
    """Return rows of the same length; length and number of rows have the same type."""
    splits = sequence.range(nrows + 1) * length
    return Rows(splits, nrows=nrows, uniform=length)
