"""Passes over the part of a graph that a step runs.

Each pass is a function from a StepGraph to the number of its changes. It edits the step's copy of
the graph with a reason for each change, preserves names and semantics, and runs in near-linear time
in the number of nodes.
"""

from weft_graph.ir.step_graph import StepGraph
from weft_graph.passes.batching import batch_equal
from weft_graph.passes.cse import eliminate_common_subexpressions
from weft_graph.passes.prune import prune
from weft_graph.passes.simplify import simplify

__all__ = ["StepGraph", "batch_equal", "eliminate_common_subexpressions", "prune", "simplify"]
