"""Conjugate transposes of operators."""

from __future__ import annotations

__all__ = ["LinearOperatorAdjoint"]


from weft_graph.ir.builder import out
from weft_graph.ir.node import Output
from weft_graph.linear_operators.dense import conjugate
from weft_graph.linear_operators.operator import LinearOperator
from weft_tensor.shape import TensorShape


class LinearOperatorAdjoint(LinearOperator):
    """The conjugate transposes of the matrices of an operator.

    Args:
      operator: a LinearOperator.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints, as in
        `LinearOperator`.
      name: name of the name scope.

    Examples:
      >>> base = wf.linalg.LinearOperatorLowerTriangular([[1.0, 0.0], [2.0, 3.0]])
      >>> wf.Session().run(wf.linalg.LinearOperatorAdjoint(base).to_dense())
      array([[1., 2.],
             [0., 3.]], dtype=float32)
    """

    def __init__(
        self,
        operator: LinearOperator,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorAdjoint",
    ) -> None:
        parameters = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        self._operator = operator
        if is_non_singular is None:
            is_non_singular = operator.is_non_singular
        if is_self_adjoint is None:
            is_self_adjoint = operator.is_self_adjoint
        if is_positive_definite is None:
            is_positive_definite = operator.is_positive_definite
        if is_square is None:
            is_square = operator.is_square
        super().__init__(
            operator.dtype,
            operator.graph_parents,
            is_non_singular,
            is_self_adjoint,
            is_positive_definite,
            is_square,
            name,
            parameters,
        )

    @property
    def operator(self) -> LinearOperator:
        """The original operator."""
        return self._operator

    def _shape(self) -> TensorShape:
        shape = self._operator.shape
        if shape.dims is None:
            return shape
        *lead, rows, columns = shape.as_list()
        return TensorShape((*lead, columns, rows))

    def _shape_tensor(self) -> Output:
        shape = self._operator.shape_tensor()
        return out("ConcatV2", [[shape[:-2], shape[-1:], shape[-2:-1]], 0])

    def _matmul(self, x: Output, adjoint: bool = False, adjoint_arg: bool = False) -> Output:
        return self._operator.matmul(x, adjoint=not adjoint, adjoint_arg=adjoint_arg)  # type: ignore[no-any-return]  # of a tensor it is one

    def _solve(self, rhs: Output, adjoint: bool = False, adjoint_arg: bool = False) -> Output:
        return self._operator.solve(rhs, adjoint=not adjoint, adjoint_arg=adjoint_arg)  # type: ignore[no-any-return]  # as above

    def _determinant(self) -> Output:
        return conjugate(self._operator.determinant())

    def _log_abs_determinant(self) -> Output:
        return self._operator.log_abs_determinant()

    def adjoint(self, name: str = "adjoint") -> LinearOperator:
        """Return the original operator."""
        return self._operator

    H = property(adjoint)
