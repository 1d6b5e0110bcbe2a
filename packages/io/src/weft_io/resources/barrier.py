"""Barriers: components of elements are inserted one by one; complete elements can be taken."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from weft_exec.resources.cancellation import Cancellation
from weft_exec.resources.resources import NOT_READY, CompletionCallback, Resource, Waiters
from weft_io.resources.chunks import write_row
from weft_io.resources.values import Array, Empty, row_of, shape_of
from weft_tensor import errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims, compatible_dims, format_dims

_FIRST_INDEX: Final = -(2**63)
_MISSING: Final = object()


class _Element:
    """A key, its insertion number, and the components received so far."""

    __slots__ = ("index", "key", "missing", "values")

    def __init__(self, key: bytes, index: int, components: int) -> None:
        self.key = key
        self.index = index
        self.values: list[Any] = [_MISSING] * components
        self.missing = components


class Barrier(Resource):
    """Elements by key, complete or not.

    Args:
      name: name in messages.
      types: element type of each component.
      shapes: static shape of each component; empty for any.
    Attributes:
      is_closed: True if new keys are rejected.
    """

    kind = "barrier"

    def __init__(self, name: str, types: Sequence[DType], shapes: Sequence[Dims]) -> None:
        super().__init__(name)
        self.types = tuple(types)
        self.shapes = tuple(shapes)
        self.is_closed = False
        self._dropped = False
        self._incomplete: dict[bytes, _Element] = {}
        self._ready: list[tuple[int, int, _Element]] = []
        self._batches = 0
        self._completed = 0
        self._take_waiters = Waiters()
        self._lock = self._take_waiters.lock

    def ready_size(self) -> int:
        """Return the number of complete elements."""
        return len(self._ready)

    def incomplete_size(self) -> int:
        """Return the number of incomplete elements."""
        return len(self._incomplete)

    def pending(self) -> int:
        """Return the number of operations waiting for elements."""
        return len(self._take_waiters)

    # ------------------------------------------------------------------ putting in

    def insert_many(self, component: int, keys: Sequence[bytes], values: Array) -> None:
        """Insert one component of several elements.

        Args:
          keys: the keys of the elements. An unknown key begins a new element, as does any key
            if the barrier has a single component.
          values: one row per key; the barrier keeps them. Raises (inserting nothing):
          InvalidArgumentError: shapes do not match, or an element already has the component.
          CancelledError: the barrier is closed, and a key is unknown.
        """
        self._check_rows(component, keys, values)
        with self._lock:
            if self._dropped:
                raise errors.CancelledError(f"Barrier {self.name!r} is closed.")
            new = self._count_new(component, keys)
            index = _FIRST_INDEX + self._batches
            self._batches += bool(new)
            for row, key in enumerate(keys):
                self._insert(component, key, index, _detach(row_of(values, row)))
        self._take_waiters.wake()

    def _insert(self, component: int, key: bytes, index: int, value: Any) -> None:
        element = self._incomplete.get(key)
        if element is None:
            element = self._incomplete[key] = _Element(key, index, len(self.types))
        element.values[component] = value
        element.missing -= 1
        if not element.missing:
            del self._incomplete[key]
            heapq.heappush(self._ready, (element.index, self._completed, element))
            self._completed += 1

    def _check_rows(self, component: int, keys: Sequence[bytes], values: Array) -> None:
        if not 0 <= component < len(self.types):
            raise errors.InvalidArgumentError(
                f"the component index {component} is not in [0, {len(self.types)})"
            )
        shape = shape_of(values)
        dims = self.shapes[component] if self.shapes else None
        if not shape or shape[0] != len(keys) or not compatible_dims(dims, shape[1:]):
            expected = "any" if dims is None else format_dims((len(keys), *dims))
            raise errors.InvalidArgumentError(
                f"Shape mismatch in tuple component {component}. Expected {expected} for "
                f"{len(keys)} keys, got {format_dims(shape)}"
            )

    def _count_new(self, component: int, keys: Sequence[bytes]) -> int:
        """Return the number of elements that the keys begin; raise if a key is not allowed."""
        new = 0
        missing: dict[bytes, int] = {}  # missing components after the previous rows
        for key in keys:
            element = self._incomplete.get(key)
            if missing.get(key) if key in missing else _has(element, component):
                raise errors.InvalidArgumentError(
                    f"Key {key!r} already has a value for component {component} in barrier "
                    f"{self.name!r}"
                )
            begins = element is None or key in missing
            if begins and self.is_closed:
                raise errors.CancelledError(
                    f"Barrier {self.name!r} is closed, but attempted to insert a brand new key: "
                    f"{key!r}.  Number of incomplete keys: {len(self._incomplete)}."
                )
            new += begins
            missing[key] = (len(self.types) if begins or element is None else element.missing) - 1
        return new

    # ------------------------------------------------------------------ taking out

    def take_many(
        self,
        count: int,
        small: bool,
        empty: Empty,
        completion: CompletionCallback,
        cancellation: Cancellation | None = None,
        deadline: float | None = None,
    ) -> None:
        """Remove complete elements, in order of their first insertion.

        Args:
          count: number of elements.
          small: True if a closed barrier may return fewer elements, but at least one, without
            waiting.
          empty: allocator of the arrays.
        Completes with: indices (n,), keys (n,), and a batch per component.
        Raises: InvalidArgumentError: `count` is negative.
        Fails with: OutOfRangeError: the barrier is closed and has too few elements; without
          `small`, incomplete ones count as well.
        """
        if count < 0:
            raise errors.InvalidArgumentError(
                f"the number of elements must not be negative, got {count}"
            )

        def attempt() -> Any:
            expected = count
            if self.is_closed and len(self._ready) < count:
                # A small batch has complete elements only: the writers of the others may be gone.
                possible = len(self._ready) + (0 if small else len(self._incomplete))
                if possible < (1 if small else count):
                    raise errors.OutOfRangeError(
                        f"Barrier {self.name!r} is closed and has insufficient elements "
                        f"(requested {count}, total size {possible})"
                    )
                expected = min(count, possible)
            if len(self._ready) < expected:
                return NOT_READY
            return self._take_rows(expected, empty)

        self._take_waiters.wait(attempt, completion, cancellation, deadline)

    def _take_rows(self, count: int, empty: Empty) -> tuple[Array, ...]:
        first = heapq.nsmallest(count, self._ready)
        elements = [element for _, _, element in first]
        batches = [self._batch(i, elements, empty) for i in range(len(self.types))]
        for _ in first:
            heapq.heappop(self._ready)
        indices = np.array([element.index for element in elements], np.int64)
        keys = np.empty(count, object)
        keys[:] = [element.key for element in elements]
        return indices, keys, *batches

    def _batch(self, component: int, elements: Sequence[_Element], empty: Empty) -> Array:
        rows = [element.values[component] for element in elements]
        dims = self.shapes[component] if self.shapes else None
        shapes = {shape_of(row) for row in rows} or {tuple([size or 0 for size in dims or ()])}
        if len(shapes) > 1:
            raise errors.InvalidArgumentError(
                f"component {component} of barrier {self.name!r} has elements of different "
                f"shapes: {', '.join(map(format_dims, sorted(shapes)))}; take them one by one"
            )
        target = empty((len(rows), *shapes.pop()), self.types[component].numpy)
        for i, row in enumerate(rows):
            write_row(target, i, row)
        return target

    # ------------------------------------------------------------------ the end

    def close_barrier(self, cancel_pending: bool) -> None:
        """Close the barrier: reject new keys; incomplete elements may still be completed.

        Args:
          cancel_pending: drop the incomplete elements.
        Raises: CancelledError: it is already closed, and there is nothing more to drop.
        """
        with self._lock:
            if self.is_closed and (self._dropped or not cancel_pending):
                raise errors.CancelledError(f"Barrier {self.name!r} is already closed.")
            self.is_closed = True
            if cancel_pending:
                self._dropped = True
                self._incomplete.clear()
        self._take_waiters.wake()

    def close(self) -> None:
        """Fail all waiters and drop the elements, because the barrier was deleted."""
        super().close()
        self._take_waiters.close(errors.CancelledError(f"the barrier {self.name!r} was deleted"))
        with self._lock:
            self._incomplete.clear()
            self._ready.clear()


def _has(element: _Element | None, component: int) -> bool:
    return element is not None and element.values[component] is not _MISSING


def _detach(row: Any) -> Any:
    """Return a copy of a row unless it owns its memory, so that its batch is not kept alive."""
    return row.copy() if isinstance(row, np.ndarray) else row
