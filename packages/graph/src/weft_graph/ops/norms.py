"""Norms of vectors and matrices, and normalization by them."""

from __future__ import annotations

__all__ = ["norm", "normalize"]

from typing import Any

import numpy as np

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.ops import arithmetic, reduction, shape_rules, shapes
from weft_graph.ops.casting import cast
from weft_graph.ops.linalg import svd
from weft_tensor import errors


def norm(
    tensor: Any,
    ord: Any = "euclidean",
    axis: Any = None,
    keepdims: bool | None = None,
    name: str | None = None,
    keep_dims: bool | None = None,
) -> Output:
    """Return the norms of vectors, matrices or a whole tensor.

    Args:
      tensor: float32, float64 or complex, any shape.
      ord: "euclidean", "fro" (matrices only), 1, 2, inf, or another positive number (vectors
        only); for matrices, 2 is the largest singular value.
        axis: None for the norm of the flattened tensor, one axis for vectors, or two for matrices.
      keepdims: keep the reduced axes with size 1.
    Returns: the real dtype of `tensor`.
    Raises: InvalidArgumentError: `ord` is not supported for such an axis.

    Examples:
      >>> wf.Session().run(wf.norm([3.0, 4.0]))
      np.float32(5.0)
    """
    keep = bool(shapes.deprecated_argument("keepdims", keepdims, "keep_dims", keep_dims))
    value = convert_to_tensor(tensor)
    matrices = isinstance(axis, list | tuple) and len(axis) == 2
    if isinstance(axis, list | tuple) and len(axis) not in (1, 2):
        raise errors.InvalidArgumentError(f"axis must be None, one axis or two, got {axis!r}")
    allowed = ("euclidean", "fro", 1, 2, np.inf) if matrices else ("euclidean", 1, 2, np.inf)
    positive = isinstance(ord, int | float) and not matrices and ord > 0
    if not (positive or ord in allowed):
        raise errors.InvalidArgumentError(
            f"ord must be one of {allowed}{'' if matrices else ' or positive'}, got {ord!r}"
        )
    return out("Identity", [_norm(value, ord, axis, keep, matrices)], name=name or "norm")


def normalize(
    tensor: Any, ord: Any = "euclidean", axis: Any = None, name: str | None = None
) -> tuple[Output, Output]:
    """Divide a tensor by its `norm`; also return the norm, with the reduced axes kept.

    Args:
      tensor: float32, float64 or complex, any shape.
      ord: see `norm`.
      axis: see `norm`.
    Returns: shape and dtype of `tensor`; the norm, of the same dtype.

    Examples:
      >>> unit, norm = wf.Session().run(wf.linalg.normalize([3.0, 4.0]))
      >>> np.round(unit, 3), norm
      (array([0.6, 0.8], dtype=float32), array([5.], dtype=float32))
    """
    value = convert_to_tensor(tensor)
    size: Output = cast(norm(value, ord, axis, keepdims=True), value.dtype.base_dtype)
    return out("RealDiv", [value, size], name=name or "normalize"), size


def _norm(value: Output, ord: Any, axis: Any, keep: bool, matrices: bool) -> Output:
    if ord == 2 and matrices:
        return _spectral_norm(value, axis, keep)
    magnitudes = arithmetic.abs(value)
    if ord in ("euclidean", "fro", 2):
        squares = out("Square", [magnitudes])
        return out("Sqrt", [reduction.reduce_sum(squares, axis, keep)])
    if matrices:
        # The 1-norm is the largest column sum, the norm of inf the largest row sum.
        summed, remaining_axis = axis if ord == 1 else (axis[1], axis[0])
        sums = reduction.reduce_sum(magnitudes, summed, True)
        largest = reduction.reduce_max(sums, remaining_axis, True)
        return largest if keep else out("Squeeze", [largest], {"squeeze_dims": tuple(axis)})
    if ord == np.inf:
        return reduction.reduce_max(magnitudes, axis, keep)
    if ord == 1:
        return reduction.reduce_sum(magnitudes, axis, keep)
    powers = out("Pow", [magnitudes, float(ord)])
    return out("Pow", [reduction.reduce_sum(powers, axis, keep), 1.0 / ord])


def _spectral_norm(value: Output, axis: Any, keep: bool) -> Output:
    if value.dims is None:
        raise errors.InvalidArgumentError("the 2-norm of matrices requires a known rank")
    rank = len(value.dims)
    rows, columns = shape_rules.normal_axes(axis, rank)
    order = [i for i in range(rank) if i not in (rows, columns)] + [rows, columns]
    transposed = out("Transpose", [value, np.array(order, np.int32)])
    largest = reduction.reduce_max(svd(transposed, compute_uv=False), -1)
    if keep:
        for position in sorted((rows, columns)):
            largest = out("ExpandDims", [largest, position])
    return largest
