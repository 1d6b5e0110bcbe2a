"""The beta distribution."""

from __future__ import annotations

__all__ = ["Beta"]

from collections.abc import Sequence
from typing import Any

from weft_graph.distributions.distribution import (
    FULLY_REPARAMETERIZED,
    Distribution,
    convert_floating,
    positive,
    second_seed,
    with_assertions,
)
from weft_graph.distributions.kullback_leibler import RegisterKL
from weft_graph.ir.builder import out
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.node import Output
from weft_graph.ops import checks, random
from weft_graph.ops.elementary import xlog1py, xlogy
from weft_graph.ops.special import betainc, digamma, lgamma


class Beta(Distribution):
    """Beta distributions on (0, 1), with density proportional to x ** (a - 1) * (1 - x) ** (b - 1).

    Args:
      concentration1: floating, a, positive; 1 by default.
      concentration0: same dtype, b, positive; 1 by default. The shapes broadcast.
      validate_args: check the parameters, and that values are in (0, 1).
      allow_nan_stats: as in `Distribution`; the mode is NaN if a or b is at most 1.
      name: name of the name scope.

    Examples:
      >>> beta = wf.distributions.Beta(2.0, 3.0)
      >>> np.round(wf.Session().run([beta.mean(), beta.prob(0.5), beta.cdf(0.5)]), 4)
      array([0.4   , 1.5   , 0.6875], dtype=float32)
    """

    _sample_parameters: Sequence[str] = ("concentration1", "concentration0")

    def __init__(
        self,
        concentration1: Any = None,
        concentration0: Any = None,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Beta",
    ) -> None:
        parameters = dict(locals())
        with name_scope(name):
            concentrations = [1.0 if x is None else x for x in (concentration1, concentration0)]
            self._one, self._zero = positive(convert_floating(*concentrations), validate_args)
            self._total = self._one + self._zero
        super().__init__(
            self._one.dtype.base_dtype,
            FULLY_REPARAMETERIZED,
            validate_args,
            allow_nan_stats,
            parameters,
            [self._one, self._zero],
            name,
        )

    @property
    def concentration1(self) -> Output:
        """The parameters a: larger ones move samples toward 1."""
        return self._one

    @property
    def concentration0(self) -> Output:
        """The parameters b: larger ones move samples toward 0."""
        return self._zero

    @property
    def total_concentration(self) -> Output:
        """a + b."""
        return self._total

    def _sample_n(self, n: Any, seed: int | None) -> Output:
        unit_shape = out("OnesLike", [self._total])
        size = out("Pack", [[n]])
        first = random.random_gamma(size, self._one * unit_shape, dtype=self.dtype, seed=seed)
        other_seed = second_seed(seed, 1)
        second = random.random_gamma(
            size, self._zero * unit_shape, dtype=self.dtype, seed=other_seed
        )
        return first / (first + second)

    def _check_interior(self, x: Output) -> Output:
        if not self.validate_args:
            return x
        below_one = checks.assert_less(x, out("OnesLike", [x]))
        return with_assertions(x, [checks.assert_positive(x), below_one])

    def _log_norm(self) -> Output:
        return lgamma(self._one) + lgamma(self._zero) - lgamma(self._total)

    def _log_prob(self, x: Output) -> Output:
        x = self._check_interior(x)
        return xlogy(self._one - 1.0, x) + xlog1py(self._zero - 1.0, -x) - self._log_norm()

    def _cdf(self, x: Output) -> Output:
        return betainc(self._one, self._zero, self._check_interior(x))

    def _entropy(self) -> Output:
        a, b, total = self._one, self._zero, self._total
        of_parts = (a - 1.0) * digamma(a) + (b - 1.0) * digamma(b)
        return self._log_norm() - of_parts + (total - 2.0) * digamma(total)

    def _mean(self) -> Output:
        return self._one / self._total

    def _variance(self) -> Output:
        mean = self._mean()
        return mean * (1.0 - mean) / (1.0 + self._total)

    def _mode(self) -> Output:
        are_above_one = [out("Greater", [x, 1.0]) for x in (self._one, self._zero)]
        mode = (self._one - 1.0) / (self._total - 2.0)
        return self._mask_undefined(out("LogicalAnd", are_above_one), mode, "mode")


@RegisterKL(Beta, Beta)
def _divergence(a: Beta, b: Beta, name: str | None = None) -> Output:
    def part(x: Output, y: Output) -> Output:
        return lgamma(y) - lgamma(x) + (x - y) * digamma(x)

    first_part = part(a.concentration1, b.concentration1)
    zeros = part(a.concentration0, b.concentration0)
    return first_part + zeros - part(a.total_concentration, b.total_concentration)
