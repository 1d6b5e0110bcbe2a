"""Gradients of diagonals and bands of matrices."""

from __future__ import annotations

from weft_autodiff.grads.common import zeros_like
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Node, Output
from weft_graph.ops.reduction import reduce_sum

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


def _form(node: Node) -> tuple[str, dict[str, str]]:
    """Return the version of an op and the alignment of its diagonals."""
    align = node.attrs.get("align")
    return ("V2", {}) if align is None else ("V3", {"align": align})


def _pick_diagonals(node: Node, matrices: Output, k: Output) -> Output:
    version, align = _form(node)
    padding = convert_to_tensor(0, matrices.dtype)
    return out("MatrixDiagPart" + version, [matrices, k, padding], align)


def _put(node: Node, matrices: Output, diagonal: Output, k: Output) -> Output:
    version, align = _form(node)
    return out("MatrixSetDiag" + version, [matrices, diagonal, k], align)


@RegisterGradient("MatrixDiagV2")
@RegisterGradient("MatrixDiagV3")
def _matrix_diag_v3(node: Node, grad: Output) -> Gradients:
    diagonal, k = node.inputs[:2]
    selected = _pick_diagonals(node, grad, k)
    padding_grad = reduce_sum(_put(node, grad, zeros_like(diagonal), k))
    return [selected, None, None, None, padding_grad]


@RegisterGradient("MatrixDiagPartV2")
@RegisterGradient("MatrixDiagPartV3")
def _matrix_diag_part_v3(node: Node, grad: Output) -> Gradients:
    x, k, _ = node.inputs
    cleared = _put(node, zeros_like(x), grad, k)
    return [cleared, None, reduce_sum(grad) - reduce_sum(cleared)]


@RegisterGradient("MatrixSetDiagV2")
@RegisterGradient("MatrixSetDiagV3")
def _matrix_set_diag_v3(node: Node, grad: Output) -> Gradients:
    _, diagonal, k = node.inputs
    return [_put(node, grad, zeros_like(diagonal), k), _pick_diagonals(node, grad, k), None]


@RegisterGradient("MatrixBandPart")
def _band_part(node: Node, grad: Output) -> Gradients:
    return [out("MatrixBandPart", [grad, *node.inputs[1:]]), None, None]
