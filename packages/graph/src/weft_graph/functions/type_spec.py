"""Specs: the static description of a value."""

from __future__ import annotations

__all__ = [
    "IndexedSlicesSpec",
    "NoneTensorSpec",
    "SparseTensorSpec",
    "TensorArraySpec",
    "TensorSpec",
    "TypeSpec",
    "type_spec_from_value",
]

from collections.abc import Callable
from typing import Any, Self

import numpy as np

from weft_graph.control_flow.tensor_array import TensorArray
from weft_graph.ir import nest
from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.constants import to_array
from weft_graph.ir.indexed_slices import (
    IndexedSlices,
    IndexedSlicesValue,
    SparseTensor,
    SparseTensorValue,
)
from weft_graph.ir.node import Output
from weft_graph.ops.control_flow import broader_dims
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims, TensorShape, as_dims, compatible_dims, format_dims


class TypeSpec:
    """Base class of specs: the class, element types and shapes of a value.

    Specs of one class are equal if all their fields are.

    Examples:
      >>> isinstance(wf.TensorSpec([2]), wf.TypeSpec)
      True
    """

    __slots__ = ()

    @property
    def value_type(self) -> type:
        """The class of values of this kind."""
        raise NotImplementedError

    def _details(self) -> tuple[Any, ...]:
        """Return the fields of the spec: shapes, types, specs and structures of specs."""
        raise NotImplementedError

    def _replace_fields(self, fields: tuple[Any, ...]) -> Self:
        """Return a spec of this class with other fields."""
        return type(self)(*fields)

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Return True if a value, or all values of another spec, match this spec.

        Args:
          spec_or_value: a spec of any kind, or a value.
        """
        other = spec_or_value
        if not isinstance(other, TypeSpec):
            try:
                other = type_spec_from_value(other)
            except (errors.InvalidTypeError, errors.InvalidArgumentError):
                return False
        return type(other) is type(self) and _all_pairs(_fits, self._details(), other._details())

    def most_specific_compatible_type(self, other: TypeSpec) -> Self:
        """Return the most specific spec that is compatible with both this one and another.

        Args:
          other: spec of the same class.
        Raises: InvalidArgumentError: they have nothing in common.
        """
        own_details = self._details()
        if type(other) is not type(self) or not _all_pairs(_joins, own_details, other._details()):
            raise errors.InvalidArgumentError(
                f"No TypeSpec is compatible with both {self!r} and {other!r}"
            )
        return self._replace_fields(
            tuple([_join_specs(a, b) for a, b in zip(own_details, other._details(), strict=True)])
        )

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        assert isinstance(other, TypeSpec)
        return _all_pairs(lambda a, b: bool(a == b), self._details(), other._details())

    def __hash__(self) -> int:
        return hash((type(self), *[hash(part) for part in nest.flatten(self._details())]))

    def __repr__(self) -> str:
        field_texts = [
            format_dims(as_dims(part)) if isinstance(part, TensorShape) else _format_part(part)
            for part in self._details()
        ]
        return f"{type(self).__name__}({', '.join(field_texts)})"


def _format_part(part: Any) -> str:
    return part.name if isinstance(part, DType) else repr(part)


def _all_pairs(test: Callable[[Any, Any], bool], first: Any, second: Any) -> bool:
    """Return True if two structures match and a predicate is true for all pairs of leaves."""
    try:
        nest.assert_same_structure(first, second)
    except (errors.InvalidTypeError, errors.InvalidArgumentError):
        return False
    pairs = zip(nest.flatten(first), nest.flatten(second), strict=True)
    return all(test(a, b) for a, b in pairs)


def _fits(a: Any, b: Any) -> bool:
    if isinstance(a, TensorShape):
        return compatible_dims(as_dims(a), as_dims(b))
    if isinstance(a, TypeSpec):
        return a.is_compatible_with(b)
    return bool(a == b)


def _joins(a: Any, b: Any) -> bool:
    if isinstance(a, TypeSpec):
        return type(a) is type(b) and _all_pairs(_joins, a._details(), b._details())
    return isinstance(a, TensorShape) or bool(a == b)


def _join_specs(a: Any, b: Any) -> Any:
    if isinstance(a, TensorShape):
        return TensorShape(broader_dims(as_dims(a), as_dims(b)))
    if isinstance(a, TypeSpec):
        return a.most_specific_compatible_type(b)
    if nest.is_sequence(a):
        return nest.map_structure(_join_specs, a, b)
    return a


class TensorSpec(TypeSpec):
    """The element type and shape of a tensor, such as an argument.

    Args:
      shape: the static shape; None if it is unknown.
      dtype: element type; float32 by default.
      name: name of the argument.

    Examples:
      >>> wf.TensorSpec([None, 3], wf.float32, name="x")
      TensorSpec(shape=[?,3], dtype=float32, name='x')
    """

    __slots__ = ("_dims", "_dtype", "_name")

    def __init__(
        self, shape: Any = None, dtype: Any = dtypes.float32, name: str | None = None
    ) -> None:
        self._dims: Dims = as_dims(shape)
        self._dtype = dtypes.as_dtype(dtype)
        self._name = name

    @property
    def value_type(self) -> type:
        """Tensor."""
        return Output

    @property
    def shape(self) -> TensorShape:
        """The static shape."""
        return TensorShape(self._dims)

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._dtype

    @property
    def name(self) -> str | None:
        """The name of the argument."""
        return self._name

    @classmethod
    def from_tensor(cls, tensor: Output, name: str | None = None) -> TensorSpec:
        """Return the spec of a tensor."""
        return cls(tensor.dims, tensor.dtype.base_dtype, name or tensor.node.name)

    @classmethod
    def from_spec(cls, spec: TensorSpec, name: str | None = None) -> TensorSpec:
        """Return the same spec with another name."""
        return cls(spec.shape, spec.dtype, name or spec.name)

    def _details(self) -> tuple[Any, ...]:
        return self.shape, self._dtype

    def _replace_fields(self, fields: tuple[Any, ...]) -> Self:
        shape, dtype = fields
        return type(self)(shape, dtype, self._name)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorSpec):
            return NotImplemented
        own_fields, other_fields = (
            (self._dims, self._dtype, self._name),
            (other._dims, other._dtype, other._name),
        )
        return own_fields == other_fields

    def __hash__(self) -> int:
        return hash((self._dims, self._dtype))

    def __repr__(self) -> str:
        return (
            f"TensorSpec(shape={format_dims(self._dims)}, dtype={self._dtype.name}, "
            f"name={self._name!r})"
        )


class SparseTensorSpec(TypeSpec):
    """The element type and dense shape of a SparseTensor.

    Args:
      shape: the static dense shape; None if it is unknown.
      dtype: element type of the values; float32 by default.

    Examples:
      >>> wide, narrow = wf.SparseTensorSpec([2, None]), wf.SparseTensorSpec([2, 3])
      >>> wide.is_compatible_with(narrow)
      True
      >>> narrow.most_specific_compatible_type(wf.SparseTensorSpec([2, 4]))
      SparseTensorSpec(shape=[2,?], dtype=float32)
    """

    __slots__ = ("_dtype", "_shape")

    def __init__(self, shape: Any = None, dtype: Any = dtypes.float32) -> None:
        self._shape = TensorShape(as_dims(shape))
        self._dtype = dtypes.as_dtype(dtype)

    @property
    def value_type(self) -> type:
        """SparseTensor."""
        return SparseTensor

    @property
    def shape(self) -> TensorShape:
        """The static dense shape."""
        return self._shape

    @property
    def dtype(self) -> DType:
        """The element type of the values."""
        return self._dtype

    @classmethod
    def from_value(cls, value: Any) -> SparseTensorSpec:
        """Return the spec of a SparseTensor or SparseTensorValue.

        Raises: InvalidTypeError: it is neither.
        """
        if isinstance(value, SparseTensorValue):
            shape = np.asarray(value.dense_shape).tolist()
            return cls(shape, _dtype_of(to_array(value.values)))
        if not isinstance(value, SparseTensor):
            raise errors.InvalidTypeError(f"a SparseTensor is required, got {value!r}")
        return cls(value.dims, value.dtype.base_dtype)

    def _details(self) -> tuple[Any, ...]:
        return self._shape, self._dtype

    def __repr__(self) -> str:
        return (
            f"SparseTensorSpec(shape={format_dims(as_dims(self._shape))}, dtype={self._dtype.name})"
        )


class IndexedSlicesSpec(TypeSpec):
    """The types and shapes of IndexedSlices.

    Args:
      shape: the static shape of the dense tensor; None if it is unknown.
      dtype: element type of the values; float32 by default.
      indices_dtype: element type of the indices.
      dense_shape_dtype: element type of the dense shape; None if there is none.
      indices_shape: shape of the indices, rank 1.

    Examples:
      >>> wf.IndexedSlicesSpec([None, 3])
      IndexedSlicesSpec([?,3], float32, int64, None, [?])
    """

    __slots__ = ("_dense_shape_dtype", "_dtype", "_indices_dtype", "_indices_shape", "_shape")

    def __init__(
        self,
        shape: Any = None,
        dtype: Any = dtypes.float32,
        indices_dtype: Any = dtypes.int64,
        dense_shape_dtype: Any = None,
        indices_shape: Any = None,
    ) -> None:
        self._shape = TensorShape(as_dims(shape))
        self._dtype = dtypes.as_dtype(dtype)
        self._indices_dtype = dtypes.as_dtype(indices_dtype)
        shape_type = dense_shape_dtype
        self._dense_shape_dtype = None if shape_type is None else dtypes.as_dtype(shape_type)
        dims = as_dims(indices_shape)
        if dims is not None and len(dims) != 1:
            raise errors.InvalidArgumentError(
                f"indices_shape must have rank 1, got {format_dims(dims)}"
            )
        self._indices_shape = TensorShape((None,) if dims is None else dims)

    @property
    def value_type(self) -> type:
        """IndexedSlices."""
        return IndexedSlices

    def _details(self) -> tuple[Any, ...]:
        return (
            self._shape,
            self._dtype,
            self._indices_dtype,
            self._dense_shape_dtype,
            self._indices_shape,
        )


class TensorArraySpec(TypeSpec):
    """The element type and shape of a TensorArray.

    Args:
      element_shape: the static shape of its elements; None if it is unknown.
      dtype: element type of its elements; float32 by default.
      dynamic_size: True if it may grow.
      infer_shape: True if all elements must have the same shape.

    Examples:
      >>> wf.TensorArraySpec([2], wf.int32)
      TensorArraySpec([2], int32, False, True)
    """

    __slots__ = ("_dtype", "_dynamic_size", "_element_shape", "_infer_shape")

    def __init__(
        self,
        element_shape: Any = None,
        dtype: Any = dtypes.float32,
        dynamic_size: bool = False,
        infer_shape: bool = True,
    ) -> None:
        self._element_shape = TensorShape(as_dims(element_shape))
        self._dtype = dtypes.as_dtype(dtype)
        self._dynamic_size = bool(dynamic_size)
        self._infer_shape = bool(infer_shape)

    @property
    def value_type(self) -> type:
        """TensorArray."""
        return TensorArray

    @classmethod
    def from_value(cls, value: Any) -> TensorArraySpec:
        """Return the spec of a TensorArray.

        Raises: InvalidTypeError: it is not a TensorArray.
        """
        if not isinstance(value, TensorArray):
            raise errors.InvalidTypeError(f"a TensorArray is required, got {value!r}")
        return cls(value.element_shape, value.dtype, value.dynamic_size)

    def _details(self) -> tuple[Any, ...]:
        return self._element_shape, self._dtype, self._dynamic_size, self._infer_shape


class NoneTensorSpec(TypeSpec):
    """The spec of None, which is not a tensor.

    Examples:
      >>> wf.NoneTensorSpec().is_compatible_with(None)
      True
    """

    __slots__ = ()

    @property
    def value_type(self) -> type:
        """The class of None."""
        return type(None)

    @classmethod
    def from_value(cls, value: Any) -> NoneTensorSpec:
        """Return the spec of None."""
        return cls()

    def _details(self) -> tuple[Any, ...]:
        return ()


def _spec_of_slices(value: IndexedSlices) -> IndexedSlicesSpec:
    dense = value.dense_shape
    return IndexedSlicesSpec(
        value.dims,
        value.dtype.base_dtype,
        value.indices.dtype.base_dtype,
        None if dense is None else dense.dtype.base_dtype,
        value.indices.dims,
    )


_makers: dict[type, Callable[[Any], TypeSpec]] = {
    type(None): NoneTensorSpec.from_value,
    IndexedSlices: _spec_of_slices,
    SparseTensor: SparseTensorSpec.from_value,
    SparseTensorValue: SparseTensorSpec.from_value,
    TensorArray: TensorArraySpec.from_value,
}


def register_type_spec(kind: type, make: Callable[[Any], TypeSpec]) -> None:
    """Register the function that makes the spec of values of a class."""
    _makers[kind] = make


def type_spec_from_value(value: Any) -> TypeSpec:
    """Return the spec of a value.

    Args:
      value: a tensor, sparse tensor, IndexedSlices, TensorArray, dataset, optional or None; or a
        value that converts to a tensor.
    Raises: InvalidTypeError: the value has no TypeSpec.

    Examples:
      >>> wf.type_spec_from_value(wf.SparseTensor([[0, 1]], [5.0], [2, 2]))
      SparseTensorSpec(shape=[2,2], dtype=float32)
      >>> wf.type_spec_from_value([1, 2])
      TensorSpec(shape=[2], dtype=int32, name=None)
    """
    if isinstance(value, TypeSpec):
        raise errors.InvalidTypeError(f"a value is required, got the spec {value!r}")
    for kind in type(value).__mro__:
        make = _makers.get(kind)
        if make is not None:
            return make(value)
    if isinstance(value, Output):
        return TensorSpec(value.dims, value.dtype.base_dtype)
    if hasattr(value, "_as_output"):  # a variable, which is not read for this
        return TensorSpec(value.shape, value.dtype.base_dtype)
    if isinstance(value, IndexedSlicesValue):
        raise errors.InvalidTypeError(
            f"{value!r} has no TypeSpec; expected a tensor or another composite value"
        )
    if isinstance(value, list | tuple):  # there may be tensors in it
        tensor = convert_to_tensor(value)
        return TensorSpec(tensor.dims, tensor.dtype.base_dtype)
    array = to_array(value)
    return TensorSpec(array.shape, _dtype_of(array))


def _dtype_of(array: np.ndarray[Any, Any]) -> DType:
    return dtypes.string if array.dtype == object else dtypes.from_numpy(array.dtype)
