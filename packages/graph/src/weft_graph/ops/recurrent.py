"""Recurrent layers as single ops, which exist only in executables.

In a graph, a layer is a call of a function whose body is a loop, so that gradients and converters
need no rule for it. If a kernel exists, the op replaces the call (`weft_graph/passes/inline.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft_graph.ir.costs import Cost, Sizes
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import Traits
from weft_graph.ops.cost_rules import dims_at
from weft_tensor.shape import Dims

LAYER: Final = "_RecurrentLayer"

GATES: Final = {"rnn": 1, "gru": 3, "gru_reset_after": 3, "lstm": 4}
"""Number of gates by kind of cell."""

_FIRST: Final = 6
"""Index of the first state among the inputs."""


def _layer_shapes(node: NodeSpec) -> Sequence[Dims]:
    rows, weights, states = node.inputs[0].dims, node.inputs[1].dims, node.inputs[_FIRST:]
    steps, batch = (None, None) if rows is None else rows[:2]
    directions, width = (None, None) if weights is None else weights[:2]
    return (steps, directions, batch, width), *[state.dims for state in states]


def _layer_cost(sizes: Sizes) -> Cost:
    """Return the cost of a product with the weights in each step."""
    steps, batch, gates = dims_at(sizes.inputs, 0, 3)
    width = dims_at(sizes.inputs, 1, 3)[1]
    return Cost(2.0 * steps * batch * gates * width, float(sizes.all_bytes))


register_op(
    LAYER,
    (
        *("rows: T", "weights: W", "scales: T", "zeros: int32", "bias: T", "lengths: int32"),
        "states: N * T",
    ),
    ("results: T", "last: N * T"),
    {
        "T": "{float16, bfloat16, float32, float64}",
        "W": "{int8, uint8, float16, bfloat16, float32, float64}",
        "N": "int >= 1",
        "cell": "{" + ", ".join(map(repr, GATES)) + "}",
        "activations": "list(string)",
        "backward": "list(bool)",
    },
    _layer_shapes,
    traits=Traits(cost=_layer_cost, differentiable=False),
    doc="""
    All steps of a recurrent layer. `rows`, (steps, batch, directions * gates), is what the inputs
    add to the gates; `weights`, (directions, width, gates), multiply the states, each (directions,
    batch, width). The gates are those of ONNX in its order: of an LSTM input, output, forget and
    cell, of a GRU update, reset and new. `bias`, (directions, width), is added before the reset of
    a GRU that resets after the product. `lengths` are those of the sequences, or empty for all
    steps. `backward` says of each direction whether its last step comes first. The results are
    (steps, directions, batch, width).

    Weights are of the type `T`, and `scales` and `zeros` empty. Or they are of 8 bits, and stand
    for `(weights - zeros) * scales`, (directions, 1) or (directions, gates); states are then
    quantized to 8 bits in each step, each direction's by a scale and a zero point of its own.
    """,
)
