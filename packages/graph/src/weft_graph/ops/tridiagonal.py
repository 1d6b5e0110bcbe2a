"""Tridiagonal matrices: products, solutions and eigenvalues.

Diagonals have one of three formats. "compact" is a tensor of shape (..., 3, M) with the
superdiagonal, the main diagonal and the subdiagonal; the last element of the first and the first
element of the last are ignored. "sequence" is three tensors, of which the outer two may have M - 1
elements. "matrix" is a tensor of shape (..., M, M), whose other elements are ignored.
"""

from __future__ import annotations

__all__ = ["eigh_tridiagonal", "tridiagonal_matmul", "tridiagonal_solve"]

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import convert_to_tensor, create, out
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import Traits
from weft_graph.ops import diagonals as _diagonals, permutation, shape_rules
from weft_graph.ops.cost_rules import computes
from weft_tensor import errors
from weft_tensor.shape import Dims, merge_dims

_TYPES = "{float64, float32, complex64, complex128}"


def _solve_shape(node: NodeSpec) -> Sequence[Dims]:
    diagonals = shape_rules.with_rank_at_least(node.inputs[0].dims, 2, "diagonals")
    rhs = shape_rules.with_rank_at_least(node.inputs[1].dims, 2, "rhs")
    if diagonals is None or rhs is None:
        return (rhs,)
    shape_rules.merge_size(diagonals[-2], 3, "the rows of diagonals and the number of diagonals")
    return (_product_dims(diagonals[:-2], diagonals[-1], rhs),)


def _product_dims(lead: Dims, size: int | None, rhs: Dims) -> Dims:
    assert lead is not None and rhs is not None
    rows = shape_rules.merge_size(size, rhs[-2], "the diagonals and the rows of rhs")
    batch = merge_dims(lead, rhs[:-2])
    assert batch is not None
    return (*batch, rows, rhs[-1])


def _matmul_shape(node: NodeSpec) -> Sequence[Dims]:
    rhs = shape_rules.with_rank_at_least(node.inputs[3].dims, 2, "rhs")
    for value in node.inputs[:3]:
        dims = shape_rules.with_rank_at_least(value.dims, 2, "a diagonal")
        if dims is not None and rhs is not None:
            shape_rules.merge_size(dims[-2], 1, "the rows of a diagonal and 1")
            rhs = _product_dims(dims[:-2], dims[-1], rhs)
    return (rhs,)


register_op(
    "TridiagonalSolve",
    ("diagonals: T", "rhs: T"),
    ("output: T",),
    {"partial_pivoting": "bool = true", "perturb_singular": "bool = false", "T": _TYPES},
    _solve_shape,
    traits=Traits(cost=computes(lambda sizes: 10 * sizes.elements_out)),
    doc="x with A @ x = rhs, for tridiagonal A.",
)
register_op(
    "TridiagonalMatMul",
    ("superdiag: T", "maindiag: T", "subdiag: T", "rhs: T"),
    ("output: T",),
    {"T": _TYPES},
    _matmul_shape,
    traits=Traits(cost=computes(lambda sizes: 5 * sizes.elements_out)),
    doc="The product of a tridiagonal matrix, passed as diagonals of shape (..., 1, M), and rhs.",
)


def three_diagonals(diagonals: Any, diagonals_format: str) -> list[Output]:
    """Return the superdiagonal, the main diagonal and the subdiagonal, all of shape (..., M).

    Raises: InvalidArgumentError: the format is unknown, or there are not three diagonals.
    """
    if diagonals_format == "compact":
        return _split_compact(convert_to_tensor(diagonals))
    if diagonals_format == "sequence":
        return _split_sequence(diagonals)
    if diagonals_format == "matrix":
        return _split_matrix(convert_to_tensor(diagonals))
    raise errors.InvalidArgumentError(
        f"diagonals_format must be 'compact', 'sequence' or 'matrix', got {diagonals_format!r}"
    )


def _split_compact(value: Output) -> list[Output]:
    dims = shape_rules.with_rank_at_least(value.dims, 2, "diagonals")
    if dims is not None:
        shape_rules.merge_size(dims[-2], 3, "the rows of diagonals and the number of diagonals")
    return [value[..., i, :] for i in range(3)]


def _split_sequence(diagonals: Any) -> list[Output]:
    if not isinstance(diagonals, list | tuple) or len(diagonals) != 3:
        raise errors.InvalidArgumentError(
            f"diagonals must be a sequence of three tensors, got {diagonals!r}"
        )
    main = convert_to_tensor(diagonals[1])
    upper, lower = (convert_to_tensor(diagonals[i], main.dtype.base_dtype) for i in (0, 2))
    return [_pad_diagonal(upper, main, False), main, _pad_diagonal(lower, main, True)]


def _pad_diagonal(value: Output, main: Output, at_start: bool) -> Output:
    """Return an outer diagonal padded to the length of the main one."""
    n, m = (None if x.dims is None else x.dims[-1] for x in (value, main))
    if n is None or m is None:
        raise errors.InvalidArgumentError(
            f"the lengths of diagonals must be known while the graph is built, got {value!r} and "
            f"{main!r}"
        )
    if n == m:
        return value
    if n != m - 1:
        raise errors.InvalidArgumentError(
            f"a diagonal next to a main diagonal of {m} elements must have {m - 1} or {m} "
            f"elements, got {value!r}"
        )
    assert value.dims is not None
    pair = [1, 0] if at_start else [0, 1]
    return out("Pad", [value, [*[[0, 0]] * (len(value.dims) - 1), pair]])


def _split_matrix(value: Output) -> list[Output]:
    if value.dims is None:
        raise errors.InvalidArgumentError(
            f"a tridiagonal matrix must have a known rank, got {value!r}"
        )
    shape_rules.with_rank_at_least(value.dims, 2, "a tridiagonal matrix")
    rows, columns = value.dims[-2:]
    shape_rules.merge_size(rows, columns, "the rows and columns of a tridiagonal matrix")
    outside = [[0, 0]] * (len(value.dims) - 2)
    shifted_down = out("Pad", [value, [*outside, [0, 1], [0, 0]]])[..., 1:, :]
    shifted_up = out("Pad", [value, [*outside, [1, 0], [0, 0]]])[..., :-1, :]
    # The rows moved up by one have the diagonal below the main one on it.
    subdiagonal = _diagonals.matrix_diag_part(shifted_down)
    superdiagonal = _diagonals.matrix_diag_part(shifted_up)
    return [
        _roll_diagonal(superdiagonal, False),
        _diagonals.matrix_diag_part(value),
        _roll_diagonal(subdiagonal, True),
    ]


def _roll_diagonal(value: Output, later: bool) -> Output:
    return permutation.roll(value, 1 if later else -1, -1)


def tridiagonal_solve(
    diagonals: Any,
    rhs: Any,
    diagonals_format: str = "compact",
    transpose_rhs: bool = False,
    conjugate_rhs: bool = False,
    name: str | None = None,
    partial_pivoting: bool = True,
    perturb_singular: bool = False,
) -> Output:
    """Return x with A @ x = rhs, for tridiagonal matrices A.

    Args:
      diagonals: float32, float64 or complex; diagonals of A in the format `diagonals_format`.
      rhs: same dtype, shape (..., M), or (..., M, K) for K right-hand sides; the latter is assumed
        if a rank is unknown.
      diagonals_format: "compact", "sequence" or "matrix".
      transpose_rhs: `rhs` has shape (..., K, M) instead.
      conjugate_rhs: use the complex conjugate of `rhs`.
      partial_pivoting: use partial pivoting; without it the solver is faster, but inaccurate unless
        the main diagonal dominates.
      perturb_singular: replace a pivot of 0 by a tiny number.
    Returns: shape (..., M) or (..., M, K).
    Raises: InvalidArgumentError: the shapes do not match, or, at run time, a matrix is singular.

    Examples:
      >>> x = wf.linalg.tridiagonal_solve(
      ...     [[1.0, 1.0, 0.0], [2.0, 2.0, 2.0], [0.0, 1.0, 1.0]], [3.0, 4.0, 3.0]
      ... )
      >>> np.round(wf.Session().run(x), 3)
      array([1., 1., 1.], dtype=float32)
    """
    if perturb_singular and not partial_pivoting:
        raise errors.InvalidArgumentError("perturb_singular requires partial_pivoting")
    with name_scope(name, "tridiagonal_solve") as scope:
        diagonal_vectors = three_diagonals(diagonals, diagonals_format)
        compact = out("Pack", [diagonal_vectors], {"axis": -2})
        value = convert_to_tensor(rhs, compact.dtype.base_dtype)
        vector = _is_vector(value, compact)
        if vector:
            value = out("ExpandDims", [value, -1])
        elif transpose_rhs:
            value = permutation.matrix_transpose(value, conjugate=conjugate_rhs)
        if conjugate_rhs and (vector or not transpose_rhs) and value.dtype.is_complex:
            value = out("Conj", [value])
        attrs = {"partial_pivoting": partial_pivoting, "perturb_singular": perturb_singular}
        solution = out("TridiagonalSolve", [compact, value], attrs)
        if vector:
            return out("Squeeze", [solution], {"squeeze_dims": [-1]}, scope)
        return out("Identity", [solution], name=scope)


def _is_vector(value: Output, compact: Output) -> bool:
    """Return True if the right-hand side is a single vector; False if a rank is unknown."""
    if value.dims is None or compact.dims is None:
        return False
    return len(value.dims) == len(compact.dims) - 1


def tridiagonal_matmul(
    diagonals: Any, rhs: Any, diagonals_format: str = "compact", name: str | None = None
) -> Output:
    """Multiply tridiagonal matrices by dense matrices.

    Args:
      diagonals: float32, float64 or complex; in the format `diagonals_format`.
      rhs: same dtype, shape (..., M, K).
      diagonals_format: "compact", "sequence" or "matrix".
    Returns: shape (..., M, K).
    Raises: InvalidArgumentError: the shapes do not match.

    Examples:
      >>> product = wf.linalg.tridiagonal_matmul(
      ...     [[1.0, 1.0, 0.0], [2.0, 2.0, 2.0], [0.0, 1.0, 1.0]], [[1.0], [1.0], [1.0]]
      ... )
      >>> wf.Session().run(product)
      array([[3.],
             [4.],
             [3.]], dtype=float32)
    """
    rows = [
        out("ExpandDims", [diagonal, -2])
        for diagonal in three_diagonals(diagonals, diagonals_format)
    ]
    return out("TridiagonalMatMul", [*rows, rhs], name=name)


def eigh_tridiagonal(
    alpha: Any,
    beta: Any,
    eigvals_only: bool = True,
    select: str = "a",
    select_range: Any = None,
    tol: Any = None,
    name: str | None = None,
) -> Any:
    """Return ascending eigenvalues, and eigenvectors, of self-adjoint tridiagonal matrices.

    Args:
      alpha: float32, float64 or complex, shape (..., N): the main diagonal, whose imaginary part is
        ignored.
      beta: same dtype, shape (..., N - 1): the subdiagonal.
      eigvals_only: return only the eigenvalues.
      select: "a", all of them; "i", those with indices `select_range[0]` to `select_range[1]`,
        both included; "v", those in the interval (select_range[0], select_range[1]], for which
        `alpha` must have rank 1.
      select_range: two numbers.
      tol: no effect, because all digits are computed.
    Returns: real, shape (..., K), and unless `eigvals_only` the eigenvectors, shape (..., N, K).
    Raises: InvalidArgumentError: the shapes do not match, or the selection is invalid.

    Examples:
      >>> np.round(wf.Session().run(wf.linalg.eigh_tridiagonal([2.0, 2.0], [1.0])), 3)
      array([1., 3.], dtype=float32)
    """
    if select not in ("a", "i", "v") or (select != "a" and len(select_range or ()) != 2):
        raise errors.InvalidArgumentError(
            "select must be 'a', or 'i' or 'v' with a select_range of two numbers, got "
            f"{select!r} and {select_range!r}"
        )
    with name_scope(name, "eigh_tridiagonal"):
        main = convert_to_tensor(alpha)
        subdiagonal = convert_to_tensor(beta, main.dtype.base_dtype)
        values, vectors = _eigen(main, subdiagonal, not eigvals_only)
        if select == "i":
            first, last = select_range
            values, vectors = values[..., first : last + 1], vectors[..., first : last + 1]
        elif select == "v":
            shape_rules.with_rank(main.dims, 1, "alpha")
            low, high = (convert_to_tensor(x, values.dtype) for x in select_range)
            in_interval = out("LogicalAnd", [out("Greater", [values, low]),
                                        out("LessEqual", [values, high])])  # fmt: skip
            selected = out("Squeeze", [out("Where", [in_interval])], {"squeeze_dims": [1]})
            values = out("GatherV2", [values, selected, 0])
            vectors = vectors if eigvals_only else out("GatherV2", [vectors, selected, 1])
        return values if eigvals_only else (values, vectors)


def _eigen(main: Output, subdiagonal: Output, with_vectors: bool) -> tuple[Output, Output]:
    """Compute them from the dense matrix, of which only the lower triangle is read."""
    if main.dims is None:
        raise errors.InvalidArgumentError(f"alpha must have a known rank, got {main!r}")
    outside = [[0, 0]] * (len(main.dims) - 1)
    shifted = out("MatrixDiag", [out("Pad", [subdiagonal, [*outside, [0, 1]]])])
    lower = out("Pad", [shifted, [*outside, [1, 0], [0, 0]]])[..., :-1, :]
    matrix = out("MatrixSetDiag", [lower, main])
    values, vectors = create("SelfAdjointEigV2", [matrix], {"compute_v": with_vectors}).outputs
    if values.dtype.is_complex:
        values = out("Real", [values], {"Tout": values.dtype.real_dtype})
    return values, vectors
