"""Scales of losses, so that small gradients of narrow types do not vanish (Micikevicius 2018)."""

from __future__ import annotations

__all__ = [
    "DynamicLossScale",
    "FixedLossScale",
    "LossScale",
    "MixedPrecisionLossScaleOptimizer",
]

from collections.abc import Sequence
from typing import Any

from weft_autodiff.optimizers.optimizer import Optimizer
from weft_graph.control_flow.conditional import cond
from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.indexed_slices import IndexedSlices
from weft_graph.ir.node import Node, Output
from weft_graph.ops import control
from weft_graph.variables.base import Variable
from weft_tensor import dtypes, errors
from weft_tensor.arguments import check_integer, check_number
from weft_tensor.dtypes import DType


class LossScale:
    """A factor that multiplies the loss and divides the gradients.

    A subclass implements `__call__`, `update` and `get_config`.

    Examples:
      >>> isinstance(wf.train.experimental.FixedLossScale(8.0), wf.train.experimental.LossScale)
      True
    """

    def __call__(self) -> Output:
        """Return the current scale: float32, rank 0."""
        raise errors.UnimplementedError(f"{type(self).__name__} does not override __call__")

    def update(self, grads: Sequence[Any]) -> tuple[Node, Any]:
        """Return the node that adapts the scale to gradients, and a bool: apply the gradients."""
        raise errors.UnimplementedError(f"{type(self).__name__} does not override update")

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        raise errors.UnimplementedError(f"{type(self).__name__} does not override get_config")

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Create a scale from the arguments that `get_config` returned."""
        return cls(**config)


class FixedLossScale(LossScale):
    """A constant scale.

    Args:
      loss_scale_value: at least 1.
    Raises: InvalidArgumentError: it is less.

    Examples:
      >>> wf.Session().run(wf.train.experimental.FixedLossScale(8)())
      np.float32(8.0)
    """

    def __init__(self, loss_scale_value: float) -> None:
        value = check_number(loss_scale_value, "loss_scale_value")
        if not value >= 1:
            raise errors.InvalidArgumentError(f"a loss scale must be at least 1, got {value}")
        self._value = float(value)

    def __call__(self) -> Output:
        """Return the scale."""
        return convert_to_tensor(self._value, dtypes.float32)

    def update(self, grads: Sequence[Any]) -> tuple[Node, Any]:
        """Return a no-op and True: all gradients are applied."""
        return control.no_op(), True

    def get_config(self) -> dict[str, Any]:
        """Return the argument."""
        return {"loss_scale_value": self._value}

    def __repr__(self) -> str:
        return f"FixedLossScale({self._value})"


class DynamicLossScale(LossScale):
    """A scale that grows as long as all gradients are finite, and shrinks when one is not.

    Args:
      initial_loss_scale: at least 1.
      increment_period: number of consecutive steps with finite gradients before the scale grows.
      multiplier: factor by which the scale grows. After a step whose gradients are not finite, the
        scale is divided by it, to at least 1, and the gradients are not applied.
    Raises: InvalidArgumentError: an argument is less than 1.

    Examples:
      >>> scale = wf.train.experimental.DynamicLossScale(4, increment_period=1)
      >>> update, finite = scale.update([wf.constant(1.0)])
      >>> with wf.Session() as session:
      ...     _ = session.run(wf.global_variables_initializer())
      ...     _ = session.run(update)
      ...     print(session.run(scale()))
      8.0
    """

    def __init__(
        self,
        initial_loss_scale: float = 2.0**15,
        increment_period: int = 2000,
        multiplier: float = 2.0,
    ) -> None:
        self._initial = float(check_number(initial_loss_scale, "initial_loss_scale"))
        self._period = check_integer(increment_period, "increment_period")
        self._multiplier = float(check_number(multiplier, "multiplier"))
        if min(self._initial, self._period, self._multiplier) < 1:
            raise errors.InvalidArgumentError(
                "a dynamic loss scale requires initial_loss_scale, increment_period and multiplier "
                f"of at least 1, got {self._initial}, {self._period} and {self._multiplier}"
            )
        self._scale = _variable(self._initial, dtypes.float32, "current_loss_scale")
        self._good_steps = _variable(0, dtypes.int64, "good_steps")

    def __call__(self) -> Output:
        """Return the current scale."""
        scale: Output = self._scale.read_value()
        return scale

    def update(self, grads: Sequence[Any]) -> tuple[Node, Output]:
        """Count the step and adapt the scale; gradients are applied if all are finite."""
        finite = _all_finite(grads)
        scale, steps = self._scale.read_value(), self._good_steps.read_value()
        next_steps = out("AddV2", [steps, 1])
        is_due = out("GreaterEqual", [next_steps, self._period])
        grown = out("Mul", [scale, self._multiplier])
        grows = out("LogicalAnd", [is_due, out("IsFinite", [grown])])
        reduced = out("Maximum", [out("RealDiv", [scale, self._multiplier]), 1.0])
        new_scale = out("SelectV2", [finite, out("SelectV2", [grows, grown, scale]), reduced])
        zero = convert_to_tensor(0, dtypes.int64)
        goes_on = out("LogicalAnd", [finite, out("LogicalNot", [is_due])])
        new_steps = out("SelectV2", [goes_on, next_steps, zero])
        assigned = [self._scale.assign(new_scale), self._good_steps.assign(new_steps)]
        return control.group(*assigned), finite

    def get_config(self) -> dict[str, Any]:
        """Return the arguments."""
        return {
            "initial_loss_scale": self._initial,
            "increment_period": self._period,
            "multiplier": self._multiplier,
        }

    def __repr__(self) -> str:
        return (
            f"DynamicLossScale(initial_loss_scale={self._initial}, "
            f"increment_period={self._period}, multiplier={self._multiplier})"
        )


def _variable(value: float, dtype: DType, name: str) -> Any:
    return Variable(value, trainable=False, dtype=dtype, name=name, use_resource=True)


def _all_finite(grads: Sequence[Any]) -> Output:
    flags = []
    for grad in grads:
        if grad is None:
            continue
        values = grad.values if isinstance(grad, IndexedSlices) else grad
        total = out("IsFinite", [values])
        axes = out("Range", [0, out("Rank", [total]), 1])
        flags.append(out("All", [total, axes]))
    if not flags:
        return convert_to_tensor(True)
    return out("All", [out("Pack", [flags]), [0]])


class MixedPrecisionLossScaleOptimizer(Optimizer):
    """An optimizer of a scaled loss; steps whose gradients are not finite are skipped.

    Args:
      opt: the wrapped optimizer, which receives unscaled gradients.
      loss_scale: a LossScale, a number for a fixed one, or "dynamic".
    Raises: InvalidTypeError: `opt` is not an optimizer; InvalidArgumentError: the optimizer has
      another loss scale.

    Examples:
      >>> x = wf.Variable(3.0)
      >>> inner = wf.train.GradientDescentOptimizer(0.5)
      >>> optimizer = wf.train.experimental.MixedPrecisionLossScaleOptimizer(inner, 128.0)
      >>> step = optimizer.minimize(x * x)
      >>> with wf.Session() as session:
      ...     _ = session.run(wf.global_variables_initializer())
      ...     _ = session.run(step)
      ...     print(session.run(x))
      0.0
    """

    def __init__(self, opt: Any, loss_scale: Any) -> None:
        if not isinstance(opt, Optimizer):
            raise errors.InvalidTypeError(f"opt must be an optimizer, got {opt!r}")
        super().__init__(False, f"MixedPrecision{opt.get_name()}")
        self._optimizer = opt
        self._loss_scale = _scale_of(loss_scale)

    def compute_gradients(self, loss: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the gradients of the loss, computed from the scaled loss's gradients."""
        scale = self._loss_scale()
        pairs = self._optimizer.compute_gradients(_times(loss, scale), *args, **kwargs)
        inverse = out("Reciprocal", [scale])
        return [(None if g is None else _times(g, inverse), v) for g, v in pairs]

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: str | None = None
    ) -> Node:
        """Apply the gradients if all are finite, and adapt the scale; see `Optimizer`."""
        pairs = list(grads_and_vars)
        update, apply = self._loss_scale.update([grad for grad, _ in pairs])
        if apply is True:
            step = self._optimizer.apply_gradients(pairs, global_step, name)
            return control.group(step, update)
        # Slots must be there whether or not the first step is taken.
        self._optimizer._create_slots([var for grad, var in pairs if grad is not None])

        def apply_step() -> Output:
            step = self._optimizer.apply_gradients(pairs, global_step, name)
            with get_default_graph().control_dependencies([step]):
                return convert_to_tensor(True)

        applied = cond(apply, apply_step, lambda: convert_to_tensor(False))
        return control.group(applied, update)

    def get_slot(self, var: Any, name: str) -> Any:
        """Return a slot of the wrapped optimizer."""
        return self._optimizer.get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """Return the slot names of the wrapped optimizer."""
        return self._optimizer.get_slot_names()

    def variables(self) -> list[Any]:
        """Return the variables of the wrapped optimizer."""
        return self._optimizer.variables()


def _scale_of(value: Any) -> LossScale:
    if isinstance(value, LossScale):
        return value
    if value == "dynamic":
        return DynamicLossScale()
    if isinstance(value, str):
        raise errors.InvalidArgumentError(
            f"loss_scale must be a LossScale, a number or 'dynamic', got {value!r}"
        )
    return FixedLossScale(value)


def _times(value: Any, factor: Output) -> Any:
    """Return a value, or a function's result, times a scale in the value's dtype."""
    if isinstance(value, IndexedSlices):
        return IndexedSlices(_times(value.values, factor), value.indices, value.dense_shape)
    if callable(value):
        return lambda: _times(value(), factor)
    kind = convert_to_tensor(value).dtype.base_dtype
    cast_factor = factor if kind is dtypes.float32 else out("Cast", [factor], {"DstT": kind})
    return out("Mul", [value, cast_factor])
