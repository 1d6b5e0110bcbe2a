"""Learning rates that depend on the global step.

Every function accepts the initial rate as a Python number or a floating scalar, and the global step
as an integer scalar, a variable or a Python number; it returns a scalar of the rate's dtype.
It raises InvalidArgumentError if the global step is missing or lists do not match.
"""

from __future__ import annotations

__all__ = [
    "cosine_decay",
    "cosine_decay_restarts",
    "exponential_decay",
    "inverse_time_decay",
    "linear_cosine_decay",
    "natural_exp_decay",
    "noisy_linear_cosine_decay",
    "piecewise_constant",
    "piecewise_constant_decay",
    "polynomial_decay",
]

import math
from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Output
from weft_tensor import errors
from weft_tensor.dtypes import DType


def exponential_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
    name: str | None = None,
) -> Output:
    """Return `learning_rate * decay_rate ** (global_step / decay_steps)`.

    Args:
      decay_steps: positive scalar.
      decay_rate: scalar.
      staircase: round the exponent down.

    Examples:
      >>> wf.Session().run(wf.train.exponential_decay(0.5, 10, decay_steps=5, decay_rate=0.5))
      np.float32(0.125)
    """
    with _Schedule(name, "ExponentialDecay", learning_rate, global_step) as s:
        power = s.elapsed_periods(decay_steps, staircase)
        return s.finish(out("Pow", [s.of(decay_rate), power]))


def natural_exp_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
    name: str | None = None,
) -> Output:
    """Return `learning_rate * exp(-decay_rate * global_step / decay_steps)`.

    Args: as `exponential_decay`.

    Examples:
      >>> np.round(wf.Session().run(wf.train.natural_exp_decay(0.5, 10, 10, 1.0)), 3)
      np.float32(0.184)
    """
    with _Schedule(name, "NaturalExpDecay", learning_rate, global_step) as s:
        exponent = -s.of(decay_rate) * s.elapsed_periods(decay_steps, staircase)
        return s.finish(out("Exp", [exponent]))


def inverse_time_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    decay_rate: Any,
    staircase: bool = False,
    name: str | None = None,
) -> Output:
    """Return `learning_rate / (1 + decay_rate * global_step / decay_steps)`.

    Args: as `exponential_decay`.

    Examples:
      >>> np.round(wf.Session().run(wf.train.inverse_time_decay(0.5, 10, 10, 1.0)), 3)
      np.float32(0.25)
    """
    with _Schedule(name, "InverseTimeDecay", learning_rate, global_step) as s:
        divisor = s.of(decay_rate) * s.elapsed_periods(decay_steps, staircase) + 1.0
        return out("RealDiv", [s.rate, divisor], name=s.scope)


def polynomial_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    end_learning_rate: Any = 0.0001,
    power: Any = 1.0,
    cycle: bool = False,
    name: str | None = None,
) -> Output:
    """Return `(learning_rate - end) * (1 - step / decay_steps) ** power + end`.

    The step is at most `decay_steps`.

    Args:
      decay_steps: positive scalar.
      end_learning_rate: scalar, reached after `decay_steps`.
      power: scalar.
      cycle: extend `decay_steps` to its next multiple instead of staying at the final rate.

    Examples:
      >>> rate = wf.train.polynomial_decay(0.5, 5, 10, end_learning_rate=0.1)
      >>> np.round(wf.Session().run(rate), 3)
      np.float32(0.3)
    """
    with _Schedule(name, "PolynomialDecay", learning_rate, global_step) as s:
        end, steps, step = s.of(end_learning_rate), s.of(decay_steps), s.step
        if cycle:
            periods = out("Ceil", [step / steps])
            periods = out("Maximum", [periods, s.of(1.0)])
            steps = steps * periods
        else:
            step = out("Minimum", [step, steps])
        remaining_fraction = out("Pow", [1.0 - step / steps, s.of(power)])
        return out("AddV2", [(s.rate - end) * remaining_fraction, end], name=s.scope)


def cosine_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    alpha: Any = 0.0,
    name: str | None = None,
) -> Output:
    """Return a half cosine wave from `learning_rate` down to `alpha * learning_rate`.

    Args:
      decay_steps: positive scalar.
      alpha: scalar, the final rate as a fraction of the initial one.
    Source: Loshchilov and Hutter 2016, "SGDR", without restarts.

    Examples:
      >>> np.round(wf.Session().run(wf.train.cosine_decay(0.5, 5, decay_steps=10)), 3)
      np.float32(0.25)
    """
    with _Schedule(name, "CosineDecay", learning_rate, global_step) as s:
        steps = s.of(decay_steps)
        progress = out("Minimum", [s.step, steps]) / steps
        return s.finish(s.lift_from_alpha(s.cosine(progress), alpha))


def cosine_decay_restarts(
    learning_rate: Any,
    global_step: Any,
    first_decay_steps: Any,
    t_mul: Any = 2.0,
    m_mul: Any = 1.0,
    alpha: Any = 0.0,
    name: str | None = None,
) -> Output:
    """Return half cosine waves, each `t_mul` times as long and `m_mul` times as high as the last.

    Args:
      first_decay_steps: positive scalar, the length of the first.
      t_mul, m_mul: scalars.
      alpha: scalar, the lowest rate as a fraction of the initial one.
    Source: Loshchilov and Hutter 2016, "SGDR: stochastic gradient descent with warm restarts".

    Examples:
      >>> rates = [wf.train.cosine_decay_restarts(0.5, step, 10) for step in (0, 5, 10)]
      >>> [round(float(rate), 3) for rate in wf.Session().run(rates)]
      [0.5, 0.25, 0.5]
    """
    with _Schedule(name, "SGDRDecay", learning_rate, global_step) as s:
        progress = s.step / s.of(first_decay_steps)
        if isinstance(t_mul, int | float):
            restarts, progress = (
                s.geometric(progress, t_mul) if t_mul != 1 else s.arithmetic(progress)
            )
        else:
            restarts, progress = s.select_schedule(progress, s.of(t_mul))
        amplitude = out("Pow", [s.of(m_mul), restarts])
        return s.finish(s.lift_from_alpha(amplitude * s.cosine(progress), alpha))


def linear_cosine_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    num_periods: Any = 0.5,
    alpha: Any = 0.0,
    beta: Any = 0.001,
    name: str | None = None,
) -> Output:
    """Return `learning_rate * ((alpha + linear) * cosine + beta)`.

    `linear` falls from 1 to 0 over `decay_steps`, and `cosine` has `num_periods` periods.

    Args:
      decay_steps: positive scalar.
      num_periods, alpha, beta: scalars.
    Source: Bello et al. 2017, "Neural optimizer search with reinforcement learning".

    Examples:
      >>> rate = wf.train.linear_cosine_decay(0.5, 5, decay_steps=10, beta=0.0)
      >>> np.round(wf.Session().run(rate), 3)
      np.float32(0.125)
    """
    with _Schedule(name, "LinearCosineDecay", learning_rate, global_step) as s:
        return _linear_cosine(s, decay_steps, num_periods, alpha, beta, None)


def noisy_linear_cosine_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    initial_variance: Any = 1.0,
    variance_decay: Any = 0.55,
    num_periods: Any = 0.5,
    alpha: Any = 0.0,
    beta: Any = 0.001,
    name: str | None = None,
) -> Output:
    """Add normal noise to the linear part of `linear_cosine_decay`.

    Args:
      decay_steps: positive scalar.
      initial_variance, variance_decay: initial variance and decay of the noise, whose variance is
        `initial_variance / (1 + global_step) ** variance_decay`.
      num_periods, alpha, beta: scalars.

    Examples:
      >>> rate = wf.train.noisy_linear_cosine_decay(0.5, 5, decay_steps=10, initial_variance=1e-6)
      >>> bool(0.12 < wf.Session().run(rate) < 0.13)
      True
    """
    with _Schedule(name, "NoisyLinearCosineDecay", learning_rate, global_step) as s:
        step = out("Minimum", [s.step, s.of(decay_steps)])
        fall = out("Pow", [step + 1.0, s.of(variance_decay)])
        deviation = out("Sqrt", [s.of(initial_variance) / fall])
        shape = convert_to_tensor([], "int32")
        noise = out("RandomStandardNormal", [shape], {"dtype": s.dtype}) * deviation
        return _linear_cosine(s, decay_steps, num_periods, alpha, beta, noise)


def _linear_cosine(
    s: _Schedule, decay_steps: Any, num_periods: Any, alpha: Any, beta: Any, noise: Output | None
) -> Output:
    steps = s.of(decay_steps)
    step = out("Minimum", [s.step, steps])
    linear = (steps - step) / steps
    if noise is not None:
        linear = linear + noise
    wave = s.cosine(2.0 * s.of(num_periods) * (step / steps))
    return s.finish((s.of(alpha) + linear) * wave + s.of(beta))


def piecewise_constant(
    x: Any, boundaries: Sequence[Any], values: Sequence[Any], name: str | None = None
) -> Output:
    """Return `values[i]`, where i is the number of boundaries below `x`.

    Args:
      x: integer or floating scalar, usually the global step.
      boundaries: N increasing numbers or scalars of the dtype of `x`.
      values: N + 1 numbers or scalars of the same dtype.
    Returns: a scalar of the dtype of `values`.
    Raises:
      InvalidArgumentError: there is not exactly one more value than boundaries.
      InvalidTypeError: a boundary does not have the dtype of `x`.

    Examples:
      >>> wf.Session().run(wf.train.piecewise_constant(wf.constant(7), [5], [0.5, 0.25]))
      np.float32(0.25)
    """
    if len(boundaries) != len(values) - 1:
        raise errors.InvalidArgumentError(
            f"piecewise_constant requires one more value than boundaries, got {len(boundaries)} "
            f"boundaries and {len(values)} values"
        )
    with get_default_graph().name_scope(name or "PiecewiseConstant"):
        position = convert_to_tensor(x)
        table = convert_to_tensor(list(values))
        edges = convert_to_tensor(
            [_boundary(edge, position) for edge in boundaries], position.dtype
        )
        is_below = out("Cast", [out("Less", [edges, position])], {"DstT": "int32"})
        return out("GatherV2", [table, out("Sum", [is_below, [0]]), 0])


def _boundary(edge: Any, x: Output) -> Any:
    if isinstance(edge, float) and x.dtype.is_integer:
        raise errors.InvalidTypeError(f"boundaries must have the type of {x!r}, got {edge}")
    if isinstance(edge, Output) and edge.dtype.name == "int32" and x.dtype.name == "int64":
        return out("Cast", [edge], {"DstT": x.dtype.base_dtype})
    return edge


piecewise_constant_decay = piecewise_constant


class _Schedule:
    """The name scope, the rate and the step of one schedule."""

    def __init__(self, name: str | None, default: str, rate: Any, step: Any) -> None:
        if step is None:
            raise errors.InvalidArgumentError(f"global_step is required for {default}, got None")
        self._names = get_default_graph().name_scope(name or default)
        self._inputs = (rate, step)
        self.scope = ""

    def __enter__(self) -> _Schedule:
        self.scope = self._names.__enter__()
        rate, step = self._inputs
        self.rate = convert_to_tensor(rate, name="learning_rate")
        self.dtype: DType = self.rate.dtype.base_dtype
        self.step = self.of(step)
        return self

    def __exit__(self, *exc: Any) -> None:
        self._names.__exit__(*exc)

    def of(self, value: Any) -> Output:
        """Return `value` in the rate's dtype."""
        if isinstance(value, int | float):
            return convert_to_tensor(value, self.dtype)
        tensor = convert_to_tensor(value)
        if tensor.dtype.base_dtype is self.dtype:
            return tensor
        return out("Cast", [tensor], {"DstT": self.dtype})

    def elapsed_periods(self, decay_steps: Any, staircase: bool) -> Output:
        """Return the step as a multiple of `decay_steps`."""
        count = self.step / self.of(decay_steps)
        return out("Floor", [count]) if staircase else count

    def cosine(self, progress: Output) -> Output:
        """Return a half cosine wave that falls from 1 to 0 while `progress` rises from 0 to 1."""
        return (out("Cos", [progress * math.pi]) + 1.0) * 0.5

    def lift_from_alpha(self, part: Output, alpha: Any) -> Output:
        """Interpolate from `alpha` (at 0) to 1 (at 1)."""
        low = self.of(alpha)
        return (1.0 - low) * part + low

    def arithmetic(self, progress: Output) -> tuple[Output, Output]:
        """Return the number of restarts and the fraction of the current one of equal periods."""
        restarts = out("Floor", [progress])
        return restarts, progress - restarts

    def geometric(self, progress: Output, t_mul: Any) -> tuple[Output, Output]:
        """Return the same for periods that become longer by the factor `t_mul`."""
        factor = self.of(t_mul)
        grown = out("Log", [1.0 - progress * (1.0 - factor)]) / out("Log", [factor])
        restarts = out("Floor", [grown])
        length = out("Pow", [factor, restarts])
        start = (1.0 - length) / (1.0 - factor)
        return restarts, (progress - start) / length

    def select_schedule(self, progress: Output, t_mul: Output) -> tuple[Output, Output]:
        """Return `arithmetic` if `t_mul` is 1 at run time, else `geometric`."""
        is_one = out("Equal", [t_mul, self.of(1.0)])
        pairs = zip(self.arithmetic(progress), self.geometric(progress, t_mul), strict=True)
        restarts, part = [out("SelectV2", [is_one, a, b]) for a, b in pairs]
        return restarts, part

    def finish(self, factor: Output) -> Output:
        """Return the rate times `factor`, named after the scope."""
        return out("Mul", [self.rate, factor], name=self.scope)
