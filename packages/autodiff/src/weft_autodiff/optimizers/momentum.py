"""Momentum, in Polyak's and in Nesterov's form."""

from __future__ import annotations

__all__ = ["MomentumOptimizer"]

from collections.abc import Sequence
from typing import Any

from weft_autodiff.optimizers.update_rule import UpdateRuleOptimizer


class MomentumOptimizer(UpdateRuleOptimizer):
    """`accum = momentum * accum + grad; var -= learning_rate * accum`.

    Args:
      learning_rate, momentum: scalars, or functions that return them.
      use_locking: accepted for compatibility and ignored.
      name: name of the node that applies the updates, and of the slots ("momentum").
      use_nesterov: step by `learning_rate * (grad + momentum * accum)` instead.
    Source: Sutskever et al. 2013, "On the importance of initialization and momentum".

    Examples:
      >>> x = wf.Variable(1.0)
      >>> update = wf.train.MomentumOptimizer(0.25, momentum=0.9).minimize(x * x)
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(update)
      ...     session.run(x)
      np.float32(0.5)
    """

    _rule = "Momentum"
    _rule_slots = ("momentum",)
    _hyper = (("lr", "_learning_rate"), ("momentum", "_momentum"))

    def __init__(
        self,
        learning_rate: Any,
        momentum: Any,
        use_locking: bool = False,
        name: str = "Momentum",
        use_nesterov: bool = False,
    ) -> None:
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._momentum = momentum
        self._use_nesterov = use_nesterov

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for var in var_list:
            self._zeros_slot(var, "momentum", self._name)

    def _attrs(self) -> dict[str, Any]:
        return {"use_nesterov": self._use_nesterov}
