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
    All steps of a recurrent layer. `rows`, (steps, batch, directions * gates), are the
    contributions of the inputs to the gates. `weights`, (directions, width, gates), multiply the
    states, which have the shape (directions, batch, width). Gates are in the order of ONNX: input,
    output, forget and cell of an LSTM; update, reset and new of a GRU. `bias`, (directions, width),
    is for a GRU that resets after the product; it is added before the reset. `lengths` are the
    sequence lengths, or empty for all steps. `backward` is True for each direction that runs
    backward. The results have the shape (steps, directions, batch, width).

    Weights have the type `T`, and `scales` and `zeros` are empty. Or weights have 8 bits and
    represent `(weights - zeros) * scales`, with scales of shape (directions, 1) or (directions,
    gates). States are then quantized to 8 bits in each step, with a separate scale and zero point
    per direction.
    """,
)
