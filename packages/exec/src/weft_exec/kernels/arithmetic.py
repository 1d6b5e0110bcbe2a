"""CPU kernels of arithmetic."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.common import (
    LARGE,
    NARROW,
    Array,
    Function,
    as_exact,
    binary,
    broadcast_shape,
    exact,
    new_array,
    register_binary,
    register_unary,
    static_bytes,
    unary,
)
from weft_exec.kernels.registry import KernelFactory, KernelFunction, kernel
from weft_tensor import dtypes, errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

register_unary(
    {
        "Neg": (np.negative, operator.neg),
        "Abs": (np.absolute, operator.abs),
        "Square": (np.square, None),
        "Sqrt": (np.sqrt, None),
        "Floor": (np.floor, None),
        "Ceil": (np.ceil, None),
        "Rint": (np.rint, None),
    }
)
register_binary(
    {
        "AddV2": (np.add, operator.add),
        "Sub": (np.subtract, operator.sub),
        "Mul": (np.multiply, operator.mul),
        "Maximum": (np.maximum, None),
        "Minimum": (np.minimum, None),
    }
)


@kernel("Add")
def _add(node: Node, device: Device) -> KernelFunction:
    if node.attrs["T"] is dtypes.string:
        return exact(np.add)(node, device)
    return binary(np.add, operator.add)(node, device)


# ----------------------------------------------------------------------------- division


def _dividing(function: Function, scalar: Function | None) -> KernelFactory:
    """A `binary` factory for integers that refuses a divisor of 0."""
    plain = binary(function, scalar)

    def make(node: Node, device: Device) -> KernelFunction:
        divide, op = plain(node, device), node.type

        def run(x: Any, y: Any) -> Any:
            if not y.all() and x.size:
                raise errors.InvalidArgumentError(f"{op}: integer division by zero")
            return divide(x, y)

        return run

    return make


def _by_kind(integers: KernelFactory, others: KernelFactory) -> KernelFactory:
    def make(node: Node, device: Device) -> KernelFunction:
        return (integers if node.attrs["T"].is_integer else others)(node, device)

    return make


def _truncated_quotient(x: Any, y: Any, out: Array | None = None) -> Any:
    # x less its remainder is a multiple of y and never overflows.
    return np.floor_divide(x - np.fmod(x, y), y, out=out)


def _floored_quotient(x: Any, y: Any, out: Array | None = None) -> Any:
    quotient = np.divide(x, y, out=out)
    return np.floor(quotient, out=out)


def _truncated_real_quotient(x: Any, y: Any, out: Array | None = None) -> Any:
    quotient = np.divide(x, y, out=out)
    if quotient.dtype.kind != "c":
        return np.trunc(quotient, out=out)
    return (np.trunc(quotient.real) + 1j * np.trunc(quotient.imag)).astype(quotient.dtype)


_TRUNCATED = _dividing(_truncated_quotient, None)
_DIVIDE = binary(np.divide, operator.truediv)
for _op in ("Div", "RealDiv"):
    kernel(_op)(_by_kind(_TRUNCATED, _DIVIDE))
kernel("TruncateDiv")(_by_kind(_TRUNCATED, exact(_truncated_real_quotient)))
kernel("FloorDiv")(
    _by_kind(_dividing(np.floor_divide, operator.floordiv), binary(_floored_quotient))
)
kernel("FloorMod")(
    _by_kind(_dividing(np.remainder, operator.mod), binary(np.remainder, operator.mod))
)
for _op in ("TruncateMod", "Mod"):
    kernel(_op)(_by_kind(_dividing(np.fmod, None), binary(np.fmod)))


@kernel("DivNoNan", "MulNoNan")
def _no_nan(node: Node, device: Device) -> KernelFunction:
    function: Any = np.divide if node.type == "DivNoNan" else np.multiply
    dtype = node.outputs[0].dtype.numpy

    def run(x: Any, y: Any) -> Any:
        result = new_array(device, broadcast_shape(x, y), dtype)
        if result.ndim == 0:
            return function(x, y) if y else dtype.type(0)
        function(x, y, out=result)
        np.copyto(result, 0, where=y == 0)
        return result

    return run


@kernel("Reciprocal", "Inv")
def _reciprocal(node: Node, device: Device) -> KernelFunction:
    plain = unary(np.reciprocal)(node, device)
    if not node.attrs["T"].is_integer:
        return plain

    def run(x: Any) -> Any:
        if not x.all():
            raise errors.InvalidArgumentError("Reciprocal: integer division by zero")
        return plain(x)

    return run


# ------------------------------------------------------------------------- other functions


@kernel("Pow")
def _pow(node: Node, device: Device) -> KernelFunction:
    dtype = node.attrs["T"]
    plain = binary(np.power, operator.pow)(node, device)
    if not dtype.is_integer or dtype.is_unsigned:
        return plain

    def run(x: Any, y: Any) -> Any:
        if (y < 0).any():
            raise errors.InvalidArgumentError(
                f"Pow: integers to negative integer powers are not allowed, got {y.min()}"
            )
        return plain(x, y)

    return run


def _sign(x: Any) -> Any:
    result = np.sign(x)
    unordered = np.isnan(x)
    return np.where(unordered, result.dtype.type(0), result) if unordered.any() else result


kernel("Sign")(_by_kind(unary(np.sign), exact(_sign)))
kernel("Round")(_by_kind(lambda node, device: lambda x: x.copy(), unary(np.rint)))


def _rsqrt(x: Any, out: Array | None = None) -> Any:
    root = np.sqrt(x, out=out)
    return np.divide(root.dtype.type(1), root, out=out)


def _squared_difference(x: Any, y: Any, out: Array | None = None) -> Any:
    difference = np.subtract(x, y, out=out)
    if difference.dtype.kind == "c":
        return np.multiply(difference, np.conj(difference), out=out)
    return np.multiply(difference, difference, out=out)


kernel("Rsqrt")(unary(_rsqrt))
kernel("SquaredDifference")(binary(_squared_difference))


def in_place_gradient(function: Callable[[Any, Any, Array | None], Any]) -> KernelFactory:
    """A factory for functions of y and dy that work in place in the output array."""

    def make(node: Node, device: Device) -> KernelFunction:
        size = static_bytes(node.outputs[0])
        if size is not None and size <= LARGE:
            return lambda y, dy: function(y, dy, None)
        empty, dtype = device.empty, node.outputs[0].dtype.numpy

        def run(y: Any, dy: Any) -> Any:
            return function(y, dy, None if dy.nbytes <= LARGE else empty(dy.shape, dtype))

        return run

    return make


def conjugated(y: Any) -> Any:
    """The complex conjugate of a complex value, a real one itself."""
    return np.conj(y) if y.dtype.kind == "c" else y


def _sqrt_grad(y: Any, dy: Any, out: Array | None) -> Any:
    result = np.multiply(dy, dy.dtype.type(0.5), out=out)
    return np.divide(result, conjugated(y), out=out)


def _rsqrt_grad(y: Any, dy: Any, out: Array | None) -> Any:
    c = conjugated(y)
    result = np.multiply(c, c, out=out)
    result = np.multiply(result, c, out=out)
    result = np.multiply(result, dy, out=out)
    return np.multiply(result, dy.dtype.type(-0.5), out=out)


def _reciprocal_grad(y: Any, dy: Any, out: Array | None) -> Any:
    c = conjugated(y)
    result = np.multiply(c, c, out=out)
    result = np.multiply(result, dy, out=out)
    return np.negative(result, out=out)


kernel("SqrtGrad")(in_place_gradient(_sqrt_grad))
kernel("RsqrtGrad")(in_place_gradient(_rsqrt_grad))
for _op in ("ReciprocalGrad", "InvGrad"):
    kernel(_op)(in_place_gradient(_reciprocal_grad))


# ----------------------------------------------------------------------------- many inputs


@kernel("AddN", "AccumulateNV2")
def _add_n(node: Node, device: Device) -> KernelFunction:
    dtype = node.attrs["T"]
    count = len(node.inputs)
    if dtype is dtypes.variant:
        raise errors.UnimplementedError("AddN of variants has no kernel")
    if node.outputs[0].dims == () and dtype not in NARROW:
        return _add_scalars
    if count == 2:
        return _checked_pair(node, device)
    wide = np.dtype(np.float32) if dtype in NARROW else dtype.numpy

    def run(first: Any, *others: Any) -> Any:
        _check_shapes(first, others)
        if not others:
            return first.copy()
        result = new_array(device, first.shape, wide)
        np.add(first, others[0], out=result, dtype=wide)
        for value in others[1:]:
            np.add(result, value, out=result, dtype=wide)
        return result if result.dtype == first.dtype else as_exact(result, first.dtype, device)

    return run


def _add_scalars(first: Any, *others: Any) -> Any:
    for value in others:
        first = first + value
    return first


def _checked_pair(node: Node, device: Device) -> KernelFunction:
    plain = binary(np.add)(node, device)

    def run(x: Any, y: Any) -> Any:
        if x.shape != y.shape:
            _check_shapes(x, (y,))
        return plain(x, y)

    return run


def _check_shapes(first: Any, others: tuple[Any, ...]) -> None:
    for value in others:
        if value.shape != first.shape:
            raise errors.InvalidArgumentError(
                f"the tensors must have the same shape, got {list(first.shape)} and "
                f"{list(value.shape)}"
            )


@kernel("ClipByValue")
def _clip(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy

    def run(t: Any, low: Any, high: Any) -> Any:
        if low.ndim > t.ndim or high.ndim > t.ndim:
            raise errors.InvalidArgumentError(
                f"the bounds must broadcast to shape {list(t.shape)}, got {list(low.shape)} and "
                f"{list(high.shape)}"
            )
        if t.ndim == 0:
            return np.maximum(np.minimum(t, high), low)
        result = new_array(device, t.shape, dtype)
        np.minimum(t, high, out=result)
        return np.maximum(result, low, out=result)

    return run
