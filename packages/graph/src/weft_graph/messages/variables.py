"""Conversion of variables to and from `VariableDef` messages, which name their nodes."""

from __future__ import annotations

from typing import Any

from weft_graph import proto
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.graph import Graph
from weft_graph.ir.message_conversions import readers, writers
from weft_graph.ir.node import Node, Output
from weft_graph.variables.base import ExistingVariable, SaveSliceInfo, Variable
from weft_graph.variables.resource import ResourceVariable
from weft_tensor import errors


def variable_to_proto(variable: Variable, export_scope: str | None = None) -> Any:
    """Return the `VariableDef` of a variable, or None if it is outside `export_scope`."""
    if export_scope is not None and not variable.name.startswith(export_scope):
        return None
    message = proto.VariableDef()

    def short(name: str) -> str:
        return name if export_scope is None else name[len(export_scope) :].lstrip("/")

    message.variable_name = short(variable.name)
    if variable.initial_value is not None:
        message.initial_value_name = short(variable.initial_value.name)
    message.trainable = variable.trainable
    message.synchronization = variable.synchronization
    message.aggregation = variable.aggregation
    message.initializer_name = short(variable.initializer.name)
    if isinstance(variable, ResourceVariable):
        message.is_resource = True
        element = variable._graph_element if variable._cached is None else variable._cached
    else:
        (element,) = variable._shared_reads()
    message.snapshot_name = short(element.name)
    part = variable._get_save_slice_info()
    if part is not None:
        info = message.save_slice_info_def
        info.full_name = short(part.full_name or "")
        info.full_shape.extend(part.full_shape)
        info.var_offset.extend(part.var_offset)
        info.var_shape.extend(part.var_shape)
    return message


class _Names:
    """Lookup of the elements that a message names, under an import scope."""

    def __init__(self, graph: Graph, import_scope: str | None) -> None:
        self._graph = graph
        self._prefix = "" if not import_scope else import_scope.rstrip("/") + "/"

    def node(self, name: str) -> Node:
        element = self._graph.as_graph_element(self._prefix + name, allow_tensor=False)
        assert isinstance(element, Node)
        return element

    def output(self, name: str) -> Output:
        return self._graph.get_tensor_by_name(self._prefix + name)


def variable_from_proto(message: Any, import_scope: str | None) -> ExistingVariable:
    """Return the variable described by a message; its nodes must be in the default graph.

    Raises: InvalidTypeError: it is not a `VariableDef`.
    """
    if not isinstance(message, proto.VariableDef):
        raise errors.InvalidTypeError(f"variable_def must be a VariableDef, got {message!r}")
    names = _Names(get_default_graph(), import_scope)
    initializer = names.node(message.initializer_name)
    initial = message.initial_value_name
    part = None
    if message.HasField("save_slice_info_def"):
        info = message.save_slice_info_def
        prefix = f"{import_scope}/" if import_scope else ""
        part = SaveSliceInfo(
            prefix + info.full_name, info.full_shape, info.var_offset, info.var_shape
        )
    return ExistingVariable(
        message.is_resource,
        names.output(message.variable_name),
        names.output(message.snapshot_name),
        initializer,
        names.output(initial) if initial else None,
        message.trainable,
        message.synchronization,
        message.aggregation,
        part,
    )


writers.register("VariableDef", variable_to_proto)
readers.register("VariableDef", variable_from_proto)
