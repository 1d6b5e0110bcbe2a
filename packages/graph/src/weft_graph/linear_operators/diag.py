"""Operators of diagonal matrices."""

from __future__ import annotations

__all__ = ["LinearOperatorDiag"]

from typing import Any

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.linear_operators.dense import adjoint_of, concat_shape, conjugate, log_magnitude
from weft_graph.linear_operators.operator import LinearOperator
from weft_graph.ops import diagonals, reduction
from weft_graph.ops.shape_rules import with_rank_at_least
from weft_tensor.shape import TensorShape


class LinearOperatorDiag(LinearOperator):
    """Diagonal matrices.

    Args:
      diag: floating or complex, shape (..., N).
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints, as in
        `LinearOperator`.
      name: name of the name scope.

    Examples:
      >>> operator = wf.linalg.LinearOperatorDiag([2.0, 4.0])
      >>> wf.Session().run([operator.determinant(), operator.trace()])
      [np.float32(8.0), np.float32(6.0)]
    """

    def __init__(
        self,
        diag: Any,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorDiag",
    ) -> None:
        parameters = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        self._diag = convert_to_tensor(diag)
        with_rank_at_least(self._diag.dims, 1, "diag")
        is_square = True if is_square is None else is_square
        if is_self_adjoint is None and not self._diag.dtype.is_complex:
            is_self_adjoint = True
        super().__init__(
            self._diag.dtype,
            [self._diag],
            is_non_singular,
            is_self_adjoint,
            is_positive_definite,
            is_square,
            name,
            parameters,
        )

    @property
    def diag(self) -> Output:
        """The diagonals."""
        return self._diag

    def _shape(self) -> TensorShape:
        dims = self._diag.dims
        return TensorShape(None if dims is None else (*dims, dims[-1]))

    def _shape_tensor(self) -> Output:
        shape = out("Shape", [self._diag])
        return concat_shape(shape, shape[-1])

    def _column(self, adjoint: bool) -> Output:
        return out("ExpandDims", [conjugate(self._diag, adjoint), -1])

    def _matmul(self, x: Output, adjoint: bool = False, adjoint_arg: bool = False) -> Output:
        return self._column(adjoint) * (adjoint_of(x) if adjoint_arg else x)

    def _solve(self, rhs: Output, adjoint: bool = False, adjoint_arg: bool = False) -> Output:
        return (adjoint_of(rhs) if adjoint_arg else rhs) / self._column(adjoint)

    def _to_dense(self) -> Output:
        return diagonals.matrix_diag(self._diag)

    def _diag_part(self) -> Output:
        return self._diag

    def _determinant(self) -> Output:
        return reduction.reduce_prod(self._diag, -1)

    def _log_abs_determinant(self) -> Output:
        return reduction.reduce_sum(log_magnitude(self._diag), -1)
