"""Cells of block LSTMs and the block GRU, and their gradients.

A cell is a product followed by elementwise work. Narrow types are computed in float32 throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from weft_compiler.ir.expressions import Expr, add, apply, index, mul, number, where
from weft_compiler.ir.indices import clamp_index, minus, plus
from weft_compiler.lower.precision import round_to, widen
from weft_compiler.lower.registry import Operation, lowers, require
from weft_compiler.lower.rules.matmul import product_of
from weft_compiler.lower.rules.reduction import reduce
from weft_compiler.lower.values import Value, compute_value

_ORDER: Final = {"LSTMBlockCell": "icfo", "BlockLSTM": "icfo", "BlockLSTMV2": "ifco"}
"""The order of the gates; c is the cell input."""


def _one_minus(x: Expr) -> Expr:
    """Return 1 - x."""
    return apply("sub", number(1, x.dtype), x)


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + exp(-x))."""
    one = number(1, x.dtype)
    return apply("div", one, add(one, apply("exp", apply("neg", x))))


def _sigmoid_derivative(gate: Expr) -> Expr:
    """Return the derivative of a sigmoid from the sigmoid's value."""
    return mul(gate, _one_minus(gate))


def _widen_operands(op: Operation) -> list[Value]:
    """Return the operands, converted to float32 if they are narrower."""
    return [widen(op.name, x) for x in op.inputs]


def _side_by_side(name: str, x: Value, h: Value) -> Value:
    """Concatenate the rows of two matrices."""
    depth, width = x.shape[1], h.shape[1]
    if not depth or not width:
        return h if width else x

    def element(b: Expr, j: Expr) -> Expr:
        of_x = x.at(b, clamp_index(j, depth))
        of_h = h.at(b, clamp_index(minus(j, depth), width))
        return where(apply("less", j, index(depth)), of_x, of_h)

    return compute_value(f"{name}_rows", x.dtype, (x.shape[0], depth + width), element)


def results(op: Operation, values: Sequence[Value]) -> list[Value]:
    """Convert results to the element type of an op."""
    return [round_to(op.name, value, op.dtype()) for value in values]


# ------------------------------------------------------------------------------------ cells


@dataclass(frozen=True, slots=True)
class Cell:
    """The parameters of an LSTM cell.

    Attributes:
      order: the order of the gates.
      width: the size of a state.
      sees: True if the cell has peepholes wci, wcf and wco.
      forget, clip: the attributes `forget_bias` and `cell_clip` of the op.
    """

    order: str
    width: int
    sees: bool
    forget: float = 0.0
    clip: float = 0.0

    @classmethod
    def of(cls, op: Operation, kind: str, width: int) -> Cell:
        """Return the cell of an op.

        Args:
          kind: the type of the op, or of the forward op if it is a gradient.
        """
        attrs = op.node.attrs
        forget, clip = float(attrs.get("forget_bias", 0)), float(attrs.get("cell_clip", 0))
        return cls(_ORDER[kind], width, bool(attrs["use_peephole"]), forget, clip)

    def column(self, gate: str, j: Expr) -> Expr:
        """Return the column of a gate's element."""
        return plus(j, self.order.index(gate) * self.width)

    def biased(self, gate: str, product: Expr, bias: Expr) -> Expr:
        """Return a gate with its bias, including the forget bias."""
        has_forget_bias = gate == "f" and self.forget
        return add(product, add(bias, number(self.forget, bias.dtype)) if has_forget_bias else bias)

    def seen(self, gate: Expr, cell: Expr, weight: Expr) -> Expr:
        """Return a gate plus its peephole term; without peepholes, the gate itself."""
        return add(gate, mul(cell, weight)) if self.sees else gate

    def new(self, i: Expr, f: Expr, ci: Expr, previous: Expr) -> Expr:
        """Return the value of the cell after a step."""
        cell = add(mul(ci, i), mul(previous, f))
        if not self.clip > 0:
            return cell
        high, low = number(self.clip, cell.dtype), number(-self.clip, cell.dtype)
        return apply("maximum", apply("minimum", cell, high), low)


@dataclass(frozen=True, slots=True)
class CellGradient:
    """The backward pass of an LSTM step, for one element.

    Attributes:
      cell: the parameters of the cell.
      step: forward results of the step: i, f, o, ci and co.
      weights: elements of wci, wcf and wco.
    """

    cell: Cell
    step: tuple[Expr, Expr, Expr, Expr, Expr]
    weights: Sequence[Expr]

    def to_o(self, h: Expr) -> Expr:
        """Return the gradient of the output gate."""
        _, _, o, _, co = self.step
        return mul(h, mul(_sigmoid_derivative(o), co))

    def to_cell(self, cs: Expr, h: Expr, to_o: Expr) -> Expr:
        """Return the gradient of the cell after the step."""
        _, _, o, _, co = self.step
        from_output = mul(h, mul(_one_minus(mul(co, co)), o))
        return self.cell.seen(add(cs, from_output), to_o, self.weights[2])

    def to_gate(self, gate: str, to_cs: Expr, previous: Expr) -> Expr:
        """Return the gradient of a gate from the gradient of the cell after the step."""
        i, f, _, ci, _ = self.step
        if gate == "f":
            return mul(mul(_sigmoid_derivative(f), previous), to_cs)
        return mul(
            mul(_sigmoid_derivative(i), ci) if gate == "i" else mul(_one_minus(mul(ci, ci)), i),
            to_cs,
        )

    def to_before(self, to_cs: Expr, to_i: Expr, to_f: Expr) -> Expr:
        """Return the gradient of the cell before the step."""
        total = mul(to_cs, self.step[1])
        for gate, weight in zip((to_i, to_f), self.weights[:2], strict=True):
            total = self.cell.seen(total, gate, weight)
        return total


@lowers("LSTMBlockCell")
def _lstm_cell(op: Operation) -> list[Value]:
    x, cs_prev, h_prev, w, wci, wcf, wco, bias = _widen_operands(op)
    shape, cell = h_prev.shape, Cell.of(op, op.node.type, h_prev.shape[1])
    rows = _side_by_side(op.name, x, h_prev)
    gates = product_of(f"{op.name}_gates", rows, w, (shape[0], 4 * shape[1]))

    def gate(name: str, b: Expr, j: Expr) -> Expr:
        column = cell.column(name, j)
        return cell.biased(name, gates.at(b, column), bias.at(column))

    def sees(name: str, state: Value, weight: Value) -> Value:
        def element(b: Expr, j: Expr) -> Expr:
            return sigmoid(cell.seen(gate(name, b, j), state.at(b, j), weight.at(j)))

        return value(name, element)

    def value(name: str, element: Callable[..., Expr]) -> Value:
        return compute_value(f"{op.name}_{name}", x.dtype, shape, element)

    i, f = sees("i", cs_prev, wci), sees("f", cs_prev, wcf)
    ci = value("ci", lambda *position: apply("tanh", gate("c", *position)))
    operands = (i, f, ci, cs_prev)
    cs = value("cs", lambda *position: cell.new(*[item.at(*position) for item in operands]))
    o = sees("o", cs, wco)
    co = value("co", lambda *position: apply("tanh", cs.at(*position)))
    h = value("h", lambda *position: mul(co.at(*position), o.at(*position)))
    return results(op, [i, cs, f, o, ci, co, h])


@lowers("LSTMBlockCellGrad")
def _lstm_cell_grad(op: Operation) -> list[Value]:
    _, cs_prev, h_prev, _, *weights, _, i, cs, f, o, ci, co, cs_grad, h_grad = _widen_operands(op)
    shape, cell = h_prev.shape, Cell.of(op, "LSTMBlockCell", h_prev.shape[1])
    require(
        all(item.shape == shape for item in (i, cs, f, o, ci, co)),
        "the shapes of its operands do not match",
    )

    def flow(*position: Expr) -> CellGradient:
        step = (
            i.at(*position),
            f.at(*position),
            o.at(*position),
            ci.at(*position),
            co.at(*position),
        )
        return CellGradient(cell, step, [weight.at(position[-1]) for weight in weights])

    def value(name: str, element: Callable[..., Expr]) -> Value:
        return compute_value(f"{op.name}_{name}", h_prev.dtype, shape, element)

    def to_gate(gate: str) -> Value:
        return value(
            f"to_{gate}",
            lambda *position: flow(*position).to_gate(
                gate, to_cs.at(*position), cs_prev.at(*position)
            ),
        )

    def to_cell(*position: Expr) -> Expr:
        return flow(*position).to_cell(
            cs_grad.at(*position), h_grad.at(*position), gates["o"].at(*position)
        )

    gates = {"o": value("to_o", lambda *position: flow(*position).to_o(h_grad.at(*position)))}
    to_cs = value("to_cs", to_cell)
    gates |= {gate: to_gate(gate) for gate in "icf"}

    def to_before(*position: Expr) -> Expr:
        return flow(*position).to_before(
            to_cs.at(*position), gates["i"].at(*position), gates["f"].at(*position)
        )

    def all_gates(b: Expr, j: Expr) -> Expr:
        width = shape[1]
        *earlier_gates, result = [
            gates[gate].at(b, clamp_index(minus(j, position * width), width))
            for position, gate in enumerate(cell.order)
        ]
        for position, earlier_gate in reversed(list(enumerate(earlier_gates))):
            result = where(apply("less", j, index((position + 1) * width)), earlier_gate, result)
        return result

    joined = compute_value(f"{op.name}_gates", h_prev.dtype, (shape[0], 4 * shape[1]), all_gates)
    flows = [(gates["i"], cs_prev), (gates["f"], cs_prev), (gates["o"], cs)]
    by_weights = [
        by_peephole(f"{op.name}_{position}", cell, *flow) for position, flow in enumerate(flows)
    ]
    return results(op, [value("before", to_before), joined, *by_weights])


def by_peephole(name: str, cell: Cell, gate: Value, state: Value) -> Value:
    """Return the gradient of a gate's peephole weights: a sum over all axes except the last."""
    if not cell.sees:
        return compute_value(name, gate.dtype, (cell.width,), lambda _: number(0, gate.dtype))
    terms = compute_value(
        f"{name}_terms",
        gate.dtype,
        gate.shape,
        lambda *position: mul(gate.at(*position), state.at(*position)),
    )
    return reduce(name, terms, list(range(gate.rank - 1)), "add")


@lowers("GRUBlockCell")
def _gru_cell(op: Operation) -> list[Value]:
    x, h, w_ru, w_c, b_ru, b_c = _widen_operands(op)
    batch, width = h.shape

    def value(name: str, element: Callable[..., Expr]) -> Value:
        return compute_value(f"{op.name}_{name}", x.dtype, h.shape, element)

    inputs = _side_by_side(op.name, x, h)
    gates = product_of(f"{op.name}_gates", inputs, w_ru, (batch, 2 * width))

    def gate(position: int, b: Expr, j: Expr) -> Expr:
        column = plus(j, position * width)
        return sigmoid(add(gates.at(b, column), b_ru.at(column)))

    r, u = (
        value(name, lambda b, j, position=position: gate(position, b, j))
        for position, name in enumerate("ru")
    )
    reset = value("reset", lambda *position: mul(h.at(*position), r.at(*position)))
    reset_inputs = _side_by_side(f"{op.name}_reset", x, reset)
    entry = product_of(f"{op.name}_entry", reset_inputs, w_c, h.shape)
    c = value("c", lambda b, j: apply("tanh", add(entry.at(b, j), b_c.at(j))))

    def new(*position: Expr) -> Expr:
        return add(
            mul(apply("sub", h.at(*position), c.at(*position)), u.at(*position)), c.at(*position)
        )

    return results(op, [r, u, c, value("h", new)])


@lowers("GRUBlockCellGrad")
def _gru_cell_grad(op: Operation) -> list[Value]:
    x, h, w_ru, w_c, _, _, r, u, c, d_h = _widen_operands(op)
    require(
        all(item.shape == h.shape for item in (r, u, c, d_h)),
        "the shapes of its operands do not match",
    )
    (batch, width), depth = h.shape, x.shape[1]
    rows = depth + width

    def to_c(*position: Expr) -> Expr:
        new = c.at(*position)
        return mul(d_h.at(*position), _one_minus(u.at(*position)), _one_minus(mul(new, new)))

    d_c = compute_value(f"{op.name}_c", h.dtype, h.shape, to_c)
    inner = product_of(f"{op.name}_inner", d_c, w_c, (batch, rows), transpose_b=True)

    def to_gates(b: Expr, j: Expr) -> Expr:
        first, second = (b, clamp_index(j, width)), (b, clamp_index(minus(j, width), width))
        to_reset = inner.at(b, plus(depth, first[1]))
        by_r = mul(mul(to_reset, h.at(*first)), _sigmoid_derivative(r.at(*first)))
        change = apply("sub", h.at(*second), c.at(*second))
        by_u = mul(mul(d_h.at(*second), change), _sigmoid_derivative(u.at(*second)))
        return where(apply("less", j, index(width)), by_r, by_u)

    d_gates = compute_value(f"{op.name}_gates", h.dtype, (batch, 2 * width), to_gates)
    outer = product_of(f"{op.name}_outer", d_gates, w_ru, (batch, rows), transpose_b=True)
    d_x = compute_value(
        f"{op.name}_x", h.dtype, x.shape, lambda b, j: add(inner.at(b, j), outer.at(b, j))
    )

    def to_h(b: Expr, j: Expr) -> Expr:
        column = plus(depth, j)
        direct = mul(d_h.at(b, j), u.at(b, j))
        return add(direct, mul(inner.at(b, column), r.at(b, j)), outer.at(b, column))

    return results(op, [d_x, compute_value(f"{op.name}_h", h.dtype, h.shape, to_h), d_c, d_gates])
