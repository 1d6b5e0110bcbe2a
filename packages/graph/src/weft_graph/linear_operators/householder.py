"""Operators of reflections."""

from __future__ import annotations

__all__ = ["LinearOperatorHouseholder"]

from typing import Any

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.linear_operators.dense import adjoint_of, concat_shape, product
from weft_graph.linear_operators.operator import LinearOperator
from weft_graph.ops.norms import normalize
from weft_graph.ops.shape_rules import with_rank_at_least
from weft_tensor.shape import TensorShape


class LinearOperatorHouseholder(LinearOperator):
    """Householder reflections 1 - 2 v v* for unit vectors v.

    Args:
      reflection_axis: floating or complex, shape (..., N); it is normalized.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints, as in
        `LinearOperator`.
      name: name of the name scope.

    Examples:
      >>> operator = wf.linalg.LinearOperatorHouseholder([0.0, 2.0])
      >>> wf.Session().run(operator.matvec([3.0, 4.0]))
      array([ 3., -4.], dtype=float32)
    """

    def __init__(
        self,
        reflection_axis: Any,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorHouseholder",
    ) -> None:
        parameters = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        given_axis = convert_to_tensor(reflection_axis)
        with_rank_at_least(given_axis.dims, 1, "reflection_axis")
        self._axis = normalize(given_axis, axis=-1)[0]
        is_square, is_self_adjoint, is_non_singular = True, True, True
        super().__init__(
            self._axis.dtype,
            [given_axis],
            is_non_singular,
            is_self_adjoint,
            is_positive_definite,
            is_square,
            name,
            parameters,
        )

    def _shape(self) -> TensorShape:
        dims = self._axis.dims
        return TensorShape(None if dims is None else (*dims, dims[-1]))

    def _shape_tensor(self) -> Output:
        shape = out("Shape", [self._axis])
        return concat_shape(shape, shape[-1])

    def _matmul(self, x: Output, adjoint: bool = False, adjoint_arg: bool = False) -> Output:
        value = adjoint_of(x) if adjoint_arg else x
        column = out("ExpandDims", [self._axis, -1])
        two = out("Cast", [2.0], {"DstT": self.dtype})
        return value - two * product(column, product(column, value, adjoint_a=True))

    def _solve(self, rhs: Output, adjoint: bool = False, adjoint_arg: bool = False) -> Output:
        return self._matmul(rhs, adjoint, adjoint_arg)  # a reflection undoes itself

    def _determinant(self) -> Output:
        return -out("OnesLike", [self._axis[..., 0]])

    def _log_abs_determinant(self) -> Output:
        return out("ZerosLike", [self._axis[..., 0]])
