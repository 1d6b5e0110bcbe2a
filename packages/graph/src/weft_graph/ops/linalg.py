"""Linear algebra: factorizations, solutions, determinants, diagonals and bands of matrices.

Matrices are the last two axes; leading axes, written (...), are batch axes.
"""

from __future__ import annotations

__all__ = [
    "adjoint",
    "cholesky",
    "cholesky_solve",
    "det",
    "eigh",
    "eigvalsh",
    "expm",
    "inv",
    "logdet",
    "lstsq",
    "matrix_rank",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "triangular_solve",
]

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft_graph.ir.builder import convert_to_tensor, create, out
from weft_graph.ir.named_results import named_results
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import Traits
from weft_graph.ops import casting, cost_rules, permutation, reduction, shape_rules
from weft_graph.ops.casting import cast
from weft_graph.ops.diagonals import (
    matrix_diag_part,
    smaller,
)
from weft_graph.ops.operator_dispatch import or_method
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dims, format_dims, merge_dims

_TYPES = "{float32, float64, complex64, complex128}"


def square_dims(dims: Dims, label: str) -> Dims:
    """Return `dims` of square matrices; if one of the last two sizes is unknown, use the other."""
    shape_rules.with_rank_at_least(dims, 2, label)
    if dims is None:
        return None
    size = shape_rules.merge_size(dims[-2], dims[-1], f"the rows and columns of {label}")
    return (*dims[:-2], size, size)


def _square_shape(node: NodeSpec) -> Sequence[Dims]:
    return (square_dims(node.inputs[0].dims, "a square matrix"),)


def _determinant_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = square_dims(node.inputs[0].dims, "a square matrix")
    lead = None if dims is None else dims[:-2]
    return (lead, lead)


def _solve_shape(node: NodeSpec) -> Sequence[Dims]:
    matrix = square_dims(node.inputs[0].dims, "matrix")
    rhs = shape_rules.with_rank_at_least(node.inputs[1].dims, 2, "rhs")
    if matrix is None or rhs is None:
        return (rhs,)
    if len(matrix) != len(rhs):
        raise errors.InvalidArgumentError(
            f"matrix and rhs must have the same rank, got shapes {format_dims(matrix)} and "
            f"{format_dims(rhs)}"
        )
    lead = merge_dims(matrix[:-2], rhs[:-2])
    assert lead is not None
    rows = shape_rules.merge_size(matrix[-1], rhs[-2], "the rows of matrix and rhs")
    return ((*lead, rows, rhs[-1]),)


def _least_squares_shape(node: NodeSpec) -> Sequence[Dims]:
    matrix = shape_rules.with_rank_at_least(node.inputs[0].dims, 2, "matrix")
    rhs = shape_rules.with_rank_at_least(node.inputs[1].dims, 2, "rhs")
    shape_rules.with_rank(node.inputs[2].dims, 0, "l2_regularizer")
    if matrix is None or rhs is None:
        return (None,)
    shape_rules.merge_size(matrix[-2], rhs[-2], "the rows of matrix and rhs")
    lead = merge_dims(matrix[:-2], rhs[:-2])
    assert lead is not None
    return ((*lead, matrix[-1], rhs[-1]),)


def _eigh_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = square_dims(node.inputs[0].dims, "a square matrix")
    values = None if dims is None else dims[:-1]
    vectors = dims if node.attrs["compute_v"] else (0,)
    return (values, vectors)


def _svd_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = shape_rules.with_rank_at_least(node.inputs[0].dims, 2, "a matrix")
    if dims is None:
        return (None, None, None)
    lead, m, n = dims[:-2], dims[-2], dims[-1]
    p = smaller(m, n)
    if not node.attrs["compute_uv"]:
        return ((*lead, p), (0,), (0,))
    full = node.attrs["full_matrices"]
    return ((*lead, p), (*lead, m, m if full else p), (*lead, n, n if full else p))


def _qr_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = shape_rules.with_rank_at_least(node.inputs[0].dims, 2, "a matrix")
    if dims is None:
        return (None, None)
    lead, m, n = dims[:-2], dims[-2], dims[-1]
    p = m if node.attrs["full_matrices"] else smaller(m, n)
    return ((*lead, m, p), (*lead, p, n))


_INVERSE = {"adjoint": "bool = false", "T": _TYPES}


def _declare() -> None:
    register_op(
        "MatrixInverse",
        ("input: T",),
        ("output: T",),
        _INVERSE,
        _square_shape,
        traits=Traits(cost=cost_rules.factorization(2)),
        doc="Inverses of square matrices, or of their adjoints.",
    )
    register_op(
        "MatrixDeterminant",
        ("input: T",),
        ("output: T",),
        {"T": _TYPES},
        lambda node: _determinant_shape(node)[:1],
        traits=Traits(cost=cost_rules.factorization(2 / 3)),
        doc="Determinants of square matrices.",
    )
    register_op(
        "LogMatrixDeterminant",
        ("input: T",),
        ("sign: T", "log_abs_determinant: T"),
        {"T": _TYPES},
        _determinant_shape,
        traits=Traits(cost=cost_rules.factorization(2 / 3)),
        doc="Determinants as sign and logarithm of the magnitude.",
    )
    register_op(
        "Cholesky",
        ("input: T",),
        ("output: T",),
        {"T": _TYPES},
        _square_shape,
        traits=Traits(cost=cost_rules.factorization(1 / 3)),
        doc="Lower triangular L with L @ adjoint(L) = input.",
    )
    register_op(
        "MatrixExponential",
        ("input: T",),
        ("output: T",),
        {"T": _TYPES},
        _square_shape,
        traits=Traits(cost=cost_rules.factorization(20)),
        doc="Exponentials of square matrices.",
    )
    _declare_systems()
    _declare_decompositions()


def _declare_systems() -> None:
    systems = ("matrix: T", "rhs: T")
    register_op(
        "MatrixSolve",
        systems,
        ("output: T",),
        _INVERSE,
        _solve_shape,
        traits=Traits(cost=cost_rules.factorization(2 / 3, columns=2)),
        doc="x with matrix @ x = rhs.",
    )
    register_op(
        "MatrixTriangularSolve",
        systems,
        ("output: T",),
        {"lower": "bool = true", **_INVERSE},
        _solve_shape,
        traits=Traits(cost=cost_rules.factorization(0, columns=1)),
        doc="x with matrix @ x = rhs, reading one triangle of the matrix.",
    )
    register_op(
        "MatrixSolveLs",
        (*systems, "l2_regularizer: float64"),
        ("output: T",),
        {"T": _TYPES, "fast": "bool = true"},
        _least_squares_shape,
        traits=Traits(cost=cost_rules.factorization(2, columns=4, square=False)),
        doc="x that minimizes |matrix @ x - rhs| ** 2 + l2_regularizer * |x| ** 2.",
    )


def _declare_decompositions() -> None:
    register_op(
        "SelfAdjointEigV2",
        ("input: T",),
        ("e: T", "v: T"),
        {"compute_v": "bool = true", "T": _TYPES},
        _eigh_shape,
        traits=Traits(
            cost=cost_rules.decomposition(lambda s: 9 if s.attrs["compute_v"] else 4 / 3),
            cost_attrs=("compute_v",),
        ),
        doc="Eigenvalues, in ascending order, and eigenvectors of self-adjoint matrices.",
    )
    register_op(
        "Svd",
        ("input: T",),
        ("s: T", "u: T", "v: T"),
        {"compute_uv": "bool = true", "full_matrices": "bool = false", "T": _TYPES},
        _svd_shape,
        traits=Traits(
            cost=cost_rules.decomposition(
                lambda s: 14 if s.attrs["compute_uv"] else 4, square=False
            ),
            cost_attrs=(
                "compute_uv",
                "full_matrices",
            ),
        ),
        doc="Singular values s (descending), and u, v with input = u @ diag(s) @ adjoint(v).",
    )
    register_op(
        "Qr",
        ("input: T",),
        ("q: T", "r: T"),
        {"full_matrices": "bool = false", "T": _TYPES},
        _qr_shape,
        traits=Traits(
            cost=cost_rules.factorization(4, square=False), cost_attrs=("full_matrices",)
        ),
        doc="Orthonormal q and upper triangular r with input = q @ r.",
    )


_declare()


@or_method("inverse")
def matrix_inverse(input: Any, adjoint: bool = False, name: str | None = None) -> Output:
    """Return the inverses of matrices.

    Args:
      input: float32, float64 or complex, shape (..., M, M).
      adjoint: invert the conjugate transposes.
    Returns: shape (..., M, M).
    Raises: InvalidArgumentError: a matrix is not square, or, at run time, not invertible.

    Examples:
      >>> wf.Session().run(wf.matrix_inverse([[2.0, 0.0], [0.0, 4.0]]))
      array([[0.5 , 0.  ],
             [0.  , 0.25]], dtype=float32)
    """
    return out("MatrixInverse", [input], {"adjoint": adjoint}, name)


inv = matrix_inverse


@or_method("determinant")
def matrix_determinant(input: Any, name: str | None = None) -> Output:
    """Return the determinants of matrices.

    Args:
      input: float32, float64 or complex, shape (..., M, M).
    Returns: shape (...).
    Raises: InvalidArgumentError: a matrix is not square.

    Examples:
      >>> np.round(wf.Session().run(wf.matrix_determinant([[2.0, 0.0], [0.0, 4.0]])), 3)
      np.float32(8.0)
    """
    return out("MatrixDeterminant", [input], name=name)


det = matrix_determinant


def slogdet(input: Any, name: str | None = None) -> tuple[Output, Output]:
    """Return the signs of determinants, and the logarithms of their magnitudes.

    Args:
      input: float32, float64 or complex, shape (..., M, M).
    Returns: signs and logarithms, shape (...), dtype of `input`.
    Raises: InvalidArgumentError: a matrix is not square.

    Examples:
      >>> sign, log = wf.Session().run(wf.linalg.slogdet([[-1.0, 0.0], [0.0, 1.0]]))
      >>> sign, np.round(log, 3)
      (np.float32(-1.0), np.float32(0.0))
    """
    sign_and_log: tuple[Output, Output] = named_results(
        create("LogMatrixDeterminant", [input], name=name)
    )
    return sign_and_log


log_matrix_determinant = slogdet


@or_method("log_abs_determinant")
def logdet(matrix: Any, name: str | None = None) -> Output:
    """Return the logarithms of determinants of self-adjoint positive definite matrices.

    Args:
      matrix: float32, float64 or complex, shape (..., M, M).
    Returns: shape (...), the real dtype of `matrix`.
    Raises: InvalidArgumentError: at run time, a matrix is not positive definite.

    Examples:
      >>> np.round(wf.Session().run(wf.linalg.logdet([[2.0, 0.0], [0.0, 4.0]])), 3)
      np.float32(2.079)
    """
    diagonal = casting.real(matrix_diag_part(cholesky(matrix)))
    total = reduction.reduce_sum(out("Log", [diagonal]), -1)
    return out("Mul", [2.0, total], name=name or "logdet")


@or_method("cholesky")
def cholesky(input: Any, name: str | None = None) -> Output:
    """Return lower triangular factors L with L @ adjoint(L) = input.

    Args:
      input: float32, float64 or complex, shape (..., M, M), self-adjoint positive definite; only
        the lower triangle is read.
    Returns: shape (..., M, M).
    Raises: InvalidArgumentError: a matrix is not square, or, at run time, not positive definite.

    Examples:
      >>> wf.Session().run(wf.cholesky([[4.0]]))
      array([[2.]], dtype=float32)
    """
    return out("Cholesky", [input], name=name)


def cholesky_solve(chol: Any, rhs: Any, name: str | None = None) -> Output:
    """Return x with A @ x = rhs, for the Cholesky factor of A.

    Args:
      chol: float32, float64 or complex, shape (..., M, M), lower triangular.
      rhs: same dtype, shape (..., M, K).
    Returns: shape (..., M, K).

    Examples:
      >>> wf.Session().run(wf.cholesky_solve([[2.0]], [[8.0]]))
      array([[2.]], dtype=float32)
    """
    factor = convert_to_tensor(chol)
    half = matrix_triangular_solve(factor, rhs)
    return matrix_triangular_solve(factor, half, adjoint=True, name=name or "cholesky_solve")


@or_method("solve")
def matrix_solve(matrix: Any, rhs: Any, adjoint: bool = False, name: str | None = None) -> Output:
    """Return x with matrix @ x = rhs.

    Args:
      matrix: float32, float64 or complex, shape (..., M, M).
      rhs: same dtype, shape (..., M, K).
      adjoint: use the conjugate transposes of `matrix`.
    Returns: shape (..., M, K).
    Raises: InvalidArgumentError: the shapes do not match, or, at run time, a matrix is singular.

    Examples:
      >>> wf.Session().run(wf.matrix_solve([[2.0, 0.0], [0.0, 4.0]], [[2.0], [8.0]]))
      array([[1.],
             [2.]], dtype=float32)
    """
    return out("MatrixSolve", [matrix, rhs], {"adjoint": adjoint}, name)


solve = matrix_solve


def matrix_triangular_solve(
    matrix: Any, rhs: Any, lower: bool = True, adjoint: bool = False, name: str | None = None
) -> Output:
    """Return x with matrix @ x = rhs for triangular matrices, by substitution.

    Args:
      matrix: float32, float64 or complex, shape (..., M, M); one triangle is read.
      rhs: same dtype, shape (..., M, K).
      lower: read the lower triangle, else the upper one.
      adjoint: use the conjugate transposes of `matrix`.
    Returns: shape (..., M, K).
    Raises: InvalidArgumentError: the shapes do not match, or, at run time, a diagonal has a 0.

    Examples:
      >>> wf.Session().run(wf.linalg.triangular_solve([[2.0, 0.0], [1.0, 1.0]], [[4.0], [5.0]]))
      array([[2.],
             [3.]], dtype=float32)
    """
    attrs = {"lower": lower, "adjoint": adjoint}
    return out("MatrixTriangularSolve", [matrix, rhs], attrs, name)


triangular_solve = matrix_triangular_solve


def matrix_solve_ls(
    matrix: Any, rhs: Any, l2_regularizer: Any = 0.0, fast: bool = True, name: str | None = None
) -> Output:
    """Return the x that minimizes |matrix @ x - rhs| ** 2 + l2_regularizer * |x| ** 2.

    Args:
      matrix: float32, float64 or complex, shape (..., M, N).
      rhs: same dtype, shape (..., M, K).
      l2_regularizer: float64 scalar, at least 0.
      fast: solve the normal equations, which is accurate for well-conditioned matrices. Otherwise
        use a complete orthogonal factorization and ignore the regularizer.
    Returns: shape (..., N, K).

    Examples:
      >>> line = wf.linalg.lstsq([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]], [[1.0], [3.0], [5.0]])
      >>> np.round(wf.Session().run(line), 3)
      array([[1.],
             [2.]], dtype=float32)
    """
    return out("MatrixSolveLs", [matrix, rhs, l2_regularizer], {"fast": fast}, name)


lstsq = matrix_solve_ls


def self_adjoint_eig(tensor: Any, name: str | None = None) -> tuple[Output, Output]:
    """Return the eigenvalues, in ascending order, and the eigenvectors of self-adjoint matrices.

    Args:
      tensor: float32, float64 or complex, shape (..., N, N); only the lower triangle is read.
    Returns: eigenvalues, shape (..., N), and eigenvectors as columns, shape (..., N, N).
    Raises: InvalidArgumentError: a matrix is not square.

    Examples:
      >>> values, vectors = wf.linalg.eigh([[2.0, 0.0], [0.0, 1.0]])
      >>> wf.Session().run(values)
      array([1., 2.], dtype=float32)
    """
    values, vectors = create("SelfAdjointEigV2", [tensor], name=name).outputs
    return values, vectors


eigh = self_adjoint_eig


def self_adjoint_eigvals(tensor: Any, name: str | None = None) -> Output:
    """Return the eigenvalues of self-adjoint matrices in ascending order.

    Args:
      tensor: float32, float64 or complex, shape (..., N, N); only the lower triangle is read.
    Returns: shape (..., N).
    Raises: InvalidArgumentError: a matrix is not square.

    Examples:
      >>> wf.Session().run(wf.linalg.eigvalsh([[2.0, 0.0], [0.0, 1.0]]))
      array([1., 2.], dtype=float32)
    """
    return create("SelfAdjointEigV2", [tensor], {"compute_v": False}, name).outputs[0]


eigvalsh = self_adjoint_eigvals


def svd(
    tensor: Any, full_matrices: bool = False, compute_uv: bool = True, name: str | None = None
) -> Any:
    """Return the singular value decomposition tensor = u @ diag(s) @ adjoint(v).

    Args:
      tensor: float32, float64 or complex, shape (..., M, N); P is the smaller of M and N.
      full_matrices: return square u and v.
      compute_uv: also return u and v.
    Returns: s, real and in descending order, shape (..., P); u, shape (..., M, P); v, shape (...,
      N, P).

    Examples:
      >>> np.round(wf.Session().run(wf.svd([[3.0, 0.0], [0.0, 4.0]], compute_uv=False)), 3)
      array([4., 3.], dtype=float32)
    """
    attrs = {"full_matrices": full_matrices, "compute_uv": compute_uv}
    s, u, v = create("Svd", [tensor], attrs, name).outputs
    if s.dtype.is_complex:
        s = out("Real", [s], {"Tout": s.dtype.real_dtype})
    return (s, u, v) if compute_uv else s


def qr(input: Any, full_matrices: bool = False, name: str | None = None) -> tuple[Output, Output]:
    """Return orthonormal q and upper triangular r with input = q @ r.

    Args:
      input: float32, float64 or complex, shape (..., M, N); P is the smaller of M and N.
      full_matrices: return q of shape (..., M, M).
    Returns: shapes (..., M, P) and (..., P, N).

    Examples:
      >>> q, r = wf.Session().run(wf.qr([[3.0, 0.0], [0.0, 4.0]]))
      >>> np.round(abs(r), 3)
      array([[3., 0.],
             [0., 4.]], dtype=float32)
    """
    factors: tuple[Output, Output] = named_results(
        create("Qr", [input], {"full_matrices": full_matrices}, name)
    )
    return factors


def expm(input: Any, name: str | None = None) -> Output:
    """Return the exponentials of matrices: the sum of input ** k / k! over k.

    Args:
      input: float32, float64 or complex, shape (..., M, M).
    Returns: shape (..., M, M).
    Raises: InvalidArgumentError: a matrix is not square.

    Examples:
      >>> np.round(wf.Session().run(wf.linalg.expm([[0.0]])), 3)
      array([[1.]], dtype=float32)
    """
    return out("MatrixExponential", [input], name=name)


@or_method("adjoint")
def adjoint(matrix: Any, name: str | None = None) -> Output:
    """Return the conjugate transposes of matrices.

    Args:
      matrix: any dtype, shape (..., M, N).
    Returns: shape (..., N, M).

    Examples:
      >>> wf.Session().run(wf.linalg.adjoint([[1j, 2.0]]))
      array([[0.-1.j],
             [2.-0.j]])
    """
    return permutation.matrix_transpose(matrix, name or "adjoint", conjugate=True)


def _longest_side(value: Output, factor: float) -> Output:
    """Return `factor` times the larger matrix size times the epsilon of the real dtype."""
    real = value.dtype.real_dtype
    sizes = out("StridedSlice", [out("Shape", [value]), [-2], [0], [1]], {"end_mask": 1})
    longest = cast(reduction.reduce_max(sizes), real)
    return out("Mul", [longest, np.array(factor * np.finfo(real.numpy).eps, real.numpy)])


def matrix_rank(
    a: Any, tol: Any = None, validate_args: bool = False, name: str | None = None
) -> Output:
    """Return the number of singular values above a threshold.

    Args:
      a: float32, float64 or complex, shape (..., M, N).
      tol: real, shape (...); max(M, N) * eps * the largest singular value by default.
      validate_args: no effect, because shapes are always checked.
    Returns: int32, shape (...).

    Examples:
      >>> wf.Session().run(wf.linalg.matrix_rank([[1.0, 2.0], [2.0, 4.0]]))
      np.int32(1)
    """
    value = convert_to_tensor(a)
    s = svd(value, compute_uv=False)
    if tol is None:
        threshold = out("Mul", [reduction.reduce_max(s, -1), _longest_side(value, 1.0)])
    else:
        threshold = convert_to_tensor(tol, s.dtype)
    is_above = cast(out("Greater", [s, out("ExpandDims", [threshold, -1])]), dtypes.int32)
    return reduction.reduce_sum(is_above, -1, name=name or "matrix_rank")


def pinv(a: Any, rcond: Any = None, validate_args: bool = False, name: str | None = None) -> Output:
    """Return the Moore-Penrose pseudoinverses of matrices.

    Args:
      a: float32, float64 or complex, shape (..., M, N).
      rcond: real, shape (...); singular values below rcond times the largest count as 0;
        10 * max(M, N) * eps by default.
      validate_args: no effect, because shapes are always checked.
    Returns: shape (..., N, M).

    Examples:
      >>> np.round(wf.Session().run(wf.linalg.pinv([[2.0, 0.0], [0.0, 4.0], [0.0, 0.0]])), 3)
      array([[0.5 , 0.  , 0.  ],
             [0.  , 0.25, 0.  ]], dtype=float32)
    """
    value = convert_to_tensor(a)
    s, u, v = svd(value)
    ratio = _longest_side(value, 10.0) if rcond is None else convert_to_tensor(rcond, s.dtype)
    cutoff = out("Mul", [ratio, reduction.reduce_max(s, -1)])
    is_large = out("Greater", [s, out("ExpandDims", [cutoff, -1])])
    inverse = out("SelectV2", [is_large, out("Reciprocal", [s]), out("ZerosLike", [s])])
    factors = cast(out("ExpandDims", [inverse, -2]), value.dtype.base_dtype)
    return out("BatchMatMulV2", [out("Mul", [v, factors]), u], {"adj_y": True}, name or "pinv")
