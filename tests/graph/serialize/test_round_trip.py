"""Graphs to bytes and back."""

from __future__ import annotations

import gc
import io
import mmap
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from weft_testing.graphs import (
    assert_same_graph,
    same_value,
    sample_graph,
    source,
    strings,
    value,
)

from weft_graph import proto, serialize
from weft_graph.ir.builder import create, out
from weft_graph.ir.graph import Graph
from weft_graph.ir.library import LazyFunction
from weft_graph.messages.function_reader import function_from_def
from weft_graph.serialize import layout
from weft_tensor import dtypes, errors


class Trickle(io.RawIOBase):
    """A file that gives a few bytes at a time and cannot seek."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self._data.read(min(len(buffer), 1000))
        buffer[: len(part)] = part
        return len(part)


def test_everything_comes_back() -> None:
    graph = sample_graph()
    back = serialize.graph_from_bytes(serialize.graph_to_bytes(graph))
    assert_same_graph(graph, back)
    assert "graphs.py" in back.nodes[0].line


def test_bytes_are_the_same_again() -> None:
    data = serialize.graph_to_bytes(sample_graph())
    assert serialize.graph_to_bytes(serialize.graph_from_bytes(data)) == data


def test_an_empty_graph() -> None:
    back = serialize.graph_from_bytes(serialize.graph_to_bytes(Graph()))
    assert back.nodes == []


def test_files() -> None:
    graph = sample_graph()
    file = io.BytesIO()
    count = serialize.write_graph(graph, file)
    assert count == file.tell() == len(serialize.graph_to_bytes(graph))
    file.seek(0)
    assert_same_graph(graph, serialize.read_graph(file))
    assert_same_graph(graph, serialize.read_graph(Trickle(file.getvalue())))


def test_large_constants_are_aligned_views_of_the_source() -> None:
    graph = Graph()
    large = np.random.default_rng(1).random((300, 300))
    with graph.as_default():
        value(large, name="a")
        value(np.arange(8, dtype=np.int8), name="b")
        value(strings(*[b"word"] * 20_000), name="c")
        value(large[:, ::2], name="d")
    data = serialize.graph_to_bytes(graph)
    back = serialize.graph_from_bytes(data)
    assert_same_graph(graph, back)
    array = back.get_operation_by_name("a").attrs["value"]
    assert np.shares_memory(array, np.frombuffer(data, np.uint8))
    assert not array.flags.writeable
    assert data.find(large.tobytes()) % layout.ALIGNMENT == 0
    from_file = serialize.read_graph(io.BytesIO(data)).get_operation_by_name("a").attrs["value"]
    assert from_file.ctypes.data % layout.ALIGNMENT == 0


def test_one_array_in_many_nodes_is_stored_once() -> None:
    graph = Graph()
    shared = np.zeros(100_000, np.uint8)
    shared.flags.writeable = False  # a node would copy what others may write to
    with graph.as_default():
        for _ in range(10):
            value(shared)
    data = serialize.graph_to_bytes(graph)
    assert len(data) < 110_000
    arrays = {id(n.attrs["value"]) for n in serialize.graph_from_bytes(data).nodes}
    assert len(arrays) == 1


def test_much_inline_data_moves_to_the_blobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft_graph.serialize.writer.INLINE_TOTAL", 1000)
    graph = Graph()
    with graph.as_default():
        for i in range(20):
            value(np.full(100, i, np.uint8))
    data = serialize.graph_to_bytes(graph)
    assert layout.unpack_header(data[:64], 0)[1] == 11 * layout.aligned(100)
    assert_same_graph(graph, serialize.graph_from_bytes(data))


def test_segments() -> None:
    graph = sample_graph()
    file = io.BytesIO()
    serialize.write_graph(graph, file)
    count = len(graph.nodes)
    with graph.as_default(), graph.control_dependencies([graph.nodes[1]]):
        x = graph.get_tensor_by_name("x:0")
        last = out("SerAdd", [x, out("SerSame", [x])])
    last.node.forward = x.node
    serialize.write_graph(graph, file, from_node=count)
    file.seek(0)
    assert_same_graph(graph, serialize.read_graph(file))
    replica = serialize.graph_from_bytes(file.getvalue()[: -_segment_size(graph, count)])
    assert len(replica.nodes) == count
    extended = serialize.graph_from_bytes(serialize.graph_to_bytes(graph, count), into=replica)
    assert extended is replica
    assert_same_graph(graph, replica)
    with replica.as_default():
        assert create("SerSame", [replica.get_tensor_by_name("x:0")]).name == "SerSame_1"


def _segment_size(graph: Graph, from_node: int) -> int:
    return len(serialize.graph_to_bytes(graph, from_node))


def test_a_segment_must_follow() -> None:
    graph = sample_graph()
    tail = serialize.graph_to_bytes(graph, 3)
    with pytest.raises(errors.InvalidArgumentError, match=r"begins with node 3, .* has 0"):
        serialize.graph_from_bytes(tail)
    with pytest.raises(errors.FailedPreconditionError, match="finalized"):
        full = Graph()
        full.finalize()
        serialize.graph_from_bytes(serialize.graph_to_bytes(graph), into=full)


def test_functions() -> None:
    graph = Graph()
    function = proto.FunctionDef()
    function.signature.name = "f"
    graph.functions["f"] = LazyFunction(function, function_from_def)
    back = serialize.graph_from_bytes(serialize.graph_to_bytes(graph))
    assert back.functions.definition("f") == function
    graph.functions["g"] = object()
    with pytest.raises(errors.UnimplementedError, match="'g'"):
        serialize.graph_to_bytes(graph)


def test_nodes_may_come_in_any_order_without_a_cycle() -> None:
    graph = Graph()
    with graph.as_default():
        x = source()
        y = out("SerSame", [x])
        z = out("SerSame", [x])
    graph.replace_input(y.node, 0, z, reason="test")
    assert_same_graph(graph, serialize.graph_from_bytes(serialize.graph_to_bytes(graph)))
    graph.replace_input(z.node, 0, y, reason="test")
    with pytest.raises(errors.InvalidArgumentError, match="2 nodes are on or after a cycle"):
        serialize.graph_from_bytes(serialize.graph_to_bytes(graph))


def test_what_has_no_durable_form() -> None:
    graph = Graph()
    with graph.as_default():
        node = source().node
    node.attrs["_odd"] = object()
    with pytest.raises(errors.InvalidArgumentError, match="object object") as caught:
        serialize.graph_to_bytes(graph)
    assert caught.value.node == "source"
    node.attrs["_odd"] = 2**63
    with pytest.raises(errors.InvalidArgumentError, match="64 bits"):
        serialize.graph_to_bytes(graph)


def test_limits() -> None:
    data = serialize.graph_to_bytes(sample_graph())
    with pytest.raises(errors.ResourceExhaustedError, match="limit is 100 bytes"):
        serialize.graph_from_bytes(data, max_bytes=100)
    with pytest.raises(errors.ResourceExhaustedError, match="the limit is 5"):
        serialize.graph_from_bytes(data, max_nodes=5)
    with pytest.raises(errors.InvalidTypeError, match="got str"):
        serialize.read_graph("graph.weft")


def test_more_than_the_memory_of_the_columns_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft_graph.schema.columns._MAX_BYTES", 100)
    with pytest.raises(errors.InvalidArgumentError, match="write the graph in several segments"):
        serialize.graph_to_bytes(sample_graph())


SCALARS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.booleans(),
    st.text(st.characters(codec="utf-8")),
    st.binary().map(lambda tail: b"\xff" + tail),
    st.sampled_from(dtypes.ALL_DTYPES),
)
VALUES = st.one_of(
    SCALARS,
    st.lists(st.integers(-5, 5)).map(tuple),
    st.lists(st.floats()).map(tuple),
    st.lists(st.text(st.characters(codec="utf-8"))).map(tuple),
)


@given(st.lists(st.dictionaries(st.sampled_from(["_a", "_b", "_c"]), VALUES), max_size=6))
def test_any_attributes(sets: list[dict[str, Any]]) -> None:
    graph = Graph()
    with graph.as_default():
        for attrs in sets:
            out("SerSource", (), {"dtype": dtypes.float32, "shape": None, **attrs})
    back = serialize.graph_from_bytes(serialize.graph_to_bytes(graph))
    for a, b in zip(graph.nodes, back.nodes, strict=True):
        assert a.attrs.keys() == b.attrs.keys()
        assert all(same_value(a.attrs[key], b.attrs[key]) for key in a.attrs)


@given(st.integers(0, 2**32))
def test_any_graph(seed: int) -> None:
    choose = random.Random(seed)
    graph = Graph()
    with graph.as_default():
        outputs = [source(shape=(4,))]
        for _ in range(choose.randrange(40)):
            with graph.control_dependencies(choose.sample(graph.nodes, min(2, len(graph.nodes)))):
                many = choose.choices(outputs, k=choose.randrange(1, 4))
                outputs += create("SerMany", [many]).outputs
    assert_same_graph(graph, serialize.graph_from_bytes(serialize.graph_to_bytes(graph)))


@pytest.mark.long
def test_more_than_two_gigabytes(tmp_path: Path) -> None:
    graph = Graph()
    with graph.as_default():
        for i in range(3):
            array = np.zeros(2**30, np.uint8)
            array[-1] = i
            value(array)
    path = tmp_path / "large.weft"
    with path.open("wb") as file:
        serialize.write_graph(graph, file)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
        back = serialize.graph_from_bytes(memory)
        assert [int(node.attrs["value"][-1]) for node in back.nodes] == [0, 1, 2]
        assert sum(node.attrs["value"].size for node in back.nodes) == 3 * 2**30
        del back
        gc.collect()
