"""Attribution of the time of a compiled region to its nodes."""

from __future__ import annotations

from collections.abc import Sequence

from weft_exec.costs.model import ASSUMED_SIZE
from weft_exec.costs.signature import fill_unknown_sizes
from weft_exec.costs.work import cost_of
from weft_exec.devices.performance import default_performance
from weft_graph.ir.node import Node


def time_fractions(nodes: Sequence[Node]) -> dict[Node, float]:
    """Return each node's fraction of the time, 1 in total, by the cost of its op on a CPU."""
    performance = default_performance("CPU")
    seconds: dict[Node, float] = {}
    for node in nodes:
        inputs, outputs = (
            [fill_unknown_sizes(output.dims, ASSUMED_SIZE) for output in values]
            for values in (node.inputs, node.outputs)
        )
        seconds[node] = performance.seconds(*cost_of(node, inputs, outputs))
    total = sum(seconds.values())
    return {node: second / total for node, second in seconds.items()}
