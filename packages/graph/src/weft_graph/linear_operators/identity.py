"""Operators of identity matrices."""

from __future__ import annotations

__all__ = ["LinearOperatorIdentity"]

from typing import Any

from weft_graph.linear_operators.scaled_identity import LinearOperatorScaledIdentity
from weft_graph.ops import array
from weft_graph.ops.random import shape_tensor
from weft_tensor import dtypes


class LinearOperatorIdentity(LinearOperatorScaledIdentity):
    """Identity matrices.

    Args:
      num_rows: integer of rank 0, N.
      batch_shape: integers, shape (...); no batch axes by default.
      dtype: element type of the matrices; float32 by default.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints, all True.
      assert_proper_shapes: no effect, because shapes are always checked.
      name: name of the name scope.

    Examples:
      >>> operator = wf.linalg.LinearOperatorIdentity(2)
      >>> wf.Session().run(operator.to_dense())
      array([[1., 0.],
             [0., 1.]], dtype=float32)
    """

    def __init__(
        self,
        num_rows: Any,
        batch_shape: Any = None,
        dtype: Any = None,
        is_non_singular: bool | None = True,
        is_self_adjoint: bool | None = True,
        is_positive_definite: bool | None = True,
        is_square: bool | None = True,
        assert_proper_shapes: bool = False,
        name: str = "LinearOperatorIdentity",
    ) -> None:
        lead = shape_tensor([] if batch_shape is None else batch_shape)
        diagonal = array.ones(lead, dtypes.as_dtype(dtype or dtypes.float32))
        super().__init__(
            num_rows,
            diagonal,
            is_non_singular,
            is_self_adjoint,
            is_positive_definite,
            is_square,
            name,
        )
