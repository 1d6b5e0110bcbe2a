"""Adadelta."""

from __future__ import annotations

__all__ = ["AdadeltaOptimizer"]

from collections.abc import Sequence
from typing import Any

from weft_autodiff.optimizers.update_rule import UpdateRuleOptimizer


class AdadeltaOptimizer(UpdateRuleOptimizer):
    """Steps scaled by the ratio of the running roots of past updates and past gradients.

    Args:
      learning_rate: scalar, or a function that returns it; 1.0 gives the paper's form.
      rho: scalar, decay factor of the running means.
      epsilon: scalar, added under the roots.
      use_locking: accepted for compatibility and ignored.
      name: name of the node that applies the updates, and of the slots ("accum", "accum_update").
    Source: Zeiler 2012, "ADADELTA: an adaptive learning rate method".

    Examples:
      >>> x = wf.Variable(1.0)
      >>> update = wf.train.AdadeltaOptimizer(1.0).minimize(x * x)
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(update)
      ...     bool(session.run(x) < 1.0)
      True
    """

    _rule = "Adadelta"
    _rule_slots = ("accum", "accum_update")
    _hyper = (("lr", "_lr"), ("rho", "_rho"), ("epsilon", "_epsilon"))
    _suffix = "_t"

    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: Any = 0.95,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "Adadelta",
    ) -> None:
        super().__init__(use_locking, name)
        self._lr = learning_rate
        self._rho = rho
        self._epsilon = epsilon

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for var in var_list:
            self._zeros_slot(var, "accum", self._name)
            self._zeros_slot(var, "accum_update", self._name)
