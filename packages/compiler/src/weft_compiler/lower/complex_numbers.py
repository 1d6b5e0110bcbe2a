"""Complex tensors: real ones with a last axis of two, the real and the imaginary part.

Complex arrays are stored in the same way, so arrays of callers are used without a copy. Elementwise
ops
are lowered from their scalar definitions, part by part. For ops that move or add elements, the rule
for real tensors is applied to each part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from weft_compiler.ir.expressions import Expr, apply, cast, index, number, where
from weft_compiler.ir.indices import reshape_indices
from weft_compiler.lower.registry import Operation, handles_complex, require, rule_of
from weft_compiler.lower.values import ComplexElements, Elements, Value, broadcast, move_elements
from weft_graph.ir.node import Node, Output
from weft_graph.ir.scalar import Scalar, applications
from weft_tensor.dtypes import DType

Pair = tuple[Expr, Expr]
"""The real and the imaginary part of a complex number."""

BY_PARTS: Final = frozenset(
    {
        "BroadcastTo", "Concat", "ConcatV2", "Fill", "Gather", "GatherNd", "GatherV2", "Mean",
        "Pack", "Pad", "PadV2", "Reverse", "ReverseV2", "Slice", "Split", "SplitV", "StridedSlice",
        "StridedSliceGrad", "Sum", "Tile", "Transpose", "Unpack", "UnsortedSegmentSum",
    }
)  # fmt: skip
"""Ops that treat both parts in the same way."""
_RESHAPES: Final = frozenset({"ExpandDims", "Reshape", "Squeeze"})


def is_complex(node: Node) -> bool:
    """Return True if an input or a result of a node is complex."""
    return any(value.dtype.base_dtype.is_complex for value in (*node.inputs, *node.outputs))


def stored_shape(output: Output, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of the tensor that represents an output of a shape."""
    return (*shape, 2) if output.dtype.base_dtype.is_complex else tuple(shape)


def stored_value(value: Any) -> Any:
    """Return a constant as the tensor that represents it."""
    array = np.ascontiguousarray(value)
    if not np.iscomplexobj(array):
        return value
    return array.view(array.real.dtype).reshape(*np.shape(value), 2)


def unsupported_complex_reason(node: Node) -> str:
    """Return why a node with complex values cannot be lowered, or ""."""
    if node.op_def.traits.identity or node.type in BY_PARTS or node.type in _RESHAPES:
        return ""
    if handles_complex(node.type):
        return ""
    definition = node.op_def.traits.scalar
    odd = next(v.dtype for v in (*node.inputs, *node.outputs) if v.dtype.base_dtype.is_complex)
    if definition is None or definition.by_kernel or rule_of(node.type) is not None:
        return f"it has values of type {odd.name}"
    scalar = definition.expression([v.dtype.base_dtype for v in node.inputs], node.outputs[0].dtype)
    for part in applications(scalar):
        kinds = (part.dtype, *[arg.dtype for arg in part.args])
        if any(dtype.is_complex for dtype in kinds) and part.name not in _PRIMITIVES:
            return f"there is no lowering rule for {part.name} of {odd.name}"
    return ""


def lower_complex(op: Operation) -> Sequence[Value]:
    """Lower an op with complex operands or results; return the values of its results."""
    kind = op.node.type
    require(not unsupported_complex_reason(op.node), unsupported_complex_reason(op.node))
    if kind in _RESHAPES:
        return [_reshape(op)]
    if kind in BY_PARTS:
        return _apply_to_parts(op)
    if handles_complex(kind):
        rule = rule_of(kind)
        assert rule is not None
        values = rule(op)
        return [values] if isinstance(values, Value) else values
    return [_elementwise(op)]


class _Part(Operation):
    """An op applied to the real or to the imaginary parts of its operands."""

    def dtype(self, result: int = 0) -> DType:
        """Return the element type of a part of a result."""
        return super().dtype(result).real_dtype


def part_of(x: Value, kind: int) -> Value:
    """Return the real parts of a complex tensor, or the imaginary ones."""
    name = f"{x.name}_{('real', 'imaginary')[kind]}"
    return move_elements(name, x, x.shape[:-1], lambda *indices: (*indices, index(kind)))


def join_parts(name: str, real: Value, imaginary: Value) -> Value:
    """Join two parts, which have the same requirements, to a complex tensor."""

    def parts(*index: Expr) -> Pair:
        return real.at(*index), imaginary.at(*index)

    value = Value(name, real.dtype, (*real.shape, 2), ComplexElements.of(parts))
    value.requires, imaginary.requires, real.requires = real.requires, (), ()
    return value


def _reshape(op: Operation) -> Value:
    x, shape = op.inputs[0], (*op.shape(), 2)
    return move_elements(
        op.name, x, shape, lambda *indices: reshape_indices(indices, shape, x.shape), dense=True
    )


def _apply_to_parts(op: Operation) -> list[Value]:
    rule = rule_of(op.node.type)
    assert rule is not None
    results: list[Sequence[Value]] = []
    for part_index in (0, 1):
        inputs = [
            part_of(value, part_index) if source.dtype.base_dtype.is_complex else value
            for value, source in zip(op.inputs, op.node.inputs, strict=True)
        ]
        values = rule(_Part(op.node, inputs))
        results.append([values] if isinstance(values, Value) else values)
    return [
        join_parts(real.name, real, imaginary) for real, imaginary in zip(*results, strict=True)
    ]


# ---------------------------------------------------------------------------- elementwise


def _elementwise(op: Operation) -> Value:
    """Apply the scalar definition of an op to operands that broadcast."""
    definition = op.node.op_def.traits.scalar
    assert definition is not None
    types = [source.dtype.base_dtype for source in op.node.inputs]
    scalar = definition.expression(types, op.dtype())
    shapes = [
        value.shape[:-1] if dtype.is_complex else value.shape
        for value, dtype in zip(op.inputs, types, strict=True)
    ]

    def evaluate(index: Sequence[Expr]) -> Expr | Pair:
        def operand(position: int) -> Expr | Pair:
            value, place = op.inputs[position], broadcast(shapes[position], index)
            if types[position].is_complex:
                return value.at(*place, 0), value.at(*place, 1)
            return value.at(*place)

        return _of_scalar(scalar, operand, lambda name: op.node.attrs[name])

    if not op.dtype().is_complex:
        return Value(
            op.name, op.dtype(), op.shape(), Elements(lambda *indices: _real(evaluate(indices)))
        )

    dtype = op.dtype().real_dtype
    parts = ComplexElements.of(lambda *indices: _pair(evaluate(indices)))
    return Value(op.name, dtype, (*op.shape(), 2), parts)


def _real(value: Expr | Pair) -> Expr:
    assert isinstance(value, Expr)
    return value


def _pair(value: Expr | Pair) -> Pair:
    assert isinstance(value, tuple)
    return value


def _of_scalar(
    definition: Scalar,
    inputs: Callable[[int], Expr | Pair],
    attribute: Callable[[str], bool | int | float],
) -> Expr | Pair:
    """Return the expression of a scalar definition; a pair if it is complex."""
    values: dict[int, Expr | Pair] = {}
    operands: dict[int, Expr | Pair] = {}

    def part(scalar: Scalar) -> Expr | Pair:
        if scalar.name == "input":
            return operands.setdefault(scalar.value, inputs(scalar.value))
        if scalar.name in ("constant", "attribute"):
            value = scalar.value if scalar.name == "constant" else attribute(scalar.value)
            if scalar.dtype.is_complex:
                real = scalar.dtype.real_dtype
                return number(complex(value).real, real), number(complex(value).imag, real)
            return number(value, scalar.dtype)
        return values[id(scalar)]

    for application in applications(definition):
        args = [part(arg) for arg in application.args]
        if application.dtype.is_complex or any(isinstance(arg, tuple) for arg in args):
            values[id(application)] = _PRIMITIVES[application.name](application.dtype, *args)
        else:
            target_type = application.dtype if application.name == "cast" else None
            values[id(application)] = apply(application.name, *map(_real, args), dtype=target_type)
    return part(definition)


def product(x: Pair, y: Pair) -> Pair:
    """Return the product of two complex numbers."""
    return (
        apply("sub", apply("mul", x[0], y[0]), apply("mul", x[1], y[1])),
        apply("add", apply("mul", x[0], y[1]), apply("mul", x[1], y[0])),
    )


def _quotient(x: Pair, y: Pair) -> Pair:
    """Divide by the larger part first, so that squares do not overflow (Smith 1962)."""
    zero, one = number(0, y[0].dtype), number(1, y[0].dtype)
    by_real = apply("greater_equal", apply("abs", y[0]), apply("abs", y[1]))
    large, small = where(by_real, y[0], y[1]), where(by_real, y[1], y[0])
    is_zero = apply("equal", large, zero)
    ratio = where(is_zero, zero, apply("div", small, large))
    # A zero divisor gives infinities and NaN, as real numbers do.
    scale = apply(
        "div",
        one,
        where(is_zero, apply("abs", large), apply("add", large, apply("mul", small, ratio))),
    )
    first = where(by_real, x[0], x[1])
    second = where(by_real, x[1], x[0])
    real = apply("add", first, apply("mul", second, ratio))
    difference = apply("sub", second, apply("mul", first, ratio))
    imaginary = where(by_real, difference, apply("neg", difference))
    return apply("mul", real, scale), apply("mul", imaginary, scale)


def _absolute(x: Pair) -> Expr:
    """Return the length of the vector of the parts, without overflow of their squares."""
    zero, one = number(0, x[0].dtype), number(1, x[0].dtype)
    a, b = apply("abs", x[0]), apply("abs", x[1])
    large, small = apply("maximum", a, b), apply("minimum", a, b)
    ratio = where(apply("equal", large, zero), zero, apply("div", small, large))
    length = apply("mul", large, apply("sqrt", apply("add", one, apply("mul", ratio, ratio))))
    infinite = apply("bit_or", apply("is_inf", x[0]), apply("is_inf", x[1]))
    return where(infinite, number(math.inf, x[0].dtype), length)


def _map_parts(primitive: str) -> Callable[..., Any]:
    return lambda _, *operands: tuple(
        [apply(primitive, *parts) for parts in zip(*operands, strict=True)]
    )


def _convert(dtype: DType, x: Expr | Pair) -> Expr | Pair:
    if not dtype.is_complex:
        assert isinstance(x, tuple)
        if dtype.is_bool:
            return apply("bit_or", *[apply("not_equal", p, number(0, p.dtype)) for p in x])
        return cast(x[0], dtype)
    real = dtype.real_dtype
    if isinstance(x, tuple):
        return cast(x[0], real), cast(x[1], real)
    return cast(x, real), number(0, real)


_PRIMITIVES: Final[dict[str, Callable[..., Any]]] = {
    "abs": lambda _, x: _absolute(x),
    "add": _map_parts("add"),
    "angle": lambda _, x: apply("atan2", x[1], x[0]),
    "cast": _convert,
    "complex": lambda _, x, y: (x, y),
    "conj": lambda _, x: (x[0], apply("neg", x[1])),
    "div": lambda _, x, y: _quotient(x, y),
    "equal": lambda _, x, y: apply(
        "bit_and", *[apply("equal", *p) for p in zip(x, y, strict=True)]
    ),
    "imag": lambda _, x: x[1],
    "is_nan": lambda _, x: apply("bit_or", *[apply("is_nan", part) for part in x]),
    "mul": lambda _, x, y: product(x, y),
    "neg": _map_parts("neg"),
    "not_equal": lambda _, x, y: apply("bit_or", *_map_parts("not_equal")(_, x, y)),
    "real": lambda _, x: x[0],
    "reciprocal": lambda dtype, x: _quotient(
        (number(1, dtype.real_dtype), number(0, dtype.real_dtype)), x
    ),
    "square": lambda _, x: product(x, x),
    "sub": _map_parts("sub"),
    "where": lambda _, c, x, y: tuple([where(c, *parts) for parts in zip(x, y, strict=True)]),
}
"""Implementations of primitives for complex numbers, from the result type and operands."""
