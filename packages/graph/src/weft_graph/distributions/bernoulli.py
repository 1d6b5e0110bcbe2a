"""The Bernoulli distribution, of 0 and 1."""

from __future__ import annotations

__all__ = ["Bernoulli"]

from collections.abc import Sequence
from typing import Any

from weft_graph.distributions.categories import check_binary, logits_and_probs
from weft_graph.distributions.distribution import NOT_REPARAMETERIZED, Distribution
from weft_graph.distributions.kullback_leibler import RegisterKL
from weft_graph.ir.builder import out
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.node import Output
from weft_graph.ops import random
from weft_graph.ops.casting import cast
from weft_graph.ops.nn import softplus
from weft_tensor import dtypes


class Bernoulli(Distribution):
    """Bernoulli distributions: samples are 1 with probability p, else 0.

    Args:
      logits: floating, log(p / (1 - p)); either this or `probs`.
      probs: floating, the probabilities p of 1.
      dtype: element type of samples.
      validate_args: check that `probs` are in [0, 1], and samples 0 or 1.
      allow_nan_stats: as in `Distribution`.
      name: name of the name scope.

    Examples:
      >>> coin = wf.distributions.Bernoulli(probs=0.25)
      >>> wf.Session().run(coin.prob([0, 1]))
      array([0.75, 0.25], dtype=float32)
    """

    _sample_parameters: Sequence[str] = ("logits",)

    def __init__(
        self,
        logits: Any = None,
        probs: Any = None,
        dtype: Any = dtypes.int32,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Bernoulli",
    ) -> None:
        parameters = dict(locals())
        with name_scope(name):
            self._logits, self._probs = logits_and_probs(logits, probs, validate_args)
        super().__init__(
            dtype,
            NOT_REPARAMETERIZED,
            validate_args,
            allow_nan_stats,
            parameters,
            [self._logits],
            name,
        )

    @property
    def logits(self) -> Output:
        """The logits of 1."""
        return self._logits

    @property
    def probs(self) -> Output:
        """The probabilities of 1."""
        return self._probs

    def _sample_n(self, n: Any, seed: int | None) -> Output:
        sample_type = self._probs.dtype.base_dtype
        uniform = random.random_uniform(self._full_shape(n), dtype=sample_type, seed=seed)
        return out("Cast", [out("Less", [uniform, self._probs])], {"DstT": self.dtype})

    def _log_prob(self, event: Output) -> Output:
        event = check_binary(event, self.validate_args)
        value: Output = cast(event, self._logits.dtype.base_dtype)
        return value * self._logits - softplus(self._logits)

    def _entropy(self) -> Output:
        return softplus(self._logits) - self._logits * self._probs

    def _mean(self) -> Output:
        return out("Identity", [self._probs])

    def _variance(self) -> Output:
        return self._probs * (1.0 - self._probs)

    def _mode(self) -> Output:
        return out("Cast", [out("Greater", [self._probs, 0.5])], {"DstT": self.dtype})


@RegisterKL(Bernoulli, Bernoulli)
def _divergence(a: Bernoulli, b: Bernoulli, name: str | None = None) -> Output:
    of_ones = softplus(-b.logits) - softplus(-a.logits)
    of_zeros = softplus(b.logits) - softplus(a.logits)
    return a.probs * of_ones + (1.0 - a.probs) * of_zeros
