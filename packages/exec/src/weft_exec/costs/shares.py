"""How nodes that were computed together share the time that they took."""

from __future__ import annotations

from collections.abc import Sequence

from weft_exec.costs.model import ASSUMED_SIZE
from weft_exec.costs.signature import filled
from weft_exec.costs.work import cost_of
from weft_exec.devices.performance import default_performance
from weft_graph.ir.node import Node


def parts_of(nodes: Sequence[Node]) -> dict[Node, float]:
    """The part of the time that each node has, 1 in all, by what its op costs on a processor."""
    performance = default_performance("CPU")
    seconds: dict[Node, float] = {}
    for node in nodes:
        inputs, outputs = (
            [filled(output.dims, ASSUMED_SIZE) for output in values]
            for values in (node.inputs, node.outputs)
        )
        seconds[node] = performance.seconds(*cost_of(node, inputs, outputs))
    whole = sum(seconds.values())
    return {node: each / whole for node, each in seconds.items()}
