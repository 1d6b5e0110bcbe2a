"""`weft-lite compare`: comparison of lite with the full runtime, node by node."""

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
from weft_lite.convert.sources import import_definition, read_definition
from weft_lite.errors import InvalidArgumentError
from weft_lite.interpreter import Interpreter
from weft_lite.watching import Op, invoke_watched, ops_of

DIFFERENT = 1
_INT8 = "/int8"


def call(arguments: argparse.Namespace) -> int:
    """Run the file and the graph on the same inputs, and compare results of the same name."""
    with plain_errors():
        graph = import_definition(read_definition(arguments.graph))
        interpreter = running.open_interpreter(arguments)
        values = _values(interpreter, {node.name for node in graph.get_operations()})
        expected = _request(graph, interpreter, [name for _, name, _ in values])
        rows, first = [], ""
        for op, name, value in values:
            if name not in expected:
                continue
            distance = difference([value], [expected[name]])
            if not distance <= arguments.limit and not first:
                first = name
            if arguments.all or first == name:
                rows.append([op.position, op.kind, name, f"{distance:.3g}"])
    output.table(["op", "kind", "node", "difference"], rows)
    if not first:
        word = f"{len(expected)} nodes agree within {arguments.limit:g} of their largest values"
        output.table(["", ""], [["", word]])
    return DIFFERENT if first else 0


def _values(interpreter: Interpreter, nodes: Set[str]) -> list[tuple[Op, str, Any]]:
    """Return the results of ops outside subgraphs, with the names of their nodes.

    An output in a signature has the name of the node from which its op was converted.
    """
    ops, result, depth = ops_of(interpreter), [], 0
    details = interpreter.get_tensor_details()

    def watch(number: int, op_end: bool) -> None:
        nonlocal depth
        depth += -1 if op_end else 1
        if not op_end or depth:
            return
        for tensor in ops[number].outputs:
            value = interpreter.get_tensor(tensor)
            name = details[tensor]["name"]
            if name.endswith(_INT8):
                name, (scale, zero) = name.removesuffix(_INT8), details[tensor]["quantization"]
                value = (value.astype("float32") - zero) * scale
            if name.partition(":")[0] not in nodes:
                name = ops[number].name
            result.append((ops[number], name, value))

    invoke_watched(interpreter, watch)
    return result


def _request(graph: Graph, interpreter: Interpreter, names: list[str]) -> Mapping[str, Any]:
    """Return the graph's values of the nodes with these names, if they exist."""
    nodes = {node.name: node for node in graph.get_operations()}

    def output_of(name: str) -> Output | None:
        node, _, index = name.partition(":")
        outputs = nodes[node].outputs if node in nodes else ()
        return outputs[int(index or 0)] if int(index or 0) < len(outputs) else None

    feeds = {}
    for input_detail in interpreter.get_input_details():
        source = output_of(input_detail["name"])
        if source is None:
            raise InvalidArgumentError(f"the graph has no input {input_detail['name']!r}")
        feeds[source] = interpreter.get_tensor(input_detail["index"])
    fetches = {name: output for name in names if (output := output_of(name)) is not None}
    with Session(graph=graph) as session:
        expected: dict[str, Any] = session.run(fetches, feeds)
    return expected
