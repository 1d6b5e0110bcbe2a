"""Accumulators, which sum gradients of steps until they have enough."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from weft_exec.kernels.common import accumulation_dtype
from weft_exec.resources.cancellation import Cancellation
from weft_exec.resources.resources import NOT_READY, CompletionCallback, Resource, Waiters
from weft_io.resources.values import Array
from weft_tensor import errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims, compatible_dims, format_dims

_log = logging.getLogger("weft")


class _Accumulator(Resource):
    """Counts gradients, drops stale ones, and passes the result to waiters.

    A gradient is stale if its step is lower than the accumulator's step, which increases with each
    result.

    Args:
      name: name in messages.
      dtype: element type.
      dims: static shape of a gradient.
      mean: True to return the mean, False to return the sum.
    Attributes:
      step: the accumulator's step.
      count: gradients in the current result.
    """

    kind = "accumulator"

    def __init__(self, name: str, dtype: DType, dims: Dims, mean: bool) -> None:
        super().__init__(name)
        self.dtype = dtype
        self.dims = dims
        self.mean = mean
        self.step = 0
        self.count = 0
        self._take_waiters = Waiters()
        self._lock = self._take_waiters.lock
        self._wide = accumulation_dtype(dtype)

    def set_step(self, step: int) -> None:
        """Set the accumulator's step."""
        with self._lock:
            if step < self.step:
                _log.warning(
                    "Attempt to set current_global_step_ to smaller value: current %d, new %d",
                    self.step,
                    step,
                )
            self.step = step

    def _accept(self, step: int) -> bool:
        """Count a gradient; return False if its step is stale. Requires the lock."""
        if step < self.step:
            return False
        self.count += 1
        return True

    def take(
        self,
        required: int,
        completion: CompletionCallback,
        cancellation: Cancellation | None = None,
    ) -> None:
        """Deliver the result once `required` gradients are summed, and start the next one.

        Raises: InvalidArgumentError: `required` is not positive.
        """
        if required <= 0:
            raise errors.InvalidArgumentError(
                f"Argument num_required must be positive, but was {required}"
            )

        def attempt() -> Any:
            if self.count < required:
                return NOT_READY
            result = self._result()
            self.step += 1
            self.count = 0
            return result

        self._take_waiters.wait(attempt, completion, cancellation)

    def pending(self) -> int:
        """Return the number of operations that wait for a result."""
        return len(self._take_waiters)

    def _result(self) -> Any:
        """Return the result, and reset the accumulated values."""
        raise NotImplementedError

    def close(self) -> None:
        """Fail all waiters, because the accumulator was deleted."""
        super().close()
        self._take_waiters.close(
            errors.CancelledError(f"the accumulator {self.name!r} was deleted")
        )

    def _divide(self, total: Any, count: Any) -> Any:
        """Return the mean; integers are rounded towards zero."""
        if self._wide.kind in "iu":
            quotient = np.abs(total) // count
            return (np.sign(total) * quotient).astype(self._wide)
        return (total / count).astype(self._wide, copy=False)


class DenseAccumulator(_Accumulator):
    """An accumulator of dense tensors."""

    kind = "accumulator"

    def __init__(self, name: str, dtype: DType, dims: Dims, mean: bool) -> None:
        super().__init__(name, dtype, dims, mean)
        self._total: Any = None
        self._owned = False

    def apply(self, step: int, gradient: Any) -> None:
        """Add a gradient of a step, unless it is stale.

        Args:
          gradient: the gradient, which the accumulator keeps.
        Raises: InvalidArgumentError: its shape differs from the accumulator's.
        """
        shape = gradient.shape
        with self._lock:
            dims = self.dims if self.count == 0 else self._total.shape
            if shape != dims and not compatible_dims(dims, shape):
                raise errors.InvalidArgumentError(
                    f"Shape mismatch: expected {format_dims(dims)}, got {format_dims(shape)}"
                )
            if self._accept(step):
                self._add(gradient)
        self._take_waiters.wake()

    def _add(self, gradient: Any) -> None:
        if self.count == 1:
            self._total, self._owned = gradient, False
        elif self._owned:
            np.add(self._total, gradient, out=self._total)
        else:
            # A sum of its own, in which all later ones add up.
            self._total = np.asarray(np.add(self._total, gradient, dtype=self._wide))
            self._owned = True

    def _result(self) -> Any:
        total, self._total = self._total, None
        if self.mean and self.count > 1:
            total = self._divide(total, self.count)
        result = total.astype(self.dtype.numpy, copy=False)
        return result[()] if result.ndim == 0 else result

    def close(self) -> None:
        """Fail all waiters, because the accumulator was deleted."""
        super().close()
        with self._lock:
            self._total = None


_MIN_ROWS = 1024
"""Minimum number of rows to collect before equal rows are added."""

Rows = tuple[Array, Array, Array]
"""Indices (n,), values (n, S), and the number of gradients summed in each row (n,)."""


class SparseAccumulator(_Accumulator):
    """An accumulator of rows of a tensor.

    The mean of a row is taken over the gradients that contain the row.
    """

    kind = "sparse accumulator"

    def __init__(self, name: str, dtype: DType, dims: Dims, mean: bool) -> None:
        super().__init__(name, dtype, dims, mean)
        self._parts: list[Rows] = []
        self._rows = 0
        self._merged = 0

    def apply(self, step: int, indices: Array, values: Array, shape: Array | None = None) -> None:
        """Add a gradient of a step, unless it is stale.

        Args:
          indices: int64, shape (n,), in any order; rows with equal indices are added.
          values: shape (n, S).
          shape: int64: shape of the whole tensor, if it is known.
        Raises:
          InvalidArgumentError: shapes are incompatible, or an index is out of range.
        """
        self._check(indices, values, shape)
        rows = _sum_equal_rows(indices, values.astype(self._wide, copy=False), None)
        with self._lock:
            if self._parts and self._parts[0][1].shape[1:] != values.shape[1:]:
                raise errors.InvalidArgumentError(
                    f"Shape mismatch: expected values of shape "
                    f"{format_dims((None, *self._parts[0][1].shape[1:]))}, "
                    f"got {format_dims(values.shape)}"
                )
            if self._accept(step):
                self._parts.append(rows)
                self._rows += len(rows[0])
                if self._rows > 2 * max(self._merged, _MIN_ROWS):
                    self._merge()
        self._take_waiters.wake()

    def _check(self, indices: Array, values: Array, shape: Array | None) -> None:
        if indices.ndim != 1:
            raise errors.InvalidArgumentError(
                f"Input indices should be vector but received shape: {format_dims(indices.shape)}"
            )
        if not values.ndim or len(values) != len(indices):
            raise errors.InvalidArgumentError(
                f"Expected {len(indices)} rows of values, one per index, "
                f"got values of shape {format_dims(values.shape)}"
            )
        if shape is not None and shape.shape != (values.ndim,):
            raise errors.InvalidArgumentError(
                f"Shape mismatch: the shape of the gradient must have a size for each axis of "
                f"values of shape {format_dims(values.shape)}, got {shape.tolist()}"
            )
        dims = self.dims
        if shape is not None and not compatible_dims(dims, tuple(shape.tolist())):
            raise errors.InvalidArgumentError(
                f"Shape mismatch: expected shape {format_dims(dims)}, got {shape.tolist()}"
            )
        if dims is not None and not compatible_dims(dims[1:], values.shape[1:]):
            raise errors.InvalidArgumentError(
                f"Shape mismatch: expected values of shape {format_dims((None, *dims[1:]))}, "
                f"got {format_dims(values.shape)}"
            )
        limit = int(shape[0]) if shape is not None else (dims[0] if dims else None)
        if indices.size and (indices.min() < 0 or (limit is not None and indices.max() >= limit)):
            index = indices[(indices < 0) | (indices >= (limit or 0))][0]
            raise errors.InvalidArgumentError(
                f"Shape mismatch: index of slice must be in [0, {limit}), got {index}"
            )

    def _merge(self) -> None:
        indices, values, counts = (
            np.concatenate(column) for column in zip(*self._parts, strict=True)
        )
        self._parts = [_sum_equal_rows(indices, values, counts)]
        self._rows = self._merged = len(self._parts[0][0])

    def _result(self) -> Any:
        self._merge()
        indices, values, counts = self._parts[0]
        self._parts, self._rows, self._merged = [], 0, 0
        if self.mean:
            values = self._divide(values, counts.reshape(-1, *(1,) * (values.ndim - 1)))
        first = self.dims[0] if self.dims else None
        shape = [-1 if first is None else first, *values.shape[1:]]
        return indices, values.astype(self.dtype.numpy, copy=False), np.array(shape, np.int64)

    def close(self) -> None:
        """Fail all waiters, because the accumulator was deleted."""
        super().close()
        with self._lock:
            self._parts = []


def _sum_equal_rows(indices: Array, values: Array, counts: Array | None) -> Rows:
    """Add rows with equal indices, and sort them; without `counts` they are of one gradient."""
    if not len(indices):
        return indices, values, np.zeros(0, np.int64)
    steps = np.diff(indices)
    if steps.size == 0 or steps.min() > 0:
        return indices, values, np.ones(len(indices), np.int64) if counts is None else counts
    order = np.argsort(indices, kind="stable")
    ordered = indices[order]
    starts = np.flatnonzero(np.concatenate([[True], np.diff(ordered) > 0]))
    sums = np.add.reduceat(values[order], starts, axis=0, dtype=values.dtype)
    if counts is None:
        return ordered[starts], sums, np.ones(len(starts), np.int64)
    return ordered[starts], sums, np.add.reduceat(counts[order], starts)
