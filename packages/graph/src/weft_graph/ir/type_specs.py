"""What is known of values before they are there."""

from __future__ import annotations

__all__ = ["SparseTensorSpec", "TypeSpec"]

from typing import Any

from weft_graph.ir.indexed_slices import SparseTensor
from weft_tensor import dtypes
from weft_tensor.shape import Dims, TensorShape, as_dims, compatible_dims, format_dims


class TypeSpec:
    """What is known of a value before it is there: of a tensor its element type and shape.

    Examples:
      >>> isinstance(wf.TensorSpec([3]), wf.TypeSpec)
      True
    """

    __slots__ = ()

    @property
    def value_type(self) -> type:
        """The class of the values."""
        raise NotImplementedError

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Whether a value, or one of another spec, could be taken for one of this spec.

        Args:
          spec_or_value: a spec, or a value.
        """
        raise NotImplementedError


class SparseTensorSpec(TypeSpec):
    """The element type and shape of a sparse tensor.

    Args:
      shape: what is known of the dense shape; None for nothing.
      dtype: element type; float32 by default.

    Examples:
      >>> wf.SparseTensorSpec([None, 3], wf.int32)
      SparseTensorSpec(shape=[?,3], dtype=int32)
    """

    __slots__ = ("_dims", "_dtype")

    def __init__(self, shape: Any = None, dtype: Any = dtypes.float32) -> None:
        self._dims: Dims = as_dims(shape)
        self._dtype = dtypes.as_dtype(dtype)

    @property
    def value_type(self) -> type:
        """`SparseTensor`."""
        return SparseTensor

    @property
    def shape(self) -> TensorShape:
        """The static dense shape."""
        return TensorShape(self._dims)

    @property
    def dtype(self) -> dtypes.DType:
        """The element type."""
        return self._dtype

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Whether a sparse tensor, or one of another spec, could be taken for one of this spec.

        Args:
          spec_or_value: a SparseTensorSpec, or a sparse tensor.
        """
        if not isinstance(spec_or_value, SparseTensorSpec | SparseTensor):
            return False
        same = spec_or_value.dtype is self._dtype
        return same and compatible_dims(self._dims, as_dims(spec_or_value.shape))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SparseTensorSpec):
            return NotImplemented
        return (self._dims, self._dtype) == (other._dims, other._dtype)

    def __hash__(self) -> int:
        return hash((self._dims, self._dtype))

    def __repr__(self) -> str:
        return f"SparseTensorSpec(shape={format_dims(self._dims)}, dtype={self._dtype.name})"
