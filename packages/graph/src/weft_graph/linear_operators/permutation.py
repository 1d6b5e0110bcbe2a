"""Operators of permutations."""

from __future__ import annotations

__all__ = ["LinearOperatorPermutation"]

from typing import Any

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.linear_operators.dense import adjoint_of, concat_shape, product
from weft_graph.linear_operators.operator import LinearOperator
from weft_graph.ops.gather import one_hot
from weft_graph.ops.shape_rules import with_rank_at_least
from weft_tensor import dtypes
from weft_tensor.shape import TensorShape


class LinearOperatorPermutation(LinearOperator):
    """Permutations: row i of the product is row perm[i] of the operand.

    Args:
      perm: int32 or int64, shape (..., N): a permutation of 0 to N - 1.
      dtype: element type of the matrices.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints, as in
        `LinearOperator`.
      name: name of the name scope.

    Examples:
      >>> operator = wf.linalg.LinearOperatorPermutation([1, 0], wf.float32)
      >>> wf.Session().run(operator.matvec([3.0, 4.0]))
      array([4., 3.], dtype=float32)
    """

    def __init__(
        self,
        perm: Any,
        dtype: Any = dtypes.float32,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorPermutation",
    ) -> None:
        parameters = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        self._perm = convert_to_tensor(perm)
        with_rank_at_least(self._perm.dims, 1, "perm")
        is_square, is_non_singular = True, True
        super().__init__(
            dtype,
            [self._perm],
            is_non_singular,
            is_self_adjoint,
            is_positive_definite,
            is_square,
            name,
            parameters,
        )

    @property
    def perm(self) -> Output:
        """The permutations."""
        return self._perm

    def _shape(self) -> TensorShape:
        dims = self._perm.dims
        return TensorShape(None if dims is None else (*dims, dims[-1]))

    def _shape_tensor(self) -> Output:
        shape = out("Shape", [self._perm])
        return concat_shape(shape, shape[-1])

    def _to_dense(self) -> Output:
        return one_hot(self._perm, out("Shape", [self._perm])[-1], dtype=self.dtype)

    def _matmul(self, x: Output, adjoint: bool = False, adjoint_arg: bool = False) -> Output:
        return product(self._to_dense(), adjoint_of(x) if adjoint_arg else x, adjoint)

    def _solve(self, rhs: Output, adjoint: bool = False, adjoint_arg: bool = False) -> Output:
        return self._matmul(rhs, not adjoint, adjoint_arg)

    def _log_abs_determinant(self) -> Output:
        return out("ZerosLike", [out("Cast", [self._perm[..., 0]], {"DstT": self.dtype})])
