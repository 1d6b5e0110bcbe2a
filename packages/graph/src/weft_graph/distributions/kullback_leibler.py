"""Kullback-Leibler divergences, registered for pairs of distribution classes."""

from __future__ import annotations

__all__ = ["RegisterKL", "kl_divergence"]

from collections.abc import Callable
from typing import Any

from weft_graph.distributions.distribution import Distribution, with_assertions
from weft_graph.ir.builder import out
from weft_graph.ir.default_graph import name_scope
from weft_graph.ir.node import Output
from weft_graph.ops import control
from weft_tensor import errors

Divergence = Callable[..., Output]

_table: dict[tuple[type, type], Divergence] = {}


class RegisterKL:
    """Decorator that registers the divergence between two classes of distributions.

    Args:
      dist_cls_a, dist_cls_b: classes of distributions, including their subclasses.
    Raises: AlreadyExistsError: a divergence is registered for the pair.

    Examples:
      >>> class Mine(wf.distributions.Normal):
      ...     pass
      >>> @wf.distributions.RegisterKL(Mine, Mine)
      ... def nothing(a, b, name=None):
      ...     return wf.zeros([])
      >>> mine = Mine(0.0, 1.0)
      >>> wf.Session().run(wf.distributions.kl_divergence(mine, mine))
      np.float32(0.0)
    """

    def __init__(self, dist_cls_a: type, dist_cls_b: type) -> None:
        self._key = (dist_cls_a, dist_cls_b)

    def __call__(self, kl_fn: Divergence) -> Divergence:
        """Register `kl_fn(a, b, name=None)`, which returns the divergence."""
        if not callable(kl_fn):
            raise errors.InvalidTypeError(f"a divergence must be callable, got {kl_fn!r}")
        if self._key in _table:
            a, b = (cls.__name__ for cls in self._key)
            raise errors.AlreadyRegisteredError(
                f"the divergence of {a} from {b} is already registered"
            )
        _table[self._key] = kl_fn
        return kl_fn


def _lookup(a: type, b: type) -> Divergence:
    """Return the divergence registered for the nearest base classes.

    Raises: UnimplementedError: there is none.
    """
    candidates = [
        (i + j, _table[above_a, above_b])
        for i, above_a in enumerate(a.__mro__)
        for j, above_b in enumerate(b.__mro__)
        if (above_a, above_b) in _table
    ]
    if not candidates:
        raise errors.UnimplementedError(
            f"no divergence of {a.__name__} from {b.__name__} is registered; see RegisterKL"
        )
    return min(candidates, key=lambda pair: pair[0])[1]


def kl_divergence(
    distribution_a: Distribution,
    distribution_b: Distribution,
    allow_nan_stats: bool = True,
    name: str | None = None,
) -> Output:
    """Return the Kullback-Leibler divergence: the mean under `a` of log(a.prob(x) / b.prob(x)).

    Args:
      distribution_a, distribution_b: instances of classes with a registered divergence.
      allow_nan_stats: allow NaN; else NaN is an error at run time.
    Returns: the divergences, of the broadcast shape of both batches.
    Raises: UnimplementedError: no divergence is registered for these classes.

    Examples:
      >>> a, b = (wf.distributions.Normal(loc, 1.0) for loc in (0.0, 2.0))
      >>> wf.Session().run(wf.distributions.kl_divergence(a, b))
      np.float32(2.0)
    """
    compute = _lookup(type(distribution_a), type(distribution_b))
    with name_scope(name, "KullbackLeibler"):
        value: Any = compute(distribution_a, distribution_b, name=name)
        if allow_nan_stats:
            return value  # type: ignore[no-any-return]  # as the function gave it
        rank = out("Range", [0, out("Rank", [value]), 1])
        is_nan = out("Any", [out("IsNan", [value]), rank])
        message = "the divergence is NaN, which allow_nan_stats=False forbids"
        return with_assertions(value, [control.Assert(out("LogicalNot", [is_nan]), [message])])
