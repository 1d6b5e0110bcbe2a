"""Lookup tables."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from weft_exec.resources.resources import Resource
from weft_io.resources.key_index import index_for
from weft_io.resources.values import Array, shape_of
from weft_tensor import errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims, format_dims, is_fully_defined


class Table(Resource):
    """A table from keys to values, all keys and all values with the same type and shape.

    Args:
      name: name in the container.
      key_dtype, value_dtype: element types.
      value_shape: shape of one value.
      key_shape: shape of one key.
    """

    kind = "lookup table"

    def __init__(
        self,
        name: str,
        key_dtype: DType,
        value_dtype: DType,
        value_shape: Dims = (),
        key_shape: tuple[int, ...] = (),
    ) -> None:
        super().__init__(name)
        if value_shape is None or not is_fully_defined(value_shape):
            raise errors.InvalidArgumentError(
                "a table's value_shape must be fully defined and known, got "
                f"{format_dims(value_shape)}"
            )
        self.key_dtype = key_dtype
        self.value_dtype = value_dtype
        self.key_shape = key_shape
        self.value_shape: tuple[int, ...] = tuple([int(n or 0) for n in value_shape])
        self._lock = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        self._index = index_for(self.key_dtype, math.prod(self.key_shape))
        self._keys = np.empty((0, *self.key_shape), self.key_dtype.numpy)
        self._values = np.empty((0, *self.value_shape), self.value_dtype.numpy)

    # ------------------------------------------------------------------- checks

    def check_types(self, keys: DType, values: DType) -> None:
        """Check that the table has these key and value types.

        Raises: InvalidArgumentError: a type differs.
        """
        if (keys, values) != (self.key_dtype, self.value_dtype):
            raise errors.InvalidArgumentError(
                f"the table {self.name!r} maps {self.key_dtype.name} to {self.value_dtype.name}, "
                f"but is used for {keys.name} to {values.name}"
            )

    def _count(self, keys: Any) -> tuple[int, ...]:
        """Return the shape of an array of keys without the axes of a single key.

        Raises: InvalidArgumentError: the trailing axes differ from the shape of a key.
        """
        shape = shape_of(keys)
        rank = len(shape) - len(self.key_shape)
        if rank < 0 or shape[rank:] != self.key_shape:
            raise errors.InvalidArgumentError(
                f"the keys of the table {self.name!r} must have a shape that ends with "
                f"{format_dims(self.key_shape)}, got {format_dims(shape)}"
            )
        return shape[:rank]

    def _pairs(self, keys: Any, values: Any) -> tuple[Array, Array]:
        """Convert keys and values to matrices of rows.

        Raises: InvalidArgumentError: their shapes do not match.
        """
        shape = self._count(keys)
        expected = (*shape, *self.value_shape)
        if shape_of(values) != expected:
            raise errors.InvalidArgumentError(
                f"the table {self.name!r} requires values of shape {format_dims(expected)} for "
                "keys "
                f"of shape {format_dims(shape_of(keys))}, got {format_dims(shape_of(values))}"
            )
        count = math.prod(shape)
        rows = np.asarray(keys).reshape(count, *self.key_shape)
        return rows, np.asarray(values).reshape(count, *self.value_shape)

    def check_keys(self, keys: Array) -> None:
        """Check that keys are allowed in the table; subclasses restrict them."""

    # ------------------------------------------------------------------- looking

    def __len__(self) -> int:
        return len(self._index)

    def size(self) -> int:
        """Return the number of keys."""
        return len(self)

    def find(self, keys: Any, default: Any) -> Array:
        """Return the value of each key.

        Args:
          keys: any shape that ends with the shape of a key.
          default: the value of missing
          keys: one value, or one for each key.
        Raises: InvalidArgumentError: a shape is incompatible.
        """
        shape = self._count(keys)
        result_shape = (*shape, *self.value_shape)
        if shape_of(default) not in (self.value_shape, result_shape):
            raise errors.InvalidArgumentError(
                f"the default value of the table {self.name!r} must have shape "
                f"{format_dims(self.value_shape)} or {format_dims(result_shape)}, got "
                f"{format_dims(shape_of(default))}"
            )
        rows = np.asarray(keys)
        self.check_keys(rows)
        with self._lock:
            result = self._index.find(rows)
            return self._take_rows(result, default, shape_of(default) == result_shape).reshape(
                result_shape
            )

    def _take_rows(self, array: Array, default: Any, one_each: bool) -> Array:
        absent = np.flatnonzero(array < 0)
        if not absent.size:
            return self._values[array]
        if not len(self._index):
            result = np.empty((len(array), *self.value_shape), self.value_dtype.numpy)
        else:
            result = self._values[array]
        if one_each:
            result[absent] = np.asarray(default).reshape(-1, *self.value_shape)[absent]
        else:
            result[absent] = default
        return result

    def export(self) -> tuple[Array, Array]:
        """Return copies of all keys and values."""
        with self._lock:
            count = len(self._index)
            return self._keys[:count].copy(), self._values[:count].copy()

    # ------------------------------------------------------------------- changing

    def insert(self, keys: Any, values: Any) -> None:
        """Insert keys and values; the last of repeated keys wins.

        Raises: InvalidArgumentError: shapes do not match, or a key is not allowed in the table.
        """
        rows, values_array = self._pairs(keys, values)
        self.check_keys(rows)
        with self._lock:
            self._put(rows, values_array)

    def _put(self, rows: Array, array: Array) -> None:
        rows_of_keys = self._index.add(rows)
        count = len(self._index)
        if count > len(self._values):
            self._keys = _grow(self._keys, count)
            self._values = _grow(self._values, count)
        self._keys[rows_of_keys] = rows
        self._values[rows_of_keys] = array

    def remove(self, keys: Any) -> None:
        """Remove keys; missing ones are ignored.

        Raises: InvalidArgumentError: the shape does not match, or a key is not allowed in the
        table.
        """
        self._count(keys)
        rows = np.asarray(keys)
        self.check_keys(rows)
        with self._lock:
            holes, movers = self._index.remove(rows)
            for column in (self._keys, self._values):
                column[holes] = column[movers]

    def replace(self, keys: Any, values: Any) -> None:
        """Replace the content of the table.

        Raises: InvalidArgumentError: shapes do not match.
        """
        rows, values_array = self._pairs(keys, values)
        with self._lock:
            self._clear()
            self._put(rows, values_array)

    def initialize(
        self, keys: Any, values: Any, locate: Callable[[int], str] | None = None
    ) -> None:
        """Fill a static table; called by initializers.

        Raises: UnimplementedError: the table is mutable and has no initializer.
        """
        raise errors.UnimplementedError(
            f"the table {self.name!r} is mutable and has no initializer; insert keys instead"
        )

    def close(self) -> None:
        """Drop the contents."""
        super().close()
        with self._lock:
            self._clear()


def _grow(column: Array, count: int) -> Array:
    enlarged = np.empty((max(count, 2 * len(column)), *column.shape[1:]), column.dtype)
    enlarged[: len(column)] = column
    return enlarged


class StaticTable(Table):
    """A table that is filled once and then only read."""

    def __init__(self, name: str, key_dtype: DType, value_dtype: DType) -> None:
        super().__init__(name, key_dtype, value_dtype)
        self.initialized = False

    def _check_initialized(self) -> None:
        if not self.initialized:
            raise errors.FailedPreconditionError(
                f"Table not initialized: {self.name!r}. Run wf.tables_initializer(), or the "
                "table's own initializer, first."
            )

    def find(self, keys: Any, default: Any) -> Array:
        """Return the value of each key; see `Table`.

        Raises: FailedPreconditionError: the table is not initialized.
        """
        self._check_initialized()
        return super().find(keys, default)

    def size(self) -> int:
        """Return the number of keys; FailedPreconditionError if it is not initialized."""
        self._check_initialized()
        return len(self)

    def export(self) -> tuple[Array, Array]:
        """Return all keys and values; FailedPreconditionError if the table is not initialized."""
        self._check_initialized()
        return super().export()

    def initialize(
        self, keys: Any, values: Any, locate: Callable[[int], str] | None = None
    ) -> None:
        """Fill the table; repeated calls with the same content do nothing.

        Args:
          place: function from the index of a pair to its location, for messages.
        Raises: FailedPreconditionError: a key has two values, or the table has another content;
          InvalidArgumentError: the shapes do not match.
        """
        rows, values_array = self._pairs(keys, values)
        with self._lock:
            fresh = index_for(self.key_dtype, 1)
            rows_of_keys = fresh.add(rows)
            stored = np.empty(len(fresh), self.value_dtype.numpy)
            stored[rows_of_keys] = values_array
            self._check_single(rows, values_array, rows_of_keys, locate)
            if self.initialized:
                self._check_same(rows, values_array)
                return
            self._index = fresh
            self._values = stored
            self._keys = np.empty(len(fresh), self.key_dtype.numpy)
            self._keys[rows_of_keys] = rows
            self.initialized = True

    def _check_single(
        self, rows: Array, array: Array, rows_of_keys: Array, locate: Callable[[int], str] | None
    ) -> None:
        """Raise FailedPreconditionError if a key has two values."""
        count = len(rows)
        first = np.full(count, count)
        np.minimum.at(first, rows_of_keys, np.arange(count))
        differ = np.flatnonzero(~_equal(array[first[rows_of_keys]], array)) if count else first
        if differ.size:
            index, first_row = int(differ[0]), int(first[rows_of_keys[differ[0]]])
            locations = f" ({locate(first_row)}, {locate(index)})" if locate else ""
            raise errors.FailedPreconditionError(
                f"HashTable has different value for same key. Key {_format_value(rows[index])} has "
                f"{_format_value(array[first_row])} and trying to add value "
                f"{_format_value(array[index])}{locations}"
            )

    def _check_same(self, rows: Array, array: Array) -> None:
        result = self._index.find(rows)
        is_same = (result >= 0).all() and _equal(self._values[result], array).all()
        if not is_same or len(np.unique(result)) != len(self._index):
            raise errors.FailedPreconditionError(
                f"Table was already initialized with different data: {self.name!r}."
            )

    def insert(self, keys: Any, values: Any) -> None:
        """Raise UnimplementedError, because the table cannot be modified."""
        raise self._unchangeable("insert")

    def remove(self, keys: Any) -> None:
        """Raise UnimplementedError, because the table cannot be modified."""
        raise self._unchangeable("remove")

    def replace(self, keys: Any, values: Any) -> None:
        """Fill the table with imported content, as an initializer does."""
        self.initialize(keys, values)

    def _unchangeable(self, label: str) -> errors.UnimplementedError:
        return errors.UnimplementedError(
            f"{label} is not supported by the static table {self.name!r}; a MutableHashTable can "
            "be "
            "changed"
        )


def _equal(a: Array, b: Array) -> Array:
    """Return where values are equal, treating NaN as equal to itself."""
    array: Array = a == b
    if a.dtype.kind in "fc":
        array = array | ((a != a) & (b != b))
    return np.asarray(array, bool)


def _format_value(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)


class DenseTable(Table):
    """A table with two reserved keys, for empty and deleted slots.

    Args:
      name, key_dtype, value_dtype, value_shape: as for `Table`.
      empty_key, deleted_key: the reserved keys.
    Raises: InvalidArgumentError: the reserved keys are equal, or of different shapes.
    """

    def __init__(
        self,
        name: str,
        key_dtype: DType,
        value_dtype: DType,
        value_shape: Dims,
        empty_key: Any,
        deleted_key: Any,
    ) -> None:
        shape = shape_of(empty_key)
        if shape_of(deleted_key) != shape or len(shape) > 1 or not math.prod(shape):
            raise errors.InvalidArgumentError(
                "empty_key and deleted_key must be scalars or non-empty vectors of the same "
                "shape, got "
                f"{format_dims(shape)} and {format_dims(shape_of(deleted_key))}"
            )
        self._refused = {
            label: np.array(key, key_dtype.numpy)
            for label, key in (("empty_key", empty_key), ("deleted_key", deleted_key))
        }
        if (self._refused["empty_key"] == self._refused["deleted_key"]).all():
            raise errors.InvalidArgumentError(
                "empty_key and deleted_key must differ, got "
                f"{_format_value(self._refused['empty_key'])} for both"
            )
        super().__init__(name, key_dtype, value_dtype, value_shape, shape)

    def check_keys(self, keys: Array) -> None:
        """Reject the reserved keys.

        Raises: InvalidArgumentError: `keys` contains a reserved key.
        """
        for label, key in self._refused.items():
            if self._is(keys, key).any():
                raise errors.InvalidArgumentError(
                    f"Using the {label} as a table key is not allowed: {_format_value(key)} in the "
                    f"table {self.name!r}"
                )

    def _is(self, keys: Array, key: Array) -> Array:
        array: Array = np.asarray(keys == key, bool)
        return np.asarray(array.all(axis=-1)) if self.key_shape else array

    def replace(self, keys: Any, values: Any) -> None:
        """Replace the contents, ignoring reserved keys, which TensorFlow's tables export."""
        rows, values_array = self._pairs(keys, values)
        mask = np.ones(len(rows), bool)
        for key in self._refused.values():
            mask &= ~self._is(rows, key)
        super().replace(rows[mask], values_array[mask])
