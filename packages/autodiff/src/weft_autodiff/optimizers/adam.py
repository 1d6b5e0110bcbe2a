"""Adam."""

from __future__ import annotations

__all__ = ["AdamOptimizer"]

from collections.abc import Sequence
from typing import Any

from weft_autodiff.optimizers.update_rule import UpdateRuleOptimizer, cast
from weft_graph.ir import builder
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.indexed_slices import IndexedSlices
from weft_graph.ir.node import Output
from weft_graph.ops import control
from weft_graph.variables.resource import is_resource_variable


class AdamOptimizer(UpdateRuleOptimizer):
    """Adam: steps by the running mean of gradients over the root of the running mean of squares.

    Sparse gradients are treated like dense ones: rows without a gradient are also updated, and
    their means decay.

    Args:
      learning_rate: scalar, or a function that returns it.
      beta1, beta2: scalars, decay factors of the means.
      epsilon: scalar, added to the root; the paper's "epsilon hat".
      use_locking: accepted for compatibility and ignored.
      name: name of the node that applies the updates, and of the slots ("m" and "v").
    Source: Kingma and Ba 2014, "Adam: a method for stochastic optimization", section 2.

    Examples:
      >>> x = wf.Variable(1.0)
      >>> update = wf.train.AdamOptimizer(0.1).minimize(x * x)
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(update)
      ...     print(round(float(session.run(x)), 4))
      0.9
    """

    _rule = "Adam"
    _rule_slots = ("m", "v")
    _hyper = (("lr", "_lr"), ("beta1", "_beta1"), ("beta2", "_beta2"), ("epsilon", "_epsilon"))
    _suffix = "_t"

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
    ) -> None:
        super().__init__(use_locking, name)
        self._lr = learning_rate
        self._beta1 = beta1
        self._beta2 = beta2
        self._epsilon = epsilon
        self._beta1_t: Output
        self._beta2_t: Output
        self._beta1_power: Output
        self._beta2_power: Output

    def _get_beta_accumulators(self) -> tuple[Any, Any]:
        """Return the variables with beta1 ** n and beta2 ** n after n updates."""
        return (
            self._get_non_slot_variable("beta1_power"),
            self._get_non_slot_variable("beta2_power"),
        )

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        # The same variable every time, so that the accumulators have one place.
        first = min(var_list, key=lambda var: str(var.name))
        for name, beta in (("beta1_power", self._beta1), ("beta2_power", self._beta2)):
            self._create_non_slot_variable(self._call_if_callable(beta), name, first)
        for var in var_list:
            self._zeros_slot(var, "m", self._name)
            self._zeros_slot(var, "v", self._name)

    def _prepare(self) -> None:
        super()._prepare()
        reads = [builder.convert_to_tensor(power) for power in self._get_beta_accumulators()]
        self._beta1_power, self._beta2_power = reads

    def _extra_tensors(self, var: Any) -> dict[str, Any]:
        dtype = var.dtype.base_dtype
        return {
            "beta1_power": cast(self._beta1_power, dtype),
            "beta2_power": cast(self._beta2_power, dtype),
        }

    # All rows move, so a sparse gradient is a dense one that is mostly zero.

    def _apply_sparse_duplicate_indices(self, grad: IndexedSlices, var: Any) -> Any:
        return self._apply_sparse(grad, var)

    def _resource_apply_sparse_duplicate_indices(
        self, grad: Output, handle: Any, indices: Output
    ) -> Any:
        return self._resource_apply_sparse(grad, handle, indices)

    def _apply_sparse(self, grad: IndexedSlices, var: Any) -> Any:
        return self._apply_dense(_dense(grad.values, var, grad.indices), var)

    def _resource_apply_sparse(self, grad: Output, handle: Any, indices: Output) -> Any:
        return self._resource_apply_dense(_dense(grad, handle, indices), handle)

    def _finish(self, update_ops: Sequence[Any], name_scope: str) -> Any:
        graph = get_default_graph()
        beta1, beta2 = self._get_beta_accumulators()
        with graph.control_dependencies(update_ops), graph.colocate_with(beta1.op):
            updates = [
                self._assign(beta1, self._beta1_power * self._beta1_t),
                self._assign(beta2, self._beta2_power * self._beta2_t),
            ]
        return control.group(*update_ops, *updates, name=name_scope)

    def _assign(self, power: Any, value: Output) -> Any:
        return power.assign(value, use_locking=self._use_locking, read_value=False)


def _dense(values: Output, var: Any, indices: Output) -> Output:
    """Return the gradient of the whole variable."""
    rows = var.shape.dims[0].value if var.shape.ndims else None
    if rows is None:
        source = var.handle if is_resource_variable(var) else builder.convert_to_tensor(var)
        op = "VariableShape" if is_resource_variable(var) else "Shape"
        rows = builder.out(op, [source])[0]
    return builder.out("UnsortedSegmentSum", [values, indices, rows])
