"""The fetched or fed value of a ragged tensor: arrays."""

from __future__ import annotations

__all__ = ["RaggedTensorValue"]

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft_graph.ir.composite import AppliesOps, makers
from weft_tensor import errors

Array = np.ndarray[Any, Any]


class RaggedTensorValue(AppliesOps):
    """The fetched or fed value of a RaggedTensor: arrays.

    Args:
      values: an array, or a RaggedTensorValue.
      row_splits: int32 or int64, shape (nrows + 1,).
    Raises:
      InvalidTypeError: `row_splits` have another type.
      InvalidArgumentError: their rank is not 1, or they are empty.

    Examples:
      >>> value = wf.Session().run(wf.ragged.constant([[1, 2], [], [3]]))
      >>> value
      RaggedTensorValue(values=array([1, 2, 3], dtype=int32), row_splits=array([0, 2, 2, 3]))
      >>> value.to_list()
      [[1, 2], [], [3]]
    """

    __slots__ = ("_splits", "_values")

    def __init__(self, values: Any, row_splits: Any) -> None:
        splits = np.asarray(row_splits)
        if splits.dtype not in (np.int32, np.int64):
            if splits.dtype.kind not in "iu":
                raise errors.InvalidTypeError(
                    f"row_splits must be int32 or int64, got {splits.dtype.name}"
                )
            splits = splits.astype(np.int64)
        if splits.ndim != 1 or not splits.size:
            raise errors.InvalidArgumentError(
                f"row_splits must have shape [nrows + 1], got shape {list(splits.shape)}"
            )
        self._values = values if isinstance(values, RaggedTensorValue) else np.asarray(values)
        self._splits = splits

    @property
    def values(self) -> Any:
        """The concatenated rows: an array or a RaggedTensorValue."""
        return self._values

    @property
    def row_splits(self) -> Array:
        """The row splits."""
        return self._splits

    @property
    def flat_values(self) -> Array:
        """The innermost values."""
        values = self._values
        return values.flat_values if isinstance(values, RaggedTensorValue) else values

    @property
    def nested_row_splits(self) -> tuple[Array, ...]:
        """The splits of all levels, from the outermost."""
        values = self._values
        inner = values.nested_row_splits if isinstance(values, RaggedTensorValue) else ()
        return (self._splits, *inner)

    @property
    def ragged_rank(self) -> int:
        """The number of levels of rows."""
        return len(self.nested_row_splits)

    @property
    def dtype(self) -> Any:
        """The type of the values."""
        return self.flat_values.dtype

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The number of rows, None for each ragged axis, and the sizes of inner values."""
        inner = (None,) * self.ragged_rank
        return (len(self._splits) - 1, *inner, *self.flat_values.shape[1:])

    def check_splits(self) -> None:
        """Check the row splits of all levels.

        Raises: InvalidArgumentError: splits do not begin with 0, decrease, or do not end with the
          number of values.
        """
        splits, values = self._splits, self._values
        count = len(values.row_splits) - 1 if isinstance(values, RaggedTensorValue) else len(values)
        if splits[0] != 0 or splits[-1] != count or (np.diff(splits) < 0).any():
            raise errors.InvalidArgumentError(
                f"row_splits of {count} values must begin with 0, not decrease, and end with "
                f"{count}, got {np.array2string(splits, threshold=8)}"
            )
        if isinstance(values, RaggedTensorValue):
            values.check_splits()

    def to_list(self) -> list[Any]:
        """Return nested Python lists."""
        values = self._values
        flat = values.to_list() if isinstance(values, RaggedTensorValue) else values.tolist()
        ends = self._splits.tolist()
        return [flat[ends[i] : ends[i + 1]] for i in range(len(ends) - 1)]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RaggedTensorValue):
            return NotImplemented
        own_splits, other_splits = self.nested_row_splits, other.nested_row_splits
        return (
            len(own_splits) == len(other_splits)
            and all(np.array_equal(a, b) for a, b in zip(own_splits, other_splits, strict=True))
            and self.dtype == other.dtype
            and np.array_equal(self.flat_values, other.flat_values)
        )

    __hash__ = None  # type: ignore[assignment]  # its arrays change

    def __repr__(self) -> str:
        return f"RaggedTensorValue(values={self._values!r}, row_splits={self._splits!r})"

    def as_operand(self, dtype: Any) -> Any:
        """Return a constant RaggedTensor of this value."""
        return self._as_tensor().as_operand(dtype)

    def apply_op(
        self, op: Any, inputs: Sequence[Any], attrs: dict[str, Any], name: str | None
    ) -> Sequence[Any]:
        """Apply it like a constant RaggedTensor."""
        outputs: Sequence[Any] = self._as_tensor().apply_op(op, inputs, attrs, name)
        return outputs

    def map_elements(self, function: Any) -> Any:
        """Apply it like a constant RaggedTensor."""
        return self._as_tensor().map_elements(function)

    def _as_tensor(self) -> Any:
        return makers.lookup("of_value")(self)


def value_of(flat: Any, splits: Sequence[Any]) -> Any:
    """Return the RaggedTensorValue with some levels of row splits."""
    for level_splits in reversed(splits):
        flat = RaggedTensorValue(flat, level_splits)
    return flat
