"""`assert_shapes`: checks of the sizes of several tensors against numbers or symbols."""

from __future__ import annotations

__all__ = ["assert_shapes"]

from collections.abc import Iterable, Sequence
from typing import Any

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.indexed_slices import SparseTensor, SparseTensorValue
from weft_graph.ir.node import Node, Output
from weft_graph.ops import control, shapes as shape_ops
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dimension, Dims, TensorShape, format_dims


def assert_shapes(
    shapes: Any,
    data: Sequence[Any] | None = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> Node:
    """Return a node that fails unless tensors have shapes described by sizes and symbols.

    Args:
      shapes: pairs of a tensor, which may be sparse, and its sizes, or a dict of these. An int is a
        size; a string is a symbol that has the same size everywhere; None or "." is any size. `...`
        or "*" at the beginning matches any number of axes. A string of letters and digits may
        replace a list. A list of one size also matches a scalar, whose size counts as 1, and an
        empty list is equivalent to [1]. None instead of sizes disables the check.
    Raises: InvalidArgumentError: at construction for static sizes, else at run time.

    Examples:
      >>> x, y = wf.placeholder(wf.float32), wf.placeholder(wf.float32)
      >>> fits = wf.debugging.assert_shapes({x: ["N", 2], y: "*N"})
      >>> with wf.Session() as session:
      ...     session.run(fits, {x: [[1, 2], [3, 4]], y: [5, 6]})
    """
    pairs = list(shapes.items()) if isinstance(shapes, dict) else list(shapes)
    options = (data, summarize, message)
    with get_default_graph().name_scope(name or "assert_shapes"):
        meaning: dict[str, Any] = {}
        assertions: list[Node | None] = []
        for tensor, sizes in pairs:
            value = _ShapeInfo(tensor)
            size_list, inner = _required_sizes(value, sizes)
            if size_list is None:
                continue
            assertions.append(value.check_rank(len(size_list), inner, options))
            for axis, size in enumerate(size_list, -len(size_list) if inner else 0):
                if size is None or size == ".":
                    continue
                actual = value.size(axis, len(size_list), inner)
                expected = meaning.setdefault(size, actual) if isinstance(size, str) else size
                assertions.append(_check_same_size(actual, expected, value, axis, options))
        return control.group(*[check for check in assertions if check is not None])


_Options = tuple[Sequence[Any] | None, int | None, str | None]


class _ShapeInfo:
    """The shape of a dense or sparse tensor.

    Attributes:
      name: name of the tensor, or of the shape of a sparse one.
      dims: the static shape.
    """

    def __init__(self, tensor: Any) -> None:
        if isinstance(tensor, SparseTensor | SparseTensorValue):
            value = SparseTensor.from_value(tensor)
            self.name, self.dims = value.dense_shape.name, _dims_of(value)
            self._shape, self._value = value.dense_shape, None
        else:
            self._value = convert_to_tensor(tensor)
            self.name, self.dims = self._value.name, self._value.dims
            self._shape = shape_ops.shape(self._value)

    @property
    def shape(self) -> Output:
        """The shape, a vector of integers."""
        return self._shape

    def check_rank(self, count: int, inner: bool, options: _Options) -> Node | None:
        """Return a node that checks the rank, or None if it is correct; `inner` allows others."""
        ranks = "at least" if inner else "0 or" if count == 1 else ""
        text = f"{options[2]}. " if options[2] else ""
        text += f"Tensor {self.name} must have rank {ranks} {count}".replace("  ", " ")
        if self.dims is not None:
            rank = len(self.dims)
            if not (rank >= count if inner else rank == count or (rank == 0 and count == 1)):
                raise errors.InvalidArgumentError(
                    f"{text}, got rank {rank}, shape {format_dims(self.dims)}"
                )
            return None
        actual = out("Size", [self._shape])
        holds = out("GreaterEqual", [actual, 0 if count == 1 and not inner else count])
        if not inner:
            holds = out("LogicalAnd", [holds, out("LessEqual", [actual, count])])
        option = options[0] or [text, ". Received shape: ", self._shape]
        return control.Assert(holds, option, options[1])

    def size(self, axis: int, count: int, inner: bool) -> Any:
        """Return the size of an axis: an integer if it is known, else a tensor of rank 0."""
        single = count == 1 and not inner
        if self.dims is not None:
            static_size = 1 if single and not self.dims else self.dims[axis]
            return self._shape[axis] if static_size is None else static_size
        # The product is the size of a vector, and 1 for a scalar.
        return out("Prod", [self._shape, [0]]) if single else self._shape[axis]


def _dims_of(value: SparseTensor) -> Dims:
    shape = value.shape
    return None if shape.ndims is None else tuple(shape.as_list())


def _required_sizes(value: _ShapeInfo, sizes: Any) -> tuple[list[Any] | None, bool]:
    """Return the required sizes, and True if leading axes are allowed."""
    if sizes is None or (isinstance(sizes, TensorShape) and sizes.ndims is None):
        return None, False
    if not isinstance(sizes, Iterable):
        raise errors.InvalidArgumentError(
            f"the shape of {value.name} must be a list of sizes and symbols, got {sizes!r}"
        )
    size_list = [_size(size) for size in sizes]
    inner = bool(size_list) and size_list[0] in (Ellipsis, "*")
    size_list = size_list[1:] if inner else size_list or [1]
    if Ellipsis in size_list or "*" in size_list:
        raise errors.InvalidArgumentError(
            f"'...' and '*' are allowed only for the leading axes, got {sizes!r} for {value.name}"
        )
    return size_list, inner


def _size(size: Any) -> Any:
    if isinstance(size, str) and size.isdecimal():
        return int(size)
    return size.value if isinstance(size, Dimension) else size


def _check_same_size(
    actual: Any, expected: Any, value: _ShapeInfo, axis: int, options: _Options
) -> Node | None:
    data, summarize, message = options
    if actual is expected:
        return None
    statement = f"{f'{message}. ' if message else ''}Tensor {value.name} must have size "
    if isinstance(actual, int) and isinstance(expected, int):
        if actual != expected:
            raise errors.InvalidArgumentError(
                f"{statement}{expected} at axis {axis}, got shape {format_dims(value.dims)}"
            )
        return None
    shown = data or [statement, expected, f" at axis {axis}. Received shape: ", value.shape]
    sizes = [out("Cast", [size], {"DstT": dtypes.int64}) for size in (actual, expected)]
    return control.Assert(out("Equal", sizes), shown, summarize)
