"""Gradients of block LSTMs and of the block gated recurrent unit.

Separate ops compute them from the gradients of the states; these ops have no gradients.
"""

from __future__ import annotations

from weft_autodiff.grads.common import mul
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import create, out
from weft_graph.ir.node import Node, Output
from weft_graph.ops import join
from weft_tensor import errors

Grads = list[Output | None]


def _fill_missing(
    node: Node, grads: tuple[Output | None, ...], states: tuple[str, ...]
) -> list[Output]:
    """Return the gradients of the states, with zeros for missing ones.

    Raises: NotFoundError: a gate has a gradient.
    """
    positions = {arg.name: i for i, arg in enumerate(node.op_def.outputs)}
    unsupported = [
        name for name, i in positions.items() if grads[i] is not None and name not in states
    ]
    if unsupported:
        raise errors.NotFoundError(
            f"{node.type} has gradients only for its outputs {' and '.join(states)}, got one for "
            f"{', '.join(unsupported)}: use a cell of nn.rnn_cell instead",
            op=node.type,
            node=node.name,
        )
    pairs = [(grads[positions[state]], node.outputs[positions[state]]) for state in states]
    return [out("ZerosLike", [value]) if grad is None else grad for grad, value in pairs]


def _layer(version: str) -> None:
    @RegisterGradient(f"BlockLSTM{version}", accepts_none=True)
    def gradient_of_forward(node: Node, *grads: Output | None) -> Grads:
        flowing = _fill_missing(node, grads, ("cs", "h"))
        attrs = {"use_peephole": node.attrs["use_peephole"]}
        inputs = [*node.inputs, *node.outputs, *flowing]
        return [None, *create(f"BlockLSTMGrad{version}", inputs, attrs).outputs]


_layer("")
_layer("V2")


def _sides(rows: Output, weights: Output, x: Output, h: Output) -> tuple[list[Output], Output]:
    """Return the gradients of [x, h] @ weights: by x and h, and by the weights."""
    inputs_grad = out("MatMul", [rows, weights], {"transpose_b": True})
    sizes = [out("Shape", [value])[1] for value in (x, h)]
    x_grad, h_grad = join.split(inputs_grad, out("Pack", [sizes]), 1, num=2)
    weights_grad = out("MatMul", [join.concat([x, h], 1), rows], {"transpose_a": True})
    return [x_grad, h_grad], weights_grad


@RegisterGradient("LSTMBlockCell", accepts_none=True)
def _lstm_cell(node: Node, *grads: Output | None) -> Grads:
    flowing = _fill_missing(node, grads, ("cs", "h"))
    attrs = {"use_peephole": node.attrs["use_peephole"]}
    inputs = [*node.inputs, *node.outputs[:-1], *flowing]
    by_cs, gates, *peepholes = create("LSTMBlockCellGrad", inputs, attrs).outputs
    x, _, h, w = node.inputs[:4]
    (by_x, by_h), by_w = _sides(gates, w, x, h)
    return [by_x, by_cs, by_h, by_w, *peepholes, out("BiasAddGrad", [gates])]


@RegisterGradient("GRUBlockCell", accepts_none=True)
def _gru_cell(node: Node, *grads: Output | None) -> Grads:
    (flowing,) = _fill_missing(node, grads, ("h",))
    inputs = [*node.inputs, *node.outputs[:3], flowing]
    by_x, by_h, c, gates = create("GRUBlockCellGrad", inputs).outputs
    (x, h), r = node.inputs[:2], node.outputs[0]
    by_gates = out("MatMul", [join.concat([x, h], 1), gates], {"transpose_a": True})
    by_c = out("MatMul", [join.concat([x, mul(h, r)], 1), c], {"transpose_a": True})
    return [by_x, by_h, by_gates, by_c, out("BiasAddGrad", [gates]), out("BiasAddGrad", [c])]


def _raise_not_differentiable(node: Node, *grads: Output | None) -> Grads:
    raise errors.NotFoundError(
        f"the gradient {node.type} is not differentiable, as in TensorFlow: for second "
        "derivatives use dynamic_rnn with a cell of nn.rnn_cell",
        op=node.type,
        node=node.name,
    )


for _op in ("BlockLSTMGrad", "BlockLSTMGradV2", "LSTMBlockCellGrad", "GRUBlockCellGrad"):
    RegisterGradient(_op)(_raise_not_differentiable)
