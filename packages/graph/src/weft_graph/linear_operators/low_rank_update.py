"""Operators with a low-rank update."""

from __future__ import annotations

__all__ = ["LinearOperatorLowRankUpdate"]

from typing import Any

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.linear_operators.dense import (
    adjoint_of,
    broadcast_batch_dims,
    broadcast_batch_shape,
    concat_shape,
    conjugate,
    product,
)
from weft_graph.linear_operators.operator import LinearOperator
from weft_graph.ops.shape_rules import merge_size, with_rank_at_least
from weft_tensor.shape import TensorShape


class LinearOperatorLowRankUpdate(LinearOperator):
    """L + U D V*, for an operator L, narrow matrices U and V and a diagonal D.

    Args:
      base_operator: L, shape (..., M, N).
      u: same dtype, shape (..., M, K).
      diag_update: same dtype, shape (..., K); ones by default.
      v: same dtype, shape (..., N, K); `u` by default.
      is_diag_update_positive: True if `diag_update` is known to be positive.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints, as in
        `LinearOperator`.
      name: name of the name scope.

    Examples:
      >>> base = wf.linalg.LinearOperatorDiag([1.0, 2.0])
      >>> operator = wf.linalg.LinearOperatorLowRankUpdate(base, [[1.0], [1.0]])
      >>> wf.Session().run(operator.to_dense())
      array([[2., 1.],
             [1., 3.]], dtype=float32)
    """

    def __init__(
        self,
        base_operator: LinearOperator,
        u: Any,
        diag_update: Any = None,
        v: Any = None,
        is_diag_update_positive: bool | None = None,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorLowRankUpdate",
    ) -> None:
        parameters = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        self._base = base_operator
        self._u = convert_to_tensor(u, base_operator.dtype)
        self._v = self._u if v is None else convert_to_tensor(v, base_operator.dtype)
        self._diag = (
            None if diag_update is None else convert_to_tensor(diag_update, base_operator.dtype)
        )
        for value in (self._u, self._v):
            with_rank_at_least(value.dims, 2, "u and v")
        real = not self._u.dtype.is_complex
        is_symmetric = v is None and base_operator.is_self_adjoint and (diag_update is None or real)
        if is_self_adjoint is None and is_symmetric:
            is_self_adjoint = True
        positive = is_symmetric and (diag_update is None or is_diag_update_positive)
        if is_positive_definite is None and positive and base_operator.is_positive_definite:
            is_positive_definite = True
        super().__init__(
            base_operator.dtype,
            [*base_operator.graph_parents, self._u, self._v],
            is_non_singular,
            is_self_adjoint,
            is_positive_definite,
            is_square,
            name,
            parameters,
        )
        self._check_sizes()

    def _check_sizes(self) -> None:
        rows, columns = self._base._sizes()
        rank: int | None = None
        for value, size, label in ((self._u, rows, "u"), (self._v, columns, "v")):
            if value.dims is not None:
                merge_size(
                    value.dims[-2], size, f"the rows of {label} and the size of the operator"
                )
                rank = merge_size(rank, value.dims[-1], "the columns of u and v")
        if self._diag is not None:
            diagonal = with_rank_at_least(self._diag.dims, 1, "diag_update")
            if diagonal is not None:
                merge_size(rank, diagonal[-1], "the columns of u and the elements of diag_update")
        self._shape()  # which broadcasts the batches

    @property
    def base_operator(self) -> LinearOperator:
        """The base operator L."""
        return self._base

    @property
    def u(self) -> Output:
        """The matrix U."""
        return self._u

    @property
    def v(self) -> Output:
        """The matrix V."""
        return self._v

    def _shape(self) -> TensorShape:
        base = self._base.shape
        parts = [(value.dims, inner) for value, inner in self._parts()]
        if base.dims is None or any(dims is None for dims, _ in parts):
            return TensorShape(None)
        leads = [TensorShape(dims[:-inner]) for dims, inner in parts if dims is not None]
        lead = broadcast_batch_dims([self._base.batch_shape, *leads])
        return TensorShape(None if lead is None else (*lead, *base.as_list()[-2:]))

    def _parts(self) -> list[tuple[Output, int]]:
        """Return the terms of the update with their number of non-batch axes."""
        parts = [(self._u, 2), (self._v, 2)]
        return parts if self._diag is None else [*parts, (self._diag, 1)]

    def _shape_tensor(self) -> Output:
        base = self._base.shape_tensor()
        leads = [out("Shape", [value])[:-inner] for value, inner in self._parts()]
        return concat_shape(broadcast_batch_shape([base[:-2], *leads]), base[-2:])

    def _matmul(self, x: Output, adjoint: bool = False, adjoint_arg: bool = False) -> Output:
        value = adjoint_of(x) if adjoint_arg else x
        left, right = (self._v, self._u) if adjoint else (self._u, self._v)
        inner = product(right, value, adjoint_a=True)
        if self._diag is not None:
            inner = out("ExpandDims", [conjugate(self._diag, adjoint), -1]) * inner
        base: Output = self._base.matmul(value, adjoint=adjoint)
        return base + product(left, inner)
