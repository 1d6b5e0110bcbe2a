"""Operators of multiples of identity matrices."""

from __future__ import annotations

__all__ = ["LinearOperatorScaledIdentity"]

from typing import Any

import numpy as np

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.linear_operators.dense import adjoint_of, concat_shape, conjugate, log_magnitude
from weft_graph.linear_operators.operator import LinearOperator
from weft_graph.ops.shape_rules import constant_int
from weft_tensor import dtypes
from weft_tensor.shape import TensorShape


class LinearOperatorScaledIdentity(LinearOperator):
    """Multiples of identity matrices.

    Args:
      num_rows: integer of rank 0, N.
      multiplier: floating or complex, shape (...).
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints, as in
        `LinearOperator`.
      name: name of the name scope.

    Examples:
      >>> operator = wf.linalg.LinearOperatorScaledIdentity(2, 3.0)
      >>> wf.Session().run(operator.matvec([1.0, 2.0]))
      array([3., 6.], dtype=float32)
    """

    def __init__(
        self,
        num_rows: Any,
        multiplier: Any,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorScaledIdentity",
    ) -> None:
        parameters = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        rows = convert_to_tensor(num_rows, dtypes.int32)
        self._rows = (
            rows if rows.dims is not None else out("Reshape", [rows, np.zeros(0, np.int32)])
        )
        self._multiplier = convert_to_tensor(multiplier)
        is_square = True if is_square is None else is_square
        if is_self_adjoint is None and not self._multiplier.dtype.is_complex:
            is_self_adjoint = True
        super().__init__(
            self._multiplier.dtype,
            [self._multiplier],
            is_non_singular,
            is_self_adjoint,
            is_positive_definite,
            is_square,
            name,
            parameters,
        )

    @property
    def multiplier(self) -> Output:
        """The factors."""
        return self._multiplier

    def _shape(self) -> TensorShape:
        dims, rows = self._multiplier.dims, constant_int(self._rows)
        return TensorShape(None if dims is None else (*dims, rows, rows))

    def _shape_tensor(self) -> Output:
        return concat_shape(out("Shape", [self._multiplier]), self._rows, self._rows)

    def _factor(self, adjoint: bool) -> Output:
        factor = conjugate(self._multiplier, adjoint)
        return out("ExpandDims", [out("ExpandDims", [factor, -1]), -1])

    def _matmul(self, x: Output, adjoint: bool = False, adjoint_arg: bool = False) -> Output:
        return self._factor(adjoint) * (adjoint_of(x) if adjoint_arg else x)

    def _solve(self, rhs: Output, adjoint: bool = False, adjoint_arg: bool = False) -> Output:
        return (adjoint_of(rhs) if adjoint_arg else rhs) / self._factor(adjoint)

    def _diag_part(self) -> Output:
        all_ones = out("Fill", [out("Pack", [[self._rows]]), out("OnesLike", [self._sample()])])
        return out("ExpandDims", [self._multiplier, -1]) * all_ones

    def _sample(self) -> Output:
        return out("Cast", [1.0], {"DstT": self.dtype})

    def _count(self) -> Output:
        return out("Cast", [self._rows], {"DstT": self.dtype})

    def _determinant(self) -> Output:
        return out("Pow", [self._multiplier, self._count()])

    def _log_abs_determinant(self) -> Output:
        return self._count() * log_magnitude(self._multiplier)
