"""Damaged and hostile files: rejected with a reason and a position, or read as the same graph."""

from __future__ import annotations

import io
import random
import struct
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from weft_testing.graphs import assert_same_graph, declared, sample_graph, source, strings, value

from weft_graph import serialize
from weft_graph.ir.builder import create, out
from weft_graph.ir.graph import Graph
from weft_graph.schema import columns
from weft_graph.serialize import layout
from weft_tensor import dtypes, errors

REFUSED = (
    errors.DataLossError,
    errors.InvalidArgumentError,
    errors.NotFoundError,
    errors.UnimplementedError,
)
HEADER = layout.HEADER_SIZE


class Sample(bytes):
    """Bytes that stay out of the reports of failing tests."""

    def __repr__(self) -> str:
        return f"<{len(self)} bytes>"


@pytest.fixture(scope="module")
def data() -> bytes:
    with declared():
        return Sample(serialize.graph_to_bytes(sample_graph()))


def _fields(data: bytes) -> dict[str, Any]:
    length, _, _ = layout.unpack_header(data[:HEADER], 0)
    read = columns.Columns(np.frombuffer(data[HEADER : HEADER + length], np.uint8), 0)
    return {**read.scalars, **{name: array.copy() for name, array in read.arrays.items()}}


def _file(fields: dict[str, Any] | bytes, blobs: bytes = b"") -> bytes:
    """A file with these columns, or this flatbuffer, and right checksums."""
    metadata = fields if isinstance(fields, bytes) else bytes(columns.build(fields))
    head = layout.pack_header(len(metadata), len(blobs), zlib.crc32(metadata))
    return head + metadata + bytes(-len(metadata) % layout.ALIGNMENT) + blobs


def _blobs(data: bytes) -> bytes:
    length = layout.unpack_header(data[:HEADER], 0)[0]
    return data[HEADER + layout.aligned(length) :]


def _read(data: bytes) -> Graph | None:
    """The graph, checked for consistency, or None when it was refused."""
    try:
        graph = serialize.graph_from_bytes(data)
    except REFUSED as error:
        assert str(error)
        return None
    graph.check_integrity()
    return graph


@given(st.integers(0, 2**32))
def test_flipped_bits(data: bytes, seed: int) -> None:
    choose = random.Random(seed)
    damaged = bytearray(data)
    for _ in range(choose.randrange(1, 4)):
        damaged[choose.randrange(len(data))] ^= 1 << choose.randrange(8)
    if damaged != data:
        with pytest.raises(errors.DataLossError, match="byte "):
            serialize.graph_from_bytes(bytes(damaged))


@given(st.integers(0, 2**32))
def test_cut(data: bytes, seed: int) -> None:
    end = random.Random(seed).randrange(len(data))
    for whole in (data[:end], io.BytesIO(data[:end])):
        with pytest.raises(errors.DataLossError, match="byte "):
            serialize.read_graph(whole)


@given(st.binary(max_size=300))
def test_garbage(garbage: bytes) -> None:
    for content in (garbage, b"weftgrph" + garbage, _file(garbage), _file(b"\0" * 4 + garbage)):
        assert _read(content) is None


@given(st.integers(0, 2**32))
def test_damaged_bytes_with_right_checksums(data: bytes, seed: int) -> None:
    choose = random.Random(seed)
    length = layout.unpack_header(data[:HEADER], 0)[0]
    metadata = bytearray(data[HEADER : HEADER + length])
    for _ in range(choose.randrange(1, 4)):
        metadata[choose.randrange(length)] = choose.choice((0, 1, 127, 128, 255))
    _read(_file(bytes(metadata), _blobs(data)))


@given(st.integers(0, 2**32))
def test_damaged_flatbuffer_structure(data: bytes, seed: int) -> None:
    """The same near the table and its vtable, which contain all offsets."""
    choose = random.Random(seed)
    length = layout.unpack_header(data[:HEADER], 0)[0]
    metadata = bytearray(data[HEADER : HEADER + length])
    root = struct.unpack_from("<I", metadata)[0]
    for _ in range(choose.randrange(1, 3)):
        position = choose.choice((0, root + choose.randrange(-240, 240)))
        width = choose.choice((1, 2, 4))
        if 0 <= position <= length - width:
            metadata[position : position + width] = choose.randbytes(width)
    _read(_file(bytes(metadata), _blobs(data)))


@given(st.integers(0, 2**32))
def test_damaged_columns(data: bytes, seed: int) -> None:
    choose = random.Random(seed)
    fields = _fields(data)
    name = choose.choice([n for n, array in fields.items() if np.size(array) and np.ndim(array)])
    column = fields[name]
    limits = np.iinfo(column.dtype)
    index = choose.randrange(column.size)
    near = int(column[index]) + choose.choice((-2, -1, 1, 2))
    other = int(choose.choice(column.tolist()))
    new = choose.choice((near, other, 0, limits.max, limits.min, choose.randrange(256)))
    column[index] = min(max(new, limits.min), limits.max)
    if choose.random() < 0.2:
        fields[name] = column[: choose.randrange(column.size)]
    _read(_file(fields, _blobs(data)))


@given(st.integers(0, 2**32))
def test_swapped_columns(data: bytes, seed: int) -> None:
    choose = random.Random(seed)
    fields = _fields(data)
    a, b = choose.sample(sorted(columns.VECTORS), 2)
    fields[a], fields[b] = fields[b], fields[a]
    for name in (a, b):
        limits = np.iinfo(columns.VECTORS[name])
        wide = fields[name].astype(object)
        fields[name] = np.clip(wide, limits.min, limits.max).astype(columns.VECTORS[name])
    _read(_file(fields, _blobs(data)))


def test_undamaged_columns(data: bytes) -> None:
    graph = _read(_file(_fields(data), _blobs(data)))
    assert graph is not None
    assert_same_graph(graph, serialize.graph_from_bytes(data))


# ------------------------------------------------------------------ named refusals


def _two_nodes() -> Graph:
    graph = Graph()
    with graph.as_default():
        out("SerSame", [source(name="a")], name="b")
        value(np.arange(3, dtype=np.int32), name="c")
        create("SerMany", [[graph.nodes[0].outputs[0]]], name="d")
        value(np.array([True, False]), name="e")
        value(strings(b"x", b"yy"), name="f")
    return graph


def _set(name: str, index: int, new: int) -> Callable[[dict[str, Any]], None]:
    def change(fields: dict[str, Any]) -> None:
        fields[name][index] = new

    return change


def _cut(name: str) -> Callable[[dict[str, Any]], None]:
    def change(fields: dict[str, Any]) -> None:
        fields[name] = fields[name][:-1]

    return change


def _scalar(name: str, new: int) -> Callable[[dict[str, Any]], None]:
    def change(fields: dict[str, Any]) -> None:
        fields[name] = new

    return change


def _text(old: bytes, new: bytes) -> Callable[[dict[str, Any]], None]:
    def change(fields: dict[str, Any]) -> None:
        text = fields["string_bytes"].tobytes()
        fields["string_bytes"] = np.frombuffer(text.replace(old, new, 1), np.uint8)

    return change


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (_scalar("min_reader", 3), errors.UnimplementedError, "needs a reader of version 3"),
        (_scalar("first_node", 1), errors.InvalidArgumentError, "begins with node 1"),
        (_set("node_op", 0, 999), errors.DataLossError, r"node_op\[0\] at byte \d+: 999 is not"),
        (_set("node_name", 1, 0), errors.DataLossError, r"node_name\[1\].*not unique"),
        (_set("node_attrs", 2, 77), errors.DataLossError, r"node_attrs\[2\].*77 is not in"),
        (_set("node_forward", 0, -2), errors.DataLossError, "node_forward"),
        (_cut("node_device"), errors.DataLossError, "4 rows where|rows where node_op has"),
        (_set("input_node", 0, 6), errors.DataLossError, r"6 is not in \[0, 6\)"),
        (_set("input_node", 0, 1), errors.InvalidArgumentError, "on or after a cycle"),
        (_set("input_port", 0, 1), errors.DataLossError, "has 1 outputs"),
        (_set("input_offsets", 1, 2), errors.DataLossError, "below the one before|go from"),
        (_set("input_offsets", 6, 0), errors.DataLossError, "offsets go from 0 to 0, not 0 to 2"),
        (_set("output_type", 0, 3), errors.InvalidArgumentError, "outputs of types .'int32'."),
        (_set("output_type", 0, 99), errors.InvalidArgumentError, "outputs of types .99."),
        (_set("output_shape", 0, 50), errors.DataLossError, "output_shape"),
        (_set("value_kind", 0, 11), errors.DataLossError, r"11 is not in \[0, 11\)"),
        (_set("tensor_type", 0, 20), errors.DataLossError, "not a type of tensors"),
        (_set("tensor_type", 0, 9), errors.DataLossError, "12 bytes for int64"),
        (_set("tensor_data", 0, 1), errors.DataLossError, "share their data"),
        (_set("shape_sizes", 0, -2), errors.DataLossError, "-2 is not in"),
        (_set("data_offset", 0, 2**63), errors.DataLossError, "data_offset"),
        (_set("data_length", 0, 2**64 - 1), errors.DataLossError, "data_offset"),
        (_set("data_external", 0, 1), errors.DataLossError, "data_offset"),
        (_set("inline_bytes", 16, 2), errors.InvalidArgumentError, "bool tensor is 2"),
        (_text(b"SerSame", b"SerSamX"), errors.NotFoundError, "SerSamX"),
        (_text(b"dtype", b"dtypX"), errors.InvalidArgumentError, "requires the attribute dtype"),
        (_text(b"b", b"?"), errors.InvalidArgumentError, "not a valid name"),
        (_text(b"SerSame", b"SerSam\xff"), errors.DataLossError, "not UTF-8"),
    ],
)
def test_refusals(
    change: Callable[[dict[str, Any]], None], kind: type[Exception], message: str
) -> None:
    data = serialize.graph_to_bytes(_two_nodes())
    fields = _fields(data)
    change(fields)
    into = Graph()
    with pytest.raises(kind, match=message):
        serialize.graph_from_bytes(_file(fields, _blobs(data)), into=into)
    assert into.nodes == [] and into._names == {}


def test_semantic_errors_name_the_node() -> None:
    fields = _fields(serialize.graph_to_bytes(_two_nodes()))
    fields["input_node"][0] = 2
    with pytest.raises(errors.InvalidTypeError, match="must be float32, got c:0") as caught:
        serialize.graph_from_bytes(_file(fields))
    assert (caught.value.op_type, caught.value.node) == ("SerSame", "b")


def test_a_failing_segment_takes_back_the_ones_before() -> None:
    data = serialize.graph_to_bytes(_two_nodes())
    tail = _fields(data) | {"first_node": 6}
    into = Graph()
    with pytest.raises(errors.DataLossError, match="not unique"):
        serialize.graph_from_bytes(data + _file(tail), into=into)
    assert into.nodes == [] and into._names == {} and into._by_name == {}
    with pytest.raises(errors.DataLossError, match="a header takes 64 bytes, 3 are left"):
        serialize.graph_from_bytes(data + b"abc", into=into)
    assert into.nodes == []


def test_wrong_shapes_are_refused_unless_trusted() -> None:
    graph = _two_nodes()
    graph.nodes[1].outputs[0].dims = (7, 7, 7)
    data = serialize.graph_to_bytes(graph)
    with pytest.raises(errors.InvalidArgumentError) as caught:
        serialize.graph_from_bytes(data)
    assert caught.value.node == "b"
    assert serialize.graph_from_bytes(data, check_shapes=False).nodes[1].outputs[0].dims[0] == 7


# ----------------------------------------------------------------- own attributes

_ODD = [
    *(0, -1, True, 1.5, "", b"loc:@\xff", (1,), dtypes.float32, (dtypes.float32,)),
    *(np.zeros(2, np.float32), np.array(b"x", object)),
]
_READ = ["_class", "_gradient_op_type", "_guard", "_depth", "_used", "_reads_only"]


@pytest.mark.parametrize("name", [*_READ, "_output_shapes", "_whatever"])
def test_odd_values_of_attributes_that_no_declaration_has(name: str) -> None:
    """The changes are rejected on reading, or have no effect."""
    refused = 0
    for odd in _ODD:
        graph = _two_nodes()
        graph.nodes[1].attrs[name] = odd
        data = serialize.graph_to_bytes(graph)
        try:
            read = serialize.graph_from_bytes(data)
        except errors.InvalidArgumentError as error:
            assert name in error.message and error.node == "b"
            refused += 1
        else:
            for node in read.nodes:
                assert all(isinstance(text, str) for text in node.colocation)
            assert serialize.graph_to_bytes(read)
    assert (refused > 5) == (name in _READ)


def test_where_a_node_is_to_be_placed_survives() -> None:
    graph = _two_nodes()
    graph.nodes[1].attrs["_class"] = ("loc:@a",)
    read = serialize.graph_from_bytes(serialize.graph_to_bytes(graph))
    assert read.nodes[1].colocation == ("a",)


# ----------------------------------------------------------------------- memory


@pytest.fixture
def little_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


class Endless(io.RawIOBase):
    """A file that has more to give than memory; it gives a few zeros and ends."""

    def __init__(self, head: bytes) -> None:
        self._data = io.BytesIO(head + bytes(1000))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._data.readinto(buffer)


@pytest.mark.parametrize("size", [2**40, 2**62, 2**64 - 1])
def test_sizes_that_are_lies(little_memory: None, size: int) -> None:
    head = layout.pack_header(size, 0, 0)
    for content in (head + bytes(1000), Endless(head)):
        with pytest.raises(errors.DataLossError, match=f"takes {size} bytes, 1000 are left"):
            serialize.read_graph(content)


def test_many_outputs_that_are_lies(little_memory: None) -> None:
    fields = _fields(serialize.graph_to_bytes(_two_nodes()))
    for claim in (10**6, 2**40, 2**63 - 1):
        fields["value_arg"] = np.where(
            (fields["value_kind"] == layout.Kind.INT), claim, fields["value_arg"]
        )
        with pytest.raises(errors.InvalidArgumentError):
            serialize.graph_from_bytes(_file(fields))


@pytest.mark.parametrize("sizes", [(2**40, 2**40), (2**61, 0), (2**31, 2**28)])
def test_tensors_that_are_lies(little_memory: None, sizes: tuple[int, int]) -> None:
    graph = Graph()
    with graph.as_default():
        value(np.zeros((1, 0), np.float32))
        value(strings(b"a", b"b").reshape(1, 2))
    fields = _fields(serialize.graph_to_bytes(graph))
    for row in range(2):
        changed = {k: np.copy(v) for k, v in fields.items()}
        changed["shape_sizes"][2 * row : 2 * row + 2] = sizes
        with pytest.raises(errors.DataLossError):
            serialize.graph_from_bytes(_file(changed))


def test_shared_sets_do_not_multiply(little_memory: None) -> None:
    graph = Graph()
    with graph.as_default():
        for i in range(2000):
            extra = {f"_{k}": k for k in range(2000)} if i == 0 else {}
            create("SerSource", (), {"dtype": dtypes.float32, "shape": None, **extra})
    fields = _fields(serialize.graph_to_bytes(graph))
    fields["node_attrs"][:] = 0
    with pytest.raises(errors.DataLossError, match="4004000 attributes for 2000 owners"):
        serialize.graph_from_bytes(_file(fields))


def test_a_list_cannot_hold_itself() -> None:
    graph = Graph()
    with graph.as_default():
        create("SerSource", (), {"dtype": dtypes.float32, "shape": None, "_list": (5, 6)})
    fields = _fields(serialize.graph_to_bytes(graph))
    own = int(np.flatnonzero(fields["value_kind"] == layout.Kind.LIST)[0])
    fields["list_items"][0] = own
    with pytest.raises(errors.DataLossError, match=f"a list holds value {own}"):
        serialize.graph_from_bytes(_file(fields))
