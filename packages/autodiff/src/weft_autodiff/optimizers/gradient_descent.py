"""Gradient descent, plain and proximal."""

from __future__ import annotations

__all__ = ["GradientDescentOptimizer", "ProximalGradientDescentOptimizer"]

from typing import Any

from weft_autodiff.optimizers.update_rule import UpdateRuleOptimizer, cast
from weft_graph.ir.indexed_slices import IndexedSlices
from weft_graph.ir.node import Node, Output
from weft_graph.ops import resource_state, training


class GradientDescentOptimizer(UpdateRuleOptimizer):
    """`var -= learning_rate * grad`.

    Args:
      learning_rate: scalar, or a function that returns it.
      use_locking: accepted for compatibility and ignored.
      name: name of the node that applies the updates.

    Examples:
      >>> x = wf.Variable([3.0, 4.0])
      >>> update = wf.train.GradientDescentOptimizer(0.5).minimize(wf.reduce_sum(x * x))
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(update)
      ...     session.run(x)
      array([0., 0.], dtype=float32)
    """

    _rule = "GradientDescent"
    _hyper = (("alpha", "_learning_rate"),)

    def __init__(
        self, learning_rate: Any, use_locking: bool = False, name: str = "GradientDescent"
    ) -> None:
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._learning_rate_tensor: Output

    def _apply_rule(self, var: Any, arguments: Any) -> Node:
        attrs = {"use_locking": self._use_locking}
        inputs = {"alpha": self._rate(var), "delta": arguments["grad"]}
        return training.apply_update(self._rule, [var], inputs, attrs)

    def _rate(self, var: Any) -> Output:
        return cast(self._learning_rate_tensor, var.dtype.base_dtype)

    # The update is linear in the gradient, so equal indices need not be summed first.

    def _apply_sparse_duplicate_indices(self, grad: IndexedSlices, var: Any) -> Any:
        delta = IndexedSlices(grad.values * self._rate(var), grad.indices, grad.dense_shape)
        return var.scatter_sub(delta, use_locking=self._use_locking)

    def _resource_apply_sparse_duplicate_indices(
        self, grad: Output, handle: Any, indices: Output
    ) -> Any:
        delta = grad * self._rate(handle)
        return resource_state.resource_scatter(
            "Sub", handle.handle, indices, delta, handle.dtype.base_dtype
        )


class ProximalGradientDescentOptimizer(UpdateRuleOptimizer):
    """Gradient descent followed by the proximal step of an L1 and L2 penalty.

    Args:
      learning_rate: scalar, or a function that returns it.
      l1_regularization_strength, l2_regularization_strength: scalars, not negative.
      use_locking: accepted for compatibility and ignored.
      name: name of the node that applies the updates.
    Source: Duchi and Singer 2009, "Efficient learning using forward-backward splitting".

    Examples:
      >>> w = wf.Variable(2.0)
      >>> optimizer = wf.train.ProximalGradientDescentOptimizer(0.5, l1_regularization_strength=1.0)
      >>> train = optimizer.minimize(w)  # the gradient 1 and the penalty 1, half a step each
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(train)
      ...     session.run(w)
      np.float32(1.0)
    """

    _rule = "ProximalGradientDescent"
    _hyper = (
        ("alpha", "_learning_rate"),
        ("l1", "_l1_regularization_strength"),
        ("l2", "_l2_regularization_strength"),
    )

    def __init__(
        self,
        learning_rate: Any,
        l1_regularization_strength: Any = 0.0,
        l2_regularization_strength: Any = 0.0,
        use_locking: bool = False,
        name: str = "ProximalGradientDescent",
    ) -> None:
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._l1_regularization_strength = l1_regularization_strength
        self._l2_regularization_strength = l2_regularization_strength

    def _apply_rule(self, var: Any, arguments: Any) -> Node:
        if "indices" not in arguments:
            arguments = {"delta": arguments["grad"]}
        return super()._apply_rule(var, arguments)
