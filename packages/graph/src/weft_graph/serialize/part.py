"""The serialized form of a part: one device's share of a step, sent to another process.

It is a graph (`schema/graph.fbs`) of one segment: the part's `_Arg` nodes, whose `index` is that of
a feed of the whole step, its other nodes in execution order, and a `_Fetch` node for each value
that the part returns.
"""

from __future__ import annotations

from typing import Any, Final

from weft_graph.ir.func_attr import NameAttrs
from weft_graph.ir.graph import Graph
from weft_graph.ir.library import Library
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import lookup_op
from weft_graph.ir.step_graph import Part, StepGraph, copy_nodes, is_back_edge
from weft_graph.ir.traits import Role
from weft_graph.ops.step import FETCH
from weft_graph.serialize.reader import read_graph
from weft_graph.serialize.writer import graph_pieces
from weft_tensor import errors

ORIGINS: Final = "_origins"
"""Attribute of nodes in serialized parts: the names of the user's nodes that they compute."""


def part_to_bytes(part: Part) -> bytes:
    """Serialize a part.

    Raises: InvalidArgumentError: an attribute cannot be serialized.
    """
    return b"".join(part_pieces(part))


def part_pieces(part: Part) -> list[bytes | memoryview]:
    """Return the serialized form of a part as a list of buffers; constants are not copied."""
    step = part.step
    args = [feed.node for feed in step.feeds]
    argument_nodes = set(args)
    nodes = [*args, *[node for node in part.nodes if node not in argument_nodes]]
    graph = Graph()
    graph.functions = _collect_called(nodes, step.graph.functions)
    outputs: dict[Output, Output] = {}
    for node, counterpart in copy_nodes(nodes, graph, outputs).items():
        origins = step.graph.origins.of(node.name)
        if origins != (node.name,):
            counterpart.attrs = {**counterpart.attrs, ORIGINS: origins}
    for position, fetch in zip(part.fetches, step.fetches, strict=True):
        value = step.isolated.get(fetch, fetch)  # derivation isolates fetches, each time anew
        dtype = value.dtype.base_dtype
        graph.add_derived(
            value.node,
            lookup_op(FETCH),
            graph.unique_name(f"_fetch{position}"),
            (outputs[value],),
            {"T": dtype, "index": position},
        )
    return graph_pieces(graph)


def part_from_bytes(data: Any, **limits: Any) -> Part:
    """Deserialize a part written by `part_to_bytes`.

    Args:
      data: bytes, which are untrusted.
      limits: `max_bytes` and `max_nodes`, as in `read_graph`.
    Raises: OpError: as `read_graph`, or InvalidArgumentError: the graph is not that of a part.
    """
    graph = read_graph(memoryview(data), internal_names=True, **limits)
    _note_origins(graph)
    args = [node for node in graph.nodes if node.role is Role.ARGUMENT]
    ends = [node for node in graph.nodes if node.type == FETCH]
    for nodes in (args, ends):
        _check_positions(nodes)
    for node in graph.nodes:
        _check_added(node)
        _check_order(node)
    fetches = [end.inputs[0] for end in ends]
    positions = [end.attrs["index"] for end in ends]
    graph.remove_nodes(ends, reason="part")
    fetched = {output.node for output in fetches}
    targets = [node for node in graph.nodes if not node.consumers and node not in fetched]
    step = StepGraph(graph, [arg.outputs[0] for arg in args], fetches, targets)
    return Part(step, graph.nodes, [arg.attrs["index"] for arg in args], positions)


def _note_origins(graph: Graph) -> None:
    """Move the names of the user's nodes from an attribute of the nodes to the graph's origins."""
    for node in graph.nodes:
        if ORIGINS in node.attrs:
            attrs = dict(node.attrs)
            names = attrs.pop(ORIGINS)
            node.attrs = attrs
            if node.name not in names and names:
                graph.origins.note_derived(node.name, names[0])
            for name in names:
                graph.origins.note_replaced(node.name, name)


def _collect_called(nodes: list[Node], library: Library) -> Library:
    """Return the functions in attributes of nodes, and the functions that these call."""
    called = Library()
    for node in nodes:
        for value in node.attrs.values():
            for item in value if isinstance(value, tuple) else (value,):
                if isinstance(item, NameAttrs) and item.name in library:
                    called.add(library[item.name])
    return called


def _check_positions(nodes: list[Node]) -> None:
    """Reject two nodes with the same index of the signature."""
    positions: set[int] = set()
    for node in nodes:
        index = node.attrs["index"]
        if index in positions:
            raise _unsupported_part_error(node, f"the index {index} is used by another {node.type}")
        positions.add(index)


def _check_order(node: Node) -> None:
    """Reject a node that is ordered before a node that it waits for."""
    needs = [source.node for source in node.inputs if not is_back_edge(node, source)]
    for need in (*needs, *node.controls):
        if need.index >= node.index:
            raise _unsupported_part_error(node, f"it precedes its input {need.name!r}")


def _check_added(node: Node) -> None:
    """Reject invalid values of attributes that planning adds, whose types are already checked."""
    if node.type == FETCH and (node.consumers or node.controls):
        raise _unsupported_part_error(node, "it has control edges to or from other nodes")
    if node.role in (Role.SEND, Role.RECEIVE):
        for name in ("tensor_name", "send_device", "recv_device"):
            if not isinstance(node.attrs[name], str):
                raise _unsupported_part_error(node, f"{name} is not text")
    if any(i >= len(node.outputs) for i in node.attrs.get("_used", ())):
        raise _unsupported_part_error(
            node, f"_used must be indices of its {len(node.outputs)} outputs"
        )


def _unsupported_part_error(node: Node, reason: str) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(
        f"not a part of a step: {reason}", op=node.type, node=node.name
    )
