"""Diagonals, bands and identity matrices.

Matrices are the last two axes; leading axes, written (...), are batch axes.
"""

from __future__ import annotations

__all__ = [
    "diag",
    "diag_part",
    "eye",
    "matrix_band_part",
    "matrix_diag",
    "matrix_diag_part",
    "matrix_set_diag",
]

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ops import array, shape_rules
from weft_graph.ops.casting import cast
from weft_graph.ops.operator_dispatch import or_method
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_integer
from weft_tensor.shape import Dims, format_dims, merge_dims


def smaller(m: int | None, n: int | None) -> int | None:
    """Return the smaller of two sizes, if both are known."""
    return None if m is None or n is None else min(m, n)


def _diag_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = node.inputs[0].dims
    if dims == ():
        raise errors.InvalidArgumentError("diag requires rank at least 1, got a scalar")
    return (None if dims is None else dims + dims,)


def _diag_part_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = node.inputs[0].dims
    if dims is None:
        return (None,)
    half = len(dims) // 2
    if not dims or len(dims) % 2:
        raise errors.InvalidArgumentError(
            f"diag_part requires an even rank of at least 2, got shape {format_dims(dims)}"
        )
    return (merge_dims(dims[:half], dims[half:]),)


def _matrix_diag_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = shape_rules.with_rank_at_least(node.inputs[0].dims, 1, "diagonal")
    return (None if dims is None else (*dims, dims[-1]),)


def _matrix_diag_part_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = shape_rules.with_rank_at_least(node.inputs[0].dims, 2, "a matrix")
    return (None if dims is None else (*dims[:-2], smaller(dims[-2], dims[-1])),)


def _matrix_set_diag_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = shape_rules.with_rank_at_least(node.inputs[0].dims, 2, "a matrix")
    diagonal = shape_rules.with_rank_at_least(node.inputs[1].dims, 1, "diagonal")
    if dims is None or diagonal is None:
        return (dims,)
    diagonal_dims = (*dims[:-2], smaller(dims[-2], dims[-1]))
    lead = merge_dims(diagonal_dims, diagonal)
    assert lead is not None
    return ((*lead[:-1], *dims[-2:]),)


def _bounds(k: Output) -> tuple[int, int] | None:
    """Return the lowest and the highest diagonal, or None if `k` is not static."""
    value = shape_rules.constant_array(k)
    if value is None:
        return None
    if value.size not in (1, 2):
        raise errors.InvalidArgumentError(f"k must be one integer or two, got {value.tolist()}")
    lower, upper = int(value.reshape(-1)[0]), int(value.reshape(-1)[-1])
    if lower > upper:
        raise errors.InvalidArgumentError(
            f"k must be the lower and then the upper diagonal, got {lower} and {upper}"
        )
    return lower, upper


def _longest(rows: int | None, columns: int | None, lower: int, upper: int) -> int | None:
    """Return the length of the longest of some diagonals."""
    if rows is None or columns is None:
        return None
    if not (lower == upper == 0 or -rows < lower <= upper < columns):
        raise errors.InvalidArgumentError(
            f"the diagonals {lower} to {upper} are not inside matrices of shape {[rows, columns]}"
        )
    return min(rows + min(upper, 0), columns - max(lower, 0))


def _diagonals_dims(dims: Dims, bounds: tuple[int, int] | None) -> Dims:
    """Return the shape of diagonals of matrices; several diagonals add an axis."""
    if dims is None or bounds is None:
        return None
    lower, upper = bounds
    count = () if lower == upper else (upper - lower + 1,)
    return (*dims[:-2], *count, _longest(dims[-2], dims[-1], lower, upper))


def _matrix_diag_v3_shape(node: NodeSpec) -> Sequence[Dims]:
    diagonal, bounds = node.inputs[0].dims, _bounds(node.inputs[1])
    if diagonal is None or bounds is None:
        return (None,)
    lower, upper = bounds
    is_band = lower < upper
    diagonal = shape_rules.with_rank_at_least(diagonal, 1 + is_band, "diagonal")
    assert diagonal is not None
    if is_band and diagonal[-2] not in (None, upper - lower + 1):
        raise errors.InvalidArgumentError(
            f"diagonal must have {upper - lower + 1} rows for k = {[lower, upper]}, got shape "
            f"{format_dims(diagonal)}"
        )
    lead = diagonal[: -1 - is_band]
    given_sizes = [shape_rules.constant_int(size) for size in node.inputs[2:4]]
    if diagonal[-1] is None or None in given_sizes:
        return ((*lead, None, None),)
    return (
        (*lead, *sizes_for(diagonal[-1], lower, upper, given_sizes[0] or 0, given_sizes[1] or 0)),
    )


def sizes_for(longest: int, lower: int, upper: int, rows: int, columns: int) -> tuple[int, int]:
    """Return the size of matrices whose longest diagonal has `longest` elements.

    Args:
      rows, columns: requested sizes; -1 for the least possible ones.
    Raises: InvalidArgumentError: the diagonals do not fit into the matrix.
    """
    minimum = longest - min(upper, 0), longest + max(lower, 0)
    if rows == columns == -1:
        return (max(minimum),) * 2
    matrix_sizes = minimum[0] if rows == -1 else rows, minimum[1] if columns == -1 else columns
    fits = matrix_sizes[0] >= minimum[0] and matrix_sizes[1] >= minimum[1]
    if not fits or (matrix_sizes[0] > minimum[0] and matrix_sizes[1] > minimum[1]):
        raise errors.InvalidArgumentError(
            f"diagonals {lower} to {upper} of at most {longest} elements do not fit matrices of "
            f"shape {list(matrix_sizes)}; the minimum is {list(minimum)}, and only one size may "
            "be larger"
        )
    return matrix_sizes


def _matrix_diag_part_v3_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = shape_rules.with_rank_at_least(node.inputs[0].dims, 2, "a matrix")
    return (_diagonals_dims(dims, _bounds(node.inputs[1])),)


def _matrix_set_diag_v3_shape(node: NodeSpec) -> Sequence[Dims]:
    dims = shape_rules.with_rank_at_least(node.inputs[0].dims, 2, "a matrix")
    diagonal_dims = _diagonals_dims(dims, _bounds(node.inputs[2]))
    if diagonal_dims is not None:
        merge_dims(diagonal_dims, node.inputs[1].dims)
    return (dims,)


def _band_shape(node: NodeSpec) -> Sequence[Dims]:
    shape_rules.with_rank(node.inputs[1].dims, 0, "num_lower")
    shape_rules.with_rank(node.inputs[2].dims, 0, "num_upper")
    return (shape_rules.with_rank_at_least(node.inputs[0].dims, 2, "a matrix"),)


def _declare() -> None:
    numbers = {"T": "{inexact, integral}"}
    register_op("Diag", ("diagonal: T",), ("output: T",), numbers, _diag_shape)
    register_op("DiagPart", ("input: T",), ("diagonal: T",), numbers, _diag_part_shape)
    any_type = {"T": "{inexact, integral, bool}"}
    register_op("MatrixDiag", ("diagonal: T",), ("output: T",), any_type, _matrix_diag_shape)
    register_op(
        "MatrixDiagPart", ("input: T",), ("diagonal: T",), any_type, _matrix_diag_part_shape
    )
    register_op(
        "MatrixSetDiag",
        ("input: T", "diagonal: T"),
        ("output: T",),
        any_type,
        _matrix_set_diag_shape,
    )
    align = {"align": "{'LEFT_RIGHT', 'RIGHT_LEFT', 'LEFT_LEFT', 'RIGHT_RIGHT'} = 'RIGHT_LEFT'"}
    for version, attrs in (("V2", any_type), ("V3", any_type | align)):
        register_op(
            "MatrixDiag" + version,
            ("diagonal: T", "k: int32", "num_rows: int32", "num_cols: int32", "padding_value: T"),
            ("output: T",),
            attrs,
            _matrix_diag_v3_shape,
        )
        register_op(
            "MatrixDiagPart" + version,
            ("input: T", "k: int32", "padding_value: T"),
            ("diagonal: T",),
            attrs,
            _matrix_diag_part_v3_shape,
        )
        register_op(
            "MatrixSetDiag" + version,
            ("input: T", "diagonal: T", "k: int32"),
            ("output: T",),
            attrs,
            _matrix_set_diag_v3_shape,
        )
    register_op(
        "MatrixBandPart",
        ("input: T", "num_lower: Tindex", "num_upper: Tindex"),
        ("band: T",),
        {"T": "{inexact, integral, bool}", "Tindex": "{int32, int64} = int64"},
        _band_shape,
    )


_declare()


def diag(diagonal: Any, name: str | None = None) -> Output:
    """Return a tensor with a diagonal, and 0 elsewhere; numeric, shape (D...) to (D..., D...).

    Args:
      diagonal: numeric, shape (D...).
    Returns: shape (D..., D...).

    Examples:
      >>> wf.Session().run(wf.diag([1, 2]))
      array([[1, 0],
             [0, 2]], dtype=int32)
    """
    return out("Diag", [diagonal], name=name)


tensor_diag = diag


def diag_part(input: Any, name: str | None = None) -> Output:
    """Return the diagonal of a tensor; numeric, shape (D..., D...) to (D...).

    Args:
      input: numeric, shape (D..., D...).
    Returns: shape (D...).

    Examples:
      >>> wf.Session().run(wf.diag_part([[1, 2], [3, 4]]))
      array([1, 4], dtype=int32)
    """
    return out("DiagPart", [input], name=name)


tensor_diag_part = diag_part


def _is_zero(k: Any) -> bool:
    return isinstance(k, int | np.integer) and k == 0


def _padding(value: Any, template: Output) -> Any:
    return value if isinstance(value, Output) else convert_to_tensor(value, template.dtype)


def matrix_diag(
    diagonal: Any,
    name: str | None = "diag",
    k: Any = 0,
    num_rows: Any = -1,
    num_cols: Any = -1,
    padding_value: Any = 0,
    align: str = "RIGHT_LEFT",
) -> Output:
    """Return matrices with some diagonals, and `padding_value` elsewhere.

    Args:
      diagonal: any dtype, shape (..., N); with several diagonals (..., K, N), the uppermost first.
      name: name of the node.
      k: index of the diagonal, positive above the main one; or the lowest and highest of several.
      num_rows, num_cols: size of the matrices; -1 for the least possible one.
      padding_value: dtype of `diagonal`, shape ().
      align: alignment of shorter diagonals in the rows of `diagonal`: of those above the main one,
        then of those below it, such as "RIGHT_LEFT".
    Returns: shape (..., num_rows, num_cols).
    Raises: InvalidArgumentError: the diagonals and the sizes do not match.

    Examples:
      >>> wf.Session().run(wf.matrix_diag([1, 2]))
      array([[1, 0],
             [0, 2]], dtype=int32)
      >>> wf.Session().run(wf.matrix_diag([1, 2], k=1))
      array([[0, 1, 0],
             [0, 0, 2],
             [0, 0, 0]], dtype=int32)
    """
    default_size = all(isinstance(size, int) and size == -1 for size in (num_rows, num_cols))
    if _is_zero(k) and default_size and _is_zero(padding_value):
        return out("MatrixDiag", [diagonal], name=name)
    x = convert_to_tensor(diagonal)
    inputs = [x, k, num_rows, num_cols, _padding(padding_value, x)]
    return out("MatrixDiagV3", inputs, {"align": align}, name)


@or_method("diag_part")
def matrix_diag_part(
    input: Any,
    name: str | None = "diag_part",
    k: Any = 0,
    padding_value: Any = 0,
    align: str = "RIGHT_LEFT",
) -> Output:
    """Return diagonals of matrices.

    Args:
      input: any dtype, shape (..., M, N).
      name: name of the node.
      k: index of the diagonal, positive above the main one; or the lowest and highest of several.
      padding_value: dtype of `input`, shape (): padding of shorter diagonals.
      align: see `matrix_diag`.
    Returns: shape (..., length of the diagonal); for several, (..., K, length of the longest) with
      the uppermost first.
    Raises: InvalidArgumentError: a diagonal is outside of the matrices.

    Examples:
      >>> wf.Session().run(wf.linalg.diag_part([[1, 2, 3], [4, 5, 6]]))
      array([1, 5], dtype=int32)
      >>> wf.Session().run(wf.linalg.diag_part([[1, 2, 3], [4, 5, 6]], k=[-1, 1]))
      array([[2, 6],
             [1, 5],
             [4, 0]], dtype=int32)
    """
    if _is_zero(k):
        return out("MatrixDiagPart", [input], name=name)
    x = convert_to_tensor(input)
    inputs = [x, k, _padding(padding_value, x)]
    return out("MatrixDiagPartV3", inputs, {"align": align}, name)


def matrix_set_diag(
    input: Any,
    diagonal: Any,
    name: str | None = "set_diag",
    k: Any = 0,
    align: str = "RIGHT_LEFT",
) -> Output:
    """Replace diagonals of matrices.

    Args:
      input: any dtype, shape (..., M, N).
      diagonal: same dtype, shape (..., min(M, N)), or as returned by `matrix_diag_part` for `k`.
      name: name of the node.
      k, align: see `matrix_diag`.
    Returns: shape of `input`.
    Raises: InvalidArgumentError: `diagonal` has the wrong shape, or `k` is out of range.

    Examples:
      >>> wf.Session().run(wf.linalg.set_diag([[1, 2], [3, 4]], [8, 9]))
      array([[8, 2],
             [3, 9]], dtype=int32)
    """
    if _is_zero(k):
        return out("MatrixSetDiag", [input, diagonal], name=name)
    return out("MatrixSetDiagV3", [input, diagonal, k], {"align": align}, name)


def matrix_band_part(input: Any, num_lower: Any, num_upper: Any, name: str | None = None) -> Output:
    """Set the elements of matrices outside a band around the diagonal to 0.

    Args:
      input: any dtype, shape (..., M, N).
      num_lower: integer scalar, number of subdiagonals to keep; all if negative.
      num_upper: integer scalar, number of superdiagonals to keep; all if negative.
    Returns: shape of `input`.
    Raises: InvalidArgumentError: at run time, a number is greater than M or N.

    Examples:
      >>> wf.Session().run(wf.matrix_band_part([[1, 2], [3, 4]], -1, 0))
      array([[1, 0],
             [3, 4]], dtype=int32)
    """
    lower = convert_to_tensor(num_lower, None if isinstance(num_lower, Output) else dtypes.int64)
    upper = convert_to_tensor(num_upper, None if isinstance(num_upper, Output) else dtypes.int64)
    if lower.dtype is not upper.dtype:
        lower, upper = cast(lower, dtypes.int64), cast(upper, dtypes.int64)
    return out("MatrixBandPart", [input, lower, upper], name=name)


set_diag = matrix_set_diag
band_part = matrix_band_part


def eye(
    num_rows: Any,
    num_columns: Any = None,
    batch_shape: Any = None,
    dtype: Any = dtypes.float32,
    name: str | None = None,
) -> Output:
    """Return the identity matrices.

    Args:
      num_rows: integer scalar M.
      num_columns: integer scalar N; M by default.
      batch_shape: a list of integers or an integer vector (...).
      dtype: numeric or bool.
    Returns: shape (..., M, N).

    Examples:
      >>> wf.Session().run(wf.eye(2))
      array([[1., 0.],
             [0., 1.]], dtype=float32)
    """
    element = dtypes.as_dtype(dtype)
    columns = num_rows if num_columns is None else num_columns
    if _is_static(num_rows) and _is_static(columns) and not isinstance(batch_shape, Output):
        lead = (
            () if batch_shape is None else [check_integer(n, "batch_shape", 0) for n in batch_shape]
        )
        rows, columns = (
            check_integer(num_rows, "num_rows", 0),
            check_integer(columns, "num_columns", 0),
        )
        if rows * columns * int(np.prod(lead)) <= _LARGEST_CONSTANT:
            unit = np.eye(rows, columns, dtype=element.numpy)
            return convert_to_tensor(np.tile(unit, (*lead, 1, 1)), name=name or "eye")
    m = convert_to_tensor(num_rows, dtypes.int32 if _is_static(num_rows) else None)
    n = convert_to_tensor(columns, dtypes.int32 if _is_static(columns) else None)
    head = convert_to_tensor(np.zeros(0, np.int32) if batch_shape is None else batch_shape)
    # In int32 a size of 2 ** 40 would wrap to 0.
    wide = dtypes.int64 in (m.dtype.base_dtype, n.dtype.base_dtype, head.dtype.base_dtype)
    m, n, head = (cast(x, dtypes.int64 if wide else dtypes.int32) for x in (m, n, head))
    unit_value = np.array(1, element.numpy)
    if num_columns is None:
        shape = out("ConcatV2", [[head, out("Pack", [[m]], {"axis": 0})], 0])
        return matrix_diag(out("Fill", [shape, unit_value]), name or "eye")
    minimum = out("Pack", [[out("Minimum", [m, n])]], {"axis": 0})
    diagonal = out("Fill", [out("ConcatV2", [[head, minimum], 0]), unit_value])
    full_shape = out("ConcatV2", [[head, out("Pack", [[m, n]], {"axis": 0})], 0])
    zeros = array.zeros(full_shape, element)
    return matrix_set_diag(zeros, diagonal, name or "eye")


_LARGEST_CONSTANT = 1024


def _is_static(value: Any) -> bool:
    return not isinstance(value, Output) and np.ndim(value) == 0 and value is not None
