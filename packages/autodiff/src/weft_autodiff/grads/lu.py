"""Gradient of the LU factorization with partial pivoting; the permutation is constant."""

from __future__ import annotations

from weft_autodiff.grads.common import matrix_transpose
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import out
from weft_graph.ir.node import Node, Output
from weft_graph.ops import diagonals
from weft_graph.ops.lu import inverse_rows, lower_factor, rows_of


@RegisterGradient("Lu")
def _lu(node: Node, grad: Output, _: Output) -> Output:
    # With M = strict lower part of L^H gL, plus the upper part of gU U^H, it is L^-H M U^-H.
    factors, rows = node.outputs
    lower, upper = lower_factor(factors), diagonals.matrix_band_part(factors, 0, -1)
    to_lower = out("Sub", [diagonals.matrix_band_part(grad, -1, 0), _diagonal(grad)])
    to_upper = diagonals.matrix_band_part(grad, 0, -1)
    left = diagonals.matrix_band_part(
        out("BatchMatMulV2", [lower, to_lower], {"adj_x": True}), -1, 0
    )
    left = out("Sub", [left, _diagonal(left)])
    right = out("BatchMatMulV2", [to_upper, upper], {"adj_y": True})
    middle = out("AddV2", [left, diagonals.matrix_band_part(right, 0, -1)])
    half = out("MatrixTriangularSolve", [lower, middle], {"adjoint": True})
    adjoint = matrix_transpose(half, conjugate=True)
    solved = out("MatrixTriangularSolve", [upper, adjoint], {"lower": False})
    return rows_of(matrix_transpose(solved, conjugate=True), inverse_rows(rows))


def _diagonal(x: Output) -> Output:
    return out("MatrixDiag", [out("MatrixDiagPart", [x])])
