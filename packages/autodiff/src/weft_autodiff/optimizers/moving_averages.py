"""Exponential moving averages of variables and tensors."""

from __future__ import annotations

__all__ = ["ExponentialMovingAverage"]

from collections.abc import Iterable
from typing import Any

from weft_autodiff.optimizers import slot_creator
from weft_autodiff.optimizers.update_rule import cast
from weft_graph.ir import builder
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role
from weft_graph.ops import control, state
from weft_graph.variables.base import Variable
from weft_graph.variables.partitioned import checkpoint_name, group_parts
from weft_graph.variables.reference import moving_average_variables, trainable_variables
from weft_graph.variables.resource import is_resource_variable
from weft_graph.variables.scope import VariableScope, get_variable, variable_scope
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType


def assign_moving_average(
    variable: Any, value: Any, decay: Any, zero_debias: bool = True, name: str | None = None
) -> Any:
    """Add `variable -= (1 - decay) * (variable - value)`.

    Args:
      variable: floating.
      value: variable or tensor, shape and dtype of `variable`.
      decay: scalar between 0 and 1.
      zero_debias: correct the average for its initial value of zero. Two further variables,
        "biased" and "local_step", store the uncorrected average and the number of updates.
      name: name of the node.
    Returns: the variable after the update.
    Source: Kingma and Ba 2014, section 3, for the correction.
    """
    graph = variable.graph
    with (
        graph.as_default(),
        graph.name_scope(name or "AssignMovingAvg") as scope,
        graph.colocate_with(variable.op),
    ):
        dtype = variable.dtype.base_dtype
        weight = cast(1.0 - builder.convert_to_tensor(decay, name="decay"), dtype)
        new_value = _value(value, dtype)
        if zero_debias:
            step = _debiased_step(variable, new_value, weight)
        else:
            step = (_value(variable) - new_value) * weight
        return state.assign_sub(variable, step, name=scope)


def _debiased_step(variable: Any, value: Output, weight: Output) -> Output:
    """Return the value whose subtraction makes the variable the corrected average."""
    biased, count = _debias_variables(variable)
    current = _value(biased)
    updated = current - (current - value) * weight
    steps = _value(count) + 1.0
    updates = [
        biased.assign(updated, read_value=False),
        count.assign(steps, read_value=False),
    ]
    with variable.graph.control_dependencies(updates):
        correction = 1.0 - builder.out("Pow", [1.0 - weight, steps])
        return _value(variable) - updated / correction


def _debias_variables(variable: Any) -> tuple[Any, Any]:
    settings: dict[str, Any] = {
        "dtype": variable.dtype.base_dtype,
        "initializer": slot_creator.constant_initializer(0.0),
        "trainable": False,
        "use_resource": is_resource_variable(variable),
    }
    with variable.graph.control_dependencies(None), variable_scope(variable.op.name) as scope:
        suffix = "" if scope.reuse else _unused_suffix(scope)
        biased = get_variable(f"biased{suffix}", shape=variable.get_shape(), **settings)
        count = get_variable(f"local_step{suffix}", shape=[], **settings)
    return biased, count


def _unused_suffix(scope: VariableScope) -> str:
    """Return a name suffix for the state of a further average of the same variable."""
    names = {variable.op.name for variable in scope.global_variables()}
    number, suffix = 0, ""
    while f"{scope.name}/biased{suffix}" in names:
        number += 1
        suffix = f"_{number}"
    return suffix


class ExponentialMovingAverage:
    """Moving averages in shadow variables: `shadow -= (1 - decay) * (shadow - variable)`.

    Args:
      decay: number or scalar between 0 and 1, usually close to 1.
      num_updates: number or scalar; makes the decay at most (1 + n) / (10 + n), so that averages
        move faster at the start.
      zero_debias: correct the averages of tensors, which start at zero.
      name: name of the node that `apply` returns, and of the shadow variables.

    Examples:
      >>> x = wf.Variable(1.0)
      >>> average = wf.train.ExponentialMovingAverage(0.5)
      >>> update = average.apply([x])
      >>> with wf.Session() as session:
      ...     session.run(wf.global_variables_initializer())
      ...     session.run(x.assign(3.0))
      ...     session.run(update)
      ...     session.run(average.average(x))
      np.float32(3.0)
      np.float32(2.0)
    """

    def __init__(
        self,
        decay: Any,
        num_updates: Any = None,
        zero_debias: bool = False,
        name: str = "ExponentialMovingAverage",
    ) -> None:
        self._decay = decay
        self._num_updates = num_updates
        self._zero_debias = zero_debias
        self._name = name
        self._averages: dict[Any, Any] = {}

    @property
    def name(self) -> str:
        """The name passed to the constructor."""
        return self._name

    def apply(self, var_list: Iterable[Any] | None = None) -> Node:
        """Create missing shadow variables, and the node that updates all of them.

        Args:
          var_list: variables and tensors, floating; all trainable variables by default. The shadow
            of a variable starts with its initial value, the shadow of a tensor with zero.
        Returns: a node that makes one update when it runs.
        Raises:
          InvalidTypeError: an item of `var_list` is not floating.
          InvalidArgumentError: an item has an average already.
        """
        variables = trainable_variables() if var_list is None else list(var_list)
        graph = get_default_graph()
        debias: set[int] = set()
        for var in variables:
            self._check(var)
            with graph.control_dependencies(None):
                self._averages[_key(var)] = self._shadow(var, debias)
        with graph.name_scope(self._name) as scope:
            decay = self._current_decay()
            updates = []
            for var in variables:
                shadow = self._averages[_key(var)]
                zero = id(shadow) in debias
                updates.append(assign_moving_average(shadow, var, decay, zero_debias=zero))
            return control.group(*updates, name=scope)

    def _check(self, var: Any) -> None:
        dtype = var.dtype.base_dtype
        if not dtype.is_floating:
            raise errors.InvalidTypeError(
                f"The variables must be floating: {var.name} is {dtype.name}"
            )
        if _key(var) in self._averages:
            raise errors.InvalidArgumentError(f"Moving average already computed for: {var.name}")

    def _shadow(self, var: Any, debias: set[int]) -> Any:
        if isinstance(var, Variable):
            var.graph.add_to_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, var)
            return slot_creator.create_slot(var, var.initialized_value(), self._name)
        holds = var.op.role is Role.VARIABLE
        shadow = slot_creator.create_zeros_slot(var, self._name, colocate_with_primary=holds)
        if self._zero_debias:
            debias.add(id(shadow))
        return shadow

    def _current_decay(self) -> Output:
        decay = builder.convert_to_tensor(self._decay, name="decay")
        if self._num_updates is None:
            return decay
        count = cast(builder.convert_to_tensor(self._num_updates), dtypes.float32)
        grown = (count + 1.0) / (count + 10.0)
        return builder.out("Minimum", [decay, cast(grown, decay.dtype.base_dtype)])

    def average(self, var: Any) -> Any:
        """Return the shadow variable of `var`, or None when `apply` was not called with it."""
        return self._averages.get(_key(var))

    def average_name(self, var: Any) -> str:
        """Return the name of the shadow variable of `var`, even before `apply` creates it."""
        shadow = self._averages.get(_key(var))
        if shadow is not None:
            return str(shadow.op.name)
        name: str = get_default_graph().unique_name(
            f"{var.op.name}/{self._name}", mark_as_used=False
        )
        return name

    def variables_to_restore(
        self, moving_avg_variables: Iterable[Any] | None = None
    ) -> dict[str, Any]:
        """Return a mapping for a Saver that restores averages into their variables.

        Args:
          moving_avg_variables: variables whose average to use; all trainable ones, and those in
            the collection MOVING_AVERAGE_VARIABLES, by default.
        Returns: mapping from the name in the checkpoint to the variable, or to the parts of a
          partitioned variable. Other variables have their own names.
        """
        if moving_avg_variables is None:
            moving_avg_variables = trainable_variables() + moving_average_variables()
        averaged = list({id(var): var for var in moving_avg_variables}.values())
        names = group_parts(averaged, self._saved_average_name)
        averaged_names = {checkpoint_name(var) for var in averaged}
        all_variables = get_default_graph().get_collection(GraphKeys.GLOBAL_VARIABLES)
        return names | group_parts(
            var
            for var in all_variables
            if checkpoint_name(var) not in names.keys() | averaged_names
        )

    def _saved_average_name(self, var: Any) -> str:
        """Return the name of the average of `var` in a checkpoint; parts share one name."""
        part = var._get_save_slice_info() if isinstance(var, Variable) else None
        if part is None:
            return self.average_name(var)
        average = self.average(var)
        return f"{part.full_name}/{self._name}" if average is None else checkpoint_name(average)


def _key(var: Any) -> tuple[Any, str]:
    return var.graph, str(var.name)


def _value(var: Any, dtype: DType | None = None) -> Output:
    """Return a new read of the value after the control dependencies, not the shared snapshot.

    An average under `control_dependencies([train_op])` thus includes that update.
    """
    return var.read_value() if isinstance(var, Variable) else builder.convert_to_tensor(var, dtype)
