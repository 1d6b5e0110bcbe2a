"""The normal distribution."""

from __future__ import annotations

__all__ = ["Normal"]

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft_graph.distributions.distribution import (
    FULLY_REPARAMETERIZED,
    Distribution,
    convert_floating,
    positive,
    square,
)
from weft_graph.distributions.kullback_leibler import RegisterKL
from weft_graph.ir.builder import out
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.node import Output
from weft_graph.ops import random
from weft_graph.ops.elementary import log, log1p
from weft_graph.ops.special import erfc, ndtri
from weft_tensor import dtypes


class Normal(Distribution):
    """Normal distributions.

    Args:
      loc: floating, the means.
      scale: same dtype, the standard deviations, positive; the shapes broadcast.
      validate_args: check that `scale` is positive.
      allow_nan_stats: as in `Distribution`.
      name: name of the name scope.

    Examples:
      >>> normal = wf.distributions.Normal(loc=[0.0, 1.0], scale=2.0)
      >>> np.round(wf.Session().run(normal.log_prob(1.0)), 3)
      array([-1.737, -1.612], dtype=float32)
    """

    _sample_parameters: Sequence[str] = ("loc", "scale")

    def __init__(
        self,
        loc: Any,
        scale: Any,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Normal",
    ) -> None:
        parameters = dict(locals())
        with name_scope(name):
            self._loc, scale = convert_floating(loc, scale)
            (self._scale,) = positive([scale], validate_args)
        super().__init__(
            self._loc.dtype.base_dtype,
            FULLY_REPARAMETERIZED,
            validate_args,
            allow_nan_stats,
            parameters,
            [self._loc, self._scale],
            name,
        )

    @property
    def loc(self) -> Output:
        """The means."""
        return self._loc

    @property
    def scale(self) -> Output:
        """The standard deviations."""
        return self._scale

    def _sample_n(self, n: Any, seed: int | None) -> Output:
        draws = random.random_normal(self._full_shape(n), dtype=self.dtype, seed=seed)
        return draws * self._scale + self._loc

    def _z(self, x: Output) -> Output:
        return (x - self._loc) / self._scale

    def _log_prob(self, x: Output) -> Output:
        return -0.5 * square(self._z(x)) - (0.5 * math.log(2 * math.pi) + log(self._scale))

    def _cdf(self, x: Output) -> Output:
        return _standard_cdf(self._z(x))

    def _log_cdf(self, x: Output) -> Output:
        return log_normal_cdf(self._z(x))

    def _survival_function(self, x: Output) -> Output:
        return _standard_cdf(-self._z(x))

    def _log_survival_function(self, x: Output) -> Output:
        return log_normal_cdf(-self._z(x))

    def _quantile(self, p: Output) -> Output:
        return ndtri(p) * self._scale + self._loc

    def _entropy(self) -> Output:
        return 0.5 + 0.5 * math.log(2 * math.pi) + log(self._stddev())

    def _mean(self) -> Output:
        return self._loc * out("OnesLike", [self._scale])

    def _stddev(self) -> Output:
        return self._scale * out("OnesLike", [self._loc])

    _mode = _mean


def _standard_cdf(z: Output) -> Output:
    """Return the standard normal cumulative distribution function."""
    return 0.5 * erfc(z * -math.sqrt(0.5))


def log_normal_cdf(z: Output) -> Output:
    """Return the logarithm of the standard normal CDF, accurate in both tails."""
    double = z.dtype.base_dtype is dtypes.float64
    limit, terms = (-20.0, 12) if double else (-8.0, 8)
    far = out("Less", [z, limit])
    high = out("Greater", [z, 1.0])
    upper = log1p(-_standard_cdf(out("SelectV2", [high, -z, out("ZerosLike", [z])])))
    central = log(
        _standard_cdf(out("SelectV2", [out("LogicalOr", [far, high]), out("ZerosLike", [z]), z]))
    )
    tail = out("SelectV2", [far, z, np.array(limit, z.dtype.base_dtype.numpy)])
    series, inverse = 0.0 * tail, 1.0 / square(tail)
    for k in range(terms, 0, -1):  # 1 - 1/z^2 (1 - 3/z^2 (1 - ...))
        series = -(2 * k - 1) * inverse * (1.0 + series)
    far_tail = -0.5 * square(tail) - log(-tail) - 0.5 * math.log(2 * math.pi) + log1p(series)
    return out("SelectV2", [far, far_tail, out("SelectV2", [high, upper, central])])


@RegisterKL(Normal, Normal)
def _divergence(a: Normal, b: Normal, name: str | None = None) -> Output:
    ratio = square(a.scale / b.scale)
    return square(a.loc - b.loc) / (2.0 * square(b.scale)) + 0.5 * (ratio - 1.0 - log(ratio))
