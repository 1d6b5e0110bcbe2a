"""Sparse optimizer updates: the dense formulas, applied row by row.

As in the kernels, rows are updated in the order of the indices; if an index is repeated, each
update reads the result of the previous one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft_compiler.ir.expressions import INDEX, Expr, Variable, apply, cast, scalar_expression
from weft_compiler.ir.indices import clamp_index
from weft_compiler.ir.loops import Unique, load, nest
from weft_compiler.ir.program import Body, Buffer, If, Let, Statement, Store
from weft_compiler.lower.registry import changes_rows, require
from weft_compiler.lower.rules.gather import require_in_range
from weft_compiler.lower.values import PartialUpdate, ScatterUpdate, Value
from weft_graph.ir.node import Node
from weft_graph.ir.scalar import Scalar
from weft_graph.ops.training import RULES, UpdateRule, op_type
from weft_graph.ops.update_formulas import FORMULAS


def _element(rule: UpdateRule, node: Node, operands: Sequence[Value]) -> Sequence[Scalar]:
    """Return the new elements of the variables, from one element of each input of the sparse op."""
    names = (*rule.states, *rule.sparse)
    elements = {
        name: Scalar("input", operand.dtype, (), index)
        for index, (name, operand) in enumerate(zip(names, operands, strict=True))
    }
    elements["delta"] = elements["grad"]
    dense = [elements[name] for name in (*rule.states, *rule.dense)]
    return FORMULAS[rule.name](node.attrs, *dense)


def _update_variables(rule: UpdateRule, node: Node, operands: Sequence[Value]) -> Sequence[Value]:
    """Return the updated variables; their memory contains the old values when the loops start."""
    count, names = len(rule.states), (*rule.states, *rule.sparse)
    of_grad, of_indices = names.index("grad"), names.index("indices")
    states, grad, indices = operands[:count], operands[of_grad], operands[of_indices]
    shape = states[0].shape
    require(
        bool(shape) and indices.rank == 1,
        "the variable is a scalar, or the indices are not a vector",
    )
    require(all(state.shape == shape for state in states), "the shapes of the variables differ")
    require(
        grad.shape == (*indices.shape, *shape[1:]), "the gradient does not have one row per index"
    )
    for index in range(count, len(names)):
        if index not in (of_grad, of_indices):
            require(operands[index].shape == (), f"{names[index]} is not a scalar")
    if indices.count is None:
        rows = _rows_in_order(rule, node, operands)
    else:
        rows = [_rows_at_once(rule, node, operands, i) for i in range(count)]
    rows[0].requires = (require_in_range(indices, shape[0]),)
    return rows


def _rows_in_order(rule: UpdateRule, node: Node, operands: Sequence[Value]) -> list[Value]:
    """Update all variables together, one row after another, because indices may repeat."""
    count = len(rule.states)
    states = operands[:count]
    element = _element(rule, node, operands)
    change = PartialUpdate(states, operands[count:], _writer(rule, operands, range(count), element))
    return [
        Value(f"{state.name}_new", state.dtype, state.shape, ScatterUpdate(change, state_index))
        for state_index, state in enumerate(states)
    ]


def _rows_at_once(rule: UpdateRule, node: Node, operands: Sequence[Value], kind: int) -> Value:
    """Update one variable from the old values of all; indices must be distinct."""
    state, indices = operands[kind], operands[(*rule.states, *rule.sparse).index("indices")]
    other_operands = [operand for index, operand in enumerate(operands) if index != kind]
    assert indices.count is not None
    write = _writer(rule, operands, [kind], _element(rule, node, operands))
    change = PartialUpdate([state], [*other_operands, indices.count], write)
    return Value(f"{state.name}_new", state.dtype, state.shape, ScatterUpdate(change, 0))


def _writer(
    rule: UpdateRule, operands: Sequence[Value], changed: Sequence[int], scalars: Sequence[Scalar]
) -> Callable[..., Sequence[Statement]]:
    """Return the writer of the loops over rows.

    Args:
      changed: positions of the variables that the loops change. The writer receives the buffers of
        these variables, then those of the other operands, and the number of valid rows if not all
        rows are valid.
    """
    count, names = len(rule.states), (*rule.states, *rule.sparse)
    of_grad, of_indices = names.index("grad"), names.index("indices")
    grad, indices, shape = operands[of_grad], operands[of_indices], operands[0].shape

    def write(unique: Unique, memory: Sequence[Buffer], *remaining: Buffer) -> Sequence[Statement]:
        remaining_buffers = iter(remaining)
        updated_buffers = dict(zip(changed, memory, strict=True))
        buffers = [
            updated_buffers[index] if index in updated_buffers else next(remaining_buffers)
            for index in range(len(operands))
        ]
        row_count = next(remaining_buffers, None)

        def row(i: Expr) -> Body:
            if row_count is None:
                return every_row(i)
            return (If(apply("less", i, load(row_count, (), ())), every_row(i)),)

        def every_row(i: Expr) -> Body:
            index = cast(load(buffers[of_indices], indices.shape, [i]), INDEX)
            place = Let(unique("place"), clamp_index(index, shape[0]))

            def element(*index: Expr) -> Body:
                row_indices = (Variable(INDEX, place.name), *index)

                def operand(position: int) -> Expr:
                    if position < count:
                        return load(buffers[position], shape, row_indices)
                    if position == of_grad:
                        return load(buffers[position], grad.shape, (i, *index))
                    return load(buffers[position], (), ())

                lets = [
                    Let(
                        unique(f"{rule.states[state_index]}_new"),
                        cast(
                            scalar_expression(scalars[state_index], operand),
                            operands[state_index].dtype,
                        ),
                    )
                    for state_index in changed
                ]
                stores = [
                    Store(buffer.name, row_indices, Variable(buffer.dtype, let.name))
                    for buffer, let in zip(memory, lets, strict=True)
                ]
                return (*lets, *stores)

            return (place, *nest(unique, shape[1:], element))

        return () if 0 in shape else nest(unique, indices.shape, row)

    return write


def _register(rule: UpdateRule) -> None:
    def rows(node: Node, operands: Sequence[Value]) -> Sequence[Value]:
        return _update_variables(rule, node, operands)

    ops = [op_type(rule.name, True, resource) for resource in (False, True)]
    register: Callable[[Callable[..., Sequence[Value]]], object]
    register = changes_rows(*ops, states=len(rule.states))
    register(rows)


for _rule in RULES.values():
    if _rule.sparse:
        _register(_rule)
