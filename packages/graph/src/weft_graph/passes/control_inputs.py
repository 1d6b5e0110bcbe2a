"""Updates of control inputs when a pass removes nodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import StepGraph
from weft_graph.ir.traits import Role

_REASON: Final = "release controls"
_IMMEDIATE: Final = frozenset({Role.CONSTANT, Role.ARGUMENT})
"""Roles of nodes whose value is available at the start of a step."""


def release_controls(
    step: StepGraph, sources: Mapping[Node, Output | None], pivots: Collection[Node] = ()
) -> None:
    """Replace control inputs from removed nodes by the nodes these depended on.

    Args:
      sources: mapping from removed nodes to the outputs that replace them, or None.
      pivots: copies of outputs in `sources` that serve as pivots of branches.
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
    """Return the nodes to wait for instead of `controls`; constants and feeds are dropped."""
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
    """Return True if a Switch determines if an output is alive, though its node always ends."""
    return output.node.role is Role.SWITCH


def _is_known(node: Node) -> bool:
    """Return True for a folded constant; waiting for it means waiting for its inputs."""
    if not node.inputs or node.traits.routes or node.traits.stateful or len(node.outputs) != 1:
        return False
    return constant_value(node.outputs[0]) is not None
