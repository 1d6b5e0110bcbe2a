"""Common-subexpression elimination (paper, section 5.1)."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft_graph.ir.node import Node
from weft_graph.ir.step_graph import Replacements, StepGraph
from weft_graph.ir.traits import Role

_LARGEST_COMPARED = 1 << 16


def eliminate_common_subexpressions(step: StepGraph) -> int:
    """Replace equal nodes by the first of them.

    Nodes are equal if they have the same op, inputs, control inputs, attributes and device request.
    Stateful nodes, and nodes with references, are never merged.

    Returns: the number of replaced nodes.
    Source: paper, section 5.1.
    """
    first: dict[Any, Node] = {}
    nodes: dict[Node, Node] = {}
    with Replacements(step) as replacements:
        for node in step.graph.nodes:
            replacements.visit(node)
            if node.controls and not nodes.keys().isdisjoint(node.controls):
                controls = [nodes.get(control, control) for control in node.controls]
                step.graph.set_control_inputs(node, controls, reason="cse")
            if node.op_def.stateful or not node.outputs or _touches_reference(node):
                continue
            representative = first.setdefault(_key(node), node)
            if representative is not node:
                for output, replacement in zip(node.outputs, representative.outputs, strict=True):
                    replacements.add(output, replacement, reason="cse")
                nodes[node] = representative
    step.targets = [nodes.get(target, target) for target in step.targets]
    step.drop_unused(nodes)
    return len(nodes)


def _touches_reference(node: Node) -> bool:
    for output in node.outputs:
        if output.dtype.is_ref:
            return True
    return any([source.dtype.is_ref for source in node.inputs])


def _key(node: Node) -> Any:
    attrs = node.attrs
    if node.role is Role.CONSTANT:
        value = attrs["value"]
        return ("Const", attrs["dtype"], _array_key(value), node.device, node.controls)
    parts = tuple([(name, hashable(attrs[name])) for name in sorted(attrs)])
    return (node.type, node.inputs, parts, node.device, node.controls)


def hashable(value: Any) -> Any:
    """Return a hashable form of an attribute's value."""
    if isinstance(value, np.ndarray):
        return _array_key(value)
    if isinstance(value, bool | float):
        return (type(value), str(value))
    try:
        hash(value)
    except TypeError:
        return id(value)
    return value


def _array_key(value: np.ndarray) -> Any:
    if value.nbytes > _LARGEST_COMPARED:
        return id(value)
    content = tuple(value.ravel()) if value.dtype.hasobject else value.tobytes()
    return (value.dtype, value.shape, content)
