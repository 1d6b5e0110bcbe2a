"""The Dirichlet distribution over class probabilities."""

from __future__ import annotations

__all__ = ["Dirichlet"]

from typing import Any

from weft_graph.distributions.distribution import (
    FULLY_REPARAMETERIZED,
    Distribution,
    convert_floating,
    positive,
    with_assertions,
)
from weft_graph.distributions.kullback_leibler import RegisterKL
from weft_graph.ir.builder import out
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.node import Output
from weft_graph.ops import checks, diagonals, random
from weft_graph.ops.elementary import xlogy
from weft_graph.ops.reduction import reduce_all, reduce_sum
from weft_graph.ops.shape_rules import with_rank_at_least
from weft_graph.ops.special import digamma, lbeta, lgamma


class Dirichlet(Distribution):
    """Dirichlet distributions over K probabilities that sum to 1.

    Args:
      concentration: floating, shape (..., K), positive.
      validate_args: check that it is positive, and that samples are positive and sum to 1.
      allow_nan_stats: as in `Distribution`; the mode is NaN if a parameter is at most 1.
      name: name of the name scope.

    Examples:
      >>> dirichlet = wf.distributions.Dirichlet([1.0, 2.0, 1.0])
      >>> wf.Session().run(dirichlet.mean())
      array([0.25, 0.5 , 0.25], dtype=float32)
    """

    _event_rank = 1

    def __init__(
        self,
        concentration: Any,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Dirichlet",
    ) -> None:
        parameters = dict(locals())
        with name_scope(name):
            (self._concentration,) = positive(convert_floating(concentration), validate_args)
            with_rank_at_least(self._concentration.dims, 1, "concentration")
            self._total = reduce_sum(self._concentration, -1)
        super().__init__(
            self._concentration.dtype.base_dtype,
            FULLY_REPARAMETERIZED,
            validate_args,
            allow_nan_stats,
            parameters,
            [self._concentration],
            name,
        )

    @property
    def concentration(self) -> Output:
        """The parameters, shape (..., K)."""
        return self._concentration

    @property
    def total_concentration(self) -> Output:
        """The sums of the parameters, shape (...)."""
        return self._total

    def _sample_n(self, n: Any, seed: int | None) -> Output:
        size = out("Pack", [[n]])
        draws = random.random_gamma(size, self._concentration, dtype=self.dtype, seed=seed)
        return draws / reduce_sum(draws, -1, keepdims=True)

    def _log_prob(self, x: Output) -> Output:
        if self.validate_args:
            total = reduce_sum(x, -1)
            sums_to_one = checks.assert_near(
                total,
                out("OnesLike", [total]),
                message="the probabilities of a draw must sum to 1",
            )
            x = with_assertions(
                x, [checks.assert_positive(x, message="draws must be positive"), sums_to_one]
            )
        powers = reduce_sum(xlogy(self._concentration - 1.0, x), -1)
        return powers - lbeta(self._concentration)

    def _size(self) -> Output:
        count = out("Shape", [self._concentration])[-1]
        return out("Cast", [count], {"DstT": self.dtype})

    def _expand_total(self) -> Output:
        return out("ExpandDims", [self._total, -1])

    def _entropy(self) -> Output:
        a, total = self._concentration, self._total
        of_parts = reduce_sum((a - 1.0) * digamma(a), -1)
        return lbeta(a) + (total - self._size()) * digamma(total) - of_parts

    def _mean(self) -> Output:
        return self._concentration / self._expand_total()

    def _variance(self) -> Output:
        mean = self._mean()
        return mean * (1.0 - mean) / (1.0 + self._expand_total())

    def _covariance(self) -> Output:
        mean = self._mean()
        scaled = mean / (1.0 + self._expand_total())
        product = out("ExpandDims", [-scaled, -1]) * out("ExpandDims", [mean, -2])
        return diagonals.matrix_set_diag(product, self._variance())

    def _mode(self) -> Output:
        mode = (self._concentration - 1.0) / (self._expand_total() - self._size())
        valid = reduce_all(out("Greater", [self._concentration, 1.0]), -1, keepdims=True)
        return self._mask_undefined(valid, mode, "mode")


@RegisterKL(Dirichlet, Dirichlet)
def _divergence(a: Dirichlet, b: Dirichlet, name: str | None = None) -> Output:
    x, y = a.concentration, b.concentration
    difference = digamma(x) - digamma(out("ExpandDims", [a.total_concentration, -1]))
    parts = reduce_sum((x - y) * difference + lgamma(y) - lgamma(x), -1)
    return parts + lgamma(a.total_concentration) - lgamma(b.total_concentration)
