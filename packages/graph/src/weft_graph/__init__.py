"""The graph: nodes, op declarations, scopes, passes, serialization, and the layers on top."""

from __future__ import annotations

# The builder comes first: outputs need it for their operators, and it needs outputs.
from weft_graph.ir.builder import constant, convert_to_tensor, register_tensor_conversion_function
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import register_op

__all__ = [
    "Graph",
    "Node",
    "Output",
    "constant",
    "convert_to_tensor",
    "register_op",
    "register_tensor_conversion_function",
]
