"""Ranges, and histograms."""

from __future__ import annotations

__all__ = [
    "bincount",
    "histogram_fixed_width",
    "histogram_fixed_width_bins",
    "lin_space",
    "linspace",
    "range",
]

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.indexed_slices import SparseTensor, is_sparse
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import Array, NodeSpec, Values, register_op
from weft_graph.ir.traits import NOT_DIFFERENTIABLE, Traits
from weft_graph.ir.value_rules import MAX_ELEMENTS, arrays, value_rule
from weft_graph.ops import arithmetic, cost_rules, division, reduction, shape_rules
from weft_graph.ops.casting import cast
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims


def range_length(start: Any, limit: Any, delta: Any) -> int:
    """Return the number of elements of a range.

    Args:
      start: a number; also `limit` and `delta`.
    Raises: InvalidArgumentError: delta is 0, or leads away from the limit.
    """
    if delta == 0:
        raise errors.InvalidArgumentError("a range requires a delta other than 0")
    if (limit > start and delta < 0) or (limit < start and delta > 0):
        raise errors.InvalidArgumentError(
            f"the delta of a range must have the sign of limit - start, got start {start}, "
            f"limit {limit}, delta {delta}"
        )
    if isinstance(start, int) and isinstance(delta, int) and isinstance(limit, int):
        return -((start - limit) // delta) if delta > 0 else -((limit - start) // -delta)
    length = np.ceil(np.abs((limit - start) / delta))
    if not length < 2.0**63:
        raise errors.InvalidArgumentError(
            f"a range may have at most 2**63 - 1 elements, got start {start}, limit {limit}, "
            f"delta {delta}"
        )
    return int(length)


def _range_shape(node: NodeSpec) -> Sequence[Dims]:
    for value in node.inputs:
        shape_rules.with_rank(value.dims, 0, "start, limit and delta")
    static_bounds = [shape_rules.constant_array(value) for value in node.inputs]
    bounds = [None if array is None else array.reshape(()).item() for array in static_bounds]
    if None in bounds:
        return ((None,),)
    return ((range_length(*bounds),),)


def _linspace_shape(node: NodeSpec) -> Sequence[Dims]:
    for value in node.inputs:
        shape_rules.with_rank(value.dims, 0, "start, stop and num")
    num = shape_rules.scalar_int(node.inputs[2], "num")
    if num is not None and num <= 0:
        raise errors.InvalidArgumentError(f"num must be greater than 0, got {num}")
    return ((num,),)


def _bincount_shape(node: NodeSpec) -> Sequence[Dims]:
    shape_rules.with_rank(node.inputs[1].dims, 0, "size")
    size = shape_rules.scalar_int(node.inputs[1], "size")
    if size is not None and size < 0:
        raise errors.InvalidArgumentError(f"size must be at least 0, got {size}")
    return ((size,),)


def _histogram_shape(node: NodeSpec) -> Sequence[Dims]:
    shape_rules.with_rank(node.inputs[1].dims, 1, "value_range")
    nbins = shape_rules.scalar_int(node.inputs[2], "nbins")
    if nbins is not None and nbins <= 0:
        raise errors.InvalidArgumentError(f"nbins must be greater than 0, got {nbins}")
    return ((nbins,),)


@value_rule()
def _range_value(node: Node, index: int, values: Values) -> Array | None:
    start, limit, delta = [value.item() for value in arrays(values)]
    if abs(limit - start) > abs(delta) * MAX_ELEMENTS:
        return None
    return np.arange(start, limit, delta)


def _declare() -> None:
    register_op(
        "Range",
        ("start: Tidx", "limit: Tidx", "delta: Tidx"),
        ("output: Tidx",),
        {"Tidx": "{realnumbertype} = int32"},
        _range_shape,
        value=_range_value,
        traits=NOT_DIFFERENTIABLE,
        doc="start, start + delta, …, up to but excluding limit.",
    )
    register_op(
        "LinSpace",
        ("start: T", "stop: T", "num: Tidx"),
        ("output: T",),
        {"T": "{floating}", "Tidx": "{int32, int64} = int32"},
        _linspace_shape,
        traits=NOT_DIFFERENTIABLE,
        doc="num values evenly spaced from start to stop, both included.",
    )
    register_op(
        "Bincount",
        ("arr: int32", "size: int32", "weights: T"),
        ("bins: T",),
        {"T": "{int32, int64, float32, float64}"},
        _bincount_shape,
        traits=Traits(differentiable=False, cost=cost_rules.per_input(1)),
        doc="The count of each integer, or the sum of its weights.",
    )
    register_op(
        "HistogramFixedWidth",
        ("values: T", "value_range: T", "nbins: int32"),
        ("out: dtype",),
        {"T": "{int32, int64, float32, float64}", "dtype": "{int32, int64} = int32"},
        _histogram_shape,
        traits=Traits(differentiable=False, cost=cost_rules.per_input(1)),
        doc="The number of values in each of nbins equal parts of a range.",
    )


_declare()

_RANKING = (dtypes.int32, dtypes.int64, dtypes.float32, dtypes.float64)


def range(
    start: Any, limit: Any = None, delta: Any = 1, dtype: Any = None, name: str = "range"
) -> Output:
    """Return start, start + delta, …, up to but excluding limit; `range(n)` starts at 0.

    Args:
      start: real scalar.
      limit: real scalar.
      delta: real scalar other than 0.
      dtype: element type of the result; by default the widest of the arguments' int32, int64,
        float32 or float64.
    Returns: shape (ceil((limit - start) / delta),).
    Raises: InvalidArgumentError: delta is 0 or leads away from the limit.

    Examples:
      >>> wf.Session().run(wf.range(2, 10, 3))
      array([2, 5, 8], dtype=int32)
    """
    if limit is None:
        start, limit = 0, start
    element_type = None if dtype is None else dtypes.as_dtype(dtype)
    values = [_bound(value, element_type) for value in (start, limit, delta)]
    if element_type is None:
        element_type = _widest(values)
    return out("Range", [cast(value, element_type) for value in values], name=name)


def _bound(value: Any, element_type: DType | None) -> Output:
    if isinstance(value, Output) or element_type is None:
        return convert_to_tensor(value)
    is_float = isinstance(value, float | np.floating)
    if element_type.is_integer and is_float and float(value).is_integer():
        value = int(value)
    return convert_to_tensor(value, element_type)


def _widest(values: Sequence[Output]) -> DType:
    dtypes_used = {value.dtype.base_dtype for value in values}
    if dtypes_used <= set(_RANKING):
        return max(dtypes_used, key=_RANKING.index)
    typed = [value.dtype.base_dtype for value in values if value.dtype.base_dtype not in _RANKING]
    if len(set(typed)) != 1:
        raise errors.InvalidTypeError(
            f"a range requires bounds of the same dtype, got "
            f"{[value.dtype.name for value in values]}"
        )
    return typed[0]


def linspace(start: Any, stop: Any, num: Any, name: str | None = None) -> Output:
    """Return evenly spaced values.

    Args:
      start: floating scalar.
      stop: same dtype, scalar.
      num: integer scalar N, at least 1.
    Returns: shape (N,), from start to stop, both included; only start if N is 1.
    Raises: InvalidArgumentError: num is less than 1.

    Examples:
      >>> wf.Session().run(wf.linspace(0.0, 1.0, 5))
      array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    return out("LinSpace", [start, stop, num], name=name)


lin_space = linspace


def bincount(
    arr: Any,
    weights: Any = None,
    minlength: Any = None,
    maxlength: Any = None,
    dtype: Any = dtypes.int32,
) -> Output:
    """Count the occurrences of each non-negative integer, or sum their weights.

    Args:
      arr: int32, any shape, values at least 0; for a SparseTensor, its stored elements are counted.
      weights: numeric, shape of `arr`; sparse if `arr` is sparse.
      minlength: the least length of the result.
      maxlength: the largest length of the result; larger integers are not counted.
      dtype: element type of the result if there are no weights.
    Returns: shape (max(arr) + 1,), within the two limits.

    Examples:
      >>> wf.Session().run(wf.bincount([1, 1, 3]))
      array([0, 2, 0, 1], dtype=int32)
    """
    if is_sparse(arr):
        arr = SparseTensor.from_value(arr).values
        weights = None if weights is None else SparseTensor.from_value(weights).values
    values = cast(convert_to_tensor(arr, name="arr"), dtypes.int32)
    if values.dims == ():
        values = out("Reshape", [values, np.array([1], np.int32)])
    # The largest of no elements is the type's lowest.
    size = out("AddV2", [out("Maximum", [reduction.reduce_max(values), -1]), 1])
    if minlength is not None:
        size = out("Maximum", [convert_to_tensor(minlength, dtypes.int32), size])
    if maxlength is not None:
        size = out("Minimum", [convert_to_tensor(maxlength, dtypes.int32), size])
    if weights is not None:
        return out("Bincount", [values, size, weights], name="bincount")
    element_type = dtypes.as_dtype(dtype)
    none = convert_to_tensor(np.zeros(0, element_type.numpy))
    return out("Bincount", [values, size, none], name="bincount")


def histogram_fixed_width_bins(
    values: Any,
    value_range: Any,
    nbins: Any = 100,
    dtype: Any = dtypes.int32,
    name: str | None = None,
) -> Output:
    """Return the index of the bin of each value; see `histogram_fixed_width`.

    Args:
      values, value_range, nbins: as for `histogram_fixed_width`.
      dtype: int32 or int64.
    Returns: shape of `values`, element type `dtype`, in [0, nbins).

    Examples:
      >>> values = [-1.0, 0.5, 3.0, 9.0]
      >>> wf.Session().run(wf.histogram_fixed_width_bins(values, [0.0, 4.0], nbins=4))
      array([0, 0, 3, 3], dtype=int32)
    """
    data = convert_to_tensor(values, name="values")
    limits = convert_to_tensor(value_range, data.dtype.base_dtype, "value_range")
    count = convert_to_tensor(nbins, dtypes.int32, "nbins")
    low, high = (
        out("StridedSlice", [limits, [i], [i + 1], [1]], {"shrink_axis_mask": 1}) for i in (0, 1)
    )
    scaled = division.truediv(out("Sub", [data, low]), out("Sub", [high, low]))
    wide = scaled.dtype.base_dtype
    bins = out("Floor", [out("Mul", [cast(count, wide), scaled])])
    last = cast(out("Sub", [count, 1]), wide)
    clipped = arithmetic.clip_by_value(bins, np.array(0, wide.numpy), last)
    result: Output = cast(clipped, dtype, name or "histogram_fixed_width_bins")
    return result


def histogram_fixed_width(
    values: Any,
    value_range: Any,
    nbins: Any = 100,
    dtype: Any = dtypes.int32,
    name: str | None = None,
) -> Output:
    """Count the values in equal-width bins of a range.

    Args:
      values: int32, int64, float32 or float64, any shape; those outside are counted in the first or
        last bin.
      value_range: same dtype, shape (2,), the first less than the second.
      nbins: integer scalar N.
      dtype: int32 or int64.
    Returns: shape (N,).

    Examples:
      >>> wf.Session().run(wf.histogram_fixed_width([0.1, 0.2, 0.9], [0.0, 1.0], nbins=2))
      array([2, 1], dtype=int32)
    """
    attrs = {"dtype": dtypes.as_dtype(dtype)}
    return out("HistogramFixedWidth", [values, value_range, nbins], attrs, name)
