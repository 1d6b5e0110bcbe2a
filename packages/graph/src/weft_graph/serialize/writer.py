"""Writer of graphs, which fills the columns of the schema in one pass over the nodes."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Container, Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np

from weft_graph.control_flow.records import records_of
from weft_graph.ir.func_attr import NameAttrs, as_name_attrs
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node
from weft_graph.ir.op_signature import OpDef
from weft_graph.ir.traits import Role
from weft_graph.messages.attr_value import kind_of, tensor_dtype
from weft_graph.messages.tensor_proto import little_endian
from weft_graph.schema import columns
from weft_graph.serialize.layout import (
    ALIGNMENT,
    INLINE_LIMIT,
    INLINE_TOTAL,
    VERSION,
    Kind,
    aligned,
    pack_header,
)
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dims, TensorShape, as_dims

_INLINE_ALIGNMENT = 8
_DOUBLE = struct.Struct("<d")
_LONG = struct.Struct("<q")

_UNIQUE_TYPES = frozenset(
    {"type", "int", "bool", "string", "shape"}
    | {f"list({name})" for name in ("type", "int", "bool", "string", "shape")}
)
"""Attribute types whose equal values are identical, unlike 0.0 and -0.0."""


def write_graph(
    graph: Graph, file: BinaryIO, from_node: int = 0, to_node: int | None = None
) -> int:
    """Write the nodes from `from_node` up to `to_node` as one segment; return its size in bytes.

    Constants are written without copying them. Segments written in sequence to one file form one
    graph. Every segment has the library of functions; none has collections.

    Raises:
      InvalidArgumentError: an attribute cannot be serialized, or the columns have over 2 GiB.
    """
    return sum(map(file.write, graph_pieces(graph, from_node, to_node)))


def graph_to_bytes(graph: Graph, from_node: int = 0, to_node: int | None = None) -> bytes:
    """Serialize a graph to bytes; see `write_graph`."""
    return b"".join(graph_pieces(graph, from_node, to_node))


def graph_pieces(
    graph: Graph,
    from_node: int = 0,
    to_node: int | None = None,
    known_functions: Container[str] = (),
) -> list[bytes | memoryview]:
    """Return the buffers that `write_graph` writes, in order; constants are not copied.

    Args:
      known: names of functions to omit, because the reader has them already.
    Raises: InvalidArgumentError: as `write_graph`.
    """
    writer = _Writer(graph, from_node, to_node, known_functions)
    metadata = columns.build(writer.columns())
    blobs = sum(aligned(blob.nbytes) for blob in writer.blobs)
    head = pack_header(len(metadata), blobs, zlib.crc32(metadata))
    padding = bytes(-len(metadata) % ALIGNMENT)
    pieces: list[bytes | memoryview] = [head, memoryview(metadata), padding]
    for blob in writer.blobs:
        pieces += (blob.data, bytes(-blob.nbytes % ALIGNMENT))
    return pieces


def segment_ends(graph: Graph, from_node: int, to_node: int, most_bytes: int) -> Iterator[int]:
    """Yield the ends of segments whose constants have at most `most_bytes` bytes.

    A larger constant is in a separate segment. Loops and conditionals are not split, because a
    segment cannot refer to a later one.
    """
    nodes = graph.nodes[from_node:to_node]
    size, open_until = 0, -1
    last = _last_node_by_first(graph, nodes)
    for node in nodes:
        node_bytes = sum(v.nbytes for v in node.attrs.values() if isinstance(v, np.ndarray))
        if size and size + node_bytes > most_bytes and open_until < node.index:
            yield node.index
            size = 0
        size += node_bytes
        open_until = max(open_until, last.get(node.index, -1))
        if node.role is Role.MERGE:
            open_until = max(open_until, *[source.node.index for source in node.inputs])
    yield to_node


def _last_node_by_first(graph: Graph, nodes: Sequence[Node]) -> dict[int, int]:
    """Return the last node of each loop or conditional, by its first one."""
    positions: dict[str, list[int]] = {}
    for record in records_of(graph, nodes) if graph.has_contexts else ():
        record_nodes = (record.pivot, record.pred[0], record.maximum[0])
        family = positions.setdefault(min(record.name, record.partner or record.name), [])
        family += [
            i for i in (*record.members, *record.variables, *record_nodes) if i >= nodes[0].index
        ]
    return {min(family): max(family) for family in positions.values() if family}


class _Writer:
    """The columns of one segment under construction; ids are assigned at the first use."""

    def __init__(
        self, graph: Graph, from_node: int, to_node: int | None, known_functions: Container[str]
    ) -> None:
        self._graph = graph
        self._function_ids = known_functions
        self._first = from_node
        self._nodes = graph.nodes[from_node:to_node]
        self._strings: dict[str, int] = {}
        self._shapes: dict[tuple[int | None, ...], int] = {}
        self._sources: dict[tuple[str, str, int], int] = {}
        self._values: dict[tuple[Kind, int], int] = {}
        self._arrays: dict[tuple[int, int], int] = {}
        self._lists: dict[tuple[int, ...], int] = {}
        self._funcs: dict[tuple[int, int], int] = {}
        self._sets: dict[tuple[tuple[int, int], ...], int] = {}
        self._set_ids: dict[Any, int] = {}
        self._plain: dict[str, bool] = {}
        self._tensors: list[tuple[int, int, int]] = []
        self._data: list[tuple[int, int, int, int]] = []
        self._inline = bytearray()
        self._blob_bytes = 0
        self.blobs: list[np.ndarray] = []

    def columns(self) -> dict[str, Any]:
        """Return all columns for `schema.columns.build`."""
        result: dict[str, Any] = {
            "version": VERSION,
            "min_reader": 1,
            "first_node": self._first,
        }
        self._add_nodes(result)
        self._add_contexts(result)
        self._add_functions(result)
        result["value_kind"] = [kind for kind, _ in self._values]
        result["value_arg"] = [arg for _, arg in self._values]
        _add_rows(result, ("func_name", "func_attrs"), list(self._funcs))
        lists = [[(item,) for item in row] for row in self._lists]
        _add_lists(result, "list_offsets", ("list_items",), lists)
        _add_lists(result, "attr_offsets", ("attr_key", "attr_value"), list(self._sets))
        _add_rows(result, ("tensor_type", "tensor_shape", "tensor_data"), self._tensors)
        names = ("data_external", "data_offset", "data_length", "data_crc")
        _add_rows(result, names, self._data)
        result["inline_bytes"] = np.frombuffer(self._inline, np.uint8)
        sizes = [[(-1 if s is None else s,) for s in shape] for shape in self._shapes]
        _add_lists(result, "shape_offsets", ("shape_sizes",), sizes)
        self._add_strings(result)
        return result

    # ------------------------------------------------------------------------- nodes

    def _add_nodes(self, result: dict[str, Any]) -> None:
        names: list[int] = []
        ops: list[int] = []
        devices: list[int] = []
        attrs: list[int] = []
        forward: list[int] = []
        sources: list[int] = []
        inputs: list[int] = []
        ports: list[int] = []
        controls: list[int] = []
        types: list[int] = []
        shapes: list[int] = []
        input_ends, control_ends, output_ends = [0], [0], [0]
        nodes = self._nodes
        string, shape_id = self._string, self._shape
        for node in nodes:
            names.append(string(node.name))
            ops.append(string(node.type))
            devices.append(string(node.device))
            attrs.append(self._attr_set(node))
            forward.append(-1 if node.forward is None else node.forward.index)
            sources.append(self._source(node))
            for source in node.inputs:
                inputs.append(source.node.index)
                ports.append(source.index)
            input_ends.append(len(inputs))
            for control in node.controls:
                controls.append(control.index)
            control_ends.append(len(controls))
            for output in node.outputs:
                types.append(output.dtype.as_datatype_enum)
                shapes.append(shape_id(output.dims))
            output_ends.append(len(types))
        for name, column in (
            ("node_op", ops),
            ("node_name", names),
            ("node_device", devices),
            ("node_attrs", attrs),
            ("node_forward", forward),
            ("node_source", sources),
            ("input_offsets", input_ends),
            ("input_node", inputs),
            ("input_port", ports),
            ("control_offsets", control_ends),
            ("control_node", controls),
            ("output_offsets", output_ends),
            ("output_type", types),
            ("output_shape", shapes),
        ):
            result[name] = column
        rows = [(string(file), string(function), line) for file, function, line in self._sources]
        _add_rows(result, ("source_file", "source_function", "source_line"), rows)

    def _add_contexts(self, result: dict[str, Any]) -> None:
        records = records_of(self._graph, self._nodes)
        if not records:
            return
        result["min_reader"] = 2
        rows = {record.name: row for row, record in enumerate(records)}
        result["loop_name"] = [self._string(record.name) for record in records]
        result["loop_kind"] = [record.kind for record in records]
        for column, names in (
            ("loop_parent", [record.outer for record in records]),
            ("loop_forward", [record.forward for record in records]),
            ("loop_partner", [record.partner for record in records]),
        ):
            result[column] = [rows[name] if name else -1 for name in names]
        result["loop_pivot"] = [record.pivot for record in records]
        preds = [record.pred for record in records]
        _add_rows(result, ("loop_pred_node", "loop_pred_port"), preds)
        limits = [record.maximum for record in records]
        _add_rows(result, ("loop_maximum_node", "loop_maximum_port"), limits)
        parallel = [record.parallel_iterations for record in records]
        result["loop_parallel_iterations"] = parallel
        flags = [record.back_prop | record.swap_memory << 1 for record in records]
        result["loop_flags"] = flags
        members = [[(node,) for node in record.members] for record in records]
        _add_lists(result, "loop_member_offsets", ("loop_member",), members)
        variables = [[(node,) for node in record.variables] for record in records]
        _add_lists(result, "loop_variable_offsets", ("loop_variable",), variables)

    def _add_functions(self, result: dict[str, Any]) -> None:
        rows = []
        for name in self._graph.functions:
            if name in self._function_ids:
                continue
            definition = self._graph.functions.definition(name)
            data = definition.SerializeToString(deterministic=True)
            rows.append((self._string(name), self._bytes(data)))
        _add_rows(result, ("function_name", "function_data"), rows)

    def _add_strings(self, result: dict[str, Any]) -> None:
        try:
            texts = [text.encode() for text in self._strings]
        except UnicodeEncodeError as cause:
            raise errors.InvalidArgumentError(f"a text is not Unicode: {cause}") from None
        result["string_bytes"] = np.frombuffer(b"".join(texts), np.uint8)
        result["string_offsets"] = _offsets(texts)

    def _source(self, node: Node) -> int:
        code = node._code
        if code is None:
            return -1
        key = (code.co_filename, code.co_qualname, node._line)
        return self._sources.setdefault(key, len(self._sources))

    def _string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))

    def _shape(self, dims: Dims) -> int:
        return -1 if dims is None else self._shapes.setdefault(dims, len(self._shapes))

    # -------------------------------------------------------------------- attributes

    def _attr_set(self, node: Node) -> int:
        attrs = node.attrs
        key: Any = None
        if attrs.keys() == node.op_def.attrs.keys() and self._is_plain(node.op_def):
            key = (node.type, tuple(attrs), tuple(attrs.values()))
            cached = self._set_ids.get(key)
            if cached is not None:
                return cached
        try:
            set_row = self._intern_set(node, attrs)
        except (errors.OpError, TypeError, ValueError) as cause:
            raise errors.InvalidArgumentError(
                f"an attribute cannot be serialized: {cause}",
                op=node.type,
                node=node.name,
                line=node.line,
            ) from cause
        if key is not None:
            self._set_ids[key] = set_row
        return set_row

    def _is_plain(self, op_def: OpDef) -> bool:
        plain = self._plain.get(op_def.name)
        if plain is None:
            plain = all(attr.type in _UNIQUE_TYPES for attr in op_def.attrs.values())
            self._plain[op_def.name] = plain
        return plain

    def _intern_set(self, node: Node, attrs: dict[str, Any]) -> int:
        pairs = []
        for name, value in attrs.items():
            declared = node.op_def.attrs.get(name)
            kind = kind_of(value) if declared is None else declared.type
            loose = declared is None
            pairs.append((self._string(name), self._value(value, kind, loose, attrs)))
        return self._sets.setdefault(tuple(pairs), len(self._sets))

    def _value(self, value: Any, kind: str, loose: bool, attrs: dict[str, Any]) -> int:
        if kind.startswith("list("):
            items = tuple([self._value(item, kind[5:-1], loose, attrs) for item in value])
            return self._intern(Kind.LIST, self._lists.setdefault(items, len(self._lists)))
        if kind == "tensor":
            return self._tensor(value, attrs)
        if kind == "func":
            return self._func(as_name_attrs(value))
        if kind == "string":
            if isinstance(value, bytes):
                return self._intern(Kind.BYTES, self._bytes(value))
            return self._intern(Kind.STRING, self._string(value))
        if kind == "shape":
            dims = as_dims(value) if isinstance(value, TensorShape) else value
            return self._intern(Kind.LOOSE_SHAPE if loose else Kind.SHAPE, self._shape(dims))
        if kind == "type":
            return self._intern(Kind.TYPE, value.as_datatype_enum)
        if kind == "float":
            return self._intern(Kind.FLOAT, _LONG.unpack(_DOUBLE.pack(value))[0])
        if kind == "bool":
            return self._intern(Kind.BOOL, int(value))
        if not -(2**63) <= value < 2**63:
            raise errors.InvalidArgumentError(f"{value} takes more than 64 bits")
        return self._intern(Kind.INT, int(value))

    def _intern(self, kind: Kind, arg: int) -> int:
        return self._values.setdefault((kind, arg), len(self._values))

    def _func(self, func: NameAttrs) -> int:
        pairs = tuple(
            [
                (self._string(name), self._value(value, kind_of(value), True, func.attrs))
                for name, value in func.attrs.items()
            ]
        )
        row = (self._string(func.name), self._sets.setdefault(pairs, len(self._sets)))
        return self._intern(Kind.FUNC, self._funcs.setdefault(row, len(self._funcs)))

    # -------------------------------------------------------------------------- data

    def _tensor(self, array: np.ndarray, attrs: dict[str, Any]) -> int:
        dtype = tensor_dtype(array, attrs)
        key = (id(array), dtype.as_datatype_enum)
        cached = self._arrays.get(key)
        if cached is not None:
            return cached
        if dtype is dtypes.string:
            data = _pack_strings(array)
        elif array.dtype.kind == "O":
            raise errors.InvalidArgumentError(f"tensors of {dtype.name} cannot be serialized")
        else:
            flat = np.ascontiguousarray(little_endian(array)).reshape(-1)
            data = flat.view(np.uint8)
        row = (dtype.as_datatype_enum, self._shape(array.shape), self._add_data(data))
        self._tensors.append(row)
        value = self._arrays[key] = self._intern(Kind.TENSOR, len(self._tensors) - 1)
        return value

    def _bytes(self, value: bytes) -> int:
        return self._add_data(np.frombuffer(value, np.uint8))

    def _add_data(self, data: np.ndarray) -> int:
        size = data.nbytes
        if size <= INLINE_LIMIT and len(self._inline) + size <= INLINE_TOTAL:
            self._inline += bytes(-len(self._inline) % _INLINE_ALIGNMENT)
            self._data.append((0, len(self._inline), size, 0))
            self._inline += data.data
        else:
            self._data.append((1, self._blob_bytes, size, zlib.crc32(data.data)))
            self.blobs.append(data)
            self._blob_bytes += aligned(size)
        return len(self._data) - 1


def _pack_strings(array: np.ndarray) -> np.ndarray:
    items = array.reshape(-1).tolist()
    if not all(isinstance(item, bytes) for item in items):
        raise errors.InvalidTypeError("the elements of a string tensor must be bytes")
    return np.frombuffer(_offsets(items, "<u8").tobytes() + b"".join(items), np.uint8)


def _offsets(items: Sequence[Any], dtype: str = "<u4") -> np.ndarray:
    ends = np.zeros(len(items) + 1, np.int64)
    np.cumsum([len(item) for item in items], out=ends[1:])
    if dtype == "<u4" and ends[-1] >= 2**32:
        raise errors.InvalidArgumentError(f"a column of {ends[-1]} items takes more than 32 bits")
    return ends.astype(dtype)


def _add_rows(result: dict[str, Any], names: tuple[str, ...], rows: Sequence[Any]) -> None:
    """Distribute rows over the columns `names`."""
    for name, column in zip(names, zip(*rows, strict=True), strict=bool(rows)):
        result[name] = column


def _add_lists(
    result: dict[str, Any], offsets: str, names: tuple[str, ...], rows: Sequence[Any]
) -> None:
    """Distribute lists of tuples over the columns `names`, with a column of offsets."""
    result[offsets] = _offsets(rows)
    _add_rows(result, names, [item for row in rows for item in row])
