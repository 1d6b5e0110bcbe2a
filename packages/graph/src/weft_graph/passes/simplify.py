"""Algebraic simplification: rewrites that give bit-equal results for every input."""

from __future__ import annotations

from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import StepGraph
from weft_graph.ir.transfers import LOSSY


def simplify(step: StepGraph) -> int:
    """Apply every rule once to every node, inputs first.

    Returns: the number of nodes made superfluous.
    """
    replaced: list[Node] = []
    for node in step.graph.nodes:
        replacement = None if node.control_inputs else _same_as(node)
        if replacement is None or any(
            source.node.control_inputs for source in node.inputs if source is not replacement
        ):
            continue
        if replacement is not node.outputs[0]:
            step.replace(node.outputs[0], replacement, reason=f"simplify {node.type}")
            replaced.append(node)
    step.drop_unused(replaced)
    return len(replaced)


def _same_as(node: Node) -> Output | None:
    """A value that the one output of a node always equals, or None."""
    traits = node.traits
    if traits.identity:
        return _identity(node)
    if traits.involution:
        return _involution(node)
    if traits.reshapes:
        return _reshape(node)
    return _cast(node) if traits.casts else None


def _identity(node: Node) -> Output | None:
    source = node.inputs[0]
    return None if source.dtype.is_ref or LOSSY in node.attrs else source


def _involution(node: Node) -> Output | None:
    inner = node.inputs[0].node
    if inner.type == node.type and not inner.control_inputs:
        return _identity(inner)
    return None


def _reshape(node: Node) -> Output | None:
    source = node.inputs[0]
    dims = node.outputs[0].dims
    if dims is not None and None not in dims and source.dims == dims and not source.dtype.is_ref:
        return source
    return None


def _cast(node: Node) -> Output | None:
    source = node.inputs[0]
    return source if source.dtype is node.outputs[0].dtype else None
