"""Operators of tridiagonal matrices."""

from __future__ import annotations

__all__ = ["LinearOperatorTridiag"]

from typing import Any

from weft_graph.ir.builder import out
from weft_graph.ir.node import Output
from weft_graph.linear_operators.dense import adjoint_of, spread
from weft_graph.linear_operators.operator import LinearOperator
from weft_graph.ops.tridiagonal import three_diagonals
from weft_tensor.shape import TensorShape


class LinearOperatorTridiag(LinearOperator):
    """Tridiagonal matrices.

    Args:
      diagonals: floating or complex, in the format `diagonals_format`.
      diagonals_format: "compact", "sequence" or "matrix", as in `tridiagonal_solve`.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints, as in
        `LinearOperator`.
      name: name of the name scope.

    Examples:
      >>> operator = wf.linalg.LinearOperatorTridiag([[1.0, 0.0], [2.0, 3.0], [0.0, 1.0]])
      >>> wf.Session().run(operator.to_dense())
      array([[2., 1.],
             [1., 3.]], dtype=float32)
    """

    def __init__(
        self,
        diagonals: Any,
        diagonals_format: str = "compact",
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorTridiag",
    ) -> None:
        parameters = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        self._three = three_diagonals(diagonals, diagonals_format)
        self._compact = out("Pack", [self._three], {"axis": -2})
        is_square = True if is_square is None else is_square
        super().__init__(
            self._compact.dtype,
            [self._compact],
            is_non_singular,
            is_self_adjoint,
            is_positive_definite,
            is_square,
            name,
            parameters,
        )

    def _shape(self) -> TensorShape:
        dims = self._three[1].dims
        return TensorShape(None if dims is None else (*dims, dims[-1]))

    def _shape_tensor(self) -> Output:
        shape = out("Shape", [self._three[1]])
        return out("ConcatV2", [[shape, shape[-1:]], 0])

    def _matmul(self, x: Output, adjoint: bool = False, adjoint_arg: bool = False) -> Output:
        value = adjoint_of(x) if adjoint_arg else x
        if adjoint:
            return out("BatchMatMulV2", [self.to_dense(), value], {"adj_x": True})
        compact, value = spread(self._compact, value)
        rows = [compact[..., i : i + 1, :] for i in range(3)]
        return out("TridiagonalMatMul", [*rows, value])

    def _solve(self, rhs: Output, adjoint: bool = False, adjoint_arg: bool = False) -> Output:
        if adjoint:
            return super()._solve(rhs, adjoint, adjoint_arg)
        compact, value = spread(self._compact, adjoint_of(rhs) if adjoint_arg else rhs)
        return out("TridiagonalSolve", [compact, value])

    def _diag_part(self) -> Output:
        return self._three[1]
