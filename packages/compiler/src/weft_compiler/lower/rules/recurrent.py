"""Recurrent layers: a loop over the steps for each direction.

A step is a product of the state with all weights, and one loop over what all gates do then.
Weights that are constant are packed while lowering.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from weft_compiler.blas import addresses
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
from weft_compiler.ir.indices import clamped, minus, plus
from weft_compiler.ir.program import (
    Allocate,
    Assign,
    Body,
    Buffer,
    Call,
    For,
    Let,
    Statement,
    Store,
    Var,
)
from weft_compiler.lower.loops import Unique, load, nest
from weft_compiler.lower.panels import packed
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.rules.matmul import by_panels
from weft_compiler.lower.values import Requirement, Value, Written, computed
from weft_graph.ir.node import Node
from weft_graph.ops.recurrent import GATES, LAYER
from weft_tensor import dtypes

_TYPES: Final = (dtypes.float32, dtypes.float64)
_STATES: Final = {"rnn": 1, "gru": 1, "gru_reset_after": 1, "lstm": 2}
_LAST_8: Final = 255


def _by_kernel(node: Node) -> str:
    """Why a layer had better run by its kernel, or ""."""
    dtype = node.outputs[0].dtype
    return "" if dtype in _TYPES else f"no rule says how a layer of {dtype.name} is computed"


@lowers(LAYER, by_kernel=_by_kernel)
def _layer(op: Operation) -> Sequence[Value]:
    rows, weights, bias, lengths, *states = op.inputs
    cell, backward = op.attr("cell"), op.attr("backward")
    require(op.dtype() in _TYPES, f"a layer of {op.dtype().name}")
    require(rows.rank == weights.rank == 3, "rows and weights have other ranks")
    (steps, batch, _), (directions, width, gates) = rows.shape, weights.shape
    fits = directions == len(backward) and gates == GATES[cell] * width
    fits = fits and rows.shape[2] == directions * gates and len(states) == _STATES[cell]
    fits = fits and all(each.shape == (directions, batch, width) for each in states)
    fits = fits and bias.shape in ((directions, width), (0,))
    require(fits and lengths.shape in ((batch,), (0,)), "shapes do not fit")
    found = [_Direction(op, at).value() for at in range(directions)]

    def of_direction(d: Expr, *at: Expr) -> Expr:
        value = found[-1].at(*at)
        for other in range(directions - 2, -1, -1):
            is_it = apply("less_equal", d, index(other))
            value = where(is_it, found[other].at(*at), value)
        return value

    whole = computed(op.name, op.dtype(), op.shape(), lambda s, d, b, j: of_direction(d, s, b, j))
    lasts = [
        computed(
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

    Its value is (steps + states, batch, width): the results at their places, then the last states.
    """

    def __init__(self, op: Operation, at: int) -> None:
        self.rows, self.weights, bias, lengths, *self.states = op.inputs
        self.op, self.at = op, at
        self.cell, self.backward = op.attr("cell"), bool(op.attr("backward")[at])
        self.quantized = bool(op.attr("quantized"))
        self.bias = bias if bias.size else None
        self.lengths = lengths if lengths.size else None
        self.steps, self.batch = self.rows.shape[:2]
        self.width = self.weights.shape[1]
        self.dtype = op.dtype()
        # A GRU that resets before the product has two of them.
        ends = (0, 2, 3) if self.cell == "gru" else (0, GATES[self.cell])
        self.products = list(pairwise(ends))

    def value(self) -> Value:
        """What it computes."""
        shape = (self.steps + len(self.states), self.batch, self.width)
        operands = [self.rows, *self.states]
        operands += [each for each in (self.bias, self.lengths) if each is not None]
        operands += self._matrices()

        def write(unique: Unique, y: Buffer, *buffers: Buffer) -> Sequence[Statement]:
            if not self.batch * self.width:
                return ()
            return _Steps(self, unique, y, dict(zip(operands, buffers, strict=True))).body()

        name = f"{self.op.name}_{self.at}"
        return Value(
            name, self.dtype, shape, Written(operands, write), requires=self._requirements()
        )

    def _matrices(self) -> list[Value]:
        """The weights of each product: packed, or all of them."""
        array, width = self.weights.constant, self.width
        if array is None or not array.size:
            self.matrices = [self.weights] * len(self.products)
            return [self.weights]
        self.matrices = [
            packed(
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


class _Steps:
    """Writes the loop of a direction.

    Args:
      of: the direction.
      y: what it fills.
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
        self.given = self._buffer("given", row) if of.quantized else self.old[0]
        self.reset = self._buffer("reset", row) if of.cell == "gru" else None
        self.sums = [
            self._buffer("sums", (of.batch, (high - low) * of.width)) for low, high in of.products
        ]
        self.statements: list[Statement] = []

    def _buffer(self, name: str, shape: Sequence[int]) -> Buffer:
        return Buffer(self.unique(name), self.of.dtype, tuple(shape))

    def _name(self, name: str, value: Expr) -> Expr:
        """A name for what is used twice."""
        found = Variable(value.dtype, self.unique(name))
        self.statements.append(Let(found.name, value))
        return found

    def body(self) -> Body:
        """The loop, and what is around it."""
        of, row = self.of, (self.of.batch, self.of.width)
        own = {*self.old, self.given, *self.sums, *([self.reset] if self.reset else [])}
        pairs = list(zip(of.states, self.old, strict=True))

        def begin(b: Expr, j: Expr) -> Body:
            at = [index(of.at), b, j]
            return tuple([Store(to.name, (b, j), self._load(state, at)) for state, to in pairs])

        def end(b: Expr, j: Expr) -> Body:
            return tuple(
                [
                    Store(self.y.name, (index(of.steps + at), b, j), _of(state, b, j))
                    for at, (_, state) in enumerate(pairs)
                ]
            )

        turn = Variable(INDEX, self.unique("turn"))
        loop = [For(turn.name, index(of.steps), self._turn(turn))] if of.steps else []
        ordered = [Allocate(each) for each in sorted(own, key=lambda each: each.name)]
        return (
            *ordered,
            *nest(self.unique, row, begin),
            *loop,
            *nest(self.unique, row, end),
        )

    def _load(self, value: Value, at: Sequence[Expr | int]) -> Load:
        return load(self.memory[value], value.shape, at)

    def _turn(self, turn: Expr) -> Body:
        of, row = self.of, (self.of.batch, self.of.width)
        if not self.reset:
            return (
                *self._product(0, self.old[0]),
                *nest(self.unique, row, lambda b, j: self._element(turn, b, j)),
            )
        gates, reset = self.sums[0], self.reset

        def gate(b: Expr, j: Expr) -> Body:
            place, _ = self._place(turn, b)
            z, r = (
                plus_of(_of(gates, b, plus(j, k * of.width)), self._row(place, b, j, k))
                for k in (0, 1)
            )
            return self._done(
                Store(gates.name, (b, j), self.f(z)),
                Store(reset.name, (b, j), apply("mul", self.f(r), _of(self.old[0], b, j))),
            )

        return (
            *self._product(0, self.old[0]),
            *nest(self.unique, row, gate),
            *self._product(1, reset),
            *nest(self.unique, row, lambda b, j: self._element(turn, b, j)),
        )

    def _done(self, *stores: Statement) -> Body:
        """What was named, and then stores."""
        found, self.statements = (*self.statements, *stores), []
        return found

    # ---------------------------------------------------------------------------- products

    def _product(self, which: int, state: Buffer) -> Body:
        """The product of a state with weights."""
        of, sums = self.of, self.sums[which]
        (low, high), matrix = of.products[which], of.matrices[which]
        m, n, k = of.batch, (high - low) * of.width, of.width
        before: Body = ()
        if of.quantized:
            before, state = self._through_8_bits(state), self.given
        a, c = (Load(each.dtype, each.name, (index(0),) * 2) for each in (state, sums))
        if matrix is not of.weights:
            b = self._load(matrix, [index(0)] * 3)
            return (*before, by_panels((a, b, c), m, n, k, a_row=k))
        b = self._load(matrix, [index(of.at), index(0), index(low * of.width)])
        apart = {"a_row": k, "a_column": 1, "b_row": of.weights.shape[2], "b_column": 1}
        sizes = {"m": m, "n": n, "k": k, **apart, "c_row": n, "accumulate": 0}
        routine = "gemm" if k > 1 and addresses() else "matmul"
        return (*before, Call(routine, (a, b, c), tuple(sizes.items())))

    def _through_8_bits(self, state: Buffer) -> Body:
        """What is left of a state when it is quantised dynamically, as `QuantizeLinear` says."""
        dtype, row = self.of.dtype, (self.of.batch, self.of.width)
        zero = number(0, dtype)
        low, high = (Variable(dtype, self.unique(name)) for name in ("low", "high"))

        def look(b: Expr, j: Expr) -> Body:
            x = _of(state, b, j)
            return (Assign(low.name, x, "minimum"), Assign(high.name, x, "maximum"))

        found: list[Statement] = [Var(low.name, zero), Var(high.name, zero)]
        found += nest(self.unique, row, look)

        def name(what: str, value: Expr) -> Expr:
            named = Variable(value.dtype, self.unique(what))
            found.append(Let(named.name, value))
            return named

        span = apply("sub", high, low)
        scale = name("scale", apply("div", span, number(_LAST_8, dtype)))
        finite = apply("bit_and", apply("is_finite", scale), apply("not_equal", scale, zero))
        some = name("some", finite)
        factor = name("factor", where(some, scale, number(1, dtype)))
        # Nothing is left of a state of zeros, and of one that is not finite, no number.
        none = name("none", apply("mul", zero, scale))
        point = apply("rint", apply("div", apply("neg", low), factor))
        lowest = name("lowest", apply("neg", apply("minimum", point, number(_LAST_8, dtype))))
        highest = name("highest", apply("add", lowest, number(_LAST_8, dtype)))

        def rounded(b: Expr, j: Expr) -> Body:
            steps = apply("rint", apply("div", _of(state, b, j), factor))
            kept = apply("clamp", steps, lowest, highest)
            value = where(some, apply("mul", kept, factor), none)
            return (Store(self.given.name, (b, j), value),)

        return (*found, *nest(self.unique, row, rounded))

    # ---------------------------------------------------------------------------- cells

    def _place(self, turn: Expr, b: Expr) -> tuple[Expr, Expr | None]:
        """Which row a turn takes of a sequence, and whether that has so many."""
        of = self.of
        if of.lengths is None:
            return (minus(of.steps - 1, turn) if of.backward else turn), None
        length = self._name("length", cast(self._load(of.lengths, [b]), INDEX))
        there = self._name("there", apply("less", turn, length))
        if not of.backward:
            return turn, there
        turned = where(there, minus(minus(length, 1), turn), turn)
        return self._name("place", clamped(turned, of.steps)), there

    def _row(self, place: Expr, b: Expr, j: Expr, gate: int) -> Expr:
        """What the inputs add to a gate."""
        of = self.of
        column = plus(j, (of.at * GATES[of.cell] + gate) * of.width)
        return self._load(of.rows, [place, b, column])

    def _element(self, turn: Expr, b: Expr, j: Expr) -> Body:
        """New elements of the states, and of the result."""
        of = self.of
        place, there = self._place(turn, b)
        before = [self._name("old", _of(each, b, j)) for each in self.old]
        # Of a GRU that resets before the product the first gates are there already.
        taken = 2 if self.reset else 0
        given = [
            plus_of(
                _of(self.sums[-1], b, plus(j, (gate - taken) * of.width)),
                self._row(place, b, j, gate),
            )
            for gate in range(taken, GATES[of.cell])
            if not (of.cell == "gru_reset_after" and gate == 2)
        ]
        new = [self._name("new", each) for each in self._cell(place, b, j, given, before)]
        shown = new[0]
        if there is not None:
            shown = where(there, shown, number(0, of.dtype))
            new = [where(there, x, old) for x, old in zip(new, before, strict=True)]
        return self._done(
            Store(self.y.name, (place, b, j), shown),
            *[Store(each.name, (b, j), x) for each, x in zip(self.old, new, strict=True)],
        )

    def _cell(
        self, place: Expr, b: Expr, j: Expr, given: Sequence[Expr], before: Sequence[Expr]
    ) -> list[Expr]:
        """The states behind a step, the first of which is the result."""
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
            inner: Expr = _of(self.sums[0], b, plus(j, 2 * of.width))
            if of.bias is not None:
                inner = plus_of(inner, self._load(of.bias, [index(of.at), j]))
            reset = apply("mul", f(given[1]), inner)
            z, new = f(given[0]), g(plus_of(reset, self._row(place, b, j, 2)))
        new = self._name("entry", new)
        return [plus_of(new, apply("mul", z, apply("sub", before[0], new)))]


def _of(buffer: Buffer, *at: Expr) -> Load:
    return Load(buffer.dtype, buffer.name, at)


def plus_of(x: Expr, y: Expr) -> Expr:
    """x + y."""
    return apply("add", x, y)


def _sigmoid(x: Expr) -> Expr:
    one = number(1, x.dtype)
    return apply("div", one, plus_of(one, apply("exp", apply("neg", x))))


_ACTIVATIONS: Final[dict[str, Callable[[Expr], Expr]]] = {
    "sigmoid": _sigmoid,
    "tanh": lambda x: apply("tanh", x),
    "relu": lambda x: apply("maximum", x, number(0, x.dtype)),
}
