"""The multinomial distribution over class counts in several draws."""

from __future__ import annotations

__all__ = ["Multinomial"]

from typing import Any

import numpy as np

from weft_graph.distributions.categories import check_counts, log_combinations, logits_and_probs
from weft_graph.distributions.distribution import (
    NOT_REPARAMETERIZED,
    Distribution,
    with_assertions,
)
from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.node import Output
from weft_graph.ops import checks, diagonals, random
from weft_graph.ops.nn import log_softmax
from weft_graph.ops.reduction import reduce_max, reduce_sum
from weft_tensor import dtypes


class Multinomial(Distribution):
    """Multinomial distributions: counts of K classes in `total_count` draws.

    Args:
      total_count: floating, shape (...), the number of draws.
      logits: same dtype, shape (..., K), logarithms of the probabilities up to a constant; either
        this or `probs`.
      probs: same dtype, shape (..., K), the probabilities.
      validate_args: check the parameters, and that counts sum to `total_count`.
      allow_nan_stats: as in `Distribution`.
      name: name of the name scope.

    Examples:
      >>> counts = wf.distributions.Multinomial(total_count=4.0, probs=[0.25, 0.75])
      >>> np.round(wf.Session().run([counts.prob([1.0, 3.0]), counts.mean()[0]]), 4)
      array([0.4219, 1.    ], dtype=float32)
    """

    _event_rank = 1

    def __init__(
        self,
        total_count: Any,
        logits: Any = None,
        probs: Any = None,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Multinomial",
    ) -> None:
        parameters = dict(locals())
        with name_scope(name):
            self._logits, self._probs = logits_and_probs(
                logits, probs, validate_args, over_classes=True
            )
            total = convert_to_tensor(total_count, self._logits.dtype.base_dtype)
            if validate_args:
                total = with_assertions(total, [checks.assert_non_negative(total)])
            self._count = total
        super().__init__(
            self._logits.dtype.base_dtype,
            NOT_REPARAMETERIZED,
            validate_args,
            allow_nan_stats,
            parameters,
            [self._count, self._logits],
            name,
        )

    @property
    def total_count(self) -> Output:
        """The number of draws, shape (...)."""
        return self._count

    @property
    def logits(self) -> Output:
        """The logits, shape (..., K)."""
        return self._logits

    @property
    def probs(self) -> Output:
        """The probabilities, shape (..., K)."""
        return self._probs

    def _parameters_and_ranks(self) -> list[tuple[Output, int]]:
        return [(self._count, 0), (self._logits, 1)]

    def _sample_n(self, n: Any, seed: int | None) -> Output:
        shape = self._full_shape(n)
        return count_draws(out("BroadcastTo", [self._logits, shape]), self._count, seed)

    def _log_prob(self, counts: Output) -> Output:
        counts = check_counts(counts, self._count, self.validate_args)
        logs = log_softmax(self._logits)
        none = out("Equal", [counts, 0.0])
        weighted = counts * out("SelectV2", [none, out("ZerosLike", [logs]), logs])
        return reduce_sum(weighted, -1) + log_combinations(self._count, counts)

    def _mean(self) -> Output:
        return out("ExpandDims", [self._count, -1]) * self._probs

    def _variance(self) -> Output:
        return self._mean() * (1.0 - self._probs)

    def _covariance(self) -> Output:
        product = out("ExpandDims", [-self._mean(), -1]) * out("ExpandDims", [self._probs, -2])
        variance = self._variance() + out("ZerosLike", [product[..., 0]])
        return diagonals.matrix_set_diag(product, variance)


def count_draws(logits: Output, total: Output, seed: int | None) -> Output:
    """Count the draws of each class.

    Args:
      logits: floating, shape (n, ..., K).
      total: the number of draws, broadcast with shape (...).
    """
    size, dtype = out("Shape", [logits])[-1], logits.dtype.base_dtype
    rows = out("Reshape", [logits, out("Pack", [[-1, size]])])
    totals = out("BroadcastTo", [out("Cast", [total], {"DstT": dtypes.int32}),
                                out("Shape", [logits])[:-1]])  # fmt: skip
    draws_per_row = out("Reshape", [totals, [-1]])
    limit = reduce_max(out("ConcatV2", [[draws_per_row, [0]], 0]))
    draws = random.multinomial(rows, limit, seed=seed, output_dtype=dtypes.int32)
    # Places in the result, one behind another; draws beyond a row's own number are of none.
    later = out(
        "GreaterEqual", [out("Range", [0, limit, 1]), out("ExpandDims", [draws_per_row, 1])]
    )
    num_classes = out("Size", [logits])
    begins = out(
        "ExpandDims", [out("Mul", [out("Range", [0, out("Size", [draws_per_row]), 1]), size]), 1]
    )
    index = out("SelectV2", [later, num_classes, begins + draws])
    counts = out("Bincount", [index, num_classes, np.zeros(0, np.int32)])
    return out("Reshape", [out("Cast", [counts], {"DstT": dtype}), out("Shape", [logits])])
