"""Static description of a ragged tensor."""

from __future__ import annotations

__all__ = ["RaggedTensorSpec"]

from typing import Any

from weft_graph.functions.type_spec import TensorSpec, TypeSpec, register_type_spec
from weft_graph.ir.node import Output
from weft_graph.ragged.tensor import RaggedTensor, array_dtype
from weft_graph.ragged.value import RaggedTensorValue
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims, TensorShape, as_dims, format_dims


class RaggedTensorSpec(TypeSpec):
    """The element type, shape and number of ragged axes of a RaggedTensor.

    Args:
      shape: static shape, with None for each ragged axis; None if it is unknown.
      dtype: element type of the values; float32 by default.
      ragged_rank: number of ragged axes; all except the first by default. 0 describes a Tensor.
      row_splits_dtype: int32 or int64.
      flat_values_spec: a TensorSpec of the flat values; its type replaces `dtype`.
    Raises: InvalidArgumentError: `ragged_rank` is missing and cannot be derived from `shape`, or
      is not below its rank.

    Examples:
      >>> spec = wf.RaggedTensorSpec([2, None], wf.int32)
      >>> spec.is_compatible_with(wf.ragged.constant([[1], [2, 3]]))
      True
      >>> spec.ragged_rank
      1
    """

    __slots__ = ("_dtype", "_flat", "_ragged_rank", "_shape", "_splits")

    def __init__(
        self,
        shape: Any = None,
        dtype: Any = dtypes.float32,
        ragged_rank: int | None = None,
        row_splits_dtype: Any = dtypes.int64,
        flat_values_spec: Any = None,
    ) -> None:
        dims = as_dims(shape)
        if flat_values_spec is not None:
            dtype = flat_values_spec.dtype
        self._shape = TensorShape(dims)
        self._dtype = dtypes.as_dtype(dtype)
        self._splits = dtypes.as_dtype(row_splits_dtype)
        self._flat = flat_values_spec
        if self._splits not in (dtypes.int32, dtypes.int64):
            raise errors.InvalidTypeError(
                f"row_splits_dtype must be int32 or int64, got {self._splits.name}"
            )
        if ragged_rank is None:
            if dims is None:
                raise errors.InvalidArgumentError(
                    "a RaggedTensorSpec without a shape requires ragged_rank"
                )
            ragged_rank = max(len(dims) - 1, 0)
        if not isinstance(ragged_rank, int) or ragged_rank < 0:
            raise errors.InvalidArgumentError(
                f"ragged_rank must be an integer of 0 or more, got {ragged_rank!r}"
            )
        if dims is not None and ragged_rank and ragged_rank >= len(dims):
            raise errors.InvalidArgumentError(
                f"ragged_rank must be below the rank of {format_dims(dims)}, got {ragged_rank}"
            )
        self._ragged_rank = ragged_rank

    @property
    def value_type(self) -> type:
        """RaggedTensor, or Tensor if no axis is ragged."""
        return RaggedTensor if self._ragged_rank else Output

    @property
    def shape(self) -> TensorShape:
        """The static shape."""
        return self._shape

    @property
    def dtype(self) -> DType:
        """The element type of the values."""
        return self._dtype

    @property
    def ragged_rank(self) -> int:
        """The number of ragged axes."""
        return self._ragged_rank

    @property
    def row_splits_dtype(self) -> DType:
        """The type of the splits."""
        return self._splits

    @property
    def flat_values_spec(self) -> TensorSpec | None:
        """The spec of the flat values, or None."""
        return self._flat  # type: ignore[no-any-return]

    @classmethod
    def from_value(cls, value: Any) -> RaggedTensorSpec:
        """Return the spec of a RaggedTensor or RaggedTensorValue.

        Raises: InvalidTypeError: it is neither.
        """
        if isinstance(value, RaggedTensorValue):
            splits = dtypes.from_numpy(value.row_splits.dtype)
            dtype = array_dtype(value.flat_values)
            return cls(value.shape, dtype, value.ragged_rank, splits)
        if not isinstance(value, RaggedTensor):
            raise errors.InvalidTypeError(f"a RaggedTensor is required, got {value!r}")
        splits = value.row_splits.dtype.base_dtype
        return cls(value.dims, value.dtype, value.ragged_rank, splits)

    @property
    def flat_dims(self) -> Dims:
        """The static shape of the flat values."""
        dims = as_dims(self._shape)
        return None if dims is None else (None, *dims[self._ragged_rank + 1 :])

    def _details(self) -> tuple[Any, ...]:
        return self._shape, self._dtype, self._ragged_rank, self._splits


register_type_spec(RaggedTensor, RaggedTensorSpec.from_value)
register_type_spec(RaggedTensorValue, RaggedTensorSpec.from_value)
