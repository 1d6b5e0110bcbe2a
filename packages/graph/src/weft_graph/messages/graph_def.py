"""Conversion of graphs and nodes to `GraphDef` and `NodeDef` messages."""

from __future__ import annotations

__all__ = ["GRAPH_DEF_VERSION", "GRAPH_DEF_VERSION_MIN_CONSUMER", "GRAPH_DEF_VERSION_MIN_PRODUCER"]

from typing import Any, Final

import numpy as np

from weft_graph import proto
from weft_graph.ir.graph import Graph
from weft_graph.ir.message_conversions import writers
from weft_graph.ir.node import Node
from weft_graph.messages.attr_value import declared_kind, fill_attr, shape_to_proto
from weft_tensor import errors

GRAPH_DEF_VERSION: Final = 134
"""The written version of the GraphDef format, that of TensorFlow 1.15."""

GRAPH_DEF_VERSION_MIN_CONSUMER: Final = 0
"""The oldest reader version that can read written graphs."""

GRAPH_DEF_VERSION_MIN_PRODUCER: Final = 0
"""The oldest writer version whose graphs can be read."""

_LARGE: Final = 2**16
"""Minimum number of bytes for which an array is assumed to take most of the message of its node."""

SHAPES_ATTR: Final = "_output_shapes"

GRADIENT: Final = "_gradient"
"""Attribute of a definition: the name of the gradient function."""


def graph_to_def(graph: Graph, from_version: int = 0, add_shapes: bool = False) -> proto.GraphDef:
    """Return the graph as a `GraphDef`.

    Args:
      from_version: write only the nodes after the first `from_version`.
      add_shapes: write the static shapes of outputs to the attribute `_output_shapes`.
    Raises: InvalidArgumentError: the message would have 2 GiB or more.
    """
    message = proto.GraphDef()
    fill_graph_def(message, graph, from_version, add_shapes)
    return message


def fill_graph_def(
    message: proto.GraphDef, graph: Graph, from_version: int = 0, add_shapes: bool = False
) -> None:
    """Write a graph to an empty `GraphDef`; see `graph_to_def`."""
    message.versions.CopyFrom(versions_of(graph))
    size = 0
    for node in graph.nodes[from_version:]:
        node_def = message.node.add()
        fill_node_def(node_def, node, add_shapes)
        size += _large_bytes(node) or node_def.ByteSize()
        if size >= 2**31:
            raise errors.InvalidArgumentError(
                "the graph does not fit into a GraphDef (2 GiB at most); "
                "weft_graph.serialize.write_graph has no such limit",
                op=node.type,
                node=node.name,
            )
    for name in graph.functions:
        definition = graph.functions.definition(name)
        message.library.function.append(definition)
        gradient = gradient_name(definition)
        if gradient:
            message.library.gradient.add(function_name=name, gradient_func=gradient)


def _large_bytes(node: Node) -> int:
    """Return the size of the large arrays among the attributes; protobuf would encode them."""
    arrays = [value for value in node.attrs.values() if isinstance(value, np.ndarray)]
    large = [value.nbytes for value in arrays if value.nbytes >= _LARGE and value.dtype != object]
    return sum(large)


def versions_of(graph: Graph) -> proto.VersionDef:
    """Return the versions of a graph: the current ones, or older ones of an imported graph."""
    producer, consumer = graph.versions or (GRAPH_DEF_VERSION, GRAPH_DEF_VERSION_MIN_CONSUMER)
    return proto.VersionDef(producer=producer, min_consumer=consumer)


def note_versions(graph: Graph, versions: proto.VersionDef) -> None:
    """Record the version of an imported graph in a graph."""
    current = versions_of(graph)
    producer = min(current.producer, versions.producer)
    graph.versions = (producer, max(current.min_consumer, versions.min_consumer))


def node_to_def(node: Node, add_shapes: bool = False) -> proto.NodeDef:
    """Return the node as a `NodeDef`."""
    message = proto.NodeDef()
    fill_node_def(message, node, add_shapes)
    return message


def fill_node_def(message: proto.NodeDef, node: Node, add_shapes: bool) -> None:
    """Write `node` into an empty `NodeDef`."""
    message.name = node.name
    message.op = node.type
    message.device = node.device
    message.input.extend(
        [s.node.name if s.index == 0 else f"{s.node.name}:{s.index}" for s in node.inputs]
    )
    message.input.extend([f"^{control.name}" for control in node.controls])
    for name, value in node.attrs.items():
        try:
            kind = declared_kind(node.op_def, name, value)
            fill_attr(message.attr[name], value, kind, node.attrs)
        except (errors.OpError, TypeError, ValueError) as cause:
            raise errors.InvalidArgumentError(
                f"attribute {name} cannot be written to a NodeDef: {cause}",
                op=node.type,
                node=node.name,
            ) from cause
    if add_shapes and node.outputs:
        shapes: Any = message.attr[SHAPES_ATTR].list.shape
        shapes.extend([shape_to_proto(output.dims) for output in node.outputs])


def gradient_name(definition: Any) -> str:
    """Return the name of the gradient function, or ""."""
    return definition.attr[GRADIENT].s.decode() if GRADIENT in definition.attr else ""


writers.register("GraphDef", graph_to_def)
writers.register("NodeDef", node_to_def)
writers.register("VersionDef", versions_of)
