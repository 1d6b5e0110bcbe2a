"""Conjugate gradients: solutions of linear equations from matrix products only."""

from __future__ import annotations

__all__ = ["conjugate_gradient"]

from typing import Any, NamedTuple

from weft_graph.control_flow.loop import while_loop
from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.node import Output
from weft_graph.linear_operators.operator import LinearOperator
from weft_graph.ops import arithmetic
from weft_graph.ops.division import div_no_nan
from weft_tensor import dtypes, errors


class CGState(NamedTuple):
    """The final state of the iteration.

    Attributes:
      i: number of iterations: int32, rank 0.
      x: the solutions, shape (..., N).
      r: the residuals, shape (..., N).
      p: the last directions, shape (..., N).
      gamma: products of the residuals and the preconditioned residuals, shape (...).
    """

    i: Output
    x: Output
    r: Output
    p: Output
    gamma: Output


def conjugate_gradient(
    operator: LinearOperator,
    rhs: Any,
    preconditioner: LinearOperator | None = None,
    x: Any = None,
    tol: float = 1e-5,
    max_iter: int = 20,
    name: str = "conjugate_gradient",
) -> CGState:
    """Solve A x = rhs for self-adjoint, positive definite A.

    Iteration ends when the norm of each residual is at most `tol` times that of its right-hand
    side, or after `max_iter` iterations. Gradients flow through the iterations.

    Args:
      operator: operator of A, shape (..., N, N), with hints that it is self-adjoint and positive
        definite.
      rhs: floating or complex, shape (..., N).
      preconditioner: such an operator that approximates the inverse of A.
      x: initial solution, shape (..., N); 0 by default.
      tol: relative tolerance of the residuals.
      max_iter: largest number of iterations.
    Returns: the final state; its `x` is the solution.
    Raises: InvalidArgumentError: an operator is not known to be self-adjoint and positive definite.

    Examples:
      >>> matrix = wf.linalg.LinearOperatorFullMatrix(
      ...     [[4.0, 1.0], [1.0, 3.0]], is_self_adjoint=True, is_positive_definite=True)
      >>> solved = wf.linalg.experimental.conjugate_gradient(matrix, [1.0, 2.0])
      >>> np.round(wf.Session().run(solved.x), 3)
      array([0.091, 0.636], dtype=float32)
    """
    _require_definite("operator", operator)
    if preconditioner is not None:
        _require_definite("preconditioner", preconditioner)
    with name_scope(name, "conjugate_gradient"):
        right = _broadcast_right(operator, convert_to_tensor(rhs, operator.dtype))
        bound = out("Mul", [_length(right), convert_to_tensor(tol, right.dtype.real_dtype)])

        def should_continue(state: CGState) -> Output:
            has_converged = out("LessEqual", [_length(state.r), bound])
            axes = out("Range", [0, out("Rank", [has_converged]), 1])
            open_ones = out("LogicalNot", [out("All", [has_converged, axes])])
            return out("LogicalAnd", [out("Less", [state.i, max_iter]), open_ones])

        def step(state: CGState) -> tuple[CGState]:
            return (_iterate(operator, preconditioner, state),)

        start = _initial_state(operator, preconditioner, right, x)
        (end,) = while_loop(should_continue, step, [start], return_same_structure=True)
        return CGState(*end)


def _require_definite(label: str, operator: LinearOperator) -> None:
    if not (operator.is_self_adjoint and operator.is_positive_definite):
        raise errors.InvalidArgumentError(
            f"{label} requires the hints is_self_adjoint=True and is_positive_definite=True, got "
            f"is_self_adjoint={operator.is_self_adjoint} and "
            f"is_positive_definite={operator.is_positive_definite} of {operator.name!r}"
        )


def _broadcast_right(operator: LinearOperator, right: Output) -> Output:
    """Broadcast the right-hand sides to the batch of matrices."""
    batch = operator.batch_shape.dims
    if right.dims is not None and batch is not None and right.dims[:-1] == tuple(batch):
        return right
    return out("AddV2", [right, out("ZerosLike", [operator.matvec(right)])])


def _initial_state(
    operator: LinearOperator, preconditioner: LinearOperator | None, right: Output, x: Any
) -> CGState:
    if x is None:
        start, residual = out("ZerosLike", [right]), right
    else:
        start = convert_to_tensor(x, right.dtype)
        residual = out("Sub", [right, operator.matvec(start)])
    direction = residual if preconditioner is None else preconditioner.matvec(residual)
    zero = convert_to_tensor(0, dtypes.int32)
    return CGState(zero, start, residual, direction, _product(residual, direction))


def _iterate(
    operator: LinearOperator, preconditioner: LinearOperator | None, state: CGState
) -> CGState:
    """Run one iteration; exactly solved systems are unchanged."""
    image = operator.matvec(state.p)
    length = div_no_nan(state.gamma, _product(state.p, image))
    x = out("AddV2", [state.x, _scale_vectors(length, state.p)])
    r = out("Sub", [state.r, _scale_vectors(length, image)])
    descent = r if preconditioner is None else preconditioner.matvec(r)
    gamma = _product(r, descent)
    p = out("AddV2", [descent, _scale_vectors(div_no_nan(gamma, state.gamma), state.p)])
    return CGState(out("AddV2", [state.i, 1]), x, r, p, gamma)


def _scale_vectors(factor: Output, vectors: Output) -> Output:
    return out("Mul", [out("ExpandDims", [factor, -1]), vectors])


def _product(a: Output, b: Output) -> Output:
    """Return the inner products of vectors; the first one is conjugated."""
    first = out("Conj", [a]) if a.dtype.is_complex else a
    return out("Sum", [out("Mul", [first, b]), -1])


def _length(vectors: Output) -> Output:
    return out("Sqrt", [out("Sum", [out("Square", [arithmetic.abs(vectors)]), -1])])
