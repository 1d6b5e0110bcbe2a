"""Gradients of functions of matrices.

The upper right block of a function of [[A, G], [0, A]] is the derivative along G (N. Higham,
Functions of Matrices, 2008, section 3.2).
"""

from __future__ import annotations

from weft_autodiff.grads.common import matrix_transpose, zeros_like
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import out
from weft_graph.ir.node import Node, Output


def along(node: Node, grad: Output) -> Output:
    """Return the gradient of a matrix function that commutes with the adjoint."""
    a = matrix_transpose(node.inputs[0], conjugate=True)
    upper = out("ConcatV2", [[a, grad], -1])
    lower = out("ConcatV2", [[zeros_like(a), a], -1])
    result = out(node.type, [out("ConcatV2", [[upper, lower], -2])])
    size = out("Shape", [a])[-1]
    block: Output = result[..., :size, size:]
    return block


RegisterGradient("MatrixSquareRoot")(along)
RegisterGradient("MatrixLogarithm")(along)
