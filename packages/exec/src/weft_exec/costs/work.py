"""The work of a node, operations and memory traffic, by the cost rule of its op."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from weft_graph.ir.costs import Cost, Shape, Sizes
from weft_graph.ir.node import Node


def cost_of(node: Node, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> Cost:
    """Return the cost of a node for given shapes of its inputs and outputs."""
    input_types = tuple([value.dtype for value in node.inputs])
    output_types = tuple([value.dtype for value in node.outputs])
    sizes = Sizes(
        node.attrs,
        tuple(inputs),
        tuple(outputs),
        input_types,
        output_types,
        tuple([prod(d) * t.size for d, t in zip(inputs, input_types, strict=True)]),
        tuple([prod(d) * t.size for d, t in zip(outputs, output_types, strict=True)]),
    )
    return node.traits.cost_rule(sizes)
