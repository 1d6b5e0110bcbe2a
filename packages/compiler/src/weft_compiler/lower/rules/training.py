"""Elementwise updates of variables: assignments, and the update rules of optimizers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft_compiler.lower.registry import Operation, changes, lowers
from weft_compiler.lower.values import Value
from weft_graph.ir.scalar import Scalar
from weft_graph.ops.training import GRADIENTS, RULES, op_type
from weft_graph.ops.update_formulas import FORMULAS

Attrs = Mapping[str, Any]
New = Sequence[Scalar]


@lowers("ReadVariableOp")
def _read(op: Operation) -> Value:
    """Return the operand: lowering represents the handle of a variable by its value."""
    return op.inputs[0]


@changes("Assign", "AssignVariableOp")
def _assign(attrs: Attrs, var: Scalar, value: Scalar) -> New:
    return [value]


@changes("AssignAdd", "AssignAddVariableOp")
def _assign_add(attrs: Attrs, var: Scalar, value: Scalar) -> New:
    return [var + value]


@changes("AssignSub", "AssignSubVariableOp")
def _assign_sub(attrs: Attrs, var: Scalar, value: Scalar) -> New:
    return [var - value]


for _rule in RULES.values():
    _states = len(_rule.states)
    _scalars = [i for i, name in enumerate(_rule.dense, _states) if name not in GRADIENTS]
    _ops = (op_type(_rule.name, False, resource) for resource in (False, True))
    changes(*_ops, states=_states, scalars=tuple(_scalars))(FORMULAS[_rule.name])
