"""Constructors of ragged tensors: the class methods of `RaggedTensor`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.composite import makers
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.indexed_slices import SparseTensor, SparseTensorValue
from weft_graph.ir.node import Output
from weft_graph.ops import identity
from weft_graph.ragged import encodings
from weft_graph.ragged.rows import Rows
from weft_graph.ragged.value import RaggedTensorValue
from weft_tensor import dtypes, errors


class Factories:
    """Class methods that create ragged tensors from row partitions and from other tensors."""

    __slots__ = ()

    @classmethod
    def from_row_splits(
        cls, values: Any, row_splits: Any, name: str | None = None, validate: bool = True
    ) -> Self:
        """Create rows from splits: row i is `values[row_splits[i]:row_splits[i + 1]]`.

        Args:
          values: any type, shape (n, ...), or a RaggedTensor of n rows.
          row_splits: int32 or int64, shape (nrows + 1,), ascending from 0 to n.
          name: name scope of the nodes.
          validate: check tensors at run time; static values are always checked.
        Raises: InvalidArgumentError: the splits are malformed.
        """
        return cls._make_ragged(
            values, name, "RaggedFromRowSplits", encodings.from_splits, row_splits, validate
        )

    @classmethod
    def from_row_lengths(
        cls, values: Any, row_lengths: Any, name: str | None = None, validate: bool = True
    ) -> Self:
        """Create rows from lengths, int32 or int64, shape (nrows,); see `from_row_splits`.

        Raises: InvalidArgumentError: one is negative, or their sum is not the number of values.
        """
        return cls._make_ragged(
            values, name, "RaggedFromRowLengths", encodings.from_lengths, row_lengths, validate
        )

    @classmethod
    def from_row_starts(
        cls, values: Any, row_starts: Any, name: str | None = None, validate: bool = True
    ) -> Self:
        """Create rows from their starts, int32 or int64, shape (nrows,); see `from_row_splits`.

        Raises: InvalidArgumentError: they are malformed.
        """
        return cls._make_ragged(
            values, name, "RaggedFromRowStarts", encodings.from_starts, row_starts, validate
        )

    @classmethod
    def from_row_limits(
        cls, values: Any, row_limits: Any, name: str | None = None, validate: bool = True
    ) -> Self:
        """Create rows from their limits, int32 or int64, shape (nrows,); see `from_row_splits`.

        Raises: InvalidArgumentError: they are malformed.
        """
        return cls._make_ragged(
            values, name, "RaggedFromRowLimits", encodings.from_limits, row_limits, validate
        )

    @classmethod
    def from_value_rowids(
        cls,
        values: Any,
        value_rowids: Any,
        nrows: Any = None,
        name: str | None = None,
        validate: bool = True,
    ) -> Self:
        """Create rows from the row index of each value; see `from_row_splits`.

        Args:
          value_rowids: int32 or int64, shape (n,), not decreasing.
          nrows: number of rows, shape (); the last id plus one by default.
        Raises: InvalidArgumentError: they are malformed.
        """
        return cls._make_ragged(
            values, name, "RaggedFromValueRowIds", encodings.from_ids, value_rowids, nrows, validate
        )

    @classmethod
    def from_uniform_row_length(
        cls,
        values: Any,
        uniform_row_length: Any,
        nrows: Any = None,
        validate: bool = True,
        name: str | None = None,
    ) -> Self:
        """Create rows of the same length, for a uniform axis among ragged ones.

        Args:
          uniform_row_length: int32 or int64, shape ().
          nrows: number of rows, shape (); required if the length may be 0.
        Raises: InvalidArgumentError: the number of values does not match.
        """
        return cls._make_ragged(
            values,
            name,
            "RaggedFromUniformRowLength",
            encodings.from_uniform,
            uniform_row_length,
            nrows,
            validate,
        )

    @classmethod
    def _make_ragged(
        cls, values: Any, name: str | None, default: str, make: Callable[..., Rows], *args: Any
    ) -> Self:
        with get_default_graph().name_scope(name or default):
            inner = convert_values(values)
            first, *options = args
            rows = make(first, inner, *options)
            make_ragged: Any = cls  # RaggedTensor
            ragged_tensor: Self = make_ragged(inner, rows)
            return ragged_tensor

    @classmethod
    def from_nested_row_splits(
        cls,
        flat_values: Any,
        nested_row_splits: Any,
        name: str | None = None,
        validate: bool = True,
    ) -> Any:
        """Create several levels of rows from splits, outermost first; see `from_row_splits`.

        Raises: InvalidTypeError: `nested_row_splits` is not a list.
        """
        make = cls.from_row_splits
        return cls._from_nested(flat_values, "row_splits", nested_row_splits, make, name, validate)

    @classmethod
    def from_nested_row_lengths(
        cls,
        flat_values: Any,
        nested_row_lengths: Any,
        name: str | None = None,
        validate: bool = True,
    ) -> Any:
        """Create several levels of rows from lengths, outermost first; see `from_row_lengths`.

        Raises: InvalidTypeError: `nested_row_lengths` is not a list.
        """
        make = cls.from_row_lengths
        return cls._from_nested(
            flat_values, "row_lengths", nested_row_lengths, make, name, validate
        )

    @classmethod
    def from_nested_value_rowids(
        cls,
        flat_values: Any,
        nested_value_rowids: Any,
        nested_nrows: Any = None,
        name: str | None = None,
        validate: bool = True,
    ) -> Self:
        """Create several levels of rows from ids, outermost first; see `from_value_rowids`.

        Raises:
          InvalidTypeError: `nested_value_rowids` is not a list.
          InvalidArgumentError: the numbers of ids and of row counts differ.
        """
        levels = _levels("value_rowids", nested_value_rowids)
        counts = [None] * len(levels) if nested_nrows is None else _levels("nrows", nested_nrows)
        if len(counts) != len(levels):
            raise errors.InvalidArgumentError(
                f"nested_nrows must have {len(levels)} items like nested_value_rowids, got "
                f"{len(counts)}"
            )
        inner: Any = flat_values
        with get_default_graph().name_scope(name or "RaggedFromNestedValueRowIds"):
            for ids, nrows in zip(reversed(levels), reversed(counts), strict=True):
                inner = cls.from_value_rowids(inner, ids, nrows, validate=validate)
            ragged_tensor: Self = convert_values(inner)
            return ragged_tensor

    @classmethod
    def _from_nested(
        cls,
        flat_values: Any,
        label: str,
        nested: Any,
        make: Callable[..., Self],
        name: str | None,
        validate: bool,
    ) -> Any:
        levels = _levels(label, nested)
        inner = flat_values
        with get_default_graph().name_scope(name or "RaggedFromNestedRows"):
            for level in reversed(levels):
                inner = make(inner, level, validate=validate)
            return inner if levels else convert_values(inner)

    @classmethod
    def from_value(cls, value: Any) -> Any:
        """Return a RaggedTensor unchanged; convert a RaggedTensorValue to a constant one."""
        if isinstance(value, Factories):
            return value
        if not isinstance(value, RaggedTensorValue):
            raise errors.InvalidTypeError(f"a ragged tensor is required, got {value!r}")
        return cls.from_nested_row_splits(value.flat_values, list(value.nested_row_splits))

    @classmethod
    def from_tensor(
        cls,
        tensor: Any,
        lengths: Any = None,
        padding: Any = None,
        ragged_rank: int = 1,
        name: str | None = None,
        row_splits_dtype: Any = dtypes.int64,
    ) -> Self:
        """Create rows from those of a tensor, truncated to lengths.

        Args:
          tensor: any type, rank above `ragged_rank`, or a RaggedTensor of static rank.
          lengths: integers, the lengths of rows; a list of them for several ragged axes.
          padding: value to remove at the ends of rows, of the shape of inner values. Excludes
            `lengths`.
          ragged_rank: number of axes that become ragged.
          name: name scope of the nodes.
          row_splits_dtype: int32 or int64.
        Raises: InvalidArgumentError: the rank is unknown or too low, `ragged_rank` is not positive,
          or both `lengths` and `padding` are passed.
        """
        with get_default_graph().name_scope(name or "RaggedFromTensor"):
            converted: Self = makers.lookup("from_tensor")(
                tensor, lengths, padding, ragged_rank, row_splits_dtype
            )
            return converted

    @classmethod
    def from_sparse(
        cls, st_input: Any, name: str | None = None, row_splits_dtype: Any = dtypes.int64
    ) -> Self:
        """Create rows from a SparseTensor of rank 2 with left-aligned values.

        Args:
          st_input: SparseTensor, shape (nrows, n), with sorted indices.
          name: name scope of the nodes.
          row_splits_dtype: int32 or int64.
        Raises:
          InvalidTypeError: it is not a SparseTensor.
          InvalidArgumentError: its rank is not 2; or, at run time, a row has gaps.
        """
        if not isinstance(st_input, SparseTensor | SparseTensorValue):
            raise errors.InvalidTypeError(f"a SparseTensor is required, got {st_input!r}")
        with get_default_graph().name_scope(name or "RaggedFromSparse"):
            sparse = SparseTensor.from_value(st_input)
            converted: Self = makers.lookup("from_sparse")(
                sparse, dtypes.as_dtype(row_splits_dtype)
            )
            return converted


def _levels(label: str, nested: Any) -> list[Any]:
    if isinstance(nested, Output) or not isinstance(nested, list | tuple):
        raise errors.InvalidTypeError(f"nested_{label} must be a list of tensors, got {nested!r}")
    return list(nested)


def convert_values(values: Any) -> Any:
    """Return the values to divide into rows: a RaggedTensor, or a Tensor of rank 1 or more.

    Raises: InvalidArgumentError: its rank is 0.
    """
    if isinstance(values, RaggedTensorValue):
        return makers.lookup("of_value")(values)
    if isinstance(values, Factories):
        return values
    tensor = convert_to_tensor(values, name="values")
    if tensor.dtype.is_ref:
        tensor = identity.identity(tensor)
    if tensor.dims == ():
        raise errors.InvalidArgumentError(f"values must have rank 1 or more, got {tensor!r}")
    return tensor
