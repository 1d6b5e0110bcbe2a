"""Ops on ragged tensors, which are passed as flat values and nested row splits.

The class and the functions are in `weft_graph.ragged`.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import NOT_DIFFERENTIABLE
from weft_graph.ops import shape_rules
from weft_graph.ops.shape_rules import constant_array, merge_size, with_rank, with_rank_at_least
from weft_tensor import errors
from weft_tensor.shape import Dims, compatible_dims, format_dims, merge_dims, num_elements

FIRST_DIM_SIZE, VALUE_ROWIDS, ROW_LENGTHS, ROW_SPLITS = (
    "FIRST_DIM_SIZE",
    "VALUE_ROWIDS",
    "ROW_LENGTHS",
    "ROW_SPLITS",
)

# ------------------------------------------------------------------------------ shape rules


def _check_splits(node: NodeSpec, count: int) -> None:
    for value in node.inputs[:count]:
        with_rank(value.dims, 1, "row splits")


def _range_shape(node: NodeSpec) -> Sequence[Dims]:
    rows: int | None = None
    for value, label in zip(node.inputs, ("starts", "limits", "deltas"), strict=True):
        if value.dims is not None and len(value.dims) > 1:
            raise errors.InvalidArgumentError(
                f"{label} must have rank 0 or 1, got shape {format_dims(value.dims)}"
            )
        if value.dims:
            rows = merge_size(rows, value.dims[0], "the sizes of starts, limits and deltas")
    if all(value.dims == () for value in node.inputs):
        rows = 1
    return (None if rows is None else rows + 1,), (None,)


def _gather_shape(node: NodeSpec) -> Sequence[Dims]:
    params_rank, output_rank = node.attrs["PARAMS_RAGGED_RANK"], node.attrs["OUTPUT_RAGGED_RANK"]
    _check_splits(node, params_rank)
    values, indices = node.inputs[params_rank].dims, node.inputs[params_rank + 1].dims
    values = with_rank_at_least(values, 1, "params_dense_values")
    if indices is not None and len(indices) - 1 != output_rank - params_rank:
        raise errors.InvalidArgumentError(
            f"OUTPUT_RAGGED_RANK must be {params_rank + len(indices) - 1} for {params_rank} "
            "levels and indices "
            f"of shape {format_dims(indices)}, got {output_rank}"
        )
    splits: list[Dims] = [(None,)] * output_rank
    if indices and indices[0] is not None and output_rank:
        splits[0] = (indices[0] + 1,)
    return (*splits, None if values is None else (None, *values[1:]))


def _to_sparse_shape(node: NodeSpec) -> Sequence[Dims]:
    levels = node.attrs["RAGGED_RANK"]
    _check_splits(node, levels)
    values = with_rank_at_least(node.inputs[levels].dims, 1, "rt_dense_values")
    rank = None if values is None else levels + len(values)
    count = num_elements(values)
    return (count, rank), (count,), (rank,)


def _to_tensor_shape(node: NodeSpec) -> Sequence[Dims]:
    kinds = node.attrs["row_partition_types"]
    levels = check_kinds(kinds, node.attrs["num_row_partition_tensors"])
    shape, values, default, *_ = node.inputs
    inner = with_rank_at_least(values.dims, 1, "values")
    with_rank_at_most(shape.dims, 1)
    if inner is None:
        return (None,)
    if default.dims is not None and len(default.dims) >= len(inner):
        raise errors.InvalidArgumentError(
            f"default_value must have a lower rank than values, got shape "
            f"{format_dims(default.dims)} for {format_dims(inner)}"
        )
    dense_dims: Dims = (*(None,) * (levels + 1), *inner[1:])
    static_shape = constant_array(shape)
    if static_shape is not None and static_shape.ndim:
        if len(static_shape) != levels + len(inner):
            raise errors.InvalidArgumentError(
                f"shape must have rank {levels + len(inner)}, got {static_shape.tolist()}"
            )
        dense_dims = merge_dims(
            dense_dims, tuple([None if n < 0 else int(n) for n in static_shape.tolist()])
        )
    return (dense_dims,)


def with_rank_at_most(dims: Dims, rank: int) -> None:
    """Check that the rank of a shape is at most `rank`.

    Raises: InvalidArgumentError: it is higher.
    """
    if dims is not None and len(dims) > rank:
        raise errors.InvalidArgumentError(
            f"rank {rank} or less is required, got shape {format_dims(dims)}"
        )


def check_kinds(kinds: Sequence[str | bytes], count: int) -> int:
    """Return the number of ragged dimensions described by row partitions of some kinds.

    Raises: InvalidArgumentError: a kind is unknown, or the order is invalid.
    """
    names = [kind.decode() if isinstance(kind, bytes) else kind for kind in kinds]
    if len(names) != count:
        raise errors.InvalidArgumentError(
            f"row_partition_types must have one entry for each of {count} partitions, got {names}"
        )
    sized = names[:1] == [FIRST_DIM_SIZE]
    level_names = names[1:] if sized else names
    first_kinds = {VALUE_ROWIDS} if sized else {ROW_SPLITS}
    if (sized and not level_names) or not set(level_names) <= (
        first_kinds | {ROW_SPLITS, ROW_LENGTHS}
    ):
        raise errors.InvalidArgumentError(
            f"row_partition_types must be {ROW_SPLITS}s, or {FIRST_DIM_SIZE} and {VALUE_ROWIDS}s, "
            f"got {names}"
        )
    return len(level_names)


def _from_variant_shape(node: NodeSpec) -> Sequence[Dims]:
    inner, output_rank = node.attrs["input_ragged_rank"], node.attrs["output_ragged_rank"]
    dims = node.inputs[0].dims
    if dims is not None and inner >= 0 and inner + len(dims) != output_rank:
        raise errors.InvalidArgumentError(
            f"output_ragged_rank must be the sum of input_ragged_rank {inner} and the rank "
            f"of variants of shape {format_dims(dims)}, got {output_rank}"
        )
    splits: list[Dims] = [(None,)] * output_rank
    if output_rank and dims and dims[0] is not None:
        splits[0] = (dims[0] + 1,)
    return (*splits, None)


def _to_variant_shape(node: NodeSpec) -> Sequence[Dims]:
    levels = node.attrs["RAGGED_RANK"]
    _check_splits(node, levels)
    if not node.attrs["batched_input"]:
        return ((),)
    if not levels:
        dims = node.inputs[0].dims
        return (None if dims is None else dims[:1],)
    splits = node.inputs[0].dims
    return ((None if splits is None or splits[0] is None else splits[0] - 1,),)


def _cross_shape(node: NodeSpec) -> Sequence[Dims]:
    attrs = node.attrs
    first, count = len(attrs["ragged_values_types"]), len(attrs["ragged_splits_types"])
    total: Dims = (None,)
    for splits in node.inputs[first : first + count]:
        total = merge_dims(total, with_rank(splits.dims, 1, "ragged_row_splits"))
    for dense in node.inputs[len(node.inputs) - len(attrs["dense_types"]) :]:
        (rows, _) = with_rank(dense.dims, 2, "dense_inputs")
        total = merge_dims(total, (None if rows is None else rows + 1,))
    return (None,), total


def _bincount_shape(node: NodeSpec) -> Sequence[Dims]:
    (splits,) = with_rank(node.inputs[0].dims, 1, "splits")
    size = shape_rules.constant_int(node.inputs[2])
    if size is not None and size < 0:
        raise errors.InvalidArgumentError(f"size must not be negative, got {size}")
    return ((None if splits is None else splits - 1, size),)


def _fill_shape(node: NodeSpec) -> Sequence[Dims]:
    ids, values, nrows, default = node.inputs
    with_rank(nrows.dims, 0, "nrows")
    with_rank(default.dims, 0, "default_value")
    count = with_rank(ids.dims, 1, "value_rowids")
    dims = with_rank(values.dims, 1, "values")
    if not compatible_dims(count, dims):
        raise errors.InvalidArgumentError(
            f"value_rowids and values must have equal lengths, got shapes {format_dims(count)} and "
            f"{format_dims(dims)}"
        )
    return (None,), (None,), (shape_rules.constant_int(nrows),), merge_dims(count, dims)


def _fill_grad_shape(node: NodeSpec) -> Sequence[Dims]:
    return node.inputs[0].dims, ()


# ------------------------------------------------------------------------------ declarations

_SPLITS = "{int32, int64} = int64"

register_op(
    "RaggedRange",
    ("starts: T", "limits: T", "deltas: T"),
    ("rt_nested_splits: Tsplits", "rt_dense_values: T"),
    {"T": "{bfloat16, float32, float64, int32, int64} = int32", "Tsplits": _SPLITS},
    _range_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="A range of numbers from a start to a limit for each row.",
)
register_op(
    "RaggedGather",
    (
        "params_nested_splits: PARAMS_RAGGED_RANK * Tsplits",
        "params_dense_values: Tvalues",
        "indices: Tindices",
    ),
    (
        "output_nested_splits: OUTPUT_RAGGED_RANK * Tsplits",
        "output_dense_values: Tvalues",
    ),
    {
        "Tvalues": "type",
        "Tindices": "{int32, int64}",
        "Tsplits": _SPLITS,
        "PARAMS_RAGGED_RANK": "int >= 1",
        "OUTPUT_RAGGED_RANK": "int >= 0",
    },
    _gather_shape,
    doc="Rows of a ragged tensor by index.",
)
register_op(
    "RaggedTensorToSparse",
    ("rt_nested_splits: RAGGED_RANK * Tsplits", "rt_dense_values: T"),
    ("sparse_indices: int64", "sparse_values: T", "sparse_dense_shape: int64"),
    {"RAGGED_RANK": "int >= 1", "T": "type", "Tsplits": _SPLITS},
    _to_sparse_shape,
    doc="The indices and values of a ragged tensor.",
)
register_op(
    "RaggedTensorToTensor",
    (
        "shape: Tshape",
        "values: T",
        "default_value: T",
        "row_partition_tensors: num_row_partition_tensors * Tindex",
    ),
    ("result: T",),
    {
        "T": "type",
        "Tindex": "{int64, int32}",
        "Tshape": "{int64, int32}",
        "num_row_partition_tensors": "int >= 1",
        "row_partition_types": "list(string)",
    },
    _to_tensor_shape,
    doc="A ragged tensor padded to a dense tensor.",
)
register_op(
    "RaggedTensorToVariant",
    ("rt_nested_splits: RAGGED_RANK * Tsplits", "rt_dense_values: Tvalues"),
    ("encoded_ragged: variant",),
    {
        "RAGGED_RANK": "int >= 0",
        "Tvalues": "type",
        "Tsplits": _SPLITS,
        "batched_input": "bool",
    },
    _to_variant_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="A ragged tensor as one variant, or as one variant per row.",
)
register_op(
    "RaggedTensorFromVariant",
    ("encoded_ragged: variant",),
    (
        "output_nested_splits: output_ragged_rank * Tsplits",
        "output_dense_values: Tvalues",
    ),
    {
        "input_ragged_rank": "int >= -1",
        "output_ragged_rank": "int >= 0",
        "Tvalues": "type",
        "Tsplits": _SPLITS,
    },
    _from_variant_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="The ragged tensor stored in variants.",
)
register_op(
    "RaggedCross",
    (
        "ragged_values: ragged_values_types",
        "ragged_row_splits: ragged_splits_types",
        "sparse_indices: Nsparse * int64",
        "sparse_values: sparse_values_types",
        "sparse_shape: Nsparse * int64",
        "dense_inputs: dense_types",
    ),
    ("output_values: out_values_type", "output_row_splits: out_row_splits_type"),
    {
        "Nsparse": "int >= 0",
        "input_order": "string",
        "hashed_output": "bool",
        "num_buckets": "int >= 0",
        "hash_key": "int",
        "ragged_values_types": "list({int64, string})",
        "ragged_splits_types": "list({int32, int64})",
        "sparse_values_types": "list({int64, string})",
        "dense_types": "list({int64, string})",
        "out_values_type": "{int64, string}",
        "out_row_splits_type": "{int32, int64}",
    },
    _cross_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="All combinations of the values of each row.",
)
register_op(
    "RaggedBincount",
    ("splits: int64", "values: Tidx", "size: Tidx", "weights: T"),
    ("output: T",),
    {
        "Tidx": "{int32, int64}",
        "T": "{int32, int64, float32, float64}",
        "binary_output": "bool = false",
    },
    _bincount_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="The count of each number in each row.",
)
register_op(
    "RaggedFillEmptyRows",
    ("value_rowids: int64", "values: T", "nrows: int64", "default_value: T"),
    (
        "output_value_rowids: int64",
        "output_values: T",
        "empty_row_indicator: bool",
        "reverse_index_map: int64",
    ),
    {"T": "type"},
    _fill_shape,
    doc="The ragged tensor with a default value in each empty row.",
)
register_op(
    "RaggedFillEmptyRowsGrad",
    ("reverse_index_map: int64", "grad_values: T"),
    ("d_values: T", "d_default_value: T"),
    {"T": "type"},
    _fill_grad_shape,
    doc="The gradient of RaggedFillEmptyRows.",
)
