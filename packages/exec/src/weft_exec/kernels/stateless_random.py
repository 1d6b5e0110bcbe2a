"""Kernels of random numbers with parameters that depend only on a seed.

NumPy's Generator draws them from the stream of stateless ops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels import philox, probability, special
from weft_exec.kernels.common import as_exact
from weft_exec.kernels.random import check_shape
from weft_exec.kernels.registry import KernelFunction, kernel
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_graph.ir.node import Node

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


def _gamma(generator: np.random.Generator, shape: Shape, alpha: Array) -> Array:
    _require("alpha", alpha, alpha > 0, "positive")
    return generator.standard_gamma(alpha, shape)


def _poisson(generator: np.random.Generator, shape: Shape, rate: Array) -> Array:
    _require("lam", rate, rate >= 0, "at least 0")
    return generator.poisson(rate, shape)


def binomial(generator: np.random.Generator, shape: Shape, counts: Array, probs: Array) -> Array:
    """Return the number of successes among `counts` trials.

    Raises: InvalidArgumentError: a count is negative, or a probability is not in [0, 1].
    """
    _require("counts", counts, counts >= 0, "at least 0")
    _require("probs", probs, (probs >= 0) & (probs <= 1), "in [0, 1]")
    return generator.binomial(counts.astype(np.int64), probs, shape)


def _draw_truncated(
    generator: np.random.Generator, shape: Shape, mean: Array, deviation: Array, low: Array,
    high: Array
) -> Array:  # fmt: skip
    """Draw truncated normal numbers by inversion, in the tail with the small probabilities."""
    _require("stddevs", deviation, deviation > 0, "positive")
    _require("minvals", low, low < high, "below maxvals")
    below, above = (low - mean) / deviation, (high - mean) / deviation
    flip = np.where(below > 0, -1.0, 1.0)
    first, last = np.where(flip < 0, -above, below), np.where(flip < 0, -below, above)
    ends = [special.erfc(-end * np.sqrt(0.5)) / 2 for end in np.broadcast_arrays(first, last)]
    chance = ends[0] + generator.random(shape) * (ends[1] - ends[0])
    samples = mean + deviation * flip * probability.ndtri(chance)
    result: Array = np.clip(samples, low, high)
    return result


def _require(name: str, value: Array, holds: Array, label: str) -> None:
    if not np.all(holds):
        raise errors.InvalidArgumentError(f"{name} must be {label}, got {value.tolist()}")


def check_parameters(size: Shape, *parameters: Any) -> list[Array]:
    """Return the parameters as float64.

    Raises: InvalidArgumentError: they do not broadcast to the shape of the result.
    """
    wide = [np.asarray(value, np.float64) for value in parameters]
    try:
        is_compatible = np.broadcast_shapes(size, *(value.shape for value in wide)) == size
    except ValueError:
        is_compatible = False
    if not is_compatible:
        raise errors.InvalidArgumentError(
            f"parameters of shapes {[list(value.shape) for value in wide]} do not "
            f"broadcast to the shape {list(size)} of the result"
        )
    return wide


def _drawn(op: str, draw: Callable[..., Array]) -> None:
    @kernel(op, heavy=True)
    def make(node: Node, device: Device) -> KernelFunction:
        dtype = node.outputs[0].dtype.numpy

        def run(shape: Any, seed: Any, *parameters: Any) -> Any:
            size = check_shape(shape)
            wide = check_parameters(size, *parameters)
            bits = np.random.Philox(key=np.array(philox.stateless_key(seed), np.uint64))
            return as_exact(np.asarray(draw(np.random.Generator(bits), size, *wide)), dtype, device)

        return run


_drawn("StatelessRandomGammaV2", _gamma)
_drawn("StatelessRandomPoisson", _poisson)
_drawn("StatelessRandomBinomial", binomial)
_drawn("StatelessParameterizedTruncatedNormal", _draw_truncated)


@kernel("StatelessMultinomial", heavy=True)
def _multinomial(node: Node, device: Device) -> KernelFunction:
    dtype = node.outputs[0].dtype.numpy

    def run(logits: Any, samples: Any, seed: Any) -> Any:
        count = int(samples)
        if logits.ndim != 2 or count < 0 or (count and not logits.shape[1] and len(logits)):
            raise errors.InvalidArgumentError(
                "requires logits of shape [B, C] with C > 0 and num_samples of at least 0, got "
                f"{list(logits.shape)} and {count}"
            )
        result = np.empty((len(logits), count), dtype)
        philox.draw_classes(philox.stateless_words(seed), logits, result)
        return result

    return run
