"""CPU kernels of elementary and special functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels import bessel, special
from weft_exec.kernels.arithmetic import conjugated, in_place_gradient
from weft_exec.kernels.common import (
    LARGE,
    NARROW,
    Array,
    Function,
    as_exact,
    binary,
    broadcast_shape,
    new_array,
    register_unary,
    unary,
)
from weft_exec.kernels.registry import KernelFactory, KernelFunction, kernel

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

_NUMPY: dict[str, Function] = {
    "Exp": np.exp,
    "Expm1": np.expm1,
    "Log": np.log,
    "Log1p": np.log1p,
    "Sin": np.sin,
    "Cos": np.cos,
    "Tan": np.tan,
    "Asin": np.arcsin,
    "Acos": np.arccos,
    "Atan": np.arctan,
    "Sinh": np.sinh,
    "Cosh": np.cosh,
    "Tanh": np.tanh,
    "Asinh": np.arcsinh,
    "Acosh": np.arccosh,
    "Atanh": np.arctanh,
    "IsNan": np.isnan,
    "IsInf": np.isinf,
    "IsFinite": np.isfinite,
}
register_unary({op: (function, None) for op, function in _NUMPY.items()})
kernel("Atan2")(binary(np.arctan2))
kernel("NextAfter")(binary(np.nextafter))


@kernel("Xlogy", "Xdivy")
def _where_nonzero(node: Node, device: Device) -> KernelFunction:
    is_log = node.type == "Xlogy"
    dtype = node.outputs[0].dtype.numpy

    def run(x: Any, y: Any) -> Any:
        result = new_array(device, broadcast_shape(x, y), dtype)
        if is_log:
            np.multiply(x, np.log(y), out=result)
        else:
            np.divide(x, y, out=result)
        np.copyto(result, 0, where=x == 0)
        return result

    return run


def _sigmoid(x: Any, out: Array | None = None) -> Any:
    # exp overflows to inf for very negative x, and 1 / inf is the right 0.
    result = np.negative(x, out=out)
    result = np.exp(result, out=out)
    result = np.add(result, result.dtype.type(1), out=out)
    return np.reciprocal(result, out=out)


def _tanh_grad(y: Any, dy: Any, out: Array | None) -> Any:
    c = conjugated(y)
    result = np.multiply(c, c, out=out)
    result = np.subtract(result.dtype.type(1), result, out=out)
    return np.multiply(result, dy, out=out)


def _sigmoid_grad(y: Any, dy: Any, out: Array | None) -> Any:
    c = conjugated(y)
    result = np.subtract(c.dtype.type(1), c, out=out)
    result = np.multiply(result, c, out=out)
    return np.multiply(result, dy, out=out)


@kernel("Sigmoid")
def _sigmoid_kernel(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype
    if dtype not in NARROW:
        return unary(_sigmoid)(node, device)
    return lambda x: as_exact(_sigmoid(x.astype(np.float32)), dtype.numpy, device)


kernel("TanhGrad")(in_place_gradient(_tanh_grad))
kernel("SigmoidGrad")(in_place_gradient(_sigmoid_grad))


def _special(function: Function) -> KernelFactory:
    """A factory for a function of `special` or `bessel`, which know float32 and float64 only."""

    def make(node: Node, device: Device) -> KernelFunction:
        output = node.outputs[0]
        dtype, narrow = output.dtype.numpy, output.dtype in NARROW

        def run(*inputs: Any) -> Any:
            if narrow:
                wide = [value.astype(np.float32) for value in inputs]
                return as_exact(function(*wide), dtype, device)
            shape = inputs[0].shape
            if len(inputs) == 2:
                shape = broadcast_shape(*inputs)
            size = dtype.itemsize
            for n in shape:
                size *= n
            return function(*inputs, out=new_array(device, shape, dtype) if size > LARGE else None)

        return run

    return make


for _op, _function in (
    ("Erf", special.erf),
    ("Erfc", special.erfc),
    ("Lgamma", special.lgamma),
    ("Digamma", special.digamma),
    ("Zeta", special.zeta),
    ("Polygamma", special.polygamma),
    ("Igamma", special.igamma),
    ("Igammac", special.igammac),
    ("IgammaGradA", special.igamma_grad_a),
    ("BesselI0e", bessel.i0e),
    ("BesselI1e", bessel.i1e),
):
    kernel(_op)(_special(_function))
