"""Derivation of executables, once per signature: kernels, slots, instructions and entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import process_time
from typing import Any

from weft_exec.executor.compilers import compile_loops, compile_regions
from weft_exec.executor.derivation import Derivation, Placement
from weft_exec.executor.executable import Executable
from weft_exec.executor.flow_derivation import FlowDerivation, isolate_fetches
from weft_exec.executor.memory_budget import MemoryBudget
from weft_exec.executor.native.warm_up import WarmUp, can_warm_up
from weft_exec.executor.overlap import Overlap
from weft_exec.executor.priority import sort_by_priority
from weft_graph.ir.node import Node
from weft_graph.ir.step_graph import StepGraph
from weft_graph.passes.flow import Flow, has_control_flow, sort_topologically


def derive(
    step: StepGraph,
    placement: Placement,
    overlap: Overlap,
    nodes: Sequence[Node] | None = None,
    bring_in: Callable[[Any], Any] | None = None,
    budget: MemoryBudget | None = None,
    merges_segments: bool = False,
    has_regions: bool = True,
) -> Executable:
    """Return the executable of a step graph.

    Args:
      step: a pruned and optimized graph.
      placement: returns the device and kernel of a node.
      overlap: decides which nodes may run in parallel.
      nodes: its live nodes in execution order; `sort_by_priority` by default.
      bring_in: copies a constant to a device with its own memory.
      budget: memory budget of compiled code; None for no limit.
      merges_segments: True if nodes may wait for all values available at the start of the step.
      has_regions: False to run all nodes with kernels.
    Raises: OpError: a node cannot be placed, or its kernel rejects its attributes.
    """
    nodes = sort_by_priority(step.live_nodes()) if nodes is None else nodes
    loops = {}
    if has_regions:
        loops = compile_loops(step, nodes, placement, overlap) if budget is None else {}
        nodes, placement = compile_regions(step, nodes, placement, overlap, budget, loops)
    if not has_control_flow(nodes):
        return Derivation(step, placement, overlap, bring_in, merges_segments).derive(nodes)
    flow = Flow(nodes)
    if isolate_fetches(step, flow):
        place_of = {node: i for i, node in enumerate(nodes)}
        isolated = [output.node for output in step.isolated]
        nodes = sort_topologically([*nodes, *isolated], lambda node: place_of.get(node, -1))
        flow = Flow(nodes)
    return FlowDerivation(step, placement, overlap, flow, bring_in, loops).derive(nodes)


def derive_first(
    step: StepGraph,
    placement: Placement,
    overlap: Overlap,
    nodes: Sequence[Node] | None = None,
    budget: MemoryBudget | None = None,
) -> Executable:
    """Return the executable for the first runs of a step, if allowed without compiled regions.

    Its `warm_up` then decides when an executable of `derive` replaces it.

    Args: as for `derive`.
    """
    nodes = sort_by_priority(step.live_nodes()) if nodes is None else nodes
    if not can_warm_up(nodes):
        return derive(step, placement, overlap, nodes, budget=budget)
    start = process_time()
    executable = derive(step, placement, overlap, nodes, budget=budget, has_regions=False)
    executable.warm_up = WarmUp(process_time() - start)
    return executable
