"""Dispatch of ops to rules for ragged tensors.

`create` calls this module for ops with a ragged input. An op with the trait elementwise or
by_element is applied to the flat values. Other ops have a rule in a module of this package,
decorated with `@ragged_op(...)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft_graph.ir.builder import create, output_of
from weft_graph.ir.composite import makers
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.op_signature import OpDef
from weft_graph.ir.registry import Registry
from weft_graph.ragged.broadcasting import map_flat_values
from weft_graph.ragged.tensor import RaggedTensor, is_ragged
from weft_tensor import errors


class Call:
    """An op and its arguments.

    Attributes:
      op: the op type.
      inputs: one for each argument; ragged values are converted to RaggedTensors.
      attrs: the attributes passed by the caller.
    """

    def __init__(self, op: OpDef, inputs: Sequence[Any], attrs: dict[str, Any]) -> None:
        self.op = op.name
        self.inputs: list[Any] = [
            [_input(item) for item in value] if arg.is_list else _input(value)
            for arg, value in zip(op.inputs, inputs, strict=True)
        ]
        self.attrs = attrs

    def plain(self, *inputs: Any, **attrs: Any) -> Sequence[Any]:
        """Apply the op to other inputs; if one of them is ragged, it is dispatched again."""
        return create(self.op, inputs, {**self.attrs, **attrs}).outputs


Rule = Callable[[Call], Sequence[Any] | Any]
rules: Registry[Rule] = Registry("rule for ragged tensors of the op", "weft_graph.ragged")
"""Rules for ragged tensors by op type."""


def ragged_op(*ops: str) -> Callable[[Rule], Rule]:
    """Decorator that registers the rule of ops for ragged tensors.

    The rule is a function from a `Call` to the result or a list of results.
    """

    def register(rule: Rule) -> Rule:
        for op in ops:
            rules.register(op, rule)
        return rule

    return register


def _input(value: Any) -> Any:
    if is_ragged(value):
        return RaggedTensor.from_value(value)
    output = output_of(value)
    return value if output is None else output


def apply(
    op: OpDef, inputs: Sequence[Any], attrs: Mapping[str, Any], name: str | None
) -> Sequence[Any]:
    """Apply an op with ragged inputs; return its results.

    Raises: InvalidTypeError: the op does not support ragged tensors.
    """
    call = Call(op, inputs, dict(attrs))
    with get_default_graph().name_scope(name or f"Ragged{op.name}"):
        rule = rules.get(op.name)
        if rule is not None:
            outputs = rule(call)
            return outputs if isinstance(outputs, list | tuple) else [outputs]
        traits = op.traits
        if traits.elementwise or traits.by_element or traits.identity:
            return _apply_by_element(op, call)
    raise errors.InvalidTypeError(
        f"{op.name} does not support ragged tensors; convert them with to_tensor(), or use "
        "ragged.map_flat_values"
    )


def _apply_by_element(op: OpDef, call: Call) -> Sequence[Any]:
    """Apply an op to the flat values of inputs that are broadcast to the same rows."""
    lists = [arg.is_list for arg in op.inputs]
    flat: list[Any] = []
    for value, is_list in zip(call.inputs, lists, strict=True):
        flat += value if is_list else [value]

    def on_flat_values(*values: Any) -> Sequence[Any]:
        remaining = iter(values)
        grouped = [
            [next(remaining) for _ in value] if is_list else next(remaining)
            for value, is_list in zip(call.inputs, lists, strict=True)
        ]
        return call.plain(*grouped)

    return map_flat_values(on_flat_values, flat, one_shape=not op.traits.elementwise)


makers.register("apply", apply)
