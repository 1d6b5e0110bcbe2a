"""The distinct rows of a sparse gradient, inside loops.

Optimizers sum the gradients of equal indices: `Unique` numbers the indices, a segment sum adds the
rows, and a sparse update applies one row for each distinct index. The number of distinct rows
varies between iterations, but shapes cannot. So the lowered values have one row for each index, and
a count of valid rows. The sparse update reads only valid rows; no other node may use the values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from weft_compiler.ir.expressions import INDEX, Expr, Load, Variable, apply, cast, number, where
from weft_compiler.ir.indices import clamp_index, plus
from weft_compiler.ir.loops import Unique, load, nest
from weft_compiler.ir.program import Body, Buffer, Let, Statement, Store
from weft_compiler.lower.registry import update_of
from weft_compiler.lower.values import StatementDefinition, Value, compute_value
from weft_graph.ir.node import Node


class Rows(NamedTuple):
    """The results of `Unique`.

    Attributes:
      rows: the distinct indices in the order of their first occurrence, then zeros.
      places: for each index, the position of its row in `rows`.
    """

    rows: Value
    places: Value


def updates_of_rows(node: Node) -> list[Node]:
    """Return the users of a `Unique` if all are sparse updates, else an empty list."""
    if node.type != "Unique" or node.inputs[0].dims is None or len(node.inputs[0].dims) != 1:
        return []
    rows, indices = node.outputs
    nodes: list[Node] = []
    for user in node.consumers:
        if user.type == "UnsortedSegmentSum":
            size = user.inputs[2].node
            if user.inputs[1] is not indices or size.type != "Size" or size.inputs[0] is not rows:
                return []
            nodes += [consumer for consumer in user.consumers if consumer not in nodes]
        elif user.type == "Size":
            if any(consumer.type != "UnsortedSegmentSum" for consumer in user.consumers):
                return []
        elif user not in nodes:
            nodes.append(user)
    only_rows = all(_takes_rows(user, node) for user in nodes)
    return nodes if only_rows else []


def _takes_rows(user: Node, unique: Node) -> bool:
    """Return True if the node is a sparse update by the rows and sums of a `Unique`."""
    update = update_of(user.type)
    if update is None or update.rows is None or "Sparse" not in user.type:
        return False
    names = [arg.name for arg in user.op_def.inputs]
    grad, indices = [user.inputs[names.index(name)] for name in ("grad", "indices")]
    other_inputs = [s for s in user.inputs if s.node is unique and s is not indices]
    return (
        indices is unique.outputs[0]
        and grad.node.type == "UnsortedSegmentSum"
        and grad.node.inputs[1] is unique.outputs[1]
        and not other_inputs
    )


def unique_rows(node: Node, indices: Value, size: int) -> Rows:
    """Return the distinct rows among some indices.

    Args:
      node: a `Unique`.
      indices: indices of rank 1.
      size: the number of rows of the variable.
    """
    name, count = node.name, indices.shape[0]
    packed = Value(
        name,
        INDEX,
        (2 * count + 1 + size,),
        StatementDefinition([indices], _number_rows(count, size)),
    )
    rows = compute_value(f"{name}_rows", indices.dtype, (count,), lambda i: packed.at(i))
    rows.count = compute_value(f"{name}_count", INDEX, (), lambda: packed.at(2 * count))
    dtype = node.outputs[1].dtype
    places = compute_value(f"{name}_places", dtype, (count,), lambda i: packed.at(plus(i, count)))
    return Rows(rows, places)


def _number_rows(count: int, size: int) -> Callable[..., Sequence[Statement]]:
    """Write the distinct rows, the position of each index, the number of rows, and a lookup table.

    The table is indexed by row and not initialized. An entry is valid only if it points to an entry
    for the same row.
    """

    def write(unique: Unique, result: Buffer, buffer: Buffer) -> Sequence[Statement]:
        def slot(position: Expr | int) -> Load:
            return load(result, result.shape, [position])

        def store(position: Expr | int, value: Expr) -> Store:
            return Store(result.name, slot(position).indices, value)

        def number_row(i: Expr) -> Body:
            row, num_seen, position, number_of = (
                Variable(INDEX, unique(item)) for item in ("row", "seen", "place", "number")
            )
            where_it_is = plus(clamp_index(row, size), 2 * count + 1)
            guess = clamp_index(position, count)
            known_value = apply(
                "bit_and",
                apply("equal", slot(guess), row),
                apply("bit_and", apply("less", guess, num_seen), apply("equal", guess, position)),
            )
            return (
                Let(row.name, cast(load(buffer, (count,), [i]), INDEX)),
                Let(num_seen.name, slot(2 * count)),
                Let(position.name, slot(where_it_is)),
                Let(number_of.name, where(known_value, position, num_seen)),
                store(clamp_index(number_of, count), row),
                store(plus(i, count), number_of),
                store(where_it_is, number_of),
                store(2 * count, apply("maximum", num_seen, plus(number_of, 1))),
            )

        none = number(0, INDEX)
        begin = nest(unique, [count], lambda i: (store(i, none),))
        return (*begin, store(2 * count, none), *nest(unique, [count], number_row))

    return write
