"""Ragged tensors: rows of different lengths."""

from __future__ import annotations

__all__ = ["RaggedTensor"]

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from weft_graph.ir import thread_stacks
from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.composite import AppliesOps, CompositeTensor, makers
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.graph import Graph
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ir.node import Node, Operators, Output
from weft_graph.ops import casting, shapes
from weft_graph.ops.array import fill
from weft_graph.ragged import encodings
from weft_graph.ragged.factories import Factories, convert_values
from weft_graph.ragged.rows import Rows
from weft_graph.ragged.value import RaggedTensorValue, value_of
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims, TensorShape, as_dims, compatible_dims, format_dims, merge_dims


class RaggedTensor(Factories, CompositeTensor, AppliesOps, Operators):
    """A tensor whose rows may have different lengths.

    It consists of the values of all rows, concatenated, and the row splits. If the values are a
    RaggedTensor, more than one axis is ragged. Programs create one by the `from_` methods or with
    `ragged.constant`. Operators and most functions accept it instead of a tensor.

    Args:
      values: Tensor of rank 1 or more, or RaggedTensor: the concatenated rows.
      rows: the partition into rows.
    Attributes:
      values: the concatenated rows.
      flat_values: the innermost values, a Tensor of shape (n, ...).

    Examples:
      >>> x = wf.ragged.constant([[3, 1, 4], [], [5]])
      >>> x.shape
      TensorShape([Dimension(3), Dimension(None)])
      >>> wf.Session().run([x + 1, wf.reduce_sum(x, axis=1)])[0].to_list()
      [[4, 2, 5], [], [6]]
    """

    __slots__ = ("__weakref__", "_rows", "_values")

    def __init__(self, values: Any, rows: Rows) -> None:
        if isinstance(values, RaggedTensor) and values.row_splits.dtype is not rows.splits.dtype:
            values, rows = values.with_row_splits_dtype(dtypes.int64), rows.cast(dtypes.int64)
        self._values = values
        self._rows = rows

    # ------------------------------------------------------------------------- what it is

    @property
    def dtype(self) -> DType:
        """The type of the values."""
        return self._values.dtype.base_dtype  # type: ignore[no-any-return]

    @property
    def dims(self) -> Dims:
        """The static shape; None for the size of a ragged axis."""
        lead = (self._rows.static_nrows, self._rows.static_uniform)
        inner = self._values.dims
        return None if inner is None else (*lead, *inner[1:])

    @property
    def shape(self) -> TensorShape:
        """The static shape; None for the size of a ragged axis."""
        return TensorShape(self.dims)

    def get_shape(self) -> TensorShape:
        """Return `shape`."""
        return self.shape

    def set_shape(self, shape: Any) -> None:
        """Check a static shape against the known one; ragged axes have no size.

        Raises: InvalidArgumentError: it contradicts the known shape.
        """
        if not compatible_dims(self.dims, as_dims(shape)):
            merge_dims(self.dims, as_dims(shape))

    @property
    def ragged_rank(self) -> int:
        """The number of levels of rows."""
        values = self._values
        return 1 + (values.ragged_rank if isinstance(values, RaggedTensor) else 0)

    @property
    def values(self) -> Any:
        """The concatenated rows: a Tensor or a RaggedTensor."""
        return self._values

    @property
    def flat_values(self) -> Output:
        """The innermost values."""
        values = self._values
        while isinstance(values, RaggedTensor):
            values = values._values
        return values  # type: ignore[no-any-return]

    @property
    def row_splits(self) -> Output:
        """The row splits, shape (nrows + 1,)."""
        return self._rows.splits

    @property
    def uniform_row_length(self) -> Output | None:
        """The length of all rows, shape (); None if they may differ."""
        return self._rows.uniform

    @property
    def levels(self) -> list[Rows]:
        """The rows of all levels, from the outermost."""
        row_levels, value = [self._rows], self._values
        while isinstance(value, RaggedTensor):
            row_levels.append(value._rows)
            value = value._values
        return row_levels

    @property
    def nested_row_splits(self) -> tuple[Output, ...]:
        """The splits of all levels, from the outermost."""
        return tuple([rows.splits for rows in self.levels])

    @property
    def parts(self) -> tuple[Output, ...]:
        """The flat values, then the splits of all levels."""
        return (self.flat_values, *self.nested_row_splits)

    def rebuilt(self, parts: Sequence[Any]) -> Any:
        """Return a RaggedTensor with the same number of levels, from flat values and splits.

        Its rows need not be uniform, even if those of this one are.
        """
        return _from_splits(*parts)

    def part_dims(self, dims: Dims) -> list[Dims]:
        """Return the shape invariants of its parts in a loop; the number of values may change.

        Raises: InvalidArgumentError: `dims` are incompatible.
        """
        levels = self.ragged_rank
        flat = self.flat_values.dims
        if dims is None:
            inner = None if flat is None else flat[1:]
            return [None if inner is None else (None, *inner), *[(None,)] * levels]
        if not compatible_dims(self.dims, dims) or len(dims) <= levels:
            raise errors.InvalidArgumentError(
                f"the shape invariant {format_dims(dims)} does not fit {self!r}"
            )
        rows = None if dims[0] is None else dims[0] + 1
        return [(None, *dims[levels + 1 :]), (rows,), *[(None,)] * (levels - 1)]

    def value_of(self, values: Sequence[Any]) -> RaggedTensorValue:
        """Return the RaggedTensorValue with some arrays as its parts."""
        return value_of(values[0], values[1:])  # type: ignore[no-any-return]

    def fed_parts(self, value: Any) -> Sequence[Any]:
        """Return the arrays of a fed value.

        Raises:
          InvalidTypeError: it is not a ragged value.
          InvalidArgumentError: the number of levels differs, or splits are invalid.
        """
        if not isinstance(value, RaggedTensorValue):
            if not isinstance(value, list | tuple):
                raise errors.InvalidTypeError(
                    f"{self!r} is fed a RaggedTensorValue or nested lists, got {value!r}"
                )
            value = makers.lookup("constant_value")(value, self.dtype, self.ragged_rank)
        if value.ragged_rank != self.ragged_rank:
            raise errors.InvalidArgumentError(
                f"{self!r} is fed a value with {self.ragged_rank} ragged axes, got one with "
                f"{value.ragged_rank}"
            )
        value.check_splits()
        return value.flat_values, *value.nested_row_splits

    @property
    def op(self) -> Node:
        """The node that computes the flat values."""
        return self.flat_values.node

    @property
    def graph(self) -> Graph:
        """The graph of the parts."""
        return self.flat_values.graph

    @property
    def name(self) -> str:
        """The name of the flat values."""
        return self.flat_values.name

    @property
    def device(self) -> str:
        """The device requested for the flat values."""
        return self.flat_values.device

    def consumers(self) -> list[Node]:
        """Return the nodes that use one of the parts."""
        return list(dict.fromkeys(node for part in self.parts for node in part.consumers()))

    # ---------------------------------------------------------------------------- its rows

    def nrows(self, out_type: Any = None, name: str | None = None) -> Output:
        """Return the number of rows, shape (), as `out_type` (that of the splits by default)."""
        with get_default_graph().name_scope(name or "RaggedNRows"):
            num_rows = self._rows.nrows()
            return num_rows if out_type is None else casting.cast(num_rows, out_type)

    def row_starts(self, name: str | None = None) -> Output:
        """Return the index of the first value of each row, shape (nrows,)."""
        with get_default_graph().name_scope(name or "RaggedRowStarts"):
            return self._rows.starts()

    def row_limits(self, name: str | None = None) -> Output:
        """Return the index after the last value of each row, shape (nrows,)."""
        with get_default_graph().name_scope(name or "RaggedRowLimits"):
            return self._rows.limits()

    def value_rowids(self, name: str | None = None) -> Output:
        """Return the row of each value, shape (n,)."""
        with get_default_graph().name_scope(name or "RaggedValueRowIds"):
            return self._rows.ids()

    def row_lengths(self, axis: int = 1, name: str | None = None) -> Any:
        """Return the lengths of rows along an axis.

        Args:
          axis: 1 for the outermost rows; the lengths along deeper axes are ragged. Negative values
            count from the end, which requires a known rank.
        Returns: integers, shape (nrows,), or a RaggedTensor of rank `axis`; for axis 0 the number
          of rows, rank 0.
        Raises: InvalidArgumentError: the axis is not an integer, or out of range.
        """
        rank = self.shape.ndims
        if isinstance(axis, int) and rank is not None and -rank <= axis < 0:
            axis += rank
        if not isinstance(axis, int) or axis < 0:
            raise errors.InvalidArgumentError(
                "axis must be an integer in [-rank, rank), and at least 0 if the rank is "
                f"unknown; got {axis!r} and rank {rank}"
            )
        with get_default_graph().name_scope(name or "RaggedRowLengths"):
            if axis == 0:
                return self._rows.nrows()
            if axis == 1:
                return self._rows.row_lengths()
            values = self._values
            if isinstance(values, RaggedTensor):
                return self.with_values(values.row_lengths(axis - 1))
            sizes = shapes.shape(values, out_type=self._rows.dtype)
            if values.dims is not None and axis - 1 >= len(values.dims):
                raise errors.InvalidArgumentError(
                    f"axis must be below the rank {len(values.dims) + 1}, got {axis}"
                )
            return self.with_values(fill(sizes[: axis - 1], sizes[axis - 1]))

    def nested_row_lengths(self, name: str | None = None) -> tuple[Output, ...]:
        """Return the lengths of the rows of all levels, from the outermost."""
        with get_default_graph().name_scope(name or "RaggedNestedRowLengths"):
            return tuple([rows.row_lengths() for rows in self.levels])

    def nested_value_rowids(self, name: str | None = None) -> tuple[Output, ...]:
        """Return the row of each value of all levels, from the outermost."""
        with get_default_graph().name_scope(name or "RaggedNestedValueRowIds"):
            return tuple([rows.ids() for rows in self.levels])

    def bounding_shape(
        self, axis: Any = None, name: str | None = None, out_type: Any = None
    ) -> Output:
        """Return the smallest shape that contains all rows.

        Args:
          axis: one axis, for a size of shape (), or several, for a vector; all axes by default.
          name: name scope of the nodes.
          out_type: int32 or int64; defaults to that of the splits.
        """
        element_type = self._rows.dtype if out_type is None else dtypes.as_dtype(out_type)
        with get_default_graph().name_scope(name or "RaggedBoundingBox"):
            bounds: Output = makers.lookup("bounding_shape")(self, axis, element_type)
            return bounds

    # --------------------------------------------------------------------- made of another

    def with_values(self, new_values: Any) -> RaggedTensor:
        """Return a RaggedTensor with the same rows and other values.

        Args:
          new_values: Tensor or RaggedTensor with as many rows as `values`.
        Raises: InvalidArgumentError: the number of rows is known to differ.
        """
        inner = convert_values(new_values)
        a, b = self._values.dims, inner.dims
        if a and b and not compatible_dims(a[:1], b[:1]):
            raise errors.InvalidArgumentError(
                "the new values must have the same number of rows as the old values, got shape "
                f"{format_dims(b)} for "
                f"{format_dims(a)}"
            )
        return RaggedTensor(inner, self._rows)

    def with_flat_values(self, new_values: Any) -> RaggedTensor:
        """Return a RaggedTensor with the same rows of all levels and other flat values."""
        values = self._values
        if isinstance(values, RaggedTensor):
            return self.with_values(values.with_flat_values(new_values))
        return self.with_values(new_values)

    def with_row_splits_dtype(self, dtype: Any) -> RaggedTensor:
        """Return the RaggedTensor with splits of type int32 or int64.

        Raises: InvalidTypeError: the type is not int32 or int64.
        """
        splits_type = dtypes.as_dtype(dtype)
        if splits_type not in encodings.SPLITS:
            raise errors.InvalidTypeError(f"dtype must be int32 or int64, got {splits_type.name}")
        if splits_type is self._rows.dtype:
            return self
        values = self._values
        if isinstance(values, RaggedTensor):
            values = values.with_row_splits_dtype(splits_type)
        return RaggedTensor(values, self._rows.cast(splits_type))

    def merge_dims(self, outer_axis: int, inner_axis: int) -> Any:
        """Merge the axes from `outer_axis` to `inner_axis` into one.

        Args:
          outer_axis, inner_axis: integers; negative ones count from the end.
        Returns: a RaggedTensor, or a Tensor if no ragged axis remains.
        Raises: InvalidArgumentError: the axes are out of range or in the wrong order.
        """
        with get_default_graph().name_scope("RaggedMergeDims"):
            return makers.lookup("merge_axes")(self, outer_axis, inner_axis)

    def to_tensor(
        self, default_value: Any = None, name: str | None = None, shape: Any = None
    ) -> Output:
        """Convert to a dense tensor, padding rows at their ends.

        Args:
          default_value: padding value; its shape broadcasts to that of inner values; 0 or "" by
            default.
          name: name scope of the nodes.
          shape: shape of the result, with None for sizes inferred from the rows; longer rows are
            truncated.
        Raises: InvalidArgumentError: `shape` does not match the rank.
        """
        with get_default_graph().name_scope(name or "RaggedToTensor"):
            dense: Output = makers.lookup("to_tensor")(self, default_value, shape)
            return dense

    def to_sparse(self, name: str | None = None) -> SparseTensor:
        """Convert to a SparseTensor; its indices are positions in the padded tensor."""
        with get_default_graph().name_scope(name or "RaggedToSparse"):
            sparse: SparseTensor = makers.lookup("to_sparse")(self)
            return sparse

    def to_list(self) -> list[Any]:
        """Return the value of a constant as nested Python lists.

        Raises: InvalidArgumentError: its value is not static.
        """
        static_parts = [constant_value(part) for part in self.parts]
        if any(part is None for part in static_parts):
            raise errors.InvalidArgumentError(
                f"{self!r} has no value while the graph is built: fetch it with Session.run, and "
                "call to_list() on the result"
            )
        return self.value_of(static_parts).to_list()

    def eval(self, feed_dict: Any = None, session: Any = None) -> RaggedTensorValue:
        """Return its value in `session`, or in the default session.

        Raises: FailedPreconditionError: there is no default session.
        """
        eval_session = thread_stacks.session_for(self.graph, session, "RaggedTensor.eval()")
        return eval_session.run(self, feed_dict)  # type: ignore[no-any-return]

    # --------------------------------------------------------------------------- operators

    def __getitem__(self, key: Any) -> Any:
        with get_default_graph().name_scope("RaggedGetItem"):
            return makers.lookup("getitem")(self, key)

    def __len__(self) -> int:
        raise errors.InvalidTypeError(f"{self!r} has no len(); use nrows()")

    def __iter__(self) -> Any:
        count = self._rows.static_nrows
        if count is None:
            raise errors.InvalidTypeError(
                f"{self!r} cannot be iterated: the number of its rows is not known while the graph "
                "is built; use map_fn"
            )
        return (self[i] for i in range(count))

    def __repr__(self) -> str:
        return f"RaggedTensor(values={self._values!r}, row_splits={self._rows.splits!r})"

    def as_operand(self, dtype: DType | None) -> Self:
        """Return itself.

        Raises: InvalidTypeError: its values have another type.
        """
        if dtype is not None and dtype.base_dtype is not self.dtype:
            raise errors.InvalidTypeError(f"requires {dtype.name}, got {self!r}")
        return self

    def apply_op(
        self, op: Any, inputs: Sequence[Any], attrs: dict[str, Any], name: str | None
    ) -> Sequence[Any]:
        """Apply an op to ragged tensors; see `weft_graph.ragged.dispatch`."""
        outputs: Sequence[Any] = makers.lookup("apply")(op, inputs, attrs, name)
        return outputs

    def map_elements(self, function: Callable[[Output], Any]) -> RaggedTensor:
        """Apply a function to the flat values, keeping the rows."""
        return self.with_flat_values(function(self.flat_values))


def _from_splits(values: Any, *splits: Output) -> Any:
    """Return a RaggedTensor from splits computed by an op, outermost first, without checks."""
    for level_splits in reversed(splits):
        values = RaggedTensor(values, Rows(level_splits))
    return values


makers.register("ragged", _from_splits)
makers.register("of_value", RaggedTensor.from_value)


def ragged_or_tensor(value: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Convert ragged values to a RaggedTensor, and other values to a tensor."""
    if isinstance(value, RaggedTensorValue):
        value = RaggedTensor.from_value(value)
    return convert_to_tensor(value, dtype, name)


def is_ragged(value: Any) -> bool:
    """Return True if a value is a RaggedTensor or a RaggedTensorValue."""
    return isinstance(value, RaggedTensor | RaggedTensorValue)


def static_rank(value: Any) -> int | None:
    """Return the rank, if it is known."""
    return None if value.dims is None else len(value.dims)


def array_dtype(array: np.ndarray[Any, Any]) -> DType:
    """Return the element type of an array; strings are object arrays."""
    return dtypes.string if array.dtype == object else dtypes.from_numpy(array.dtype)
