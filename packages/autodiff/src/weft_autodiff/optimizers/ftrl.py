"""Follow the regularized leader."""

from __future__ import annotations

__all__ = ["FtrlOptimizer"]

from collections.abc import Sequence
from typing import Any

from weft_autodiff.optimizers.update_rule import UpdateRuleOptimizer
from weft_tensor import errors


class FtrlOptimizer(UpdateRuleOptimizer):
    """FTRL-Proximal, with the paper's L2 penalty and an optional shrinkage L2 penalty.

    Args:
      learning_rate: scalar, or a function that returns it.
      learning_rate_power: number, not positive; 0 keeps the rate fixed.
      initial_accumulator_value: number, not negative.
      l1_regularization_strength, l2_regularization_strength: numbers, not negative.
      use_locking: accepted for compatibility and ignored.
      name: name of the node that applies the updates, and of the slots.
      accum_name, linear_name: names of the slots "accum" and "linear"; `name` by default.
      l2_shrinkage_regularization_strength: number, not negative; a penalty on the magnitude.
    Raises: InvalidArgumentError: a number has the wrong sign.
    Source: McMahan et al. 2013, "Ad click prediction: a view from the trenches".

    Examples:
      >>> x = wf.Variable(1.0)
      >>> update = wf.train.FtrlOptimizer(0.1).minimize(x * x)
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(update)
      ...     bool(session.run(x) < 1.0)
      True
    """

    _rule_slots = ("accum", "linear")
    _hyper = (
        ("lr", "_learning_rate"),
        ("l1", "_l1_regularization_strength"),
        ("l2", "_l2_regularization_strength"),
        ("l2_shrinkage", "_l2_shrinkage_regularization_strength"),
        ("lr_power", "_learning_rate_power"),
    )

    def __init__(
        self,
        learning_rate: Any,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        use_locking: bool = False,
        name: str = "Ftrl",
        accum_name: str | None = None,
        linear_name: str | None = None,
        l2_shrinkage_regularization_strength: float = 0.0,
    ) -> None:
        super().__init__(use_locking, name)
        _require_not_negative(
            initial_accumulator_value=initial_accumulator_value,
            l1_regularization_strength=l1_regularization_strength,
            l2_regularization_strength=l2_regularization_strength,
            l2_shrinkage_regularization_strength=l2_shrinkage_regularization_strength,
        )
        if learning_rate_power > 0:
            raise errors.InvalidArgumentError(
                f"learning_rate_power must not be positive, got {learning_rate_power}"
            )
        self._learning_rate = learning_rate
        self._learning_rate_power = learning_rate_power
        self._initial_accumulator_value = initial_accumulator_value
        self._l1_regularization_strength = l1_regularization_strength
        self._l2_regularization_strength = l2_regularization_strength
        self._l2_shrinkage_regularization_strength = l2_shrinkage_regularization_strength
        self._rule = "FtrlV2" if l2_shrinkage_regularization_strength > 0 else "Ftrl"
        self._accum_name = accum_name
        self._linear_name = linear_name

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for var in var_list:
            start = self._initial_accumulator_value
            self._constant_slot(var, start, "accum", self._accum_name or self._name)
            self._zeros_slot(var, "linear", self._linear_name or self._name)


def _require_not_negative(**values: float) -> None:
    for name, value in values.items():
        if value < 0:
            raise errors.InvalidArgumentError(f"{name} must not be negative, got {value}")
