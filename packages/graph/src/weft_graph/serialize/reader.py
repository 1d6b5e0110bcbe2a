"""Reader of graphs: checks the columns of a segment, then creates its nodes in one pass."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from google.protobuf.message import DecodeError

from weft_graph import proto
from weft_graph.control_flow.records import ContextRecord, restore
from weft_graph.ir.device_spec import DeviceSpec
from weft_graph.ir.gc_pause import pause_gc
from weft_graph.ir.graph import Graph
from weft_graph.ir.library import LazyFunction
from weft_graph.ir.node import Node, Output
from weft_graph.ir.node_checks import Signature, check_attrs, check_name, infer_shapes
from weft_graph.ir.op_def import lookup_op
from weft_graph.ir.op_signature import OpDef
from weft_graph.ir.traits import Role
from weft_graph.messages.function_reader import function_from_def
from weft_graph.schema.columns import Columns
from weft_graph.serialize.layout import (
    HEADER_SIZE,
    VERSION,
    SourceCode,
    aligned,
    unpack_header,
)
from weft_graph.serialize.source import Source
from weft_graph.serialize.tables import (
    TYPES,
    Tables,
    check_index,
    check_offsets,
    check_padding,
    check_rows,
)
from weft_tensor import errors
from weft_tensor.shape import merge_dims

_CONTEXT_COLUMNS = (
    "loop_name",
    "loop_kind",
    "loop_parent",
    "loop_forward",
    "loop_partner",
    "loop_pivot",
    "loop_pred_node",
    "loop_pred_port",
    "loop_maximum_node",
    "loop_maximum_port",
    "loop_parallel_iterations",
    "loop_flags",
)


def read_graph(
    source: Any,
    *,
    into: Graph | None = None,
    max_bytes: int | None = None,
    max_nodes: int | None = None,
    check_shapes: bool = True,
    internal_names: bool = False,
) -> Graph:
    """Read all segments of a graph.

    Memory use is proportional to the actual size of the source, not to sizes that it declares. If
    `source` is bytes, constants over 64 KB are views of it.

    Args:
      source: bytes, or a binary file, which is read to its end.
      into: graph to extend, which must have as many nodes as the first segment requires; a new one
        by default.
      max_bytes: reject longer sources.
      max_nodes: reject graphs with more nodes.
      check_shapes: run the ops' shape rules over the static shapes of the file.
      internal_names: allow node names with a leading underscore, as in planned graphs.
    Returns: `into`, or the new graph.
    Raises:
      DataLossError: the source is truncated or damaged, or not a graph; the message says where.
      InvalidArgumentError: nodes do not match their op, inputs or shapes, or are on a cycle.
      NotFoundError: an op type is not declared.
      ResourceExhaustedError: a limit is exceeded.
      UnimplementedError: a newer version wrote it.
      In all cases `into` is unchanged.
    """
    graph = Graph() if into is None else into
    functions = graph.functions.copy()
    stream = Source(source, max_bytes)
    is_complete = False
    try:
        with graph.undo_on_error("failed read"):
            header = stream.take(HEADER_SIZE, "a header")
            while header.size:
                with pause_gc():
                    segment = _read_segment(graph, stream, header.tobytes(), max_nodes)
                    segment.add(check_shapes, internal_names)
                header = stream.take(HEADER_SIZE, "a header", at_end=True)
        is_complete = True
    finally:
        if not is_complete:
            graph.functions = functions
    return graph


def graph_from_bytes(data: Any, **options: Any) -> Graph:
    """Read a graph from bytes; see `read_graph`."""
    return read_graph(memoryview(data), **options)


def _read_segment(graph: Graph, stream: Source, header: bytes, max_nodes: int | None) -> _Segment:
    start = stream.position
    length, blobs, crc = unpack_header(header, start - HEADER_SIZE)
    metadata = stream.take(length, "the metadata")
    if zlib.crc32(metadata.data) != crc:
        raise errors.DataLossError(f"byte {start}: the checksum of the metadata is wrong")
    check_padding(stream, aligned(length) - length)
    columns = Columns(metadata, start)
    if columns.scalars["min_reader"] > VERSION:
        raise errors.UnimplementedError(
            f"byte {start}: the graph needs a reader of version {columns.scalars['min_reader']}; "
            f"this one is of version {VERSION}"
        )
    if columns.scalars["first_node"] != len(graph.nodes):
        raise errors.InvalidArgumentError(
            f"byte {start}: the segment begins with node {columns.scalars['first_node']}, "
            f"and the graph has {len(graph.nodes)} nodes"
        )
    count = columns["node_op"].size
    if max_nodes is not None and len(graph.nodes) + count > max_nodes:
        raise errors.ResourceExhaustedError(
            f"byte {start}: {len(graph.nodes) + count} nodes; the limit is {max_nodes}"
        )
    if graph.finalized and count:
        raise errors.FailedPreconditionError("the graph is finalized and cannot be extended")
    return _Segment(graph, columns, Tables(columns, stream, blobs))


class _Kind:
    """Shared data of nodes with the same op and equal attributes."""

    __slots__ = ("attrs", "op_def", "signature")

    def __init__(self, op_def: OpDef, attrs: dict[str, Any], internal: bool) -> None:
        self.op_def = op_def
        self.attrs = check_attrs(op_def, attrs, internal)
        self.signature = Signature(op_def, self.attrs)


class _Segment:
    def __init__(self, graph: Graph, columns: Columns, tables: Tables) -> None:
        self._graph = graph
        self._columns = columns
        self._tables = tables
        self._first = len(graph.nodes)
        self._count = columns["node_op"].size
        self._nodes: list[Node] = []
        self._outputs: list[Output] = []
        self._signatures: list[Signature] = []

    def add(self, check_shapes: bool, internal_names: bool) -> None:
        """Create the nodes, after all checks."""
        self._check_columns()
        self._make_nodes(internal_names)
        self._check_ports()
        self._check_cycles()
        self._connect()
        if check_shapes:
            _check_shapes(self._nodes)
        records = self._records()
        self._add_functions()
        self._commit()
        restore(self._graph, records, self._graph.nodes.__getitem__)

    # ------------------------------------------------------------------------- checks

    def _check_columns(self) -> None:
        columns, tables, count = self._columns, self._tables, self._count
        check_rows(
            columns,
            "node_op",
            "node_name",
            "node_device",
            "node_attrs",
            "node_forward",
            "node_source",
        )
        strings = len(tables.strings)
        for name in ("node_op", "node_name", "node_device", "source_file", "source_function"):
            check_index(columns, name, strings)
        check_index(columns, "node_attrs", tables.set_sizes.size)
        check_index(columns, "node_forward", self._first + count, -1)
        sources = check_rows(columns, "source_file", "source_function", "source_line")
        check_index(columns, "node_source", sources, -1)
        inputs = check_rows(columns, "input_node", "input_port")
        self._input_ends = check_offsets(columns, "input_offsets", count, inputs)
        check_index(columns, "input_node", self._first + count)
        controls = columns["control_node"].size
        self._control_ends = check_offsets(columns, "control_offsets", count, controls)
        check_index(columns, "control_node", self._first + count)
        outputs = check_rows(columns, "output_type", "output_shape")
        self._output_ends = check_offsets(columns, "output_offsets", count, outputs)
        check_index(columns, "output_shape", len(tables.shapes) - 1, -1)
        tables.check_expansion(columns["node_attrs"], "node_attrs")

    # -------------------------------------------------------------------------- nodes

    def _make_nodes(self, internal_names: bool) -> None:
        columns, strings, shapes = self._columns, self._tables.strings, self._tables.shapes
        graph = self._graph
        names = [strings[i] for i in columns["node_name"].tolist()]
        self._check_names(names, internal_names)
        kinds, kind_ids = self._kinds(names, internal_names)
        self._signatures = [kinds[i].signature for i in kind_ids]
        devices = self._devices()
        sources = self._sources()
        types = [TYPES.get(i) for i in columns["output_type"].tolist()]
        dims = [shapes[i] for i in columns["output_shape"].tolist()]
        ends = self._output_ends
        nodes, outputs = self._nodes, self._outputs
        for index, (name, kind_id, device, (code, line)) in enumerate(
            zip(
                names,
                kind_ids,
                [devices[i] for i in columns["node_device"].tolist()],
                [sources[i] for i in columns["node_source"].tolist()],
                strict=True,
            )
        ):
            kind = kinds[kind_id]
            node = Node(graph, name, kind.op_def, (), (), kind.attrs.copy(), device, code, line)
            node.index = self._first + index
            start, end = ends[index], ends[index + 1]
            if end - start == 1:
                node_outputs: tuple[Output, ...] = (Output(node, 0, types[start], dims[start]),)  # type: ignore[arg-type]
            else:
                node_outputs = tuple(
                    [Output(node, i - start, types[i], dims[i]) for i in range(start, end)]  # type: ignore[arg-type]
                )
            if tuple(types[start:end]) != kind.signature.outputs:
                self._refuse_outputs(node, kind, index)
            node.outputs = node_outputs
            nodes.append(node)
            outputs.extend(node_outputs)

    def _refuse_outputs(self, node: Node, kind: _Kind, index: int) -> NoReturn:
        start, end = self._output_ends[index], self._output_ends[index + 1]
        numbers = self._columns["output_type"][start:end].tolist()
        actual = [TYPES[number].name if number in TYPES else number for number in numbers]
        expected = [dtype.name for dtype in kind.signature.outputs]
        raise errors.InvalidArgumentError(
            f"outputs of types {actual}, where the op has {expected}", op=node.type, node=node.name
        )

    def _check_names(self, names: Sequence[str], internal: bool) -> None:
        new_names: set[str] = set()
        names_of_graph = self._graph._by_name
        for index, name in enumerate(names):
            check_name(name, internal)
            if name in new_names or name in names_of_graph:
                self._columns.refuse("node_name", f"the name {name!r} is not unique", index)
            new_names.add(name)

    def _kinds(self, names: Sequence[str], internal: bool) -> tuple[list[_Kind], list[int]]:
        """Return the kinds of nodes, and the kind of each node."""
        columns, tables = self._columns, self._tables
        width = max(tables.set_sizes.size, 1)
        pairs = columns["node_op"].astype(np.int64) * width + columns["node_attrs"]
        unique, first, inverse = np.unique(pairs, return_index=True, return_inverse=True)
        kinds: list[_Kind] = []
        for pair, node in zip(unique.tolist(), first.tolist(), strict=True):
            op = tables.strings[pair // width]
            try:
                kinds.append(_Kind(lookup_op(op), tables.attr_set(pair % width), internal))
            except errors.OpError as error:
                raise error.with_context(op=op, node=names[node]) from error.__cause__
        return kinds, inverse.tolist()

    def _devices(self) -> dict[int, str]:
        strings = self._tables.strings
        used = np.unique(self._columns["node_device"]).tolist()
        return {i: _canonical_device(strings[i]) for i in used}

    def _sources(self) -> list[tuple[Any, int]]:
        """Return the code and line of each row, and None for row -1."""
        columns, strings = self._columns, self._tables.strings
        rows: list[tuple[Any, int]] = [
            (SourceCode(strings[file], strings[function]), line)
            for file, function, line in zip(
                columns["source_file"].tolist(),
                columns["source_function"].tolist(),
                columns["source_line"].tolist(),
                strict=True,
            )
        ]
        return [*rows, (None, 0)]

    # -------------------------------------------------------------------------- edges

    def _check_ports(self) -> None:
        columns = self._columns
        nodes = columns["input_node"].astype(np.int64) - self._first
        ports = columns["input_port"]
        counts = np.diff(np.array(self._output_ends, np.int64))
        is_invalid = (nodes >= 0) & (ports >= counts[np.maximum(nodes, 0)]) if nodes.size else nodes
        for index in np.flatnonzero(is_invalid).tolist():
            columns.refuse("input_port", f"the node has {counts[nodes[index]]} outputs", index)
        for index in np.flatnonzero(nodes < 0).tolist():
            count = len(self._graph.nodes[columns["input_node"][index]].outputs)
            if ports[index] >= count:
                columns.refuse("input_port", f"the node has {count} outputs", index)

    def _check_cycles(self) -> None:
        """Reject cycles other than those of loops."""
        columns = self._columns
        node_ids = np.arange(self._first, self._first + self._count)
        sources = np.concatenate((columns["input_node"], columns["control_node"])).astype(np.int64)
        users = np.concatenate(
            (
                np.repeat(node_ids, np.diff(self._input_ends)),
                np.repeat(node_ids, np.diff(self._control_ends)),
            )
        )
        backwards = sources >= users
        if not backwards.any():
            return
        keep = np.ones(sources.size, bool)
        for index in np.flatnonzero(backwards).tolist():
            if index < columns["input_node"].size:
                keep[index] = not self._is_loop(int(sources[index]), int(users[index]))
        if (backwards & keep).any():
            self._check_acyclic(sources[keep].tolist(), users[keep].tolist())

    def _is_loop(self, source: int, user: int) -> bool:
        nodes, first = self._nodes, self._first
        return (
            nodes[user - first].role is Role.MERGE
            and nodes[source - first].role is Role.NEXT_ITERATION
        )

    def _check_acyclic(self, sources: list[int], users: list[int]) -> None:
        first = self._first
        followers: list[list[int]] = [[] for _ in range(self._count)]
        waiting = [0] * self._count
        for source, user in zip(sources, users, strict=True):
            if source >= first:
                followers[source - first].append(user - first)
                waiting[user - first] += 1
        ready = [i for i, count in enumerate(waiting) if not count]
        num_sorted = 0
        while ready:
            num_sorted += 1
            for user in followers[ready.pop()]:
                waiting[user] -= 1
                if not waiting[user]:
                    ready.append(user)
        if num_sorted < self._count:
            stuck = [self._nodes[i].name for i, count in enumerate(waiting) if count]
            raise errors.InvalidArgumentError(
                f"{len(stuck)} nodes are on or after a cycle without loop ops: "
                f"{', '.join(stuck[:5])}"
            )

    def _connect(self) -> None:
        """Set inputs, control inputs and forward nodes, and check the types of inputs."""
        inputs = self._input_outputs()
        ends, control_ends = self._input_ends, self._control_ends
        controls = self._columns["control_node"].tolist()
        for index, node in enumerate(self._nodes):
            node_inputs = tuple(inputs[ends[index] : ends[index + 1]])
            self._signatures[index].check(node_inputs, node.type, node.name)
            node.inputs = node_inputs
            if control_ends[index] != control_ends[index + 1]:
                node_controls = controls[control_ends[index] : control_ends[index + 1]]
                node.controls = tuple([self._node(i) for i in dict.fromkeys(node_controls)])
        for index, forward in enumerate(self._columns["node_forward"].tolist()):
            if forward >= 0:
                self._nodes[index].forward = self._node(forward)

    def _node(self, index: int) -> Node:
        first = self._first
        return self._nodes[index - first] if index >= first else self._graph.nodes[index]

    def _input_outputs(self) -> list[Output]:
        nodes = self._columns["input_node"].astype(np.int64) - self._first
        ports = self._columns["input_port"]
        outputs = self._outputs
        if not nodes.size:
            return []
        if nodes.min() >= 0:
            flat = np.array(self._output_ends, np.int64)[nodes] + ports
            return [outputs[i] for i in flat.tolist()]
        return [
            self._node(node + self._first).outputs[port]
            for node, port in zip(nodes.tolist(), ports.tolist(), strict=True)
        ]

    def _records(self) -> list[ContextRecord]:
        """Return the rows of the control-flow contexts after validating them."""
        columns, count = self._columns, self._first + self._count
        rows = check_rows(columns, *_CONTEXT_COLUMNS)
        check_index(columns, "loop_name", len(self._tables.strings))
        check_index(columns, "loop_kind", 3)
        for name in ("loop_parent", "loop_forward", "loop_partner"):
            check_index(columns, name, rows, -1)
        for name in ("loop_pivot", "loop_pred_node", "loop_maximum_node"):
            check_index(columns, name, count, -1)
        parts: dict[str, list[list[int]]] = {}
        for name in ("loop_member", "loop_variable"):
            items = columns[name]
            check_index(columns, name, count)
            ends = check_offsets(columns, f"{name}_offsets", rows, items.size)
            values = items.tolist()
            parts[name] = [values[ends[i] : ends[i + 1]] for i in range(rows)]
        loop_names = [self._tables.strings[i] for i in columns["loop_name"].tolist()]
        texts = [*loop_names, ""]  # row -1 is none
        columns_of_rows = [columns[name].tolist() for name in _CONTEXT_COLUMNS[1:]]
        return [
            ContextRecord(
                loop_names[row],
                kind,
                outer=texts[outer],
                forward=texts[forward],
                partner=texts[partner],
                pivot=pivot,
                pred=(pred, pred_port),
                maximum=(maximum, maximum_port),
                parallel_iterations=parallel,
                back_prop=bool(flags & 1),
                swap_memory=bool(flags & 2),
                variables=parts["loop_variable"][row],
                members=parts["loop_member"][row],
            )
            for row, (
                kind,
                outer,
                forward,
                partner,
                pivot,
                pred,
                pred_port,
                maximum,
                maximum_port,
                parallel,
                flags,
            ) in enumerate(zip(*columns_of_rows, strict=True))
        ]

    # -------------------------------------------------------------------------- commit

    def _add_functions(self) -> None:
        columns = self._columns
        for row, name in enumerate(columns["function_name"].tolist()):
            self._graph.functions[self._tables.strings[name]] = _parse_function(
                self._tables.function(row), self._tables.strings[name]
            )

    def _commit(self) -> None:
        graph = self._graph
        with graph._lock:
            for node in self._nodes:
                for source in node.inputs:
                    uses = source._uses
                    if uses is None:
                        source._uses = {node: 1}
                    else:
                        uses[node] = uses.get(node, 0) + 1
                for control in node.controls:
                    control._add_control_output(node)
            graph.nodes.extend(self._nodes)
            graph._by_name.update((node.name, node) for node in self._nodes)
            for node in self._nodes:
                graph._names.setdefault(node.name.lower(), 1)
                if node.role is Role.ENTER:
                    graph.reserve_name(node.attrs["frame_name"])


def _canonical_device(text: str) -> str:
    return DeviceSpec.from_string(text).to_string() if text else ""


def _parse_function(data: bytes, name: str) -> LazyFunction:
    try:
        definition = proto.FunctionDef.FromString(data)
    except DecodeError as cause:
        raise errors.DataLossError(f"the function {name!r} is damaged: {cause}") from cause
    return LazyFunction(definition, function_from_def)


def _check_shapes(nodes: Sequence[Node]) -> None:
    """Reject static shapes that contradict the ops' shape rules."""
    for node in nodes:
        if node.op_def.shape_rule is None:
            continue
        shapes = infer_shapes(node.op_def, node.inputs, node.attrs, node.name)
        try:
            for output, dims in zip(node.outputs, shapes, strict=True):
                if dims != output.dims:
                    merge_dims(dims, output.dims)
        except errors.OpError as error:
            raise error.with_context(op=node.type, node=node.name) from error.__cause__
