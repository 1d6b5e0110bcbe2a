"""Operators of block-circulant matrices of 3 axes."""

from __future__ import annotations

__all__ = ["LinearOperatorCirculant3D"]

from typing import Any

from weft_graph.linear_operators.circulant import LinearOperatorCirculant
from weft_tensor import dtypes


class LinearOperatorCirculant3D(LinearOperatorCirculant):
    """Circular convolutions over 3 axes, which are flattened into one.

    Args:
      spectrum: floating or complex; the last 3 axes are those of a Fourier transform.
      input_output_dtype: complex, or real if the convolution is real; complex64 by default.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints, as in
        `LinearOperator`.
      name: name of the name scope.

    Examples:
      >>> operator = wf.linalg.LinearOperatorCirculant3D(np.ones((2, 2, 2)), wf.float64)
      >>> operator.shape
      TensorShape([Dimension(8), Dimension(8)])
    """

    _block_depth = 3

    def __init__(
        self,
        spectrum: Any,
        input_output_dtype: Any = dtypes.complex64,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorCirculant3D",
    ) -> None:
        super().__init__(
            spectrum,
            input_output_dtype,
            is_non_singular,
            is_self_adjoint,
            is_positive_definite,
            is_square,
            name,
        )
