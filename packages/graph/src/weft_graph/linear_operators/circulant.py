"""Operators of circulant matrices, which Fourier transforms diagonalize."""

from __future__ import annotations

__all__ = ["LinearOperatorCirculant"]

from typing import Any

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.linear_operators.dense import adjoint_of, concat_shape, conjugate, log_magnitude
from weft_graph.linear_operators.operator import LinearOperator
from weft_graph.ops import fft, reduction
from weft_graph.ops.shape_rules import with_rank_at_least
from weft_tensor import dtypes
from weft_tensor.shape import TensorShape


class LinearOperatorCirculant(LinearOperator):
    """Circulant matrices: products with them are circular convolutions.

    Args:
      spectrum: floating or complex, shape (..., N), the eigenvalues: the Fourier transform of the
        first column.
      input_output_dtype: complex, or real if the first column is real; complex64 by default.
      is_non_singular, is_self_adjoint, is_positive_definite, is_square: hints, as in
        `LinearOperator`.
      name: name of the name scope.

    Examples:
      >>> operator = wf.linalg.LinearOperatorCirculant([6.0, 1.0, 1.0], wf.float32)
      >>> np.round(wf.Session().run(operator.to_dense())[0], 3)
      array([2.667, 1.667, 1.667], dtype=float32)
    """

    def __init__(
        self,
        spectrum: Any,
        input_output_dtype: Any = dtypes.complex64,
        is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None,
        is_positive_definite: bool | None = None,
        is_square: bool | None = None,
        name: str = "LinearOperatorCirculant",
    ) -> None:
        parameters = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        value = convert_to_tensor(spectrum)
        with_rank_at_least(value.dims, self._block_depth, "spectrum")
        double = value.dtype.base_dtype in (dtypes.float64, dtypes.complex128)
        self._wide = dtypes.complex128 if double else dtypes.complex64
        self._spectrum = out("Cast", [value], {"DstT": self._wide})
        is_square = True if is_square is None else is_square
        if is_self_adjoint is None and not value.dtype.is_complex:
            is_self_adjoint = True
        super().__init__(
            input_output_dtype,
            [value],
            is_non_singular,
            is_self_adjoint,
            is_positive_definite,
            is_square,
            name,
            parameters,
        )

    _block_depth = 1

    @property
    def spectrum(self) -> Output:
        """The eigenvalues, complex."""
        return self._spectrum

    def _block_axes(self) -> list[int]:
        return list(range(-self._block_depth, 0))

    def _size(self) -> Output:
        sizes = out("Shape", [self._spectrum])[-self._block_depth :]
        return out("Prod", [sizes, [0]])

    def _shape(self) -> TensorShape:
        dims = self._spectrum.dims
        if dims is None:
            return TensorShape(None)
        size: int | None = 1
        for n in dims[-self._block_depth :]:
            size = None if size is None or n is None else size * n
        return TensorShape((*dims[: -self._block_depth], size, size))

    def _shape_tensor(self) -> Output:
        lead = out("Shape", [self._spectrum])[: -self._block_depth]
        return concat_shape(lead, self._size(), self._size())

    def _multiply_spectrum(self, x: Output, spectrum: Output) -> Output:
        """Transform each column, multiply it by the spectrum, and transform it back."""
        rows = adjoint_of(conjugate(out("Cast", [x], {"DstT": self._wide})))
        shape = out("Shape", [rows])
        blocks = out("Shape", [self._spectrum])[-self._block_depth :]
        split = out("Reshape", [rows, concat_shape(shape[:-1], blocks)])
        transform = {1: fft.fft, 2: fft.fft2d, 3: fft.fft3d}[self._block_depth]
        inverse_transform = {1: fft.ifft, 2: fft.ifft2d, 3: fft.ifft3d}[self._block_depth]
        result = inverse_transform(
            transform(split) * out("ExpandDims", [spectrum, -1 - self._block_depth])
        )
        lead = out("Shape", [result])[: -self._block_depth]
        flat = out("Reshape", [result, concat_shape(lead, shape[-1:])])
        adjoint = adjoint_of(conjugate(flat))
        if not self.dtype.is_complex:
            adjoint = out("Real", [adjoint], {"Tout": self._wide.real_dtype})
        return out("Cast", [adjoint], {"DstT": self.dtype})

    def _matmul(self, x: Output, adjoint: bool = False, adjoint_arg: bool = False) -> Output:
        value = adjoint_of(x) if adjoint_arg else x
        return self._multiply_spectrum(value, conjugate(self._spectrum, adjoint))

    def _solve(self, rhs: Output, adjoint: bool = False, adjoint_arg: bool = False) -> Output:
        value = adjoint_of(rhs) if adjoint_arg else rhs
        return self._multiply_spectrum(
            value, out("Reciprocal", [conjugate(self._spectrum, adjoint)])
        )

    def _narrow(self, value: Output) -> Output:
        if not self.dtype.is_complex:
            value = out("Real", [value], {"Tout": self._wide.real_dtype})
        return out("Cast", [value], {"DstT": self.dtype})

    def _determinant(self) -> Output:
        return self._narrow(reduction.reduce_prod(self._spectrum, self._block_axes()))

    def _log_abs_determinant(self) -> Output:
        logs = log_magnitude(self._spectrum)
        return self._narrow(reduction.reduce_sum(logs, self._block_axes()))
