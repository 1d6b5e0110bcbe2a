"""LU factorization with partial pivoting, and solution of linear equations."""

from __future__ import annotations

__all__ = ["lu", "lu_matrix_inverse", "lu_reconstruct", "lu_solve"]

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import convert_to_tensor, create, out
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import Traits
from weft_graph.ops import cost_rules, diagonals, linalg, shape_rules
from weft_tensor import dtypes
from weft_tensor.shape import Dims


def _shape(node: NodeSpec) -> Sequence[Dims]:
    dims = linalg.square_dims(node.inputs[0].dims, "a square matrix")
    return (dims, None if dims is None else dims[:-1])


register_op(
    "Lu",
    ("input: T",),
    ("lu: T", "p: output_idx_type"),
    {
        "T": "{float64, float32, float16, complex64, complex128}",
        "output_idx_type": "{int32, int64} = int32",
    },
    _shape,
    traits=Traits(cost=cost_rules.factorization(2 / 3)),
    doc="Factors L, with unit diagonal, and U in one matrix, with input[p] = L @ U.",
)


def lu(
    input: Any, output_idx_type: Any = dtypes.int32, name: str | None = None
) -> tuple[Output, Output]:
    """Return the LU factors of square matrices, with partial pivoting.

    Args:
      input: floating or complex, shape (..., M, M), invertible.
      output_idx_type: int32 or int64.
    Returns: L (without its unit diagonal) below the diagonal and U on and above it, shape (..., M,
      M); and the row of `input` for each row of L @ U, shape (..., M).
    Raises: InvalidArgumentError: a matrix is not square, or, at run time, not invertible.

    Examples:
      >>> factors, rows = wf.Session().run(wf.linalg.lu([[0.0, 2.0], [4.0, 6.0]]))
      >>> factors, rows
      (array([[4., 6.],
             [0., 2.]], dtype=float32), array([1, 0], dtype=int32))
    """
    attrs = {"output_idx_type": dtypes.as_dtype(output_idx_type)}
    factors, rows = create("Lu", [input], attrs, name).outputs
    return factors, rows


def lower_factor(factors: Output) -> Output:
    """Return L, with a unit diagonal, from the results of `lu`."""
    unit_diagonal = out("OnesLike", [diagonals.matrix_diag_part(factors)])
    return diagonals.matrix_set_diag(diagonals.matrix_band_part(factors, -1, 0), unit_diagonal)


def rows_of(value: Output, rows: Output) -> Output:
    """Gather rows of matrices by index: shapes (..., M, K) and (..., M)."""
    if rows.dims is not None and len(rows.dims) == 1 and value.dims and len(value.dims) == 2:
        return out("GatherV2", [value, rows, 0])
    # A product with the permutation would round; gathering flat rows does not.
    shape = out("Shape", [value])
    count, width = shape[-2], shape[-1]
    flat = out("Reshape", [value, out("Pack", [[-1, width]])])
    indices = out("Reshape", [rows, out("Pack", [[-1, count]])])
    starts = out("Mul", [out("Range", [0, out("Shape", [indices])[0], 1]), count])
    indices = out("AddV2", [out("Cast", [indices], {"DstT": dtypes.int32}),
                           out("ExpandDims", [starts, 1])])  # fmt: skip
    selected = out("GatherV2", [flat, out("Reshape", [indices, [-1]]), 0])
    return out("Reshape", [selected, shape])


def inverse_rows(rows: Output) -> Output:
    """Return the inverses of permutations over the last axis."""
    if rows.dims is not None and len(rows.dims) == 1:
        return out("InvertPermutation", [rows])
    count = out("Shape", [rows])[-1]
    flat = out("Reshape", [rows, out("Pack", [[-1, count]])])
    order = out("TopKV2", [out("Neg", [flat]), count])  # the k-th smallest is k itself
    return out("Reshape", [order.node.outputs[1], out("Shape", [rows])])


def lu_reconstruct(
    lower_upper: Any, perm: Any, validate_args: bool = False, name: str | None = None
) -> Output:
    """Return the matrices that `lu` factorized.

    Args:
      lower_upper, perm: results of `lu`, shapes (..., M, M) and (..., M).
      validate_args: no effect, because shapes are always checked.
    Returns: shape (..., M, M).

    Examples:
      >>> matrix = wf.linalg.lu_reconstruct(*wf.linalg.lu([[0.0, 2.0], [4.0, 6.0]]))
      >>> wf.Session().run(matrix)
      array([[0., 2.],
             [4., 6.]], dtype=float32)
    """
    with name_scope(name, "lu_reconstruct") as scope:
        factors, rows = _check_factors(lower_upper, perm)
        upper = diagonals.matrix_band_part(factors, 0, -1)
        product = out("BatchMatMulV2", [lower_factor(factors), upper])
        return out("Identity", [rows_of(product, inverse_rows(rows))], name=scope)


def _check_factors(lower_upper: Any, perm: Any) -> tuple[Output, Output]:
    """Return the factors and the row permutations, checked.

    Raises: InvalidArgumentError: the shapes do not match.
    """
    factors, rows = convert_to_tensor(lower_upper), convert_to_tensor(perm)
    dims = linalg.square_dims(factors.dims, "lower_upper")
    if dims is not None and rows.dims is not None:
        shape_rules.with_rank(rows.dims, len(dims) - 1, "perm")
        shape_rules.merge_size(dims[-1], rows.dims[-1], "the rows of lower_upper and perm")
    return factors, rows


def lu_solve(
    lower_upper: Any, perm: Any, rhs: Any, validate_args: bool = False, name: str | None = None
) -> Output:
    """Return x with A @ x = rhs, for the LU factors of A.

    Args:
      lower_upper, perm: results of `lu` for A, shapes (..., M, M) and (..., M).
      rhs: dtype of the factors, shape (..., M, K); leading axes broadcast.
      validate_args: no effect, because shapes are always checked.
    Returns: shape (..., M, K).
    Raises: InvalidArgumentError: the shapes do not match.

    Examples:
      >>> factors, rows = wf.linalg.lu([[0.0, 2.0], [4.0, 6.0]])
      >>> wf.Session().run(wf.linalg.lu_solve(factors, rows, [[2.0], [10.0]]))
      array([[1.],
             [1.]], dtype=float32)
    """
    with name_scope(name, "lu_solve") as scope:
        factors, rows = _check_factors(lower_upper, perm)
        value = convert_to_tensor(rhs, factors.dtype.base_dtype)
        shape_rules.with_rank_at_least(value.dims, 2, "rhs")
        factors, rows, value = _broadcast_leading(factors, rows, value)
        half = linalg.matrix_triangular_solve(lower_factor(factors), rows_of(value, rows))
        return linalg.matrix_triangular_solve(factors, half, lower=False, name=scope)


def _broadcast_leading(
    factors: Output, rows: Output, value: Output
) -> tuple[Output, Output, Output]:
    """Broadcast the leading axes of the factors, permutations and values."""
    a, b = factors.dims, value.dims
    if a is not None and b is not None and a[:-2] == b[:-2] and None not in a[:-2]:
        return factors, rows, value
    shapes = [out("Shape", [tensor]) for tensor in (factors, value)]
    lead = out("BroadcastArgs", [shapes[0][:-2], shapes[1][:-2]])

    def broadcast_to_batch(part: Output, tail: Output) -> Output:
        return out("BroadcastTo", [part, out("ConcatV2", [[lead, tail], 0])])

    tails = (shapes[0][-2:], shapes[0][-1:], shapes[1][-2:])
    return (
        broadcast_to_batch(factors, tails[0]),
        broadcast_to_batch(rows, tails[1]),
        broadcast_to_batch(value, tails[2]),
    )


def lu_matrix_inverse(
    lower_upper: Any, perm: Any, validate_args: bool = False, name: str | None = None
) -> Output:
    """Return the inverses of the matrices that `lu` factorized.

    Args:
      lower_upper, perm: results of `lu`, shapes (..., M, M) and (..., M).
      validate_args: no effect, because shapes are always checked.
    Returns: shape (..., M, M).

    Examples:
      >>> inverse = wf.linalg.lu_matrix_inverse(*wf.linalg.lu([[0.0, 2.0], [4.0, 0.0]]))
      >>> wf.Session().run(inverse)
      array([[0.  , 0.25],
             [0.5 , 0.  ]], dtype=float32)
    """
    with name_scope(name, "lu_matrix_inverse") as scope:
        factors, rows = _check_factors(lower_upper, perm)
        unit = out("OnesLike", [diagonals.matrix_diag_part(factors)])
        return lu_solve(factors, rows, diagonals.matrix_diag(unit), name=scope)
