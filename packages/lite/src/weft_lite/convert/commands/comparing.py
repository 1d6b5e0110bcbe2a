"""`weft-lite compare`: lite beside the full runtime, node by node."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Set
from typing import Any

from weft_exec.session.session import Session
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Output
from weft_lite.commands import output, running
from weft_lite.convert.agreement import difference
from weft_lite.convert.commands.errors import plain_errors
from weft_lite.convert.sources import imported, read_definition
from weft_lite.errors import InvalidArgumentError
from weft_lite.interpreter import Interpreter
from weft_lite.watching import Op, ops_of, watched

DIFFERENT = 1
_INT8 = "/int8"


def call(arguments: argparse.Namespace) -> int:
    """Run the file and the graph on the same inputs, and compare results of the same name."""
    with plain_errors():
        graph = imported(read_definition(arguments.graph))
        interpreter = running.opened(arguments)
        values = _values(interpreter, {node.name for node in graph.get_operations()})
        wanted = _wanted(graph, interpreter, [name for _, name, _ in values])
        rows, first = [], ""
        for op, name, value in values:
            if name not in wanted:
                continue
            apart = difference([value], [wanted[name]])
            if not apart <= arguments.limit and not first:
                first = name
            if arguments.all or first == name:
                rows.append([op.place, op.kind, name, f"{apart:.3g}"])
    output.table(["op", "kind", "node", "difference"], rows)
    if not first:
        word = f"{len(wanted)} nodes agree within {arguments.limit:g} of their largest values"
        output.table(["", ""], [["", word]])
    return DIFFERENT if first else 0


def _values(interpreter: Interpreter, nodes: Set[str]) -> list[tuple[Op, str, Any]]:
    """Return the results of each op outside of subgraphs, with the names of their nodes.

    An output named by a signature has the name of the node that its op was converted from.
    """
    ops, found, depth = ops_of(interpreter), [], 0
    details = interpreter.get_tensor_details()

    def watch(number: int, ended: bool) -> None:
        nonlocal depth
        depth += -1 if ended else 1
        if not ended or depth:
            return
        for tensor in ops[number].outputs:
            value = interpreter.get_tensor(tensor)
            name = details[tensor]["name"]
            if name.endswith(_INT8):
                name, (scale, zero) = name.removesuffix(_INT8), details[tensor]["quantization"]
                value = (value.astype("float32") - zero) * scale
            if name.partition(":")[0] not in nodes:
                name = ops[number].name
            found.append((ops[number], name, value))

    watched(interpreter, watch)
    return found


def _wanted(graph: Graph, interpreter: Interpreter, names: list[str]) -> Mapping[str, Any]:
    """Return the graph's values of the nodes of these names, as far as it has them."""
    known = {node.name: node for node in graph.get_operations()}

    def output_of(name: str) -> Output | None:
        node, _, index = name.partition(":")
        outputs = known[node].outputs if node in known else ()
        return outputs[int(index or 0)] if int(index or 0) < len(outputs) else None

    feeds = {}
    for each in interpreter.get_input_details():
        source = output_of(each["name"])
        if source is None:
            raise InvalidArgumentError(f"the graph has no input {each['name']!r}")
        feeds[source] = interpreter.get_tensor(each["index"])
    fetches = {name: found for name in names if (found := output_of(name)) is not None}
    with Session(graph=graph) as session:
        wanted: dict[str, Any] = session.run(fetches, feeds)
    return wanted
