"""Products of operators."""

from __future__ import annotations

__all__ = ["LinearOperatorComposition"]

from typing import Any

from weft_graph.ir.node import Output
from weft_graph.linear_operators.dense import (
    adjoint_of,
    broadcast_batch_dims,
    broadcast_batch_shape,
    concat_shape,
)
from weft_graph.linear_operators.operator import LinearOperator
from weft_tensor import errors
from weft_tensor.shape import TensorShape


class LinearOperatorComposition(LinearOperator):
    """Products of operators.

    Args:
      operators: a list of operators with matching sizes, whose batches broadcast.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints, as in
        `LinearOperator`.
      name: name of the name scope.

    Examples:
      >>> one, two = (wf.linalg.LinearOperatorDiag([x, 3.0]) for x in (1.0, 2.0))
      >>> wf.Session().run(wf.linalg.LinearOperatorComposition([one, two]).diag_part())
      array([2., 9.], dtype=float32)
    """

    def __init__(
        self,
        operators: Any,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorComposition",
    ) -> None:
        parameters = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        self._operators: list[LinearOperator] = list(operators)
        if not self._operators:
            raise errors.InvalidArgumentError("requires at least one operator")
        if is_non_singular is None and all(op.is_non_singular for op in self._operators):
            is_non_singular = True
        super().__init__(
            self._operators[0].dtype,
            [x for op in self._operators for x in op.graph_parents],
            is_non_singular,
            is_self_adjoint,
            is_positive_definite,
            is_square,
            name,
            parameters,
        )

    @property
    def operators(self) -> list[LinearOperator]:
        """The factors."""
        return self._operators

    def _shape(self) -> TensorShape:
        first, last = self._operators[0], self._operators[-1]
        lead = broadcast_batch_dims([op.batch_shape for op in self._operators])
        if lead is None or first.shape.dims is None or last.shape.dims is None:
            return TensorShape(None)
        return TensorShape((*lead, first.shape.as_list()[-2], last.shape.as_list()[-1]))

    def _shape_tensor(self) -> Output:
        shapes = [op.shape_tensor() for op in self._operators]
        lead = broadcast_batch_shape([shape[:-2] for shape in shapes])
        return concat_shape(lead, shapes[0][-2], shapes[-1][-1])

    def _matmul(self, x: Output, adjoint: bool = False, adjoint_arg: bool = False) -> Output:
        value = adjoint_of(x) if adjoint_arg else x
        for op in self._operators if adjoint else reversed(self._operators):
            value = op.matmul(value, adjoint=adjoint)
        return value

    def _are_all_square(self) -> bool:
        return all(op.is_square for op in self._operators)

    def _solve(self, rhs: Output, adjoint: bool = False, adjoint_arg: bool = False) -> Output:
        if not self._are_all_square():
            return super()._solve(rhs, adjoint, adjoint_arg)
        value = adjoint_of(rhs) if adjoint_arg else rhs
        for op in reversed(self._operators) if adjoint else self._operators:
            value = op.solve(value, adjoint=adjoint)
        return value

    def _determinant(self) -> Output:
        if not self._are_all_square():
            return super()._determinant()
        result = self._operators[0].determinant()
        for op in self._operators[1:]:
            result = result * op.determinant()
        return result

    def _log_abs_determinant(self) -> Output:
        if not self._are_all_square():
            return super()._log_abs_determinant()
        result = self._operators[0].log_abs_determinant()
        for op in self._operators[1:]:
            result = result + op.log_abs_determinant()
        return result
