"""Square roots and logarithms of matrices."""

from __future__ import annotations

__all__ = ["logm", "matrix_square_root", "sqrtm"]

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import out
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import Traits
from weft_graph.ops import cost_rules, linalg
from weft_tensor.shape import Dims


def _square(node: NodeSpec) -> Sequence[Dims]:
    return (linalg.square_dims(node.inputs[0].dims, "a square matrix"),)


register_op(
    "MatrixSquareRoot",
    ("input: T",),
    ("output: T",),
    {"T": "{float64, float32, float16, complex64, complex128}"},
    _square,
    traits=Traits(cost=cost_rules.factorization(40)),
    doc="The principal square roots of square matrices.",
)
register_op(
    "MatrixLogarithm",
    ("input: T",),
    ("output: T",),
    {"T": "{complex64, complex128}"},
    _square,
    traits=Traits(cost=cost_rules.factorization(200)),
    doc="The principal logarithms of square matrices.",
)


def sqrtm(input: Any, name: str | None = None) -> Output:
    """Return the principal square roots: no eigenvalue has a negative real part.

    Args:
      input: floating or complex, shape (..., M, M); invertible or self-adjoint. A real matrix must
        not have negative eigenvalues, because its root would not be real.
    Returns: shape (..., M, M); NaN if there is no root.
    Raises: InvalidArgumentError: a matrix is not square.

    Examples:
      >>> np.round(wf.Session().run(wf.linalg.sqrtm([[4.0, 1.0], [0.0, 9.0]])), 3)
      array([[2. , 0.2],
             [0. , 3. ]], dtype=float32)
    """
    return out("MatrixSquareRoot", [input], name=name)


matrix_square_root = sqrtm


def logm(input: Any, name: str | None = None) -> Output:
    """Return the principal logarithms, whose eigenvalues have imaginary parts in (-pi, pi].

    Args:
      input: complex, shape (..., M, M), invertible.
    Returns: shape (..., M, M); NaN if there is no logarithm.
    Raises: InvalidArgumentError: a matrix is not square.

    Examples:
      >>> np.round(wf.Session().run(wf.linalg.logm([[1 + 0j, 1.0], [0.0, 1.0]])), 3) + 0.0
      array([[0.+0.j, 1.+0.j],
             [0.+0.j, 0.+0.j]])
    """
    return out("MatrixLogarithm", [input], name=name)
