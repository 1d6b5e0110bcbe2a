"""Branches and loops in the durable form: loaded graphs can be differentiated."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, strategies as st
from weft_testing.graphs import looped_graph

import weft as wf
from weft import errors
from weft_graph.control_flow.context import CondContext, WhileContext
from weft_graph.schema import columns
from weft_graph.serialize.layout import HEADER_SIZE, pack_header
from weft_graph.serialize.reader import graph_from_bytes
from weft_graph.serialize.writer import graph_to_bytes, segment_ends


def values(graph: wf.Graph) -> list[Any]:
    """The value, its gradient, and gradients taken now: of the value and of its gradient."""
    with graph.as_default(), wf.Session() as session:
        x = graph.get_tensor_by_name("x:0")
        y, grad = graph.get_tensor_by_name("y:0"), graph.get_tensor_by_name("grad:0")
        again, second = wf.gradients(y, x)[0], wf.gradients(grad, x)[0]
        return session.run([y, grad, again, second], {x: 0.9})


def test_contexts_come_back_whole() -> None:
    graph = looped_graph()
    other = graph_from_bytes(graph_to_bytes(graph))
    assert list(other.contexts) == list(graph.contexts)
    for mine, theirs in zip(graph.contexts.values(), other.contexts.values(), strict=True):
        assert type(mine) is type(theirs)
        assert (mine.outer and mine.outer.name) == (theirs.outer and theirs.outer.name)
        assert [n.name for n in graph.nodes if n.context is mine] == [
            n.name for n in other.nodes if n.context is theirs
        ]
        if isinstance(mine, WhileContext):
            for kind in ("merges", "switches", "exits", "next_values"):
                assert [n.name for n in getattr(mine, kind)] == [
                    n.name for n in getattr(theirs, kind)
                ]
            assert mine.parallel_iterations == theirs.parallel_iterations
            assert mine.swap_memory == theirs.swap_memory
        else:
            assert isinstance(mine, CondContext)
            assert mine.conditional.pred.name == theirs.conditional.pred.name
    expected = values(graph)
    np.testing.assert_allclose(expected[1], expected[2])
    np.testing.assert_array_equal(values(other), expected)


def test_a_later_segment_adds_to_a_loop() -> None:
    graph = looped_graph()
    first = graph_to_bytes(graph)
    count = len(graph.nodes)
    with graph.as_default():
        second = wf.gradients(graph.get_tensor_by_name("grad:0"), graph.get_tensor_by_name("x:0"))
        wf.identity(second[0], name="second")
    other = graph_from_bytes(first + graph_to_bytes(graph, from_node=count))
    with wf.Session(graph=graph) as one, wf.Session(graph=other) as two:
        assert one.run("second:0", {"x:0": 0.9}) == two.run("second:0", {"x:0": 0.9})


def test_segments_are_cut_where_no_loop_and_no_branch_is_open() -> None:
    graph = looped_graph()
    with graph.as_default():
        for i in range(3):
            x = graph.get_tensor_by_name("x:0")
            with wf.name_scope(f"after{i}"):
                z = wf.cond(x > 0.0, lambda x=x, i=i: x * float(i), lambda x=x: x + 9.0)
                wf.add(z, wf.constant(np.full(100, i, float)), name="sum")
    ends = list(segment_ends(graph, 0, len(graph.nodes), 0))
    assert len(ends) > 4 and ends == sorted(set(ends)) and ends[-1] == len(graph.nodes)
    starts = [0, *ends[:-1]]
    cut = b"".join(graph_to_bytes(graph, *ends) for ends in zip(starts, ends, strict=True))
    other = graph_from_bytes(cut)
    assert [node.name for node in other.nodes] == [node.name for node in graph.nodes]
    np.testing.assert_array_equal(values(other), values(graph))
    names = [f"after{i}/sum:0" for i in range(3)]
    with wf.Session(graph=graph) as one, wf.Session(graph=other) as two:
        np.testing.assert_equal(*(s.run(names, {"x:0": 0.9}) for s in (one, two)))


def test_a_constant_above_the_limit_has_a_segment_of_its_own() -> None:
    with wf.Graph().as_default() as graph:
        for size in (10, 10, 100, 1000, 10):
            wf.constant(np.zeros(size, np.uint8))
    assert list(segment_ends(graph, 0, 5, 150)) == [3, 4, 5]
    assert list(segment_ends(graph, 1, 4, 5000)) == [4]
    assert list(segment_ends(graph, 5, 5, 1)) == [5]


def test_graphs_without_control_flow_are_for_older_readers_too() -> None:
    with wf.Graph().as_default() as graph:
        wf.constant(1.0)
    plain = columns.Columns(np.frombuffer(graph_to_bytes(graph)[HEADER_SIZE:], np.uint8), 0)
    looped = columns.Columns(
        np.frombuffer(graph_to_bytes(looped_graph())[HEADER_SIZE:], np.uint8), 0
    )
    assert (plain.scalars["min_reader"], looped.scalars["min_reader"]) == (1, 2)


@given(st.data())
def test_a_wrong_column_is_refused_or_harmless(data: st.DataObject) -> None:
    """One number of the contexts' columns is another: an error by name, and `into` as it was."""
    import zlib

    whole = graph_to_bytes(looped_graph())
    fields = columns.Columns(np.frombuffer(whole[HEADER_SIZE:], np.uint8), 0)
    changed: dict[str, Any] = dict(fields.scalars) | {k: v.copy() for k, v in fields.arrays.items()}
    names = [n for n in columns.VECTORS if n.startswith("loop_") and changed[n].size]
    name = data.draw(st.sampled_from(names))
    place = data.draw(st.integers(0, changed[name].size - 1))
    changed[name][place] = data.draw(st.integers(0, 120))
    metadata = columns.build(changed)
    header = pack_header(len(metadata), 0, zlib.crc32(metadata))
    file = header + bytes(metadata) + bytes(-len(metadata) % 64)
    graph = wf.Graph()
    try:
        graph_from_bytes(file, into=graph)
    except errors.OpError:
        assert not graph.nodes and not graph.contexts
    else:
        graph.check_integrity()
