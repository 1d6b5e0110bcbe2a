"""Conversion of the contents of features to arrays: one feature of many examples at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from weft_graph import proto
from weft_io.records.feature_scanner import (
    BYTES,
    FLOATS,
    INTEGERS,
    KIND_NAMES,
    Payload,
    Rows,
    read_nested,
)
from weft_io.records.protobuf_wire import LEADING_PADDING, TRAILING_PADDING, decode_varints
from weft_tensor import errors
from weft_tensor.shape import format_dims

Array = np.ndarray[Any, Any]
Empty = Callable[[tuple[int, ...], Any], Array]
"""An allocator: returns an uninitialized array for a shape and NumPy dtype."""

NUMPY: Final[dict[int, Any]] = {
    BYTES: np.dtype(object),
    FLOATS: np.dtype(np.float32),
    INTEGERS: np.dtype(np.int64),
}
_STORED: Final = np.dtype("<f4")
_LARGE: Final = 2048
"""Size in bytes above which rows are copied one by one instead of being joined first."""


class Location(NamedTuple):
    """The location in error messages about a feature.

    Attributes:
      names: names of the examples, or empty.
      key: the feature.
    """

    names: Sequence[bytes]
    key: bytes

    def at(self, row: int) -> str:
        """Return the beginning of messages about one example."""
        name = self.names[row].decode("utf-8", "backslashreplace") if self.names else "<unknown>"
        return f"Name: {name}, Key: {self.key.decode()}, Index: {row}."


def flatten(
    rows: Rows, kind: int, empty: Empty = np.empty, expected: int = -1
) -> tuple[Array, Array]:
    """Return all values of a feature, and the number of values in each example.

    Args:
      rows: its contents; None counts as no values.
      expected: the expected number of integers, if known; with another number, the values are
        undefined.
    Returns: shape (total,) of the kind's type; int64 of shape (n,).
    Raises: MalformedVarintsError: contents are not integers.
    """
    if kind == BYTES:
        return _flatten_strings(rows)
    parts = [b"" if row is None else row for row in rows]
    ends = np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)))
    if kind == FLOATS:
        stored = np.frombuffer(b"".join(parts), _STORED)
        values = empty(stored.shape, NUMPY[FLOATS])
        values[...] = stored
        stops = ends // 4
    else:
        packed = b"".join([LEADING_PADDING, *parts, TRAILING_PADDING])
        if expected > len(packed):  # there are not so many: no memory is taken for them
            expected = -1
        values, stops = decode_varints(packed, ends, expected, empty)
    return values, np.diff(stops, prepend=0)


def _flatten_strings(rows: Rows) -> tuple[Array, Array]:
    if all([type(row) is bytes for row in rows]):
        return to_strings(rows), np.ones(len(rows), np.int64)
    lists = [() if row is None else row if isinstance(row, tuple) else (row,) for row in rows]
    values = [value for row in lists for value in row]
    return to_strings(values), np.fromiter(map(len, lists), np.int64, len(lists))


def to_strings(values: Sequence[Any]) -> Array:
    """Return a vector of strings."""
    result = np.empty(len(values), object)
    result[:] = values
    return result


# ----------------------------------------------------------------------------- sparse


def sparse(rows: Rows, kind: int, empty: Empty) -> tuple[Array, Array, Array]:
    """Return a feature as a sparse matrix with one row per example.

    Returns: indices int64 (total, 2), values (total,), dense shape int64 (2,).
    """
    values, counts = flatten(rows, kind, empty)
    return sparse_indices(counts, empty), values, widths(counts)


def sparse_indices(counts: Array, empty: Empty) -> Array:
    """Return the indices of values that fill the rows of a matrix from the left."""
    total = int(counts.sum())
    indices = empty((total, 2), np.dtype(np.int64))
    if total == len(counts) and (counts == 1).all():
        indices[:, 0] = np.arange(total)
        indices[:, 1] = 0
        return indices
    indices[:, 0] = np.repeat(np.arange(len(counts)), counts)
    indices[:, 1] = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    return indices


def widths(counts: Array) -> Array:
    """Return the dense shape of rows with these numbers of values."""
    return np.array([len(counts), counts.max(initial=0)], np.int64)


# ------------------------------------------------------------------------------ dense


def dense(
    rows: Rows,
    kind: int,
    shape: tuple[int, ...],
    default: Array | None,
    empty: Empty,
    location: Location,
) -> Array:
    """Return a feature of a fixed shape.

    Args:
      default: value for examples without the feature; None if it is required.
    Returns: shape (n, *shape).
    Raises: InvalidArgumentError: the feature is missing, or has another number of values.
    """
    if None in rows:
        if default is None:
            raise errors.InvalidArgumentError(
                f"{location.at(rows.index(None))} Feature: {location.key.decode()} "
                f"(data type: {KIND_NAMES[kind]}) is required but could not be found."
            )
        content = content_of(default, kind)
        rows = [content if row is None else row for row in rows]
    size = math.prod(shape)
    if kind == FLOATS:
        lengths = list(map(len, rows))
        if lengths.count(4 * size) != len(rows):
            raise _count_error(np.array(lengths) // 4, kind, shape, location)
        result = empty((len(rows), *shape), NUMPY[kind])
        _write_floats(rows, result.reshape(len(rows), size))
        return result
    single = kind == INTEGERS and size == 1
    if single and (cached := _cached_integers(rows)) is not None:
        return cached.reshape(len(rows), *shape)
    values, counts = flatten(rows, kind, empty, size * len(rows))
    if (counts != size).any():
        raise _count_error(counts, kind, shape, location)
    if single:
        _know_integers(rows, values)
    return values.reshape(len(rows), *shape)


_known: dict[bytes, int] = {}
"""Cache of decoded varints; a lookup takes a tenth of the time of decoding."""
_MAX_CACHED_ROWS: Final = 1 << 14


def _cached_integers(rows: Rows) -> Array | None:
    """Return single integers, such as labels, if the cache has all of them."""
    numbers = list(map(_known.get, rows))
    return None if None in numbers else np.array(numbers, NUMPY[INTEGERS])


def _know_integers(rows: Rows, values: Array) -> None:
    if len(_known) < _MAX_CACHED_ROWS:
        _known.update(zip(rows, values.tolist(), strict=True))


def content_of(values: Array, kind: int) -> Payload:
    """Serialize the values of a feature."""
    if kind == FLOATS:
        return values.astype(_STORED).tobytes()
    if kind == BYTES:
        return tuple(values.reshape(-1).tolist())
    message: bytes = proto.Int64List(value=values.reshape(-1).tolist()).SerializeToString()
    return message[read_nested(message, 0, len(message), 0x0A) :] if message else b""


def _write_floats(rows: Rows, target: Array) -> None:
    if target.shape[1] * 4 > _LARGE:
        for i, row in enumerate(rows):
            target[i] = np.frombuffer(row, _STORED)
    else:
        target[...] = np.frombuffer(b"".join(rows), _STORED).reshape(target.shape)


def _count_error(
    counts: Array, kind: int, shape: tuple[int, ...], location: Location
) -> errors.InvalidArgumentError:
    row = int(np.flatnonzero(counts != math.prod(shape))[0])
    return errors.InvalidArgumentError(
        f"{location.at(row)} Number of {KIND_NAMES[kind]} values != expected. "
        f"Values size: {int(counts[row])} but output shape: {format_dims(shape)}"
    )


def pad_values(
    rows: Rows, kind: int, shape: tuple[int, ...], default: Any, empty: Empty, location: Location
) -> Array:
    """Return a feature with variable numbers of values of a fixed shape, padded.

    Args:
      shape: shape of one value.
      default: the padding.
    Returns: shape (n, most, *shape).
    Raises: InvalidArgumentError: a number of values is not a multiple of the size of one.
    """
    values, counts = flatten(rows, kind)
    steps = count_steps(counts, shape, kind, location)
    return pad_steps(values, steps, shape, default, empty, NUMPY[kind])


def count_steps(counts: Array, shape: tuple[int, ...], kind: int, location: Location) -> Array:
    """Return the number of values of `shape` in each example."""
    size = math.prod(shape)
    if not size:
        return np.zeros_like(counts)
    bad_rows = np.flatnonzero(counts % size)
    if len(bad_rows):
        row = int(bad_rows[0])
        raise errors.InvalidArgumentError(
            f"{location.at(row)} Number of {KIND_NAMES[kind]} values is not a multiple of stride "
            f"length. Saw {int(counts[row])} values but output shape is: "
            f"{format_dims((None, *shape))}"
        )
    return counts // size


def pad_steps(
    values: Array, steps: Array, shape: tuple[int, ...], default: Any, empty: Empty, dtype: Any
) -> Array:
    """Return a tensor whose rows contain values from the left, padded with `default`."""
    limit = int(steps.max(initial=0))
    result = empty((len(steps), limit, *shape), dtype)
    steps_values = values.reshape(-1, *shape) if values.size else np.empty((0, *shape), dtype)
    if (steps == limit).all():
        result[...] = steps_values.reshape(result.shape)
        return result
    result[...] = default
    result[np.arange(limit) < steps[:, None]] = steps_values
    return result
