"""GPU kernels of arithmetic, comparison, choice, casts, elementary and special functions."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from weft_exec.gpu.element_types import COMPLEX, INEXACT, INTEGERS, NUMBERS, REAL
from weft_exec.kernels.registry import KernelFactory, KernelFunction, kernel
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Compute = Callable[..., Any]
"""`compute(xp, *inputs)`: an array of the module `xp`."""


def computing(compute: Compute) -> KernelFactory:
    """A factory for a function of the array module and the inputs."""

    def make(node: Node, device: Device) -> KernelFunction:
        xp = device.xp
        return lambda *inputs: compute(xp, *inputs)

    return make


def _named(name: str) -> KernelFactory:
    return lambda node, device: getattr(device.xp, name)


def _register(names: dict[str, str], types: tuple[str, ...]) -> None:
    for op, name in names.items():
        kernel(op, device="GPU", dtypes={"T": types})(_named(name))


_register(
    {
        "Neg": "negative",
        "Square": "square",
        "AddV2": "add",
        "Add": "add",
        "Sub": "subtract",
        "Mul": "multiply",
        "Equal": "equal",
        "NotEqual": "not_equal",
    },
    NUMBERS,
)
_register(
    {
        "Abs": "absolute",
        "Maximum": "maximum",
        "Minimum": "minimum",
        "Less": "less",
        "LessEqual": "less_equal",
        "Greater": "greater",
        "GreaterEqual": "greater_equal",
        "FloorMod": "remainder",
    },
    (*REAL, *INTEGERS),
)
_register(
    {"Floor": "floor", "Ceil": "ceil", "Rint": "rint", "Atan2": "arctan2", "IsNan": "isnan",
     "IsInf": "isinf", "IsFinite": "isfinite"},
    REAL,
)  # fmt: skip
_register(
    {
        "Sqrt": "sqrt",
        "Exp": "exp",
        "Expm1": "expm1",
        "Log": "log",
        "Log1p": "log1p",
        "Sin": "sin",
        "Cos": "cos",
        "Tan": "tan",
        "Asin": "arcsin",
        "Acos": "arccos",
        "Atan": "arctan",
        "Sinh": "sinh",
        "Cosh": "cosh",
        "Tanh": "tanh",
        "Asinh": "arcsinh",
        "Acosh": "arccosh",
        "Atanh": "arctanh",
    },
    INEXACT,
)
_register(
    {"BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor",
     "Invert": "invert"},
    INTEGERS,
)  # fmt: skip
for _op, _name in (
    ("LogicalAnd", "logical_and"),
    ("LogicalOr", "logical_or"),
    ("LogicalNot", "logical_not"),
    ("Conj", "conjugate"),
    ("ComplexAbs", "absolute"),
    ("Angle", "angle"),
):
    kernel(_op, device="GPU")(_named(_name))

# --------------------------------------------------------------------------- division


def _by_kind(integers: Compute, others: Compute) -> KernelFactory:
    def make(node: Node, device: Device) -> KernelFunction:
        return computing(integers if node.attrs["T"].is_integer else others)(node, device)

    return make


def _truncated_quotient(xp: Any, x: Any, y: Any) -> Any:
    return xp.floor_divide(x - xp.fmod(x, y), y)


def _divided(xp: Any, x: Any, y: Any) -> Any:
    return xp.true_divide(x, y)


def _truncated_real_quotient(xp: Any, x: Any, y: Any) -> Any:
    return xp.trunc(xp.true_divide(x, y))


def _floored_quotient(xp: Any, x: Any, y: Any) -> Any:
    return xp.floor(xp.true_divide(x, y))


def _floored_integers(xp: Any, x: Any, y: Any) -> Any:
    return xp.floor_divide(x, y)


def _modulo(xp: Any, x: Any, y: Any) -> Any:
    return xp.fmod(x, y)


def _div_no_nan(xp: Any, x: Any, y: Any) -> Any:
    return xp.where(y == 0, xp.zeros_like(y), xp.true_divide(x, y))


def _mul_no_nan(xp: Any, x: Any, y: Any) -> Any:
    return xp.where(y == 0, xp.zeros_like(y), xp.multiply(x, y))


def _reciprocal(xp: Any, x: Any) -> Any:
    return xp.true_divide(x.dtype.type(1), x)


_NUMERIC: Final = {"T": (*INEXACT, *INTEGERS)}
_ORDERED: Final = {"T": (*REAL, *INTEGERS)}
kernel("Div", "RealDiv", device="GPU", dtypes=_NUMERIC)(_by_kind(_truncated_quotient, _divided))
kernel("TruncateDiv", device="GPU", dtypes=_ORDERED)(
    _by_kind(_truncated_quotient, _truncated_real_quotient)
)
kernel("FloorDiv", device="GPU", dtypes=_ORDERED)(_by_kind(_floored_integers, _floored_quotient))
kernel("TruncateMod", "Mod", device="GPU", dtypes=_ORDERED)(computing(_modulo))
kernel("DivNoNan", device="GPU", dtypes={"T": INEXACT})(computing(_div_no_nan))
kernel("MulNoNan", device="GPU", dtypes={"T": INEXACT})(computing(_mul_no_nan))
kernel("Reciprocal", "Inv", device="GPU", dtypes={"T": INEXACT})(computing(_reciprocal))

# ----------------------------------------------------------------------- other arithmetic


def _conjugated(xp: Any, y: Any) -> Any:
    return xp.conjugate(y) if y.dtype.kind == "c" else y


def _sign(xp: Any, x: Any) -> Any:
    if x.dtype.kind == "c":
        size = xp.absolute(x)
        return xp.where(size == 0, xp.zeros_like(x), x / xp.where(size == 0, 1, size))
    found = xp.sign(x)
    return xp.where(xp.isnan(x), xp.zeros_like(x), found) if x.dtype.kind == "f" else found


def _round(xp: Any, x: Any) -> Any:
    return x.copy() if x.dtype.kind in "biu" else xp.rint(x)


def _rsqrt(xp: Any, x: Any) -> Any:
    return xp.true_divide(x.dtype.type(1), xp.sqrt(x))


def _squared_difference(xp: Any, x: Any, y: Any) -> Any:
    difference = xp.subtract(x, y)
    return difference * _conjugated(xp, difference)


def _sqrt_grad(xp: Any, y: Any, dy: Any) -> Any:
    return dy * dy.dtype.type(0.5) / _conjugated(xp, y)


def _rsqrt_grad(xp: Any, y: Any, dy: Any) -> Any:
    c = _conjugated(xp, y)
    return dy * dy.dtype.type(-0.5) * (c * c * c)


def _reciprocal_grad(xp: Any, y: Any, dy: Any) -> Any:
    c = _conjugated(xp, y)
    return -dy * (c * c)


def _tanh_grad(xp: Any, y: Any, dy: Any) -> Any:
    c = xp.conjugate(y)
    return dy * (c.dtype.type(1) - c * c)


def _sigmoid_grad(xp: Any, y: Any, dy: Any) -> Any:
    c = xp.conjugate(y)
    return dy * (c * (c.dtype.type(1) - c))


def _sigmoid(xp: Any, x: Any) -> Any:
    return _reciprocal(xp, xp.exp(-x) + x.dtype.type(1))


def _clip(xp: Any, t: Any, low: Any, high: Any) -> Any:
    if low.ndim > t.ndim or high.ndim > t.ndim:
        raise errors.InvalidArgumentError(
            f"the bounds must broadcast to shape {list(t.shape)}, got {list(low.shape)} and "
            f"{list(high.shape)}"
        )
    return xp.maximum(xp.minimum(t, high), low)


def _xlogy(xp: Any, x: Any, y: Any) -> Any:
    return xp.where(x == 0, xp.zeros_like(x), x * xp.log(y))


def _xdivy(xp: Any, x: Any, y: Any) -> Any:
    return xp.where(x == 0, xp.zeros_like(x), xp.true_divide(x, y))


kernel("Sign", device="GPU", dtypes=_NUMERIC)(computing(_sign))
kernel("Round", device="GPU", dtypes=_NUMERIC)(computing(_round))
kernel("ClipByValue", device="GPU", dtypes=_ORDERED)(computing(_clip))
kernel("SquaredDifference", device="GPU", dtypes=_NUMERIC)(computing(_squared_difference))
for _op, _compute in (
    ("Rsqrt", _rsqrt),
    ("SqrtGrad", _sqrt_grad),
    ("RsqrtGrad", _rsqrt_grad),
    ("ReciprocalGrad", _reciprocal_grad),
    ("InvGrad", _reciprocal_grad),
    ("Xlogy", _xlogy),
    ("Xdivy", _xdivy),
):
    kernel(_op, device="GPU", dtypes={"T": INEXACT})(computing(_compute))
# Those of floating types are in nn.py.
for _op, _compute in (
    ("TanhGrad", _tanh_grad),
    ("SigmoidGrad", _sigmoid_grad),
    ("Sigmoid", _sigmoid),
):
    kernel(_op, device="GPU", dtypes={"T": COMPLEX})(computing(_compute))
_register({"Pow": "power"}, INEXACT)


@kernel("AddN", "AccumulateNV2", device="GPU", dtypes=_NUMERIC)
def _add_n(node: Node, device: Device) -> KernelFunction:
    narrow = node.outputs[0].dtype.numpy == np.float16

    def run(first: Any, *others: Any) -> Any:
        for value in others:
            if value.shape != first.shape:
                raise errors.InvalidArgumentError(
                    f"the tensors must have the same shape, got {list(first.shape)} and "
                    f"{list(value.shape)}"
                )
        total = first.astype(np.float32) if narrow else first
        for value in others:
            total = total + value
        return total if others else first.copy()

    return run


# --------------------------------------------------------------------------- comparison


@kernel("ApproximateEqual", device="GPU", dtypes=_NUMERIC)
def _approximate_equal(node: Node, device: Device) -> KernelFunction:
    xp, tolerance = device.xp, node.attrs["tolerance"]
    dtype = node.attrs["T"].numpy
    if dtype.kind in "iu":
        return lambda x, y: xp.where(x > y, x - y, y - x) < tolerance
    bound = abs(dtype.type(tolerance))
    return lambda x, y: xp.absolute(x - y) < bound


@kernel("LeftShift", "RightShift", device="GPU")
def _shift(node: Node, device: Device) -> KernelFunction:
    xp, dtype = device.xp, node.attrs["T"].numpy
    last = dtype.type(dtype.itemsize * 8 - 1)
    function = xp.left_shift if node.type == "LeftShift" else xp.right_shift
    return lambda x, y: function(x, xp.minimum(xp.maximum(y, dtype.type(0)), last))


@kernel("Select", device="GPU", alias=True)
def _select(node: Node, device: Device) -> KernelFunction:
    xp = device.xp

    def run(condition: Any, t: Any, e: Any) -> Any:
        if t.shape != e.shape:
            raise errors.InvalidArgumentError(
                f"the values must have the same shape, got {list(t.shape)} and {list(e.shape)}"
            )
        if condition.shape not in ((), t.shape):
            if condition.ndim != 1 or t.ndim == 0 or condition.shape[0] != t.shape[0]:
                raise errors.InvalidArgumentError(
                    "the condition must be a scalar, have the shape of the values, or one element "
                    f"per row of them, got {list(condition.shape)} for {list(t.shape)}"
                )
            condition = condition.reshape(-1, *(1,) * (t.ndim - 1))
        return xp.where(condition, t, e)

    return run


kernel("SelectV2", device="GPU", alias=True)(_named("where"))

# -------------------------------------------------------------------------------- casts


@kernel("Cast", device="GPU", alias=True)
def _cast(node: Node, device: Device) -> KernelFunction:
    source, target = node.attrs["SrcT"], node.attrs["DstT"]
    dtype = target.numpy
    if source is target:
        return lambda x: x
    if target.is_bool:
        return lambda x: x != 0
    if source.is_complex and not target.is_complex:
        return lambda x: x.real.astype(dtype)
    return lambda x: x.astype(dtype)


_NUMERIC_TYPES: Final = (*INEXACT, *INTEGERS)


@kernel("Bitcast", device="GPU", alias=True, dtypes={"T": _NUMERIC_TYPES, "type": _NUMERIC_TYPES})
def _bitcast(node: Node, device: Device) -> KernelFunction:
    xp, target = device.xp, node.attrs["type"]
    source, dtype = node.inputs[0].dtype.base_dtype, target.numpy

    def run(x: Any) -> Any:
        flat = xp.ascontiguousarray(x).reshape(-1).view(dtype)
        if source.size == target.size:
            return flat.reshape(x.shape)
        if source.size > target.size:
            return flat.reshape(*x.shape, source.size // target.size)
        if x.ndim == 0 or x.shape[-1] != target.size // source.size:
            raise errors.InvalidArgumentError(
                f"a bitcast from {source.name} to {target.name} requires a last axis of size "
                f"{target.size // source.size}, got shape {list(x.shape)}"
            )
        return flat.reshape(x.shape[:-1])

    return run


@kernel("Complex", device="GPU")
def _complex(node: Node, device: Device) -> KernelFunction:
    xp, dtype = device.xp, node.outputs[0].dtype.numpy

    def run(real: Any, imag: Any) -> Any:
        result = xp.empty(np.broadcast_shapes(real.shape, imag.shape), dtype)
        result.real = real
        result.imag = imag
        return result

    return run


# -------------------------------------------------------------------- special functions


def _special(name: str) -> KernelFactory:
    """A factory for a function of `cupyx.scipy.special`; float16 is computed in float32."""

    def make(node: Node, device: Device) -> KernelFunction:
        function = getattr(importlib.import_module("cupyx.scipy.special"), name)
        if node.outputs[0].dtype.numpy != np.float16:
            return lambda *inputs: function(*inputs)
        return lambda *inputs: function(*[value.astype(np.float32) for value in inputs])

    return make


for _op, _name in (
    ("Erf", "erf"),
    ("Erfc", "erfc"),
    ("Lgamma", "gammaln"),
    ("Digamma", "digamma"),
    ("Zeta", "zeta"),
    ("Igamma", "gammainc"),
    ("Igammac", "gammaincc"),
    ("BesselI0e", "i0e"),
    ("BesselI1e", "i1e"),
):
    kernel(_op, device="GPU", dtypes={"T": REAL})(_special(_name))


@kernel("Cross", device="GPU", dtypes=_NUMERIC)
def _cross(node: Node, device: Device) -> KernelFunction:
    xp = device.xp

    def run(a: Any, b: Any) -> Any:
        x, y, z = (a[..., i] for i in range(3))
        u, v, w = (b[..., i] for i in range(3))
        return xp.stack([y * w - z * v, z * u - x * w, x * v - y * u], axis=-1)

    return run
