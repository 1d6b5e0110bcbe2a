"""Kronecker products of operators."""

from __future__ import annotations

__all__ = ["LinearOperatorKronecker"]

from math import prod
from typing import Any

from weft_graph.ir.builder import out
from weft_graph.ir.node import Output
from weft_graph.linear_operators.dense import (
    adjoint_of,
    broadcast_batch_dims,
    broadcast_batch_shape,
    concat_shape,
    product,
)
from weft_graph.linear_operators.operator import LinearOperator
from weft_tensor import errors
from weft_tensor.shape import TensorShape


class LinearOperatorKronecker(LinearOperator):
    """Kronecker products of operators.

    Args:
      operators: a list of operators, whose batches broadcast.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints, as in
        `LinearOperator`.
      name: name of the name scope.

    Examples:
      >>> one, two = (wf.linalg.LinearOperatorDiag([x, 3.0]) for x in (1.0, 2.0))
      >>> wf.Session().run(wf.linalg.LinearOperatorKronecker([one, two]).diag_part())
      array([2., 3., 6., 9.], dtype=float32)
    """

    def __init__(
        self,
        operators: Any,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorKronecker",
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
        lead = broadcast_batch_dims([op.batch_shape for op in self._operators])
        if lead is None or any(op.shape.dims is None for op in self._operators):
            return TensorShape(None)
        sizes = [op.shape.as_list()[-2:] for op in self._operators]
        rows, columns = (
            None if None in column else prod(column) for column in zip(*sizes, strict=True)
        )
        return TensorShape((*lead, rows, columns))

    def _shape_tensor(self) -> Output:
        shapes = [op.shape_tensor() for op in self._operators]
        lead = broadcast_batch_shape([shape[:-2] for shape in shapes])
        sizes = out("Prod", [out("Pack", [[shape[-2:] for shape in shapes]]), [0]])
        return concat_shape(lead, sizes)

    def _to_dense(self) -> Output:
        product = self._operators[0].to_dense()
        for op in self._operators[1:]:
            part = op.to_dense()
            wide = out("ExpandDims", [out("ExpandDims", [product, -1]), -3])
            narrow = out("ExpandDims", [out("ExpandDims", [part, -2]), -4])
            entries = wide * narrow
            shape = out("Shape", [entries])
            rows, columns = shape[-4] * shape[-3], shape[-2] * shape[-1]
            product = out("Reshape", [entries, concat_shape(shape[:-4], rows, columns)])
        return product

    def _matmul(self, x: Output, adjoint: bool = False, adjoint_arg: bool = False) -> Output:
        return product(self._to_dense(), adjoint_of(x) if adjoint_arg else x, adjoint)
