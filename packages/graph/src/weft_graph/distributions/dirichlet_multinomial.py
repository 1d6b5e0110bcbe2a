"""The multinomial distribution whose probabilities are drawn from a Dirichlet distribution."""

from __future__ import annotations

__all__ = ["DirichletMultinomial"]

from typing import Any

from weft_graph.distributions.categories import check_counts, log_combinations
from weft_graph.distributions.distribution import (
    NOT_REPARAMETERIZED,
    Distribution,
    convert_floating,
    positive,
    second_seed,
    with_assertions,
)
from weft_graph.distributions.multinomial import count_draws
from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.node import Output
from weft_graph.ops import checks, diagonals, random
from weft_graph.ops.elementary import log
from weft_graph.ops.reduction import reduce_sum
from weft_graph.ops.shape_rules import with_rank_at_least
from weft_graph.ops.special import lbeta


class DirichletMultinomial(Distribution):
    """Counts of K classes whose probabilities follow a Dirichlet distribution.

    Args:
      total_count: floating, shape (...), the number of draws.
      concentration: same dtype, shape (..., K), positive; parameters of the Dirichlet distribution.
      validate_args: check the parameters, and that counts sum to `total_count`.
      allow_nan_stats: as in `Distribution`.
      name: name of the name scope.

    Examples:
      >>> counts = wf.distributions.DirichletMultinomial(2.0, [1.0, 1.0])
      >>> np.round(wf.Session().run(counts.prob([[1.0, 1.0], [2.0, 0.0]])), 3)
      array([0.333, 0.333], dtype=float32)
    """

    _event_rank = 1

    def __init__(
        self,
        total_count: Any,
        concentration: Any,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "DirichletMultinomial",
    ) -> None:
        parameters = dict(locals())
        with name_scope(name):
            (self._concentration,) = positive(convert_floating(concentration), validate_args)
            with_rank_at_least(self._concentration.dims, 1, "concentration")
            total = convert_to_tensor(total_count, self._concentration.dtype.base_dtype)
            if validate_args:
                total = with_assertions(total, [checks.assert_non_negative(total)])
            self._count = total
            self._total = reduce_sum(self._concentration, -1)
        super().__init__(
            self._concentration.dtype.base_dtype,
            NOT_REPARAMETERIZED,
            validate_args,
            allow_nan_stats,
            parameters,
            [self._count, self._concentration],
            name,
        )

    @property
    def total_count(self) -> Output:
        """The number of draws, shape (...)."""
        return self._count

    @property
    def concentration(self) -> Output:
        """The parameters, shape (..., K)."""
        return self._concentration

    @property
    def total_concentration(self) -> Output:
        """The sums of the parameters, shape (...)."""
        return self._total

    def _parameters_and_ranks(self) -> list[tuple[Output, int]]:
        return [(self._count, 0), (self._concentration, 1)]

    def _sample_n(self, n: Any, seed: int | None) -> Output:
        shape = self._full_shape(n)[1:]
        parameters = out("BroadcastTo", [self._concentration, shape])
        size = out("Pack", [[n]])
        gammas = random.random_gamma(size, parameters, dtype=self.dtype, seed=seed)
        return count_draws(log(gammas), self._count, second_seed(seed, 1))

    def _log_prob(self, counts: Output) -> Output:
        counts = check_counts(counts, self._count, self.validate_args)
        ratio = lbeta(self._concentration + counts) - lbeta(self._concentration)
        return ratio + log_combinations(self._count, counts)

    def _means(self) -> Output:
        return self._concentration / out("ExpandDims", [self._total, -1])

    def _mean(self) -> Output:
        return out("ExpandDims", [self._count, -1]) * self._means()

    def _scale(self) -> Output:
        """Return the variances relative to those of a multinomial distribution."""
        ratio = (self._total + self._count) / (1.0 + self._total)
        return out("ExpandDims", [ratio, -1])

    def _variance(self) -> Output:
        return self._scale() * self._mean() * (1.0 - self._means())

    def _covariance(self) -> Output:
        column = out("ExpandDims", [-self._scale() * self._mean(), -1])
        product = column * out("ExpandDims", [self._means(), -2])
        return diagonals.matrix_set_diag(product, self._variance())
