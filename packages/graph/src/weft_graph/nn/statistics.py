"""Means, variances and normalizations."""

from __future__ import annotations

__all__ = [
    "batch_norm_with_global_normalization",
    "batch_normalization",
    "l2_normalize",
    "moments",
    "normalize_moments",
    "sufficient_statistics",
    "weighted_moments",
]

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.nn.scope import scope
from weft_graph.ops import array, casting, identity, reduction, shapes
from weft_tensor import dtypes

_NARROW = (dtypes.float16, dtypes.bfloat16)


def moments(
    x: Any,
    axes: Any,
    shift: Any = None,
    name: str | None = None,
    keep_dims: bool | None = None,
    keepdims: bool | None = None,
) -> tuple[Output, Output]:
    """Return the mean and variance over axes.

    Args:
      x: floating, any shape; float16 and bfloat16 are computed in float32.
      axes: axes to reduce over.
      shift: accepted and ignored; the computation is stable without it.
      keepdims: keep the reduced axes with size 1; also `keep_dims`.
    Returns: mean and variance (of the population), dtype of `x`.
    Raises: InvalidArgumentError: an axis is out of range.

    Examples:
      >>> wf.Session().run(wf.nn.moments([[1.0, 2.0], [3.0, 4.0]], axes=[0]))
      (array([2., 3.], dtype=float32), array([1., 1.], dtype=float32))
    """
    keep = bool(keepdims or keep_dims)
    with scope(name, "moments"):
        x = convert_to_tensor(x)
        wide = casting.cast(x, dtypes.float32) if x.dtype.base_dtype in _NARROW else x
        mean = reduction.reduce_mean(wide, axes, keepdims=True, name="mean")
        # The variance does not depend on small changes of the mean, so none flows back.
        differences = out("SquaredDifference", [wide, identity.stop_gradient(mean)])
        variance = reduction.reduce_mean(differences, axes, keepdims=True, name="variance")
        if not keep:
            mean, variance = _squeeze_axes(mean, axes), _squeeze_axes(variance, axes)
        if wide is not x:
            mean, variance = [casting.cast(v, x.dtype.base_dtype) for v in (mean, variance)]
        return mean, variance


def _squeeze_axes(value: Output, axes: Any) -> Output:
    return shapes.squeeze(value, axes if isinstance(axes, list | tuple) else [axes])


def weighted_moments(
    x: Any,
    axes: Any,
    frequency_weights: Any,
    name: str | None = None,
    keep_dims: bool | None = None,
    keepdims: bool | None = None,
) -> tuple[Output, Output]:
    """Return the mean and variance over axes, each element counted `frequency_weights` times.

    Args:
      x: floating, any shape.
      axes: axes to reduce over.
      frequency_weights: broadcasts with `x`.
      keepdims: keep the reduced axes with size 1; also `keep_dims`.
    Returns: mean and variance, dtype of `x`.
    Raises: InvalidArgumentError: shapes do not broadcast, or an axis is out of range.

    Examples:
      >>> wf.Session().run(wf.nn.weighted_moments([1.0, 3.0], [0], [1.0, 1.0]))
      (np.float32(2.0), np.float32(1.0))
    """
    keep = bool(keepdims or keep_dims)
    with scope(name, "weighted_moments"):
        x = convert_to_tensor(x)
        kind = x.dtype.base_dtype
        narrow = kind in _NARROW
        wide = casting.cast(x, dtypes.float32) if narrow else x
        weights = casting.cast(convert_to_tensor(frequency_weights), wide.dtype.base_dtype)
        weighted = out("Mul", [wide, weights])
        spread = out("AddV2", [weights, array.zeros_like(wide)])
        total = reduction.reduce_sum(spread, axes, keepdims=True)
        mean = out("RealDiv", [reduction.reduce_sum(weighted, axes, keepdims=True), total])
        differences = out("SquaredDifference", [wide, identity.stop_gradient(mean)])
        sums = reduction.reduce_sum(out("Mul", [weights, differences]), axes, keepdims=True)
        variance = out("RealDiv", [sums, total])
        if not keep:
            mean, variance = _squeeze_axes(mean, axes), _squeeze_axes(variance, axes)
        if narrow:
            mean, variance = casting.cast(mean, kind), casting.cast(variance, kind)
        return mean, variance


def sufficient_statistics(
    x: Any,
    axes: Sequence[int],
    shift: Any = None,
    keep_dims: bool | None = None,
    name: str | None = None,
    keepdims: bool | None = None,
) -> tuple[Output, Output, Output, Output | None]:
    """Return the count, sum and sum of squares over axes.

    Args:
      x: floating, any shape.
      axes: axes to reduce over.
      shift: subtracted from `x` before summing, for stability.
      keepdims: keep the reduced axes with size 1; also `keep_dims`.
    Returns: count (rank 0), sum, sum of squares, and `shift`.
    Raises: InvalidArgumentError: an axis is out of range.

    Examples:
      >>> count, total, squares, _ = wf.nn.sufficient_statistics(wf.constant([3.0, 5.0]), [0])
      >>> wf.Session().run([count, total, squares])
      [np.float32(2.0), np.float32(8.0), np.float32(34.0)]
    """
    keep = bool(keepdims or keep_dims)
    axes = list(axes)
    with scope(name, "sufficient_statistics"):
        x = convert_to_tensor(x)
        kind = x.dtype.base_dtype
        if x.dims is not None and all(x.dims[axis] is not None for axis in axes):
            size = 1
            for axis in axes:
                size *= x.dims[axis] or 0
            count = convert_to_tensor(size, kind, name="count")
        else:
            sizes = out("GatherV2", [shapes.shape(x), axes, 0])
            count = casting.cast(reduction.reduce_prod(sizes), kind)
        if shift is None:
            first, second = x, out("Square", [x])
        else:
            shift = convert_to_tensor(shift, kind)
            first, second = out("Sub", [x, shift]), out("SquaredDifference", [x, shift])
        sums = reduction.reduce_sum(first, axes, keepdims=keep, name="mean_ss")
        squares = reduction.reduce_sum(second, axes, keepdims=keep, name="var_ss")
        return count, sums, squares, shift


def normalize_moments(
    counts: Any, mean_ss: Any, variance_ss: Any, shift: Any, name: str | None = None
) -> tuple[Output, Output]:
    """Return the mean and variance from the results of `sufficient_statistics`.

    Args:
      counts, mean_ss, variance_ss, shift: results of `sufficient_statistics`; `shift` may be None.
    Returns: mean and variance, each of the shape of `mean_ss`.

    Examples:
      >>> count, total, squares, shift = wf.nn.sufficient_statistics(wf.constant([3.0, 5.0]), [0])
      >>> wf.Session().run(wf.nn.normalize_moments(count, total, squares, shift))
      (np.float32(4.0), np.float32(1.0))
    """
    with scope(name, "normalize"):
        inverse = out("Reciprocal", [counts], name="divisor")
        if shift is None:
            mean = out("Mul", [mean_ss, inverse], name="mean")
            shifted = mean
        else:
            shifted = out("Mul", [mean_ss, inverse], name="shifted_mean")
            mean = out("AddV2", [shifted, shift], name="mean")
        squares = out("Mul", [variance_ss, inverse])
        variance = out("Sub", [squares, out("Square", [shifted])], name="variance")
        return mean, variance


def batch_normalization(
    x: Any,
    mean: Any,
    variance: Any,
    offset: Any,
    scale: Any,
    variance_epsilon: Any,
    name: str | None = None,
) -> Output:
    """Return (x - mean) / sqrt(variance + variance_epsilon) * scale + offset.

    Args:
      x: floating, any shape.
      mean, variance: broadcast to `x`.
      offset, scale: broadcast to `x`; None for 0 and 1.
      variance_epsilon: a small number.
    Returns: shape and dtype of `x`.
    Raises: InvalidArgumentError: shapes do not broadcast.
    Source: Ioffe and Szegedy 2015.

    Examples:
      >>> wf.Session().run(wf.nn.batch_normalization([1.0, 3.0], 2.0, 1.0, None, None, 0.0))
      array([-1.,  1.], dtype=float32)
    """
    with scope(name, "batchnorm"):
        x = convert_to_tensor(x)
        kind = x.dtype.base_dtype
        inverse = out("Rsqrt", [out("AddV2", [variance, variance_epsilon])])
        if scale is not None:
            inverse = out("Mul", [inverse, scale])
        shift = out("Mul", [mean, inverse])
        shift = out("Neg", [shift]) if offset is None else out("Sub", [offset, shift])
        product = out("Mul", [x, casting.cast(inverse, kind)])
        return out("AddV2", [product, casting.cast(shift, kind)])


def batch_norm_with_global_normalization(
    t: Any = None,
    m: Any = None,
    v: Any = None,
    beta: Any = None,
    gamma: Any = None,
    variance_epsilon: Any = None,
    scale_after_normalization: bool | None = None,
    name: str | None = None,
    input: Any = None,
    mean: Any = None,
    variance: Any = None,
) -> Output:
    """Apply `batch_normalization` to images; deprecated.

    Args:
      t: floating, shape (N, H, W, C); also `input`.
      m, v: mean and variance, shape (C,); also `mean` and `variance`.
      beta: added after scaling, shape (C,).
      gamma: factor, shape (C,), used if `scale_after_normalization`.
      variance_epsilon: added to the variance.
      scale_after_normalization: multiply by `gamma`.
    Returns: shape and dtype of `t`.

    Examples:
      >>> image = wf.constant([[[[3.0], [5.0]]]])
      >>> y = wf.nn.batch_norm_with_global_normalization(
      ...     image, [4.0], [1.0], beta=[0.0], gamma=[2.0], variance_epsilon=0.0,
      ...     scale_after_normalization=True)
      >>> wf.Session().run(y).ravel()
      array([-2.,  2.], dtype=float32)
    """
    return batch_normalization(
        input if t is None else t,
        mean if m is None else m,
        variance if v is None else v,
        beta,
        gamma if scale_after_normalization else None,
        variance_epsilon,
        name,
    )


def l2_normalize(
    x: Any, axis: Any = None, epsilon: float = 1e-12, name: str | None = None, dim: Any = None
) -> Output:
    """Return x / sqrt(max(sum(x ** 2), epsilon)) with sums over an axis.

    Args:
      x: floating, any shape.
      axis: one axis or several, all by default; also `dim`.
      epsilon: lower bound of the sum.
    Returns: shape and dtype of `x`.
    Raises: InvalidArgumentError: an axis is out of range.

    Examples:
      >>> wf.Session().run(wf.nn.l2_normalize([3.0, 4.0], axis=0))
      array([0.6, 0.8], dtype=float32)
    """
    axis = shapes.deprecated_argument("axis", axis, "dim", dim)
    with scope(name, "l2_normalize") as full:
        x = convert_to_tensor(x)
        total = reduction.reduce_sum(out("Square", [x]), axis, keepdims=True)
        inverse = out("Rsqrt", [out("Maximum", [total, epsilon])])
        return out("Mul", [x, inverse], name=full)
