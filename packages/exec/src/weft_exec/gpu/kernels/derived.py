"""GPU kernels of elementwise ops, derived from scalar definitions.

A single primitive is a call of a CuPy function. Several primitives become one CUDA kernel if the
inputs have the same shape and CUDA supports their types; otherwise they are calls of CuPy functions
in sequence.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, Final

import numpy as np

from weft_exec.devices.device import Device
from weft_exec.gpu.element_types import NUMBERS
from weft_exec.gpu.elementwise_source import Elements, can_be_written
from weft_exec.gpu.generated import Program
from weft_exec.kernels.elementwise import (
    copy_value,
    leaf,
    may_alias,
    return_value,
    shapes_differ,
    spread,
)
from weft_exec.kernels.registry import (
    Kernel,
    KernelFactory,
    KernelFunction,
    derivable_ops,
    register_derivation,
)
from weft_graph.ir.node import Node
from weft_graph.ir.op_def import lookup_op
from weft_graph.ir.op_signature import OpDef
from weft_graph.ir.scalar import Definition, Scalar, applications, inputs_of, kind
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType

Compute = Callable[..., Any]
"""A function `compute(xp, *inputs)` that returns an array of the module `xp`."""

# -------------------------------------------------------------------------- primitives


def _truncated_quotient(xp: Any, x: Any, y: Any) -> Any:
    return xp.floor_divide(x - xp.fmod(x, y), y)


def _reciprocal(xp: Any, x: Any) -> Any:
    return xp.true_divide(x.dtype.type(1), x)


def _real_sign(xp: Any, x: Any) -> Any:
    return xp.where(xp.isnan(x), x, xp.sign(x))


def _complex_sign(xp: Any, x: Any) -> Any:
    size = xp.absolute(x)
    return xp.where(size == 0, xp.zeros_like(x), x / xp.where(size == 0, 1, size))


def _clamp(xp: Any, x: Any, low: Any, high: Any) -> Any:
    return xp.minimum(xp.maximum(x, low), high)


def _complex(xp: Any, real: Any, imag: Any) -> Any:
    dtype = np.complex128 if real.dtype.itemsize == 8 else np.complex64
    result = xp.empty(np.broadcast_shapes(real.shape, imag.shape), dtype)
    result.real = real
    result.imag = imag
    return result


_NAMED: Final = {
    "add": "add", "sub": "subtract", "mul": "multiply", "div": "true_divide",
    "floor_div": "floor_divide", "floor_mod": "remainder", "trunc_mod": "fmod", "neg": "negative",
    "abs": "absolute", "sign": "sign", "square": "square", "minimum": "minimum",
    "maximum": "maximum", "floor": "floor", "ceil": "ceil", "rint": "rint", "sqrt": "sqrt",
    "exp": "exp", "expm1": "expm1", "log": "log", "log1p": "log1p", "sin": "sin", "cos": "cos",
    "tan": "tan", "asin": "arcsin", "acos": "arccos", "atan": "arctan", "sinh": "sinh",
    "cosh": "cosh", "tanh": "tanh", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
    "atan2": "arctan2", "less": "less", "less_equal": "less_equal", "greater": "greater",
    "greater_equal": "greater_equal", "equal": "equal", "not_equal": "not_equal",
    "is_nan": "isnan", "is_inf": "isinf", "is_finite": "isfinite", "bit_and": "bitwise_and",
    "bit_or": "bitwise_or", "bit_xor": "bitwise_xor", "invert": "invert",
    "shift_left": "left_shift", "shift_right": "right_shift", "where": "where",
    "conj": "conjugate", "angle": "angle",
}  # fmt: skip
"""The functions of the array module, by primitive."""
_BY_KIND: Final[dict[tuple[str, str], str | Compute | None]] = {
    ("div", "i"): _truncated_quotient,
    ("sign", "f"): _real_sign,
    ("sign", "c"): _complex_sign,
    ("reciprocal", "f"): _reciprocal,
    ("reciprocal", "c"): _reciprocal,
    ("pow", "f"): "power",
    ("pow", "c"): "power",
    ("trunc", "f"): "trunc",
    ("bit_and", "b"): "logical_and",
    ("bit_or", "b"): "logical_or",
    ("invert", "b"): "logical_not",
}
_COMPUTED: Final[dict[str, Compute]] = {
    "clamp": _clamp,
    "complex": _complex,
    "real": lambda xp, x: x.real,
    "imag": lambda xp, x: x.imag,
}
_SPECIAL: Final = {
    "erf": "erf", "erfc": "erfc", "lgamma": "gammaln", "digamma": "digamma", "zeta": "zeta",
    "igamma": "gammainc", "igammac": "gammaincc", "bessel_i0e": "i0e", "bessel_i1e": "i1e",
    "erfinv": "erfinv", "ndtri": "ndtri", "betainc": "betainc",
}  # fmt: skip
"""The functions of `cupyx.scipy.special`, by primitive."""


def _is_known(part: Scalar) -> bool:
    name = part.name
    result = _BY_KIND.get((name, kind(part.args[-1].dtype)))
    return bool(result or name in _NAMED or name in _COMPUTED or name in _SPECIAL or name == "cast")


def _function(part: Scalar, xp: Any) -> Callable[..., Any]:
    """Return the function that computes one application of a primitive."""
    name, source = part.name, part.args[-1].dtype
    if name == "cast":
        return _conversion(source, part.dtype)
    if name in _SPECIAL:
        function: Callable[..., Any] = getattr(
            importlib.import_module("cupyx.scipy.special"), _SPECIAL[name]
        )
        return function
    result = _BY_KIND.get((name, kind(source))) or _NAMED.get(name) or _COMPUTED[name]
    if isinstance(result, str):
        named: Callable[..., Any] = getattr(xp, result)
        return named
    compute = result
    return lambda *args: compute(xp, *args)


def _conversion(source: DType, target: DType) -> Callable[[Any], Any]:
    dtype = target.numpy
    if target.is_bool:
        return lambda x: x != 0
    if source.is_complex and not target.is_complex:
        return lambda x: x.real.astype(dtype)
    return lambda x: x.astype(dtype)


# ------------------------------------------------------------------------------ kernels


def derive_kernel(definition: Definition) -> KernelFactory:
    """Return the kernel factory for a scalar definition."""

    def make(node: Node, device: Device) -> KernelFunction:
        inputs = [value.dtype.base_dtype for value in node.inputs]
        expression = definition.expression(inputs, node.outputs[0].dtype)
        parts, used = applications(expression), inputs_of(expression)
        if not parts and len(used) == len(inputs):
            return return_value if may_alias(definition) else copy_value
        if not parts:
            return spread(node, device, lambda *inputs: _value(expression, node, inputs))
        if len(parts) == 1 and all(arg.name == "input" for arg in parts[0].args):
            positions = [arg.value for arg in parts[0].args]
            if positions == list(range(len(inputs))) and not definition.one_shape:
                return _function(parts[0], device.xp)
        chain = _chain(parts, node, device.xp)
        if len(used) < len(inputs):
            chain = spread(node, device, chain)
        if not can_be_written(expression, inputs):
            return chain
        source = Elements(_name(node.type), expression, inputs, node.attrs)
        return _write_kernel(source, chain, node, device)

    return make


def _name(op: str) -> str:
    return f"weft_{op}"


def _value(part: Scalar, node: Node, inputs: Sequence[Any]) -> Any:
    """Return the value of an input, a constant or an attribute."""
    return inputs[part.value] if part.name == "input" else leaf(part, node)


def _chain(parts: Sequence[Scalar], node: Node, xp: Any) -> KernelFunction:
    """Return a function that calls functions of the array module in sequence."""
    functions = [_function(part, xp) for part in parts]

    def run(*inputs: Any) -> Any:
        values: dict[int, Any] = {}
        for part, function in zip(parts, functions, strict=True):
            args = [values[id(arg)] if arg.args else _value(arg, node, inputs) for arg in part.args]
            values[id(part)] = function(*args)
        return values[id(parts[-1])]

    return run


def _write_kernel(
    source: Elements, chain: KernelFunction, node: Node, device: Device
) -> KernelFunction:
    """Return a CUDA kernel; `chain` is the fallback for broadcasting and unsupported types."""
    xp, dtype = device.xp, node.outputs[0].dtype.numpy
    definition = node.op_def.traits.scalar
    one_shape = definition is not None and definition.one_shape
    program = Program(xp, source, {"T": dtype.name})

    def run(*inputs: Any) -> Any:
        shape = inputs[0].shape
        for operand in inputs[1:]:
            if operand.shape != shape:
                if not one_shape:
                    return chain(*inputs)
                raise shapes_differ(node, inputs)
        contiguous = [xp.ascontiguousarray(value) for value in inputs]
        result = xp.empty(shape, dtype)
        program.launch_elements(source.name, result.size, *contiguous, result)
        return result

    return run


# ------------------------------------------------------------------------- registration


def _expressions(op_def: OpDef) -> Iterator[tuple[dict[str, DType], list[DType], Scalar]]:
    """Yield the supported element types by attribute, with input types and the expression."""
    definition = op_def.traits.scalar
    assert definition is not None
    names = [name for name, attr in op_def.attrs.items() if attr.type == "type"]
    number_types = [dtypes.as_dtype(name) for name in NUMBERS]
    for type_choice in product(number_types, repeat=len(names)):
        types = dict(zip(names, type_choice, strict=True))
        if not all((op_def.attrs[name].allowed or {t}) >= {t} for name, t in types.items()):
            continue
        args = [types.get(arg.type_attr or "", arg.dtype) for arg in op_def.inputs]
        output = op_def.outputs[0]
        result = types.get(output.type_attr or "", output.dtype)
        if result is None or None in args or result.name not in NUMBERS:
            continue
        inputs = [dtype for dtype in args if dtype is not None]
        try:
            yield types, inputs, definition.expression(inputs, result)
        except errors.InvalidTypeError:
            continue


def _rule(op: str, definition: Definition) -> Kernel | None:
    result: dict[str, set[DType]] = {}
    possible = False
    for types, _, expression in _expressions(lookup_op(op)):
        if all(map(_is_known, applications(expression))):
            possible = True
            for name, dtype in types.items():
                result.setdefault(name, set()).add(dtype)
    if not possible:
        return None
    allowed = {name: frozenset(type_names) for name, type_names in result.items()}
    return Kernel(op, "GPU", derive_kernel(definition), allowed, alias=may_alias(definition))


register_derivation("GPU", _rule)


def texts() -> Iterator[tuple[str, str]]:
    """Yield a label and the text of each CUDA kernel that may be derived."""
    for op in derivable_ops():
        attrs = {name: attr.default for name, attr in lookup_op(op).attrs.items()}
        for _, inputs, expression in _expressions(lookup_op(op)):
            if len(applications(expression)) > 1 and can_be_written(expression, inputs):
                source = Elements(_name(op), expression, inputs, attrs)
                for index in ("int32", "int64"):
                    yield f"{op} {inputs[0].name} {index}", source.text({}, index)
