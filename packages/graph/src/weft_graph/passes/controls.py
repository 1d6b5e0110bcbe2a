"""Control inputs of nodes that waited for something a pass removes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import StepGraph
from weft_graph.ir.traits import Role

_REASON: Final = "release controls"
_IMMEDIATE: Final = frozenset({Role.CONSTANT, Role.ARGUMENT})
"""Roles of nodes that have their value when a step begins."""


def release_controls(
    step: StepGraph, sources: Mapping[Node, Output | None], pivots: Collection[Node] = ()
) -> None:
    """Replace control inputs from removed nodes by the nodes these depended on.

    Args:
      sources: the removed nodes, with the outputs that replace them, or None for those that had
        no result.
      pivots: copies of outputs in `sources`, which other nodes wait for to be in a branch.
    """
    removed = {*sources, *pivots}
    for node in step.graph.nodes:
        if not removed.isdisjoint(node.controls):
            controls = _origins(step, node.controls, sources, removed)
            step.graph.set_control_inputs(node, controls, reason=_REASON)


def _origins(
    step: StepGraph,
    controls: Sequence[Node],
    sources: Mapping[Node, Output | None],
    removed: Collection[Node],
) -> list[Node]:
    """Return the nodes that end when `controls` do: constants and feeds need no waiting."""
    result: list[Node] = []
    pending = list(controls)
    while pending:
        node = pending.pop()
        if node in sources:
            source = sources[node]
            if source is not None and _is_guarded(source):
                result.append(step.identity(source, node.name).node)
            elif source is not None:
                pending.append(source.node)
            pending += node.controls
        elif node in removed or _is_known(node):
            if any(_is_guarded(source) for source in node.inputs):
                result.append(node)
            else:
                pending += [*[source.node for source in node.inputs], *node.controls]
        elif node.role not in _IMMEDIATE:
            result.append(node)
        else:
            pending += node.controls
    return result


def _is_guarded(output: Output) -> bool:
    """Return True if a Switch decides whether an output is alive; its node always ends."""
    return output.node.role is Role.SWITCH


def _is_known(node: Node) -> bool:
    """Return True for a computed constant; waiting for it is waiting for its inputs."""
    if not node.inputs or node.traits.routes or node.traits.stateful or len(node.outputs) != 1:
        return False
    return constant_value(node.outputs[0]) is not None
