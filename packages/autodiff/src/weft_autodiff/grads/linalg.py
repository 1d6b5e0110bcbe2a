"""Gradients of linear algebra.

Sources: M. Giles, "Collected matrix derivative results" (2008); I. Murray, "Differentiation of the
Cholesky decomposition" (2016); S. Walter and L. Lehmann, "Algorithmic differentiation of linear
algebra functions" (2010), for QR; J. Townsend, "Differentiating the singular value decomposition"
(2016).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft_autodiff.grads.common import conj, matrix_transpose, mul, neg, scalar_like
from weft_autodiff.grads.matrix_functions import along
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import constant_of, out
from weft_graph.ir.node import Node, Output
from weft_graph.ops import linalg
from weft_tensor import errors

Gradients = list[Output | None]


def _product(a: Output, b: Output, adjoint_a: bool = False, adjoint_b: bool = False) -> Output:
    return out("BatchMatMulV2", [a, b], {"adj_x": adjoint_a, "adj_y": adjoint_b})


def _adjoint(x: Output) -> Output:
    return matrix_transpose(x, conjugate=True)


def _add(a: Output, b: Output) -> Output:
    return out("AddV2", [a, b])


def _sub(a: Output, b: Output) -> Output:
    return out("Sub", [a, b])


def _expand(x: Output, *axes: int) -> Output:
    for axis in axes:
        x = out("ExpandDims", [x, constant_of(np.array(axis, np.int32))])
    return x


def _band(x: Output, lower: int, upper: int) -> Output:
    numbers = [constant_of(np.array(n, np.int32)) for n in (lower, upper)]
    return out("MatrixBandPart", [x, *numbers])


def _real_part(x: Output) -> Output:
    """Return the real part of a value in the value's type."""
    if not x.dtype.is_complex:
        return x
    return out("Cast", [out("Real", [x], {"Tout": x.dtype.real_dtype})], {"DstT": x.dtype})


# ------------------------------------------------------------------ inverses, determinants


@RegisterGradient("MatrixInverse")
def _inverse(node: Node, grad: Output) -> Output:
    y = node.outputs[0]
    if node.attrs["adjoint"]:
        return neg(_product(_product(y, grad, adjoint_b=True), y))
    return neg(_product(_product(y, grad, adjoint_a=True), y, adjoint_b=True))


@RegisterGradient("MatrixDeterminant")
def _determinant(node: Node, grad: Output) -> Output:
    scale = _expand(mul(grad, conj(node.outputs[0])), -1, -1)
    return mul(scale, out("MatrixInverse", [node.inputs[0]], {"adjoint": True}))


@RegisterGradient("LogMatrixDeterminant")
def _log_determinant(node: Node, to_sign: Output, to_log: Output) -> Output:
    scale = _real_part(to_log)
    if to_log.dtype.is_complex:
        # The sign, of magnitude 1, turns with the imaginary part of the logarithm's change.
        real = to_log.dtype.real_dtype
        angle = out("Imag", [mul(conj(to_sign), node.outputs[0])], {"Tout": real})
        parts = [out("Real", [to_log], {"Tout": real}), neg(angle)]
        scale = out("Complex", parts, {"Tout": to_log.dtype})
    inverse = out("MatrixInverse", [node.inputs[0]], {"adjoint": True})
    return mul(_expand(scale, -1, -1), inverse)


@RegisterGradient("Cholesky")
def _cholesky(node: Node, grad: Output) -> Output:
    factor = node.outputs[0]
    middle = _product(factor, grad, adjoint_a=True)
    diagonal = _real_part(out("MatrixDiagPart", [middle]))
    halved = mul(scalar_like(0.5, diagonal), diagonal)
    middle = _band(out("MatrixSetDiag", [middle, halved]), -1, 0)
    # adjoint(L)^-1 @ middle @ L^-1, by two substitutions.
    half = out("MatrixTriangularSolve", [factor, middle], {"adjoint": True})
    product = _adjoint(out("MatrixTriangularSolve", [factor, _adjoint(half)], {"adjoint": True}))
    return mul(scalar_like(0.5, product), _add(product, _adjoint(product)))


RegisterGradient("MatrixExponential")(along)

# ------------------------------------------------------------------------------- solutions


def _solve(node: Node, grad: Output, attrs: dict[str, Any]) -> tuple[Output, Output]:
    matrix = node.inputs[0]
    transposed = node.attrs["adjoint"]
    to_rhs = out(node.type, [matrix, grad], {**attrs, "adjoint": not transposed})
    x = node.outputs[0]
    pair = (x, to_rhs) if transposed else (to_rhs, x)
    return neg(_product(*pair, adjoint_b=True)), to_rhs


@RegisterGradient("MatrixSolve")
def _matrix_solve(node: Node, grad: Output) -> Gradients:
    return list(_solve(node, grad, {}))


@RegisterGradient("MatrixTriangularSolve")
def _triangular_solve(node: Node, grad: Output) -> Gradients:
    lower = node.attrs["lower"]
    to_matrix, to_rhs = _solve(node, grad, {"lower": lower})
    return [_band(to_matrix, -1, 0) if lower else _band(to_matrix, 0, -1), to_rhs]


@RegisterGradient("MatrixSolveLs")
def _solve_ls(node: Node, grad: Output) -> Gradients:
    a, b, regularizer = node.inputs
    x = node.outputs[0]
    m, n = _sizes(a, "MatrixSolveLs")
    tall = m >= n
    gram = _product(a, a, adjoint_a=tall, adjoint_b=not tall)
    weight = out("Cast", [regularizer], {"DstT": gram.dtype})
    unit = constant_of(np.eye(min(m, n), dtype=gram.dtype.numpy))
    gram = _add(gram, mul(weight, unit))
    if tall:
        z = out("MatrixSolve", [gram, grad])
        symmetric = _product(x, z, adjoint_b=True)
        symmetric = _add(symmetric, _adjoint(symmetric))
        to_a = _sub(_product(b, z, adjoint_b=True), _product(a, symmetric))
        return [to_a, _product(a, z), None]
    to_b = out("MatrixSolve", [gram, _product(a, grad)])
    y = out("MatrixSolve", [gram, b])
    first = _product(to_b, _product(y, a, adjoint_a=True))
    residual = _sub(grad, _product(a, to_b, adjoint_a=True))
    return [_sub(_product(y, residual, adjoint_b=True), first), to_b, None]


def _sizes(x: Output, op: str) -> tuple[int, int]:
    """Return the static sizes of matrices.

    Raises: InvalidArgumentError: they are not known.
    """
    rows, columns = (None, None) if x.dims is None else x.dims[-2:]
    if rows is None or columns is None:
        raise errors.InvalidArgumentError(
            f"the gradient of {op} requires matrices of statically known size, got {x!r}"
        )
    return rows, columns


# --------------------------------------------------------------------------- factorizations


def _differences(values: Output) -> Output:
    """Return 1 / (values[j] - values[i]), or 0 if both are equal."""
    gaps = _sub(_expand(values, -2), _expand(values, -1))
    return out("DivNoNan", [scalar_like(1, gaps), gaps])


@RegisterGradient("SelfAdjointEigV2")
def _eigh(node: Node, to_values: Output, to_vectors: Output) -> Output:
    x = node.inputs[0]
    to_values = _real_part(to_values)
    if node.attrs["compute_v"]:
        values, vectors = node.outputs
        coupling = _product(vectors, to_vectors, adjoint_a=True)
        inner = _add(out("MatrixDiag", [to_values]), mul(_differences(values), coupling))
    else:
        vectors = linalg.self_adjoint_eig(x)[1]
        inner = out("MatrixDiag", [to_values])
    full = _product(vectors, _product(inner, vectors, adjoint_b=True))
    # Only the lower triangle is read, so gradients of the upper one are added to it.
    full = _add(full, _adjoint(full))
    diagonal = out("MatrixDiagPart", [full])
    halved = mul(scalar_like(0.5, diagonal), diagonal)
    return out("MatrixSetDiag", [_band(full, -1, 0), halved])


@RegisterGradient("Svd")
def _svd(node: Node, to_s: Output, to_u: Output, to_v: Output) -> Output:
    x = node.inputs[0]
    to_s = _real_part(to_s)
    if not node.attrs["compute_uv"]:
        _, u, v = linalg.svd(x)
        return _product(_product(u, out("MatrixDiag", [to_s])), v, adjoint_b=True)
    if x.dtype.is_complex:
        raise errors.UnimplementedError("the gradient of Svd with vectors requires real matrices")
    if node.attrs["full_matrices"]:
        rows, columns = _sizes(x, "Svd with full_matrices")
        if rows != columns:
            raise errors.UnimplementedError(
                "the gradient of Svd with full_matrices requires square matrices, got "
                f"{rows} by {columns}"
            )
    s, u, v = node.outputs
    factors = _differences(mul(s, s))
    scale = _expand(s, -2)
    inverse = out("DivNoNan", [scalar_like(1, s), s])
    inverse = _expand(inverse, -2)

    def split_by_span(vectors: Output, grad: Output) -> tuple[Output, Output]:
        """Return the component in the span of the singular vectors, and the one outside of it."""
        product = _product(vectors, grad, adjoint_a=True)
        skew = mul(factors, _sub(product, _adjoint(product)))
        return skew, _sub(grad, _product(vectors, product))

    skew_u, outside_u = split_by_span(u, to_u)
    skew_v, outside_v = split_by_span(v, to_v)
    inner = _add(mul(skew_u, scale), out("MatrixDiag", [to_s]))
    inner = _add(inner, mul(_expand(s, -1), skew_v))
    left = _add(_product(u, inner), mul(outside_u, inverse))
    right = _product(u, mul(outside_v, inverse), adjoint_b=True)
    return _add(_product(left, v, adjoint_b=True), right)


@RegisterGradient("Qr")
def _qr(node: Node, to_q: Output, to_r: Output) -> Output:
    x = node.inputs[0]
    q, r = node.outputs
    rows, columns = _sizes(x, "Qr")
    if x.dtype.is_complex:
        raise errors.UnimplementedError("the gradient of Qr requires real matrices")
    if node.attrs["full_matrices"] and rows > columns:
        raise errors.UnimplementedError(
            "the gradient of Qr with full_matrices requires at least as many columns as rows, "
            f"got {rows} by {columns}"
        )
    if rows >= columns:
        return _tall_qr(q, r, to_q, to_r)
    # x = [a b] with square a = q @ r1 and b = q @ r2, so that q depends on a only.
    left, right = _columns(to_r, 0, rows), _columns(to_r, rows, columns)
    to_q = _add(to_q, _product(_columns(x, rows, columns), right, adjoint_b=True))
    to_a = _tall_qr(q, _columns(r, 0, rows), to_q, left)
    return out("ConcatV2", [[to_a, _product(q, right)], constant_of(np.array(-1, np.int32))])


def _columns(x: Output, begin: int, end: int) -> Output:
    output: Output = x[..., begin:end]
    return output


def _tall_qr(q: Output, r: Output, to_q: Output, to_r: Output) -> Output:
    product = _product(q, to_q, adjoint_a=True)
    upper = _product(r, to_r, adjoint_b=True)
    skew = _add(_sub(product, _adjoint(product)), _sub(upper, _adjoint(upper)))
    lower = _add(to_r, _solve_right(_band(skew, -1, 0), r))
    strict = _solve_right(_sub(to_q, _product(q, product)), r)
    return _add(_product(q, lower), strict)


def _solve_right(x: Output, r: Output) -> Output:
    """Return `x @ adjoint(r)^-1` for upper triangular r."""
    return _adjoint(out("MatrixTriangularSolve", [r, _adjoint(x)], {"lower": False}))
