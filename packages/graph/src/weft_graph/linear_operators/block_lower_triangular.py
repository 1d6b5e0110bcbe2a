"""Operators of block lower triangular matrices."""

from __future__ import annotations

__all__ = ["LinearOperatorBlockLowerTriangular"]

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
from weft_graph.ops import array
from weft_tensor import errors
from weft_tensor.shape import TensorShape


class LinearOperatorBlockLowerTriangular(LinearOperator):
    """Block lower triangular matrices.

    Args:
      operators: a list of rows of blocks: one in the first row, two in the second, and so on. The
        last block of each row must be square.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints, as in
        `LinearOperator`.
      name: name of the name scope.

    Examples:
      >>> one, two, three = (wf.linalg.LinearOperatorFullMatrix([[x]]) for x in (1.0, 2.0, 3.0))
      >>> operator = wf.linalg.LinearOperatorBlockLowerTriangular([[one], [two, three]])
      >>> wf.Session().run(operator.to_dense())
      array([[1., 0.],
             [2., 3.]], dtype=float32)
    """

    def __init__(
        self,
        operators: Any,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorBlockLowerTriangular",
    ) -> None:
        parameters = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        self._operators: list[list[LinearOperator]] = [list(row) for row in operators]
        if not self._operators or [len(r) for r in self._operators] != list(
            range(1, len(self._operators) + 1)
        ):
            raise errors.InvalidArgumentError(
                f"row i must have i + 1 blocks, got rows of {[len(row) for row in self._operators]}"
            )
        is_square = True if is_square is None else is_square
        super().__init__(
            self._operators[0][0].dtype,
            [x for row in self._operators for op in row for x in op.graph_parents],
            is_non_singular,
            is_self_adjoint,
            is_positive_definite,
            is_square,
            name,
            parameters,
        )

    @property
    def operators(self) -> list[list[LinearOperator]]:
        """The blocks, by rows."""
        return self._operators

    def _shape(self) -> TensorShape:
        lead = broadcast_batch_dims([op.batch_shape for row in self._operators for op in row])
        diagonal = [row[-1].shape for row in self._operators]
        if lead is None or any(shape.dims is None for shape in diagonal):
            return TensorShape(None)
        sizes = [shape.as_list()[-1] for shape in diagonal]
        size: int | None = 0
        for n in sizes:
            size = None if size is None or n is None else size + n
        return TensorShape((*lead, size, size))

    def _shape_tensor(self) -> Output:
        shapes = [op.shape_tensor() for row in self._operators for op in row]
        sizes = [row[-1].shape_tensor()[-1] for row in self._operators]
        size = out("Sum", [out("Pack", [sizes]), [0]])
        return concat_shape(broadcast_batch_shape([s[:-2] for s in shapes]), size, size)

    def _to_dense(self) -> Output:
        lead = self.batch_shape_tensor()
        rows = []
        for row in self._operators:
            blocks = [op.to_dense() for op in row]
            for later in self._operators[len(row) :]:
                sizes = [out("Shape", [blocks[-1]])[-2], later[-1].shape_tensor()[-1]]
                blocks.append(array.zeros(out("Pack", [sizes]), self.dtype))
            wide = [
                out("BroadcastTo", [b, concat_shape(lead, out("Shape", [b])[-2:])]) for b in blocks
            ]
            rows.append(out("ConcatV2", [wide, -1]))
        return out("ConcatV2", [rows, -2])

    def _matmul(self, x: Output, adjoint: bool = False, adjoint_arg: bool = False) -> Output:
        return product(self._to_dense(), adjoint_of(x) if adjoint_arg else x, adjoint)

    def _solve(self, rhs: Output, adjoint: bool = False, adjoint_arg: bool = False) -> Output:
        if adjoint:
            return super()._solve(rhs, adjoint, adjoint_arg)
        value = adjoint_of(rhs) if adjoint_arg else rhs
        solutions: list[Output] = []
        first = convert_to_tensor(0)
        for row in self._operators:
            last = first + row[-1].shape_tensor()[-1]
            part: Output = value[..., first:last, :]
            for op, solution in zip(row, solutions, strict=False):
                part = part - op.matmul(solution)
            solutions.append(row[-1].solve(part))
            first = last
        lead = broadcast_batch_shape([out("Shape", [part])[:-2] for part in solutions])
        wide = [
            out("BroadcastTo", [part, concat_shape(lead, out("Shape", [part])[-2:])])
            for part in solutions
        ]
        return out("ConcatV2", [wide, -2])
