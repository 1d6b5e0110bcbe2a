"""The uniform distribution."""

from __future__ import annotations

__all__ = ["Uniform"]

import math
from collections.abc import Sequence
from typing import Any

from weft_graph.distributions.distribution import (
    FULLY_REPARAMETERIZED,
    Distribution,
    convert_floating,
    with_assertions,
)
from weft_graph.ir.builder import out
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.node import Output
from weft_graph.ops import checks, random
from weft_graph.ops.elementary import log


class Uniform(Distribution):
    """Uniform distributions in [low, high).

    Args:
      low, high: floating, of the same dtype, with low < high; the shapes broadcast.
      validate_args: check that low < high.
      allow_nan_stats: as in `Distribution`.
      name: name of the name scope.

    Examples:
      >>> uniform = wf.distributions.Uniform(0.0, [1.0, 4.0])
      >>> wf.Session().run(uniform.prob(2.0))
      array([0.  , 0.25], dtype=float32)
    """

    _sample_parameters: Sequence[str] = ("low", "high")

    def __init__(
        self,
        low: Any = 0.0,
        high: Any = 1.0,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Uniform",
    ) -> None:
        parameters = dict(locals())
        with name_scope(name):
            self._low, self._high = convert_floating(low, high)
            if validate_args:
                rising = checks.assert_less(self._low, self._high)
                self._high = with_assertions(self._high, [rising])
        super().__init__(
            self._low.dtype.base_dtype,
            FULLY_REPARAMETERIZED,
            validate_args,
            allow_nan_stats,
            parameters,
            [self._low, self._high],
            name,
        )

    @property
    def low(self) -> Output:
        """The lower bounds."""
        return self._low

    @property
    def high(self) -> Output:
        """The upper bounds."""
        return self._high

    def range(self, name: str = "range") -> Output:
        """Return high - low."""
        return out("Sub", [self._high, self._low], name=name)

    def _sample_n(self, n: Any, seed: int | None) -> Output:
        uniform = random.random_uniform(self._full_shape(n), dtype=self.dtype, seed=seed)
        return self._low + self.range() * uniform

    def _prob(self, x: Output) -> Output:
        outside = out("LogicalOr", [out("Less", [x, self._low]),
                                    out("GreaterEqual", [x, self._high])])  # fmt: skip
        density = 1.0 / self.range()
        density_in_support = out("SelectV2", [outside, out("ZerosLike", [density]), density])
        return out("SelectV2", [out("IsNan", [x]), x, density_in_support])

    def _cdf(self, x: Output) -> Output:
        return out("Minimum", [1.0, out("Maximum", [0.0, (x - self._low) / self.range()])])

    def _quantile(self, p: Output) -> Output:
        return self._low + self.range() * p

    def _entropy(self) -> Output:
        return log(self.range())

    def _mean(self) -> Output:
        return (self._low + self._high) / 2.0

    def _stddev(self) -> Output:
        return self.range() / math.sqrt(12)
