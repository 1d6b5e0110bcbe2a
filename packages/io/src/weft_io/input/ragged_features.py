"""Features parsed to ragged tensors: values, and further features that partition them into rows."""

from __future__ import annotations

__all__ = ["RaggedFeature"]

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.indexed_slices import SparseTensor
from weft_graph.ir.node import Output
from weft_graph.ops.arithmetic import maximum
from weft_graph.ops.casting import cast
from weft_graph.ops.comparison import equal
from weft_graph.ops.control import Assert
from weft_graph.ops.identity import identity
from weft_graph.ops.join import concat, stack
from weft_graph.ops.masks import repeat
from weft_graph.ops.reduction import cumsum, reduce_all, reduce_max, reduce_sum
from weft_graph.ops.shapes import reshape, shape, size
from weft_graph.ragged.tensor import RaggedTensor
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_integer
from weft_tensor.dtypes import DType


class RowSplits(NamedTuple):
    """Row partition by splits: a feature with one number more than there are rows."""

    key: str


class RowLengths(NamedTuple):
    """Row partition by lengths: a feature with one number per row."""

    key: str


class RowStarts(NamedTuple):
    """Row partition by start offsets: a feature with one number per row."""

    key: str


class RowLimits(NamedTuple):
    """Row partition by end offsets: a feature with one number per row."""

    key: str


class ValueRowIds(NamedTuple):
    """Row partition by row ids: a feature with one number per value."""

    key: str


class UniformRowLength(NamedTuple):
    """Row partition into rows of the same length, which is a constant instead of a feature."""

    length: int


_PARTITIONS = (RowSplits, RowLengths, RowStarts, RowLimits, ValueRowIds, UniformRowLength)


class _Fields(NamedTuple):
    dtype: DType
    value_key: str | None
    partitions: tuple[Any, ...]
    row_splits_dtype: DType
    validate: bool


class RaggedFeature(_Fields):
    """A feature of variable length parsed to a RaggedTensor, optionally partitioned into rows.

    In a batch, the first axis indexes the examples. A single example without partitions is a
    dense tensor. Innermost partitions of uniform length become dense axes.

    Attributes:
      dtype: float32, int64 or string.
      value_key: name of the feature of values; None: that of this feature.
      partitions: partitions into rows, outermost first.
      row_splits_dtype: int32 or int64.
      validate: True if partitions are checked when they are read.

    Args:
      dtype: float32, int64 or string.
      value_key: name of the feature of values; defaults to that of this feature.
      partitions: partitions into rows, outermost first: `RaggedFeature.RowSplits(key)`,
        `RowLengths(key)`, `RowStarts(key)`, `RowLimits(key)`, `ValueRowIds(key)`, each by another
        feature of int64, or `UniformRowLength(length)`.
      row_splits_dtype: int32 or int64.
      validate: True if partitions are checked when they are read.
    Raises: InvalidTypeError, InvalidArgumentError: an argument is invalid.

    Examples:
      >>> lists = {"values": [3, 1, 4], "lengths": [2, 0, 1]}
      >>> features = wf.train.Features(feature={
      ...     key: wf.train.Feature(int64_list=wf.train.Int64List(value=lists[key]))
      ...     for key in lists
      ... })
      >>> text = wf.train.Example(features=features).SerializeToString()
      >>> rows = wf.io.RaggedFeature(
      ...     wf.int64, "values", [wf.io.RaggedFeature.RowLengths("lengths")]
      ... )
      >>> wf.Session().run(wf.io.parse_single_example(text, {"rows": rows})["rows"]).to_list()
      [[3, 1], [], [4]]
    """

    __slots__ = ()

    RowSplits = RowSplits
    RowLengths = RowLengths
    RowStarts = RowStarts
    RowLimits = RowLimits
    ValueRowIds = ValueRowIds
    UniformRowLength = UniformRowLength

    def __new__(
        cls,
        dtype: Any,
        value_key: str | None = None,
        partitions: Sequence[Any] = (),
        row_splits_dtype: Any = dtypes.int32,
        validate: bool = False,
    ) -> RaggedFeature:
        """Create the feature after checking the arguments."""
        splits = dtypes.as_dtype(row_splits_dtype)
        if splits not in (dtypes.int32, dtypes.int64):
            raise errors.InvalidTypeError(
                f"row_splits_dtype must be int32 or int64, got {splits.name}"
            )
        if value_key is not None and not (isinstance(value_key, str) and value_key):
            raise errors.InvalidArgumentError(
                f"value_key must be the name of a feature, got {value_key!r}"
            )
        if not isinstance(partitions, list | tuple):
            raise errors.InvalidTypeError(
                f"partitions must be a list of partitions, got {partitions!r}"
            )
        for partition in partitions:
            _check_partition(partition)
        if not isinstance(validate, bool):
            raise errors.InvalidTypeError(f"validate must be True or False, got {validate!r}")
        return super().__new__(
            cls, dtypes.as_dtype(dtype), value_key, tuple(partitions), splits, validate
        )

    @property
    def partition_keys(self) -> list[str]:
        """The names of the features that partition the values into rows."""
        return [
            partition.key
            for partition in self.partitions
            if not isinstance(partition, UniformRowLength)
        ]


def _check_partition(partition: Any) -> None:
    if not isinstance(partition, _PARTITIONS):
        allowed = ", ".join([f"RaggedFeature.{kind.__name__}" for kind in _PARTITIONS])
        raise errors.InvalidTypeError(f"a partition must be one of {allowed}, got {partition!r}")
    if isinstance(partition, UniformRowLength):
        check_integer(partition.length, "the length of UniformRowLength", 1)
    elif not isinstance(partition.key, str) or not partition.key:
        raise errors.InvalidArgumentError(
            f"the key of {type(partition).__name__} must be the name of a feature, got "
            f"{partition.key!r}"
        )


# ------------------------------------------------------------------------------ put together


def assemble_ragged(parsed: Mapping[str, Any], key: str, feature: RaggedFeature) -> Any:
    """Assemble a feature from its components.

    Args:
      parsed: name to SparseTensor, of one example, shape (values), or of a batch, (n, most).
      key: the feature's name.
      feature: the feature.
    Returns: RaggedTensor; Tensor for one example without ragged axes.
    """
    values = parsed[feature.value_key or key]
    rows = _rows_of(values, feature.row_splits_dtype)
    for partition in reversed(feature.partitions):
        if isinstance(partition, UniformRowLength):
            rows = _uniform(rows, partition.length, key, feature.validate)
        else:
            numbers = _rows_of(parsed[partition.key], feature.row_splits_dtype)
            cut = numbers.with_values(cast(numbers.values, feature.row_splits_dtype))
            rows = _cut(rows, partition, cut, feature.validate)
    return rows if _is_batch(values) else rows.values


def _is_batch(sparse: SparseTensor) -> bool:
    return sparse.indices.dims is not None and sparse.indices.dims[1] == 2


def _rows_of(sparse: SparseTensor, dtype: DType) -> RaggedTensor:
    """Return the values of each example; a single example is a batch of one."""
    if _is_batch(sparse):
        ids, nrows = cast(sparse.indices[:, 0], dtype), cast(sparse.dense_shape[0], dtype)
        return RaggedTensor.from_value_rowids(sparse.values, ids, nrows, validate=False)
    ends = stack([convert_to_tensor(0, dtype), size(sparse.values, out_type=dtype)])
    return RaggedTensor.from_row_splits(sparse.values, ends, validate=False)


def _uniform(ragged_tensor: RaggedTensor, length: int, key: str, validate: bool) -> RaggedTensor:
    """Partition the items of each example into rows of the same length."""
    values, splits = ragged_tensor.values, ragged_tensor.row_splits
    if validate:
        label = f"the values of feature {key} of each example must be a multiple of {length}"
        check = Assert(reduce_all(equal(splits % length, 0)), [label, splits])
        with get_default_graph().control_dependencies([check]):
            splits = identity(splits)
    if isinstance(values, RaggedTensor):
        item = convert_to_tensor(length, splits.dtype.base_dtype)
        values = RaggedTensor.from_uniform_row_length(values, item, validate=validate)
    else:
        values = reshape(values, concat([[-1, length], shape(values)[1:]], 0))
    return RaggedTensor.from_row_splits(values, splits // length, validate=validate)


def _cut(
    ragged_tensor: RaggedTensor, partition: Any, numbers: RaggedTensor, check: bool
) -> RaggedTensor:
    """Partition the items of each example into rows.

    Args:
      ragged_tensor: the items, shape (n, (items), ...).
      partition: the kind of the row partition.
      numbers: integers, shape (n, (rows)), for each example separately.
      check: True if the rows are checked.
    """
    if isinstance(partition, RowLengths):
        lengths: Output = numbers.values
        return numbers.with_values(
            RaggedTensor.from_row_lengths(ragged_tensor.values, lengths, validate=check)
        )
    if isinstance(partition, ValueRowIds):
        return _cut_by_ids(ragged_tensor, numbers, check)
    if isinstance(partition, RowSplits):
        numbers = numbers[:, 1:]
    positions = numbers.values + repeat(ragged_tensor.row_starts(), numbers.row_lengths())
    starts = isinstance(partition, RowStarts)
    make = RaggedTensor.from_row_starts if starts else RaggedTensor.from_row_limits
    return numbers.with_values(make(ragged_tensor.values, positions, validate=check))


def _cut_by_ids(ragged_tensor: RaggedTensor, ids: RaggedTensor, check: bool) -> RaggedTensor:
    counts = maximum(reduce_max(ids + 1, axis=1), 0)
    row_offsets = repeat(cumsum(counts, exclusive=True), ids.row_lengths())
    rows = RaggedTensor.from_value_rowids(
        ragged_tensor.values, ids.values + row_offsets, reduce_sum(counts), validate=check
    )
    return RaggedTensor.from_row_lengths(rows, counts, validate=check)
