"""Nodes of a graph from `NodeDef` messages, which are untrusted."""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from weft_graph import proto
from weft_graph.ir.builder import user_line
from weft_graph.ir.gc_pause import pause_gc
from weft_graph.ir.graph import Graph, device_string
from weft_graph.ir.later_attrs import has_no_effect, informative
from weft_graph.ir.node import Node, Output
from weft_graph.ir.node_checks import Signature, check_attrs, check_name, infer_shapes
from weft_graph.ir.op_def import lookup_op
from weft_graph.ir.op_signature import REQUIRED, OpDef
from weft_graph.ir.traits import Role
from weft_graph.messages.attr_value import attr_from_proto
from weft_graph.messages.graph_def import SHAPES_ATTR
from weft_graph.messages.tensor_proto import Budget
from weft_tensor import errors
from weft_tensor.shape import format_dims, merge_dims

COLOCATION_ATTR = "_class"
COLOCATION_PREFIX = "loc:@"


def add_all(graph: Graph, graph_def: proto.GraphDef, values: dict[str, Any]) -> dict[str, Node]:
    """Add the nodes of a function body; return them by their names in the body.

    Args:
      values: replacements of arguments: "node:port" to an output, "^node" to a node.
    Raises: as `import_graph_def`.
    """
    importer = Importer(graph, graph_def, "", values, None, all_used=False)
    with pause_gc(), graph.under_construction():
        importer.parse()
        importer.add_nodes()
    return {name: parsed.node for name, parsed in importer.nodes.items() if parsed.node}


def tensor_name(text: str) -> str:
    """Return the name of a tensor with its port, which may be omitted if it is 0."""
    node, port = _parse_input(text)
    return f"{node}:{port}"


def _parse_input(text: str) -> tuple[str, int]:
    name, colon, port = text.rpartition(":")
    if not colon:
        return text, 0
    if not (port.isascii() and port.isdigit() and len(port) < 10):
        raise errors.InvalidArgumentError(f"{text!r} does not name a tensor (node:port)")
    return name, int(port)


def _unknown_op(op: str, nodes: Sequence[str], library: Container[str]) -> str:
    hint = ", a function of the graph's library" if op in library else ""
    others_text = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
    return f"{op} (node {nodes[0]!r}{others_text}{hint})"


def refuse_unknown_ops(graph_def: proto.GraphDef, library: Container[str]) -> None:
    """Reject all undeclared op types with one error."""
    unknown: dict[str, list[str]] = {}
    cause = ""
    for node_def in graph_def.node:
        if node_def.op not in unknown:
            try:
                lookup_op(node_def.op)
                continue
            except errors.NotFoundError as error:
                cause = error.message
        unknown.setdefault(node_def.op, []).append(node_def.name)
    if not unknown:
        return
    if len(unknown) > 1:
        kinds = [_unknown_op(op, nodes, library) for op, nodes in sorted(unknown.items())]
        message = f"{len(unknown)} op types are not declared: {', '.join(kinds)}"
        raise errors.NotFoundError(message, details={"ops": sorted(unknown)})
    ((op, nodes),) = unknown.items()
    hint = " (a function of the graph's library)" if op in library else ""
    raise errors.NotFoundError(
        f"the op type {op!r}{hint} of node {nodes[0]!r} is not declared: {cause}",
        op=op,
        node=nodes[0],
        details={"ops": [op]},
    )


def as_text(name: Any) -> str:
    """Return a name, which may be bytes, as str."""
    return name.decode() if isinstance(name, bytes) else str(name)


class _Parsed:
    """A NodeDef with decoded strings and attributes; inputs are still names."""

    __slots__ = ("attrs", "controls", "index", "inputs", "node", "node_def", "op_def", "shapes")

    def __init__(self, index: int, node_def: proto.NodeDef) -> None:
        self.index = index
        self.node_def = node_def
        self.inputs: list[tuple[str, int]] = []
        self.controls: list[str] = []
        self.op_def: OpDef
        self.attrs: dict[str, Any] = {}
        self.shapes: Any = None
        self.node: Node | None = None


class Importer:
    """Importer of one message into a graph: `parse` checks the nodes, `add_nodes` creates them."""

    def __init__(
        self,
        graph: Graph,
        graph_def: proto.GraphDef,
        scope: str,
        values: dict[str, Any],
        producer: proto.OpList | None,
        all_used: bool = True,
    ) -> None:
        self.all_used = all_used
        self.graph = graph
        self.graph_def = graph_def
        self.scope = scope
        self.values = values
        self.nodes: dict[str, _Parsed] = {}
        self.order: list[_Parsed] = []
        self.budget = Budget(size=graph_def.ByteSize())
        self.line = user_line()
        self.producer = {op.name: op for op in producer.op} if producer is not None else {}

    @property
    def new_nodes(self) -> list[Node]:
        """The new nodes."""
        return [parsed.node for parsed in self.order if parsed.node is not None]

    # ------------------------------------------------------- before the graph changes

    def parse(self) -> None:
        """Parse and sort all nodes, without adding any."""
        refuse_unknown_ops(self.graph_def, self.graph.functions)
        for index, node_def in enumerate(self.graph_def.node):
            try:
                parsed = self._parse_node(index, node_def)
            except errors.OpError as error:
                raise error.with_context(op=node_def.op, node=node_def.name) from error.__cause__
            self.nodes[node_def.name] = parsed
        used = self._check_names()
        unknown = [k for k in self.values if k not in used and not self._has(k)]
        if unknown and self.all_used:
            raise errors.InvalidArgumentError(
                f"input_map has names that are not in graph_def: {', '.join(unknown)}"
            )
        self.order = self._sort()

    def _has(self, key: str) -> bool:
        return key.lstrip("^").rpartition(":")[0] in self.nodes or key[1:] in self.nodes

    def _parse_node(self, index: int, node_def: proto.NodeDef) -> _Parsed:
        check_name(node_def.name)
        if node_def.name in self.nodes:
            raise errors.InvalidArgumentError(f"the name {node_def.name!r} is not unique")
        parsed = _Parsed(index, node_def)
        for text in node_def.input:
            if text.startswith("^"):
                parsed.controls.append(text[1:])
            elif parsed.controls:
                raise errors.InvalidArgumentError(f"the input {text!r} comes after a control input")
            else:
                parsed.inputs.append(_parse_input(text))
        parsed.op_def = lookup_op(node_def.op)
        parsed.attrs = self._attrs(parsed.op_def, node_def)
        parsed.shapes = parsed.attrs.pop(SHAPES_ATTR, None)
        return parsed

    def _attrs(self, op_def: OpDef, node_def: proto.NodeDef) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name in sorted(node_def.attr):
            message = node_def.attr[name]
            declared = op_def.attrs.get(name)
            if declared is None and not name.startswith("_"):
                if self._drop(op_def.name, name, message):
                    continue
                raise errors.InvalidArgumentError(
                    f"{op_def.name} has no attribute {name!r}; it has {sorted(op_def.attrs)}. "
                    "A newer program may have written the graph"
                )
            kind = None if declared is None else declared.type
            location = f"attribute {name} of {node_def.name}"
            values[name] = attr_from_proto(message, kind, location, self.budget)
        attrs = {}
        for name, attr in op_def.attrs.items():
            if name in values:
                attrs[name] = values.pop(name)
            elif attr.default is not REQUIRED:
                attrs[name] = attr.default
        attrs.update(values)
        return check_attrs(op_def, attrs)

    def _drop(self, op: str, name: str, message: proto.AttrValue) -> bool:
        """Return True if an undeclared attribute has no effect and may be dropped.

        It has no effect if its value is the producer's default. For an unknown producer, the value
        must select the old behavior, because older writers omit the attribute.
        """
        if informative(op, name):
            return True
        producer = self.producer.get(op)
        for attr in producer.attr if producer is not None else ():
            if attr.name == name and attr.HasField("default_value"):
                return bool(attr.default_value == message)
        field = message.WhichOneof("value")
        if field is None or field in ("tensor", "func", "shape"):
            return False
        if field == "list":
            return not message.list.ListFields()
        return has_no_effect(op, name, getattr(message, field))

    def _check_names(self) -> set[str]:
        """Reject unknown inputs; return the used keys of the input map."""
        used: set[str] = set()
        for parsed in self.nodes.values():
            names = [(f"{n}:{p}", n) for n, p in parsed.inputs]
            names += [(f"^{n}", n) for n in parsed.controls]
            for key, name in names:
                if key in self.values:
                    used.add(key)
                elif name not in self.nodes:
                    raise errors.InvalidArgumentError(
                        f"the input {name!r} of node {parsed.node_def.name!r} is not in graph_def",
                        op=parsed.node_def.op,
                        node=parsed.node_def.name,
                    )
        return used

    def _sort(self) -> list[_Parsed]:
        """Return the nodes in topological order, with ties in the order of the message."""
        waiting: dict[str, int] = {}
        users: dict[str, list[_Parsed]] = {name: [] for name in self.nodes}
        for name, parsed in self.nodes.items():
            sources = [n for n, p in parsed.inputs if f"{n}:{p}" not in self.values]
            predecessors = [n for n in sources if not self._is_back_edge(parsed, n)]
            predecessors += [n for n in parsed.controls if f"^{n}" not in self.values]
            waiting[name] = len(predecessors)
            for source in predecessors:
                users[source].append(parsed)
        ready = [p.index for name, p in self.nodes.items() if not waiting[name]]
        by_index = list(self.nodes.values())
        order: list[_Parsed] = []
        while ready:
            parsed = by_index[heapq.heappop(ready)]
            order.append(parsed)
            for user in users[parsed.node_def.name]:
                waiting[user.node_def.name] -= 1
                if not waiting[user.node_def.name]:
                    heapq.heappush(ready, user.index)
        if len(order) < len(self.nodes):
            stuck = [name for name, count in waiting.items() if count]
            raise errors.InvalidArgumentError(
                f"{len(stuck)} nodes are on or after a cycle without loop ops: "
                f"{', '.join(stuck[:5])}{', ...' if len(stuck) > 5 else ''}"
            )
        return order

    def _is_back_edge(self, parsed: _Parsed, source: str) -> bool:
        if not _is_merge(parsed.op_def):
            return False
        return self.nodes[source].op_def.traits.role is Role.NEXT_ITERATION

    # -------------------------------------------------------------- changing the graph

    def add_nodes(self) -> None:
        """Add the nodes in order, then the back edges of loops; remove all of them on an error."""
        graph = self.graph
        parsed: _Parsed | None = None
        try:
            with graph.undo_on_error("failed import"):
                names = {p: graph.unique_name(p.node_def.name) for p in self.order}
                self._rename_frames()
                for parsed in self.order:
                    self._add(parsed, names[parsed])
                for parsed in self.order:
                    self._close_loop(parsed)
                parsed = None
                self._colocate(names)
                self._check_mapped()
        except errors.OpError as error:
            if parsed is None:
                raise
            raise error.with_context(
                op=parsed.node_def.op, node=parsed.node_def.name
            ) from error.__cause__

    def _check_mapped(self) -> None:
        """Reject keys of the input map with a missing output of their node."""
        for key in self.values if self.all_used else ():
            name, _, port = key.rpartition(":")
            output = self.nodes.get(name)
            node = None if output is None else output.node
            if node is not None and port.isdigit() and int(port) >= max(len(node.outputs), 1):
                raise errors.InvalidArgumentError(
                    f"input_map has {key!r}, but {name!r} has {len(node.outputs)} outputs"
                )

    def _rename_frames(self) -> None:
        """Rename loop frames whose names clash with existing ones."""
        enters = [parsed for parsed in self.order if parsed.op_def.traits.role is Role.ENTER]
        if not enters:
            return
        present = [node for node in self.graph.nodes if node.role is Role.ENTER]
        frame_names = {node.attrs["frame_name"] for node in present} | self.graph.contexts.keys()
        renamed: dict[str, str] = {}
        for frame in dict.fromkeys(parsed.attrs["frame_name"] for parsed in enters):
            name, number = frame, 0
            while name in frame_names:
                number += 1
                name = f"{self.scope}{frame}" if number == 1 else f"{self.scope}{frame}_{number}"
            renamed[frame] = name
            frame_names.add(name)
            self.graph.reserve_name(name)
        for parsed in enters:
            parsed.attrs["frame_name"] = renamed[parsed.attrs["frame_name"]]

    def _add(self, parsed: _Parsed, name: str) -> None:
        inputs = [self._output(*source) for source in parsed.inputs]
        # Until its loop is closed, a Merge takes another of its inputs twice.
        values_present = [value for value in inputs if value is not None]
        if inputs and not values_present:
            raise errors.InvalidArgumentError(
                "a Merge must have an input that is not a loop's NextIteration"
            )
        values = tuple([values_present[0] if value is None else value for value in inputs])
        signature = Signature(parsed.op_def, parsed.attrs)
        signature.check(values, parsed.op_def.name, parsed.node_def.name)
        shapes = None
        if parsed.op_def.shape_rule is not None and len(values) == len(values_present):
            shapes = infer_shapes(parsed.op_def, values, parsed.attrs, parsed.node_def.name)
        controls = [self._control(control) for control in parsed.controls]
        scopes = self.graph.scopes
        # Whether a node needs the pivot of the context around it depends on what it waits for.
        early = controls if scopes.context is not None else []
        saved_devices, scopes.devices = scopes.devices, []
        try:
            with scopes.control(early) if early else nullcontext():
                node = self.graph.add_node(
                    parsed.op_def, name, values, parsed.attrs, signature.outputs, shapes, *self.line
                )
        finally:
            scopes.devices = saved_devices
        parsed.node = node
        self._merge_shapes(parsed, node)
        if controls and not early:
            interval = (*node.controls, *controls)
            self.graph.set_control_inputs(node, interval, reason="import")
        if parsed.node_def.device:
            node.device = device_string(parsed.node_def.device)
        if scopes.devices and COLOCATION_ATTR not in parsed.attrs:
            node.device = scopes.device_for(node)

    def _merge_shapes(self, parsed: _Parsed, node: Node) -> None:
        if parsed.shapes is None:
            return
        if not isinstance(parsed.shapes, tuple):
            raise errors.InvalidArgumentError(f"{SHAPES_ATTR} must be a list of shapes")
        if len(parsed.shapes) != len(node.outputs):
            raise errors.InvalidArgumentError(
                f"{SHAPES_ATTR} has {len(parsed.shapes)} shapes for {len(node.outputs)} outputs"
            )
        for output, shape in zip(node.outputs, parsed.shapes, strict=True):
            if not output.dtype.is_numpy_compatible:
                continue  # a handle is one here, and a pair of strings in older programs
            dims = getattr(shape, "_dims", None)
            try:
                output.dims = merge_dims(output.dims, dims)
            except errors.OpError as cause:
                raise errors.InvalidArgumentError(
                    f"{SHAPES_ATTR} has {format_dims(dims)} for output {output.index}, "
                    f"whose shape is {format_dims(output.dims)}"
                ) from cause

    def _output(self, name: str, port: int) -> Output | None:
        mapped: Output | None = self.values.get(f"{name}:{port}")
        if mapped is not None:
            return mapped
        node = self.nodes[name].node
        if node is None:
            return None
        if port >= len(node.outputs):
            raise errors.InvalidArgumentError(
                f"the input {name}:{port} does not exist: {name!r} has {len(node.outputs)} outputs"
            )
        return node.outputs[port]

    def _control(self, name: str) -> Node:
        mapped: Node | None = self.values.get(f"^{name}")
        node = mapped if mapped is not None else self.nodes[name].node
        assert node is not None
        return node

    def _close_loop(self, parsed: _Parsed) -> None:
        if not _is_merge(parsed.op_def):
            return
        node = parsed.node
        assert node is not None
        for position, source in enumerate(parsed.inputs):
            output = self._output(*source)
            assert output is not None
            if node.inputs[position] is not output:
                self.graph.replace_input(node, position, output, reason="import")
        if parsed.op_def.shape_rule is not None:
            shapes = infer_shapes(parsed.op_def, node.inputs, node.attrs, parsed.node_def.name)
            for output, dims in zip(node.outputs, shapes, strict=True):
                output.dims = merge_dims(output.dims, dims)

    def _colocate(self, names: Mapping[_Parsed, str]) -> None:
        for parsed in self.order:
            groups = parsed.attrs.get(COLOCATION_ATTR)
            if not groups:
                continue
            if not isinstance(groups, tuple):
                groups = (groups,)
            node = parsed.node
            assert node is not None
            node.attrs[COLOCATION_ATTR] = tuple(
                [
                    COLOCATION_PREFIX + names[colocated]
                    for colocated in self._other_nodes(parsed, groups)
                ]
            )
            leader = self.graph._by_name[node.colocation[0]]
            node.device = leader.device or node.device

    def _other_nodes(self, parsed: _Parsed, groups: Iterable[Any]) -> Iterator[_Parsed]:
        for group in groups:
            text = group.decode(errors="replace") if isinstance(group, bytes) else str(group)
            colocated = self.nodes.get(text.removeprefix(COLOCATION_PREFIX))
            if not text.startswith(COLOCATION_PREFIX) or colocated is None:
                raise errors.InvalidArgumentError(
                    f"node {parsed.node_def.name!r} is colocated with {text!r}, which is not in "
                    "graph_def",
                    op=parsed.node_def.op,
                    node=parsed.node_def.name,
                )
            yield colocated

    # ------------------------------------------------------------------------- results

    def element(self, name: str) -> Node | Output:
        """Return the node or output with the name `name` in the message."""
        if not isinstance(name, str | bytes):
            raise errors.InvalidTypeError(f"return_elements must be names, got {name!r}")
        text = as_text(name)
        node_name, port = _parse_input(text)
        parsed = self.nodes.get(node_name)
        if ":" in text and f"{node_name}:{port}" in self.values:
            return self.values[f"{node_name}:{port}"]  # type: ignore[no-any-return]
        if parsed is None or parsed.node is None:
            raise errors.InvalidArgumentError(f"return_elements: {text!r} is not in graph_def")
        if ":" not in text:
            return parsed.node
        if port >= len(parsed.node.outputs):
            raise errors.InvalidArgumentError(
                f"return_elements: {text!r} does not exist: {node_name!r} has "
                f"{len(parsed.node.outputs)} outputs"
            )
        return parsed.node.outputs[port]


def _is_merge(op_def: OpDef) -> bool:
    return op_def.traits.role is Role.MERGE
