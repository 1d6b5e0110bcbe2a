"""Initializers of `tf.contrib.layers`; their variances differ from `wf.initializers`."""

from __future__ import annotations

__all__ = ["variance_scaling_initializer", "xavier_initializer", "xavier_initializer_conv2d"]

import math
from collections.abc import Callable
from typing import Any

from weft_graph.ops import random
from weft_graph.variables.initializers import compute_fans
from weft_tensor import dtypes, errors

_MODES = ("FAN_IN", "FAN_OUT", "FAN_AVG")


def variance_scaling_initializer(
    factor: float = 2.0,
    mode: str = "FAN_IN",
    uniform: bool = False,
    seed: int | None = None,
    dtype: Any = dtypes.float32,
) -> Callable[..., Any]:
    """Return an initializer of random values with variance `factor / n`.

    Args:
      factor: factor of the variance.
      mode: the definition of n: "FAN_IN", "FAN_OUT", or their mean "FAN_AVG".
      uniform: use a uniform distribution; otherwise a normal one, truncated at two standard
        deviations.
      seed: seed of the random numbers.
      dtype: floating.
    Returns: an initializer.
    Raises: InvalidTypeError: `dtype` is not floating, or the mode is unknown.
    Source: He et al. 2015.

    Examples:
      >>> wf.contrib.layers.variance_scaling_initializer()([3, 4]).shape
      TensorShape([Dimension(3), Dimension(4)])
    """
    if not dtypes.as_dtype(dtype).is_floating:
        raise errors.InvalidTypeError("Cannot create initializer for non-floating point type.")
    if mode not in _MODES:
        raise errors.InvalidTypeError(f"mode must be one of {', '.join(_MODES)}, got {mode!r}")
    default = dtype

    def initialize(shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
        dtype = dtypes.as_dtype(dtype or default)
        if not dtype.is_floating:
            raise errors.InvalidTypeError("Cannot create initializer for non-floating point type.")
        full_shape = shape if partition_info is None else partition_info.full_shape
        fan_in, fan_out = compute_fans([int(size) for size in full_shape])
        n = {"FAN_IN": fan_in, "FAN_OUT": fan_out, "FAN_AVG": (fan_in + fan_out) / 2.0}[mode]
        n = max(1.0, n)
        if uniform:
            limit = math.sqrt(3.0 * factor / n)
            return random.random_uniform(shape, -limit, limit, dtype, seed=seed)
        # Truncation reduces the variance, which a factor above 1 corrects.
        return random.truncated_normal(shape, 0.0, math.sqrt(1.3 * factor / n), dtype, seed=seed)

    return initialize


def xavier_initializer(
    uniform: bool = True, seed: int | None = None, dtype: Any = dtypes.float32
) -> Callable[..., Any]:
    """Return an initializer that keeps the scale of gradients similar in all layers.

    Args:
      uniform, seed, dtype: as for `variance_scaling_initializer`.
    Returns: an initializer.
    Source: Glorot and Bengio 2010.

    Examples:
      >>> wf.contrib.layers.xavier_initializer()([3, 4]).shape
      TensorShape([Dimension(3), Dimension(4)])
    """
    return variance_scaling_initializer(1.0, "FAN_AVG", uniform, seed, dtype)


xavier_initializer_conv2d = xavier_initializer
