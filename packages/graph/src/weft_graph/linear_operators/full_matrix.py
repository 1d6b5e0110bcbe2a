"""Operators of dense matrices."""

from __future__ import annotations

__all__ = ["LinearOperatorFullMatrix"]

from typing import Any

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.linear_operators.dense import adjoint_of, product, solve, solve_triangular
from weft_graph.linear_operators.operator import LinearOperator
from weft_graph.ops import linalg
from weft_graph.ops.shape_rules import with_rank_at_least
from weft_tensor.shape import TensorShape


class LinearOperatorFullMatrix(LinearOperator):
    """Dense matrices.

    Args:
      matrix: floating or complex, shape (..., M, N).
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints, as in
        `LinearOperator`.
      name: name of the name scope.

    Examples:
      >>> operator = wf.linalg.LinearOperatorFullMatrix([[2.0, 0.0], [0.0, 4.0]])
      >>> wf.Session().run(operator.solvevec([2.0, 8.0]))
      array([1., 2.], dtype=float32)
    """

    def __init__(
        self,
        matrix: Any,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorFullMatrix",
    ) -> None:
        parameters = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        self._matrix = convert_to_tensor(matrix)
        with_rank_at_least(self._matrix.dims, 2, "matrix")
        super().__init__(
            self._matrix.dtype,
            [self._matrix],
            is_non_singular,
            is_self_adjoint,
            is_positive_definite,
            is_square,
            name,
            parameters,
        )

    def _shape(self) -> TensorShape:
        return TensorShape(self._matrix.dims)

    def _shape_tensor(self) -> Output:
        return out("Shape", [self._matrix])

    def _matmul(self, x: Output, adjoint: bool = False, adjoint_arg: bool = False) -> Output:
        return product(self._matrix, x, adjoint, adjoint_arg)

    def _solve(self, rhs: Output, adjoint: bool = False, adjoint_arg: bool = False) -> Output:
        rhs = adjoint_of(rhs) if adjoint_arg else rhs
        if not (self.is_self_adjoint and self.is_positive_definite):
            return solve(self._matrix, rhs, adjoint)
        factor = linalg.cholesky(self._matrix)
        return solve_triangular(factor, solve_triangular(factor, rhs), adjoint=True)

    def _to_dense(self) -> Output:
        return self._matrix
