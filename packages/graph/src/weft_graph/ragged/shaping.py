"""Rules of ops that return or change the shape of ragged tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft_graph.ir.builder import constant_of, convert_to_tensor, create, out
from weft_graph.ops import shapes
from weft_graph.ops.shape_rules import constant_array, normal_axis
from weft_graph.ragged import encodings
from weft_graph.ragged.broadcasting import map_flat_values
from weft_graph.ragged.dispatch import Call, ragged_op
from weft_graph.ragged.indexing import expand_first_axis
from weft_graph.ragged.tensor import RaggedTensor, static_rank
from weft_tensor import errors


@ragged_op("Shape", "ShapeN")
def _shape(call: Call) -> Any:
    raise errors.InvalidTypeError(
        "the sizes of a ragged tensor vary by row; use row_lengths(), nrows() or bounding_shape()"
    )


@ragged_op("Size")
def _size(call: Call) -> Any:
    return call.plain(call.inputs[0].flat_values)


@ragged_op("Rank")
def _rank(call: Call) -> Any:
    value = call.inputs[0]
    levels = constant_of(np.array(value.ragged_rank, np.int32))
    return out("AddV2", [out("Rank", [value.flat_values]), levels])


@ragged_op("ExpandDims")
def _expand(call: Call) -> Any:
    value, axis = call.inputs
    static_axis, rank = constant_array(convert_to_tensor(axis)), static_rank(value)
    if static_axis is None or rank is None:
        raise errors.InvalidArgumentError(
            "expand_dims of a ragged tensor requires a known axis and rank"
        )
    return _add_axis(value, normal_axis(int(static_axis.item()), rank + 1))


def _add_axis(value: Any, axis: int) -> Any:
    if not isinstance(value, RaggedTensor):
        return shapes.expand_dims(value, axis)
    dtype = value.row_splits.dtype.base_dtype
    if axis == 0:
        return expand_first_axis(value, dtype)
    if axis > 1:
        return value.with_values(_add_axis(value.values, axis - 1))
    return value[:, None]


@ragged_op("Squeeze")
def _squeeze(call: Call) -> Any:
    value, rank = call.inputs[0], static_rank(call.inputs[0])
    axes = call.attrs.get("squeeze_dims") or ()
    if not axes:
        raise errors.InvalidArgumentError("squeeze of a ragged tensor requires axis")
    if rank is None:
        raise errors.InvalidArgumentError("squeeze of a ragged tensor requires a known rank")
    for axis in sorted({normal_axis(int(axis_value), rank) for axis_value in axes}, reverse=True):
        value = _remove_axis(value, axis)
    return value


def _remove_axis(value: Any, axis: int) -> Any:
    if not isinstance(value, RaggedTensor):
        return out("Squeeze", [value], {"squeeze_dims": [axis]})
    if axis > 1:
        return value.with_values(_remove_axis(value.values, axis - 1))
    rows = value.levels[0]
    checks = encodings.Checks(validate=True)
    if axis == 0:
        count = encodings.Encoding(rows.nrows(), "nrows", 0)
        if rows.static_nrows is not None:
            count.array = np.array(rows.static_nrows)
        checks.require("an axis that is squeezed must have size 1", _is_one, count)
    else:
        lengths = encodings.Encoding(rows.row_lengths(), "row_lengths")
        if rows.static_uniform is not None:
            lengths.array = np.array([rows.static_uniform])
        checks.require("an axis that is squeezed must have size 1", _is_one, lengths)
    return checks.after_checks(value.values)


def _is_one(sizes: Any) -> Any:
    return (sizes >= 1) & (sizes <= 1)


@ragged_op("OneHot")
def _one_hot(call: Call) -> Any:
    value, depth, on, off_value = call.inputs
    if not isinstance(value, RaggedTensor):
        raise errors.InvalidTypeError("one_hot supports ragged tensors only as indices")
    axis, rank = call.attrs.get("axis", -1), static_rank(value)
    if axis != -1:
        if rank is None:
            raise errors.InvalidArgumentError("one_hot with an axis requires a known rank")
        axis = normal_axis(axis, rank + 1) - value.ragged_rank
        if axis < 1:
            raise errors.InvalidArgumentError(
                "the new axis of one_hot must come after the ragged axes, got "
                f"{axis + value.ragged_rank}"
            )
    return value.with_flat_values(call.plain(value.flat_values, depth, on, off_value, axis=axis)[0])


@ragged_op("AddN")
def _add_n(call: Call) -> Any:
    return map_flat_values(lambda *values: call.plain(list(values)), call.inputs[0])


@ragged_op("Softmax", "LogSoftmax")
def _softmax(call: Call) -> Any:
    (value,) = call.inputs
    rank = static_rank(value.flat_values)
    if rank is None or rank > 1:
        return value.with_flat_values(call.plain(value.flat_values)[0])
    axis = constant_of(np.array([value.ragged_rank], np.int32))
    keep = {"keep_dims": True}
    peak = out("StopGradient", [create("Max", [value, axis], keep).outputs[0]])
    shifted = out("Sub", [value, peak])
    total = out("Sum", [out("Exp", [shifted]), axis], keep)
    if call.op == "LogSoftmax":
        return out("Sub", [shifted, out("Log", [total])])
    return out("RealDiv", [out("Exp", [shifted]), total])


@ragged_op("Cumsum", "Cumprod", "CumulativeLogsumexp")
def _cumulative(call: Call) -> Any:
    value, axis = call.inputs
    static_axis, rank = constant_array(convert_to_tensor(axis)), static_rank(value)
    if static_axis is None or rank is None:
        raise errors.InvalidArgumentError(f"{call.op} requires a known axis and rank")
    dim = normal_axis(int(static_axis.item()), rank)
    if dim > value.ragged_rank:
        inner = constant_of(np.array(dim - value.ragged_rank, np.int32))
        return value.with_flat_values(call.plain(value.flat_values, inner)[0])
    filler = {"Cumsum": 0, "Cumprod": 1, "CumulativeLogsumexp": -np.inf}[call.op]
    padded_result = call.plain(value.to_tensor(filler), constant_of(np.array(dim, np.int32)))[0]
    return value.with_flat_values(out("GatherNd", [padded_result, padded_indices(value)]))


def padded_indices(value: RaggedTensor) -> Any:
    """Return the index of each flat value in the padded tensor, shape (n, ragged_rank + 1)."""
    numbers = shapes.shape(value.flat_values)[:1]
    inputs = [list(value.nested_row_splits), out("Fill", [numbers, False])]
    indices = create("RaggedTensorToSparse", inputs).outputs[0]
    indices.set_shape([None, value.ragged_rank + 1])
    return indices


@ragged_op("BatchMatMulV2", "BatchMatMul")
def _matmul(call: Call) -> Any:
    a, b = call.inputs
    adj_x, adj_y = [call.attrs.get(name, False) for name in ("adj_x", "adj_y")]
    if _is_flat_product(a, b, adj_x):
        return a.with_flat_values(_times_matrix(a.flat_values, b, adj_y))
    padded = [v.to_tensor() if isinstance(v, RaggedTensor) else v for v in (a, b)]
    dense_product = call.plain(*padded)[0]
    rows = _lengths_along(a, -1 if adj_x else -2)
    columns = _lengths_along(b, -2 if adj_y else -1)
    if rows is None and columns is None:
        return dense_product
    if columns is not None:
        raise errors.UnimplementedError(
            "products with ragged columns are not supported; convert the second operand with "
            "to_tensor()"
        )
    if not isinstance(rows, list):
        rows = [rows]
    return RaggedTensor.from_tensor(dense_product, lengths=rows if len(rows) > 1 else rows[0])


def _is_flat_product(a: Any, b: Any, adj_x: bool) -> bool:
    """Return True if ragged rows of equal inner size are multiplied by one matrix."""
    return (
        isinstance(a, RaggedTensor)
        and not adj_x
        and static_rank(a.flat_values) == 2
        and not isinstance(b, RaggedTensor)
        and static_rank(convert_to_tensor(b)) == 2
    )


def _times_matrix(values: Any, matrix: Any, adj_y: bool) -> Any:
    return out("MatMul", [values, matrix], {"transpose_b": adj_y})


def _lengths_along(value: Any, axis: int) -> Any:
    """Return the ragged lengths of an axis counted from the end; None if it is uniform."""
    if not isinstance(value, RaggedTensor):
        return None
    rank = static_rank(value)
    if rank is None:
        raise errors.InvalidArgumentError("a product of ragged tensors requires a known rank")
    level = rank + axis
    if level < 1 or level > value.ragged_rank or value.levels[level - 1].uniform is not None:
        return None
    if level != 1:
        raise errors.UnimplementedError(
            "products with more than one batch axis before the ragged axis are not supported"
        )
    return value.row_lengths()


@ragged_op("Bincount")
def _bincount(call: Call) -> Any:
    return call.plain(
        *[value.flat_values if isinstance(value, RaggedTensor) else value for value in call.inputs]
    )
