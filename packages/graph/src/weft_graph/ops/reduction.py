"""Reductions over axes, indices of extremes, and cumulative sums and products.

`axis` is None (all axes), an integer, a list of them, or an integer tensor; negative axes count
from the back.  With `keepdims` the reduced axes stay, with size 1.
"""

from __future__ import annotations

__all__ = [
    "argmax",
    "argmin",
    "count_nonzero",
    "cumprod",
    "cumsum",
    "reduce_all",
    "reduce_any",
    "reduce_logsumexp",
    "reduce_max",
    "reduce_mean",
    "reduce_min",
    "reduce_prod",
    "reduce_sum",
]

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from weft_graph.ir.builder import constant_of, convert_to_tensor, out
from weft_graph.ir.composite import AppliesOps
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import Traits
from weft_graph.ir.value_rules import reduction_value_rule
from weft_graph.ops import cost_rules, shape_rules
from weft_graph.ops.shapes import deprecated_argument
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dims

_AXES = "{int32, int64} = int32"


def _arg_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = node.inputs[0].dims
    if dims is None:
        return (None,)
    if not dims:
        raise errors.InvalidArgumentError("ArgMax and ArgMin require rank at least 1")
    axis = shape_rules.scalar_int(node.inputs[1], "dimension")
    if axis is None:
        return ((None,) * (len(dims) - 1),)
    axis = shape_rules.normal_axis(axis, len(dims), "dimension")
    return (dims[:axis] + dims[axis + 1 :],)


def _scan_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = node.inputs[0].dims
    axis = shape_rules.scalar_int(node.inputs[1], "axis")
    if dims is not None and axis is not None:
        shape_rules.normal_axis(axis, len(dims))
    return (dims,)


_VALUES: Final = {
    "Sum": reduction_value_rule(np.sum),
    "Prod": reduction_value_rule(np.prod),
    "Max": reduction_value_rule(np.max),
    "Min": reduction_value_rule(np.min),
    "All": reduction_value_rule(np.all),
    "Any": reduction_value_rule(np.any),
}


def _declare() -> None:
    for op, flops, types, doc in (
        ("Sum", 1, "{inexact, integral}", "The sum; 0 for no elements."),
        ("Mean", 1, "{inexact, integral}", "The mean; integers round toward zero."),
        ("Prod", 1, "{inexact, integral}", "The product; 1 for no elements."),
        ("Max", 1, "{realnumbertype}", "The largest element; the type's lowest for no elements."),
        ("Min", 1, "{realnumbertype}", "The smallest element; the type's highest for no elements."),
        ("EuclideanNorm", 2, "{inexact, integral}", "sqrt(sum(x * conj(x)))."),
    ):
        register_op(
            op,
            ("input: T", "reduction_indices: Tidx"),
            ("output: T",),
            {"keep_dims": "bool = false", "T": types, "Tidx": _AXES},
            shape_rules.reduce,
            value=_VALUES.get(op),
            traits=Traits(
                cost=cost_rules.per_input(flops), adds=(1,) if op in {"Sum", "Mean"} else ()
            ),
            doc=doc,
        )
    for op, doc in (
        ("All", "True if all elements are True."),
        ("Any", "True if any element is True."),
    ):
        register_op(
            op,
            ("input: bool", "reduction_indices: Tidx"),
            ("output: bool",),
            {"keep_dims": "bool = false", "Tidx": _AXES},
            shape_rules.reduce,
            value=_VALUES.get(op),
            traits=Traits(differentiable=False, cost=cost_rules.per_input(1)),
            doc=doc,
        )
    for op, doc in (
        ("ArgMax", "The index of the largest element along an axis; the first one of ties."),
        ("ArgMin", "The index of the smallest element along an axis; the first one of ties."),
    ):
        register_op(
            op,
            ("input: T", "dimension: Tidx"),
            ("output: output_type",),
            {
                "T": "{realnumbertype, bool}",
                "Tidx": _AXES,
                "output_type": "{int32, int64} = int64",
            },
            _arg_shape,
            traits=Traits(differentiable=False, cost=cost_rules.per_input(1)),
            doc=doc,
        )
    for op, doc in (
        ("Cumsum", "Cumulative sums along an axis."),
        ("Cumprod", "Cumulative products along an axis."),
        ("CumulativeLogsumexp", "Logarithms of cumulative sums of exponentials along an axis."),
    ):
        register_op(
            op,
            ("x: T", "axis: Tidx"),
            ("out: T",),
            {
                "exclusive": "bool = false",
                "reverse": "bool = false",
                "T": "{floating}" if op == "CumulativeLogsumexp" else "{inexact, integral}",
                "Tidx": _AXES,
            },
            _scan_shape,
            traits=Traits(cost=cost_rules.per_input(1), adds=(1,) if op == "Cumsum" else ()),
            doc=doc,
        )


_declare()


def reduction_axes(x: Output, axis: Any) -> Output:
    """Return the axes to reduce over as an integer output; all of them for None."""
    if axis is None:
        if x.dims is not None:
            return constant_of(np.arange(len(x.dims), dtype=np.int32))
        return out("Range", [0, out("Rank", [x]), 1])
    if isinstance(axis, Output):
        return axis
    if isinstance(axis, np.ndarray):
        return convert_to_tensor(axis)
    return convert_to_tensor(axis, dtypes.int32)


def _reduce(
    op: str, x: Any, axis: Any, keepdims: Any, name: str | None, old_axis: Any, old_keep: Any
) -> Output:
    axis = deprecated_argument("axis", axis, "reduction_indices", old_axis)
    keep = deprecated_argument("keepdims", keepdims, "keep_dims", old_keep)
    value = convert_to_tensor(x, preferred_dtype=dtypes.bool_ if op in ("All", "Any") else None)
    attrs = {"keep_dims": True} if keep else None
    result = out(op, [value, reduction_axes(value, axis)], attrs, name)
    if axis is None and not keep:
        result.dims = ()  # also where the rank is unknown
    return result


def reduce_sum(
    input_tensor: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: bool | None = None,
) -> Output:
    """Return the sum over axes, 0 for no elements; numeric, any shape.

    Args:
      input_tensor: numeric, any shape.
      axis: int or list of ints; negative ones count from the end. All axes by default.
      keepdims: keep the reduced axes with size 1; also `keep_dims`.
      reduction_indices: deprecated name of `axis`.
    Returns: the remaining axes; dtype of `input_tensor`.
    Raises: InvalidArgumentError: an axis is out of range or repeated.

    Examples:
      >>> x = [[1.0, 2.0], [3.0, 4.0]]
      >>> wf.Session().run([wf.reduce_sum(x), wf.reduce_sum(x, axis=0)])
      [np.float32(10.0), array([4., 6.], dtype=float32)]
    """
    return _reduce("Sum", input_tensor, axis, keepdims, name, reduction_indices, keep_dims)


def reduce_mean(
    input_tensor: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: bool | None = None,
) -> Output:
    """Return the mean over axes, NaN for no elements; integers round toward zero; numeric.

    Args:
      input_tensor: numeric, any shape.
      axis: int or list of ints; negative ones count from the end. All axes by default.
      keepdims: keep the reduced axes with size 1; also `keep_dims`.
      reduction_indices: deprecated name of `axis`.
    Returns: the remaining axes; dtype of `input_tensor`.
    Raises: InvalidArgumentError: an axis is out of range or repeated.

    Examples:
      >>> x = [[1.0, 2.0], [3.0, 4.0]]
      >>> wf.Session().run([wf.reduce_mean(x), wf.reduce_mean(x, axis=0)])
      [np.float32(2.5), array([2., 3.], dtype=float32)]
    """
    return _reduce("Mean", input_tensor, axis, keepdims, name, reduction_indices, keep_dims)


def reduce_prod(
    input_tensor: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: bool | None = None,
) -> Output:
    """Return the product over axes, 1 for no elements; numeric, any shape.

    Args:
      input_tensor: numeric, any shape.
      axis: int or list of ints; negative ones count from the end. All axes by default.
      keepdims: keep the reduced axes with size 1; also `keep_dims`.
      reduction_indices: deprecated name of `axis`.
    Returns: the remaining axes; dtype of `input_tensor`.
    Raises: InvalidArgumentError: an axis is out of range or repeated.

    Examples:
      >>> x = [[1.0, 2.0], [3.0, 4.0]]
      >>> wf.Session().run([wf.reduce_prod(x), wf.reduce_prod(x, axis=0)])
      [np.float32(24.0), array([3., 8.], dtype=float32)]
    """
    return _reduce("Prod", input_tensor, axis, keepdims, name, reduction_indices, keep_dims)


def reduce_max(
    input_tensor: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: bool | None = None,
) -> Output:
    """Return the largest element over axes, NaN if one is NaN, the lowest value for none; real.

    Args:
      input_tensor: real, any shape.
      axis: int or list of ints; negative ones count from the end. All axes by default.
      keepdims: keep the reduced axes with size 1; also `keep_dims`.
      reduction_indices: deprecated name of `axis`.
    Returns: the remaining axes; dtype of `input_tensor`.
    Raises: InvalidArgumentError: an axis is out of range or repeated.

    Examples:
      >>> x = [[1.0, 2.0], [3.0, 4.0]]
      >>> wf.Session().run([wf.reduce_max(x), wf.reduce_max(x, axis=0)])
      [np.float32(4.0), array([3., 4.], dtype=float32)]
    """
    return _reduce("Max", input_tensor, axis, keepdims, name, reduction_indices, keep_dims)


def reduce_min(
    input_tensor: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: bool | None = None,
) -> Output:
    """Return the smallest element over axes, NaN if one is NaN, the highest value for none; real.

    Args:
      input_tensor: real, any shape.
      axis: int or list of ints; negative ones count from the end. All axes by default.
      keepdims: keep the reduced axes with size 1; also `keep_dims`.
      reduction_indices: deprecated name of `axis`.
    Returns: the remaining axes; dtype of `input_tensor`.
    Raises: InvalidArgumentError: an axis is out of range or repeated.

    Examples:
      >>> x = [[1.0, 2.0], [3.0, 4.0]]
      >>> wf.Session().run([wf.reduce_min(x), wf.reduce_min(x, axis=0)])
      [np.float32(1.0), array([1., 2.], dtype=float32)]
    """
    return _reduce("Min", input_tensor, axis, keepdims, name, reduction_indices, keep_dims)


def reduce_all(
    input_tensor: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: bool | None = None,
) -> Output:
    """Return True where all elements along axes are True, or there are none; bool, any shape.

    Args:
      input_tensor: bool, any shape.
      axis: int or list of ints; negative ones count from the end. All axes by default.
      keepdims: keep the reduced axes with size 1; also `keep_dims`.
      reduction_indices: deprecated name of `axis`.
    Returns: the remaining axes; dtype of `input_tensor`.
    Raises: InvalidArgumentError: an axis is out of range or repeated.

    Examples:
      >>> x = [[True, False], [True, True]]
      >>> wf.Session().run([wf.reduce_all(x), wf.reduce_all(x, axis=0)])
      [np.False_, array([ True, False])]
    """
    return _reduce("All", input_tensor, axis, keepdims, name, reduction_indices, keep_dims)


def reduce_any(
    input_tensor: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: bool | None = None,
) -> Output:
    """Return True where any element along axes is True; bool, any shape.

    Args:
      input_tensor: bool, any shape.
      axis: int or list of ints; negative ones count from the end. All axes by default.
      keepdims: keep the reduced axes with size 1; also `keep_dims`.
      reduction_indices: deprecated name of `axis`.
    Returns: the remaining axes; dtype of `input_tensor`.
    Raises: InvalidArgumentError: an axis is out of range or repeated.

    Examples:
      >>> x = [[True, False], [True, True]]
      >>> wf.Session().run([wf.reduce_any(x), wf.reduce_any(x, axis=0)])
      [np.True_, array([ True,  True])]
    """
    return _reduce("Any", input_tensor, axis, keepdims, name, reduction_indices, keep_dims)


def reduce_euclidean_norm(
    input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None
) -> Output:
    """Return the square root of the sum of |x| ** 2 over axes; numeric, any shape.

    Args:
      input_tensor: numeric, any shape.
      axis: int or list of ints; negative ones count from the end. All axes by default.
      keepdims: keep the reduced axes with size 1; also `keep_dims`.
    Returns: the remaining axes; dtype of `input_tensor`.
    Raises: InvalidArgumentError: an axis is out of range.

    Examples:
      >>> x = [[1.0, 2.0], [3.0, 4.0]]
      >>> np.round(wf.Session().run(wf.math.reduce_euclidean_norm(x, axis=0)), 3)
      array([3.162, 4.472], dtype=float32)
    """
    return _reduce("EuclideanNorm", input_tensor, axis, keepdims, name, None, None)


def reduce_logsumexp(
    input_tensor: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: bool | None = None,
) -> Output:
    """Return log(sum(exp(x))) over axes, without overflow or underflow; floating, any shape.

    Args:
      input_tensor: floating, any shape.
      axis: int or list of ints; negative ones count from the end. All axes by default.
      keepdims: keep the reduced axes with size 1; also `keep_dims`.
      reduction_indices: deprecated name of `axis`.
    Returns: the remaining axes; dtype of `input_tensor`.
    Raises: InvalidArgumentError: an axis is out of range or repeated.

    Examples:
      >>> x = [[1.0, 2.0], [3.0, 4.0]]
      >>> np.round(wf.Session().run(wf.reduce_logsumexp(x, axis=0)), 3)
      array([3.127, 4.127], dtype=float32)
    """
    axis = deprecated_argument("axis", axis, "reduction_indices", reduction_indices)
    keep = deprecated_argument("keepdims", keepdims, "keep_dims", keep_dims)
    value = convert_to_tensor(input_tensor)
    axes = reduction_axes(value, axis)
    peak = out("Max", [value, axes], {"keep_dims": True})
    peak = out("SelectV2", [out("IsFinite", [peak]), peak, out("ZerosLike", [peak])])
    peak = out("StopGradient", [peak])
    powers = out("Exp", [out("Sub", [value, peak])])
    result = out("Log", [out("Sum", [powers, axes], {"keep_dims": bool(keep)})])
    if not keep:
        peak = out("Reshape", [peak, out("Shape", [result])])
    return out("AddV2", [result, peak], name=name or "ReduceLogSumExp")


def reduce_variance(
    input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None
) -> Output:
    """Return the mean of |x - mean(x)| ** 2 over axes; floating or complex, any shape.

    Args:
      input_tensor: floating or complex, any shape.
      axis: int or list of ints; negative ones count from the end. All axes by default.
      keepdims: keep the reduced axes with size 1; also `keep_dims`.
    Returns: the remaining axes; the real dtype of `input_tensor`.
    Raises: InvalidArgumentError: an axis is out of range; InvalidTypeError: the input is neither
      floating nor complex.

    Examples:
      >>> x = [[1.0, 2.0], [3.0, 4.0]]
      >>> wf.Session().run([wf.math.reduce_variance(x), wf.math.reduce_variance(x, axis=0)])
      [np.float32(1.25), array([1., 1.], dtype=float32)]
    """
    value = convert_to_tensor(input_tensor)
    if not (value.dtype.is_floating or value.dtype.is_complex):
        raise errors.InvalidTypeError(
            f"reduce_variance requires a floating or complex tensor, got {value!r}"
        )
    axes = reduction_axes(value, axis)
    if isinstance(value, AppliesOps) and value.dtype.is_floating:
        return _variance_by_squares(value, axes, bool(keepdims), name)
    mean = out("Mean", [value, axes], {"keep_dims": True})
    squares = out("SquaredDifference", [value, mean])
    if value.dtype.is_complex:
        squares = out("Real", [squares], {"Tout": value.dtype.real_dtype})
    return out("Mean", [squares, axes], {"keep_dims": bool(keepdims)}, name or "reduce_variance")


def _variance_by_squares(value: Any, axes: Output, keep: bool, name: str | None) -> Output:
    """Return the variance of ragged values, whose rows do not match those of the means.

    The mean of all values is subtracted first, so that squares of large numbers do not cancel.
    """
    center = value.map_elements(
        lambda flat: out("Sub", [flat, out("Mean", [flat, reduction_axes(flat, None)])])
    )
    attrs = {"keep_dims": keep}
    mean = out("Mean", [center, axes], attrs)
    squares = out("Mean", [out("Square", [center]), axes], attrs)
    return out("Maximum", [out("Sub", [squares, out("Square", [mean])]), 0], name=name)


def reduce_std(
    input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None
) -> Output:
    """Return the square root of `reduce_variance`; floating or complex, any shape.

    Args:
      input_tensor: floating or complex, any shape.
      axis: int or list of ints; negative ones count from the end. All axes by default.
      keepdims: keep the reduced axes with size 1; also `keep_dims`.
    Returns: the remaining axes; dtype of `input_tensor`.
    Raises: InvalidArgumentError: an axis is out of range.

    Examples:
      >>> x = [[1.0, 2.0], [3.0, 4.0]]
      >>> np.round(wf.Session().run(wf.math.reduce_std(x, axis=0)), 3)
      array([1., 1.], dtype=float32)
    """
    variance = reduce_variance(input_tensor, axis, keepdims)
    return out("Sqrt", [variance], name=name or "reduce_std")


def count_nonzero(
    input_tensor: Any = None,
    axis: Any = None,
    keepdims: bool | None = None,
    dtype: Any = dtypes.int64,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: bool | None = None,
    input: Any = None,
) -> Output:
    """Count the elements along axes that differ from 0, False or the empty string.

    Args:
      input_tensor: numeric, bool or string; any shape.
      dtype: element type of the result, numeric.
    Raises: InvalidArgumentError: an axis is out of range or repeated.

    Examples:
      >>> wf.Session().run(wf.count_nonzero([0, 3, 0, 5]))
      np.int64(2)
    """
    axis = deprecated_argument("axis", axis, "reduction_indices", reduction_indices)
    keep = deprecated_argument("keepdims", keepdims, "keep_dims", keep_dims)
    value = convert_to_tensor(deprecated_argument("input", input, "input_tensor", input_tensor))
    zero: Any = b"" if value.dtype.base_dtype is dtypes.string else 0
    if value.dtype.is_bool:
        zero = False
    differs = out("NotEqual", [value, convert_to_tensor(zero, value.dtype.base_dtype)])
    flags = out("Cast", [differs], {"DstT": dtypes.int64})
    attrs = {"keep_dims": bool(keep)}
    count = out("Sum", [flags, reduction_axes(value, axis)], attrs, name or "count_nonzero")
    element_type = dtypes.as_dtype(dtype)
    return count if element_type is dtypes.int64 else out("Cast", [count], {"DstT": element_type})


def argmax(
    input: Any,
    axis: Any = None,
    name: str | None = None,
    dimension: Any = None,
    output_type: Any = dtypes.int64,
) -> Output:
    """Return the index of the largest element along an axis; the first one of ties.

    Args:
      input: real or bool, rank at least 1.
      axis: 0 by default.
      output_type: int32 or int64.
    Raises: InvalidArgumentError: the axis is out of range, or, at run time, has size 0.

    Examples:
      >>> wf.Session().run(wf.argmax([[1, 5, 2], [7, 0, 3]], axis=1))
      array([1, 0])
    """
    return _position(
        "ArgMax",
        input,
        deprecated_argument("axis", axis, "dimension", dimension),
        output_type,
        name,
    )


def argmin(
    input: Any,
    axis: Any = None,
    name: str | None = None,
    dimension: Any = None,
    output_type: Any = dtypes.int64,
) -> Output:
    """Return the index of the smallest element along an axis; the first one of ties.

    Args:
      input: real, rank at least 1.
      axis: scalar; 0 by default; also `dimension`.
      output_type: int32 or int64.
    Returns: the remaining axes.
    Raises: InvalidArgumentError: the axis is out of range.

    Examples:
      >>> wf.Session().run(wf.argmin([[1, 5, 2], [7, 0, 3]], axis=1))
      array([0, 1])
    """
    return _position(
        "ArgMin",
        input,
        deprecated_argument("axis", axis, "dimension", dimension),
        output_type,
        name,
    )


def arg_max(
    input: Any, dimension: Any, output_type: Any = dtypes.int64, name: str | None = None
) -> Output:
    """Return `argmax`, with the older order of arguments.

    Args:
      input: real, rank at least 1.
      dimension: int32 or int64, shape (): the axis.
      output_type: int32 or int64.
    Returns: shape of `input` without the axis, dtype `output_type`.

    Examples:
      >>> wf.Session().run(wf.arg_max([[1, 5, 2], [7, 0, 3]], 1))
      array([1, 0])
    """
    return _position("ArgMax", input, dimension, output_type, name)


def arg_min(
    input: Any, dimension: Any, output_type: Any = dtypes.int64, name: str | None = None
) -> Output:
    """Return `argmin`, with the older order of arguments.

    Args:
      input, dimension, output_type: as for `arg_max`.
    Returns: shape of `input` without the axis, dtype `output_type`.

    Examples:
      >>> wf.Session().run(wf.arg_min([[1, 5, 2], [7, 0, 3]], 1))
      array([0, 1])
    """
    return _position("ArgMin", input, dimension, output_type, name)


def _position(op: str, x: Any, axis: Any, output_type: Any, name: str | None) -> Output:
    attrs = {"output_type": dtypes.as_dtype(output_type)}
    return out(op, [x, 0 if axis is None else axis], attrs, name)


def cumsum(
    x: Any,
    axis: Any = 0,
    exclusive: bool = False,
    reverse: bool = False,
    name: str | None = None,
) -> Output:
    """Return cumulative sums along an axis.

    Args:
      x: numeric, rank at least 1.
      axis: scalar.
      exclusive: exclude each element from its own sum, so that the first is 0.
      reverse: sum from the end.
    Returns: dtype and shape of x.
    Raises: InvalidArgumentError: the axis is out of range.

    Examples:
      >>> wf.Session().run(wf.cumsum([1, 2, 3]))
      array([1, 3, 6], dtype=int32)
    """
    return out("Cumsum", [x, axis], {"exclusive": exclusive, "reverse": reverse}, name)


def cumprod(
    x: Any,
    axis: Any = 0,
    exclusive: bool = False,
    reverse: bool = False,
    name: str | None = None,
) -> Output:
    """Return cumulative products along an axis; see `cumsum`.

    Args:
      x, axis, exclusive, reverse: as for `cumsum`; the first of exclusive products is 1.
    Returns: dtype and shape of `x`.

    Examples:
      >>> wf.Session().run(wf.cumprod([1, 2, 3]))
      array([1, 2, 6], dtype=int32)
    """
    return out("Cumprod", [x, axis], {"exclusive": exclusive, "reverse": reverse}, name)


def cumulative_logsumexp(
    x: Any,
    axis: Any = 0,
    exclusive: bool = False,
    reverse: bool = False,
    name: str | None = None,
) -> Output:
    """Return log(cumsum(exp(x))) without overflow; see `cumsum`.

    Args:
      x: floating, rank at least 1.
      axis, exclusive, reverse: as for `cumsum`; the first of exclusive ones is -inf.
    Returns: dtype and shape of `x`.
    Raises: InvalidArgumentError: the axis is out of range.

    Examples:
      >>> np.round(wf.Session().run(wf.math.cumulative_logsumexp([1000.0, 1000.0])), 2)
      array([1000.  , 1000.69], dtype=float32)
    """
    attrs = {"exclusive": exclusive, "reverse": reverse}
    return out("CumulativeLogsumexp", [x, axis], attrs, name)
