"""The gamma distribution."""

from __future__ import annotations

__all__ = ["Gamma"]

from collections.abc import Sequence
from typing import Any

from weft_graph.distributions.distribution import (
    FULLY_REPARAMETERIZED,
    Distribution,
    convert_floating,
    positive,
    square,
    with_assertions,
)
from weft_graph.distributions.kullback_leibler import RegisterKL
from weft_graph.ir.builder import out
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.node import Output
from weft_graph.ops import checks, random
from weft_graph.ops.elementary import log, xlogy
from weft_graph.ops.special import digamma, igamma, igammac, lgamma


class Gamma(Distribution):
    """Gamma distributions: density rate ** a * x ** (a - 1) * exp(-rate * x) / gamma(a).

    Args:
      concentration: floating, a, positive.
      rate: same dtype, positive; the shapes broadcast.
      validate_args: check that the parameters and samples are positive.
      allow_nan_stats: as in `Distribution`; the mode is NaN if a is at most 1.
      name: name of the name scope.

    Examples:
      >>> gamma = wf.distributions.Gamma(concentration=3.0, rate=2.0)
      >>> wf.Session().run([gamma.mean(), gamma.variance(), gamma.mode()])
      [np.float32(1.5), np.float32(0.75), np.float32(1.0)]
    """

    _sample_parameters: Sequence[str] = ("concentration", "rate")

    def __init__(
        self,
        concentration: Any,
        rate: Any,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Gamma",
    ) -> None:
        parameters = dict(locals())
        with name_scope(name):
            values = positive(convert_floating(concentration, rate), validate_args)
        self._concentration, self._rate = values
        super().__init__(
            self._rate.dtype.base_dtype,
            FULLY_REPARAMETERIZED,
            validate_args,
            allow_nan_stats,
            parameters,
            values,
            name,
        )

    @property
    def concentration(self) -> Output:
        """The shape parameters a."""
        return self._concentration

    @property
    def rate(self) -> Output:
        """The rates."""
        return self._rate

    def _sample_n(self, n: Any, seed: int | None) -> Output:
        size = out("Pack", [[n]])
        return random.random_gamma(size, self._concentration, self._rate, self.dtype, seed)

    def _log_prob(self, x: Output) -> Output:
        if self.validate_args:
            x = with_assertions(x, [checks.assert_positive(x, message="draws must be positive")])
        a = self._concentration
        return xlogy(a - 1.0, x) - self._rate * x - (lgamma(a) - a * log(self._rate))

    def _scale_by_rate(self, x: Output) -> tuple[Output, Output]:
        scaled = x * self._rate
        return self._concentration * out("OnesLike", [scaled]), scaled

    def _cdf(self, x: Output) -> Output:
        return igamma(*self._scale_by_rate(x))

    def _survival_function(self, x: Output) -> Output:
        return igammac(*self._scale_by_rate(x))

    def _entropy(self) -> Output:
        a = self._concentration
        return a - log(self._rate) + lgamma(a) + (1.0 - a) * digamma(a)

    def _mean(self) -> Output:
        return self._concentration / self._rate

    def _variance(self) -> Output:
        return self._concentration / square(self._rate)

    def _mode(self) -> Output:
        mode = (self._concentration - 1.0) / self._rate
        valid = out("Greater", [self._concentration * out("OnesLike", [self._rate]), 1.0])
        return self._mask_undefined(valid, mode, "mode")


@RegisterKL(Gamma, Gamma)
def _divergence(a: Gamma, b: Gamma, name: str | None = None) -> Output:
    of_shape = (a.concentration - b.concentration) * digamma(a.concentration)
    of_shape = of_shape + lgamma(b.concentration) - lgamma(a.concentration)
    of_rate = b.concentration * (log(a.rate) - log(b.rate))
    return of_shape + of_rate + a.concentration * (b.rate / a.rate - 1.0)
