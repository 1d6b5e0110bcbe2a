"""Kernels of reductions, positions of extremes, and running sums and products."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_exec.kernels.common import (
    LARGE,
    NARROW,
    Array,
    accumulation_dtype,
    as_exact,
    constant_input,
    new_array,
    static_bytes,
    widen_value,
)
from weft_exec.kernels.registry import ARRAY_DEVICE, KernelFunction, kernel
from weft_exec.kernels.sums import PRODUCTS, sum_axes
from weft_graph.ops.shape_rules import normal_axes, normal_axis
from weft_tensor import errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims, num_elements

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Axes = tuple[int, ...]
Reduce = Callable[[Any, Axes, bool, "Array | None"], Any]
"""Function that reduces a value over axes, with `keep_dims` and an output array or None."""


_AXES: Final = ("reduction_indices",)


def _axes_of(axes: Any, rank: int) -> Axes:
    return tuple(normal_axes(np.reshape(axes, -1).tolist(), rank))


SHORT: Final = 16
"""Maximum size of the last axis for reduction column by column. NumPy reduces short rows one by
one, which takes 5 to 30 times as long.
"""
MANY: Final = 256
"""Minimum number of such short rows."""


def _reducer(
    node: Node, device: Device, reduce: Reduce, ufunc: np.ufunc | None = None
) -> KernelFunction:
    """Return a kernel around `reduce` for constant axes, with large results in the pool.

    For float16 and bfloat16, `reduce` computes in float32. Without axes the input is returned, as
    in gradients of operands that turn out not to be broadcast.

    Args:
      ufunc: the equivalent ufunc of two elements, or None.
    """
    if device.xp is not np:
        return _reducer_on_device(node.attrs["keep_dims"], reduce)
    plain = node.type != "EuclideanNorm"
    keep, output = node.attrs["keep_dims"], node.outputs[0]
    dtype, narrow = output.dtype.numpy, output.dtype in NARROW
    size = static_bytes(output)
    small = size is not None and size <= LARGE
    constant, dims = constant_input(node, 1), node.inputs[0].dims
    fixed: Axes | None = None
    rank = None if dims is None else len(dims)
    if constant is not None and dims is not None:
        fixed = _axes_of(constant, len(dims))
        if fixed and small and not narrow:
            short = ufunc if _short_rows(dims, fixed) else None
            return _reduce_static_axes(fixed, len(dims), keep, dtype, reduce, short)

    def run(x: Any, axes: Any) -> Any:
        if plain and not axes.size:
            return x
        axes_to_reduce = fixed if fixed is not None and x.ndim == rank else _axes_of(axes, x.ndim)
        if narrow:
            return as_exact(reduce(widen_value(x), axes_to_reduce, keep, None), dtype, device)
        if small:
            return reduce(x, axes_to_reduce, keep, None)
        shape = _reduced_shape(x.shape, axes_to_reduce, keep)
        out = new_array(device, shape, dtype)
        if ufunc is not None and _short_rows(x.shape, axes_to_reduce):
            return _reduce_by_columns(ufunc, x, out)
        return (
            reduce(x, axes_to_reduce, keep, out)
            if out.ndim
            else reduce(x, axes_to_reduce, keep, None)
        )

    return run


def _reduce_static_axes(
    axes: Axes,
    rank: int,
    keep: bool,
    dtype: np.dtype[Any],
    reduce: Reduce,
    short: np.ufunc | None,
) -> KernelFunction:
    """Return a reduction over constant axes to a small result; the rank may differ at run time."""

    def run(x: Any, static_axes: Any) -> Any:
        if x.ndim != rank:
            return reduce(x, _axes_of(static_axes, x.ndim), keep, None)
        if short is not None:
            return _reduce_by_columns(
                short, x, np.empty(_reduced_shape(x.shape, axes, keep), dtype)
            )
        return reduce(x, axes, keep, None)

    return run


def _short_rows(dims: Dims, axes: Axes) -> bool:
    """Return True if only the last axis is reduced, and there are many short rows."""
    if dims is None or axes != (len(dims) - 1,):
        return False
    rows = num_elements(dims[:-1])
    return rows is not None and rows >= MANY and dims[-1] is not None and 1 < dims[-1] <= SHORT


def _reduce_by_columns(ufunc: np.ufunc, x: Array, out: Array) -> Array:
    """Reduce the last axis column by column; `out` has that axis with size 1, or not at all."""
    total = out.reshape(x.shape[:-1])
    ufunc(x[..., 0], x[..., 1], out=total)
    for column in range(2, x.shape[-1]):
        ufunc(total, x[..., column], out=total)
    return out


def _reducer_on_device(keep: bool, reduce: Reduce) -> KernelFunction:
    def run(x: Any, axes: Any) -> Any:
        axes_to_reduce = _axes_of(axes, x.ndim)
        if not axes_to_reduce:  # each element is a reduction of its own
            return reduce(widen_value(x)[..., None], (x.ndim,), False, None)
        return reduce(widen_value(x), axes_to_reduce, keep, None)

    return run


def _reduced_shape(shape: tuple[int, ...], axes: Axes, keep: bool) -> tuple[int, ...]:
    if keep:
        return tuple([1 if i in axes else n for i, n in enumerate(shape)])
    return tuple([n for i, n in enumerate(shape) if i not in axes])


def _count(shape: tuple[int, ...], axes: Axes) -> int:
    count = 1
    for axis in axes:
        count *= shape[axis]
    return count


def _make_reduction(xp: Any, ufunc: np.ufunc, name: str) -> Any:
    """Return the reduction over axes: a NumPy ufunc's, or a function of another array module."""
    return ufunc.reduce if xp is np else getattr(xp, name)


@kernel("Sum", device=ARRAY_DEVICE, host=_AXES, alias=True)
def _sum(node: Node, device: Device) -> KernelFunction:
    if device.xp is not np:
        return _reducer(node, device, _make_accumulator(node, device, np.add, "sum"))
    by_products = accumulation_dtype(node.attrs["T"]).char in PRODUCTS
    return _reducer(node, device, _sums, None if by_products else np.add)


def _sums(x: Array, axes: Axes, keep: bool, out: Array | None) -> Any:
    """Compute sums on the host."""
    if not axes:
        fold: Any = np.add.reduce
        return fold(x, axis=axes, dtype=x.dtype, out=out, keepdims=keep)
    if axes[-1] - axes[0] != len(axes) - 1:
        return _sum_nonadjacent(x, axes, keep, out)
    bare = out.reshape(_reduced_shape(x.shape, axes, False)) if keep and out is not None else out
    result = sum_axes(x, axes[0], axes[-1] + 1, bare)
    if out is not None:
        return out
    return result.reshape(_reduced_shape(x.shape, axes, True)) if keep else result


def _sum_nonadjacent(x: Array, axes: Axes, keep: bool, out: Array | None) -> Any:
    """Compute sums over axes that are not adjacent, starting with the last adjacent ones.

    Axes are counted from the end if the rank was not known statically.
    """
    axes = tuple(sorted([axis % x.ndim for axis in axes]))
    first = len(axes) - 1
    while first > 0 and axes[first - 1] == axes[first] - 1:
        first -= 1
    if first == 0:
        return _sums(x, axes, keep, out)
    inner = _sums(x, axes[first:], keep, None)
    return _sums(inner, axes[:first], keep, out)


@kernel("Prod", device=ARRAY_DEVICE, host=_AXES, alias=True)
def _prod(node: Node, device: Device) -> KernelFunction:
    reduce = _make_accumulator(node, device, np.multiply, "prod")
    if device.xp is np and node.attrs["T"].is_floating:
        reduce = _product_of_all(reduce)
    return _reducer(node, device, reduce, np.multiply)


_WIDE: Final = 1024
"""Number of products that are computed side by side; a single one would wait for each
multiplication.
"""


def _product_of_all(reduce: Reduce) -> Reduce:
    def run(x: Any, axes: Axes, keep: bool, out: Array | None) -> Any:
        if len(axes) == x.ndim and x.size >= 4 * _WIDE and x.flags.c_contiguous:
            flat = x.reshape(-1)
            full_count = flat.size // _WIDE * _WIDE
            wide = np.multiply.reduce(flat[:full_count].reshape(-1, _WIDE), axis=0)
            x = np.concatenate([wide, flat[full_count:]]).reshape((-1, *(1,) * (x.ndim - 1)))
        return reduce(x, axes, keep, out)

    return run


def _make_accumulator(node: Node, device: Device, ufunc: np.ufunc, name: str) -> Reduce:
    fold, dtype = _make_reduction(device.xp, ufunc, name), accumulation_dtype(node.attrs["T"])

    def reduce(x: Any, axes: Axes, keep: bool, out: Array | None) -> Any:
        return fold(x, axis=axes, dtype=dtype, out=out, keepdims=keep)

    return reduce


@kernel("All", "Any", device=ARRAY_DEVICE, host=_AXES, alias=True)
def _logical(node: Node, device: Device) -> KernelFunction:
    is_all = node.type == "All"
    ufunc = np.logical_and if is_all else np.logical_or
    fold = _make_reduction(device.xp, ufunc, "all" if is_all else "any")

    def reduce(x: Any, axes: Axes, keep: bool, out: Array | None) -> Any:
        return fold(x, axis=axes, out=out, keepdims=keep)

    return _reducer(node, device, reduce)


@kernel("Max", "Min", device=ARRAY_DEVICE, host=_AXES, alias=True)
def _extreme(node: Node, device: Device) -> KernelFunction:
    element = accumulation_dtype(node.attrs["T"])
    xp, largest = device.xp, node.type == "Max"
    ufunc = np.maximum if largest else np.minimum
    fold = _make_reduction(xp, ufunc, "max" if largest else "min")
    none = _extreme_identity(element, largest)

    def reduce(x: Any, axes: Axes, keep: bool, out: Array | None) -> Any:
        if x.size:
            return fold(x, axis=axes, out=out, keepdims=keep)
        if xp is not np:
            return xp.full(_reduced_shape(x.shape, axes, keep), none, element)
        return fold(x, axis=axes, out=out, keepdims=keep, initial=none)

    return _reducer(node, device, reduce, ufunc)


def _extreme_identity(dtype: np.dtype[Any], largest: bool) -> Any:
    """Return the neutral element of maximum or minimum."""
    if dtype.kind == "f":
        return -np.inf if largest else np.inf
    limits = np.iinfo(dtype)
    return limits.min if largest else limits.max


@kernel("Mean", device=ARRAY_DEVICE, host=_AXES, alias=True)
def _mean(node: Node, device: Device) -> KernelFunction:
    dtype: DType = node.attrs["T"]
    xp, element = device.xp, accumulation_dtype(dtype)
    if dtype.is_integer:
        return _reducer(node, device, _integer_mean(xp, element))
    total_of = _sums if xp is np else _make_accumulator(node, device, np.add, "sum")
    scalar = element.type

    def reduce(x: Any, axes: Axes, keep: bool, out: Array | None) -> Any:
        total = total_of(x, axes, keep, out)
        count = scalar(_count(x.shape, axes))
        return xp.divide(total, count, out=out)

    return _reducer(node, device, reduce)


def _integer_mean(xp: Any, element: np.dtype[Any]) -> Reduce:
    # Summed in 64 bits, so that only the quotient has to fit the type.
    unsigned = element.kind == "u"
    wide_type = np.dtype(np.uint64 if unsigned else np.int64)
    fold = _make_reduction(xp, np.add, "sum")

    def reduce(x: Any, axes: Axes, keep: bool, out: Array | None) -> Any:
        count = max(_count(x.shape, axes), 1)
        total = fold(x, axis=axes, dtype=wide_type, keepdims=keep)
        divisor = wide_type.type(count)
        quotient = (total - xp.fmod(total, divisor)) // divisor
        if out is None:
            return quotient.astype(element)
        np.copyto(out, quotient, casting="unsafe")
        return out

    return reduce


@kernel("EuclideanNorm", device=ARRAY_DEVICE, host=_AXES)
def _euclidean_norm(node: Node, device: Device) -> KernelFunction:
    dtype: DType = node.attrs["T"]
    xp, element = device.xp, accumulation_dtype(dtype)
    fold = _make_reduction(xp, np.add, "sum")

    def reduce(x: Any, axes: Axes, keep: bool, out: Array | None) -> Any:
        if dtype.is_complex:
            squares = xp.square(x.real) + xp.square(x.imag)
        else:
            squares = xp.square(x.astype(np.float64) if dtype.is_integer else x)
        root = xp.sqrt(fold(squares, axis=axes, keepdims=keep))
        if out is None:
            return root.astype(element)
        np.copyto(out, root, casting="unsafe")
        return out

    return _reducer(node, device, reduce)


# ----------------------------------------------------------------------- other functions


@kernel("ArgMax", "ArgMin", device=ARRAY_DEVICE, host=("dimension",))
def _position(node: Node, device: Device) -> KernelFunction:
    find: Any = device.xp.argmax if node.type == "ArgMax" else device.xp.argmin
    dtype = node.outputs[0].dtype.numpy

    def run(x: Any, axis: Any) -> Any:
        position = normal_axis(int(axis), x.ndim, "dimension")
        if x.shape[position] == 0:
            raise errors.InvalidArgumentError(
                f"{node.type} requires a reduced axis with elements, got shape {list(x.shape)} "
                f"and axis {position}"
            )
        return as_exact(find(x, axis=position), dtype, device)

    return run


@kernel("Cumsum", "Cumprod", device=ARRAY_DEVICE, host=("axis",))
def _scan(node: Node, device: Device) -> KernelFunction:
    xp: Any = device.xp
    scan = xp.cumsum if node.type == "Cumsum" else xp.cumprod
    dtype: DType = node.attrs["T"]
    accumulator, element = accumulation_dtype(dtype), dtype.numpy
    exclusive, reverse = node.attrs["exclusive"], node.attrs["reverse"]
    ufunc = np.add if node.type == "Cumsum" else np.multiply
    first = 0 if node.type == "Cumsum" else 1

    def run(x: Any, axis: Any) -> Any:
        position = normal_axis(int(axis), x.ndim)
        result = new_array(device, x.shape, accumulator)
        source, target = xp.moveaxis(x, position, 0), xp.moveaxis(result, position, 0)
        if reverse:
            source, target = source[::-1], target[::-1]
        if exclusive and len(source):
            target[0] = first
            source, target = source[:-1], target[1:]
        if len(source) and xp is not np:
            target[...] = scan(source, axis=0, dtype=accumulator)
        elif len(source):
            ufunc.accumulate(source, axis=0, dtype=accumulator, out=target)
        return result if accumulator == element else as_exact(result, element, device)

    return run


@kernel("CumulativeLogsumexp")
def _scan_exponentials(node: Node, device: Device) -> KernelFunction:
    dtype: DType = node.attrs["T"]
    accumulator = accumulation_dtype(dtype)
    exclusive, reverse = node.attrs["exclusive"], node.attrs["reverse"]

    def run(x: Any, axis: Any) -> Any:
        position = normal_axis(int(axis), x.ndim)
        result = np.empty(x.shape, accumulator)
        source, target = np.moveaxis(x, position, 0), np.moveaxis(result, position, 0)
        if reverse:
            source, target = source[::-1], target[::-1]
        if exclusive and len(source):
            target[0] = -np.inf
            source, target = source[:-1], target[1:]
        if len(source):
            np.logaddexp.accumulate(source.astype(accumulator), axis=0, out=target)
        return as_exact(result, dtype.numpy, device)

    return run
