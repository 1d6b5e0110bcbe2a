"""Reads of references before Switch, Merge and frame ops, which route values.

Other nodes read the variable behind a reference when they run. Switch, Merge and frame ops have no
kernel and only forward their input, so a separate node reads the variable before them.
"""

from __future__ import annotations

from weft_graph.ir.node import Node
from weft_graph.ir.step_graph import StepGraph

_REASON = "reference read where values are routed"


def read_routed(step: StepGraph) -> int:
    """Insert reads before routing nodes whose input is a reference; return the number of reads."""
    routers = [node for node in step.graph.nodes if node.role is not None and node.traits.routes]
    return sum(_read(step, node) for node in routers if not node.op_def.inputs[0].is_ref)


def _read(step: StepGraph, node: Node) -> int:
    ref_inputs = [i for i, source in enumerate(node.inputs) if source.dtype.is_ref]
    for i in ref_inputs:
        name = f"{node.name}/read{i}"
        value = step.identity(node.inputs[i], name, node.device, list(node.controls))
        step.graph.replace_input(node, i, value, reason=_REASON)
    step.changes[_REASON] += len(ref_inputs)
    return len(ref_inputs)
