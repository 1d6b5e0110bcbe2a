"""`optimize_loss`: a training step configured by arguments."""

from __future__ import annotations

__all__ = ["OPTIMIZER_CLS_NAMES", "OPTIMIZER_SUMMARIES", "optimize_loss"]

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from weft_autodiff import clipping
from weft_autodiff.optimizers.adagrad import AdagradOptimizer
from weft_autodiff.optimizers.adam import AdamOptimizer
from weft_autodiff.optimizers.ftrl import FtrlOptimizer
from weft_autodiff.optimizers.gradient_descent import GradientDescentOptimizer
from weft_autodiff.optimizers.momentum import MomentumOptimizer
from weft_autodiff.optimizers.optimizer import Optimizer
from weft_autodiff.optimizers.rmsprop import RMSPropOptimizer
from weft_autodiff.optimizers.training_util import get_global_step
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.default_graph import control_dependencies, get_collection
from weft_graph.ir.indexed_slices import IndexedSlices
from weft_graph.ops import identity, random, shapes
from weft_graph.variables.initializers import Constant
from weft_graph.variables.reference import trainable_variables
from weft_graph.variables.scope import get_variable, variable_scope
from weft_io import summary
from weft_tensor import errors

OPTIMIZER_CLS_NAMES: dict[str, Callable[..., Optimizer]] = {
    "Adagrad": AdagradOptimizer,
    "Adam": AdamOptimizer,
    "Ftrl": FtrlOptimizer,
    "Momentum": lambda learning_rate: MomentumOptimizer(learning_rate, momentum=0.9),
    "RMSProp": RMSPropOptimizer,
    "SGD": GradientDescentOptimizer,
}
OPTIMIZER_SUMMARIES = ["learning_rate", "loss", "gradients", "gradient_norm"]
"""The summaries that `optimize_loss` can write."""


def optimize_loss(
    loss: Any,
    global_step: Any,
    learning_rate: Any,
    optimizer: Any,
    gradient_noise_scale: float | None = None,
    gradient_multipliers: Mapping[Any, Any] | None = None,
    clip_gradients: Any = None,
    learning_rate_decay_fn: Callable[..., Any] | None = None,
    update_ops: Sequence[Any] | None = None,
    variables: Sequence[Any] | None = None,
    name: str | None = None,
    summaries: Sequence[str] | None = None,
    colocate_gradients_with_ops: bool = False,
    increment_global_step: bool = True,
) -> Any:
    """Create a training step.

    Args:
      loss: floating, rank 0.
      global_step: variable that counts the steps; the graph's by default.
      learning_rate: a number or a tensor; None if the optimizer has its own.
      optimizer: a name ("Adam"), a class, an optimizer, or a function of the learning rate.
      gradient_noise_scale: standard deviation of the noise added to gradients.
      gradient_multipliers: multipliers by variable or variable name.
      clip_gradients: the maximum global norm, or a function of the pairs of gradient and variable.
      learning_rate_decay_fn: function of the rate and the step.
      update_ops: ops to run before the update; those in UPDATE_OPS by default.
      variables: variables to train; all trainable ones by default.
      name: name of the scope; "OptimizeLoss" by default.
      summaries: some of `OPTIMIZER_SUMMARIES`.
      colocate_gradients_with_ops: as for `Optimizer.minimize`.
      increment_global_step: True to count the step.
    Returns: the loss, as a tensor that runs the step.
    Raises:
      InvalidArgumentError: an argument is invalid.

    Examples:
      >>> loss = wf.Variable(2.0) ** 2.0
      >>> wf.contrib.layers.optimize_loss(loss, None, 0.1, "SGD").shape
      TensorShape([])
    """
    summary_kinds = ["loss", "learning_rate"] if summaries is None else list(summaries)
    unknown = set(summary_kinds) - {*OPTIMIZER_SUMMARIES, "global_gradient_norm"}
    if unknown:
        raise errors.InvalidArgumentError(f"unknown summaries: {sorted(unknown)}")
    step = get_global_step() if global_step is None else global_step
    with variable_scope(name, "OptimizeLoss", [loss, step]):
        updates = get_collection(GraphKeys.UPDATE_OPS) if update_ops is None else list(update_ops)
        if updates:
            with control_dependencies(updates):
                loss = identity.identity(loss)
        rate = _rate(learning_rate, learning_rate_decay_fn, step)
        if rate is not None and "learning_rate" in summary_kinds:
            summary.scalar("learning_rate", rate)
        opt = _optimizer(optimizer, rate)
        pairs = opt.compute_gradients(
            loss,
            trainable_variables() if variables is None else variables,
            colocate_gradients_with_ops=colocate_gradients_with_ops,
        )
        if gradient_noise_scale is not None:
            pairs = _with_noise(pairs, gradient_noise_scale)
        if gradient_multipliers is not None:
            pairs = _multiply(pairs, gradient_multipliers)
        pairs = _clip(pairs, clip_gradients)
        if "loss" in summary_kinds:
            summary.scalar("loss", loss)
        _summarize(pairs, summary_kinds)
        next_step = step if increment_global_step else None
        train = opt.apply_gradients(pairs, global_step=next_step, name="train")
        with control_dependencies([train]):
            return identity.identity(loss)


def _rate(learning_rate: Any, decay: Callable[..., Any] | None, step: Any) -> Any:
    if learning_rate is None:
        return None
    rate = learning_rate
    if isinstance(rate, float | int):
        initial = Constant(float(rate))
        rate = get_variable("learning_rate", [], trainable=False, initializer=initial)
    if decay is None:
        return rate
    if step is None:
        raise errors.InvalidArgumentError("global_step is required for learning_rate_decay_fn.")
    return decay(rate, step)


def _optimizer(optimizer: Any, rate: Any) -> Optimizer:
    if isinstance(optimizer, Optimizer):
        return optimizer
    if isinstance(optimizer, str):
        if optimizer not in OPTIMIZER_CLS_NAMES:
            raise errors.InvalidArgumentError(
                f"Optimizer name should be one of [{', '.join(OPTIMIZER_CLS_NAMES)}], "
                f"you provided {optimizer}."
            )
        optimizer = OPTIMIZER_CLS_NAMES[optimizer]
    if isinstance(optimizer, type) and rate is None:
        raise errors.InvalidArgumentError("Learning rate is None, but the optimizer needs one.")
    instance = optimizer() if rate is None else optimizer(rate)
    if not isinstance(instance, Optimizer):
        raise errors.InvalidArgumentError(f"Unrecognized optimizer: {optimizer!r}")
    return instance


def _apply_to_values(gradient: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(gradient, IndexedSlices):
        values = function(gradient.values)
        return IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return function(gradient)


def _with_noise(pairs: Any, scale: float) -> list[Any]:
    def noisy(values: Any) -> Any:
        return values + scale * random.truncated_normal(shapes.shape(values), dtype=values.dtype)

    return [(g if g is None else _apply_to_values(g, noisy), v) for g, v in pairs]


def _multiply(pairs: Any, factors: Mapping[Any, Any]) -> list[Any]:
    result = []
    for gradient, variable in pairs:
        factor = factors.get(variable, factors.get(getattr(variable, "name", None)))
        if gradient is not None and factor is not None:
            gradient = _apply_to_values(gradient, partial(operator.mul, factor))
        result.append((gradient, variable))
    return result


def _clip(pairs: Any, limit: Any) -> list[Any]:
    if limit is None:
        return list(pairs)
    if callable(limit):
        return list(limit(pairs))
    if not isinstance(limit, float | int):
        raise errors.InvalidArgumentError(f"Unknown type {type(limit)} for clip_gradients")
    gradients, variables = zip(*pairs, strict=True)
    clipped, _ = clipping.clip_by_global_norm(gradients, limit)
    return list(zip(clipped, variables, strict=True))


def _summarize(pairs: Any, kinds: Sequence[str]) -> None:
    present = [(g, v) for g, v in pairs if g is not None]
    for gradient, variable in present:
        values = gradient.values if isinstance(gradient, IndexedSlices) else gradient
        if "gradients" in kinds:
            summary.histogram(f"gradients/{variable.op.name}", values)
        if "gradient_norm" in kinds:
            norm = clipping.global_norm([values])
            summary.scalar(f"gradient_norm/{variable.op.name}", norm)
    if "global_gradient_norm" in kinds or "gradient_norm" in kinds:
        summary.scalar("global_norm/gradient_norm", clipping.global_norm([g for g, _ in present]))
