"""RMSProp, plain and centered."""

from __future__ import annotations

__all__ = ["RMSPropOptimizer"]

from collections.abc import Sequence
from typing import Any

from weft_autodiff.optimizers.update_rule import UpdateRuleOptimizer


class RMSPropOptimizer(UpdateRuleOptimizer):
    """RMSProp: gradients divided by the root of their running mean square, with momentum.

    Args:
      learning_rate: scalar, or a function that returns it.
      decay: scalar, decay factor of the running means.
      momentum: scalar.
      epsilon: scalar, added under the root.
      use_locking: accepted for compatibility and ignored.
      centered: subtract the square of the running mean under the root, which estimates the
        variance.
      name: name of the node that applies the updates, and of the slots ("rms", "momentum", and "mg"
        if centered).
    Source: Tieleman and Hinton 2012, lecture 6e; Graves 2013, "Generating sequences with recurrent
      neural networks", for the centered form.

    Examples:
      >>> x = wf.Variable(1.0)
      >>> update = wf.train.RMSPropOptimizer(0.1).minimize(x * x)
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(update)
      ...     print(round(float(session.run(x)), 4))
      0.8246
    """

    _hyper = (
        ("lr", "_learning_rate"),
        ("rho", "_decay"),
        ("momentum", "_momentum"),
        ("epsilon", "_epsilon"),
    )

    def __init__(
        self,
        learning_rate: Any,
        decay: Any = 0.9,
        momentum: Any = 0.0,
        epsilon: Any = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        name: str = "RMSProp",
    ) -> None:
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._decay = decay
        self._momentum = momentum
        self._epsilon = epsilon
        self._centered = centered
        self._rule = "CenteredRMSProp" if centered else "RMSProp"
        self._rule_slots = ("mg", "rms", "momentum") if centered else ("rms", "momentum")

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for var in var_list:
            self._constant_slot(var, 1.0, "rms", self._name)
            if self._centered:
                self._zeros_slot(var, "mg", self._name)
            self._zeros_slot(var, "momentum", self._name)
