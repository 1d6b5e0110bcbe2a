"""Operators of lower triangular matrices."""

from __future__ import annotations

__all__ = ["LinearOperatorLowerTriangular"]

from typing import Any

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.linear_operators.dense import adjoint_of, log_magnitude, product, solve_triangular
from weft_graph.linear_operators.operator import LinearOperator
from weft_graph.ops import diagonals, reduction
from weft_graph.ops.shape_rules import with_rank_at_least
from weft_tensor.shape import TensorShape


class LinearOperatorLowerTriangular(LinearOperator):
    """Lower triangular matrices.

    Args:
      tril: floating or complex, shape (..., N, N); only the lower triangle is used.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints, as in
        `LinearOperator`.
      name: name of the name scope.

    Examples:
      >>> operator = wf.linalg.LinearOperatorLowerTriangular([[2.0, 9.0], [1.0, 4.0]])
      >>> wf.Session().run(operator.to_dense())
      array([[2., 0.],
             [1., 4.]], dtype=float32)
    """

    def __init__(
        self,
        tril: Any,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorLowerTriangular",
    ) -> None:
        parameters = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        value = convert_to_tensor(tril)
        with_rank_at_least(value.dims, 2, "tril")
        self._tril = diagonals.matrix_band_part(value, -1, 0)
        is_square = True if is_square is None else is_square
        super().__init__(
            value.dtype,
            [value],
            is_non_singular,
            is_self_adjoint,
            is_positive_definite,
            is_square,
            name,
            parameters,
        )

    def _shape(self) -> TensorShape:
        return TensorShape(self._tril.dims)

    def _shape_tensor(self) -> Output:
        return out("Shape", [self._tril])

    def _matmul(self, x: Output, adjoint: bool = False, adjoint_arg: bool = False) -> Output:
        return product(self._tril, x, adjoint, adjoint_arg)

    def _solve(self, rhs: Output, adjoint: bool = False, adjoint_arg: bool = False) -> Output:
        return solve_triangular(
            self._tril, adjoint_of(rhs) if adjoint_arg else rhs, adjoint=adjoint
        )

    def _to_dense(self) -> Output:
        return self._tril

    def _determinant(self) -> Output:
        return reduction.reduce_prod(self._diag_part(), -1)

    def _log_abs_determinant(self) -> Output:
        return reduction.reduce_sum(log_magnitude(self._diag_part()), -1)
