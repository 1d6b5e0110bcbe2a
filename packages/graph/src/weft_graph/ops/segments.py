"""Segment reductions: sorted, unsorted and sparse segments."""

from __future__ import annotations

__all__ = [
    "segment_max",
    "segment_mean",
    "segment_min",
    "segment_prod",
    "segment_sum",
    "unsorted_segment_max",
    "unsorted_segment_mean",
    "unsorted_segment_min",
    "unsorted_segment_prod",
    "unsorted_segment_sqrt_n",
    "unsorted_segment_sum",
]

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.composite import AppliesOps
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import Traits
from weft_graph.ops import cost_rules, shape_rules
from weft_tensor import errors
from weft_tensor.shape import Dims, compatible_dims, format_dims

_IDS = "{int32, int64}"
_COUNT = "{int32, int64} = int32"


def _rows(dims: Dims, count: int | None) -> Dims:
    return None if dims is None else (count, *dims[1:])


def _segment_shape(node: NodeSpec) -> Sequence[Dims]:
    data = shape_rules.with_rank_at_least(node.inputs[0].dims, 1, "data")
    ids = shape_rules.with_rank(node.inputs[1].dims, 1, "segment_ids")
    if data is not None:
        shape_rules.merge_size(data[0], ids[0], "the rows of data and segment_ids")
    static_ids = shape_rules.constant_array(node.inputs[1])
    count = None if static_ids is None else int(static_ids[-1]) + 1 if static_ids.size else 0
    return (_rows(data, count),)


def _count(value: Output) -> int | None:
    count = shape_rules.scalar_int(value, "num_segments")
    if count is not None and count < 0:
        raise errors.InvalidArgumentError(f"num_segments must be at least 0, got {count}")
    return count


def _unsorted_shape(node: NodeSpec) -> Sequence[Dims]:
    data, ids = node.inputs[0].dims, node.inputs[1].dims
    count = _count(node.inputs[2])
    if data is None or ids is None:
        return (None,)
    if len(ids) > len(data) or not compatible_dims(data[: len(ids)], ids):
        raise errors.InvalidArgumentError(
            f"the shape of data must start with that of segment_ids, got {format_dims(data)} and "
            f"{format_dims(ids)}"
        )
    return ((count, *data[len(ids) :]),)


def _sparse_shape(node: NodeSpec) -> Sequence[Dims]:
    data = shape_rules.with_rank_at_least(node.inputs[0].dims, 1, "data")
    indices = shape_rules.with_rank(node.inputs[1].dims, 1, "indices")
    ids = shape_rules.with_rank(node.inputs[2].dims, 1, "segment_ids")
    shape_rules.merge_size(indices[0], ids[0], "the sizes of indices and segment_ids")
    if len(node.inputs) == 4:
        return (_rows(data, _count(node.inputs[3])),)
    static_ids = shape_rules.constant_array(node.inputs[2])
    count = None if static_ids is None else int(static_ids[-1]) + 1 if static_ids.size else 0
    return (_rows(data, count),)


def _sparse_grad_shape(node: NodeSpec) -> Sequence[Dims]:
    grad = shape_rules.with_rank_at_least(node.inputs[0].dims, 1, "grad")
    indices = shape_rules.with_rank(node.inputs[1].dims, 1, "indices")
    ids = shape_rules.with_rank(node.inputs[2].dims, 1, "segment_ids")
    shape_rules.merge_size(indices[0], ids[0], "the sizes of indices and segment_ids")
    return (_rows(grad, shape_rules.scalar_int(node.inputs[3], "output_dim0")),)


def _declare() -> None:
    for op, types in (
        ("SegmentSum", "{inexact, integral}"),
        ("SegmentMean", "{inexact, integral}"),
        ("SegmentProd", "{inexact, integral}"),
        ("SegmentMax", "{realnumbertype}"),
        ("SegmentMin", "{realnumbertype}"),
    ):
        register_op(
            op,
            ("data: T", "segment_ids: Tindices"),
            ("output: T",),
            {"T": types, "Tindices": _IDS},
            _segment_shape,
            traits=Traits(cost=cost_rules.per_input(1)),
            doc=f"The {op[7:].lower()} of the rows of each segment; ids do not decrease.",
        )
        if op == "SegmentMean":
            continue
        register_op(
            f"Unsorted{op}",
            ("data: T", "segment_ids: Tindices", "num_segments: Tnumsegments"),
            ("output: T",),
            {"T": types, "Tindices": _IDS, "Tnumsegments": _COUNT},
            _unsorted_shape,
            traits=Traits(cost=cost_rules.per_input(1)),
            doc=f"The {op[7:].lower()} of each segment's elements; negative ids are ignored.",
        )
    for kind in ("Sum", "Mean", "SqrtN"):
        _declare_sparse(kind)


def _declare_sparse(kind: str) -> None:
    types = "{floating, integral}" if kind == "Sum" else "{floating}"
    attrs = {"T": types, "Tidx": _COUNT}
    inputs = ("data: T", "indices: Tidx", "segment_ids: int32")
    doc = f"Segment{kind} of the rows of data at `indices`."
    register_op(
        f"SparseSegment{kind}",
        inputs,
        ("output: T",),
        attrs,
        _sparse_shape,
        traits=Traits(cost=cost_rules.sums_of_rows),
        doc=doc,
    )
    register_op(
        f"SparseSegment{kind}WithNumSegments",
        (*inputs, "num_segments: Tnumsegments"),
        ("output: T",),
        attrs | {"Tnumsegments": _COUNT},
        _sparse_shape,
        traits=Traits(cost=cost_rules.sums_of_rows),
        doc=doc,
    )
    if kind != "Sum":
        register_op(
            f"SparseSegment{kind}Grad",
            ("grad: T", "indices: Tidx", "segment_ids: int32", "output_dim0: int32"),
            ("output: T",),
            {"T": "{floating}", "Tidx": _COUNT},
            _sparse_grad_shape,
            traits=Traits(cost=cost_rules.spreads_of_rows),
            doc=f"The gradient of SparseSegment{kind} with respect to data.",
        )


_declare()


def _sorted_segment_op(op: str, data: Any, segment_ids: Any, name: str | None) -> Output:
    return out(op, [data, segment_ids], name=name)


def segment_sum(data: Any, segment_ids: Any, name: str | None = None) -> Output:
    """Return the sum of the rows of each segment.

    Args:
      data: numeric, shape (N, ...).
      segment_ids: int32 or int64, shape (N,); at least 0, never decreasing.
    Returns: shape (last id + 1, ...); 0 for missing ids.
    Raises: InvalidArgumentError: the sizes differ; at run time, ids decrease or are negative.

    Examples:
      >>> wf.Session().run(wf.segment_sum([1, 2, 3], [0, 0, 1]))
      array([3, 3], dtype=int32)
    """
    return _sorted_segment_op("SegmentSum", data, segment_ids, name)


def segment_mean(data: Any, segment_ids: Any, name: str | None = None) -> Output:
    """Return the mean of the rows of each segment, 0 for missing ids; see `segment_sum`.

    Args:
      data, segment_ids: as for `segment_sum`.
    Returns: as `segment_sum`.

    Examples:
      >>> wf.Session().run(wf.segment_mean([1.0, 2.0, 3.0], [0, 0, 1]))
      array([1.5, 3. ], dtype=float32)
    """
    return _sorted_segment_op("SegmentMean", data, segment_ids, name)


def segment_prod(data: Any, segment_ids: Any, name: str | None = None) -> Output:
    """Return the product of the rows of each segment, 1 for missing ids; see `segment_sum`.

    Args:
      data, segment_ids: as for `segment_sum`.
    Returns: as `segment_sum`.

    Examples:
      >>> wf.Session().run(wf.segment_prod([1, 2, 3], [0, 0, 1]))
      array([2, 3], dtype=int32)
    """
    return _sorted_segment_op("SegmentProd", data, segment_ids, name)


def segment_max(data: Any, segment_ids: Any, name: str | None = None) -> Output:
    """Return the maximum of the rows of each segment, 0 for missing ids; see `segment_sum`.

    Args:
      data, segment_ids: as for `segment_sum`; real.
    Returns: as `segment_sum`.

    Examples:
      >>> wf.Session().run(wf.segment_max([1, 2, 3], [0, 0, 1]))
      array([2, 3], dtype=int32)
    """
    return _sorted_segment_op("SegmentMax", data, segment_ids, name)


def segment_min(data: Any, segment_ids: Any, name: str | None = None) -> Output:
    """Return the minimum of the rows of each segment, 0 for missing ids; see `segment_sum`.

    Args:
      data, segment_ids: as for `segment_sum`; real.
    Returns: as `segment_sum`.

    Examples:
      >>> wf.Session().run(wf.segment_min([1, 2, 3], [0, 0, 1]))
      array([1, 3], dtype=int32)
    """
    return _sorted_segment_op("SegmentMin", data, segment_ids, name)


def unsorted_segment_sum(
    data: Any, segment_ids: Any, num_segments: Any, name: str | None = None
) -> Output:
    """Return the sum of the elements of each segment.

    Args:
      data: numeric, shape (S..., ...).
      segment_ids: int32 or int64, shape (S...), less than K; elements with negative ids are
        ignored.
      num_segments: integer scalar K.
    Returns: shape (K, ...); 0 for missing ids.
    Raises: InvalidArgumentError: the shapes do not match; at run time, an id is K or more.

    Examples:
      >>> wf.Session().run(wf.unsorted_segment_sum([1, 2, 3], [1, 0, 1], 2))
      array([2, 4], dtype=int32)
    """
    return out("UnsortedSegmentSum", [data, segment_ids, num_segments], name=name)


def unsorted_segment_prod(
    data: Any, segment_ids: Any, num_segments: Any, name: str | None = None
) -> Output:
    """Return the product of each segment's elements, 1 for missing ids.

    See `unsorted_segment_sum`.

    Args:
      data, segment_ids, num_segments: as for `unsorted_segment_sum`.

    Examples:
      >>> wf.Session().run(wf.unsorted_segment_prod([1, 2, 3], [1, 0, 1], 2))
      array([2, 3], dtype=int32)
    """
    return out("UnsortedSegmentProd", [data, segment_ids, num_segments], name=name)


def unsorted_segment_max(
    data: Any, segment_ids: Any, num_segments: Any, name: str | None = None
) -> Output:
    """Return the maximum of each segment's elements, the type's lowest value for missing ids.

    See `unsorted_segment_sum`.

    Args:
      data, segment_ids, num_segments: as for `unsorted_segment_sum`; real.

    Examples:
      >>> wf.Session().run(wf.unsorted_segment_max([1, 2, 3], [1, 0, 1], 2))
      array([2, 3], dtype=int32)
    """
    return out("UnsortedSegmentMax", [data, segment_ids, num_segments], name=name)


def unsorted_segment_min(
    data: Any, segment_ids: Any, num_segments: Any, name: str | None = None
) -> Output:
    """Return the minimum of each segment's elements, the type's highest value for missing ids.

    See `unsorted_segment_sum`.

    Args:
      data, segment_ids, num_segments: as for `unsorted_segment_sum`; real.

    Examples:
      >>> wf.Session().run(wf.unsorted_segment_min([1, 2, 3], [1, 0, 1], 2))
      array([2, 1], dtype=int32)
    """
    return out("UnsortedSegmentMin", [data, segment_ids, num_segments], name=name)


def _sizes(data: Any, segment_ids: Any, num_segments: Any) -> tuple[Output, Output, Output]:
    """Return the data, and the sum and number of elements (at least 1) of each segment."""
    value, ids = convert_to_tensor(data), convert_to_tensor(segment_ids)
    total = out("UnsortedSegmentSum", [value, ids, num_segments])
    if isinstance(value, AppliesOps):
        segment_sizes = out("UnsortedSegmentSum", [out("OnesLike", [value]), ids, num_segments])
        return value, total, out("Maximum", [segment_sizes, out("OnesLike", [segment_sizes])])
    unit_values = out("OnesLike", [out("Cast", [ids], {"DstT": value.dtype.base_dtype})])
    count = out("UnsortedSegmentSum", [unit_values, ids, num_segments])
    count = out("Maximum", [count, convert_to_tensor(1, value.dtype.base_dtype)])
    if ids.dims is None or value.dims is None or len(value.dims) != len(ids.dims):
        inner = out("Sub", [out("Rank", [value]), out("Rank", [ids])])
        ones_shape = out("Fill", [out("Pack", [[inner]], {"axis": 0}), 1])
        shape = out("ConcatV2", [[out("Shape", [count]), ones_shape], 0])
        count = out("Reshape", [count, shape])
    return value, total, count


def unsorted_segment_mean(
    data: Any, segment_ids: Any, num_segments: Any, name: str | None = None
) -> Output:
    """Return the mean of each segment's elements, 0 for missing ids.

    See `unsorted_segment_sum`.

    Args:
      data, segment_ids, num_segments: as for `unsorted_segment_sum`.

    Examples:
      >>> wf.Session().run(wf.unsorted_segment_mean([1.0, 2.0, 3.0], [1, 0, 1], 2))
      array([2., 2.], dtype=float32)
    """
    _, total, count = _sizes(data, segment_ids, num_segments)
    return out("RealDiv", [total, count], name=name or "UnsortedSegmentMean")


def unsorted_segment_sqrt_n(
    data: Any, segment_ids: Any, num_segments: Any, name: str | None = None
) -> Output:
    """Return the sum of each segment's elements divided by the square root of their number.

    See `unsorted_segment_sum`.

    Args:
      data, segment_ids, num_segments: as for `unsorted_segment_sum`; `data` is floating or complex.
    Returns: as `unsorted_segment_sum`.

    Examples:
      >>> wf.Session().run(wf.unsorted_segment_sqrt_n([1.0, 3.0, 5.0, 7.0], [0, 0, 0, 0], 2))
      array([8., 0.], dtype=float32)
    """
    _, total, count = _sizes(data, segment_ids, num_segments)
    return out("RealDiv", [total, out("Sqrt", [count])], name=name or "UnsortedSegmentSqrtN")


def _sparse(
    kind: str, data: Any, indices: Any, segment_ids: Any, num_segments: Any, name: str | None
) -> Output:
    if num_segments is None:
        return out(f"SparseSegment{kind}", [data, indices, segment_ids], name=name)
    inputs = [data, indices, segment_ids, num_segments]
    return out(f"SparseSegment{kind}WithNumSegments", inputs, name=name)


def sparse_segment_sum(
    data: Any,
    indices: Any,
    segment_ids: Any,
    name: str | None = None,
    num_segments: Any = None,
) -> Output:
    """Return `segment_sum(gather(data, indices), segment_ids)`.

    Args:
      data: real, shape (R, ...).
      indices: int32 or int64, shape (N,), in [0, R).
      segment_ids: int32, shape (N,); at least 0, never decreasing.
      num_segments: integer scalar, the number of rows of the result.
    Returns: shape (last id + 1, ...), or (num_segments, ...).
    Raises: InvalidArgumentError: the sizes differ; at run time, an index is out of range or the ids
      decrease.

    Examples:
      >>> rows = wf.constant([[1.0], [2.0], [4.0]])
      >>> wf.Session().run(wf.sparse.segment_sum(rows, [0, 2, 1], [0, 0, 1]))
      array([[5.],
             [2.]], dtype=float32)
    """
    return _sparse("Sum", data, indices, segment_ids, num_segments, name)


def sparse_segment_mean(
    data: Any,
    indices: Any,
    segment_ids: Any,
    name: str | None = None,
    num_segments: Any = None,
) -> Output:
    """Return the mean of selected rows per segment.

    Args:
      data: floating, shape (R, ...).
      indices, segment_ids, num_segments: as for `sparse_segment_sum`.
    Returns: shape (last id + 1, ...), or (num_segments, ...).
    Raises: as `sparse_segment_sum`.

    Examples:
      >>> rows = wf.constant([[1.0], [2.0], [4.0]])
      >>> wf.Session().run(wf.sparse.segment_mean(rows, [0, 2, 1], [0, 0, 1]))
      array([[2.5],
             [2. ]], dtype=float32)
    """
    return _sparse("Mean", data, indices, segment_ids, num_segments, name)


def sparse_segment_sqrt_n(
    data: Any,
    indices: Any,
    segment_ids: Any,
    name: str | None = None,
    num_segments: Any = None,
) -> Output:
    """Return the sum of selected rows per segment, divided by the square root of their number.

    Args:
      data: floating, shape (R, ...).
      indices, segment_ids, num_segments: as for `sparse_segment_sum`.
    Returns: shape (last id + 1, ...), or (num_segments, ...).
    Raises: as `sparse_segment_sum`.

    Examples:
      >>> rows = wf.constant([[1.0], [2.0], [4.0]])
      >>> np.round(wf.Session().run(wf.sparse.segment_sqrt_n(rows, [0, 2, 1], [0, 0, 1])), 3)
      array([[3.536],
             [2.   ]], dtype=float32)
    """
    return _sparse("SqrtN", data, indices, segment_ids, num_segments, name)
