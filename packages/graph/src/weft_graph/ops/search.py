"""Searching and sorting: largest, unique and missing elements, and insertion indices."""

from __future__ import annotations

__all__ = [
    "argsort",
    "searchsorted",
    "setdiff1d",
    "sort",
    "unique",
    "unique_with_counts",
    "unravel_index",
]

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from weft_graph.ir.builder import constant_of, convert_to_tensor, create, out
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import NOT_DIFFERENTIABLE, Traits
from weft_graph.ops import cost_rules
from weft_graph.ops.shape_rules import (
    constant_int,
    merge_size,
    same_shape,
    scalar_int,
    with_rank,
    with_rank_at_least,
)
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dims, format_dims, merge_dims

_OUT_INDEX = "{int32, int64} = int32"

# ------------------------------------------------------------------------------ shape rules


def _unique_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = with_rank(node.inputs[0].dims, 1, "x")
    return (None,), dims


def _unique_counts_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = with_rank(node.inputs[0].dims, 1, "x")
    return (None,), dims, (None,)


def _list_diff_shape(node: NodeSpec) -> Sequence[Dims]:
    for value, label in zip(node.inputs, ("x", "y"), strict=True):
        with_rank(value.dims, 1, label)
    return (None,), (None,)


def _top_k_shape(node: NodeSpec) -> Sequence[Dims]:
    count = scalar_int(node.inputs[1], "k") if len(node.inputs) == 2 else node.attrs["k"]
    if count is not None and count < 0:
        raise errors.InvalidArgumentError(f"k must be at least 0, got {count}")
    dims = with_rank_at_least(node.inputs[0].dims, 1, "the input")
    if dims is None:
        return None, None
    if count is not None and dims[-1] is not None and dims[-1] < count:
        raise errors.InvalidArgumentError(
            f"k must be at most the last size of {format_dims(dims)}, got {count}"
        )
    result = (*dims[:-1], count)
    return result, result


def _nth_shape(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[1].dims, 0, "n")
    count = constant_int(node.inputs[1])
    dims = with_rank_at_least(node.inputs[0].dims, 1, "the input")
    size = None if dims is None else dims[-1]
    if count is not None and (count < 0 or (size is not None and size <= count)):
        raise errors.InvalidArgumentError(
            f"n must be at least 0 and below the last size of {format_dims(dims)}, got {count}"
        )
    return (None if dims is None else dims[:-1],)


def _in_top_k_shape(node: NodeSpec) -> Sequence[Dims]:
    rows, _ = with_rank(node.inputs[0].dims, 2, "predictions")
    (count,) = with_rank(node.inputs[1].dims, 1, "targets")
    if len(node.inputs) == 3:
        with_rank(node.inputs[2].dims, 0, "k")
    return ((merge_size(rows, count, "the numbers of predictions and targets"),),)


def _bound_shape(node: NodeSpec) -> Sequence[Dims]:
    keys = with_rank(node.inputs[0].dims, 2, "sorted_inputs")
    values = with_rank(node.inputs[1].dims, 2, "values")
    rows = merge_size(keys[0], values[0], "the rows of sorted_inputs and values")
    return ((rows, values[1]),)


def _unravel_shape(node: NodeSpec) -> Sequence[Dims]:
    indices, dims = node.inputs
    (count,) = with_rank(dims.dims, 1, "dims")
    if indices.dims is None:
        return (None,)
    return ((count, *indices.dims),)


# ------------------------------------------------------------------------------ declarations

register_op(
    "Unique",
    ("x: T",),
    ("y: T", "idx: out_idx"),
    {"T": "type", "out_idx": _OUT_INDEX},
    _unique_shape,
    traits=NOT_DIFFERENTIABLE,
)
register_op(
    "UniqueWithCounts",
    ("x: T",),
    ("y: T", "idx: out_idx", "count: out_idx"),
    {"T": "type", "out_idx": _OUT_INDEX},
    _unique_counts_shape,
    traits=NOT_DIFFERENTIABLE,
)
register_op(
    "ListDiff",
    ("x: T", "y: T"),
    ("out: T", "idx: out_idx"),
    {"T": "type", "out_idx": _OUT_INDEX},
    _list_diff_shape,
    traits=NOT_DIFFERENTIABLE,
)
register_op(
    "TopK",
    ("input: T",),
    ("values: T", "indices: int32"),
    {"k": "int >= 0", "sorted": "bool = true", "T": "{realnumbertype}"},
    _top_k_shape,
    traits=Traits(cost=cost_rules.per_input(1)),
)
register_op(
    "TopKV2",
    ("input: T", "k: int32"),
    ("values: T", "indices: int32"),
    {"sorted": "bool = true", "T": "{realnumbertype}"},
    _top_k_shape,
    traits=Traits(cost=cost_rules.per_input(1)),
)
register_op(
    "NthElement",
    ("input: T", "n: int32"),
    ("values: T",),
    {"reverse": "bool = false", "T": "{realnumbertype}"},
    _nth_shape,
    traits=Traits(cost=cost_rules.per_input(1)),
    doc="The n-th smallest element of each row, or the n-th largest with `reverse`.",
)
register_op(
    "InTopK",
    ("predictions: float32", "targets: T"),
    ("precision: bool",),
    {"k": "int", "T": _OUT_INDEX},
    _in_top_k_shape,
    traits=NOT_DIFFERENTIABLE,
)
register_op(
    "InTopKV2",
    ("predictions: float32", "targets: T", "k: T"),
    ("precision: bool",),
    {"T": _OUT_INDEX},
    _in_top_k_shape,
    traits=NOT_DIFFERENTIABLE,
)
register_op(
    "Bucketize",
    ("input: T",),
    ("output: int32",),
    {"T": "{int32, int64, float32, float64}", "boundaries": "list(float)"},
    same_shape,
    traits=NOT_DIFFERENTIABLE,
    doc="The number of ascending boundaries that are not above each element.",
)
for _name in ("LowerBound", "UpperBound"):
    register_op(
        _name,
        ("sorted_inputs: T", "values: T"),
        ("output: out_type",),
        {"T": "type", "out_type": _OUT_INDEX},
        _bound_shape,
        traits=NOT_DIFFERENTIABLE,
    )
register_op(
    "UnravelIndex",
    ("indices: Tidx", "dims: Tidx"),
    ("output: Tidx",),
    {"Tidx": _OUT_INDEX},
    _unravel_shape,
    traits=NOT_DIFFERENTIABLE,
)

# ---------------------------------------------------------------------------------- functions


class Unique(NamedTuple):
    """The unique values, and the index of each element among them."""

    y: Output
    idx: Output


class UniqueWithCounts(NamedTuple):
    """The unique values, the index of each element among them, and their counts."""

    y: Output
    idx: Output
    count: Output  # type: ignore[assignment]  # TensorFlow's name hides tuple.count


class ListDiff(NamedTuple):
    """The values missing in another vector, and their indices."""

    out: Output
    idx: Output


class TopKV2(NamedTuple):
    """The largest values, and their indices along the last axis."""

    values: Output
    indices: Output


def unique(x: Any, out_idx: Any = dtypes.int32, name: str | None = None) -> Unique:
    """Return the unique values of a vector, in the order of first occurrence.

    Args:
      x: any type, shape (n,).
      out_idx: type of the indices, int32 or int64.
    Returns: y, shape (m,), and idx, shape (n,), with x = y[idx].

    Examples:
      >>> wf.Session().run(wf.unique([7, 5, 7]))
      Unique(y=array([7, 5], dtype=int32), idx=array([0, 1, 0], dtype=int32))
    """
    return Unique(*create("Unique", [x], {"out_idx": out_idx}, name).outputs)


def unique_with_counts(
    x: Any, out_idx: Any = dtypes.int32, name: str | None = None
) -> UniqueWithCounts:
    """Return the results of `unique`, and the count of each unique value.

    Args:
      x, out_idx: as for `unique`.
    Returns: y, idx, and the count of each value of y, of type `out_idx`.

    Examples:
      >>> wf.Session().run(wf.unique_with_counts([7, 5, 7])).count
      array([2, 1], dtype=int32)
    """
    return UniqueWithCounts(*create("UniqueWithCounts", [x], {"out_idx": out_idx}, name).outputs)


def setdiff1d(x: Any, y: Any, index_dtype: Any = dtypes.int32, name: str | None = None) -> ListDiff:
    """Return the elements of a vector `x` that are not in a vector `y`, and their indices.

    Args:
      x, y: vectors of the same type.
      index_dtype: type of the indices, int32 or int64.
    Returns: the elements, and their indices in `x`.

    Examples:
      >>> wf.Session().run(wf.setdiff1d([1, 2, 3, 4], [2, 4]))
      ListDiff(out=array([1, 3], dtype=int32), idx=array([0, 2], dtype=int32))
    """
    return ListDiff(*create("ListDiff", [x, y], {"out_idx": index_dtype}, name).outputs)


listdiff = setdiff1d


def top_k(input: Any, k: Any = 1, sorted: bool = True, name: str | None = None) -> TopKV2:
    """Return the k largest elements along the last axis; ties are in order of index.

    Args:
      input: real numbers, shape (..., n).
      k: integer of rank 0, at most n.
      sorted: return them in descending order.
    Returns: values and int32 indices, shape (..., k).
    Raises: InvalidArgumentError: `k` is above n.

    Examples:
      >>> wf.Session().run(wf.nn.top_k([1, 5, 3], k=2))
      TopKV2(values=array([5, 3], dtype=int32), indices=array([1, 2], dtype=int32))
    """
    return TopKV2(*create("TopKV2", [input, k], {"sorted": sorted}, name).outputs)


def in_top_k(predictions: Any, targets: Any, k: Any, name: str | None = None) -> Output:
    """Return True where the prediction of the target class is among the k largest of its row.

    Args:
      predictions: float32, shape (n, classes); ties at rank k count as inside.
      targets: integers, shape (n,); classes out of range give False.
      k: integer of rank 0.
    Returns: bool, shape (n,).

    Examples:
      >>> wf.Session().run(wf.nn.in_top_k([[0.1, 0.9], [0.8, 0.2]], [1, 1], k=1))
      array([ True, False])
    """
    return out("InTopKV2", [predictions, targets, k], name=name)


def sort(
    values: Any, axis: int = -1, direction: str = "ASCENDING", name: str | None = None
) -> Output:
    """Sort the elements along an axis.

    Args:
      values: real numbers, shape (..., n, ...); the rank is known unless `axis` is -1.
      axis: the axis to sort along; negative values count from the end.
      direction: "ASCENDING" or "DESCENDING".
    Returns: the type and shape of `values`.
    Raises: InvalidArgumentError: `axis` is out of range, or `direction` unknown.

    Examples:
      >>> wf.Session().run(wf.sort([3, 1, 2]))
      array([1, 2, 3], dtype=int32)
    """
    with get_default_graph().name_scope(name or "sort"):
        return _sort(values, axis, direction)[0]


def argsort(
    values: Any,
    axis: int = -1,
    direction: str = "ASCENDING",
    stable: bool = False,
    name: str | None = None,
) -> Output:
    """Return the int32 indices that sort `values` along an axis; the sort is stable.

    Args:
      values, axis, direction: as for `sort`.
      stable: accepted and ignored; the sort is always stable.

    Examples:
      >>> wf.Session().run(wf.argsort([3, 1, 2]))
      array([1, 2, 0], dtype=int32)
    """
    with get_default_graph().name_scope(name or "argsort"):
        return _sort(values, axis, direction)[1]


def _sort(values: Any, axis: int, direction: str) -> tuple[Output, Output]:
    if direction not in ("ASCENDING", "DESCENDING"):
        raise errors.InvalidArgumentError(
            f"direction must be 'ASCENDING' or 'DESCENDING', got {direction!r}"
        )
    keys = convert_to_tensor(values)
    swap = _swap_with_last(keys, axis)
    # The largest come first from TopK, so ascending order sorts by keys that fall where these rise.
    order_op = "Identity"
    if direction == "ASCENDING":
        order_op = "Invert" if keys.dtype.base_dtype.is_integer else "Neg"
    rows = out(order_op, [out("Transpose", [keys, swap]) if swap is not None else keys])
    sorted_values, indices = create("TopKV2", [rows, _last_size(rows)]).outputs
    ordered = out(order_op, [sorted_values])
    if swap is None:
        return ordered, indices
    return out("Transpose", [ordered, swap]), out("Transpose", [indices, swap])


def _swap_with_last(keys: Output, axis: int) -> list[int] | None:
    if axis == -1:
        return None
    if keys.dims is None:
        raise errors.InvalidArgumentError(f"axis {axis} needs a value of known rank, got {keys!r}")
    rank = len(keys.dims)
    if not -rank <= axis < rank:
        raise errors.InvalidArgumentError(f"axis must be in [{-rank}, {rank}), got {axis}")
    order = list(range(rank))
    order[axis], order[-1] = order[-1], order[axis]
    return order if axis % rank != rank - 1 else None


def _last_size(value: Output) -> Any:
    if value.dims is not None and value.dims and value.dims[-1] is not None:
        return value.dims[-1]
    return out("Squeeze", [_last_sizes(value)])


def searchsorted(
    sorted_sequence: Any,
    values: Any,
    side: str = "left",
    out_type: Any = dtypes.int32,
    name: str | None = None,
) -> Output:
    """Return the index at which each value can be inserted to keep its row sorted.

    Args:
      sorted_sequence: ascending along the last axis, shape (..., n).
      values: same type, shape (..., m).
      side: "left" to insert before equal elements, "right" to insert after them.
      out_type: int32 or int64.
    Returns: shape (..., m).
    Raises: InvalidArgumentError: `side` is unknown, or leading sizes differ.

    Examples:
      >>> wf.Session().run(wf.searchsorted([1, 3, 5], [0, 3, 9]))
      array([0, 1, 3], dtype=int32)
    """
    ops = {"left": "LowerBound", "right": "UpperBound"}
    if side not in ops:
        raise errors.InvalidArgumentError(f"side must be 'left' or 'right', got {side!r}")
    keys = convert_to_tensor(sorted_sequence)
    queries = convert_to_tensor(values, keys.dtype)
    if keys.dims is not None and queries.dims is not None:
        merge_dims(keys.dims[:-1], queries.dims[:-1])
    rows = [_to_rows(value) for value in (keys, queries)]
    insert_positions = out(ops[side], rows, {"out_type": out_type}, name)
    if queries.dims is not None and len(queries.dims) == 2:
        return insert_positions
    return out("Reshape", [insert_positions, out("Shape", [queries])])


def _to_rows(value: Output) -> Output:
    if value.dims is not None and len(value.dims) == 2:
        return value
    return out("Reshape", [value, out("ConcatV2", [[[-1], _last_sizes(value)], 0])])


def _last_sizes(value: Output) -> Output:
    """Return the last size, shape (1,)."""
    bounds = [constant_of(np.array([n], np.int32)) for n in (-1, 0, 1)]
    return out("StridedSlice", [out("Shape", [value]), *bounds], {"end_mask": 1})


def unravel_index(indices: Any, dims: Any, name: str | None = None) -> Output:
    """Convert flat indices to coordinates in a tensor of shape `dims`: shape (rank, I).

    Args:
      indices: int32 or int64, shape I.
      dims: integers, shape (rank,).
    Raises: InvalidArgumentError: at run time, an index is out of range.

    Examples:
      >>> wf.Session().run(wf.unravel_index([5], [2, 3]))
      array([[1],
             [2]], dtype=int32)
    """
    return out("UnravelIndex", [indices, dims], name=name)
