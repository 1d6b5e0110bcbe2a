"""Datasets of Python generators."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from weft_io.streams.stream import Element, Root, Source, Stream, count_in, fields
from weft_tensor import errors
from weft_tensor.dtypes import DType
from weft_tensor.nesting import format_value
from weft_tensor.shape import Dims, compatible_dims, format_dims
from weft_tensor.values import to_array

Flatten = Callable[[Any], Sequence[Any]]
"""A function that converts an item of a generator to its components."""

_CLASSES: Final = (
    (TypeError, errors.InvalidArgumentError),
    (ValueError, errors.InvalidArgumentError),
    (MemoryError, errors.ResourceExhaustedError),
    (NotImplementedError, errors.UnimplementedError),
)


class GeneratorFunction:
    """A function that returns an iterable, together with the form of its items.

    Args:
      function: returns the iterable.
      flatten: converts an item to its components.
    """

    def __init__(self, function: Callable[..., Any], flatten: Flatten) -> None:
        self.function = function
        self.flatten = flatten

    def __call__(self, *args: Any) -> Any:
        """Call the function and return the iterable."""
        return self.function(*args)


class GeneratorSource(Source):
    """The items of a Python iterable.

    Args:
      function: creates a new iterable for each pass.
      args: its arguments.
      types, shapes: types and shapes of the components.
    """

    def __init__(
        self,
        function: GeneratorFunction,
        args: Sequence[Any],
        types: Sequence[DType],
        shapes: Sequence[Dims],
    ) -> None:
        self.function = function
        self.args = tuple(args)
        self.types = tuple(types)
        self.shapes = tuple(shapes)

    def iterate(self, root: Root) -> Stream:
        """Return a stream of the items."""
        return _GeneratorStream(self)


class _GeneratorStream(Stream):
    """A stream of a Python generator; after a restore, it skips the elements already returned."""

    kind = "Generator"

    def __init__(self, source: GeneratorSource) -> None:
        self._source = source
        self._items: Iterator[Any] | None = None
        self._num_returned = 0
        self._has_ended = False

    def get(self) -> Element | None:
        if self._has_ended:
            return None
        result = self._next()
        return None if self._has_ended else self._convert(result)

    def _next(self) -> Any:
        try:
            if self._items is None:
                self._items = iter(_iterable(self._source.function(*self._source.args)))
            item = next(self._items)
        except StopIteration:
            self._has_ended, self._items = True, None  # which may hold files or threads
            return None
        except errors.OpError:
            raise
        except Exception as error:  # because the generator is the user's and may raise anything
            raise _wrap_error(error) from error
        self._num_returned += 1
        return item

    def _convert(self, result: Any) -> Element:
        source = self._source
        try:
            leaves = source.function.flatten(result)
        except (errors.OpError, TypeError, ValueError) as cause:
            raise errors.InvalidTypeError(
                "`generator` yielded an element that did not match the expected structure. "
                f"The yielded element was {format_value(result)}: {cause}"
            ) from cause
        values = [
            _component(leaf, dtype, dims)
            for leaf, dtype, dims in zip(leaves, source.types, source.shapes, strict=True)
        ]
        return tuple(values)

    def save(self) -> Any:
        return [self._num_returned, self._has_ended]

    def restore(self, state: Any) -> None:
        num_given, has_ended = fields(state, int, bool)
        for _ in range(count_in(num_given, 1 << 62, "the number of elements")):
            self._next()
            if self._has_ended:
                break
        self._has_ended = has_ended

    def close(self) -> None:
        items, self._items = self._items, None
        self._has_ended = True
        if items is not None and hasattr(items, "close"):
            items.close()


def _component(value: Any, dtype: DType, dims: Dims) -> Any:
    kind = dtype.numpy.type
    if dims == () and (type(value) is kind or (type(value) is int and dtype.is_integer)):
        try:
            return kind(value)
        except OverflowError:
            pass  # to be reported below
    try:
        array = to_array(value, dtype)
    except errors.OpError as cause:
        raise errors.InvalidTypeError(
            "`generator` yielded an element that could not be converted to the expected type. The "
            f"expected type was {dtype.name}, but the yielded element was {format_value(value)}: "
            f"{cause.message}"
        ) from cause
    if not compatible_dims(dims, array.shape):
        raise errors.InvalidArgumentError(
            f"`generator` yielded an element of shape {format_dims(array.shape)} where an element "
            f"of shape {format_dims(dims)} was expected."
        )
    if array.ndim == 0:
        return array[()]
    return np.array(array)


def _iterable(result: Any) -> Any:
    if not (hasattr(result, "__iter__") or hasattr(result, "__getitem__")):
        raise errors.InvalidTypeError(f"`generator` must return an iterable, got {result!r}")
    return result


def _wrap_error(error: Exception) -> errors.OpError:
    """Convert a user's exception to an OpError that shows its origin."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    traceback_text = "".join(traceback.format_exception(type(error), error, frames)).rstrip()
    text = f"{type(error).__name__}: {error}\n{traceback_text}"
    for caught, raised in _CLASSES:
        if isinstance(error, caught):
            return raised(text)
    return errors.UnknownError(text)
