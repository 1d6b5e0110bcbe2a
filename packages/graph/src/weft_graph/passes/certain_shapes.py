"""Static shapes that are certain in every run, so that checks of them can be removed."""

from __future__ import annotations

from typing import Final

from weft_graph.ir.node import Node
from weft_graph.ir.node_checks import infer_shapes
from weft_graph.ir.traits import Role, State
from weft_tensor import errors

MAX_NODES: Final = 128
"""Largest number of nodes that a query visits; shapes that depend on more are not certain."""

_DECLARED_ROLES: Final = frozenset({Role.PLACEHOLDER, Role.CALL})
"""Roles of nodes whose shapes are declared rather than inferred."""


class CertainShapes:
    """Query for shapes that follow from the shapes of constants and feeds.

    Other static shapes are declarations: by `set_shape`, of a placeholder with a default, of a
    variable or a queue, or in the signature of a function. The actual shape may differ, so a node
    that relies on such a shape must run.
    """

    def __init__(self) -> None:
        self._cache: dict[Node, bool] = {}

    def hold_for(self, node: Node) -> bool:
        """Return True if the static shapes of a node's outputs are certain in every run."""
        certain = self._cache
        nodes: set[Node] = set()
        stack = [node]
        while stack:
            top = stack[-1]
            if top in certain:
                stack.pop()
            elif top in nodes:  # a source that is not found yet is behind a back edge
                sources = all([certain.get(source.node, False) for source in top.inputs])
                certain[top] = sources and _follow(top)
            elif len(nodes) == MAX_NODES or not _can_infer(top):
                certain[top] = False
            else:
                nodes.add(top)
                stack.extend([s.node for s in top.inputs if s.node not in nodes])
        return certain[node]


def _can_infer(node: Node) -> bool:
    """Return True if a node's shapes can follow from the shapes of its inputs."""
    if node.role is Role.ARGUMENT:
        return True
    return node.traits.state is State.NONE and node.role not in _DECLARED_ROLES


def _follow(node: Node) -> bool:
    """Return True if the shape rule alone implies the static shapes of the outputs."""
    if node.op_def.shape_rule is None:
        return all([output.dims is None for output in node.outputs])
    try:
        inferred = infer_shapes(node.op_def, node.inputs, node.attrs, node.name)
    except errors.OpError:
        return False
    return [output.dims for output in node.outputs] == list(inferred)
