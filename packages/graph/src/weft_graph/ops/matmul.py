"""Products of matrices and tensors."""

from __future__ import annotations

__all__ = ["cross", "matmul", "trace"]

from collections.abc import Mapping, Sequence
from typing import Any

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import Traits
from weft_graph.ops import cost_rules, diagonals, permutation, reduction, shape_rules
from weft_graph.ops.elementwise import pair
from weft_graph.ops.operator_dispatch import is_operator, or_method
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dims, format_dims

_NUMBERS = "{inexact, integral}"


def _batch_matmul_shape(node: NodeSpec) -> Sequence[Dims]:
    a, b = node.inputs[0].dims, node.inputs[1].dims
    if a is not None and b is not None:
        if len(a) != len(b):
            raise errors.InvalidArgumentError(
                f"BatchMatMul requires equal ranks, got shapes {format_dims(a)} and "
                f"{format_dims(b)}; BatchMatMulV2 broadcasts"
            )
        for x, y in zip(a[:-2], b[:-2], strict=True):
            shape_rules.merge_size(x, y, "leading axes")
    return shape_rules.batch_matmul(node)


def _batch(attrs: Mapping[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """Return the op that multiplies a batch of matrices; None for complex transposes."""
    adjoints = {"adj_x": attrs["transpose_a"], "adj_y": attrs["transpose_b"]}
    if attrs["T"].is_complex and any(adjoints.values()):
        return None
    return "BatchMatMulV2", {"T": attrs["T"], **adjoints}


def _declare() -> None:
    register_op(
        "MatMul",
        ("a: T", "b: T"),
        ("product: T",),
        {"transpose_a": "bool = false", "transpose_b": "bool = false", "T": _NUMBERS},
        shape_rules.matmul,
        traits=Traits(
            cost=cost_rules.product("transpose_a", "transpose_b"),
            cost_attrs=(
                "transpose_a",
                "transpose_b",
            ),
            batch=_batch,
            adds=(1,),
        ),
        doc="The product of two matrices, each optionally transposed.",
    )
    for op, rule, doc in (
        ("BatchMatMul", _batch_matmul_shape, "Matrix products; the leading axes must be equal."),
        ("BatchMatMulV2", shape_rules.batch_matmul, "Matrix products; the leading axes broadcast."),
    ):
        register_op(
            op,
            ("x: T", "y: T"),
            ("output: T",),
            {"T": _NUMBERS, "adj_x": "bool = false", "adj_y": "bool = false"},
            rule,
            traits=Traits(
                cost=cost_rules.product("adj_x", "adj_y"),
                cost_attrs=(
                    "adj_x",
                    "adj_y",
                ),
                adds=(1,),
            ),
            doc=doc,
        )
    register_op(
        "Cross",
        ("a: T", "b: T"),
        ("product: T",),
        {"T": "{realnumbertype}"},
        _cross_shape,
        doc="The cross product of vectors of 3 elements in the last axis.",
    )


def _cross_shape(node: NodeSpec) -> Sequence[Dims]:
    (dims,) = shape_rules.merged_shape(node)
    shape_rules.with_rank_at_least(dims, 1, "Cross: a")
    if dims is not None and dims[-1] not in (3, None):
        raise errors.InvalidArgumentError(
            f"Cross requires a last axis of size 3, got shape {format_dims(dims)}"
        )
    return (dims,)


_declare()


def matmul(
    a: Any,
    b: Any,
    transpose_a: bool = False,
    transpose_b: bool = False,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    name: str | None = None,
) -> Output:
    """Multiply matrices, which are the last two axes.

    Args:
      a: numeric, shape (..., M, K), or (..., K, M) with `transpose_a` or `adjoint_a`; `a` and `b`
        may be LinearOperators.
      b: same dtype (or one float32 and one bfloat16); shape (..., K, N), or (..., N, K) with
        `transpose_b` or `adjoint_b`; the leading axes broadcast.
      transpose_a, transpose_b: transpose the matrices first.
      adjoint_a, adjoint_b: use the conjugate transposes.
      a_is_sparse, b_is_sparse: hints that many elements are 0; they do not affect the result.
    Returns: shape (..., M, N).
    Raises: InvalidArgumentError: the inner sizes differ, a rank is below 2, or an operand is both
      transposed and adjoint.

    Examples:
      >>> wf.Session().run(wf.matmul([[1.0, 2.0]], [[3.0], [4.0]]))
      array([[11.]], dtype=float32)
    """
    if is_operator(a) or is_operator(b):
        transposed = transpose_a or transpose_b
        product: Output = _operator_product(a, b, transposed, adjoint_a, adjoint_b, name)
        return product
    if (transpose_a and adjoint_a) or (transpose_b and adjoint_b):
        raise errors.InvalidArgumentError("an operand is either transposed or adjoint, not both")
    x, y = _convert_mixed_pair(a, b) if _differ(a, b) else pair(a, b)
    if x.dims is not None and y.dims is not None and len(x.dims) == 2 and len(y.dims) == 2:
        if adjoint_a and x.dtype.is_complex:
            x = out("Conj", [x])
        if adjoint_b and y.dtype.is_complex:
            y = out("Conj", [y])
        attrs: dict[str, Any] = {}  # of what is not default: checking attributes takes time
        if transpose_a or adjoint_a:
            attrs["transpose_a"] = True
        if transpose_b or adjoint_b:
            attrs["transpose_b"] = True
        return out("MatMul", [x, y], attrs, name)
    if transpose_a and x.dtype.is_complex:
        x = out("Conj", [x])
    if transpose_b and y.dtype.is_complex:
        y = out("Conj", [y])
    batch = {"adj_x": transpose_a or adjoint_a, "adj_y": transpose_b or adjoint_b}
    return out("BatchMatMulV2", [x, y], batch, name or "MatMul")


def _operator_product(
    a: Any, b: Any, transposed: bool, adjoint_a: bool, adjoint_b: bool, name: str | None
) -> Any:
    """Multiply with a LinearOperator; tensor @ operator is computed by adjoints."""
    if transposed:
        raise errors.InvalidArgumentError(
            "a product with a LinearOperator does not support transposes; use adjoint_a and "
            "adjoint_b"
        )
    if is_operator(a):
        return a.matmul(b, adjoint_a, adjoint_b, name or "matmul")
    matmul = b.matmul(a, not adjoint_b, not adjoint_a, name or "matmul")
    return permutation.matrix_transpose(matmul, conjugate=True)


def _differ(a: Any, b: Any) -> bool:
    return isinstance(a, Output) and isinstance(b, Output) and a.dtype is not b.dtype


def _convert_mixed_pair(a: Output, b: Output) -> tuple[Output, Output]:
    """Convert a pair of bfloat16 and float32 operands to one type, as TensorFlow does."""
    if {a.dtype.base_dtype, b.dtype.base_dtype} == {dtypes.bfloat16, dtypes.float32}:
        return _to_float32(a), _to_float32(b)
    return pair(a, b)


def batch_matmul(
    x: Any, y: Any, adj_x: bool = False, adj_y: bool = False, name: str | None = None
) -> Output:
    """Multiply matrices, which are the last two axes; see `matmul`, including adjoints."""
    return out("BatchMatMulV2", [x, y], {"adj_x": adj_x, "adj_y": adj_y}, name)


def sparse_matmul(
    a: Any,
    b: Any,
    transpose_a: bool = False,
    transpose_b: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    name: str | None = None,
) -> Output:
    """Compute `matmul` of matrices with many zeros; weft does not skip zeros.

    Args:
      a, b: floating, rank 2; bfloat16 becomes float32.
      transpose_a, transpose_b: as for `matmul`.
      a_is_sparse, b_is_sparse: hints without effect.
    Returns: shape (M, N), float32 for bfloat16.

    Examples:
      >>> wf.Session().run(wf.sparse_matmul([[1.0, 2.0]], [[3.0], [4.0]]))
      array([[11.]], dtype=float32)
    """
    x, y = (convert_to_tensor(operand, preferred_dtype=dtypes.float32) for operand in (a, b))
    x, y = (_to_float32(operand) for operand in (x, y))
    return matmul(x, y, transpose_a, transpose_b, name=name)


def _to_float32(value: Output) -> Output:
    if value.dtype.base_dtype is not dtypes.bfloat16:
        return value
    return out("Cast", [value], {"DstT": dtypes.float32})


def matvec(
    a: Any,
    b: Any,
    transpose_a: bool = False,
    adjoint_a: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    name: str | None = None,
) -> Output:
    """Multiply matrices and vectors.

    Args:
      a: numeric, shape (..., M, K), or (..., K, M) with `transpose_a` or `adjoint_a`; or a
        LinearOperator.
      b: same dtype, shape (..., K); the leading axes broadcast.
      transpose_a: transpose the matrices first.
      adjoint_a: use the conjugate transposes.
      a_is_sparse, b_is_sparse: hints, as for `matmul`.
    Returns: shape (..., M).
    Raises: InvalidArgumentError: the inner sizes differ or a rank is too small.

    Examples:
      >>> wf.Session().run(wf.linalg.matvec([[1.0, 2.0]], [3.0, 4.0]))
      array([11.], dtype=float32)
    """
    if is_operator(a):
        column = out("ExpandDims", [convert_to_tensor(b, a.dtype), -1])
        turned = matmul(a, column, transpose_a=transpose_a, adjoint_a=adjoint_a)
        return out("Squeeze", [turned], {"squeeze_dims": (-1,)}, name or "matvec")
    x, y = pair(a, b)
    column = out("ExpandDims", [y, -1])
    product = matmul(
        x, column, transpose_a=transpose_a, adjoint_a=adjoint_a, a_is_sparse=a_is_sparse,
        b_is_sparse=b_is_sparse,
    )  # fmt: skip
    return out("Squeeze", [product], {"squeeze_dims": (-1,)}, name or "matvec")


def cross(a: Any, b: Any, name: str | None = None) -> Output:
    """Return cross products of vectors of 3 elements; real, equal shapes (..., 3).

    Args:
      a, b: real, shape (..., 3).
    Returns: shape and dtype of `a`.

    Examples:
      >>> wf.Session().run(wf.cross([1.0, 0.0, 0.0], [0.0, 1.0, 0.0]))
      array([0., 0., 1.], dtype=float32)
    """
    return out("Cross", [a, b], name=name)


@or_method("trace")
def trace(x: Any, name: str | None = None) -> Output:
    """Return the traces of matrices; numeric, shape (..., M, N) to shape (...).

    Args:
      x: numeric, shape (..., M, N).
    Returns: shape (...).

    Examples:
      >>> wf.Session().run(wf.trace([[1, 2], [3, 4]]))
      np.int32(5)
    """
    diagonal = diagonals.matrix_diag_part(convert_to_tensor(x))
    return reduction.reduce_sum(diagonal, -1, name=name or "Trace")
