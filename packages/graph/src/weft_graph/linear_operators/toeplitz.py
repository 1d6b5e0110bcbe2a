"""Operators of Toeplitz matrices."""

from __future__ import annotations

__all__ = ["LinearOperatorToeplitz"]

from typing import Any

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.linear_operators.dense import (
    adjoint_of,
    broadcast_batch_dims,
    broadcast_batch_shape,
    concat_shape,
    product,
)
from weft_graph.linear_operators.operator import LinearOperator
from weft_graph.ops.shape_rules import with_rank_at_least
from weft_tensor.shape import TensorShape


class LinearOperatorToeplitz(LinearOperator):
    """Toeplitz matrices, which are constant along each diagonal.

    Args:
      col: floating or complex, shape (..., N), the first column.
      row: same dtype, shape (..., N), the first row; its first element is not used.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints, as in
        `LinearOperator`.
      name: name of the name scope.

    Examples:
      >>> operator = wf.linalg.LinearOperatorToeplitz([1.0, 2.0], [1.0, 3.0])
      >>> wf.Session().run(operator.to_dense())
      array([[1., 3.],
             [2., 1.]], dtype=float32)
    """

    def __init__(
        self,
        col: Any,
        row: Any,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorToeplitz",
    ) -> None:
        parameters = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        self._col = convert_to_tensor(col)
        self._row = convert_to_tensor(row, self._col.dtype.base_dtype)
        for value in (self._col, self._row):
            with_rank_at_least(value.dims, 1, "col and row")
        is_square = True if is_square is None else is_square
        super().__init__(
            self._col.dtype,
            [self._col, self._row],
            is_non_singular,
            is_self_adjoint,
            is_positive_definite,
            is_square,
            name,
            parameters,
        )

    @property
    def col(self) -> Output:
        """The first columns."""
        return self._col

    @property
    def row(self) -> Output:
        """The first rows."""
        return self._row

    def _shape(self) -> TensorShape:
        sizes = [value.dims for value in (self._col, self._row)]
        if sizes[0] is None or sizes[1] is None:
            return TensorShape(None)
        lead = broadcast_batch_dims([TensorShape(dims[:-1]) for dims in sizes if dims is not None])
        return TensorShape(None if lead is None else (*lead, sizes[0][-1], sizes[0][-1]))

    def _shape_tensor(self) -> Output:
        shapes = [out("Shape", [value]) for value in (self._col, self._row)]
        size = shapes[0][-1]
        return concat_shape(broadcast_batch_shape([shape[:-1] for shape in shapes]), size, size)

    def _to_dense(self) -> Output:
        size = out("Shape", [self._col])[-1]
        lead = self.batch_shape_tensor()
        sides = [
            out("BroadcastTo", [value, concat_shape(lead, size)])
            for value in (self._col, self._row)
        ]
        # From the last of the row to its second, and then the column: element i - j + N - 1.
        line = out("ConcatV2", [[out("ReverseV2", [sides[1], [-1]])[..., :-1], sides[0]], -1])
        indices = out("Range", [0, size, 1])
        steps = out("ExpandDims", [indices, 1]) - indices + size - 1
        return out("GatherV2", [line, steps, out("Rank", [line]) - 1])

    def _matmul(self, x: Output, adjoint: bool = False, adjoint_arg: bool = False) -> Output:
        return product(self._to_dense(), adjoint_of(x) if adjoint_arg else x, adjoint)

    def _diag_part(self) -> Output:
        shape = self.shape_tensor()
        return out("BroadcastTo", [self._col[..., :1], shape[:-1]])
