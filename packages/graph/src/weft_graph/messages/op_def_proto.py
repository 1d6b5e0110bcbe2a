"""Conversion of op declarations to `OpDef` messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from weft_graph import proto
from weft_graph.ir.message_conversions import writers
from weft_graph.ir.op_def import lookup_op
from weft_graph.ir.op_signature import REQUIRED, ArgDef, AttrDef, OpDef
from weft_graph.messages.attr_value import attr_to_proto
from weft_tensor import errors


def op_def_to_proto(op_def: OpDef) -> proto.OpDef:
    """Return an op's declaration, without its documentation."""
    message = proto.OpDef(name=op_def.name, is_stateful=op_def.stateful)
    for arg in op_def.inputs:
        _fill_arg(message.input_arg.add(), arg)
    for arg in op_def.outputs:
        _fill_arg(message.output_arg.add(), arg)
    for attr in op_def.attrs.values():
        _fill_attr(message.attr.add(), attr)
    return message


def _fill_arg(message: proto.OpDef.ArgDef, arg: ArgDef) -> None:
    message.name = arg.name
    message.is_ref = arg.is_ref
    message.number_attr = arg.number_attr or ""
    message.type_attr = arg.type_attr or ""
    message.type_list_attr = arg.list_attr or ""
    if arg.dtype is not None:
        message.type = arg.dtype.as_datatype_enum


def _fill_attr(message: proto.OpDef.AttrDef, attr: AttrDef) -> None:
    message.name = attr.name
    message.type = attr.type
    if attr.default is not REQUIRED:
        message.default_value.CopyFrom(attr_to_proto(attr.default, attr.type, {}))
    if attr.minimum is not None:
        message.has_minimum = True
        message.minimum = attr.minimum
    if attr.allowed is not None:
        values = message.allowed_values.list
        if attr.type.endswith(("type", "type)")):
            values.type.extend(sorted(dtype.as_datatype_enum for dtype in attr.allowed))
        else:
            values.s.extend(sorted(value.encode() for value in attr.allowed))


def stripped_op_list(graph_def: proto.GraphDef) -> proto.OpList:
    """Return the declarations of the ops that a graph and its functions use, sorted by name.

    Undeclared op types, such as calls of functions, are skipped.
    """
    message = proto.OpList()
    for name in sorted(set(_op_types(graph_def))):
        try:
            message.op.append(_declaration(name))
        except errors.NotFoundError:
            continue
    return message


@cache
def _declaration(name: str) -> proto.OpDef:
    return op_def_to_proto(lookup_op(name))


writers.register("OpDef", op_def_to_proto)


def _op_types(graph_def: proto.GraphDef) -> Iterator[str]:
    nodes: Iterable[Iterable[proto.NodeDef]] = (
        graph_def.node,
        *(function.node_def for function in graph_def.library.function),
    )
    return (node.op for part in nodes for node in part)
