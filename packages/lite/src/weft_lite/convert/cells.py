"""Fusion of recurrent cells (LSTM and GRU) that graphs express in small ops.

It runs after the fusion of biases into products. Ops that only the cell reads are removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from weft_lite.convert.lowered import Lowered, Operation, Value, constant
from weft_lite.schema.enums import Activation, DataType, OpKind
from weft_lite.schema.tables import CellOptions

Pair = tuple[Value, Value]


class Product(NamedTuple):
    """A product of weights with the concatenation of two values."""

    x: Value
    h: Value
    weights: Value
    bias: Value


class _Cells:
    """Finds cells in a graph."""

    def __init__(self, graph: Lowered) -> None:
        self._graph = graph
        self._makers = {value: op for op in graph.ops for value in op.outputs}

    def find_producer(self, value: Value | None, kind: OpKind) -> Operation | None:
        """Return the producer of a value if it has this kind and no activation; otherwise None."""
        op = self._makers.get(value) if value is not None else None
        if op is None or op.kind is not kind:
            return None
        plain = getattr(op.options, "activation", Activation.NONE) == Activation.NONE
        return op if plain else None

    def operands(self, value: Value | None, kind: OpKind) -> Iterator[Pair]:
        """Yield the two operands of a value's producer in both orders."""
        op = self.find_producer(value, kind)
        if op is not None and len(op.inputs) == 2:
            a, b = op.inputs
            if a is not None and b is not None:
                yield a, b
                yield b, a

    def operand(self, value: Value | None, kind: OpKind) -> Value | None:
        """Return the operand of a value's producer."""
        op = self.find_producer(value, kind)
        return op.inputs[0] if op is not None else None

    def product(self, value: Value | None) -> Product | None:
        """Return the product that computes a value."""
        op = self.find_producer(value, OpKind.FullyConnected)
        joined = self.find_producer(op.inputs[0], OpKind.Concat) if op is not None else None
        if op is None or joined is None or len(joined.inputs) != 2:
            return None
        (x, h), weights = joined.inputs, op.inputs[1]
        if x is None or h is None or weights is None or weights.array is None:
            return None
        if len(x.shape) != 2 or len(h.shape) != 2 or joined.options.axis not in (1, -1):
            return None
        bias = op.inputs[2] if len(op.inputs) > 2 else None
        if bias is None:
            columns = op.outputs[0].shape[1]
            bias = constant(f"{op.name}/zeros", np.zeros(columns, np.float32))
        return Product(x, h, weights, bias)

    def split(self, values: list[Value | None]) -> Value | None:
        """Return the value that is split along its columns into exactly these values."""
        op = self._makers.get(values[0]) if values[0] is not None else None
        if op is None or op.kind is not OpKind.Split or list(op.outputs) != values:
            return None
        widths = {value.shape[-1] for value in op.outputs}
        return op.inputs[0] if len(widths) == 1 and op.options.axis in (1, -1) else None

    # ------------------------------------------------------------------ LSTM

    def lstm(self, op: Operation) -> tuple[Operation, Operation] | None:
        """Return the LSTM cell that computes the last result of an op, and the replaced op."""
        for squashed, gate in self.operands(op.outputs[0], OpKind.Mul):
            c_next = self.operand(squashed, OpKind.Tanh)
            o = self.operand(gate, OpKind.Sigmoid)
            for remembered, fresh in self.operands(c_next, OpKind.Add):
                for c, f, forget in self._find_memory(remembered):
                    for i, j in self._fresh(fresh):
                        lstm = self._lstm(op, (i, j, f, o), c, forget, c_next)
                        if lstm is not None:
                            return lstm, self._makers[lstm.outputs[0]]
        return None

    def _find_memory(self, value: Value) -> Iterator[tuple[Value, Value, float]]:
        """Match c * sigmoid(f + forget); return c, f and forget."""
        for c, gate in self.operands(value, OpKind.Mul):
            f = self.operand(gate, OpKind.Sigmoid)
            if f is None:
                continue
            yield c, f, 0.0
            for inner, bias in self.operands(f, OpKind.Add):
                if bias.array is not None and bias.array.size == 1:
                    yield c, inner, float(bias.array.item())

    def _fresh(self, value: Value) -> Iterator[Pair]:
        """Match sigmoid(i) * tanh(j); return i and j."""
        for gate, new in self.operands(value, OpKind.Mul):
            i, j = self.operand(gate, OpKind.Sigmoid), self.operand(new, OpKind.Tanh)
            if i is not None and j is not None:
                yield i, j

    def _lstm(
        self,
        op: Operation,
        gates: tuple[Value | None, ...],
        c: Value,
        forget: float,
        c_next: Value | None,
    ) -> Operation | None:
        """Return the LSTM cell of matched gates and states, or None if shapes differ."""
        product = self.product(self.split(list(gates)))
        if (
            product is None
            or c_next is None
            or not _same_shape(c, product.h, c_next, op.outputs[0])
        ):
            return None
        inputs = [product.x, c, product.h, product.weights, product.bias]
        return Operation(
            OpKind.LstmCell, [*inputs], [c_next, op.outputs[0]], CellOptions(forget), op.name
        )

    # ------------------------------------------------------------------ GRU

    def gru(self, op: Operation) -> tuple[Operation, Operation] | None:
        """Return the GRU cell that computes the result of an op, and the replaced op."""
        for remembered, fresh in self.operands(op.outputs[0], OpKind.Add):
            for u, h in self.operands(remembered, OpKind.Mul):
                for remaining, new in self.operands(fresh, OpKind.Mul):
                    gru = self._gru(op, u, h, remaining, new)
                    if gru is not None:
                        return gru, op
        return None

    def _gru(
        self, op: Operation, u: Value, h: Value, remaining: Value, new: Value
    ) -> Operation | None:
        """Return the GRU cell of matched gates and states, or None."""
        other = self.find_producer(remaining, OpKind.Sub)
        if other is None or other.inputs[1] is not u or not _is_one(other.inputs[0]):
            return None
        second = self.product(self.operand(new, OpKind.Tanh))
        if second is None:
            return None
        for r, state in self.operands(second.h, OpKind.Mul):
            first = self.product(self.operand(self.split([r, u]), OpKind.Sigmoid))
            if (
                state is h
                and first is not None
                and first.h is h
                and first.x is second.x
                and _same_shape(h, op.outputs[0])
            ):
                inputs = [first.x, h, first.weights, first.bias, second.weights, second.bias]
                return Operation(OpKind.GruCell, [*inputs], [op.outputs[0]], CellOptions(), op.name)
        return None


def _same_shape(first: Value, *others: Value) -> bool:
    """Return True if all values are float32 and have the same shape."""
    return all(
        other.shape == first.shape and other.dtype is DataType.FLOAT32 for other in (first, *others)
    )


def _is_one(value: Value | None) -> bool:
    """Return True if a value is a constant whose elements are all 1."""
    return value is not None and value.array is not None and bool((value.array == 1).all())


def join_cells(graph: Lowered) -> int:
    """Replace unrolled recurrent cells by cell ops; return their number."""
    cells, joined = _Cells(graph), 0
    for op in list(graph.ops):
        if len(op.outputs) != 1 or op.kind not in (OpKind.Mul, OpKind.Add):
            continue
        lstm = cells.lstm(op) if op.kind is OpKind.Mul else cells.gru(op)
        if lstm is None:
            continue
        cell, position = lstm
        graph.ops[graph.ops.index(position)] = cell
        if position is not op:
            graph.ops.remove(op)
        joined += 1
    return joined
