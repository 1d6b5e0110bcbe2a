"""`Graph.create_op`: creation of a node by op type, with attributes as values or messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft_graph import proto
from weft_graph.ir.builder import convert_to_tensor, create
from weft_graph.ir.message_conversions import readers
from weft_graph.ir.node import Node
from weft_graph.ir.op_def import lookup_op
from weft_graph.ir.op_signature import OpDef
from weft_graph.messages.attr_value import attr_from_proto
from weft_graph.messages.tensor_proto import Budget
from weft_tensor import dtypes, errors


def create_op(
    op: str,
    inputs: Sequence[Any],
    types: Sequence[Any] | None,
    name: str | None,
    attrs: Mapping[str, Any],
) -> Node:
    """Add a node, as `Graph.create_op` does."""
    op_def = lookup_op(op)
    attr_values = {key: _value(op_def, key, value) for key, value in attrs.items()}
    node = create(op, _group_inputs(op_def, list(inputs), attr_values), attr_values, name)
    output_types = [output.dtype.base_dtype for output in node.outputs]
    if types is not None and output_types != [dtypes.as_dtype(dtype).base_dtype for dtype in types]:
        names = ", ".join(dtype.name for dtype in output_types)
        raise errors.InvalidTypeError(
            f"the outputs have the types {names}, but dtypes is {list(types)}",
            op=op,
            node=node.name,
        )
    return node


def _value(op_def: OpDef, name: str, value: Any) -> Any:
    if not isinstance(value, proto.AttrValue):
        return value
    attr = op_def.attrs.get(name)
    kind = None if attr is None else attr.type
    return attr_from_proto(value, kind, f"attribute {name}", Budget(size=value.ByteSize()))


def _group_inputs(op_def: OpDef, inputs: list[Any], attrs: Mapping[str, Any]) -> list[Any]:
    """Group inputs by argument; a list without a length attribute gets the remaining inputs."""
    groups: list[Any] = []
    for i, arg in enumerate(op_def.inputs):
        if not arg.is_list:
            groups.append(inputs.pop(0) if inputs else None)
            continue
        if arg.number_attr is not None and arg.number_attr in attrs:
            count = int(attrs[arg.number_attr])
        elif arg.list_attr is not None and arg.list_attr in attrs:
            count = len(attrs[arg.list_attr])
        else:
            count = len(inputs) - sum(not later_arg.is_list for later_arg in op_def.inputs[i + 1 :])
        groups.append([convert_to_tensor(value) for value in inputs[:count]])
        del inputs[:count]
    if inputs or any(group is None for group in groups):
        raise errors.InvalidArgumentError(
            f"{op_def.name} takes the inputs {', '.join(arg.name for arg in op_def.inputs)}; got "
            "other names"
        )
    return groups


readers.register("NodeDef", create_op)
