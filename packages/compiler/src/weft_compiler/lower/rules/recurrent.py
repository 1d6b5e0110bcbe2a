"""Recurrent layers: a loop over the steps for each direction.

A step is a product of the state with all weights, followed by one loop over the elements, which
computes all gates. Constant weights are packed at compile time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np

from weft_compiler.ir.expressions import (
    INDEX,
    Expr,
    Load,
    Variable,
    apply,
    cast,
    index,
    number,
    where,
)
from weft_compiler.ir.indices import clamp_index, minus, plus
from weft_compiler.ir.loops import Unique, load, nest
from weft_compiler.ir.program import (
    Allocate,
    Assign,
    Body,
    Buffer,
    For,
    Let,
    Statement,
    Store,
    Var,
)
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.values import Requirement, StatementDefinition, Value, compute_value
from weft_compiler.lower.weight_packing import pack_columns
from weft_compiler.routines.gemm import MatmulPacked
from weft_compiler.routines.int8 import MatmulBytes, pack_bytes
from weft_compiler.routines.selection import select_unpacked
from weft_graph.ir.node import Node
from weft_graph.ops.recurrent import GATES, LAYER
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

_TYPES: Final = (dtypes.float32, dtypes.float64)
_STATES: Final = {"rnn": 1, "gru": 1, "gru_reset_after": 1, "lstm": 2}
_BYTES: Final = (dtypes.int8, dtypes.uint8)
_MOST: Final = 255
_FLIP: Final = 128
"""The number that is subtracted from unsigned weights, because the routine requires int8."""


def _kernel_reason(node: Node) -> str:
    """Return why the kernel is preferred for a layer, or ""."""
    dtype = node.outputs[0].dtype
    return "" if dtype in _TYPES else f"there is no lowering rule for layers of {dtype.name}"


@lowers(LAYER, by_kernel=_kernel_reason)
def _layer(op: Operation) -> Sequence[Value]:
    rows, weights, _, _, bias, lengths, *states = op.inputs
    cell, backward = op.attr("cell"), op.attr("backward")
    require(op.dtype() in _TYPES, f"a layer of {op.dtype().name}")
    require(rows.rank == weights.rank == 3, "rows or weights do not have the required ranks")
    (steps, batch, _), (directions, width, gates) = rows.shape, weights.shape
    fits = directions == len(backward) and gates == GATES[cell] * width
    fits = fits and rows.shape[2] == directions * gates and len(states) == _STATES[cell]
    fits = fits and all(state.shape == (directions, batch, width) for state in states)
    fits = fits and bias.shape in ((directions, width), (0,))
    require(fits and lengths.shape in ((batch,), (0,)), "the shapes of its operands do not match")
    result = [_Direction(op, direction).value() for direction in range(directions)]

    def of_direction(d: Expr, *indices: Expr) -> Expr:
        value = result[-1].at(*indices)
        for direction in range(directions - 2, -1, -1):
            is_it = apply("less_equal", d, index(direction))
            value = where(is_it, result[direction].at(*indices), value)
        return value

    sequence = compute_value(
        op.name, op.dtype(), op.shape(), lambda s, d, b, j: of_direction(d, s, b, j)
    )
    lasts = [
        compute_value(
            f"{op.name}_last",
            op.dtype(),
            (directions, batch, width),
            lambda d, b, j, row=steps + state_index: of_direction(d, index(row), b, j),
        )
        for state_index in range(len(states))
    ]
    return [sequence, *lasts]


class _Direction:
    """One direction of a layer.

    Its value has the shape (steps + states, batch, width): the result of each step, then the final
    states.
    """

    def __init__(self, op: Operation, index: int) -> None:
        self.rows, self.weights, scales, zeros, bias, lengths, *self.states = op.inputs
        self.op, self.at = op, index
        self.cell, self.backward = op.attr("cell"), bool(op.attr("backward")[index])
        self.bias = bias if bias.size else None
        self.lengths = lengths if lengths.size else None
        self.steps, self.batch = self.rows.shape[:2]
        self.width = self.weights.shape[1]
        self.dtype = op.dtype()
        # A GRU that resets before the product has two products.
        ends = (0, 2, 3) if self.cell == "gru" else (0, GATES[self.cell])
        self.products = list(pairwise(ends))
        small = self.weights.dtype in _BYTES
        require(
            not small or self.cell != "gru",
            "8-bit weights are not supported for a GRU that resets first",
        )
        self.bytes = _Int8Weights.of(self.weights, scales, zeros, index) if small else None

    def value(self) -> Value:
        """Return the results and final states as a value."""
        shape = (self.steps + len(self.states), self.batch, self.width)
        operands = [self.rows, *self.states]
        operands += [length for length in (self.bias, self.lengths) if length is not None]
        operands += self._matrices()

        def write(unique: Unique, y: Buffer, *buffers: Buffer) -> Sequence[Statement]:
            if not self.batch * self.width:
                return ()
            return _DirectionLoop(self, unique, y, dict(zip(operands, buffers, strict=True))).body()

        name = f"{self.op.name}_{self.at}"
        return Value(
            name,
            self.dtype,
            shape,
            StatementDefinition(operands, write),
            requires=self._requirements(),
        )

    def _matrices(self) -> list[Value]:
        """Return the weights of each product, packed or not, with their scales and zero points."""
        if self.bytes is not None:
            self.matrices = [self.bytes.panels]
            return self.bytes.values
        array, width = self.weights.constant, self.width
        if array is None or not array.size:
            self.matrices = [self.weights] * len(self.products)
            return [self.weights]
        self.matrices = [
            pack_columns(
                f"{self.weights.name}_{self.at}",
                self.weights,
                array[self.at, :, low * width : high * width],
            )
            for low, high in self.products
        ]
        return self.matrices

    def _requirements(self) -> tuple[Requirement, ...]:
        lengths = self.lengths
        if lengths is None or not self.backward:
            return ()

        def in_range(b: Expr) -> Expr:
            length = cast(lengths.at(b), INDEX)
            low = apply("greater_equal", length, index(0))
            return apply("bit_and", low, apply("less_equal", length, index(self.steps)))

        message = f"lengths of 0 to {self.steps} were required"
        return (Requirement((self.batch,), in_range, message),)


@dataclass(frozen=True, slots=True)
class _Int8Weights:
    """Constant 8-bit weights of a direction.

    Attributes:
      panels, sums: in the layout of `matmul_bytes`.
      correction: int32 (gates), column sums; times the zero point of a state they are subtracted
        from the result.
      zeros: int32 (gates), the zero points; None if all are 0.
      scales: (gates).
    """

    panels: Value
    sums: Value
    correction: Value
    zeros: Value | None
    scales: Value

    @classmethod
    def of(cls, weights: Value, scales: Value, zeros: Value, index: int) -> _Int8Weights:
        known_values = [operand.constant for operand in (weights, scales, zeros)]
        require(
            all(operand is not None for operand in known_values),
            "the 8-bit weights are not constants",
        )
        matrix, scale, zero = [operand[index] for operand in known_values]
        k, gates = matrix.shape
        require(
            matrix.size > 0 and scale.size in (1, gates), "the shapes of its operands do not match"
        )
        flip = _FLIP if weights.dtype is dtypes.uint8 else 0
        panels, sums = pack_bytes((matrix.astype(np.int16) - flip).astype(np.int8))
        points = np.broadcast_to(zero - np.int32(flip), gates)
        correction = sums.reshape(-1)[:gates] - np.int32(k) * points

        def value(name: str, array: Any, dtype: DType) -> Value:
            contiguous = np.ascontiguousarray(array, dtype.numpy)
            return Value(
                f"{weights.name}_{name}_{index}", dtype, contiguous.shape, constant=contiguous
            )

        return cls(
            value("panels", panels, dtypes.int8),
            value("sums", sums, dtypes.int32),
            value("less", correction, dtypes.int32),
            value("zeros", points, dtypes.int32) if points.any() else None,
            value("scales", np.broadcast_to(scale, gates), scales.dtype),
        )

    @property
    def values(self) -> list[Value]:
        """Return all operands."""
        result = [self.panels, self.sums, self.correction, self.scales]
        return result if self.zeros is None else [*result, self.zeros]


class _DirectionLoop:
    """Writer of the loop of a direction.

    Args:
      direction: the direction to write.
      y: the buffer to fill.
      memory: the buffers of operands.
    """

    def __init__(
        self, direction: _Direction, unique: Unique, y: Buffer, memory: dict[Value, Buffer]
    ) -> None:
        self.direction, self.unique, self.y, self.memory = direction, unique, y, memory
        names = direction.op.attr("activations")
        self.f, self.g, self.last = (_ACTIVATIONS[name] for name in (names * 3)[:3])
        row = (direction.batch, direction.width)
        self.old = [self._buffer(name, row) for name in ("state", "cell")[: len(direction.states)]]
        self.reset = self._buffer("reset", row) if direction.cell == "gru" else None
        kind = direction.dtype if direction.bytes is None else dtypes.int32
        self.sums = [
            Buffer(unique("sums"), kind, (direction.batch, (high - low) * direction.width))
            for low, high in direction.products
        ]
        ends = direction.bytes is not None and direction.lengths is not None
        self.shown = self._buffer("seen", row) if ends else self.old[0]
        self.small = Buffer(unique("small"), dtypes.uint8, row)
        self.totals = Buffer(unique("totals"), dtypes.int32, row[:1])
        self.statements: list[Statement] = []

    def _buffer(self, name: str, shape: Sequence[int]) -> Buffer:
        return Buffer(self.unique(name), self.direction.dtype, tuple(shape))

    def _name(self, name: str, value: Expr) -> Expr:
        """Name a shared subexpression."""
        result = Variable(value.dtype, self.unique(name))
        self.statements.append(Let(result.name, value))
        return result

    def body(self) -> Body:
        """Return the loop, with the statements before it and the final states."""
        direction, row = self.direction, (self.direction.batch, self.direction.width)
        local_buffers = [*self.old, *self.sums, *([self.reset] if self.reset else [])]
        local_buffers += [self.small, self.totals] if direction.bytes is not None else []
        pairs = list(zip(direction.states, self.old, strict=True))
        first = list(pairs)
        if self.shown is not self.old[0]:
            local_buffers.append(self.shown)
            first.append((direction.states[0], self.shown))

        def begin(b: Expr, j: Expr) -> Body:
            position = [index(direction.at), b, j]
            return tuple(
                [Store(target.name, (b, j), self._load(state, position)) for state, target in first]
            )

        def end(b: Expr, j: Expr) -> Body:
            return tuple(
                [
                    Store(
                        self.y.name, (index(direction.steps + state_index), b, j), _of(state, b, j)
                    )
                    for state_index, (_, state) in enumerate(pairs)
                ]
            )

        iteration = Variable(INDEX, self.unique("turn"))
        loop = (
            [For(iteration.name, index(direction.steps), self._iteration(iteration))]
            if direction.steps
            else []
        )
        return (
            *map(Allocate, local_buffers),
            *nest(self.unique, row, begin),
            *loop,
            *nest(self.unique, row, end),
        )

    def _load(self, value: Value, index: Sequence[Expr | int]) -> Load:
        return load(self.memory[value], value.shape, index)

    def _iteration(self, iteration: Expr) -> Body:
        direction, row = self.direction, (self.direction.batch, self.direction.width)
        if not self.reset:
            return (
                *self._product(0, self.old[0]),
                *nest(self.unique, row, lambda b, j: self._element(iteration, b, j)),
            )
        gates, reset = self.sums[0], self.reset

        def gate(b: Expr, j: Expr) -> Body:
            position, _ = self._place(iteration, b)
            z, r = (
                plus_of(_of(gates, b, plus(j, k * direction.width)), self._row(position, b, j, k))
                for k in (0, 1)
            )
            return self._name_and_store(
                Store(gates.name, (b, j), self.f(z)),
                Store(reset.name, (b, j), apply("mul", self.f(r), _of(self.old[0], b, j))),
            )

        return (
            *self._product(0, self.old[0]),
            *nest(self.unique, row, gate),
            *self._product(1, reset),
            *nest(self.unique, row, lambda b, j: self._element(iteration, b, j)),
        )

    def _name_and_store(self, *stores: Statement) -> Body:
        """Return the named subexpressions, followed by the stores."""
        result, self.statements = (*self.statements, *stores), []
        return result

    # ---------------------------------------------------------------------------- products

    def _product(self, kind: int, state: Buffer) -> Body:
        """Emit the product of a state with its weights."""
        direction, sums = self.direction, self.sums[kind]
        (low, high), matrix = direction.products[kind], direction.matrices[kind]
        m, n, k = direction.batch, (high - low) * direction.width, direction.width
        if direction.bytes is not None:
            return self._product_of_bytes(direction.bytes)
        a, c = (Load(sum_.dtype, sum_.name, (index(0),) * 2) for sum_ in (state, sums))
        if matrix is not direction.weights:
            b = self._load(matrix, [index(0)] * 3)
            return (MatmulPacked(a, b, c, m=m, n=n, k=k, a_row=k, c_row=n),)
        b = self._load(matrix, [index(direction.at), index(0), index(low * direction.width)])
        routine = select_unpacked(k)
        b_row = direction.weights.shape[2]
        call = routine(
            a, b, c, m=m, n=n, k=k, a_row=k, a_column=1, b_row=b_row, b_column=1, c_row=n
        )
        return (call,)

    def _product_of_bytes(self, weights: _Int8Weights) -> Body:
        """Emit the product of a dynamically quantized state, as ONNX `DynamicQuantizeLinear` does.

        The state is the result of the previous iteration, which is 0 for sequences that have ended.
        """
        dtype, row = self.direction.dtype, (self.direction.batch, self.direction.width)
        zero, maximum = number(0, dtype), number(_MOST, dtype)
        low, high = (Variable(dtype, self.unique(name)) for name in ("low", "high"))

        def look(b: Expr, j: Expr) -> Body:
            x = _of(self.shown, b, j)
            return (Assign(low.name, x, "minimum"), Assign(high.name, x, "maximum"))

        results: list[Statement] = [Var(low.name, zero), Var(high.name, zero)]
        results += nest(self.unique, row, look)

        def name(label: str, value: Expr) -> Expr:
            named = Variable(value.dtype, self.unique(label))
            results.append(Let(named.name, value))
            return named

        scale = name("scale", apply("div", apply("sub", high, low), maximum))
        finite = apply("bit_and", apply("is_finite", scale), apply("not_equal", scale, zero))
        some = name("some", finite)
        divisor = name("divisor", where(some, scale, number(1, dtype)))
        # A state of zeros contributes 0, one that is not finite NaN.
        self.scale = name("factor", where(some, scale, apply("mul", zero, scale)))
        point: Expr = apply("rint", apply("div", apply("neg", low), divisor))
        point = name("point", where(some, apply("minimum", point, maximum), zero))
        self.point = name("zero", cast(point, dtypes.int32))

        def rounded(b: Expr, j: Expr) -> Body:
            steps = apply("rint", apply("div", _of(self.shown, b, j), divisor))
            clamped = apply("clamp", apply("add", steps, point), zero, maximum)
            rounded_point = cast(where(some, clamped, zero), dtypes.int32)
            return (Store(self.small.name, (b, j), cast(rounded_point, dtypes.uint8)),)

        results += nest(self.unique, row, rounded)
        if weights.zeros is not None:
            results += self._row_totals()
        (m, k), n = row, weights.correction.shape[0]
        views = (
            Load(dtypes.uint8, self.small.name, (index(0),) * 2),
            self._load(weights.panels, [index(0)] * 4),
            self._load(weights.sums, [index(0)] * 2),
            Load(dtypes.int32, self.sums[0].name, (index(0),) * 2),
        )
        return (*results, MatmulBytes(*views, m=m, n=n, k=k, a_row=k, c_row=n))

    def _row_totals(self) -> Body:
        """Emit the sum of each row of a quantized state."""

        def row(b: Expr) -> Body:
            total = Variable(dtypes.int32, self.unique("total"))

            def add(j: Expr) -> Body:
                x = cast(_of(self.small, b, j), dtypes.int32)
                return (Assign(total.name, x, "add"),)

            return (
                Var(total.name, number(0, dtypes.int32)),
                *nest(self.unique, (self.direction.width,), add),
                Store(self.totals.name, (b,), total),
            )

        return nest(self.unique, (self.direction.batch,), row)

    def _sum(self, b: Expr, column: Expr) -> Expr:
        """Return an element of the latest product."""
        result: Expr = _of(self.sums[-1], b, column)
        weights = self.direction.bytes
        if weights is None:
            return result
        result = apply(
            "sub", result, apply("mul", self.point, self._load(weights.correction, [column]))
        )
        if weights.zeros is not None:
            total: Expr = _of(self.totals, b)
            result = apply("sub", result, apply("mul", total, self._load(weights.zeros, [column])))
        factor = apply("mul", self.scale, self._load(weights.scales, [column]))
        return apply("mul", cast(result, self.direction.dtype), factor)

    # ---------------------------------------------------------------------------- cells

    def _place(self, iteration: Expr, b: Expr) -> tuple[Expr, Expr | None]:
        """Return the row of a sequence that an iteration processes, and whether it exists."""
        direction = self.direction
        if direction.lengths is None:
            return (
                minus(direction.steps - 1, iteration) if direction.backward else iteration
            ), None
        length = self._name("length", cast(self._load(direction.lengths, [b]), INDEX))
        in_sequence = self._name("there", apply("less", iteration, length))
        if not direction.backward:
            return iteration, in_sequence
        reversed_step = where(in_sequence, minus(minus(length, 1), iteration), iteration)
        return self._name("place", clamp_index(reversed_step, direction.steps)), in_sequence

    def _row(self, position: Expr, b: Expr, j: Expr, gate: int) -> Expr:
        """Return the contribution of the inputs to a gate."""
        direction = self.direction
        column = plus(j, (direction.at * GATES[direction.cell] + gate) * direction.width)
        return self._load(direction.rows, [position, b, column])

    def _element(self, iteration: Expr, b: Expr, j: Expr) -> Body:
        """Emit the new elements of the states and of the result."""
        direction = self.direction
        position, in_sequence = self._place(iteration, b)
        old_states = [self._name("old", _of(state_buffer, b, j)) for state_buffer in self.old]
        # A GRU that resets before the product has computed the first gates already.
        first_gate = 2 if self.reset else 0
        inputs = [
            plus_of(
                self._sum(b, plus(j, (gate - first_gate) * direction.width)),
                self._row(position, b, j, gate),
            )
            for gate in range(first_gate, GATES[direction.cell])
            if not (direction.cell == "gru_reset_after" and gate == 2)
        ]
        new = [
            self._name("new", state_value)
            for state_value in self._cell(position, b, j, inputs, old_states)
        ]
        shown = new[0]
        if in_sequence is not None:
            shown = where(in_sequence, shown, number(0, direction.dtype))
            new = [where(in_sequence, x, old) for x, old in zip(new, old_states, strict=True)]
        results = [Store(self.y.name, (position, b, j), shown)]
        if self.shown is not self.old[0]:
            results.append(Store(self.shown.name, (b, j), shown))
        return self._name_and_store(
            *results,
            *[
                Store(state_buffer.name, (b, j), x)
                for state_buffer, x in zip(self.old, new, strict=True)
            ],
        )

    def _cell(
        self, position: Expr, b: Expr, j: Expr, inputs: Sequence[Expr], old_states: Sequence[Expr]
    ) -> list[Expr]:
        """Return the states after a step; the first is the result."""
        direction, f, g = self.direction, self.f, self.g
        if direction.cell == "rnn":
            return [f(inputs[0])]
        if direction.cell == "lstm":
            i, o, forget, cell = f(inputs[0]), f(inputs[1]), f(inputs[2]), g(inputs[3])
            remembered = apply("mul", forget, old_states[1])
            state = self._name("cell", plus_of(remembered, apply("mul", i, cell)))
            return [apply("mul", o, self.last(state)), state]
        z: Expr
        if direction.cell == "gru":
            z, new = _of(self.sums[0], b, j), g(inputs[0])
        else:
            inner = self._sum(b, plus(j, 2 * direction.width))
            if direction.bias is not None:
                inner = plus_of(inner, self._load(direction.bias, [index(direction.at), j]))
            reset = apply("mul", f(inputs[1]), inner)
            z, new = f(inputs[0]), g(plus_of(reset, self._row(position, b, j, 2)))
        new = self._name("entry", new)
        return [plus_of(new, apply("mul", z, apply("sub", old_states[0], new)))]


def _of(buffer: Buffer, *index: Expr) -> Load:
    return Load(buffer.dtype, buffer.name, index)


def plus_of(x: Expr, y: Expr) -> Expr:
    """Return x + y."""
    return apply("add", x, y)


def _sigmoid(x: Expr) -> Expr:
    one = number(1, x.dtype)
    return apply("div", one, plus_of(one, apply("exp", apply("neg", x))))


_ACTIVATIONS: Final[dict[str, Callable[[Expr], Expr]]] = {
    "sigmoid": _sigmoid,
    "tanh": lambda x: apply("tanh", x),
    "relu": lambda x: apply("maximum", x, number(0, x.dtype)),
}
