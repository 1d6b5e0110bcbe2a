"""The categorical distribution over class indices."""

from __future__ import annotations

__all__ = ["Categorical"]

from typing import Any

from weft_graph.distributions.categories import logits_and_probs
from weft_graph.distributions.distribution import NOT_REPARAMETERIZED, Distribution
from weft_graph.distributions.kullback_leibler import RegisterKL
from weft_graph.ir.builder import out
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.node import Output
from weft_graph.ops import permutation, random
from weft_graph.ops.casting import cast
from weft_graph.ops.nn import log_softmax, softmax
from weft_graph.ops.reduction import reduce_sum
from weft_tensor import dtypes
from weft_tensor.shape import TensorShape


class Categorical(Distribution):
    """Categorical distributions over K classes with indices from 0.

    Args:
      logits: floating, shape (..., K), logarithms of the probabilities up to a constant; either
        this or `probs`.
      probs: floating, shape (..., K), the probabilities.
      dtype: element type of samples.
      validate_args: check that `probs` sum to 1.
      allow_nan_stats: as in `Distribution`.
      name: name of the name scope.

    Examples:
      >>> die = wf.distributions.Categorical(probs=[0.25, 0.5, 0.25])
      >>> wf.Session().run(die.prob(1))
      np.float32(0.5)
    """

    def __init__(
        self,
        logits: Any = None,
        probs: Any = None,
        dtype: Any = dtypes.int32,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Categorical",
    ) -> None:
        parameters = dict(locals())
        with name_scope(name):
            self._logits, self._probs = logits_and_probs(
                logits, probs, validate_args, over_classes=True
            )
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
        """The logits, shape (..., K)."""
        return self._logits

    @property
    def probs(self) -> Output:
        """The probabilities, shape (..., K)."""
        return self._probs

    @property
    def event_size(self) -> Output:
        """The number of classes K, an int32 scalar."""
        return out("Shape", [self._logits])[-1]

    def _parameters_and_ranks(self) -> list[tuple[Output, int]]:
        return [(self._logits, 1)]

    def _event_shape(self) -> TensorShape:
        return TensorShape([])

    def _sample_n(self, n: Any, seed: int | None) -> Output:
        rows = out("Reshape", [self._logits, out("Pack", [[-1, self.event_size]])])
        draws = random.multinomial(rows, n, seed=seed, output_dtype=dtypes.int64)
        cast_draws = out("Cast", [permutation.transpose(draws, [1, 0])], {"DstT": self.dtype})
        return out("Reshape", [cast_draws, self._full_shape(n)])

    def _broadcast(self, value: Output) -> tuple[Output, Output]:
        """Broadcast class indices, as int64, and logits against each other."""
        numbers: Output = cast(value, dtypes.int64)
        lead = out("BroadcastArgs", [out("Shape", [numbers]), self.batch_shape_tensor()])
        logits_shape = out("ConcatV2", [[lead, out("Pack", [[self.event_size]])], 0])
        return out("BroadcastTo", [numbers, lead]), out("BroadcastTo", [self._logits, logits_shape])

    def _log_prob(self, value: Output) -> Output:
        numbers, logits = self._broadcast(value)
        flat = log_softmax(out("Reshape", [logits, out("Pack", [[-1, self.event_size]])]))
        rows = out("Range", [0, out("Shape", [flat])[0], 1])
        indices = [out("Cast", [rows], {"DstT": dtypes.int64}), out("Reshape", [numbers, [-1]])]
        selected = out("GatherNd", [flat, out("Pack", [indices], {"axis": 1})])
        return out("Reshape", [selected, out("Shape", [numbers])])

    def _cdf(self, value: Output) -> Output:
        numbers, logits = self._broadcast(value)
        classes = out("Cast", [out("Range", [0, self.event_size, 1])], {"DstT": dtypes.int64})
        is_included = out("LessEqual", [classes, out("ExpandDims", [numbers, -1])])
        return reduce_sum(softmax(logits) * out("Cast", [is_included], {"DstT": logits.dtype}), -1)

    def _entropy(self) -> Output:
        logs = log_softmax(self._logits)
        return -reduce_sum(out("Xlogy", [self._probs, out("Exp", [logs])]), -1)

    def _mode(self) -> Output:
        return out("Cast", [out("ArgMax", [self._logits, -1])], {"DstT": self.dtype})


@RegisterKL(Categorical, Categorical)
def _divergence(a: Categorical, b: Categorical, name: str | None = None) -> Output:
    logs = log_softmax(a.logits) - log_softmax(b.logits)
    weights = softmax(a.logits)
    none = out("Equal", [weights, 0.0])
    zero = out("ZerosLike", [logs])
    return reduce_sum(weights * out("SelectV2", [none, zero, logs]), -1)
