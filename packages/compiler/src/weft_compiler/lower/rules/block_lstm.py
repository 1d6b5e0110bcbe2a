"""Block LSTMs: all steps of a layer, and their gradients.

A layer is one product for the inputs of all steps, followed by a loop over the steps. A step is a
product with the state, followed by one loop over the elements, which computes all gates. The
gradient is such a loop in reverse order, followed by products for all steps. Narrow types are
computed in float32 throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from weft_compiler.ir.expressions import (
    INDEX,
    Expr,
    Load,
    Variable,
    add,
    apply,
    cast,
    index,
    mul,
    number,
    where,
)
from weft_compiler.ir.indices import clamp_index, minus, plus
from weft_compiler.ir.loops import Unique, fill, load, nest
from weft_compiler.ir.program import Allocate, Body, Buffer, For, If, Let, Statement, Store
from weft_compiler.lower.precision import widen
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.rules.block_rnn import (
    Cell,
    CellGradient,
    by_peephole,
    results,
    sigmoid,
)
from weft_compiler.lower.rules.reduction import reduce
from weft_compiler.lower.values import (
    Elements,
    Requirement,
    StatementDefinition,
    Value,
    compute_value,
    move_elements,
)
from weft_compiler.lower.weight_packing import pack_columns
from weft_compiler.routines.gemm import MatmulPacked
from weft_compiler.routines.selection import select_unpacked
from weft_graph.ir.constant_value import constant_value

_GATES: Final = ("i", "cs", "f", "o", "ci", "co", "h")
"""The results of a step of an LSTM."""


@dataclass(eq=False)
class _Part(Elements):
    """One of the results of a layer, which share one buffer.

    Attributes:
      results: all results, (steps, results, batch, width); steps come first, so that layers with
        different numbers of steps can share code.
      index: the position of this result.
    """

    results: Value
    index: int


def _parts(op: Operation, value: Value) -> list[Value]:
    """Return the results of a layer, in the element type of the op."""
    steps, _, *row = value.shape

    def part(position: int, name: str) -> Value:
        dtype = op.dtype(position)
        part = _Part(lambda t, b, j: cast(value.at(t, position, b, j), dtype), value, position)
        return Value(f"{op.name}_{name}", dtype, (steps, *row), part)

    return [part(position, name) for position, name in enumerate(_GATES)]


@dataclass(frozen=True, slots=True)
class _ForwardResult:
    """A forward result of all steps.

    Attributes:
      value: the tensor that contains it.
      index: its position if `value` holds all results of a layer, else None.
    """

    value: Value
    index: int | None

    def at(self, memory: dict[Value, Buffer], step: Expr, b: Expr, j: Expr) -> Load:
        """Return an element."""
        prefix = () if self.index is None else (self.index,)
        return load(memory[self.value], self.value.shape, [step, *prefix, b, j])


def _forward_result(value: Value) -> _ForwardResult:
    """Return a forward result; it is part of a larger buffer if this program computes it."""
    definition = value.definition
    if isinstance(definition, _Part) and definition.results.dtype is value.dtype:
        return _ForwardResult(definition.results, definition.index)
    return _ForwardResult(value, None)


def _product(
    views: tuple[Load, Load, Load],
    sizes: tuple[int, int, int],
    a: tuple[int, int],
    b: tuple[int, int],
    adds: bool = False,
) -> Body:
    """Return the call of a matrix product.

    Args:
      sizes: m, n and k.
      a, b: the row stride and the column stride of each operand.
      adds: True to accumulate into the destination.
    """
    m, n, k = sizes
    if not m * n * k:
        return ()
    routine = select_unpacked(k)
    call = routine(
        *views,
        m=m,
        n=n,
        k=k,
        a_row=a[0],
        a_column=a[1],
        b_row=b[0],
        b_column=b[1],
        c_row=n,
        accumulate=int(adds),
    )
    return (call,)


class _Layer:
    """An LSTM over all steps.

    Attributes:
      known_steps: the number of steps, if known at compile time.
      steps: the maximal number of steps, which follows from the shapes.
    """

    def __init__(self, op: Operation, kind: str) -> None:
        self.op, self.name = op, op.name
        self.count, operands = op.inputs[0], op.inputs[1:9]
        self.widened = [widen(op.name, x) for x in operands]
        self.x, self.cs_prev, self.h_prev, self.w, *self.peepholes, self.bias = self.widened
        (self.steps, self.batch, self.depth), self.width = self.x.shape, self.h_prev.shape[1]
        self.dtype = self.x.dtype
        self.cell = Cell.of(op, kind, self.width)
        known_value = constant_value(op.node.inputs[0])
        self.known_steps = None if known_value is None else int(known_value)
        self.row = (self.batch, self.width)

    def requirements(self) -> tuple[Requirement, ...]:
        """Require that the number of steps is in range, unless it is known at compile time."""

        def in_range() -> Expr:
            low = apply("less_equal", index(0), cast(self.count.at(), INDEX))
            return apply("bit_and", low, apply("less_equal", self.count.at(), index(self.steps)))

        message = f"steps from 0 to {self.steps} were required"
        return () if self.known_steps is not None else (Requirement((), in_range, message),)

    @property
    def operands(self) -> list[Value]:
        """The operands of the loop."""
        unknown = [self.count] if self.known_steps is None else []
        return [*self.widened, *unknown]

    def is_in_sequence(self, step: Expr, count: Expr | None = None) -> Expr | None:
        """Return the condition that a step is within the sequence; None if all steps are."""
        if self.known_steps is not None:
            return (
                None
                if self.known_steps == self.steps
                else apply("less", step, index(self.known_steps))
            )
        return apply("less", step, cast(self.count.at(), INDEX) if count is None else count)

    def emit_guarded(
        self, step: Expr, memory: dict[Value, Buffer], if_true: Body, if_false: Body
    ) -> Body:
        """Emit `if_true` for steps within the sequence and `if_false` for those beyond it."""
        count = None if self.known_steps is not None else load(memory[self.count], (), ())
        condition = self.is_in_sequence(step, count)
        return if_true if condition is None else (If(condition, if_true, if_false),)

    def zero_beyond(self, value: Value) -> Value:
        """Set values beyond the sequence to zero, so that these steps have no effect."""
        if self.known_steps == self.steps:
            return value
        zero = number(0, value.dtype)

        def element(*position: Expr) -> Expr:
            condition = self.is_in_sequence(position[0])
            assert condition is not None
            return where(condition, value.at(*position), zero)

        return compute_value(f"{value.name}_within", value.dtype, value.shape, element)


@lowers("BlockLSTM", "BlockLSTMV2")
def _lstm(op: Operation) -> list[Value]:
    layer = _Layer(op, op.node.type)
    shape = (layer.steps, len(_GATES), *layer.row)
    weights = _split_weights(layer)
    operands = [*layer.operands, *weights]

    def write(unique: Unique, results: Buffer, *buffers: Buffer) -> Sequence[Statement]:
        if 0 in shape:
            return ()
        memory = dict(zip(operands, buffers, strict=True))
        return _Forward(layer, weights, unique, results, memory).body()

    steps = Value(f"{op.name}_steps", layer.dtype, shape, StatementDefinition(operands, write))
    steps.requires = layer.requirements()
    return _parts(op, steps)


def _split_weights(layer: _Layer) -> list[Value]:
    """Return the packed weights of inputs and states; empty if they are not constant."""
    array, depth = layer.w.constant, layer.depth
    if array is None or not depth or not array.size:
        return []
    parts = (array[:depth], array[depth:])
    return [pack_columns(f"{layer.w.name}_packed", layer.w, part) for part in parts]


class _Writer:
    """Writer of the statements of a step.

    Args:
      memory: the buffers of operands.
    Attributes:
      lets: names of shared subexpressions.
    """

    def __init__(self, unique: Unique, memory: dict[Value, Buffer]) -> None:
        self.unique, self.memory = unique, memory
        self.lets: list[Statement] = []

    def load(self, value: Value, *position: Expr | int) -> Load:
        """Return an element of an operand."""
        return load(self.memory[value], value.shape, position)

    def name(self, name: str, value: Expr) -> Expr:
        """Name a shared subexpression."""
        variable = Variable(value.dtype, self.unique(name))
        self.lets.append(Let(variable.name, value))
        return variable


class _Forward(_Writer):
    """Writer of the steps of a layer.

    Args:
      weights: packed weights of inputs and states, or nothing.
      results: the buffer to fill.
    """

    def __init__(
        self,
        layer: _Layer,
        weights: Sequence[Value],
        unique: Unique,
        results: Buffer,
        memory: dict[Value, Buffer],
    ) -> None:
        super().__init__(unique, memory)
        self.layer, self.weights, self.results = layer, weights, results
        rows = (layer.steps, layer.batch, 4 * layer.width)
        self.gates = Buffer(unique("gates"), layer.dtype, rows)
        self.cell, self.state = (
            Buffer(unique(name), layer.dtype, layer.row) for name in ("cell", "state")
        )

    def body(self) -> Body:
        """Return all statements of the layer."""
        layer, zeros = self.layer, [index(0)] * 3
        rows = layer.steps * layer.batch

        def begin(b: Expr, j: Expr) -> Body:
            return (
                Store(self.cell.name, (b, j), self.load(layer.cs_prev, b, j)),
                Store(self.state.name, (b, j), self.load(layer.h_prev, b, j)),
            )

        iteration = Variable(INDEX, self.unique("turn"))
        zero = number(0, layer.dtype)
        overflow = nest(
            self.unique,
            (len(_GATES), *layer.row),
            lambda k, b, j: (Store(self.results.name, (iteration, k, b, j), zero),),
        )
        product = self.product(self.load(layer.x, *zeros), 0, self.of_gates(0), rows)
        first = product or fill(self.unique, self.gates, zero)
        return (
            *map(Allocate, (self.gates, self.cell, self.state)),
            *first,
            *nest(self.unique, layer.row, begin),
            For(
                iteration.name,
                index(layer.steps),
                layer.emit_guarded(iteration, self.memory, self.step(iteration), overflow),
            ),
        )

    def of_gates(self, step: Expr | int) -> Load:
        position = (index(step) if isinstance(step, int) else step, index(0), index(0))
        return Load(self.gates.dtype, self.gates.name, position)

    def product(self, a: Load, kind: int, c: Load, rows: int) -> Body:
        """Emit the product of a's rows with their weights; accumulate the state's gradient."""
        layer = self.layer
        k, n = (layer.depth, layer.width)[kind], 4 * layer.width
        if self.weights:
            weights = self.load(self.weights[kind], 0, 0, 0)
            call = MatmulPacked(a, weights, c, m=rows, n=n, k=k, a_row=k, c_row=n, accumulate=kind)
            return (call,)
        b = self.load(layer.w, kind * layer.depth, 0)
        return _product((a, b, c), (rows, n, k), (k, 1), (n, 1), bool(kind))

    def step(self, iteration: Expr) -> Body:
        """Emit one step of the layer."""
        state = Load(self.state.dtype, self.state.name, (index(0), index(0)))
        return (
            *self.product(state, 1, self.of_gates(iteration), self.layer.batch),
            *nest(self.unique, self.layer.row, lambda b, j: self.element(iteration, b, j)),
        )

    def element(self, iteration: Expr, b: Expr, j: Expr) -> Body:
        """Emit the results and the new states of one element in a step."""
        layer, cell = self.layer, self.layer.cell
        previous = self.name("before", Load(layer.dtype, self.cell.name, (b, j)))

        def gate(name: str) -> Expr:
            column = cell.column(name, j)
            product = Load(layer.dtype, self.gates.name, (iteration, b, column))
            return cell.biased(name, product, self.load(layer.bias, column))

        def sees(name: str, state: Expr, kind: int) -> Expr:
            weight = self.load(layer.peepholes[kind], j)
            return self.name(name, sigmoid(cell.seen(gate(name), state, weight)))

        i, f = sees("i", previous, 0), sees("f", previous, 1)
        ci = self.name("ci", apply("tanh", gate("c")))
        cs = self.name("cs", cell.new(i, f, ci, previous))
        o = sees("o", cs, 2)
        co = self.name("co", apply("tanh", cs))
        h = self.name("h", mul(co, o))
        lets, self.lets = tuple(self.lets), []
        return (
            *lets,
            *[
                Store(self.results.name, (iteration, index(position), b, j), value)
                for position, value in enumerate((i, cs, f, o, ci, co, h))
            ],
            Store(self.cell.name, (b, j), cs),
            Store(self.state.name, (b, j), h),
        )


@lowers("BlockLSTMGrad", "BlockLSTMGradV2")
def _lstm_grad(op: Operation) -> list[Value]:
    layer = _Layer(op, op.node.type.replace("Grad", ""))
    saved = op.inputs[9:]
    shape = (layer.steps, *layer.row)
    require(all(item.shape == shape for item in saved), "the shapes of its operands do not match")
    *values, cs_grad, h_grad = [widen(op.name, item) for item in saved]
    backward = _Backward(layer, [*map(_forward_result, values)], cs_grad, h_grad)
    rows, cell = backward.value(), layer.cell

    def state(name: str, kind: int) -> Value:
        return compute_value(
            f"{op.name}_{name}",
            layer.dtype,
            layer.row,
            lambda b, j: rows.at(layer.steps, b, plus(j, kind * layer.width)),
        )

    def gate(name: str) -> Value:
        return compute_value(
            f"{op.name}_to_{name}",
            layer.dtype,
            shape,
            lambda t, b, j: rows.at(t, b, cell.column(name, j)),
        )

    cells = layer.zero_beyond(values[1])
    previous = layer.zero_beyond(_previous_states(f"{op.name}_before", layer.cs_prev, cells))
    flows = [(gate("i"), previous), (gate("f"), previous), (gate("o"), cells)]
    by_peepholes = [
        by_peephole(f"{op.name}_{position}", cell, *flow) for position, flow in enumerate(flows)
    ]
    all_steps = compute_value(
        f"{op.name}_rows", layer.dtype, (layer.steps, layer.batch, 4 * layer.width), rows.at
    )
    by_bias = reduce(f"{op.name}_b", all_steps, [0, 1], "add")
    by_x = layer.zero_beyond(_by_inputs(layer, rows))
    by_w = _by_weights(layer, rows, values[6])
    states = [state("cs", 0), state("h", 1)]
    return results(op, [by_x, *states, by_w, *by_peepholes, by_bias])


def _previous_states(name: str, first: Value, values: Value) -> Value:
    """Return the states before each step."""

    def element(t: Expr, *position: Expr) -> Expr:
        earlier = values.at(clamp_index(minus(t, 1), values.shape[0]), *position)
        return where(apply("equal", t, index(0)), first.at(*position), earlier)

    return compute_value(name, values.dtype, values.shape, element)


def _by_inputs(layer: _Layer, rows: Value) -> Value:
    """Return the gradient with respect to the inputs of all steps."""
    n, k = layer.depth, 4 * layer.width

    def write(unique: Unique, result: Buffer, gates: Buffer, w: Buffer) -> Sequence[Statement]:
        views = (
            load(gates, rows.shape, [0, 0, 0]),
            load(w, layer.w.shape, [0, 0]),
            load(result, layer.x.shape, [0, 0, 0]),
        )
        product = _product(views, (layer.steps * layer.batch, n, k), (k, 1), (1, k))
        return product or fill(unique, result, number(0, layer.dtype))

    written = StatementDefinition((rows, layer.w), write)
    return Value(f"{layer.name}_x", layer.dtype, layer.x.shape, written)


def _by_weights(layer: _Layer, rows: Value, states: Value) -> Value:
    """Return the gradient of the weights, of inputs and of the states before the steps."""
    x, text = layer.zero_beyond(layer.x), layer.zero_beyond(states)
    first = layer.zero_beyond(_as_step(layer.h_prev))
    n, depth, width, batch = 4 * layer.width, layer.depth, layer.width, layer.batch
    steps, operands = layer.steps, (rows, x, first, text)

    def write(unique: Unique, result: Buffer, *buffers: Buffer) -> Sequence[Statement]:
        memory = dict(zip(operands, buffers, strict=True))

        def product(a: Load, column: int, step: int, sizes: tuple[int, int], adds: bool) -> Body:
            m, k = sizes
            b = load(memory[rows], rows.shape, [step, 0, 0])
            c = load(result, layer.w.shape, [column, 0])
            return _product((a, b, c), (m, n, k), (1, m), (n, 1), adds)

        if not steps * batch:
            return fill(unique, result, number(0, layer.dtype))
        of_x, of_first, of_shown = (
            load(memory[item], item.shape, [0, 0, 0]) for item in (x, first, text)
        )
        body = [
            *product(of_x, 0, 0, (depth, steps * batch), False),
            *product(of_first, depth, 0, (width, batch), False),
        ]
        if steps > 1:
            body += product(of_shown, depth, 1, (width, (steps - 1) * batch), True)
        return body

    return Value(
        f"{layer.name}_w", layer.dtype, layer.w.shape, StatementDefinition(operands, write)
    )


def _as_step(first: Value) -> Value:
    """Return the initial state with a step axis of size 1 prepended."""
    shape = (1, *first.shape)
    return move_elements(
        f"{first.name}_step", first, shape, lambda _, *position: position, dense=True
    )


class _Backward:
    """Writer of the backward pass through the steps of a layer.

    Its value has the shape (steps + 1, batch, 4 * width). It contains the gradients of the gates of
    each step, followed by those of the initial cell and the initial state, side by side.

    Args:
      values: i, cs, f, o, ci, co, h of all steps.
      cs_grad, h_grad: the gradients of cells and states.
    """

    def __init__(
        self, layer: _Layer, values: Sequence[_ForwardResult], cs_grad: Value, h_grad: Value
    ) -> None:
        self.layer, self.values = layer, dict(zip(_GATES, values, strict=True))
        self.cs_grad, self.h_grad = cs_grad, h_grad

    def value(self) -> Value:
        """Return the gradients as a value."""
        layer = self.layer
        shape = (layer.steps + 1, layer.batch, 4 * layer.width)
        forward_values = [value.value for name, value in self.values.items() if name != "h"]
        operands = list(
            dict.fromkeys([*layer.operands, *forward_values, self.cs_grad, self.h_grad])
        )

        def write(unique: Unique, rows: Buffer, *buffers: Buffer) -> Sequence[Statement]:
            if 0 in shape:
                return ()
            return self.body(unique, rows, dict(zip(operands, buffers, strict=True)))

        value = Value(
            f"{layer.name}_gates", layer.dtype, shape, StatementDefinition(operands, write)
        )
        value.requires = layer.requirements()
        return value

    def body(self, unique: Unique, rows: Buffer, memory: dict[Value, Buffer]) -> Body:
        """Emit the steps in reverse order."""
        layer, zero = self.layer, number(0, self.layer.dtype)
        states = tuple([Buffer(unique(name), layer.dtype, layer.row) for name in ("cell", "state")])
        iteration, position = (Variable(INDEX, unique(name)) for name in ("turn", "step"))
        n = 4 * layer.width

        def element(b: Expr, j: Expr) -> Body:
            return _Element(self, unique, states, memory).body(rows, (position, b, j))

        def begin(b: Expr, j: Expr) -> Body:
            return tuple([Store(state.name, (b, j), zero) for state in states])

        def end(b: Expr, j: Expr) -> Body:
            lasts = [Load(state.dtype, state.name, (b, j)) for state in states]
            return tuple(
                [
                    Store(rows.name, (index(layer.steps), b, plus(j, k * layer.width)), value)
                    for k, value in enumerate((*lasts, zero, zero))
                ]
            )

        views = (
            Load(rows.dtype, rows.name, (position, index(0), index(0))),
            load(memory[layer.w], layer.w.shape, [layer.depth, 0]),
            Load(states[1].dtype, states[1].name, (index(0), index(0))),
        )
        backpropagation = _product(views, (layer.batch, layer.width, n), (n, 1), (1, n))
        statements = (*nest(unique, layer.row, element), *backpropagation)
        overflow = nest(
            unique, (layer.batch, n), lambda b, j: (Store(rows.name, (position, b, j), zero),)
        )
        # Clamped so that bounds can be proven if the number of steps varies.
        step = Let(
            position.name, clamp_index(minus(layer.steps - 1, iteration), max(layer.steps, 1))
        )
        iterations = (step, *layer.emit_guarded(position, memory, statements, overflow))
        return (
            *map(Allocate, states),
            *nest(unique, layer.row, begin),
            *([For(iteration.name, index(layer.steps), iterations)] if layer.steps else []),
            *nest(unique, layer.row, end),
        )


class _Element(_Writer):
    """Writer of the gradients of the gates of one element of a step, and of the cell before it."""

    def __init__(
        self,
        backward: _Backward,
        unique: Unique,
        states: Sequence[Buffer],
        memory: dict[Value, Buffer],
    ) -> None:
        super().__init__(unique, memory)
        self.backward, self.states = backward, states

    def before(self, step: Expr, b: Expr, j: Expr) -> Expr:
        """Return the value of the cell before a step."""
        layer, earlier = self.backward.layer, clamp_index(minus(step, 1), self.backward.layer.steps)
        first = apply("equal", step, index(0))
        earlier_cell = self.backward.values["cs"].at(self.memory, earlier, b, j)
        return where(first, self.load(layer.cs_prev, b, j), earlier_cell)

    def body(self, rows: Buffer, position: tuple[Expr, Expr, Expr]) -> Body:
        """Return all statements for the element."""
        layer, cell, (step, b, j) = self.backward.layer, self.backward.layer.cell, position
        i, f, o, ci, co = (
            self.name(gate, self.backward.values[gate].at(self.memory, *position))
            for gate in ("i", "f", "o", "ci", "co")
        )
        flow = CellGradient(
            cell, (i, f, o, ci, co), [self.load(peephole, j) for peephole in layer.peepholes]
        )
        by_cs, by_h = (Load(state.dtype, state.name, (b, j)) for state in self.states)
        h = self.name("h", add(by_h, self.load(self.backward.h_grad, *position)))
        cs = add(by_cs, self.load(self.backward.cs_grad, *position))
        gates = {"o": self.name("to_o", flow.to_o(h))}
        to_cs = self.name("to_cs", flow.to_cell(cs, h, gates["o"]))
        previous = self.name("before", self.before(step, b, j))
        gates |= {gate: self.name("to", flow.to_gate(gate, to_cs, previous)) for gate in "icf"}
        to_previous = self.name("kept", flow.to_before(to_cs, gates["i"], gates["f"]))
        return (
            *self.lets,
            *[
                Store(rows.name, (step, b, cell.column(gate, j)), value)
                for gate, value in gates.items()
            ],
            Store(self.states[0].name, (b, j), to_previous),
        )
