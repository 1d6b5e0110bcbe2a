"""Gradients of tridiagonal matrix products and solutions."""

from __future__ import annotations

from weft_autodiff.grads.common import conj, mul, neg
from weft_autodiff.registry import RegisterGradient
from weft_graph.ir.builder import out
from weft_graph.ir.node import Node, Output
from weft_graph.ops.reduction import reduce_sum

Gradients = list[Output | None]


def _shift_left(x: Output, axis: int) -> Output:
    """Return element i + 1 at index i, and 0 at the last index, along one of the last two axes."""
    return _shift(x, axis, 1)


def _shift_right(x: Output, axis: int) -> Output:
    """Return element i - 1 at index i, and 0 at the first index."""
    return _shift(x, axis, -1)


def _shift(x: Output, axis: int, step: int) -> Output:
    tail = (slice(None),) * (-1 - axis)
    first, last = (x[(..., slice(0, 1), *tail)], x[(..., slice(-1, None), *tail)])
    if step > 0:
        parts = [x[(..., slice(1, None), *tail)], out("ZerosLike", [last])]
    else:
        parts = [out("ZerosLike", [first]), x[(..., slice(0, -1), *tail)]]
    return out("ConcatV2", [parts, axis])


def _transpose_diagonals(
    above: Output, main: Output, below: Output
) -> tuple[Output, Output, Output]:
    """Return the diagonals of the adjoint: upper and lower swap, shifted by one."""
    return conj(_shift_left(below, -1)), conj(main), conj(_shift_right(above, -1))


def _to_diagonals(left: Output, x: Output) -> list[Output]:
    """Return the three diagonals of left @ adjoint(x), each of shape (..., M)."""
    return [
        reduce_sum(mul(left, conj(shifted)), -1)
        for shifted in (_shift_left(x, -2), x, _shift_right(x, -2))
    ]


@RegisterGradient("TridiagonalMatMul")
def _matmul(node: Node, grad: Output) -> Gradients:
    *diagonals, rhs = node.inputs
    to_rhs = out("TridiagonalMatMul", [*_transpose_diagonals(*diagonals), grad])
    return [*(out("ExpandDims", [x, -2]) for x in _to_diagonals(grad, rhs)), to_rhs]


@RegisterGradient("TridiagonalSolve")
def _solve(node: Node, grad: Output) -> Gradients:
    compact = node.inputs[0]
    transposed = _transpose_diagonals(*[compact[..., i : i + 1, :] for i in range(3)])
    attrs = {key: node.attrs[key] for key in ("partial_pivoting", "perturb_singular")}
    to_rhs = out("TridiagonalSolve", [out("ConcatV2", [list(transposed), -2]), grad], attrs)
    to_diagonals = out("Pack", [_to_diagonals(to_rhs, node.outputs[0])], {"axis": -2})
    return [neg(to_diagonals), to_rhs]
