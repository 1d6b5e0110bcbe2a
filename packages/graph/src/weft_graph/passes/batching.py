"""Batching: replacing equal ops on slices of tensors by one op on the tensors.

    a = unstack(x); b = unstack(y)             c = batch_matmul(x, y)
    c = [matmul(p, q) for p, q in zip(a, b)]
    z = stack(c)                               z = c

Results and errors are the same as with separate ops, because all shapes are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import lookup_op
from weft_graph.ir.step_graph import StepGraph, reorder_nodes
from weft_graph.passes.certain_shapes import CertainShapes
from weft_graph.passes.cse import hashable

_MIN_BATCHED_OPS: Final = 4
"""Least number of ops for which batching pays off."""
_SMALL: Final = 1 << 16
"""Largest operand, in bytes, for which call overhead matters. Results of larger operands should not
be alive at the same time or be computed by one thread."""


def batch_equal(step: StepGraph) -> int:
    """Replace equal ops on all slices of the same tensors by one op.

    Returns: the number of replaced nodes.
    """
    shapes = CertainShapes()
    groups: dict[Any, dict[int, Node]] = {}
    targets = set(step.targets)
    for node in step.graph.nodes:
        if node.traits.batch is None or node.controls or node in targets or node.control_outputs:
            continue
        parts = [source.node for source in node.inputs]
        places = {source.index for source in node.inputs}
        if len(places) == 1 and all(_unstacks_rows(part) for part in parts) and _is_small(node):
            attrs = tuple([(name, hashable(node.attrs[name])) for name in sorted(node.attrs)])
            key = (node.type, tuple(parts), attrs, node.device)
            groups.setdefault(key, {}).setdefault(places.pop(), node)
    replaced: list[Node] = []
    for group in groups.values():
        nodes = [group[place] for place in sorted(group)]
        stacked = [source.node.inputs[0] for source in nodes[0].inputs]
        counts = {len(source.node.outputs) for source in nodes[0].inputs}
        if counts != {len(nodes)} or len(nodes) < _MIN_BATCHED_OPS:
            continue
        certain = all(shapes.hold_for(stacked_value.node) for stacked_value in stacked)
        if certain and _batch(step, nodes, stacked):
            replaced += nodes
    if replaced:
        reorder_nodes(step, step.live_nodes(), {})
        step.drop_unused(replaced)
    return len(replaced)


def _unstacks_rows(node: Node) -> bool:
    """Return True if a node unstacks its input along the first axis."""
    return (
        node.traits.unstacks
        and node.attrs["axis"] == 0
        and not node.controls
        and not node.inputs[0].dtype.is_ref
    )


def _is_small(node: Node) -> bool:
    """Return True if shapes are static and inputs and outputs are small."""
    values = [*node.inputs, *node.outputs]
    sizes = [_bytes_of(value) for value in values]
    return all(0 < size <= _SMALL for size in sizes)


def _bytes_of(value: Output) -> int:
    """Return the bytes of a value; 0 if unknown."""
    size = value.dtype.size
    for dim in value.dims or (0,):
        size *= dim or 0
    return size


def _batch(step: StepGraph, nodes: Sequence[Node], stacked: Sequence[Output]) -> bool:
    """Replace nodes by one op on stacked tensors and slices of its result, if such an op exists."""
    first = nodes[0]
    op_and_attrs = None if first.traits.batch is None else first.traits.batch(first.attrs)
    if op_and_attrs is None:
        return False
    op, attrs = op_and_attrs
    count, result = len(nodes), first.outputs[0]
    dims = (count, *(result.dims or ()))
    extra_attrs = {
        name: value for name, value in first.attrs.items() if name not in first.op_def.attrs
    }
    batched = _add_node(step, first, op, tuple(stacked), {**extra_attrs, **attrs}, [dims])
    split = {"num": count, "T": result.dtype, "axis": 0}
    unstack = first.inputs[0].node.type
    parts = _add_node(step, first, unstack, batched.outputs, split, [result.dims] * count)
    for node, part in zip(nodes, parts.outputs, strict=True):
        step.replace(node.outputs[0], part, reason="batch")
    return True


def _add_node(
    step: StepGraph,
    origin: Node,
    op: str,
    inputs: tuple[Output, ...],
    attrs: dict[str, Any],
    shapes: Sequence[Any],
) -> Node:
    graph = step.graph
    name = graph.unique_name(f"{origin.name}_batch")
    types = [origin.outputs[0].dtype] * len(shapes)
    node = graph.add_derived(origin, lookup_op(op), name, inputs, attrs, types, shapes)
    node.device = origin.device
    return node
