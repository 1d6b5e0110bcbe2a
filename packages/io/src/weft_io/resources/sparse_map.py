"""Storage of sparse tensors by key."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from weft_exec.resources.resources import Resource
from weft_io.resources.values import Array
from weft_tensor import errors
from weft_tensor.dtypes import DType


class SparseValue(NamedTuple):
    """Indices (n, rank), values (n,), and the dense shape (rank,)."""

    indices: Array
    values: Array
    shape: Array


class SparseMap(Resource):
    """A map of sparse tensors; each is removed once."""

    kind = "map of sparse tensors"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._tensors: dict[int, tuple[DType, SparseValue]] = {}
        self._next = itertools.count()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._tensors)

    def add(self, dtype: DType, value: SparseValue) -> int:
        """Store a sparse tensor; return its key.

        Raises: InvalidArgumentError: the parts are inconsistent.
        """
        check_parts(value)
        with self._lock:
            number = next(self._next)
            self._tensors[number] = dtype, value
        return number

    def take(self, dtype: DType, numbers: Sequence[int]) -> SparseValue:
        """Remove several sparse tensors and stack them along a new first axis.

        Raises: InvalidArgumentError: a key is unknown, or ranks or element types differ; nothing is
          removed.
        """
        with self._lock:
            result = [self._find(dtype, number) for number in numbers]
            if len(set(numbers)) != len(numbers):
                raise errors.InvalidArgumentError(f"a number occurs twice among {list(numbers)}")
            joined = stack_rows(result, dtype)
            for number in numbers:
                del self._tensors[number]
        return joined

    def _find(self, dtype: DType, number: int) -> SparseValue:
        tensor = self._tensors.get(number)
        if tensor is None:
            raise errors.InvalidArgumentError(
                f"{self.name!r} has no sparse tensor with the key {number}"
            )
        if tensor[0] != dtype:
            raise errors.InvalidArgumentError(
                f"the sparse tensor {number} of {self.name!r} is {tensor[0].name}, "
                f"but {dtype.name} is required"
            )
        return tensor[1]

    def close(self) -> None:
        """Remove all sparse tensors."""
        super().close()
        with self._lock:
            self._tensors.clear()


def check_parts(value: SparseValue) -> None:
    """Raise InvalidArgumentError unless the shapes of the parts are consistent."""
    shapes = [part.shape for part in value]
    ranks = tuple([len(shape) for shape in shapes])
    if ranks != (2, 1, 1) or shapes[0] != (*shapes[1], *shapes[2]):
        raise errors.InvalidArgumentError(
            "a sparse tensor requires indices [n,rank], values [n] and shape [rank], got "
            + ", ".join([str(list(shape)) for shape in shapes])
        )


def rows_of_sparse(value: SparseValue) -> list[SparseValue]:
    """Return each row as a separate sparse tensor.

    Raises: InvalidArgumentError: the parts are inconsistent, the rank is 0, or an index is out of
      range.
    """
    check_parts(value)
    if not len(value.shape):
        raise errors.InvalidArgumentError("a sparse tensor of rank 0 has no rows")
    count = int(value.shape[0])
    if count < 0:
        raise errors.InvalidArgumentError(f"the number of rows must not be negative, got {count}")
    rows = value.indices[:, 0]
    if rows.size and (rows.min() < 0 or rows.max() >= count):
        raise errors.InvalidArgumentError(
            f"a sparse tensor with {count} rows has an element in row "
            f"{int(rows.max() if rows.max() >= count else rows.min())}"
        )
    order = np.argsort(rows, kind="stable")
    ends = np.searchsorted(rows[order], np.arange(1, count + 1))
    parts = np.split(order, ends[:-1]) if count else []
    return [
        SparseValue(value.indices[part, 1:], value.values[part], value.shape[1:]) for part in parts
    ]


def stack_rows(sparse_values: Sequence[SparseValue], dtype: DType) -> SparseValue:
    """Stack sparse tensors of different sizes along a new first axis.

    Raises: InvalidArgumentError: their ranks differ.
    """
    ranks = sorted({len(value.shape) for value in sparse_values})
    if len(ranks) > 1:
        raise errors.InvalidArgumentError(
            f"sparse tensors of a batch must have the same rank, got {ranks}"
        )
    rank = ranks[0] if ranks else 0
    counts = [len(value.values) for value in sparse_values]
    indices = np.empty((sum(counts), rank + 1), np.int64)
    indices[:, 0] = np.repeat(np.arange(len(sparse_values)), counts)
    if sparse_values:
        np.concatenate([value.indices for value in sparse_values], out=indices[:, 1:])
    values = np.concatenate([np.empty(0, dtype.numpy), *[value.values for value in sparse_values]])
    sizes = [value.shape for value in sparse_values]
    inner = np.max(sizes, axis=0) if sizes else np.zeros(0, np.int64)
    return SparseValue(indices, values, np.array([len(sparse_values), *inner], np.int64))
