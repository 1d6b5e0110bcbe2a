"""Old files are read as the graphs that they were written from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from weft_testing.graphs import assert_same_graph, looped_graph, sample_graph, segmented_graph

import weft as wf
from weft_graph import serialize
from weft_graph.ir.graph import Graph

FOLDER = Path(__file__).parent / "golden"


def _read(name: str) -> Graph:
    with (FOLDER / name).open("rb") as file:
        return serialize.read_graph(file)


def _assert_same(graph: Graph, back: Graph) -> None:
    assert_same_graph(graph, back, durable=False)
    for a, b in zip(graph.nodes, back.nodes, strict=True):
        assert (a.forward and a.forward.name) == (b.forward and b.forward.name)
        # Lines move when the helper is edited; that it was the helper stays true.
        assert "weft_testing/graphs.py:" in b.line


def test_everything_v1() -> None:
    _assert_same(sample_graph(), _read("everything_v1.weft"))


def test_segments_v1() -> None:
    _assert_same(segmented_graph()[0], _read("segments_v1.weft"))


def test_there_is_a_test_for_every_file() -> None:
    names = {path.stem for path in FOLDER.glob("*.weft")}
    assert names == {"everything_v1", "loops_v2", "segments_v1"}


def test_loops_can_be_differentiated_again() -> None:
    """The values and gradients of the file's graph equal those of a newly built graph."""
    found = []
    for graph in (looped_graph(), _read("loops_v2.weft")):
        with graph.as_default(), wf.Session() as session:
            x, grad = graph.get_tensor_by_name("x:0"), graph.get_tensor_by_name("grad:0")
            second = wf.gradients(grad, x)[0]
            found.append(session.run(["y:0", grad, second], {x: 0.9}))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)
