"""Base class of all linear operators."""

from __future__ import annotations

__all__ = ["LinearOperator"]

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

import numpy as np

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.node import Node, Output
from weft_graph.linear_operators.dense import adjoint_of, solve
from weft_graph.ops import checks, control, diagonals, linalg, reduction
from weft_tensor import dtypes, errors
from weft_tensor.shape import TensorShape


class LinearOperator:
    """Base class of linear operators: a batch of matrices of shape (..., M, N).

    A subclass implements `_shape()`, `_shape_tensor()` and
    `_matmul(x, adjoint=False, adjoint_arg=False)`. It may override `_solve`, `_to_dense`,
    `_diag_part`, `_determinant` and `_log_abs_determinant`, which use the dense matrix by default.
    Hints are promises of the caller: True and False are not checked, and None means unknown.

    Args:
      dtype: element type of the matrices.
      graph_parents: tensors that the operator is computed from.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints.
      name: name of the name scope.
      parameters: the arguments of the constructor by name.
    Raises: InvalidArgumentError: the hints contradict each other.

    Examples:
      >>> operator = wf.linalg.LinearOperatorDiag([1.0, 2.0])
      >>> wf.Session().run(operator.matvec([3.0, 4.0]))
      array([3., 8.], dtype=float32)
    """

    _acts_as_matrices = True
    """Marker for `ops.of_operators`: functions of matrices accept the operator."""

    def __init__(
        self,
        dtype: Any,
        graph_parents: Sequence[Output] | None = None,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str | None = None,
        parameters: dict[str, Any] | None = None,
    ) -> None:
        if is_positive_definite:
            if is_non_singular is False:
                raise errors.InvalidArgumentError("a positive definite matrix is not singular")
            is_non_singular = True
        if is_square is False and (is_non_singular or is_self_adjoint):
            raise errors.InvalidArgumentError(
                "a non-singular or self-adjoint matrix is square, got the hint is_square=False"
            )
        self._dtype = dtypes.as_dtype(dtype).base_dtype
        self._graph_parents = list(graph_parents or ())
        self._is_non_singular = is_non_singular
        self._is_self_adjoint = is_self_adjoint
        self._is_positive_definite = is_positive_definite
        self._is_square = True if is_non_singular or is_self_adjoint else is_square
        self._name = name or type(self).__name__
        self._parameters = dict(parameters or {})

    def __repr__(self) -> str:
        return f"<tf.linalg.{type(self).__name__} shape={self.shape} dtype={self._dtype.name}>"

    # --------------------------------------------------------------------- properties

    @property
    def name(self) -> str:
        """The name of the name scope."""
        return self._name

    @property
    def dtype(self) -> dtypes.DType:
        """The element type."""
        return self._dtype

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments of the constructor by name."""
        return dict(self._parameters)

    @property
    def graph_parents(self) -> list[Output]:
        """The tensors that the operator is computed from."""
        return self._graph_parents

    @property
    def is_non_singular(self) -> bool | None:
        """True if the matrices are invertible; None if unknown."""
        return self._is_non_singular

    @property
    def is_self_adjoint(self) -> bool | None:
        """True if the matrices are their own conjugate transposes; None if unknown."""
        return self._is_self_adjoint

    @property
    def is_positive_definite(self) -> bool | None:
        """True if the real part of x* A x is positive for all nonzero x; None if unknown."""
        return self._is_positive_definite

    @property
    def is_square(self) -> bool | None:
        """True if the matrices are square; None if unknown.

        Raises: InvalidArgumentError: they are square although the hint is False.
        """
        rows, columns = self._sizes()
        if rows is not None and columns is not None:
            if rows == columns and self._is_square is False:
                raise errors.InvalidArgumentError(
                    f"{self.name} is square, with the shape {self.shape}, but is_square=False"
                )
            return rows == columns
        return self._is_square

    # ------------------------------------------------------------------------- shapes

    def _shape(self) -> TensorShape:
        raise errors.UnimplementedError(f"{type(self).__name__} does not define its shape")

    def _shape_tensor(self) -> Output:
        raise errors.UnimplementedError(f"{type(self).__name__} does not define its shape")

    def _sizes(self) -> tuple[int | None, int | None]:
        dims = self.shape.dims
        return (None, None) if dims is None else (dims[-2].value, dims[-1].value)

    @property
    def shape(self) -> TensorShape:
        """The static shape (..., M, N)."""
        return TensorShape(self._shape())

    @property
    def batch_shape(self) -> TensorShape:
        """The static batch shape (...)."""
        shape = self.shape
        return TensorShape(None) if shape.dims is None else TensorShape(shape.as_list()[:-2])

    @property
    def tensor_rank(self) -> int | None:
        """The number of axes, if it is known."""
        rank: int | None = self.shape.ndims
        return rank

    @property
    def range_dimension(self) -> Any:
        """The number of rows M, a Dimension."""
        shape = self.shape
        return TensorShape([None])[0] if shape.dims is None else shape.dims[-2]

    @property
    def domain_dimension(self) -> Any:
        """The number of columns N, a Dimension."""
        shape = self.shape
        return TensorShape([None])[0] if shape.dims is None else shape.dims[-1]

    def shape_tensor(self, name: str = "shape_tensor") -> Output:
        """Return the shape (..., M, N), an int32 vector."""
        with self._scope(name):
            static = self.shape
            if static.is_fully_defined():
                return convert_to_tensor(np.array(static.as_list(), np.int32))
            return convert_to_tensor(self._shape_tensor())

    def batch_shape_tensor(self, name: str = "batch_shape_tensor") -> Output:
        """Return the batch shape (...), an int32 vector."""
        with self._scope(name):
            return self.shape_tensor()[:-2]

    def tensor_rank_tensor(self, name: str = "tensor_rank_tensor") -> Output:
        """Return the number of axes, an int32 scalar."""
        with self._scope(name):
            return out("Size", [self.shape_tensor()])

    def range_dimension_tensor(self, name: str = "range_dimension_tensor") -> Output:
        """Return the number of rows M, an int32 scalar."""
        with self._scope(name):
            return self.shape_tensor()[-2]

    def domain_dimension_tensor(self, name: str = "domain_dimension_tensor") -> Output:
        """Return the number of columns N, an int32 scalar."""
        with self._scope(name):
            return self.shape_tensor()[-1]

    # --------------------------------------------------------------------- assertions

    def assert_non_singular(self, name: str = "assert_non_singular") -> Node:
        """Return a node that fails if a matrix is singular to working precision."""
        with self._scope(name):
            values = linalg.svd(self.to_dense(), compute_uv=False)
            ratio = reduction.reduce_min(values, -1) / reduction.reduce_max(values, -1)
            limit = np.array(np.finfo(values.dtype.numpy).eps, values.dtype.numpy)
            return _assert(out("Greater", [ratio, limit]), "a matrix is singular")

    def assert_positive_definite(self, name: str = "assert_positive_definite") -> Node:
        """Return a node that fails when a matrix is not positive definite."""
        with self._scope(name):
            matrix = self.to_dense()
            values = linalg.self_adjoint_eigvals((matrix + adjoint_of(matrix)) / 2)
            if values.dtype.is_complex:
                values = out("Real", [values], {"Tout": values.dtype.real_dtype})
            return _assert(out("Greater", [values, 0.0]), "a matrix is not positive definite")

    def assert_self_adjoint(self, name: str = "assert_self_adjoint") -> Node:
        """Return a node that fails when a matrix is not its own conjugate transpose."""
        with self._scope(name):
            matrix = self.to_dense()
            return checks.assert_equal(
                matrix, adjoint_of(matrix), message="a matrix is not self-adjoint"
            )

    # ------------------------------------------------------------- products, solutions

    def _matmul(self, x: Output, adjoint: bool = False, adjoint_arg: bool = False) -> Output:
        raise errors.UnimplementedError(f"{type(self).__name__} does not define its matrix product")

    def matmul(
        self, x: Any, adjoint: bool = False, adjoint_arg: bool = False, name: str = "matmul"
    ) -> Any:
        """Return the product A @ x.

        Args:
          x: of the operator's dtype, shape (..., N, K); or an operator.
          adjoint: use the conjugate transpose of A.
          adjoint_arg: use the conjugate transpose of x.
        Returns: shape (..., M, K); an operator if x is an operator.
        """
        if isinstance(x, LinearOperator):
            return _kind("composition", "LinearOperatorComposition")(
                [self.adjoint() if adjoint else self, x.adjoint() if adjoint_arg else x]
            )
        with self._scope(name):
            value = convert_to_tensor(x, self._dtype)
            return self._matmul(value, adjoint=adjoint, adjoint_arg=adjoint_arg)

    def __matmul__(self, other: Any) -> Any:
        return self.matmul(other)

    def matvec(self, x: Any, adjoint: bool = False, name: str = "matvec") -> Output:
        """Return the product A @ x, of shape (..., M), with vectors x of shape (..., N)."""
        with self._scope(name):
            column = out("ExpandDims", [convert_to_tensor(x, self._dtype), -1])
            return out("Squeeze", [self.matmul(column, adjoint=adjoint)], {"squeeze_dims": [-1]})

    def _solve(self, rhs: Output, adjoint: bool = False, adjoint_arg: bool = False) -> Output:
        return solve(self.to_dense(), adjoint_of(rhs) if adjoint_arg else rhs, adjoint)

    def solve(
        self, rhs: Any, adjoint: bool = False, adjoint_arg: bool = False, name: str = "solve"
    ) -> Any:
        """Return X with A @ X = rhs.

        Args:
          rhs: of the operator's dtype, shape (..., M, K); or an operator.
          adjoint: use the conjugate transpose of A.
          adjoint_arg: use the conjugate transpose of `rhs`.
        Returns: shape (..., N, K); an operator if `rhs` is an operator.
        Raises: UnimplementedError: the hints say that A is singular or not square.
        """
        if self.is_non_singular is False or self.is_square is False:
            raise errors.UnimplementedError(
                "requires a non-singular square operator, but the hints of the operator exclude "
                f"this: {self!r}"
            )
        if isinstance(rhs, LinearOperator):
            operator = self.adjoint() if adjoint else self
            return operator.inverse().matmul(rhs.adjoint() if adjoint_arg else rhs)
        with self._scope(name):
            value = convert_to_tensor(rhs, self._dtype)
            return self._solve(value, adjoint=adjoint, adjoint_arg=adjoint_arg)

    def solvevec(self, rhs: Any, adjoint: bool = False, name: str = "solve") -> Output:
        """Return the x of shape (..., N) with A @ x = rhs, for vectors of shape (..., M)."""
        with self._scope(name):
            column = out("ExpandDims", [convert_to_tensor(rhs, self._dtype), -1])
            return out("Squeeze", [self.solve(column, adjoint=adjoint)], {"squeeze_dims": [-1]})

    # ------------------------------------------------------------------- other operators

    def adjoint(self, name: str = "adjoint") -> LinearOperator:
        """Return the operator of the conjugate transposes."""
        if self.is_self_adjoint:
            return self
        with self._scope(name):
            return _kind("adjoint", "LinearOperatorAdjoint")(self)

    H = property(adjoint)

    def inverse(self, name: str = "inverse") -> LinearOperator:
        """Return the operator of the inverses."""
        if self.is_square is False or self.is_non_singular is False:
            raise errors.UnimplementedError(f"{self!r} has no inverse")
        with self._scope(name):
            return _kind("inversion", "LinearOperatorInversion")(self)

    def cholesky(self, name: str = "cholesky") -> LinearOperator:
        """Return the operator of the lower triangular L with L @ adjoint(L) = A.

        Raises: InvalidArgumentError: A has no hints that it is self-adjoint and positive definite.
        """
        if not (self.is_self_adjoint and self.is_positive_definite):
            raise errors.InvalidArgumentError(
                "requires the hints is_self_adjoint and is_positive_definite, got "
                f"{self.is_self_adjoint} and {self.is_positive_definite}"
            )
        with self._scope(name):
            factor = linalg.cholesky(self.to_dense())
            return _kind("lower_triangular", "LinearOperatorLowerTriangular")(
                factor, is_non_singular=True
            )

    # ---------------------------------------------------------------------- quantities

    def _eye(self) -> Output:
        shape = self.shape_tensor()
        unit = diagonals.eye(shape[-1], batch_shape=shape[:-2], dtype=self._dtype)
        return unit

    def _to_dense(self) -> Output:
        return self.matmul(self._eye())  # type: ignore[no-any-return]  # of a tensor it is one

    def to_dense(self, name: str = "to_dense") -> Output:
        """Return the matrices, shape (..., M, N)."""
        with self._scope(name):
            return self._to_dense()

    def _diag_part(self) -> Output:
        return diagonals.matrix_diag_part(self.to_dense())

    def diag_part(self, name: str = "diag_part") -> Output:
        """Return the diagonals, shape (..., min(M, N))."""
        with self._scope(name):
            return self._diag_part()

    def trace(self, name: str = "trace") -> Output:
        """Return the sums of the diagonals, shape (...)."""
        with self._scope(name):
            return reduction.reduce_sum(self.diag_part(), -1)

    def _require_square(self, operation: str) -> None:
        if self.is_square is False:
            raise errors.UnimplementedError(f"{operation} requires square matrices, got {self!r}")

    def _determinant(self) -> Output:
        return linalg.matrix_determinant(self.to_dense())

    def determinant(self, name: str = "det") -> Output:
        """Return the determinants, shape (...)."""
        self._require_square("a determinant")
        with self._scope(name):
            return self._determinant()

    def _log_abs_determinant(self) -> Output:
        return linalg.slogdet(self.to_dense())[1]

    def log_abs_determinant(self, name: str = "log_abs_det") -> Output:
        """Return the logarithms of the determinants' magnitudes, shape (...)."""
        self._require_square("a determinant")
        with self._scope(name):
            return self._log_abs_determinant()

    def add_to_tensor(self, x: Any, name: str = "add_to_tensor") -> Output:
        """Return a + x, for x of shape (..., M, N)."""
        with self._scope(name):
            return self.to_dense() + convert_to_tensor(x, self._dtype)

    def eigvals(self, name: str = "eigvals") -> Output:
        """Return the eigenvalues of self-adjoint matrices in ascending order, shape (..., N)."""
        if not self.is_self_adjoint:
            raise errors.UnimplementedError("eigenvalues require the hint is_self_adjoint")
        with self._scope(name):
            return linalg.self_adjoint_eigvals(self.to_dense())

    def cond(self, name: str = "cond") -> Output:
        """Return the condition numbers: the largest singular values over the smallest ones."""
        with self._scope(name):
            values = linalg.svd(self.to_dense(), compute_uv=False)
            return reduction.reduce_max(values, -1) / reduction.reduce_min(values, -1)

    def _scope(self, name: str) -> AbstractContextManager[Any]:
        return name_scope(f"{self._name}/{name}")


def _kind(module: str, name: str) -> Callable[..., LinearOperator]:
    """Import and return a class of operators by name."""
    kind: Callable[..., LinearOperator] = getattr(
        import_module(f"weft_graph.linear_operators.{module}"), name
    )
    return kind


def _assert(holds: Output, message: str) -> Node:
    interval = out("Range", [0, out("Rank", [holds]), 1])
    return control.Assert(out("All", [holds, interval]), [message])
