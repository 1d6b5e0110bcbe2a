"""Scatter ops: slices stored at indices or combined with old values, also in variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft_compiler.ir.expressions import INDEX, Expr, Load, Variable, apply, cast, number
from weft_compiler.ir.indices import Operand, clamp_index
from weft_compiler.ir.loops import Unique, fill, load, nest
from weft_compiler.ir.program import Body, Buffer, Let, Statement, Store
from weft_compiler.lower.precision import NARROW, round_to, widen
from weft_compiler.lower.registry import Operation, changes_rows, lowers, require
from weft_compiler.lower.rules.gather import points_in_range, require_in_range
from weft_compiler.lower.values import PartialUpdate, ScatterUpdate, StatementDefinition, Value
from weft_graph.ir.node import Node
from weft_tensor.dtypes import DType

_PRIMITIVES: Final = {
    "Update": "",
    "Add": "add",
    "Sub": "sub",
    "Mul": "mul",
    "Div": "div",
    "Min": "minimum",
    "Max": "maximum",
}
_COMBINES: Final = ("add", "mul", "minimum", "maximum", "bit_or")
"""Combiners whose result does not depend on the order of updates."""


class _Scatter:
    """Slices that are scattered one after the other, so that repeated indices accumulate.

    Args:
      x: the tensor.
      indices: indices of its rows; if `depth` is set, coordinates along a last axis of that size.
      updates: a slice for each index, or one scalar for all.
    """

    def __init__(
        self, x: Value, indices: Value, updates: Value, primitive: str, depth: int | None
    ) -> None:
        self._shape, self._dtype = x.shape, x.dtype
        self._indices, self._updates, self._depth = indices, updates, depth
        self._primitive = primitive
        self._lead = indices.shape if depth is None else indices.shape[:-1]
        self._inner = x.shape[depth or (1 if depth is None else 0) :]
        require(bool(x.shape), "the tensor is a scalar")
        expected = (*self._lead, *self._inner)
        scalar = depth is None and updates.shape == ()
        require(
            scalar or updates.shape == expected, "the shapes of updates and indices do not match"
        )

    def statements(
        self, unique: Unique, target: Buffer, indices: Buffer, updates: Buffer
    ) -> Sequence[Statement]:
        """Return the loops.

        The arguments are the buffers of the tensor, the indices and the updates.
        """
        columns = range(1 if self._depth is None else self._depth)
        if 0 in self._shape:
            return ()

        def slice_at(*index: Expr) -> Body:
            lets = []
            for axis in columns:
                position: Sequence[Operand] = index if self._depth is None else (*index, axis)
                unclamped = cast(load(indices, self._indices.shape, position), INDEX)
                lets.append(Let(unique("place"), clamp_index(unclamped, self._shape[axis])))
            places = [Variable(INDEX, item.name) for item in lets]

            def element(*remaining: Expr) -> Body:
                update_index = (*index, *remaining) if self._updates.shape else ()
                value = load(updates, self._updates.shape, update_index)
                return (self._store(target, (*places, *remaining), value),)

            return (*lets, *nest(unique, self._inner, element))

        return nest(unique, self._lead, slice_at)

    def _store(self, target: Buffer, index: tuple[Expr, ...], value: Expr) -> Store:
        if self._primitive in _COMBINES:
            return Store(target.name, index, value, self._primitive)
        if self._primitive:
            value = apply(self._primitive, Load(self._dtype, target.name, index), value)
        return Store(target.name, index, value)

    def requires(self, value: Value) -> Value:
        """Add the requirement that all indices are in range to a value."""
        if self._depth is None:
            value.requires = (require_in_range(self._indices, self._shape[0]),)
        else:
            value.requires = points_in_range(self._indices, self._shape[: self._depth])
        return value


def _rounds(dtype: DType, primitive: str) -> str:
    return f"slices of {dtype.name} cannot be combined" if primitive and dtype in NARROW else ""


def _primitive_of(node: Node) -> str:
    return _PRIMITIVES[node.type.split("Scatter")[1].removeprefix("Nd")]


def _kernel_reason(node: Node) -> str:
    dtype, primitive = node.inputs[2].dtype.base_dtype, _primitive_of(node)
    if primitive == "div" and dtype.is_integer:
        return "it may divide integers by 0, which only its kernel detects"
    return _rounds(dtype, primitive)


@changes_rows(
    *[f"{kind}Scatter{suffix}" for kind in ("", "Resource") for suffix in _PRIMITIVES],
    by_kernel=_kernel_reason,
)
def _scatter_rows(node: Node, operands: Sequence[Value]) -> Sequence[Value]:
    return _update_variable(node, operands, None)


@changes_rows(
    *[
        f"{kind}ScatterNd{suffix}"
        for kind in ("", "Resource")
        for suffix in ("Update", "Add", "Sub")
    ],
    by_kernel=_kernel_reason,
)
def _scatter_points(node: Node, operands: Sequence[Value]) -> Sequence[Value]:
    return _update_variable(node, operands, operands[1].shape[-1])


def _update_variable(node: Node, operands: Sequence[Value], depth: int | None) -> Sequence[Value]:
    """Return the updated variable; its memory contains the old value when the loops start."""
    old, indices, updates = operands
    scatter = _Scatter(old, indices, updates, _primitive_of(node), depth)

    def write(unique: Unique, states: Sequence[Buffer], *remaining: Buffer) -> Sequence[Statement]:
        return scatter.statements(unique, states[0], *remaining)

    change = PartialUpdate((old,), (indices, updates), write)
    return [
        scatter.requires(Value(f"{old.name}_new", old.dtype, old.shape, ScatterUpdate(change, 0)))
    ]


_TENSOR: Final = {
    "TensorScatterUpdate": "",
    "TensorScatterAdd": "add",
    "ScatterNdNonAliasingAdd": "add",
    "TensorScatterSub": "sub",
    "TensorScatterMax": "maximum",
    "TensorScatterMin": "minimum",
}


@lowers(*_TENSOR)
def _tensor_scatter(op: Operation) -> Value:
    (x, indices, updates), primitive = op.inputs, _TENSOR[op.node.type]
    if primitive:
        x, updates = widen(op.name, x), widen(op.name, updates)
    scatter = _Scatter(x, indices, updates, primitive, indices.shape[-1])

    def write(
        unique: Unique, result: Buffer, old: Buffer, *remaining: Buffer
    ) -> Sequence[Statement]:
        def copy(*index: Expr) -> Body:
            return (Store(result.name, index, load(old, x.shape, index)),)

        return (*nest(unique, x.shape, copy), *scatter.statements(unique, result, *remaining))

    written = StatementDefinition((x, indices, updates), write)
    requires = scatter.requires(Value(op.name, x.dtype, x.shape, written))
    return round_to(op.name, requires, op.dtype())


@lowers("ScatterNd", known_operands=(2,))
def _scatter_nd(op: Operation) -> Value:
    indices, updates = op.inputs[0], widen(op.name, op.inputs[1])
    dtype = updates.dtype
    empty = Value(op.name, dtype, op.shape())
    primitive = "bit_or" if dtype.is_bool else "add"
    scatter = _Scatter(empty, indices, updates, primitive, indices.shape[-1])

    def write(unique: Unique, result: Buffer, *remaining: Buffer) -> Sequence[Statement]:
        start = fill(unique, result, number(0, dtype))
        return (*start, *scatter.statements(unique, result, *remaining))

    value = Value(op.name, dtype, op.shape(), StatementDefinition((indices, updates), write))
    return round_to(op.name, scatter.requires(value), op.dtype())
