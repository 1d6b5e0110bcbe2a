"""Dropout with other sources of random numbers."""

from __future__ import annotations

__all__ = ["general_dropout", "stateless_dropout"]

from collections.abc import Callable
from functools import partial
from typing import Any

from weft_graph.ir.node import Output
from weft_graph.nn.activation import apply_dropout
from weft_graph.ops.random import stateless_random_uniform


def general_dropout(
    x: Any,
    rate: Any,
    uniform_sampler: Callable[..., Output],
    noise_shape: Any = None,
    name: str | None = None,
) -> Output:
    """Apply `nn.dropout` with the random numbers of a sampler.

    Args:
      x: floating, any shape.
      rate: in [0, 1); a number, or a tensor of rank 0.
      uniform_sampler: called as `uniform_sampler(shape=..., dtype=...)`; returns uniform numbers in
        [0, 1).
      noise_shape: int32; shape of the random mask, which broadcasts to that of `x`.
    Returns: shape and dtype of `x`.
    Raises: InvalidArgumentError: the rate is out of range.

    Examples:
      >>> ramp = lambda shape, dtype: wf.constant([0.1, 0.9], dtype)
      >>> wf.Session().run(wf.nn.experimental.general_dropout([1.0, 1.0], 0.5, ramp))
      array([0., 2.], dtype=float32)
    """
    return apply_dropout(x, rate, uniform_sampler, noise_shape, name)


def stateless_dropout(
    x: Any,
    rate: Any,
    seed: Any,
    rng_alg: Any = None,
    noise_shape: Any = None,
    name: str | None = None,
) -> Output:
    """Apply `nn.dropout` with a mask that depends only on the seed.

    Args:
      x: floating, any shape.
      rate: in [0, 1); a number, or a tensor of rank 0.
      seed: int32 or int64, shape (2,).
      rng_alg: ignored: the numbers are those of `random.stateless_uniform`.
      noise_shape: int32; shape of the random mask, which broadcasts to that of `x`.
    Returns: shape and dtype of `x`.
    Raises: InvalidArgumentError: the rate is out of range.

    Examples:
      >>> x, y = (wf.nn.experimental.stateless_dropout(wf.ones([9]), 0.5, [1, 2]) for _ in range(2))
      >>> wf.Session().run(wf.reduce_all(wf.equal(x, y)))
      np.True_
    """
    return apply_dropout(x, rate, partial(stateless_random_uniform, seed=seed), noise_shape, name)
