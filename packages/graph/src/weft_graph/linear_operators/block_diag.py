"""Operators of blocks along the diagonal."""

from __future__ import annotations

__all__ = ["LinearOperatorBlockDiag"]

from typing import Any

from weft_graph.ir.builder import convert_to_tensor, out
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


class LinearOperatorBlockDiag(LinearOperator):
    """Block-diagonal matrices.

    Args:
      operators: a list of operators, whose batches broadcast.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints, as in
        `LinearOperator`.
      name: name of the name scope.

    Examples:
      >>> one, two = (wf.linalg.LinearOperatorDiag([x]) for x in (1.0, 2.0))
      >>> wf.Session().run(wf.linalg.LinearOperatorBlockDiag([one, two]).to_dense())
      array([[1., 0.],
             [0., 2.]], dtype=float32)
    """

    def __init__(
        self,
        operators: Any,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorBlockDiag",
    ) -> None:
        parameters = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        self._operators: list[LinearOperator] = list(operators)
        if not self._operators:
            raise errors.InvalidArgumentError("requires at least one operator")
        if is_non_singular is None and all(op.is_non_singular for op in self._operators):
            is_non_singular = True
        if is_self_adjoint is None and all(op.is_self_adjoint for op in self._operators):
            is_self_adjoint = True
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
        """The blocks."""
        return self._operators

    def _shape(self) -> TensorShape:
        lead = broadcast_batch_dims([op.batch_shape for op in self._operators])
        if lead is None or any(op.shape.dims is None for op in self._operators):
            return TensorShape(None)
        sizes = [op.shape.as_list()[-2:] for op in self._operators]
        rows, columns = (
            None if None in column else sum(column) for column in zip(*sizes, strict=True)
        )
        return TensorShape((*lead, rows, columns))

    def _shape_tensor(self) -> Output:
        shapes = [op.shape_tensor() for op in self._operators]
        lead = broadcast_batch_shape([shape[:-2] for shape in shapes])
        return concat_shape(lead, out("Sum", [out("Pack", [[s[-2:] for s in shapes]]), [0]]))

    def _parts(self, x: Output, axis: int) -> list[Output]:
        """Split the rows of `x` into the input (or output) rows of each block."""
        parts, first = [], convert_to_tensor(0)
        for op in self._operators:
            last = first + op.shape_tensor()[axis]
            parts.append(x[..., first:last, :])
            first = last
        return parts

    def _join_blocks(self, parts: list[Output]) -> Output:
        lead = broadcast_batch_shape([out("Shape", [part])[:-2] for part in parts])
        wide = [
            out("BroadcastTo", [part, concat_shape(lead, out("Shape", [part])[-2:])])
            for part in parts
        ]
        return out("ConcatV2", [wide, -2])

    def _matmul(self, x: Output, adjoint: bool = False, adjoint_arg: bool = False) -> Output:
        parts = self._parts(adjoint_of(x) if adjoint_arg else x, -2 if adjoint else -1)
        return self._join_blocks(
            [op.matmul(p, adjoint=adjoint) for op, p in zip(self._operators, parts, strict=True)]
        )

    def _solve(self, rhs: Output, adjoint: bool = False, adjoint_arg: bool = False) -> Output:
        if not all(op.is_square for op in self._operators):
            return super()._solve(rhs, adjoint, adjoint_arg)
        parts = self._parts(adjoint_of(rhs) if adjoint_arg else rhs, -1)
        return self._join_blocks(
            [op.solve(p, adjoint=adjoint) for op, p in zip(self._operators, parts, strict=True)]
        )
