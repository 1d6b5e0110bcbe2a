"""Gradients of diagonals and bands of matrices."""

from __future__ import annotations

from weft_autodiff.grads.common import zeros_like
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import out
from weft_graph.ir.node import Node, Output

Gradients = list[Output | None]


@RegisterGradient("Diag")
def _diag(node: Node, grad: Output) -> Output:
    return out("DiagPart", [grad])


@RegisterGradient("DiagPart")
def _diag_part(node: Node, grad: Output) -> Output:
    return out("Diag", [grad])


@RegisterGradient("MatrixDiag")
def _matrix_diag(node: Node, grad: Output) -> Output:
    return out("MatrixDiagPart", [grad])


@RegisterGradient("MatrixDiagPart")
def _matrix_diag_part(node: Node, grad: Output) -> Output:
    x = node.inputs[0]
    if x.dims is not None and x.dims[-1] is not None and x.dims[-1] == x.dims[-2]:
        return out("MatrixDiag", [grad])
    return out("MatrixSetDiag", [zeros_like(x), grad])


@RegisterGradient("MatrixSetDiag")
def _matrix_set_diag(node: Node, grad: Output) -> Gradients:
    diagonal = node.inputs[1]
    return [
        out("MatrixSetDiag", [grad, zeros_like(diagonal)]),
        out("MatrixDiagPart", [grad]),
    ]


@RegisterGradient("MatrixBandPart")
def _band_part(node: Node, grad: Output) -> Gradients:
    return [out("MatrixBandPart", [grad, *node.inputs[1:]]), None, None]
