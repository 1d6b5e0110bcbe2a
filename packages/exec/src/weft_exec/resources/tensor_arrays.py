"""Contents of TensorArrays and stacks: plain objects of one step.

They are not in a container; their handles keep them alive. All ops on one object run on the thread
that drives the step, in the order of flows and control inputs. Elements are stored without a copy,
because kernels never write to their inputs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft_exec.resources.resources import ResourceHandle
from weft_tensor import errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims, compatible_dims, format_dims, is_fully_defined, merge_dims

Shape = tuple[int, ...]
Empty = Callable[[Shape, Any], Any]


class Stack(list[Any]):
    """An unbounded stack: a list, so that push and pop are its `append` and `pop`.

    Attributes:
      name: its name, for messages.
      dtype: element type.
      below: the values below those of the list, as compiled loops leave them: arrays, with the
        number of leading rows that are values.
    """

    __slots__ = ("below", "dtype", "name")

    def __init__(self, name: str, dtype: DType) -> None:
        self.name = name
        self.dtype = dtype
        self.below: list[tuple[Any, int]] = []

    def push_rows(self, rows: Any, count: int) -> None:
        """Push the first rows of an array that will not change any more."""
        if self:
            self.extend(rows[:count])
        elif count:
            self.below.append((rows, count))

    def unpack_rows(self) -> bool:
        """Convert the rows pushed last to single values; return False if there were none."""
        if not self.below:
            return False
        rows, count = self.below.pop()
        self[:0] = list(rows[:count])
        return True

    def as_rows(self) -> tuple[Any, int]:
        """Return all values, at least one, as the first rows of one array, and their number.

        The array has one of a few sizes, because programs are compiled for each size.
        """
        if not self and len(self.below) == 1:
            return self.below[0]
        parts = [part[:count] for part, count in self.below]
        if self:
            parts.append(np.stack(self))
        count = sum(map(len, parts))
        rows = np.empty((1 << (count - 1).bit_length(), *parts[0].shape[1:]), parts[0].dtype)
        np.concatenate(parts, out=rows[:count])
        list.clear(self)
        self.below = [(rows, count)]
        return rows, count

    def keep_rows(self, count: int) -> None:
        """Drop all values except the lowest `count` ones in the result of `as_rows`."""
        ((rows, _),) = self.below
        self.below = [(rows, count)] if count else []

    def clear(self) -> None:
        """Drop all values."""
        list.clear(self)
        self.below = []

    def empty_error(self) -> errors.InvalidArgumentError:
        """Return the error of a pop from an empty stack."""
        return errors.InvalidArgumentError(f"the stack {self.name!r} is empty: nothing to pop")


class BoundedStack(Stack):
    """A stack of at most `max_size` values."""

    __slots__ = ("max_size",)

    def __init__(self, name: str, dtype: DType, max_size: int) -> None:
        super().__init__(name, dtype)
        self.max_size = max_size

    def append(self, value: Any) -> None:
        """Push a value.

        Raises: InvalidArgumentError: the stack already has `max_size` values.
        """
        if len(self) >= self.max_size:
            raise errors.InvalidArgumentError(
                f"the stack {self.name!r} is full: its max_size is {self.max_size}"
            )
        list.append(self, value)


class TensorArrayState:
    """The elements of one TensorArray.

    The entry of an element is None until it is written. After it was read and cleared, the entry is
    its shape, a tuple.

    Args:
      name: its name, for messages.
      dtype: element type.
      size: number of elements.
      dims: static shape that all elements must match.
      dynamic: True if writes beyond the end extend it.
      clear: True if a read removes the element.
      identical: True if all elements must have the same shape.
      device: name of the device of the values.
      xp: array module of that device.
      empty: its allocator: `empty(shape, numpy dtype)`.
    Attributes:
      places: the entries of the elements.
      whole: an array whose rows are the elements, or None if there is none.
      split_into: the number of elements that a split has written; later writes may have added more.
    """

    def __init__(
        self,
        name: str,
        dtype: DType,
        size: int,
        dims: Dims = None,
        *,
        dynamic: bool = False,
        clear: bool = True,
        identical: bool = False,
        device: str = "",
        xp: Any = np,
        empty: Empty = np.empty,
    ) -> None:
        self.name = name
        self.dtype = dtype
        self.places: list[Any] = [None] * size
        self.whole: Any = None
        self.dims = dims
        self.dynamic = dynamic
        self.clear = clear
        self.identical = identical
        self.closed = False
        self.split_into: int | None = None
        self._may_hold_less = False
        self._device = device
        self._xp = xp
        self._empty = empty
        self._shape: Shape | None = None
        self._zeroed: set[int] = set()
        self._gradients: dict[str, ResourceHandle] = {}
        self._lock = threading.Lock()
        self._record_shape(dims)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} of {len(self.places)} {self.dtype.name}>"

    @property
    def size(self) -> int:
        """The number of elements, written or not.

        Raises: InvalidArgumentError: the TensorArray is closed.
        """
        self._check_open()
        return len(self.places)

    @property
    def concat_size(self) -> int:
        """The number of leading elements that a concatenation joins."""
        return self.size

    # ------------------------------------------------------------------ writing

    def write(self, index: int, value: Any) -> None:
        """Store an element.

        Raises: InvalidArgumentError: `index` is out of range or was already written, the shape does
          not match, or the TensorArray is closed.
        """
        elements = self.places
        self.whole = None
        if not 0 <= index < len(elements):
            self._grow(index)
        if value.shape != self._shape:
            self._fit(index, value.shape)
        if elements[index] is not None:
            raise self._used_error(index)
        elements[index] = value

    def scatter(self, indices: Sequence[int], values: Sequence[Any], stacked: Any = None) -> None:
        """Store several elements; raises the errors of `write`.

        Args:
          stacked: an array whose rows are the elements, or None.
        """
        empty = not any([element is not None for element in self.places])
        for index, value in zip(indices, values, strict=True):
            self.write(index, value)
        if empty and list(indices) == list(range(len(self.places))):
            self.whole = stacked

    def shape_of_rows(self) -> Shape | None:
        """Return the shape of all elements stacked; None unless all have the same known shape.

        Elements that were read and cleared still have a shape. At least one element must be
        present.
        """
        shapes = {getattr(element, "shape", element) for element in self.places}
        if len(shapes) != 1 or None in shapes or not any(self.written_mask()):
            return None
        return (len(self.places), *shapes.pop())

    def written_mask(self) -> list[bool]:
        """Return a list that says of each element if it was written and not cleared."""
        return [element is not None and type(element) is not tuple for element in self.places]

    def as_rows(self) -> Any:
        """Return all elements as the rows of an array; zeros for cleared ones."""
        if self.whole is not None:
            return self.whole
        zeros = None if all(self.written_mask()) else self._zeros((self.shape_of_rows() or ())[1:])
        rows: list[Any] = [zeros if type(element) is tuple else element for element in self.places]
        return np.stack(rows)

    def may_be_filled(self, shape: Shape) -> bool:
        """Return True if elements of a shape can be written to all free entries."""
        return not self.closed and compatible_dims(self.dims, shape)

    def resize_for(self, count: int) -> None:
        """Extend to exactly `count` elements; gradients may have fewer elements.

        Raises: InvalidArgumentError: the size differs and cannot grow to it.
        """
        size = self.size
        if count > size and self.dynamic:
            self.places.extend([None] * (count - size))
        elif count != size and not (count < size and self._may_hold_less):
            raise errors.InvalidArgumentError(
                f"lengths must have one entry for each element of the TensorArray {self.name!r}, "
                f"which has {size}, got {count}"
            )
        self.split_into = count

    def refine(self, dims: Dims) -> None:
        """Refine the static shape of all elements.

        Raises: InvalidArgumentError: the new shape contradicts the known one.
        """
        if dims is None or dims == self.dims:
            return
        if not compatible_dims(self.dims, dims):
            raise errors.InvalidArgumentError(
                f"the elements of the TensorArray {self.name!r} have shape "
                f"{format_dims(self.dims)}, got element_shape {format_dims(dims)}"
            )
        self._record_shape(merge_dims(self.dims, dims))

    def close(self) -> None:
        """Drop all elements and gradients; may be called repeatedly."""
        self.closed = True
        self.places = []
        self.whole = None
        self._gradients = {}

    # ------------------------------------------------------------------ reading

    def read(self, index: int) -> Any:
        """Return an element; it is the array that was written.

        Raises: InvalidArgumentError: `index` is out of range; the element was cleared by an earlier
        read; it was never written and its shape is unknown; or the TensorArray is closed.
        """
        elements = self.places
        if not 0 <= index < len(elements):
            raise self._index_error(index)
        value = elements[index]
        if value is None or type(value) is tuple:
            return self._missing_element(index, value)
        if self.clear:
            elements[index] = value.shape
            self.whole = None
        return value

    def gather(self, indices: Sequence[int]) -> list[Any]:
        """Return several elements; raises the errors of `read`."""
        self._check_open()
        return [self.read(index) for index in indices]

    def gather_all(self, indices: Sequence[int]) -> Any:
        """Return the array whose rows are all elements, if it exists and all are read in order.

        Otherwise returns None and reads nothing. The array may have other owners.
        """
        rows = self.whole
        if rows is None or list(indices) != list(range(len(self.places))):
            return None
        if self.clear:
            self.places = [rows.shape[1:]] * len(self.places)
            self.whole = None
        return rows

    def _missing_element(self, index: int, shape: Shape | None) -> Any:
        """Return zeros in place of an element that was never written."""
        if shape is not None:
            raise errors.InvalidArgumentError(
                f"element {index} of the TensorArray {self.name!r} cannot be read twice: the first "
                "read cleared it; pass clear_after_read=False to keep elements"
            )
        expected = self.shape_of(index)
        if expected is None:
            raise errors.InvalidArgumentError(
                f"element {index} of the TensorArray {self.name!r} was never written, and cannot "
                "be read as zeros, since its shape is not fully known: "
                f"{format_dims(self.dims)}; pass element_shape to read zeros"
            )
        zeros = self._zeros(expected)
        self._zeroed.add(index)
        self.places[index] = expected if self.clear else zeros
        return zeros

    def _zeros(self, shape: Shape) -> Any:
        numpy = self.dtype.numpy
        if numpy.kind == "O":
            return np.full(shape, b"", object)
        if not shape and self._xp is np:
            return numpy.type(0)
        zeros = self._empty(shape, numpy)
        zeros.fill(0)
        return zeros

    def shape_of(self, index: int) -> Shape | None:
        """Return the shape of an element, written or not; None if it is unknown."""
        element = self.places[index]
        if element is None:
            return self._shape
        return element if type(element) is tuple else element.shape

    # ------------------------------------------------------------------ gradients

    def gradient(self, source: str, prepend: Shape = ()) -> ResourceHandle:
        """Return the handle of the gradient array for `source`, creating it if necessary.

        Args:
          prepend: the sizes that precede the shape of each element.
        """
        self._check_open()
        with self._lock:
            resource_handle = self._gradients.get(source)
            if resource_handle is None:
                self.dynamic = False
                state = self._new_gradient(f"{self.name}@{source}", prepend)
                resource_handle = ResourceHandle(self._device, "", state.name, state)
                self._gradients[source] = resource_handle
        return resource_handle

    def _new_gradient(self, name: str, prepend: Shape) -> GradientArrayState:
        shapes = [self.shape_of(index) for index in range(len(self.places))]
        return GradientArrayState(
            name,
            self.dtype,
            [None if shape is None else (*prepend, *shape) for shape in shapes],
            None if self.dims is None else (*prepend, *self.dims),
            self.split_into,
            # The gradient of an element with several writes is read several times.
            clear=not isinstance(self, GradientArrayState),
            identical=self.identical,
            device=self._device,
            xp=self._xp,
            empty=self._empty,
        )

    # ------------------------------------------------------------------ slow paths

    def _record_shape(self, dims: Dims) -> None:
        self.dims = dims
        self._shape = dims if is_fully_defined(dims) else None  # type: ignore[assignment]

    def _check_open(self) -> None:
        if self.closed:
            raise errors.InvalidArgumentError(f"the TensorArray {self.name!r} has been closed")

    def _grow(self, index: int) -> None:
        """Extend the array to include `index`."""
        self._check_open()
        size = len(self.places)
        if index < 0 or not self.dynamic:
            growth = "may grow" if self.dynamic else "cannot grow; pass dynamic_size=True to let it"
            raise errors.InvalidArgumentError(
                f"index {index} to write is not in [0, {size}), the range of the TensorArray "
                f"{self.name!r}, which {growth}"
            )
        self.places.extend([None] * (index + 1 - size))

    def _fit(self, index: int, shape: Shape) -> None:
        """Check the shape of an element that differs from the common one."""
        if not compatible_dims(self.dims, shape):
            hint = "; pass infer_shape=False to allow several" if self.identical else ""
            raise errors.InvalidArgumentError(
                f"element {index} of the TensorArray {self.name!r} must have shape "
                f"{format_dims(self.dims)}, got {format_dims(shape)}{hint}"
            )
        if self.identical:
            self._record_shape(shape)

    def _used_error(self, index: int) -> errors.InvalidArgumentError:
        read = type(self.places[index]) is tuple or index in self._zeroed
        return errors.InvalidArgumentError(
            f"element {index} of the TensorArray {self.name!r} has been "
            f"{'read' if read else 'written'} already; each element can be written once, before "
            "it is read"
        )

    def _index_error(self, index: int) -> errors.InvalidArgumentError:
        self._check_open()
        return errors.InvalidArgumentError(
            f"index {index} to read is not in [0, {len(self.places)}), the range of the "
            f"TensorArray {self.name!r}"
        )


class GradientArrayState(TensorArrayState):
    """The gradients of the elements of another TensorArray; several writes to an element add up.

    Args:
      shapes: the known shapes of the elements of that array.
      concat_size: the number of elements that a split has written, whose gradient is a
        concatenation.
    """

    def __init__(
        self,
        name: str,
        dtype: DType,
        shapes: list[Shape | None],
        dims: Dims,
        concat_size: int | None,
        **options: Any,
    ) -> None:
        super().__init__(name, dtype, len(shapes), dims, **options)
        self._concat_size = concat_size
        self._may_hold_less = True
        self._shapes = shapes
        self._sums: set[int] = set()
        self._written_indices: set[int] = set()

    @property
    def concat_size(self) -> int:
        """The number of elements that a split has written to the forward array."""
        return self.size if self._concat_size is None else self._concat_size

    def may_be_filled(self, shape: Shape) -> bool:
        """Return True if elements of a shape can be added to all entries."""
        return (
            not self.closed
            and compatible_dims(self.dims, shape)
            and all([known_shape is None or known_shape == shape for known_shape in self._shapes])
            and not self._written_indices
            and not any([type(element) is tuple for element in self.places])
        )

    def write(self, index: int, value: Any) -> None:
        """Add to an element.

        Raises: InvalidArgumentError: `index` is out of range or was already read, the shape differs
          from that of the forward element, or the TensorArray is closed.
        """
        elements = self.places
        self.whole = None
        if not 0 <= index < len(elements):
            self._grow(index)
        shape = self._shapes[index]
        if shape is None:
            if value.shape != self._shape:
                self._fit(index, value.shape)
            self._shapes[index] = value.shape
        elif value.shape != shape:
            raise errors.InvalidArgumentError(
                f"the gradient of element {index} of the TensorArray {self.name!r} must have shape "
                f"{format_dims(shape)}, got {format_dims(value.shape)}"
            )
        with self._lock:
            old = elements[index]
            if type(old) is tuple or index in self._written_indices:
                raise self._used_error(index)
            elements[index] = value if old is None else self._sum(index, old, value)

    def read(self, index: int) -> Any:
        """Return an element, which is zero if it was never written.

        Raises the errors of other arrays.
        """
        value = super().read(index)
        if not self.clear:
            self._written_indices.add(index)
        return value

    def shape_of(self, index: int) -> Shape | None:
        """Return the shape of an element, written or not; None if it is unknown."""
        shape = self._shapes[index]
        return super().shape_of(index) if shape is None else shape

    def _sum(self, index: int, old: Any, value: Any) -> Any:
        """Return the sum of two values.

        The first sum allocates memory, later ones are computed in place.
        """
        if self.dtype.numpy.kind in "Ob":
            raise errors.InvalidTypeError(
                f"values of type {self.dtype.name} cannot be summed in the TensorArray "
                f"{self.name!r}"
            )
        if old.shape == () and self._xp is np:
            return old + value
        if index in self._sums:
            return self._xp.add(old, value, out=old)
        self._sums.add(index)
        return self._xp.add(old, value, out=self._empty(old.shape, self.dtype.numpy))

    def _used_error(self, index: int) -> errors.InvalidArgumentError:
        return errors.InvalidArgumentError(
            f"cannot add to element {index} of the TensorArray {self.name!r}: it was already read"
        )
