"""Reductions, positions of extrema, cumulative sums and products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.node import Output
from weft_graph.ops import reduction
from weft_graph.ops.arithmetic import abs as absolute
from weft_graph.ops.comparison import equal, invert
from weft_graph.ops.elementary import log
from weft_graph.ops.identity import identity
from weft_graph.ops.join import concat
from weft_graph.ops.masks import where_v2
from weft_graph.ops.permutation import reverse, transpose
from weft_graph.ops.powers import sqrt, square
from weft_graph.ops.search import top_k
from weft_graph.ops.sequence import range as sequence
from weft_graph.ops.shapes import expand_dims, reshape, shape, size
from weft_io.onnx.element_types import onnx_type
from weft_io.onnx.export_graph import Value
from weft_io.onnx.node_export import NodeExport
from weft_io.onnx.operation import Operation, as_int32, cast, rank_of
from weft_io.onnx.registry import exporter, importer
from weft_tensor import dtypes, errors

_Reduce = Callable[..., Output]


def _l2(x: Output, axis: Any, keepdims: bool) -> Output:
    if x.dtype.is_integer:
        return cast(_l2(cast(x, dtypes.float64), axis, keepdims), x.dtype)
    result: Output = sqrt(reduction.reduce_sum(square(x), axis, keepdims))
    return result


_REDUCE: Final[dict[str, _Reduce]] = {
    "ReduceSum": reduction.reduce_sum,
    "ReduceMean": reduction.reduce_mean,
    "ReduceMax": reduction.reduce_max,
    "ReduceMin": reduction.reduce_min,
    "ReduceProd": reduction.reduce_prod,
    "ReduceLogSumExp": reduction.reduce_logsumexp,
    "ReduceL1": lambda x, axis, keep: reduction.reduce_sum(absolute(x), axis, keep),
    "ReduceL2": _l2,
    "ReduceSumSquare": lambda x, axis, keep: reduction.reduce_sum(square(x), axis, keep),
    "ReduceLogSum": lambda x, axis, keep: log(reduction.reduce_sum(x, axis, keep)),
}


@importer(*_REDUCE)
def _reduce(operation: Operation) -> Output:
    x, axes = operation[0], operation.tensor(1, "axes")
    keep = bool(operation.attribute("keepdims", 1))
    known_axes = None if axes is None else constant_value(axes)
    if known_axes is not None and known_axes.size and x.dims is not None:
        return _reduce_axes(
            operation, [int(axis) % len(x.dims) for axis in known_axes.ravel()], keep
        )
    rule, empty_is_none = _rule(operation, x), operation.attribute("noop_with_empty_axes", 0)
    if axes is None or axes.dims == (0,):
        return rule(expand_dims(x, 0), 0, False) if empty_is_none else rule(x, None, keep)
    if not empty_is_none and (axes.dims is None or None in axes.dims):
        axes = _all_if_empty(axes, x)
    return rule(x, axes, keep)


def _all_if_empty(axes: Output, x: Output) -> Output:
    """Return the axes; all axes of x if `axes` turns out to be empty at run time."""
    axes = reshape(axes, [-1])
    all_axes = sequence(cast(rank_of(x), axes.dtype.base_dtype))
    count = where_v2(equal(size(axes), 0), size(all_axes), 0)
    return concat([axes, all_axes[:count]], 0)


def _rule(operation: Operation, x: Output) -> _Reduce:
    if x.dtype.is_bool:
        return {"ReduceMax": reduction.reduce_any, "ReduceMin": reduction.reduce_all}[operation.op]
    return _REDUCE[operation.op]


def _reduce_axes(operation: Operation, axes: Sequence[int], keep: bool) -> Output:
    """Reduce the untransposed input over known axes."""
    x, order = operation.plain()
    result = _rule(operation, x)(x, sorted(order[axis] for axis in axes), keep)
    if keep:
        return operation.transposed(result, order)
    remaining = [position for axis, position in enumerate(order) if axis not in axes]
    return operation.transposed(
        result, [sorted(remaining).index(position) for position in remaining]
    )


@importer("ArgMax", "ArgMin")
def _extreme(operation: Operation) -> Output:
    x, axis = operation[0], operation.axis()
    rule = reduction.argmax if operation.op == "ArgMax" else reduction.argmin
    if operation.attribute("select_last_index", 0):
        count = shape(x, out_type=dtypes.int64)[axis]
        result = count - 1 - rule(reverse(x, [axis]), axis)
    else:
        result = rule(x, axis)
    return expand_dims(result, axis) if operation.attribute("keepdims", 1) else result


@importer("CumSum", "CumProd")
def _cumulative(operation: Operation) -> Output:
    rule = reduction.cumsum if operation.op == "CumSum" else reduction.cumprod
    return rule(
        operation[0],
        reshape(operation[1], []),
        bool(operation.attribute("exclusive", 0)),
        bool(operation.attribute("reverse", 0)),
    )


@importer("TopK")
def _top_k(operation: Operation) -> list[Output]:
    x, k, order = operation[0], operation.tensor(1, "k"), list[int]()
    last = operation.attribute("axis", -1) == -1
    if not last:
        axis, count = operation.axis(), operation.rank()
        last = axis == count - 1
        order = [*(i for i in range(count) if i != axis), axis]
    rows = x if last else transpose(x, order)
    smallest = not operation.attribute("largest", 1)
    keys = _reverse(rows) if smallest else rows
    if k is None:
        raise errors.InvalidArgumentError("TopK requires k")
    values, indices = top_k(keys, as_int32(reshape(k, [])), bool(operation.attribute("sorted", 1)))
    values = _reverse(values) if smallest else values
    indices = cast(indices, dtypes.int64)
    if last:
        return [values, indices]
    inverse_order = [order.index(i) for i in range(len(order))]
    return [transpose(values, inverse_order), transpose(indices, inverse_order)]


def _reverse(x: Output) -> Output:
    """Return numbers that sort in the opposite order."""
    return invert(x) if x.dtype.is_integer else -x


@importer("Identity", elementwise=True)
def _identity(operation: Operation) -> Output:
    return identity(operation[0])


# -------------------------------------------------------------------------------- export

_TO_ONNX: Final = {
    "EuclideanNorm": "ReduceL2",
    "Max": "ReduceMax",
    "Mean": "ReduceMean",
    "Min": "ReduceMin",
    "Prod": "ReduceProd",
    "Sum": "ReduceSum",
}


@exporter(*_TO_ONNX)
def _write_reduction(export: NodeExport) -> Value:
    return _export_reduction(export, _TO_ONNX[export.node.type], export[0])


@exporter("All", "Any")
def _write_logical(export: NodeExport) -> Value:
    """Export a logical reduction as a count of true values, because ONNX cannot reduce bools."""
    tested = export[0] if export.node.type == "Any" else export.elementwise("Not", export[0])
    count = export.elementwise("Cast", tested, dtype=dtypes.int64, to=onnx_type(dtypes.int64))
    result = export.cast(_export_reduction(export, "ReduceSum", count), dtypes.bool_)
    return result if export.node.type == "Any" else export.elementwise("Not", result)


def _export_reduction(export: NodeExport, op: str, x: Value) -> Value:
    """Export a reduction; a transposed value is reduced before the transposition."""
    keep = int(export.attribute("keep_dims", False))
    axes = export.value(1)
    if axes is None:
        axes_input = export.reshape(export.int64(export[1]), [-1])
        return export.add(op, x, axes_input, keepdims=keep, noop_with_empty_axes=1)
    flat = [int(axis) for axis in axes.flat]
    if not flat:
        return x if op != "ReduceL2" else export.elementwise("Abs", x)
    if x.untransposed is not None:
        source, order = x.untransposed
        reduced_axes = {axis % len(order) for axis in flat}
        remaining_axes = (
            order if keep else [item for axis, item in enumerate(order) if axis not in reduced_axes]
        )
        result = export.add(
            op, source, export.ints([order[axis] for axis in reduced_axes]), keepdims=keep
        )
        return export.transposed(
            result, [sorted(remaining_axes).index(item) for item in remaining_axes]
        )
    return export.add(op, x, export.ints(flat), keepdims=keep)


@exporter("ArgMax", "ArgMin")
def _export_arg_reduction(export: NodeExport) -> Value:
    axis = int(export.known(1, "the axis"))
    result = export.add(export.node.type, export[0], dtype=dtypes.int64, axis=axis, keepdims=0)
    return export.narrow(result, export.node.outputs[0].dtype)


@exporter("Cumsum")
def _write_cumsum(export: NodeExport) -> Value:
    exclusive, backwards = (int(export.attribute(name)) for name in ("exclusive", "reverse"))
    axis = export.int64(export[1])
    return export.add("CumSum", export[0], axis, exclusive=exclusive, reverse=backwards)


@exporter("L2Loss")
def _write_l2_loss(export: NodeExport) -> Value:
    result = export.add("ReduceSumSquare", export[0], keepdims=0)
    return export.add("Mul", result, export.like(0.5, result))
