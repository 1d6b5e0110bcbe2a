"""Fusion of functions composed of small ops into single ops of the runtime.

A pattern describes one way to compute a result. A pattern is an `Op` with patterns for its inputs,
a `Oneof` with alternatives, a name, or a number. A name matches the same value at all its
occurrences; a number matches a constant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from weft_lite.convert.lowered import Lowered, Operation, Value
from weft_lite.convert.prune import drop_unread
from weft_lite.schema.enums import Activation, DataType, OpKind
from weft_lite.schema.tables import AxisOptions, ElementwiseOptions

Found = dict[str, Value]
COMMUTE: Final = {OpKind.Add, OpKind.Mul, OpKind.SquaredDifference}


class Op:
    """A pattern for the result of an op."""

    def __init__(self, kind: OpKind, *operands: Pattern) -> None:
        self.kind, self.operands = kind, operands


@dataclass
class Oneof:
    """A pattern with several alternatives."""

    ways: tuple[Pattern, ...]


Pattern = Op | Oneof | str | float


def _add(a: Pattern, b: Pattern) -> Op:
    """Return the pattern of a sum."""
    return Op(OpKind.Add, a, b)


def _mul(a: Pattern, b: Pattern) -> Op:
    """Return the pattern of a product."""
    return Op(OpKind.Mul, a, b)


def _halve(gate: Pattern) -> Oneof:
    """Return the pattern x * gate / 2."""
    ways = (_mul(_mul(0.5, "x"), gate), _mul("x", _mul(0.5, gate)), _mul(0.5, _mul("x", gate)))
    return Oneof(ways)


_SILU = _mul("x", Op(OpKind.Sigmoid, "x"))
_OVER_ROOT = Oneof((Op(OpKind.Div, "x", 2**0.5), _mul("x", 0.5**0.5)))
_GELU = _halve(_add(1.0, Op(OpKind.Erf, _OVER_ROOT)))
_CUBE = Oneof(
    (
        _mul(0.044715, Op(OpKind.Pow, "x", 3.0)),
        _mul(0.044715, _mul("x", Oneof((_mul("x", "x"), Op(OpKind.Square, "x"))))),
        _mul(_mul(_mul(0.044715, "x"), "x"), "x"),
    )
)
_GELU_BY_TANH = _halve(_add(1.0, Op(OpKind.Tanh, _mul((2 / np.pi) ** 0.5, _add("x", _CUBE)))))

_SHIFTED = _add("x", 3.0)
_HARD_GATE = Oneof(
    (
        Op(OpKind.Relu6, _SHIFTED),
        Op(OpKind.Minimum, Op(OpKind.Maximum, _SHIFTED, 0.0), 6.0),
        Op(OpKind.Maximum, Op(OpKind.Minimum, _SHIFTED, 6.0), 0.0),
    )
)
_HARD_SWISH = Oneof(
    (
        _mul("x", Oneof((_mul(_HARD_GATE, 1 / 6), Op(OpKind.Div, _HARD_GATE, 6.0)))),
        Oneof((_mul(_mul("x", _HARD_GATE), 1 / 6), Op(OpKind.Div, _mul("x", _HARD_GATE), 6.0))),
        _mul(_mul("x", 1 / 6), _HARD_GATE),
    )
)

_MEAN = Op(OpKind.Mean, "x", "axes")
_CENTRED = Op(OpKind.Sub, "x", _MEAN)
_SQUARES = Oneof(
    (
        Op(OpKind.SquaredDifference, "x", _MEAN),
        Op(OpKind.Square, _CENTRED),
        _mul(_CENTRED, _CENTRED),
    )
)
_SPREAD = _add(Op(OpKind.Mean, _SQUARES, "axes"), "epsilon")
_STANDARD = Oneof(
    (Op(OpKind.Div, _CENTRED, Op(OpKind.Sqrt, _SPREAD)), _mul(_CENTRED, Op(OpKind.Rsqrt, _SPREAD)))
)
_FACTOR = _mul(Op(OpKind.Rsqrt, _SPREAD), "scale")
_LAYER_NORM = Oneof(
    (
        _add(_mul("x", _FACTOR), Op(OpKind.Sub, "offset", _mul(_MEAN, _FACTOR))),
        _add(_mul(_STANDARD, "scale"), "offset"),
        _STANDARD,
    )
)

_LENGTH = Op(OpKind.Maximum, Op(OpKind.Sum, Op(OpKind.Square, "x"), "axes"), "epsilon")
_L2_NORMALIZE = _mul("x", Op(OpKind.Rsqrt, _LENGTH))


class Matcher:
    """Finds patterns in a graph."""

    def __init__(self, lowered: Lowered) -> None:
        self._makers = {value: op for op in lowered.ops for value in op.outputs}

    def matches(self, pattern: Pattern, value: Value | None, result: Found) -> Iterator[Found]:
        """Yield each match of a pattern: the values of its names, including those already known."""
        if value is None:
            return
        if isinstance(pattern, str):
            if result.get(pattern, value) is value or _is_same_constant(result[pattern], value):
                yield {**result, pattern: result.get(pattern, value)}
        elif isinstance(pattern, float):
            if is_number(value) and np.isclose(float(_array(value).item()), pattern, 1e-4):
                yield result
        elif isinstance(pattern, Oneof):
            for way in pattern.ways:
                yield from self.matches(way, value, result)
        else:
            yield from self._match_op(pattern, value, result)

    def _match_op(self, pattern: Op, value: Value, result: Found) -> Iterator[Found]:
        """Yield the matches of an op pattern; commutative ops match in both orders."""
        op = self._makers.get(value)
        if op is None or op.kind is not pattern.kind or len(op.inputs) != len(pattern.operands):
            return
        if op.kind in (OpKind.Mean, OpKind.Sum) and not op.options.keep_dims:
            return
        if getattr(op.options, "activation", Activation.NONE) != Activation.NONE:
            return
        orders = [op.inputs, op.inputs[::-1]] if op.kind in COMMUTE else [op.inputs]
        for operands in orders:
            yield from self._match_all(list(zip(pattern.operands, operands, strict=True)), result)

    def _match_all(
        self, pairs: list[tuple[Pattern, Value | None]], result: Found
    ) -> Iterator[Found]:
        """Yield the matches of several patterns with several values."""
        if not pairs:
            yield result
            return
        (pattern, value), *remaining = pairs
        for match in self.matches(pattern, value, result):
            yield from self._match_all(remaining, match)


def _array(value: Value) -> Any:
    """Return the elements of a constant."""
    assert value.array is not None
    return value.array


def _is_same_constant(a: Value, b: Value) -> bool:
    """Return True if two constants are equal."""
    return a.array is not None and b.array is not None and np.array_equal(a.array, b.array)


def is_number(value: Value) -> bool:
    """Return True if a value is a constant of one element."""
    return value.array is not None and value.array.size == 1


def _match_normalization(
    values: Mapping[str, Value],
) -> tuple[list[Value | None], AxisOptions] | None:
    """Return inputs and options of LayerNorm or L2Normalize; None unless over the last axis."""
    x, axes, epsilon = values["x"], values["axes"], values["epsilon"]
    rank = len(x.shape)
    if (
        not is_number(axes)
        or int(_array(axes).item()) not in (-1, rank - 1)
        or not is_number(epsilon)
    ):
        return None
    of_columns = [values[name] for name in ("scale", "offset") if name in values]
    if any(of_column.array is None or of_column.shape != x.shape[-1:] for of_column in of_columns):
        return None
    return [x, *of_columns], AxisOptions(-1, epsilon=float(_array(epsilon).item()))


def join(lowered: Lowered) -> int:
    """Replace each pattern by one op; return the number of replacements."""
    joined = 0
    for graph in lowered.graphs():
        matcher = Matcher(graph)
        for position, op in reversed(list(enumerate(graph.ops))):  # larger functions come first
            result = _join(op, matcher) if len(op.outputs) == 1 else None
            if result is not None:
                graph.ops[position] = result
                joined += 1
    if joined:
        drop_unread(lowered)  # so that each fused value has a single reader
    return joined


def _join(op: Operation, matcher: Matcher) -> Operation | None:
    """Return the single op that computes the result of `op`, or None."""
    (out,) = op.outputs
    if out.dtype is not DataType.FLOAT32:
        return None
    for pattern, kind, options in (
        (_SILU, OpKind.Silu, ElementwiseOptions()),
        (_HARD_SWISH, OpKind.HardSwish, ElementwiseOptions()),
        (_GELU, OpKind.Gelu, ElementwiseOptions(exact=1)),
        (_GELU_BY_TANH, OpKind.Gelu, ElementwiseOptions()),
    ):
        match = next(matcher.matches(pattern, out, {}), None)
        if match is not None and match["x"].shape == out.shape:
            return Operation(kind, [match["x"]], [out], options, op.name)
    for pattern, kind in ((_LAYER_NORM, OpKind.LayerNorm), (_L2_NORMALIZE, OpKind.L2Normalize)):
        for match in matcher.matches(pattern, out, {}):
            normalized = _match_normalization(match)
            if normalized is not None and match["x"].shape == out.shape:
                return Operation(kind, normalized[0], [out], normalized[1], op.name)
    return None
