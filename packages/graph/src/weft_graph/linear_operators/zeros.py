"""Operators of zero matrices."""

from __future__ import annotations

__all__ = ["LinearOperatorZeros"]

from typing import Any

from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.constant_value import constant_value_as_dims
from weft_graph.ir.node import Output
from weft_graph.linear_operators.dense import adjoint_of, concat_shape, product
from weft_graph.linear_operators.operator import LinearOperator
from weft_graph.ops import array
from weft_graph.ops.random import shape_tensor
from weft_graph.ops.shape_rules import constant_int
from weft_tensor import dtypes
from weft_tensor.shape import TensorShape


class LinearOperatorZeros(LinearOperator):
    """Zero matrices.

    Args:
      num_rows: integer of rank 0, M.
      num_columns: integer of rank 0, N; M by default.
      batch_shape: integers, shape (...); no batch axes by default.
      dtype: element type of the matrices; float32 by default.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints, as in
        `LinearOperator`.
      name: name of the name scope.

    Examples:
      >>> operator = wf.linalg.LinearOperatorZeros(2)
      >>> wf.Session().run(operator.matvec([1.0, 2.0]))
      array([0., 0.], dtype=float32)
    """

    def __init__(
        self,
        num_rows: Any,
        num_columns: Any = None,
        batch_shape: Any = None,
        dtype: Any = None,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorZeros",
    ) -> None:
        parameters = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        self._rows = convert_to_tensor(num_rows, dtypes.int32)
        self._columns = (
            self._rows if num_columns is None else convert_to_tensor(num_columns, dtypes.int32)
        )
        self._lead = shape_tensor([] if batch_shape is None else batch_shape)
        if is_square is None and num_columns is None:
            is_square, is_self_adjoint = True, True
        is_non_singular = False
        super().__init__(
            dtype or dtypes.float32,
            [],
            is_non_singular,
            is_self_adjoint,
            is_positive_definite,
            is_square,
            name,
            parameters,
        )

    def _shape(self) -> TensorShape:
        lead = constant_value_as_dims(self._lead)
        if lead is None:
            return TensorShape(None)
        return TensorShape((*lead, constant_int(self._rows), constant_int(self._columns)))

    def _shape_tensor(self) -> Output:
        return concat_shape(self._lead, self._rows, self._columns)

    def _to_dense(self) -> Output:
        return array.zeros(self.shape_tensor(), self.dtype)

    def _matmul(self, x: Output, adjoint: bool = False, adjoint_arg: bool = False) -> Output:
        return product(self._to_dense(), adjoint_of(x) if adjoint_arg else x, adjoint)
