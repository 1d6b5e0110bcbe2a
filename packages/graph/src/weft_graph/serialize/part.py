"""The serialized form of a part: one device's share of a step, sent to another process.

It is a graph (`schema/graph.fbs`) of one segment: the part's `_Arg` nodes, whose `index` is the
position of a feed in the whole, its other nodes in the order in which they should run, and a
`_Fetch` node for each value that the part returns.
"""

from __future__ import annotations

from typing import Any

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


def part_to_bytes(part: Part) -> bytes:
    """Return the durable form of a part.

    Raises: InvalidArgumentError: an attribute has no durable form.
    """
    return b"".join(part_pieces(part))


def part_pieces(part: Part) -> list[bytes | memoryview]:
    """Return the same, as buffers one after another; constants are where they are."""
    step = part.step
    args = [feed.node for feed in step.feeds]
    argument_nodes = set(args)
    nodes = [*args, *[node for node in part.nodes if node not in argument_nodes]]
    graph = Graph()
    graph.functions = _called(nodes, step.graph.functions)
    outputs: dict[Output, Output] = {}
    copy_nodes(nodes, graph, outputs)
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
    """Return the part that `part_to_bytes` wrote.

    Args:
      data: bytes, which are not trusted.
      limits: `max_bytes` and `max_nodes`, as of `read_graph`.
    Raises: OpError: as `read_graph`, or InvalidArgumentError: the graph is not that of a part.
    """
    graph = read_graph(memoryview(data), internal_names=True, **limits)
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


def _called(nodes: list[Node], library: Library) -> Library:
    """Return the functions that nodes name in their attributes, and those that these call."""
    called = Library()
    for node in nodes:
        for value in node.attrs.values():
            for item in value if isinstance(value, tuple) else (value,):
                if isinstance(item, NameAttrs) and item.name in library:
                    called.add(library[item.name])
    return called


def _check_positions(nodes: list[Node]) -> None:
    """Refuse two nodes for one position of the signature."""
    positions: set[int] = set()
    for node in nodes:
        index = node.attrs["index"]
        if index in positions:
            raise _refused(node, f"another {node.type} has the index {index}, too")
        positions.add(index)


def _check_order(node: Node) -> None:
    """Refuse a node that would run before something it waits for."""
    needs = [source.node for source in node.inputs if not is_back_edge(node, source)]
    for need in (*needs, *node.controls):
        if need.index >= node.index:
            raise _refused(node, f"it comes before {need.name!r}, which it needs")


def _check_added(node: Node) -> None:
    """Refuse values that planning would not set for the attributes it adds.

    Their types were checked already.
    """
    if node.type == FETCH and (node.consumers or node.controls):
        raise _refused(node, "other nodes wait for it, or it for them")
    if node.role in (Role.SEND, Role.RECEIVE):
        for name in ("tensor_name", "send_device", "recv_device"):
            if not isinstance(node.attrs[name], str):
                raise _refused(node, f"{name} is no text")
    if any(i >= len(node.outputs) for i in node.attrs.get("_used", ())):
        raise _refused(node, f"_used must be places among its {len(node.outputs)} outputs")


def _refused(node: Node, reason: str) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(f"no part of a step: {reason}", op=node.type, node=node.name)
