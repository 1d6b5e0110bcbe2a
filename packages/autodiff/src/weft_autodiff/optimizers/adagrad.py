"""Adagrad, its proximal form, and its dual averaging form."""

from __future__ import annotations

__all__ = ["AdagradDAOptimizer", "AdagradOptimizer", "ProximalAdagradOptimizer"]

from collections.abc import Sequence
from typing import Any

from weft_autodiff.optimizers.update_rule import UpdateRuleOptimizer, as_step
from weft_graph.ir import builder
from weft_graph.ir.node import Output
from weft_tensor import dtypes, errors


class AdagradOptimizer(UpdateRuleOptimizer):
    """`accum += grad ** 2; var -= learning_rate * grad / sqrt(accum)`.

    Args:
      learning_rate: scalar, or a function that returns it.
      initial_accumulator_value: positive number.
      use_locking: accepted for compatibility and ignored.
      name: name of the node that applies the updates, and of the slots ("accumulator").
    Raises: InvalidArgumentError: `initial_accumulator_value` is not positive.
    Source: Duchi et al. 2011, "Adaptive subgradient methods".

    Examples:
      >>> x = wf.Variable(1.0)
      >>> update = wf.train.AdagradOptimizer(0.1).minimize(x * x)
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(update)
      ...     print(round(float(session.run(x)), 4))
      0.9012
    """

    _rule = "Adagrad"
    _rule_slots = ("accumulator",)
    _hyper = (("lr", "_learning_rate"),)

    def __init__(
        self,
        learning_rate: Any,
        initial_accumulator_value: float = 0.1,
        use_locking: bool = False,
        name: str = "Adagrad",
    ) -> None:
        require_positive("initial_accumulator_value", initial_accumulator_value)
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._initial_accumulator_value = initial_accumulator_value

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for var in var_list:
            value = self._initial_accumulator_value
            self._constant_slot(var, value, "accumulator", self._name)


class ProximalAdagradOptimizer(UpdateRuleOptimizer):
    """Adagrad followed by the proximal step of an L1 and L2 penalty.

    Args:
      learning_rate: scalar, or a function that returns it.
      initial_accumulator_value: positive number.
      l1_regularization_strength, l2_regularization_strength: scalars, not negative.
      use_locking: accepted for compatibility and ignored.
      name: name of the node that applies the updates, and of the slots ("accumulator").
    Raises: InvalidArgumentError: `initial_accumulator_value` is not positive.
    Source: Duchi and Singer 2009, "Efficient learning using forward-backward splitting".

    Examples:
      >>> w = wf.Variable(0.0)
      >>> optimizer = wf.train.ProximalAdagradOptimizer(0.5, l2_regularization_strength=0.001)
      >>> train = optimizer.minimize(wf.square(w - 3.0))
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     for _ in range(100):
      ...         session.run(train)
      ...     abs(session.run(w) - 3.0) < 0.1
      np.True_
    """

    _rule = "ProximalAdagrad"
    _rule_slots = ("accumulator",)
    _hyper = (
        ("lr", "_learning_rate"),
        ("l1", "_l1_regularization_strength"),
        ("l2", "_l2_regularization_strength"),
    )

    def __init__(
        self,
        learning_rate: Any,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: Any = 0.0,
        l2_regularization_strength: Any = 0.0,
        use_locking: bool = False,
        name: str = "ProximalAdagrad",
    ) -> None:
        require_positive("initial_accumulator_value", initial_accumulator_value)
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._initial_accumulator_value = initial_accumulator_value
        self._l1_regularization_strength = l1_regularization_strength
        self._l2_regularization_strength = l2_regularization_strength

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        for var in var_list:
            value = self._initial_accumulator_value
            self._constant_slot(var, value, "accumulator", self._name)


class AdagradDAOptimizer(UpdateRuleOptimizer):
    """Adagrad with dual averaging: the variable is computed from the sums of all past gradients.

    Args:
      learning_rate: scalar, or a function that returns it.
      global_step: integer variable that counts the updates.
      initial_gradient_squared_accumulator_value: positive number.
      l1_regularization_strength, l2_regularization_strength: scalars, not negative.
      use_locking: accepted for compatibility and ignored.
      name: name of the node that applies the updates, and of the slots ("gradient_accumulator" and
        "gradient_squared_accumulator").
    Raises: InvalidArgumentError: `initial_gradient_squared_accumulator_value` is not positive.
    Source: Duchi et al. 2011, "Adaptive subgradient methods".

    Examples:
      >>> w = wf.Variable(0.0)
      >>> step = wf.train.get_or_create_global_step()
      >>> optimizer = wf.train.AdagradDAOptimizer(1.0, step)
      >>> train = optimizer.minimize(wf.square(w - 3.0), global_step=step)
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     for _ in range(100):
      ...         session.run(train)
      ...     abs(session.run(w) - 3.0) < 0.1
      np.True_
    """

    _rule = "AdagradDA"
    _rule_slots = ("gradient_accumulator", "gradient_squared_accumulator")
    _hyper = (
        ("lr", "_learning_rate"),
        ("l1", "_l1_regularization_strength"),
        ("l2", "_l2_regularization_strength"),
    )

    def __init__(
        self,
        learning_rate: Any,
        global_step: Any,
        initial_gradient_squared_accumulator_value: float = 0.1,
        l1_regularization_strength: Any = 0.0,
        l2_regularization_strength: Any = 0.0,
        use_locking: bool = False,
        name: str = "AdagradDA",
    ) -> None:
        start = initial_gradient_squared_accumulator_value
        require_positive("initial_gradient_squared_accumulator_value", start)
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._global_step = global_step
        self._initial_gradient_squared_accumulator_value = start
        self._l1_regularization_strength = l1_regularization_strength
        self._l2_regularization_strength = l2_regularization_strength
        self._global_step_on_worker: Output

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        start = self._initial_gradient_squared_accumulator_value
        for var in var_list:
            self._zeros_slot(var, "gradient_accumulator", self._name)
            self._constant_slot(var, start, "gradient_squared_accumulator", self._name)

    def _prepare(self) -> None:
        super()._prepare()
        unit = builder.constant(1, dtypes.int64)
        self._global_step_on_worker = as_step(self._global_step) + unit

    def _extra_tensors(self, var: Any) -> dict[str, Any]:
        return {"global_step": self._global_step_on_worker}


def require_positive(name: str, value: float) -> None:
    """Raise InvalidArgumentError unless `value` is positive."""
    if value <= 0:
        raise errors.InvalidArgumentError(f"{name} must be positive, got {value}")
