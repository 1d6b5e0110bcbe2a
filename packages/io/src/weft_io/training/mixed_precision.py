"""Training in mixed precision with one call, as in TensorFlow 1.15."""

from __future__ import annotations

__all__ = ["disable_mixed_precision_graph_rewrite", "enable_mixed_precision_graph_rewrite"]

from typing import Any

from weft_autodiff.optimizers.loss_scale import MixedPrecisionLossScaleOptimizer
from weft_autodiff.optimizers.optimizer import Optimizer
from weft_exec.devices.machine import list_physical_devices
from weft_exec.settings import MIXED_PRECISION, get_experimental_options, set_experimental_options
from weft_tensor import errors


def enable_mixed_precision_graph_rewrite(
    opt: Any, loss_scale: Any = "dynamic"
) -> MixedPrecisionLossScaleOptimizer:
    """Return an optimizer with loss scaling, and let new sessions compute in mixed precision.

    The sessions compute matrix products, convolutions, and cheap ops between them in float16 if the
    machine has a GPU, else in bfloat16. Variables, losses and sums stay float32. The rewrite
    applies to all steps of sessions that are created later; sessions with a `ConfigProto` may turn
    it off with `graph_options.rewrite_options`.

    Args:
      opt: the optimizer to wrap.
      loss_scale: "dynamic", a number of at least 1, or a `LossScale`.
    Raises: InvalidTypeError: `opt` is not an optimizer; InvalidArgumentError: it has a loss scale
      already, or the loss scale is invalid.

    Examples:
      >>> x = wf.placeholder(wf.float32, [2, 8])
      >>> loss = wf.reduce_mean(wf.square(wf.layers.dense(x, 4)))
      >>> optimizer = wf.train.GradientDescentOptimizer(0.1)
      >>> optimizer = wf.train.experimental.enable_mixed_precision_graph_rewrite(optimizer, 128.0)
      >>> step = optimizer.minimize(loss)
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(step, {x: np.ones([2, 8])})
      >>> wf.train.experimental.disable_mixed_precision_graph_rewrite()
    """
    if not isinstance(opt, Optimizer):
        raise errors.InvalidTypeError(f"opt must be an optimizer, got {opt!r}")
    if isinstance(opt, MixedPrecisionLossScaleOptimizer):
        raise errors.InvalidArgumentError(
            "opt is already a MixedPrecisionLossScaleOptimizer; pass the optimizer that it wraps"
        )
    scaled = MixedPrecisionLossScaleOptimizer(opt, loss_scale)
    option = "auto_mixed_precision" if list_physical_devices("GPU") else "auto_mixed_precision_mkl"
    set_experimental_options({**_other_options(), option: True})
    return scaled


def disable_mixed_precision_graph_rewrite() -> None:
    """Let new sessions compute in float32 again; optimizers keep their loss scale.

    Examples:
      >>> wf.train.experimental.disable_mixed_precision_graph_rewrite()
    """
    set_experimental_options(_other_options())


def _other_options() -> dict[str, Any]:
    options = get_experimental_options()
    return {name: value for name, value in options.items() if name not in MIXED_PRECISION}
