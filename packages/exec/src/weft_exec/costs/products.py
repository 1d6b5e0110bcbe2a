"""Floating-point operations of matrix products, convolutions and linear algebra."""

from __future__ import annotations

from math import prod
from typing import Final

from weft_exec.costs.sizes import Rule, Sizes, dims_at, words


def _arithmetic(sizes: Sizes) -> int:
    """Real operations for each one of the element type: a complex product takes four, and so on."""
    node = sizes.node
    return 4 if any(o.dtype.is_complex for o in (*node.inputs, *node.outputs)) else 1


def _inner(sizes: Sizes, left: str, right: str) -> int:
    """The summed axis of a product, as either factor has it."""
    a, b = dims_at(sizes.inputs, 0, 2), dims_at(sizes.inputs, 1, 2)
    return max(a[-2] if sizes.attr(left) else a[-1], b[-1] if sizes.attr(right) else b[-2])


def _matmul(sizes: Sizes) -> float:
    inner = _inner(sizes, "transpose_a", "transpose_b")
    return 2 * sizes.elements_out * inner * _arithmetic(sizes)


def _batch_matmul(sizes: Sizes) -> float:
    return 2 * sizes.elements_out * _inner(sizes, "adj_x", "adj_y") * _arithmetic(sizes)


def _sparse_matmul(sizes: Sizes) -> float:
    columns = dims_at(sizes.outputs, 0, 2)[-1]
    return 2 * prod(dims_at(sizes.inputs, 1, 1)) * columns * _arithmetic(sizes)


def _convolution(kernel: int | None, positions: int | None, depthwise: bool = False) -> Rule:
    """A product and a sum for each position, each channel of it, and each place of the window.

    Args:
      kernel: which input is the filter; None where the output has its shape.
      positions: which input is at the positions of the window; None where the output is.
      depthwise: whether the last axis but one of the filter is not summed over.
    """

    def rule(sizes: Sizes) -> float:
        shape = sizes.outputs[0] if kernel is None else dims_at(sizes.inputs, kernel, 2)
        where = sizes.outputs[0] if positions is None else dims_at(sizes.inputs, positions, 1)
        each = shape[:-2] if depthwise else shape[:-1]
        return 2 * prod(where) * prod(each) * _arithmetic(sizes)

    return rule


def _linear_algebra(sizes: Sizes) -> float:
    """The leading terms of the usual algorithms (Golub and Van Loan, Matrix Computations)."""
    *batch, m, n = dims_at(sizes.inputs, 0, 2)
    columns = dims_at(sizes.inputs, 1, 2)[-1] if len(sizes.inputs) > 1 else 1
    least = min(m, n)
    with_vectors = sizes.attr("compute_v") or sizes.attr("compute_uv")
    formulas = {
        "Cholesky": n**3 / 3,
        "MatrixDeterminant": 2 * n**3 / 3,
        "LogMatrixDeterminant": 2 * n**3 / 3,
        "MatrixInverse": 2 * n**3,
        "MatrixSolve": 2 * n**3 / 3 + 2 * n * n * columns,
        "MatrixTriangularSolve": n * n * columns,
        "MatrixSolveLs": 2 * m * n * least + 4 * m * n * columns,
        "MatrixExponential": 20 * n**3,
        "Qr": 4 * m * n * least,
        "SelfAdjointEigV2": 9 * n**3 if with_vectors else 4 * n**3 / 3,
        "Svd": (14 if with_vectors else 4) * m * n * least,
    }
    return prod(batch) * formulas[sizes.node.type] * _arithmetic(sizes)


FLOPS: Final[dict[str, Rule]] = {
    "MatMul": _matmul,
    "BatchMatMul": _batch_matmul,
    "BatchMatMulV2": _batch_matmul,
    "SparseTensorDenseMatMul": _sparse_matmul,
    "Conv2D": _convolution(1, None),
    "Conv2DBackpropInput": _convolution(1, 2),
    "Conv2DBackpropFilter": _convolution(None, 2),
    "Conv3D": _convolution(1, None),
    "Conv3DBackpropInputV2": _convolution(1, 2),
    "Conv3DBackpropFilterV2": _convolution(None, 2),
    "DepthwiseConv2dNative": _convolution(1, None, depthwise=True),
    "DepthwiseConv2dNativeBackpropInput": _convolution(1, 2, depthwise=True),
    "DepthwiseConv2dNativeBackpropFilter": _convolution(None, 2, depthwise=True),
    **dict.fromkeys(
        words(
            "Cholesky MatrixDeterminant LogMatrixDeterminant MatrixInverse MatrixSolve "
            "MatrixTriangularSolve MatrixSolveLs MatrixExponential Qr SelfAdjointEigV2 Svd"
        ),
        _linear_algebra,
    ),
}
