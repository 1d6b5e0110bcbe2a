"""Base class of optimizers whose update is a single op, dense or sparse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft_autodiff.optimizers.optimizer import Optimizer
from weft_graph.ir import builder
from weft_graph.ir.indexed_slices import IndexedSlices
from weft_graph.ir.node import Node, Output
from weft_graph.ops import training
from weft_tensor import dtypes
from weft_tensor.dtypes import DType


class UpdateRuleOptimizer(Optimizer):
    """Base class of optimizers over `weft_graph.ops.training`.

    Class attributes of subclasses:
    _rule: name of the update rule.
      _rule_slots: the slots that the rule updates besides the variable, in order.
      _hyper: pairs of an argument of the rule and the attribute with its value.
      _suffix: suffix of that attribute's name for the tensor that `_prepare` creates.
    """

    _rule: str
    _rule_slots: tuple[str, ...] = ()
    _hyper: tuple[tuple[str, str], ...] = ()
    _suffix = "_tensor"

    def _prepare(self) -> None:
        for name, attribute in self._hyper:
            value = self._call_if_callable(getattr(self, attribute))
            tensor = builder.convert_to_tensor(value, name=_TENSOR_NAMES.get(name, name))
            setattr(self, attribute + self._suffix, tensor)

    def _hyper_tensors(self, dtype: DType) -> dict[str, Output]:
        """Return the hyperparameters in the variable's element type, by argument."""
        return {
            name: cast(getattr(self, attribute + self._suffix), dtype)
            for name, attribute in self._hyper
        }

    def _extra_tensors(self, var: Any) -> dict[str, Any]:
        """Return further arguments of the rule."""
        return {}

    def _attrs(self) -> dict[str, Any]:
        """Return further attributes of the rule."""
        return {}

    def _apply_rule(self, var: Any, arguments: Mapping[str, Any]) -> Node:
        states = [var, *(self.get_slot(var, slot) for slot in self._rule_slots)]
        hyper_tensors = self._hyper_tensors(var.dtype.base_dtype) | self._extra_tensors(var)
        attrs = {"use_locking": self._use_locking, **self._attrs()}
        return training.apply_update(self._rule, states, {**hyper_tensors, **arguments}, attrs)

    def _apply_dense(self, grad: Output, var: Any) -> Any:
        return self._apply_rule(var, {"grad": grad})

    def _resource_apply_dense(self, grad: Output, handle: Any) -> Any:
        return self._apply_rule(handle, {"grad": grad})

    def _apply_sparse(self, grad: IndexedSlices, var: Any) -> Any:
        return self._apply_rule(var, {"grad": grad.values, "indices": grad.indices})

    def _resource_apply_sparse(self, grad: Output, handle: Any, indices: Output) -> Any:
        return self._apply_rule(handle, {"grad": grad, "indices": indices})


_TENSOR_NAMES = {"lr": "learning_rate", "alpha": "learning_rate"}


def cast(value: Output, dtype: DType) -> Output:
    """Return `value` cast to `dtype`, or itself if it has that type."""
    if value.dtype.base_dtype is dtype:
        return value
    return builder.out("Cast", [value], {"DstT": dtype})


def as_step(value: Any) -> Output:
    """Return a global step cast to int64."""
    return cast(builder.convert_to_tensor(value), dtypes.int64)
