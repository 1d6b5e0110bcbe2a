"""The exponential distribution."""

from __future__ import annotations

__all__ = ["Exponential"]

from collections.abc import Sequence
from typing import Any

from weft_graph.distributions.distribution import convert_floating
from weft_graph.distributions.gamma import Gamma
from weft_graph.ir.builder import out
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.node import Output
from weft_graph.ops import random
from weft_graph.ops.elementary import expm1, log1p


class Exponential(Gamma):
    """Exponential distributions, with the density rate * exp(-rate * x).

    Args:
      rate: floating, positive.
      validate_args: check that `rate` is positive.
      allow_nan_stats: as in `Distribution`.
      name: name of the name scope.

    Examples:
      >>> waiting = wf.distributions.Exponential(rate=2.0)
      >>> wf.Session().run(waiting.mean())
      np.float32(0.5)
    """

    _sample_parameters: Sequence[str] = ("rate",)

    def __init__(
        self,
        rate: Any,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Exponential",
    ) -> None:
        parameters = dict(locals())
        with name_scope(name):
            (value,) = convert_floating(rate)
            unit = out("OnesLike", [value])
        super().__init__(unit, value, validate_args, allow_nan_stats, name)
        self._parameters = {k: parameters[k] for k in ("rate", "validate_args", "allow_nan_stats",
                                                        "name")}  # fmt: skip

    def _sample_n(self, n: Any, seed: int | None) -> Output:
        uniform = random.random_uniform(self._full_shape(n), dtype=self.dtype, seed=seed)
        return -log1p(-uniform) / self._rate

    def _cdf(self, x: Output) -> Output:
        return -expm1(-self._rate * x)

    def _log_survival_function(self, x: Output) -> Output:
        return -self._rate * x

    def _quantile(self, p: Output) -> Output:
        return -log1p(-p) / self._rate

    def _mode(self) -> Output:
        return out("ZerosLike", [self._rate])
