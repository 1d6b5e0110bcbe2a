"""Deriving an executable: kernels, slots, instructions and entries, once per signature."""

from __future__ import annotations

from weft_exec.executor.derivation import Derivation, Placement
from weft_exec.executor.executable import Executable
from weft_exec.executor.flow_derivation import FlowDerivation, isolate_fetches
from weft_exec.executor.overlap import Overlap
from weft_exec.executor.priority import by_priority
from weft_graph.passes.flow import Flow, has_control_flow
from weft_graph.passes.step_graph import StepGraph


def derive(step: StepGraph, place: Placement, overlap: Overlap) -> Executable:
    """The executable of a step graph.

    Args:
      step: pruned and optimised.
      place: node to device and kernel.
      overlap: what may run side by side.
    Raises: OpError: a node has no place, or its kernel refuses its attributes.
    """
    nodes = by_priority(step.live_nodes())
    if not has_control_flow(nodes):
        return Derivation(step, place, overlap).derive(nodes)
    flow = Flow(nodes)
    if isolate_fetches(step, flow):
        nodes = by_priority(step.live_nodes())
        flow = Flow(nodes)
    return FlowDerivation(step, place, overlap, flow).derive(nodes)
