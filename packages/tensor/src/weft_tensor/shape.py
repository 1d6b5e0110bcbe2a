"""Static shapes: sizes that may be unknown, in a rank that may be unknown.

Shape rules use `Dims`: a plain tuple of ints and Nones, or None if the rank is unknown.
`TensorShape` and `Dimension` are the public classes, with TensorFlow 1.15's behavior.
"""

from __future__ import annotations

__all__ = ["Dimension", "TensorShape", "dimension_at_index", "dimension_value"]

import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias, cast, overload

from weft_tensor.errors import InvalidArgumentError, InvalidTypeError, UnimplementedError
from weft_tensor.nesting import format_value

Dims: TypeAlias = tuple[int | None, ...] | None

_LARGEST = 2**63 - 1
"""Sizes are stored as int64."""


def merge_dims(a: Dims, b: Dims) -> Dims:
    """Return the combined information of two shapes of one tensor.

    Raises:
      InvalidArgumentError: they contradict each other.
    """
    if a is None or a == b:
        return b
    if b is None:
        return a
    if not compatible_dims(a, b):
        raise InvalidArgumentError(
            f"shapes of one tensor must agree, got {format_dims(a)} and {format_dims(b)}"
        )
    return tuple(y if x is None else x for x, y in zip(a, b, strict=True))


def compatible_dims(a: Dims, b: Dims) -> bool:
    """Return True if one tensor can have both shapes."""
    if a is None or b is None:
        return True
    return len(a) == len(b) and all(
        x == y or x is None or y is None for x, y in zip(a, b, strict=True)
    )


def broadcast_dims(a: Dims, b: Dims) -> Dims:
    """Return the shape of an elementwise op over `a` and `b`, by NumPy's broadcasting rule.

    An unknown size and 1 broadcast to an unknown size; an unknown size and a size above 1 give that
    size.

    Raises:
      InvalidArgumentError: two sizes differ and neither is 1.
    """
    if a is None or b is None:
        return None
    if a == b:
        return a
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    lead = len(longer) - len(shorter)
    sizes = list(longer)
    for axis, y in enumerate(shorter, start=lead):
        x = sizes[axis]
        if x == y or y == 1:
            continue
        if x == 1 or (x is None and y is not None):
            sizes[axis] = y
        elif y is not None:
            raise InvalidArgumentError(
                f"shapes must be equal or broadcast, got {format_dims(a)} and {format_dims(b)}: "
                f"sizes {x} and {y} differ at axis {axis - len(longer)}"
            )
    return tuple(sizes)


def num_elements(dims: Dims) -> int | None:
    """Return the number of elements, or None if a size is unknown and none is 0."""
    if dims is None:
        return None
    if 0 in dims:
        return 0
    count = 1
    for size in dims:
        if size is None:
            return None
        count *= size
    return count


def is_fully_defined(dims: Dims) -> bool:
    """Return True if the rank and every size are known."""
    return dims is not None and None not in dims


def format_dims(dims: Dims) -> str:
    """Return "[2,?]" for (2, None) and "<unknown>" for None, for messages."""
    if dims is None:
        return "<unknown>"
    return "[" + ",".join("?" if size is None else str(size) for size in dims) + "]"


def as_size(value: Any) -> int | None:
    """Return one size as a plain int of at least 0, or None if it is unknown.

    Args:
      value: an int, anything with `__index__`, a `Dimension`, or None.
    Raises:
      InvalidTypeError: it is not an integer.
      InvalidArgumentError: it is negative, or does not fit in int64.
    """
    if value is None:
        return None
    if isinstance(value, Dimension):
        return value.value
    try:
        size = int(operator.index(value))
    except TypeError:
        raise InvalidTypeError(
            f"a size must be an integer or None, got {format_value(value)}"
        ) from None
    if size < 0:
        raise InvalidArgumentError(f"a size must be at least 0, got {size}")
    if size > _LARGEST:
        raise InvalidArgumentError(f"a size must be at most {_LARGEST}, got {size}")
    return size


def as_dims(value: Any) -> Dims:
    """Return the sizes that `value` describes.

    Args:
      value: None (unknown rank), a `TensorShape`, one size (rank 1), an iterable of sizes, or a
        TensorShapeProto-like message (`dim` with `size`, `unknown_rank`) where -1 is unknown.
    Raises:
      InvalidTypeError: it is not a shape.
      InvalidArgumentError: a size is negative.
    """
    if value is None:
        return None
    kind = type(value)
    if kind is TensorShape:
        return cast(TensorShape, value)._dims
    if kind is tuple or kind is list:
        return tuple([s if type(s) is int and 0 <= s <= _LARGEST else as_size(s) for s in value])
    if isinstance(value, TensorShape):
        return value._dims
    if hasattr(value, "unknown_rank") and hasattr(value, "dim"):
        return None if value.unknown_rank else _from_proto(value.dim)
    if isinstance(value, Dimension) or (hasattr(value, "__index__") and not _is_vector(value)):
        return (as_size(value),)
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        raise InvalidTypeError(f"a shape must be None, a size or sizes, got {value!r}")
    return tuple(as_size(size) for size in value)


def _is_vector(value: Any) -> bool:
    return bool(getattr(value, "ndim", 0))


def _from_proto(entries: Iterable[Any]) -> Dims:
    return tuple(None if entry.size == -1 else as_size(entry.size) for entry in entries)


message_of: Callable[[Dims], Any] | None = None
"""Constructor of a `TensorShapeProto` from sizes; set by weft_graph, which defines messages."""


class Dimension:
    """One size of a shape, which may be unknown.

    Arithmetic with an unknown operand gives an unknown size; a comparison gives None, which is
    false.

    Args:
      value: int, or None.

    Examples:
      >>> wf.Dimension(3) * 2
      Dimension(6)
    """

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = as_size(value)

    @property
    def value(self) -> int | None:
        """The size, or None."""
        return self._value

    def is_compatible_with(self, other: Any) -> bool:
        """Return True if both sizes can describe the same axis."""
        size = as_size(other)
        return self._value is None or size is None or self._value == size

    def assert_is_compatible_with(self, other: Any) -> None:
        """Check that both sizes can describe the same axis.

        Raises:
          InvalidArgumentError: both are known and differ.
        """
        if not self.is_compatible_with(other):
            raise InvalidArgumentError(f"Dimensions {self} and {other} are not compatible")

    def merge_with(self, other: Any) -> Dimension:
        """Return the known one of two compatible sizes.

        Raises:
          InvalidArgumentError: both are known and differ.
        """
        self.assert_is_compatible_with(other)
        return Dimension(as_size(other) if self._value is None else self._value)

    def __int__(self) -> int:
        return self.__index__()

    def __index__(self) -> int:
        if self._value is None:
            raise InvalidTypeError("the size is unknown, so it cannot be used as an integer")
        return self._value

    def __repr__(self) -> str:
        return f"Dimension({self._value})"

    def __str__(self) -> str:
        return "?" if self._value is None else str(self._value)

    def __bool__(self) -> bool:
        return bool(self._value)

    def __hash__(self) -> int:
        return hash(self._value)

    def __eq__(self, other: object) -> Any:
        return _compare(operator.eq, self, other)

    def __reduce__(self) -> tuple[type[Dimension], tuple[int | None]]:
        return Dimension, (self._value,)

    def __ne__(self, other: object) -> Any:
        return _compare(operator.ne, self, other)

    def __lt__(self, other: Any) -> Any:
        return _compare(operator.lt, self, other)

    def __le__(self, other: Any) -> Any:
        return _compare(operator.le, self, other)

    def __gt__(self, other: Any) -> Any:
        return _compare(operator.gt, self, other)

    def __ge__(self, other: Any) -> Any:
        return _compare(operator.ge, self, other)

    def __add__(self, other: Any) -> Any:
        return _combine(operator.add, self, other)

    def __radd__(self, other: Any) -> Any:
        return _combine(operator.add, other, self)

    def __sub__(self, other: Any) -> Any:
        return _combine(operator.sub, self, other)

    def __rsub__(self, other: Any) -> Any:
        return _combine(operator.sub, other, self)

    def __mul__(self, other: Any) -> Any:
        return _combine(operator.mul, self, other)

    def __rmul__(self, other: Any) -> Any:
        return _combine(operator.mul, other, self)

    def __floordiv__(self, other: Any) -> Any:
        return _combine(operator.floordiv, self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _combine(operator.floordiv, other, self)

    def __mod__(self, other: Any) -> Any:
        return _combine(operator.mod, self, other)

    def __rmod__(self, other: Any) -> Any:
        return _combine(operator.mod, other, self)


def _compare(compare: Callable[[Any, Any], Any], a: Dimension, b: object) -> Any:
    try:
        size = as_size(b)
    except InvalidArgumentError:
        return NotImplemented
    if a.value is None or size is None:
        return None
    return compare(a.value, size)


def _combine(combine: Callable[[int, int], int], a: Any, b: Any) -> Any:
    try:
        x, y = as_size(a), as_size(b)
    except InvalidTypeError:
        return NotImplemented
    return Dimension(None if x is None or y is None else combine(x, y))


class TensorShape:
    """The static shape of a tensor: fully known, partly known, or of unknown rank.

    Two shapes are equal if the same sizes are known and equal: (2, ?) equals (2, ?) but not (2, 3),
    although both can describe one tensor. `is_compatible_with` tests the latter.

    Args:
      dims: list of ints, Dimensions and Nones; a TensorShape; or None for an unknown rank.

    Examples:
      >>> wf.TensorShape([None, 3])
      TensorShape([Dimension(None), Dimension(3)])
      >>> wf.TensorShape([None, 3]).merge_with([2, None]).as_list()
      [2, 3]
    """

    __slots__ = ("_dims",)

    _dims: Dims

    def __init__(self, dims: Any) -> None:
        """Convert a value that `as_dims` accepts: None, sizes, one size, a shape or its message."""
        self._dims = as_dims(dims)

    @property
    def dims(self) -> list[Dimension] | None:
        """The sizes, or None if the rank is unknown."""
        return None if self._dims is None else [Dimension(size) for size in self._dims]

    @property
    def ndims(self) -> int | None:
        """The rank, or None."""
        return None if self._dims is None else len(self._dims)

    @property
    def rank(self) -> int | None:
        """The rank, or None."""
        return self.ndims

    def as_list(self) -> list[int | None]:
        """Return the sizes as ints, with None where one is unknown.

        Raises:
          InvalidArgumentError: the rank is unknown.
        """
        if self._dims is None:
            raise InvalidArgumentError("as_list() is not defined on an unknown TensorShape.")
        return list(self._dims)

    def num_elements(self) -> int | None:
        """Return the number of elements, or None if it is unknown."""
        return num_elements(self._dims)

    def is_fully_defined(self) -> bool:
        """Return True if the rank and every size are known."""
        return is_fully_defined(self._dims)

    def is_compatible_with(self, other: Any) -> bool:
        """Return True if one tensor can have both shapes."""
        return compatible_dims(self._dims, as_dims(other))

    def merge_with(self, other: Any) -> TensorShape:
        """Return the combined information of both shapes of one tensor.

        Raises:
          InvalidArgumentError: they contradict each other.
        """
        dims = as_dims(other)
        if not compatible_dims(self._dims, dims):
            raise InvalidArgumentError(f"Shapes {self} and {_text(dims)} are not compatible")
        return TensorShape(merge_dims(self._dims, dims))

    def most_specific_compatible_shape(self, other: Any) -> TensorShape:
        """Return the most specific shape that is compatible with both."""
        dims = as_dims(other)
        if self._dims is None or dims is None or len(self._dims) != len(dims):
            return TensorShape(None)
        pairs = zip(self._dims, dims, strict=True)
        return TensorShape(tuple(x if x == y else None for x, y in pairs))

    def concatenate(self, other: Any) -> TensorShape:
        """Return the concatenated sizes of both shapes; unknown rank if either rank is unknown."""
        dims = as_dims(other)
        return TensorShape(None if self._dims is None or dims is None else self._dims + dims)

    def with_rank(self, rank: int) -> TensorShape:
        """Return the shape, which must have this rank; unknown sizes if its rank was unknown.

        Raises:
          InvalidArgumentError: the rank differs.
        """
        if self._dims is None:
            return TensorShape((None,) * rank)
        if len(self._dims) != rank:
            raise InvalidArgumentError(f"Shape {self} must have rank {rank}")
        return self

    def with_rank_at_least(self, rank: int) -> TensorShape:
        """Return the shape if its rank is `rank` or more, or unknown.

        Raises:
          InvalidArgumentError: the rank is smaller.
        """
        if self._dims is not None and len(self._dims) < rank:
            raise InvalidArgumentError(f"Shape {self} must have rank at least {rank}")
        return self

    def with_rank_at_most(self, rank: int) -> TensorShape:
        """Return the shape if its rank is `rank` or less, or unknown.

        Raises:
          InvalidArgumentError: the rank is larger.
        """
        if self._dims is not None and len(self._dims) > rank:
            raise InvalidArgumentError(f"Shape {self} must have rank at most {rank}")
        return self

    def assert_has_rank(self, rank: int) -> None:
        """Check that the rank is `rank` or unknown.

        Raises:
          InvalidArgumentError: the rank differs.
        """
        if self.ndims not in (None, rank):
            raise InvalidArgumentError(f"Shape {self} must have rank {rank}")

    def assert_same_rank(self, other: Any) -> None:
        """Check that both ranks are equal or one is unknown.

        Raises:
          InvalidArgumentError: the ranks differ.
        """
        dims = as_dims(other)
        if self._dims is not None and dims is not None and len(self._dims) != len(dims):
            raise InvalidArgumentError(f"Shapes {self} and {_text(dims)} must have the same rank")

    def assert_is_compatible_with(self, other: Any) -> None:
        """Check that one tensor can have both shapes.

        Raises:
          InvalidArgumentError: they contradict each other.
        """
        if not self.is_compatible_with(other):
            raise InvalidArgumentError(
                f"Shapes {self} and {_text(as_dims(other))} are incompatible"
            )

    def assert_is_fully_defined(self) -> None:
        """Check that the rank and every size are known.

        Raises:
          InvalidArgumentError: the rank or a size is unknown.
        """
        if not self.is_fully_defined():
            raise InvalidArgumentError(f"Shape {self} is not fully defined")

    def as_proto(self) -> Any:
        """Return a `TensorShapeProto` message.

        Raises:
          UnimplementedError: weft_graph, which defines the message, is not imported.
        """
        if message_of is None:
            raise UnimplementedError(
                "messages are defined by weft_graph, which is not imported: import weft_graph first"
            )
        return message_of(self._dims)

    def __len__(self) -> int:
        if self._dims is None:
            raise InvalidArgumentError("Cannot take the length of shape with unknown rank.")
        return len(self._dims)

    def __bool__(self) -> bool:
        return self._dims is not None

    def __iter__(self) -> Iterator[Dimension]:
        if self._dims is None:
            raise InvalidArgumentError("Cannot iterate over a shape with unknown rank.")
        return (Dimension(size) for size in self._dims)

    @overload
    def __getitem__(self, key: int) -> Dimension: ...
    @overload
    def __getitem__(self, key: slice) -> TensorShape: ...
    def __getitem__(self, key: int | slice) -> Dimension | TensorShape:
        if self._dims is not None:
            if isinstance(key, slice):
                return TensorShape(self._dims[key])
            return Dimension(self._dims[key])
        if not isinstance(key, slice):
            return Dimension(None)
        return TensorShape(_slice_unknown(key))

    def __add__(self, other: Any) -> TensorShape:
        return self.concatenate(other)

    def __radd__(self, other: Any) -> TensorShape:
        return TensorShape(other).concatenate(self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TensorShape):
            return self._dims == other._dims
        try:
            return self._dims == as_dims(other)
        except InvalidArgumentError:
            return NotImplemented

    def __hash__(self) -> int:
        return hash(self._dims)

    def __str__(self) -> str:
        return _text(self._dims)

    def __repr__(self) -> str:
        return f"TensorShape({self.dims})"

    def __reduce__(self) -> tuple[type[TensorShape], tuple[Any]]:
        return TensorShape, (self.dims,)


def _slice_unknown(key: slice) -> Dims:
    """Slice a shape of unknown rank: [2:5] gives rank 3, [2:] an unknown rank."""
    if key.step not in (None, 1):
        raise InvalidArgumentError(
            f"a shape of unknown rank can only be sliced with step 1, got {key.step}"
        )
    start, stop = key.start or 0, key.stop
    if stop is None or start < 0 or stop < 0:
        return None
    return tuple([None] * max(int(stop) - int(start), 0))


def _text(dims: Dims) -> str:
    if dims is None:
        return "<unknown>"
    sizes = ", ".join("?" if size is None else str(size) for size in dims)
    return f"({sizes},)" if len(dims) == 1 else f"({sizes})"


def as_shape(value: Any) -> TensorShape:
    """Return `value` itself if it is a `TensorShape`, else convert it to one."""
    return value if isinstance(value, TensorShape) else TensorShape(value)


def as_dimension(value: Any) -> Dimension:
    """Return `value` itself if it is a `Dimension`, else convert it to one."""
    return value if isinstance(value, Dimension) else Dimension(value)


def dimension_value(dimension: Dimension | int | None) -> int | None:
    """Return a `Dimension`'s value; return an int or None unchanged.

    Args:
      dimension: a Dimension, an int or None.

    Examples:
      >>> wf.dimension_value(wf.Dimension(3))
      3
    """
    return dimension.value if isinstance(dimension, Dimension) else dimension


def dimension_at_index(shape: TensorShape, index: int) -> Dimension:
    """Return the size at `index`; it is unknown if the rank is.

    Args:
      shape: a TensorShape.
      index: index of the axis.

    Examples:
      >>> wf.dimension_at_index(wf.TensorShape([2, 3]), 1)
      Dimension(3)
    """
    return shape[index]


def unknown_shape(rank: int | None = None) -> TensorShape:
    """Return a shape of unknown sizes, of rank `rank` or of unknown rank."""
    return TensorShape(None if rank is None else (None,) * rank)


def scalar() -> TensorShape:
    """Return the shape of rank 0."""
    return TensorShape(())


def vector(length: Any) -> TensorShape:
    """Return the shape (length,)."""
    return TensorShape((length,))


def matrix(rows: Any, columns: Any) -> TensorShape:
    """Return the shape (rows, columns)."""
    return TensorShape((rows, columns))
