"""Student's t-distribution."""

from __future__ import annotations

__all__ = ["StudentT"]

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft_graph.distributions.distribution import (
    FULLY_REPARAMETERIZED,
    Distribution,
    convert_floating,
    magnitude,
    positive,
    second_seed,
    square,
)
from weft_graph.ir.builder import out
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.node import Output
from weft_graph.ops import random
from weft_graph.ops.elementary import log, log1p
from weft_graph.ops.special import betainc, digamma, lgamma


class StudentT(Distribution):
    """Student's t-distributions with location and scale.

    Args:
      df: floating, degrees of freedom, positive.
      loc: same dtype, the locations (medians).
      scale: same dtype, positive; it is not a standard deviation. The shapes broadcast.
      validate_args: check that `df` and `scale` are positive.
      allow_nan_stats: as in `Distribution`; mean and variance are NaN if df is at most 1, and the
        variance is infinite if df is between 1 and 2.
      name: name of the name scope.

    Examples:
      >>> student = wf.distributions.StudentT(df=3.0, loc=0.0, scale=1.0)
      >>> np.round(wf.Session().run([student.prob(0.0), student.variance()]), 4)
      array([0.3676, 3.    ], dtype=float32)
    """

    _sample_parameters: Sequence[str] = ("df", "loc", "scale")

    def __init__(
        self,
        df: Any,
        loc: Any,
        scale: Any,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "StudentT",
    ) -> None:
        parameters = dict(locals())
        with name_scope(name):
            df, self._loc, scale = convert_floating(df, loc, scale)
            self._df, self._scale = positive([df, scale], validate_args)
        super().__init__(
            self._loc.dtype.base_dtype,
            FULLY_REPARAMETERIZED,
            validate_args,
            allow_nan_stats,
            parameters,
            [self._df, self._loc, self._scale],
            name,
        )

    @property
    def df(self) -> Output:
        """The degrees of freedom."""
        return self._df

    @property
    def loc(self) -> Output:
        """The locations."""
        return self._loc

    @property
    def scale(self) -> Output:
        """The scales."""
        return self._scale

    def _sample_n(self, n: Any, seed: int | None) -> Output:
        shape = self._full_shape(n)
        normal = random.random_normal(shape, dtype=self.dtype, seed=seed)
        half = 0.5 * out("BroadcastTo", [self._df, self.batch_shape_tensor()])
        size = out("Pack", [[n]])
        gamma = random.random_gamma(size, half, half, self.dtype, second_seed(seed, 1))
        return normal * out("Rsqrt", [gamma]) * self._scale + self._loc

    def _z(self, x: Output) -> Output:
        return (x - self._loc) / self._scale

    def _log_norm(self) -> Output:
        gammas = lgamma(0.5 * self._df) - lgamma(0.5 * (self._df + 1.0))
        return log(magnitude(self._scale)) + 0.5 * log(self._df) + 0.5 * math.log(math.pi) + gammas

    def _log_prob(self, x: Output) -> Output:
        powers = -0.5 * (self._df + 1.0) * log1p(square(self._z(x)) / self._df)
        return powers - self._log_norm()

    def _cdf(self, x: Output) -> Output:
        z = (x - self._loc) / magnitude(self._scale)
        tail = 0.5 * betainc(0.5 * self._df, 0.5, self._df / (square(z) + self._df))
        return out("SelectV2", [out("Less", [z, 0.0]), tail, 1.0 - tail])

    def _ones(self) -> Output:
        return out("OnesLike", [self._df * self._loc * self._scale])

    def _entropy(self) -> Output:
        difference = digamma(0.5 * (self._df + 1.0)) - digamma(0.5 * self._df)
        entropy = self._log_norm() + 0.5 * (self._df + 1.0) * difference
        return entropy * out("OnesLike", [self._loc])

    def _mean(self) -> Output:
        valid = out("Greater", [self._df * self._ones(), 1.0])
        return self._mask_undefined(valid, self._loc * self._ones(), "mean")

    def _variance(self) -> Output:
        unit = self._ones()
        df = self._df * unit
        finite = out("Greater", [df, 2.0])
        divisor = out("SelectV2", [finite, df - 2.0, unit])
        infinite = np.array(np.inf, self.dtype.numpy)
        variance = out("SelectV2", [finite, square(self._scale) * df / divisor, infinite])
        return self._mask_undefined(out("Greater", [df, 1.0]), variance, "variance")

    def _mode(self) -> Output:
        return self._loc * self._ones()
