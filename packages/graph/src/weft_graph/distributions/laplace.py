"""The Laplace distribution."""

from __future__ import annotations

__all__ = ["Laplace"]

import math
from collections.abc import Sequence
from typing import Any

from weft_graph.distributions.distribution import (
    FULLY_REPARAMETERIZED,
    Distribution,
    convert_floating,
    magnitude,
    positive,
    sign,
)
from weft_graph.ir.builder import out
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.node import Output
from weft_graph.ops import random
from weft_graph.ops.elementary import exp, expm1, log, log1p


class Laplace(Distribution):
    """Laplace distributions, with the density exp(-|x - loc| / scale) / (2 * scale).

    Args:
      loc: floating, the means.
      scale: same dtype, positive; the shapes broadcast.
      validate_args: check that `scale` is positive.
      allow_nan_stats: as in `Distribution`.
      name: name of the name scope.

    Examples:
      >>> laplace = wf.distributions.Laplace(loc=0.0, scale=1.0)
      >>> wf.Session().run(laplace.prob(0.0))
      np.float32(0.5)
    """

    _sample_parameters: Sequence[str] = ("loc", "scale")

    def __init__(
        self,
        loc: Any,
        scale: Any,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Laplace",
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
        """The scales."""
        return self._scale

    def _sample_n(self, n: Any, seed: int | None) -> Output:
        uniform = random.random_uniform(self._full_shape(n), -1.0, 1.0, self.dtype, seed)
        # -1 itself, which is among the numbers, would be drawn as infinite.
        clipped = out("Maximum", [uniform, -1.0 + _step(self.dtype)])
        return self._loc - self._scale * sign(clipped) * log1p(-magnitude(clipped))

    def _z(self, x: Output) -> Output:
        return (x - self._loc) / self._scale

    def _log_prob(self, x: Output) -> Output:
        return -magnitude(self._z(x)) - math.log(2) - log(self._scale)

    def _cdf(self, x: Output) -> Output:
        z = self._z(x)
        return 0.5 - 0.5 * sign(z) * expm1(-magnitude(z))

    def _log_cdf(self, x: Output) -> Output:
        return _log_left_tail(self._z(x))

    def _log_survival_function(self, x: Output) -> Output:
        return _log_left_tail(-self._z(x))

    def _quantile(self, p: Output) -> Output:
        middle = p - 0.5
        return self._loc - self._scale * sign(middle) * log1p(-2.0 * magnitude(middle))

    def _entropy(self) -> Output:
        return 1.0 + math.log(2) + log(self._scale * out("OnesLike", [self._loc]))

    def _mean(self) -> Output:
        return self._loc * out("OnesLike", [self._scale])

    def _stddev(self) -> Output:
        return math.sqrt(2) * self._scale * out("OnesLike", [self._loc])

    _mode = _mean


def _step(dtype: Any) -> float:
    """Return the distance between adjacent uniform samples in [-1, 1)."""
    return {2: 2.0**-7, 4: 2.0**-23, 8: 2.0**-52}[dtype.size]


def _log_left_tail(z: Output) -> Output:
    is_negative = out("Less", [z, 0.0])
    upper = log1p(-0.5 * exp(-magnitude(z)))
    return out("SelectV2", [is_negative, z - math.log(2), upper])
