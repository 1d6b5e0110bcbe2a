"""Inference of attributes that follow from the inputs of a node, such as its element types.

Clients that do not have the declarations of ops omit these attributes from a GraphDef.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from weft_graph import proto
from weft_graph.ir.library import Library
from weft_graph.ir.op_def import lookup_op
from weft_graph.ir.op_signature import REQUIRED, ArgDef, OpDef
from weft_graph.messages.attr_value import attr_from_proto
from weft_graph.messages.function_imports import FUNCTIONAL
from weft_graph.messages.tensor_proto import Budget
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType

COUNTS: Final = "_input_counts"
"""Attribute for the number of tensors of each argument, set by clients; it is removed."""

_WITH_CONDITION: Final = ("If", "StatelessIf")
_BRANCHES: Final = ("body", "then_branch", "branches")
"""Attributes with the functions of a functional conditional or loop, whose result types the node
has.
"""


def infer_attributes(
    graph_def: proto.GraphDef, external: Mapping[str, Any], library: Library
) -> None:
    """Add the attributes that follow from inputs to the nodes of a GraphDef.

    Nodes are inferred from earlier nodes in the message. If the inputs of a node are unknown, it is
    not changed, and the importer reports the missing attributes.

    Args:
      external: the outputs of nodes outside the GraphDef, by "node:port".
      library: the functions of the graph, whose names may be op types.
    """
    functions = {f.signature.name: f.signature for f in graph_def.library.function}
    types: dict[str, _OutputTypes | _ResultTypes] = {}
    for node_def in graph_def.node:
        signature = _signature(_called_function(node_def), functions, library)
        if node_def.op in _WITH_CONDITION and node_def.input:
            _set_type(node_def, "Tcond", _type_of(node_def.input[0], types, external))
        if signature is not None:
            types[node_def.name] = _ResultTypes(signature)
            continue
        try:
            op_def = lookup_op(node_def.op)
        except errors.NotFoundError:
            continue  # the importer lists all of them
        inputs = [_type_of(text, types, external) for text in node_def.input if text[:1] != "^"]
        _infer(node_def, op_def, inputs)
        outputs = _output_types(node_def, op_def)
        if outputs is not None:
            types[node_def.name] = outputs


def _called_function(node_def: proto.NodeDef) -> str:
    """Return the name of the function that determines the results of a node, or None."""
    for name in _BRANCHES:
        if node_def.op in FUNCTIONAL and name in node_def.attr:
            value = node_def.attr[name]
            return value.func.name or "".join(function.name for function in value.list.func[:1])
    return node_def.op


def _signature(name: str, functions: Mapping[str, Any], library: Library) -> Any:
    signature = functions.get(name)
    if signature is None and name in library:
        return library.definition(name).signature
    return signature


class _ResultTypes:
    """The element types of the results of a function."""

    __slots__ = ("_arguments",)

    def __init__(self, signature: Any) -> None:
        self._arguments = signature.output_arg

    def get(self, index: int) -> DType | None:
        """Return the type of a result; None if there is no such result."""
        if index >= len(self._arguments):
            return None
        try:
            return dtypes.as_dtype(self._arguments[index].type)
        except (TypeError, errors.OpError):
            return None  # the reader of the function reports it


def _type_of(
    text: str,
    types: Mapping[str, _OutputTypes | _ResultTypes],
    external: Mapping[str, Any],
) -> DType | None:
    name, _, port = text.partition(":")
    index = int(port) if port.isdecimal() and len(port) < 10 else 0
    output = external.get(f"{name}:{index}")
    if output is not None:
        dtype: DType = output.dtype
        return dtype
    outputs = types.get(name)
    return None if outputs is None else outputs.get(index)


def _infer(node_def: proto.NodeDef, op_def: OpDef, inputs: Sequence[DType | None]) -> None:
    position = 0
    for argument, count in zip(
        op_def.inputs, _counts(node_def, op_def.inputs, len(inputs)), strict=False
    ):
        chunk = inputs[position : position + count]
        position += count
        if argument.number_attr is not None and argument.number_attr not in node_def.attr:
            node_def.attr[argument.number_attr].i = count
        if argument.list_attr is not None:
            _set_list(node_def, argument.list_attr, chunk)
        elif argument.type_attr is not None and chunk:
            _set_type(node_def, argument.type_attr, chunk[0])


def _counts(node_def: proto.NodeDef, arguments: Sequence[ArgDef], num_inputs: int) -> Iterator[int]:
    """Yield the number of tensors of each argument, until one is unknown."""
    stated = list(node_def.attr[COUNTS].list.i) if COUNTS in node_def.attr else []
    if COUNTS in node_def.attr:
        del node_def.attr[COUNTS]
    num_remaining = num_inputs
    for index, argument in enumerate(arguments):
        later_arguments = arguments[index + 1 :]
        if not argument.is_list:
            count = 1
        elif index < len(stated):
            count = stated[index]
        elif argument.number_attr is not None and argument.number_attr in node_def.attr:
            count = node_def.attr[argument.number_attr].i
        elif argument.list_attr is not None and argument.list_attr in node_def.attr:
            count = len(node_def.attr[argument.list_attr].list.type)
        elif any(later_argument.is_list for later_argument in later_arguments):
            return
        else:
            count = num_remaining - len(later_arguments)
        count = max(min(count, num_remaining), 0)
        num_remaining -= count
        yield count


def _set_list(node_def: proto.NodeDef, name: str, types: Sequence[DType | None]) -> None:
    if name in node_def.attr or None in types:
        return
    known_types = [dtype.base_dtype.as_datatype_enum for dtype in types if dtype is not None]
    node_def.attr[name].list.SetInParent()
    node_def.attr[name].list.type.extend(known_types)


def _set_type(node_def: proto.NodeDef, name: str, dtype: DType | None) -> None:
    if name not in node_def.attr and dtype is not None:
        node_def.attr[name].type = dtype.base_dtype.as_datatype_enum


class _OutputTypes:
    """The element types of the outputs of a node, computed on demand because there may be many."""

    __slots__ = ("_arguments", "_attrs")

    def __init__(self, arguments: Sequence[ArgDef], attrs: Mapping[str, Any]) -> None:
        self._arguments, self._attrs = arguments, attrs

    def get(self, index: int) -> DType | None:
        """Return the type of an output; None if there is no such output."""
        for argument in self._arguments:
            if argument.list_attr is not None:
                types = self._attrs[argument.list_attr]
                count = len(types)
            else:
                number = argument.number_attr
                count = 1 if number is None else self._attrs[number]
            if index < count:
                if argument.list_attr is not None:
                    return types[index]  # type: ignore[no-any-return]
                return argument.dtype or self._attrs[argument.type_attr or ""]
            index -= count
        return None


def _output_types(node_def: proto.NodeDef, op_def: OpDef) -> _OutputTypes | None:
    """Return the element types of the outputs; None if attributes are missing or invalid."""
    needed = {
        name
        for argument in op_def.outputs
        for name in (argument.type_attr, argument.list_attr, argument.number_attr)
        if name is not None
    }
    attrs: dict[str, Any] = {}
    for name in needed:
        declared = op_def.attrs[name]
        try:
            if name in node_def.attr:
                message, location = node_def.attr[name], f"attribute {name}"
                value = attr_from_proto(message, declared.type, location, Budget())
                attrs[name] = declared.check(value)
            elif declared.default is not REQUIRED:
                attrs[name] = declared.default
            else:
                return None
        except errors.OpError:
            return None  # the importer reports it
    return _OutputTypes(op_def.outputs, attrs)
