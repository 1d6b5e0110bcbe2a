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
    result = [_Direction(op, at).value() for at in range(directions)]

    def of_direction(d: Expr, *at: Expr) -> Expr:
        value = result[-1].at(*at)
        for other in range(directions - 2, -1, -1):
            is_it = apply("less_equal", d, index(other))
            value = where(is_it, result[other].at(*at), value)
        return value

    whole = compute_value(
        op.name, op.dtype(), op.shape(), lambda s, d, b, j: of_direction(d, s, b, j)
    )
    lasts = [
        compute_value(
            f"{op.name}_last",
            op.dtype(),
            (directions, batch, width),
            lambda d, b, j, row=steps + at: of_direction(d, index(row), b, j),
        )
        for at in range(len(states))
    ]
    return [whole, *lasts]


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

        def within(b: Expr) -> Expr:
            length = cast(lengths.at(b), INDEX)
            low = apply("greater_equal", length, index(0))
            return apply("bit_and", low, apply("less_equal", length, index(self.steps)))

        said = f"lengths of 0 to {self.steps} were required"
        return (Requirement((self.batch,), within, said),)


@dataclass(frozen=True, slots=True)
class _Int8Weights:
    """Constant 8-bit weights of a direction.

    Attributes:
      panels, sums: in the layout of `matmul_bytes`.
      less: int32 (gates), column sums; times the zero point of a state they are subtracted from the
        result.
      zeros: int32 (gates), the zero points; None if all are 0.
      scales: (gates).
    """

    panels: Value
    sums: Value
    less: Value
    zeros: Value | None
    scales: Value

    @classmethod
    def of(cls, weights: Value, scales: Value, zeros: Value, index: int) -> _Int8Weights:
        known_values = [each.constant for each in (weights, scales, zeros)]
        require(
            all(each is not None for each in known_values), "the 8-bit weights are not constants"
        )
        matrix, scale, zero = [each[index] for each in known_values]
        k, gates = matrix.shape
        require(
            matrix.size > 0 and scale.size in (1, gates), "the shapes of its operands do not match"
        )
        flip = _FLIP if weights.dtype is dtypes.uint8 else 0
        panels, sums = pack_bytes((matrix.astype(np.int16) - flip).astype(np.int8))
        points = np.broadcast_to(zero - np.int32(flip), gates)
        less = sums.reshape(-1)[:gates] - np.int32(k) * points

        def value(what: str, array: Any, dtype: DType) -> Value:
            whole = np.ascontiguousarray(array, dtype.numpy)
            return Value(f"{weights.name}_{what}_{index}", dtype, whole.shape, constant=whole)

        return cls(
            value("panels", panels, dtypes.int8),
            value("sums", sums, dtypes.int32),
            value("less", less, dtypes.int32),
            value("zeros", points, dtypes.int32) if points.any() else None,
            value("scales", np.broadcast_to(scale, gates), scales.dtype),
        )

    @property
    def values(self) -> list[Value]:
        """Return all operands."""
        result = [self.panels, self.sums, self.less, self.scales]
        return result if self.zeros is None else [*result, self.zeros]


class _DirectionLoop:
    """Writer of the loop of a direction.

    Args:
      of: the direction to write.
      y: the buffer to fill.
      memory: the buffers of operands.
    """

    def __init__(
        self, of: _Direction, unique: Unique, y: Buffer, memory: dict[Value, Buffer]
    ) -> None:
        self.of, self.unique, self.y, self.memory = of, unique, y, memory
        names = of.op.attr("activations")
        self.f, self.g, self.last = (_ACTIVATIONS[name] for name in (names * 3)[:3])
        row = (of.batch, of.width)
        self.old = [self._buffer(name, row) for name in ("state", "cell")[: len(of.states)]]
        self.reset = self._buffer("reset", row) if of.cell == "gru" else None
        kind = of.dtype if of.bytes is None else dtypes.int32
        self.sums = [
            Buffer(unique("sums"), kind, (of.batch, (high - low) * of.width))
            for low, high in of.products
        ]
        ends = of.bytes is not None and of.lengths is not None
        self.seen = self._buffer("seen", row) if ends else self.old[0]
        self.small = Buffer(unique("small"), dtypes.uint8, row)
        self.totals = Buffer(unique("totals"), dtypes.int32, row[:1])
        self.statements: list[Statement] = []

    def _buffer(self, name: str, shape: Sequence[int]) -> Buffer:
        return Buffer(self.unique(name), self.of.dtype, tuple(shape))

    def _name(self, name: str, value: Expr) -> Expr:
        """Name a shared subexpression."""
        result = Variable(value.dtype, self.unique(name))
        self.statements.append(Let(result.name, value))
        return result

    def body(self) -> Body:
        """Return the loop, with the statements before it and the final states."""
        of, row = self.of, (self.of.batch, self.of.width)
        own = [*self.old, *self.sums, *([self.reset] if self.reset else [])]
        own += [self.small, self.totals] if of.bytes is not None else []
        pairs = list(zip(of.states, self.old, strict=True))
        first = list(pairs)
        if self.seen is not self.old[0]:
            own.append(self.seen)
            first.append((of.states[0], self.seen))

        def begin(b: Expr, j: Expr) -> Body:
            position = [index(of.at), b, j]
            return tuple(
                [Store(to.name, (b, j), self._load(state, position)) for state, to in first]
            )

        def end(b: Expr, j: Expr) -> Body:
            return tuple(
                [
                    Store(self.y.name, (index(of.steps + at), b, j), _of(state, b, j))
                    for at, (_, state) in enumerate(pairs)
                ]
            )

        iteration = Variable(INDEX, self.unique("turn"))
        loop = (
            [For(iteration.name, index(of.steps), self._iteration(iteration))] if of.steps else []
        )
        return (
            *map(Allocate, own),
            *nest(self.unique, row, begin),
            *loop,
            *nest(self.unique, row, end),
        )

    def _load(self, value: Value, index: Sequence[Expr | int]) -> Load:
        return load(self.memory[value], value.shape, index)

    def _iteration(self, iteration: Expr) -> Body:
        of, row = self.of, (self.of.batch, self.of.width)
        if not self.reset:
            return (
                *self._product(0, self.old[0]),
                *nest(self.unique, row, lambda b, j: self._element(iteration, b, j)),
            )
        gates, reset = self.sums[0], self.reset

        def gate(b: Expr, j: Expr) -> Body:
            position, _ = self._place(iteration, b)
            z, r = (
                plus_of(_of(gates, b, plus(j, k * of.width)), self._row(position, b, j, k))
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
        of, sums = self.of, self.sums[kind]
        (low, high), matrix = of.products[kind], of.matrices[kind]
        m, n, k = of.batch, (high - low) * of.width, of.width
        if of.bytes is not None:
            return self._product_of_bytes(of.bytes)
        a, c = (Load(sum_.dtype, sum_.name, (index(0),) * 2) for sum_ in (state, sums))
        if matrix is not of.weights:
            b = self._load(matrix, [index(0)] * 3)
            return (MatmulPacked(a, b, c, m=m, n=n, k=k, a_row=k, c_row=n),)
        b = self._load(matrix, [index(of.at), index(0), index(low * of.width)])
        routine = select_unpacked(k)
        b_row = of.weights.shape[2]
        call = routine(
            a, b, c, m=m, n=n, k=k, a_row=k, a_column=1, b_row=b_row, b_column=1, c_row=n
        )
        return (call,)

    def _product_of_bytes(self, weights: _Int8Weights) -> Body:
        """Emit the product of a dynamically quantized state, as ONNX `DynamicQuantizeLinear` does.

        The state is the result of the previous iteration, which is 0 for sequences that have ended.
        """
        dtype, row = self.of.dtype, (self.of.batch, self.of.width)
        zero, maximum = number(0, dtype), number(_MOST, dtype)
        low, high = (Variable(dtype, self.unique(name)) for name in ("low", "high"))

        def look(b: Expr, j: Expr) -> Body:
            x = _of(self.seen, b, j)
            return (Assign(low.name, x, "minimum"), Assign(high.name, x, "maximum"))

        results: list[Statement] = [Var(low.name, zero), Var(high.name, zero)]
        results += nest(self.unique, row, look)

        def name(what: str, value: Expr) -> Expr:
            named = Variable(value.dtype, self.unique(what))
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
            steps = apply("rint", apply("div", _of(self.seen, b, j), divisor))
            kept = apply("clamp", apply("add", steps, point), zero, maximum)
            whole = cast(where(some, kept, zero), dtypes.int32)
            return (Store(self.small.name, (b, j), cast(whole, dtypes.uint8)),)

        results += nest(self.unique, row, rounded)
        if weights.zeros is not None:
            results += self._row_totals()
        (m, k), n = row, weights.less.shape[0]
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
                *nest(self.unique, (self.of.width,), add),
                Store(self.totals.name, (b,), total),
            )

        return nest(self.unique, (self.of.batch,), row)

    def _sum(self, b: Expr, column: Expr) -> Expr:
        """Return an element of the latest product."""
        result: Expr = _of(self.sums[-1], b, column)
        weights = self.of.bytes
        if weights is None:
            return result
        result = apply("sub", result, apply("mul", self.point, self._load(weights.less, [column])))
        if weights.zeros is not None:
            total: Expr = _of(self.totals, b)
            result = apply("sub", result, apply("mul", total, self._load(weights.zeros, [column])))
        factor = apply("mul", self.scale, self._load(weights.scales, [column]))
        return apply("mul", cast(result, self.of.dtype), factor)

    # ---------------------------------------------------------------------------- cells

    def _place(self, iteration: Expr, b: Expr) -> tuple[Expr, Expr | None]:
        """Return the row of a sequence that an iteration processes, and whether it exists."""
        of = self.of
        if of.lengths is None:
            return (minus(of.steps - 1, iteration) if of.backward else iteration), None
        length = self._name("length", cast(self._load(of.lengths, [b]), INDEX))
        there = self._name("there", apply("less", iteration, length))
        if not of.backward:
            return iteration, there
        reversed_step = where(there, minus(minus(length, 1), iteration), iteration)
        return self._name("place", clamp_index(reversed_step, of.steps)), there

    def _row(self, position: Expr, b: Expr, j: Expr, gate: int) -> Expr:
        """Return the contribution of the inputs to a gate."""
        of = self.of
        column = plus(j, (of.at * GATES[of.cell] + gate) * of.width)
        return self._load(of.rows, [position, b, column])

    def _element(self, iteration: Expr, b: Expr, j: Expr) -> Body:
        """Emit the new elements of the states and of the result."""
        of = self.of
        position, there = self._place(iteration, b)
        before = [self._name("old", _of(each, b, j)) for each in self.old]
        # A GRU that resets before the product has computed the first gates already.
        taken = 2 if self.reset else 0
        given = [
            plus_of(
                self._sum(b, plus(j, (gate - taken) * of.width)),
                self._row(position, b, j, gate),
            )
            for gate in range(taken, GATES[of.cell])
            if not (of.cell == "gru_reset_after" and gate == 2)
        ]
        new = [self._name("new", each) for each in self._cell(position, b, j, given, before)]
        shown = new[0]
        if there is not None:
            shown = where(there, shown, number(0, of.dtype))
            new = [where(there, x, old) for x, old in zip(new, before, strict=True)]
        results = [Store(self.y.name, (position, b, j), shown)]
        if self.seen is not self.old[0]:
            results.append(Store(self.seen.name, (b, j), shown))
        return self._name_and_store(
            *results,
            *[Store(each.name, (b, j), x) for each, x in zip(self.old, new, strict=True)],
        )

    def _cell(
        self, position: Expr, b: Expr, j: Expr, given: Sequence[Expr], before: Sequence[Expr]
    ) -> list[Expr]:
        """Return the states after a step; the first is the result."""
        of, f, g = self.of, self.f, self.g
        if of.cell == "rnn":
            return [f(given[0])]
        if of.cell == "lstm":
            i, o, forget, cell = f(given[0]), f(given[1]), f(given[2]), g(given[3])
            kept = apply("mul", forget, before[1])
            state = self._name("cell", plus_of(kept, apply("mul", i, cell)))
            return [apply("mul", o, self.last(state)), state]
        z: Expr
        if of.cell == "gru":
            z, new = _of(self.sums[0], b, j), g(given[0])
        else:
            inner = self._sum(b, plus(j, 2 * of.width))
            if of.bias is not None:
                inner = plus_of(inner, self._load(of.bias, [index(of.at), j]))
            reset = apply("mul", f(given[1]), inner)
            z, new = f(given[0]), g(plus_of(reset, self._row(position, b, j, 2)))
        new = self._name("entry", new)
        return [plus_of(new, apply("mul", z, apply("sub", before[0], new)))]


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
