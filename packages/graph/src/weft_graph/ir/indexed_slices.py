"""Sparse values that consist of several outputs: IndexedSlices and SparseTensor."""

from __future__ import annotations

__all__ = [
    "IndexedSlices",
    "SparseTensor",
    "SparseTensorValue",
    "convert_to_tensor_or_indexed_slices",
    "convert_to_tensor_or_sparse_tensor",
]

from typing import Any, NamedTuple, TypeGuard

import numpy as np

from weft_graph.ir import thread_stacks
from weft_graph.ir.builder import (
    constant_of,
    convert_to_tensor,
    out,
    register_tensor_conversion_function,
)
from weft_graph.ir.composite import CompositeTensor
from weft_graph.ir.constant_value import constant_value_as_dims
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output, implementations
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import (
    Dims,
    TensorShape,
    as_dims,
    compatible_dims,
    format_dims,
    merge_dims,
)


class IndexedSlicesValue(NamedTuple):
    """The fetched or fed value of an IndexedSlices: arrays."""

    values: Any
    indices: Any
    dense_shape: Any = None


class SparseTensorValue(NamedTuple):
    """The fetched or fed value of a SparseTensor: arrays.

    Args:
      indices: int64, shape (n, rank).
      values: any type, shape (n,).
      dense_shape: int64, shape (rank,).

    Examples:
      >>> x = wf.sparse.placeholder(wf.float32)
      >>> value = wf.SparseTensorValue([[0, 1]], [5.0], [1, 3])
      >>> wf.Session().run(wf.sparse.to_dense(x), {x: value})
      array([[0., 5., 0.]], dtype=float32)
    """

    indices: Any
    values: Any
    dense_shape: Any


class IndexedSlices(CompositeTensor):
    """Slices of a tensor along its first axis: `dense[indices[i]] += values[i]`, zeros elsewhere.

    The gradient of a gather has this type, so that its cost depends on the gathered rows, not on
    the table.

    Attributes:
      values: shape (n, R).
      indices: integers, shape (n,); slices at repeated indices are added.
      dense_shape: vector of integers, the shape (N, R) of the tensor, or None.

    Args:
      values: any type, shape (n, ...).
      indices: int32 or int64, shape (n,).
      dense_shape: integers, shape of the dense tensor; None if unknown.

    Examples:
      >>> x = wf.IndexedSlices(wf.constant([[1.0, 2.0]]), wf.constant([1]), wf.constant([2, 2]))
      >>> wf.Session().run(wf.convert_to_tensor(x))
      array([[0., 0.],
             [1., 2.]], dtype=float32)
    """

    __slots__ = ("__weakref__", "_dense_shape", "_indices", "_values")

    def __init__(self, values: Output, indices: Output, dense_shape: Output | None = None) -> None:
        self._values = values
        self._indices = indices
        self._dense_shape = dense_shape

    @property
    def values(self) -> Output:
        """The slices."""
        return self._values

    @property
    def indices(self) -> Output:
        """Indices of the slices along the first axis."""
        return self._indices

    @property
    def parts(self) -> tuple[Output, ...]:
        """The values and indices, and the dense shape if it is known."""
        parts = (self._values, self._indices)
        return parts if self._dense_shape is None else (*parts, self._dense_shape)

    @property
    def dense_shape(self) -> Output | None:
        """The shape of the dense tensor, or None."""
        return self._dense_shape

    @property
    def dims(self) -> Dims:
        """The static shape of the dense tensor."""
        if self._dense_shape is not None:
            return constant_value_as_dims(self._dense_shape)
        inner = self._values.dims
        return None if inner is None else (None, *inner[1:])

    @property
    def shape(self) -> TensorShape:
        """The static shape of the dense tensor."""
        return TensorShape(self.dims)

    def get_shape(self) -> TensorShape:
        """Return the static shape of the dense tensor."""
        return self.shape

    @property
    def dtype(self) -> DType:
        """Element type of the values."""
        return self._values.dtype

    @property
    def name(self) -> str:
        """The name of the values."""
        return self._values.name

    @property
    def device(self) -> str:
        """The device requested for the values."""
        return self._values.device

    @property
    def op(self) -> Node:
        """The node that computes the values."""
        return self._values.node

    @property
    def graph(self) -> Graph:
        """The graph of the parts."""
        return self._values.graph

    def consumers(self) -> list[Node]:
        """Return the nodes that use one of the parts."""
        return _consumers(self)

    def __neg__(self) -> IndexedSlices:
        return IndexedSlices(-self._values, self._indices, self._dense_shape)

    def __repr__(self) -> str:
        return (
            f"IndexedSlices(indices={self._indices!r}, values={self._values!r}, "
            f"dense_shape={self._dense_shape!r})"
        )


class SparseTensor(CompositeTensor):
    """A tensor that stores only some of its elements, by index.

    Attributes:
      indices: int64, shape (n, rank), indices of the stored elements, usually in row-major order.
      values: any type, shape (n,).
      dense_shape: int64, shape (rank,).

    Args:
      indices: int64, shape (n, rank), in row-major order.
      values: any type, shape (n,).
      dense_shape: int64, shape (rank,).
    Raises: InvalidArgumentError: the shapes of the parts do not fit.

    Examples:
      >>> x = wf.SparseTensor([[0, 1]], [5.0], [2, 2])
      >>> wf.Session().run(wf.sparse.to_dense(x))
      array([[0., 5.],
             [0., 0.]], dtype=float32)
    """

    __slots__ = ("__weakref__", "_dense_shape", "_indices", "_static", "_values")

    def __init__(self, indices: Any, values: Any, dense_shape: Any) -> None:
        self._static: Dims = None
        self._indices = convert_to_tensor(indices, dtypes.int64, "indices")
        self._values = convert_to_tensor(values, name="values")
        self._dense_shape = convert_to_tensor(dense_shape, dtypes.int64, "dense_shape")
        rows, rank = _check_rank(self._indices, 2, "indices")
        (count,) = _check_rank(self._values, 1, "values")
        (length,) = _check_rank(self._dense_shape, 1, "dense_shape")
        if not compatible_dims((rows, rank), (count, length)):
            raise errors.InvalidArgumentError(
                "a SparseTensor requires indices [n,rank], values [n] and dense_shape [rank], got "
                f"{format_dims(self._indices.dims)}, {format_dims(self._values.dims)} and "
                f"{format_dims(self._dense_shape.dims)}"
            )

    @classmethod
    def from_value(cls, sparse_tensor_value: Any) -> SparseTensor:
        """Return a SparseTensor unchanged; convert a SparseTensorValue to a constant one."""
        if isinstance(sparse_tensor_value, SparseTensor):
            return sparse_tensor_value
        indices, values, dense_shape = sparse_tensor_value
        return cls(indices, values, dense_shape)

    @property
    def indices(self) -> Output:
        """The indices of the stored elements."""
        return self._indices

    @property
    def values(self) -> Output:
        """The stored elements."""
        return self._values

    @property
    def parts(self) -> tuple[Output, ...]:
        """The indices, values and dense shape."""
        return self._indices, self._values, self._dense_shape

    @property
    def dense_shape(self) -> Output:
        """The shape as a tensor."""
        return self._dense_shape

    @property
    def dims(self) -> Dims:
        """The static shape."""
        static = constant_value_as_dims(self._dense_shape)
        return static if self._static is None else merge_dims(static, self._static)

    def set_shape(self, shape: Any) -> None:
        """Refine the static shape.

        Raises: InvalidArgumentError: it contradicts the static shape.
        """
        self._static = merge_dims(self.dims, as_dims(shape))

    def with_values(self, new_values: Any) -> SparseTensor:
        """Return a SparseTensor with the same indices and other values, of any type, shape (n,).

        Raises: InvalidArgumentError: the numbers of values and indices are known to differ.
        """
        replaced = SparseTensor(self._indices, new_values, self._dense_shape)
        replaced._static = self._static
        return replaced

    @property
    def shape(self) -> TensorShape:
        """The static shape."""
        return TensorShape(self.dims)

    def get_shape(self) -> TensorShape:
        """Return the static shape."""
        return self.shape

    @property
    def dtype(self) -> DType:
        """Element type of the values."""
        return self._values.dtype

    @property
    def op(self) -> Node:
        """The node that computes the values."""
        return self._values.node

    @property
    def graph(self) -> Graph:
        """The graph of the parts."""
        return self._values.graph

    def consumers(self) -> list[Node]:
        """Return the nodes that use one of the parts."""
        return _consumers(self)

    def eval(self, feed_dict: Any = None, session: Any = None) -> SparseTensorValue:
        """Return its value in `session`, or in the default session.

        Raises: FailedPreconditionError: there is no default session.
        """
        eval_session = thread_stacks.session_for(self.graph, session, "SparseTensor.eval()")
        parts = eval_session.run([self._indices, self._values, self._dense_shape], feed_dict)
        return SparseTensorValue(*parts)

    def __mul__(self, dense: Any) -> SparseTensor:
        result: SparseTensor = implementations.lookup("sparse_mul")(self, dense)
        return result

    __rmul__ = __mul__

    def __truediv__(self, dense: Any) -> SparseTensor:
        result: SparseTensor = implementations.lookup("sparse_truediv")(self, dense)
        return result

    def __neg__(self) -> SparseTensor:
        return self.with_values(-self._values)

    def __repr__(self) -> str:
        return (
            f"SparseTensor(indices={self._indices!r}, values={self._values!r}, "
            f"dense_shape={self._dense_shape!r})"
        )


def _check_rank(value: Output, rank: int, label: str) -> tuple[int | None, ...]:
    if value.dims is None:
        return (None,) * rank
    if len(value.dims) != rank:
        raise errors.InvalidArgumentError(
            f"{label} must have rank {rank}, got shape {format_dims(value.dims)}"
        )
    return value.dims


def _consumers(value: CompositeTensor) -> list[Node]:
    return list(dict.fromkeys(node for part in value.parts for node in part.consumers()))


def is_sparse(value: Any) -> TypeGuard[SparseTensor | SparseTensorValue]:
    """Return True if `value` is a SparseTensor or the value of one."""
    return isinstance(value, SparseTensor | SparseTensorValue)


def convert_to_tensor_or_indexed_slices(
    value: Any, dtype: Any = None, name: str | None = None
) -> Output | IndexedSlices:
    """Return IndexedSlices unchanged; convert other values to an output.

    Args:
      value: IndexedSlices, or a value that converts to a tensor.
      dtype: element type.
    Raises: InvalidTypeError: the element type is not `dtype`, or the value does not convert.

    Examples:
      >>> wf.convert_to_tensor_or_indexed_slices([1, 2]).shape
      TensorShape([Dimension(2)])
    """
    if isinstance(value, IndexedSlicesValue):
        dense = None if value.dense_shape is None else convert_to_tensor(value.dense_shape)
        value = IndexedSlices(
            convert_to_tensor(value.values), convert_to_tensor(value.indices), dense
        )
    if isinstance(value, IndexedSlices):
        if dtype is not None and not dtypes.as_dtype(dtype).is_compatible_with(value.dtype):
            raise errors.InvalidTypeError(
                f"requires {dtypes.as_dtype(dtype).name}, got IndexedSlices of {value.dtype.name}"
            )
        return value
    return convert_to_tensor(value, dtype, name)


def convert_to_tensor_or_sparse_tensor(
    value: Any, dtype: Any = None, name: str | None = None
) -> Output | SparseTensor:
    """Return SparseTensors unchanged; convert other values to an output.

    Args:
      value: a SparseTensor, or a value that converts to a tensor.
      dtype: element type.
    Raises: InvalidTypeError: the element type is not `dtype`, or the value does not convert.

    Examples:
      >>> wf.convert_to_tensor_or_sparse_tensor([1, 2]).shape
      TensorShape([Dimension(2)])
    """
    if isinstance(value, SparseTensorValue):
        value = SparseTensor.from_value(value)
    if isinstance(value, SparseTensor):
        if dtype is not None and not dtypes.as_dtype(dtype).is_compatible_with(value.dtype):
            raise errors.InvalidTypeError(
                f"requires {dtypes.as_dtype(dtype).name}, got a SparseTensor of {value.dtype.name}"
            )
        return value
    return convert_to_tensor(value, dtype, name)


def _densify(
    value: IndexedSlices, dtype: DType | None = None, name: str | None = None, as_ref: bool = False
) -> Output:
    """Return the dense tensor: slices at equal indices are added, other rows are zeros."""
    if dtype is not None and value.dtype.base_dtype is not dtype.base_dtype:
        raise errors.InvalidTypeError(
            f"requires {dtype.name}, got IndexedSlices of {value.dtype.name}"
        )
    if value.dense_shape is None:
        raise errors.InvalidArgumentError(
            "IndexedSlices can be converted to a tensor only if dense_shape is known, got "
            f"{value!r}"
        )
    dims = value.dims
    if dims and dims[0] is not None:
        rows = constant_of(np.array(dims[0], np.int32))
    else:
        bounds = [constant_of(np.array([n], np.int32)) for n in (0, 1, 1)]
        rows = out("StridedSlice", [value.dense_shape, *bounds], {"shrink_axis_mask": 1})
    return out("UnsortedSegmentSum", [value.values, value.indices, rows], name=name)


register_tensor_conversion_function(IndexedSlices, _densify)
