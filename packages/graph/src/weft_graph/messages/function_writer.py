"""Conversion of functions to `FunctionDef` messages."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from weft_graph import proto
from weft_graph.control_flow.records import records_of
from weft_graph.functions.body import is_variable
from weft_graph.functions.function import Function
from weft_graph.ir.message_conversions import writers
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_signature import OpDef
from weft_graph.messages.attr_value import attr_to_proto, kind_of, shape_to_proto
from weft_graph.messages.graph_def import GRADIENT, fill_node_def

RESULTS: Final = "_results"
"""Attribute: the number of results; further outputs are values saved for gradients."""

CAPTURED: Final = "_captured"
"""Attribute: the number of captured inputs, which are the last ones."""

CONTEXTS: Final = "_control_flow"
"""Attribute: the contexts as JSON; readers that ignore it only lose gradients."""

SHAPES: Final = "_output_shapes"


def function_to_def(function: Function) -> proto.FunctionDef:
    """Return the `FunctionDef` of a function.

    Raises: InvalidArgumentError: a node cannot be represented in a message.
    """
    return _Writer(function).write()


writers.register("FunctionDef", function_to_def)


def ports(op_def: OpDef, attrs: dict[str, Any]) -> list[tuple[str, int]]:
    """Return, for each output of a node, the name of its argument and its index in it."""
    all_ports: list[tuple[str, int]] = []
    for arg in op_def.outputs:
        if arg.list_attr is not None:
            count = len(attrs[arg.list_attr])
        else:
            count = 1 if arg.number_attr is None else attrs[arg.number_attr]
        all_ports += [(arg.name, i) for i in range(count)]
    return all_ports


class _Writer:
    def __init__(self, function: Function) -> None:
        self._function = function
        self._message = proto.FunctionDef()
        self._nodes = self._nodes_to_write()
        self._used_names = {node.name for node in self._nodes}
        self._names: dict[Output, str] = {}
        self._ports: dict[Node, list[tuple[str, int]]] = {}
        self._results = {output.node for output in function.outputs}

    def _nodes_to_write(self) -> list[Node]:
        """Return the nodes to write, including all nodes of the contexts that contain them."""
        function = self._function
        members = dict.fromkeys(function.nodes)
        if any(node.context is not None for node in members):
            arguments = {output.node for output in function.inputs}
            members.update(
                (node, None)
                for node in function.graph.nodes
                if node.context is not None and node not in arguments
            )
            pending = list(members)
            while pending:
                node = pending.pop()
                for predecessor in (*[s.node for s in node.inputs], *node.controls):
                    if predecessor not in members and predecessor not in arguments:
                        members[predecessor] = None
                        pending.append(predecessor)
        return sorted(members, key=lambda node: node.index)

    def write(self) -> proto.FunctionDef:
        """Return the message."""
        function, message = self._function, self._message
        message.signature.name = function.name
        message.signature.is_stateful = function.stateful
        message.signature.description = function.description
        self._add_inputs()
        for node in self._nodes:
            self._add_node(node)
        self._add_outputs()
        self._add_attrs()
        return message

    # ------------------------------------------------------------------ signature

    def _add_inputs(self) -> None:
        function, signature = self._function, self._message.signature
        for i, output in enumerate(function.inputs):
            name = self._argument_name(function.input_names[i], f"arg_{i}")
            self._names[output] = name
            arg = signature.input_arg.add(name=name)
            arg.type = output.dtype.base_dtype.as_datatype_enum
            arg.is_ref = output.dtype.is_ref
            if is_variable(output):
                attrs = output.node.attrs
                shape = shape_to_proto(attrs["shape"])
                arg.handle_data.add(dtype=attrs["dtype"].as_datatype_enum, shape=shape)
            else:
                shapes = self._message.arg_attr[i].attr[SHAPES].list.shape
                shapes.append(shape_to_proto(output.dims))

    def _add_outputs(self) -> None:
        function, message = self._function, self._message
        used_names: set[str] = set()
        for i, output in enumerate(function.outputs):
            output_name = function.output_names[i] if i < len(function.output_names) else ""
            name = _unused_name(
                output_name or _to_argument_name(output.node.name) or "output", used_names
            )
            arg = message.signature.output_arg.add(name=name)
            arg.type = output.dtype.base_dtype.as_datatype_enum
            message.ret[name] = self._tensor(output)
        used_names = set()
        for node in function.effects:
            name = _unused_name(_to_argument_name(node.name) or "effect", used_names)
            message.signature.control_output.append(name)
            message.control_ret[name] = node.name

    def _argument_name(self, preferred: str, otherwise: str) -> str:
        return _unused_name(_to_argument_name(preferred) or otherwise, self._used_names)

    # ------------------------------------------------------------------ nodes

    def _add_node(self, node: Node) -> None:
        message = self._message.node_def.add()
        fill_node_def(message, node, add_shapes=node in self._results)
        del message.input[:]
        message.input.extend([self._tensor(source) for source in node.inputs])
        message.input.extend([f"^{control.name}" for control in node.controls])
        if "_class" in message.attr:
            self._part_from_arguments(message.attr["_class"].list.s)

    def _part_from_arguments(self, groups: Any) -> None:
        """Drop colocation requests with arguments, which have no device."""
        arguments = {f"loc:@{output.node.name}".encode() for output in self._function.inputs}
        groups[:] = [group for group in groups if group not in arguments]

    def _tensor(self, output: Output) -> str:
        """Return the name of an output in function notation: an argument, or node:result:index."""
        name = self._names.get(output)
        if name is None:
            node = output.node
            port_names = self._ports.get(node)
            if port_names is None:
                port_names = self._ports[node] = ports(node.op_def, node.attrs)
            arg, position = port_names[output.index]
            name = self._names[output] = f"{node.name}:{arg}:{position}"
        return name

    # ------------------------------------------------------------------ attributes

    def _add_attrs(self) -> None:
        function, message = self._function, self._message
        attrs: dict[str, Any] = dict(function.attrs)
        if function.results != len(function.outputs):
            attrs[RESULTS] = function.results
        if function.captured_count:
            attrs[CAPTURED] = function.captured_count
        if function.gradient_name is not None:
            attrs[GRADIENT] = function.gradient_name
        contexts = self._contexts()
        if contexts:
            attrs[CONTEXTS] = contexts
        for key, value in attrs.items():
            message.attr[key].CopyFrom(attr_to_proto(value, kind_of(value), attrs))

    def _contexts(self) -> str:
        graph = self._function.graph
        records = records_of(graph, self._nodes)
        if not records:
            return ""

        def node(position: int) -> str:
            return graph.nodes[position].name if position >= 0 else ""

        rows = [
            {
                "name": record.name,
                "kind": record.kind,
                "outer": record.outer,
                "forward": record.forward,
                "partner": record.partner,
                "pivot": node(record.pivot),
                "pred": [node(record.pred[0]), record.pred[1]],
                "maximum": [node(record.maximum[0]), record.maximum[1]],
                "parallel_iterations": record.parallel_iterations,
                "back_prop": record.back_prop,
                "swap_memory": record.swap_memory,
                "variables": [node(variable) for variable in record.variables],
                "members": [node(member) for member in record.members],
            }
            for record in records
        ]
        self._refer_to_arguments(rows)
        return json.dumps(rows, separators=(",", ":"), sort_keys=True)

    def _refer_to_arguments(self, rows: Sequence[dict[str, Any]]) -> None:
        """Replace the names of predicates and limits that are arguments by the arguments' names."""
        names = {output.node.name: self._names[output] for output in self._function.inputs}
        for row in rows:
            for key in ("pred", "maximum"):
                row[key][0] = names.get(row[key][0], row[key][0])


def _to_argument_name(name: str) -> str:
    """Convert a name to a valid argument name: lowercase letters, digits and underscores."""
    text = re.sub(r"[^a-z0-9_]", "_", name.rpartition("/")[2].lower()).strip("_")
    return f"n{text}" if text[:1].isdigit() else text


def _unused_name(base_name: str, used_names: set[str]) -> str:
    name, number = base_name, 0
    while name in used_names:
        number += 1
        name = f"{base_name}_{number}"
    used_names.add(name)
    return name
