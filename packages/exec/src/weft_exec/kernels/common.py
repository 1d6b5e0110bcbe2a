"""Wrappers of NumPy functions that kernels of several families use.

Most kernels are one NumPy function. The wrappers choose, once per node, the cheapest way to call
it: Python's own operator for results of rank 0, which is ten times faster on NumPy scalars than a
ufunc; the bare function for small results; and the function with an output array from the device's
pool for large ones.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_exec.devices.device import LARGE_BYTES, Device
from weft_exec.kernels.registry import KernelFactory, KernelFunction
from weft_graph.ir.traits import Role
from weft_tensor import dtypes
from weft_tensor.dtypes import DType
from weft_tensor.shape import num_elements

if TYPE_CHECKING:
    from weft_graph.ir.node import Node, Output

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]
LARGE: Final = LARGE_BYTES
new_array = Device.new_array
"""`new_array(device, shape, dtype)`: an uninitialized array, from the pool if it is large."""

NARROW = (dtypes.float16, dtypes.bfloat16)
"""Types whose sums and products are accumulated in float32."""


def static_bytes(output: Output) -> int | None:
    """Return the size of an output in bytes; None if its static shape is not known."""
    count = num_elements(output.dims)
    return None if count is None else count * output.dtype.numpy.itemsize


def copy_to_pool(value: Any, device: Device) -> Any:
    """Copy a large temporary to the CPU's pool; return any other value itself.

    This is for NumPy functions without an argument `out`. Later steps reuse the block, and the
    device's statistics include it.
    """
    if value.nbytes <= LARGE or device.xp is not np:
        return value
    result = device.empty(value.shape, value.dtype)
    np.copyto(result, value)
    return result


def broadcast_shape(a: Any, b: Any) -> tuple[int, ...]:
    """Return the broadcast shape of two shapes; raise ValueError if they do not."""
    shape: tuple[int, ...] = a.shape
    other_shape: tuple[int, ...] = b.shape
    if shape == other_shape or not other_shape:
        return shape
    if len(shape) < len(other_shape):
        shape, other_shape = other_shape, shape
    lead = len(shape) - len(other_shape)
    if shape[lead:] == other_shape:
        return shape
    joined = list(shape[:lead])
    for n, m in zip(shape[lead:], other_shape, strict=True):
        if n != m and n != 1 and m != 1:
            return np.broadcast_shapes(shape, other_shape)  # its error names the shapes
        joined.append(m if n == 1 else n)
    return tuple(joined)


def unary(function: Function, scalar: Function | None = None) -> KernelFactory:
    """Return a factory for an elementwise ufunc of one input.

    Args:
      function: a ufunc whose result has the output's element type.
      scalar: a faster function for NumPy scalars, such as `operator.neg`.
    """

    def make(node: Node, device: Device) -> KernelFunction:
        output = node.outputs[0]
        size = static_bytes(output)
        if scalar is not None and output.dims == ():
            return scalar
        if size is not None and size <= LARGE:
            return function
        empty, dtype, limit = device.empty, output.dtype.numpy, LARGE // output.dtype.numpy.itemsize

        def run(x: Any) -> Any:
            if x.size <= limit:
                return function(x)
            return function(x, out=empty(x.shape, dtype))

        return run

    return make


def binary(function: Function, scalar: Function | None = None) -> KernelFactory:
    """Return a factory for a broadcasting ufunc of two inputs.

    Args:
      function: a ufunc whose result has the output's element type.
      scalar: a faster function for two NumPy scalars, such as `operator.add`.
    """

    def make(node: Node, device: Device) -> KernelFunction:
        output = node.outputs[0]
        size = static_bytes(output)
        if scalar is not None and output.dims == ():
            return scalar
        if size is not None and size <= LARGE:
            return function
        empty, dtype, limit = device.empty, output.dtype.numpy, LARGE // output.dtype.numpy.itemsize

        def run(x: Any, y: Any) -> Any:
            if x.size * y.size <= limit:
                return function(x, y)
            shape = x.shape if x.shape == y.shape else broadcast_shape(x, y)
            if x.size <= limit and y.size <= limit and not _exceeds(shape, limit):
                return function(x, y)
            if y.ndim == 1 and 1 < y.size < SHORT_ROW and x.shape == shape:
                return map_rows(function, x, y, empty(shape, dtype))
            return function(x, y, out=empty(shape, dtype))

        return run

    return make


SHORT_ROW: Final = 48
_FOLDED: Final = 512
"""Minimum length of a row after short rows are folded side by side; NumPy loops over rows."""


def map_rows(function: Function, x: Array, row: Array, out: Array) -> Array:
    """Compute `function(x, row, out=out)` for each row of `x`, where `out` has the shape of `x`.

    NumPy's inner loop is one row long, so short rows are folded side by side to longer ones.
    """
    width, rows = row.size, x.size // max(row.size, 1)
    fold = _FOLDED // max(width, 1)
    if width >= SHORT_ROW or rows < 4 * fold or not x.flags.c_contiguous:
        return function(x, row, out=out)  # type: ignore[no-any-return]  # because ufuncs are Any
    wide = np.empty((fold, width), row.dtype)
    wide[...] = row
    full_count = rows // fold * fold * width
    flat, flat_out = x.reshape(-1), out.reshape(-1)
    shape = (-1, fold * width)
    function(
        flat[:full_count].reshape(shape), wide.reshape(-1), out=flat_out[:full_count].reshape(shape)
    )
    function(
        flat[full_count:].reshape(-1, width), row, out=flat_out[full_count:].reshape(-1, width)
    )
    return out


def _exceeds(shape: tuple[int, ...], limit: int) -> bool:
    count = 1
    for size in shape:
        count *= size
    return count > limit


def exact(function: Function) -> KernelFactory:
    """Return a factory for a function whose result may have another type than the output.

    The result is cast, and copied to the pool if it is large.
    """

    def make(node: Node, device: Device) -> KernelFunction:
        dtype = node.outputs[0].dtype.numpy

        def run(*inputs: Any) -> Any:
            return as_exact(function(*inputs), dtype, device)

        return run

    return make


_WORDS: Final = {size: np.dtype(f"i{size}") for size in (1, 2, 4, 8)}
_FEW: Final = 2048
_BLOCK: Final = 1 << 14
"""Number of elements that are selected together, so that the masks stay in the cache."""


def select_where(condition: Any, t: Any, e: Any, shape: tuple[int, ...], device: Device) -> Any:
    """Compute `np.where(condition, t, e)`, which has the shape `shape`; in the pool if it is large.

    `t` and `e` have the same type. Elements are selected by bit masks, because branches take ten
    times as long if the condition is unpredictable.
    """
    dtype = t.dtype
    count = prod(shape)
    if count < _FEW or dtype.kind == "O" or dtype.itemsize not in _WORDS:
        return np.where(condition, t, e)
    result = new_array(device, shape, dtype)
    choose_into(np.broadcast_to(condition, shape), t, e, result)
    return result


def choose_into(condition: Array, t: Any, e: Any, out: Array) -> None:
    """Store `np.where(condition, t, e)` in an array, which may be one of the three."""
    word = _WORDS.get(out.dtype.itemsize)
    plain = out.dtype.kind != "O" and t.dtype == e.dtype == out.dtype
    if word is None or not plain or out.size < _FEW or not condition.ndim:
        _copy_chosen(condition, t, e, out)
        return
    target = out.view(word)
    operands = [condition.view(np.int8), t.view(word), e.view(word)]
    operands = [
        np.broadcast_to(operand, out.shape)
        if operand.ndim and operand.shape != out.shape
        else operand
        for operand in operands
    ]
    if not all(operand.flags.c_contiguous or not operand.ndim for operand in (*operands, target)):
        _choose_bits(operands[0], operands[1], operands[2], target)
        return
    flat = [operand.reshape(-1) if operand.ndim else operand for operand in (*operands, target)]
    for start in range(0, out.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        mask, true_values, false_values, into = [item[part] if item.ndim else item for item in flat]
        _choose_bits(mask, true_values, false_values, into)


def _choose_bits(condition: Array, t: Any, e: Any, out: Array) -> None:
    mask = condition.astype(out.dtype)  # and then turned: quicker than both at once
    np.negative(mask, out=mask)
    if not e.ndim and not e:
        np.bitwise_and(t, mask, out=out)
    elif not t.ndim and not t:
        np.bitwise_and(e, np.invert(mask, out=mask), out=out)
    else:
        np.bitwise_and(np.bitwise_xor(t, e), mask, out=mask)
        np.bitwise_xor(mask, e, out=out)


def _copy_chosen(condition: Any, t: Any, e: Any, out: Array) -> None:
    if out is condition or out is t:
        t = t.copy() if out is t else t
        condition = condition.copy() if out is condition else condition
    if out is not e:
        np.copyto(out, e)
    np.copyto(out, t, where=condition)


def copy_sign(number: float, x: Any) -> Any:
    """Compute `np.copysign(number, x)` for a positive number by bits, in half the time."""
    word = _WORDS[x.dtype.itemsize].type
    bits = x.view(word) & word(np.iinfo(word).min)
    bits |= x.dtype.type(number).view(word)
    return bits.view(x.dtype)


def as_exact(value: Any, dtype: np.dtype[Any], device: Device) -> Any:
    """Convert a value to `dtype`; the result is in the pool if it is large."""
    if isinstance(value, np.ndarray | np.generic) and value.nbytes <= LARGE:
        return value if value.dtype == dtype else value.astype(dtype)
    if device.xp is not np:  # it has its own pool, and returns the exact type
        return value
    array = np.asarray(value)
    result = new_array(device, array.shape, dtype)
    np.copyto(result, array, casting="unsafe")
    return result


def accumulation_dtype(dtype: DType) -> np.dtype[Any]:
    """Return the accumulator type for sums and products of `dtype`."""
    return dtypes.float32.numpy if dtype in NARROW else dtype.numpy


def widen_value(value: Any) -> Any:
    """Convert a float16 or bfloat16 value to float32; return any other value unchanged."""
    if value.dtype.itemsize == 2 and (value.dtype.kind == "f" or value.dtype == _BFLOAT16):
        return value.astype(np.float32)
    return value


_BFLOAT16 = dtypes.bfloat16.numpy


def adjoint(xp: Any, x: Any) -> Any:
    """Return the conjugate transpose over the last two axes."""
    swapped = x.swapaxes(-1, -2)
    return xp.conjugate(swapped) if x.dtype.kind == "c" else swapped


def constant_input(node: Node, position: int) -> Array | None:
    """Return the value of a constant input, for kernels that specialize on it.

    None if it is not constant.
    """
    source = node.inputs[position].node
    if source.role is not Role.CONSTANT:
        return None
    value: Array = source.attrs["value"]
    return value
