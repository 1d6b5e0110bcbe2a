"""NumPy interpreter of programs, element by element: the reference semantics of the IR, for tests.

The caller chooses the order of loops that may run in any order, so that different orders can be
compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from weft_compiler.ir.expressions import Apply, Constant, Expr, Load, Variable
from weft_compiler.ir.program import (
    Allocate,
    Assign,
    Body,
    Buffer,
    Call,
    Check,
    For,
    If,
    Let,
    Program,
    Statement,
    Store,
    Var,
    While,
)
from weft_tensor import errors

IterationOrder = Callable[[int], Sequence[int]]


def interpret(
    program: Program, *inputs: Any, iteration_order: IterationOrder | None = None
) -> tuple[Any, ...]:
    """Run a program and return its outputs.

    Args:
      inputs: an array for each input that is not a constant, of its type and shape; then an array
        with the old value of each updated output.
      iteration_order: function of a trip count that returns the iteration order of PARALLEL and
        VECTOR loops.
    Returns: an array for each output.
    Raises: InvalidArgumentError: an input has another type or shape, or a check fails.
    """
    arguments = iter(inputs)
    memory: dict[str, Any] = {}
    for buffer in program.inputs:
        value = program.constants.get(buffer.name)
        array = np.asarray(next(arguments) if value is None else value)
        dtype, shape = (buffer.dtype, buffer.shape) if value is not None else buffer.array_type
        if (array.dtype, array.shape) != (dtype.numpy, shape):
            raise errors.InvalidArgumentError(
                f"{buffer.name} must be {dtype.name} of shape {list(shape)}, got "
                f"{array.dtype} of shape {list(array.shape)}"
            )
        memory[buffer.name] = _as_stored(array, buffer)
    for buffer in program.outputs:
        is_updated = buffer.name in program.updated
        memory[buffer.name] = np.array(next(arguments)) if is_updated else _undefined(buffer)
    with np.errstate(all="ignore"):
        _Run(memory, iteration_order or range).body(program.body)
    return tuple([_as_array(memory[buffer.name], buffer) for buffer in program.outputs])


def _as_stored(array: Any, buffer: Buffer) -> Any:
    """Convert an array of a caller to the memory of a buffer."""
    if array.dtype == buffer.dtype.numpy:
        return array
    return np.ascontiguousarray(array).view(buffer.dtype.numpy).reshape(buffer.shape)


def _as_array(memory: Any, buffer: Buffer) -> Any:
    """Convert the memory of a buffer to an array of a caller."""
    dtype, shape = buffer.array_type
    return memory.view(dtype.numpy).reshape(shape)


def _undefined(buffer: Buffer) -> Any:
    """Return an array whose content is conspicuous if a program reads it before it is written."""
    return np.frombuffer(b"\x7f" * buffer.bytes, buffer.dtype.numpy).reshape(buffer.shape).copy()


class _Run:
    def __init__(self, memory: dict[str, Any], iteration_order: IterationOrder) -> None:
        self._memory = memory
        self._iteration_order = iteration_order
        self._names: dict[str, Any] = {}

    def body(self, body: Body) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, statement: Statement) -> None:
        match statement:
            case For(variable=variable, extent=extent, body=body, order=order, start=start):
                first = 0 if start is None else int(self._value(start))
                count = int(self._value(extent)) - first
                for i in range(count) if order.value == "for" else self._iteration_order(count):
                    self._names[variable] = np.int64(first + i)
                    self.body(body)
            case While(condition=condition, body=body):
                while self._value(condition):
                    self.body(body)
            case If(condition=condition, then=then, otherwise=otherwise):
                self.body(then if self._value(condition) else otherwise)
            case Let(name=name, value=value) | Var(name=name, value=value):
                self._names[name] = self._value(value)
            case Assign(name=name, value=value, combine=combine):
                new = self._value(value)
                self._names[name] = PRIMITIVES[combine](self._names[name], new) if combine else new
            case Store(buffer=buffer, indices=indices, value=value, combine=combine):
                position, new = self._place(indices), self._value(value)
                memory = self._memory[buffer]
                memory[position] = PRIMITIVES[combine](memory[position], new) if combine else new
            case Allocate(buffer=allocated):
                self._memory[allocated.name] = _undefined(allocated)
            case Check(condition=condition, message=message):
                if not self._value(condition):
                    raise errors.InvalidArgumentError(message)
            case Call(views=views, numbers=numbers):
                sizes: dict[str, Any] = {
                    name: int(self._value(size)) for name, size in statement.sizes
                }
                call = replace(statement, **sizes, sizes=())
                values = [int(self._value(number)) for number in numbers]
                call.reference(*map(self._view, views), *values)

    def _view(self, view: Load) -> Any:
        memory = self._memory[view.buffer]
        first = np.ravel_multi_index(self._place(view.indices), memory.shape) if memory.ndim else 0
        return memory.reshape(-1)[first:]

    def _place(self, indices: tuple[Expr, ...]) -> tuple[int, ...]:
        position = tuple([int(self._value(index)) for index in indices])
        # NumPy would count negative indices from the end.
        assert all(index >= 0 for index in position), position
        return position

    def _value(self, expression: Expr) -> Any:
        match expression:
            case Constant(value=value, dtype=dtype):
                return dtype.numpy.type(value)
            case Variable(name=name):
                return self._names[name]
            case Load(buffer=buffer, indices=indices):
                return self._memory[buffer][self._place(indices)]
        assert isinstance(expression, Apply)
        operands = [self._value(operand) for operand in expression.operands]
        if expression.primitive == "cast":
            return operands[0].astype(expression.dtype.numpy)
        if expression.primitive not in PRIMITIVES:
            raise errors.UnimplementedError(
                f"{expression.primitive} is not supported by the interpreter"
            )
        result = PRIMITIVES[expression.primitive](*operands)
        return np.asarray(result).astype(expression.dtype.numpy)[()]


def _divide(x: Any, y: Any) -> Any:
    if x.dtype.kind not in "iu":
        return x / y
    if y == 0:
        raise errors.InvalidArgumentError("integer division by zero")
    quotient = abs(int(x)) // abs(int(y))
    return np.array([quotient if (x < 0) == (y < 0) else -quotient]).astype(x.dtype)[0]


def _scalar_function(function: Callable[[float], float]) -> Callable[[Any], float]:
    def compute(x: Any) -> float:
        try:
            return function(float(x))
        except (ValueError, OverflowError):  # a pole, or an overflow
            return math.inf

    return compute


PRIMITIVES: Final[dict[str | None, Callable[..., Any]]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": _divide,
    "floor_div": np.floor_divide,
    "floor_mod": np.mod,
    "trunc_mod": np.fmod,
    "pow": np.power,
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "square": np.square,
    "reciprocal": lambda x: _divide(x.dtype.type(1), x),
    "minimum": np.minimum,
    "maximum": np.maximum,
    "clamp": lambda x, y, z: np.minimum(np.maximum(x, y), z),
    **{
        name: getattr(np, name)
        for name in ("floor", "ceil", "trunc", "rint", "sqrt", "exp", "expm1", "log", "log1p")
    },
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "atan2": np.arctan2,
    "next_after": np.nextafter,
    "erf": _scalar_function(math.erf),
    "erfc": _scalar_function(math.erfc),
    "lgamma": _scalar_function(math.lgamma),
    **{
        name: getattr(np, name)
        for name in ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
    },
    "is_nan": np.isnan,
    "is_inf": np.isinf,
    "is_finite": np.isfinite,
    "bit_and": np.bitwise_and,
    "bit_or": np.bitwise_or,
    "bit_xor": np.bitwise_xor,
    "invert": np.invert,
    "shift_left": np.left_shift,
    "shift_right": np.right_shift,
    "popcount": lambda x: int(
        x.astype(np.uint64) & np.uint64((1 << 8 * x.itemsize) - 1)
    ).bit_count(),
    "where": lambda condition, x, y: x if condition else y,
}
"""Implementations of the primitives on NumPy scalars; `cast`, which has a type parameter, is
separate.
"""
