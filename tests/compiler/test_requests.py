"""Regions and loops reach the compiler by the same methods."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import weft as wf
from weft_compiler.generator import LlvmGenerator, PtxGenerator
from weft_graph.ir.code_generators import Generated, NotGenerated, RegionRequest
from weft_graph.ir.node import Node
from weft_graph.passes.flow import Flow
from weft_graph.passes.functional_form import Structurer
from weft_graph.passes.whole_loops import LoopRequest, WholeLoop


@pytest.fixture(autouse=True)
def graph() -> Iterator[None]:
    """Give each test its own default graph."""
    with wf.Graph().as_default():
        yield


def region_of(size: int) -> RegionRequest:
    """Return a request for a small region."""
    x = wf.placeholder(wf.float32, [None])
    y = wf.exp(x)
    return RegionRequest([y.op], [y.op.inputs[0]], list(y.op.outputs), [(size,)])


def whole_loop() -> WholeLoop:
    """Return a loop of two variables: a counter and a vector."""
    x = wf.placeholder(wf.float32, [None])
    last = wf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 1.5), [0, x])
    nodes = _nodes()
    flow = Flow(nodes)
    structurer = Structurer(nodes, flow, lambda node: False)
    fetches = [each.op.outputs[0] for each in last]
    return WholeLoop(structurer.loop(flow.frames[1]), flow, fetches)


def _nodes() -> list[Node]:
    return list(wf.get_default_graph().get_operations())


def loop_of(size: int) -> LoopRequest:
    """Return a request for a loop."""
    whole = whole_loop()
    shapes = [(size,) if e.outputs[0].dtype == wf.float32 else () for e in whole.enters]
    return LoopRequest(whole, shapes, (), False)


@pytest.mark.parametrize("request_of", [region_of, loop_of])
def test_a_request_is_generated_and_has_a_fingerprint_by_its_shapes(request_of: Any) -> None:
    generator = LlvmGenerator()
    request = request_of(4)
    generated: Generated = generator.generate(request)
    assert generated.results[-1] == (wf.float32, (4,))
    names = [generator.fingerprint(request_of(size)) for size in (4, 4, 5)]
    assert names[0] == names[1] != names[2]
    assert set(request.nodes) <= set(_nodes()) and request.name


def test_a_loop_is_supported_if_its_nodes_are() -> None:
    assert LlvmGenerator().unsupported_reason(whole_loop()) == ""
    with wf.Graph().as_default():
        last = wf.while_loop(
            lambda i, s: i < 3, lambda i, s: (i + 1, wf.strings.join([s, "a"])), [0, ""]
        )
        flow = Flow(_nodes())
        loop = Structurer(_nodes(), flow, lambda node: False).loop(flow.frames[1])
        whole = WholeLoop(loop, flow, [each.op.outputs[0] for each in last])
        assert "string" in LlvmGenerator().unsupported_reason(whole)


def test_gpus_compile_no_loops_as_a_whole() -> None:
    assert (
        PtxGenerator().unsupported_reason(whole_loop())
        == "only single nodes are compiled, not whole loops"
    )


class Unknown(NamedTuple):
    """A kind of request of another package."""

    name: str
    nodes: list[Node]


@pytest.mark.parametrize("method", ["find", "generate", "fingerprint"])
def test_a_request_of_an_unknown_kind_is_refused(method: str) -> None:
    with pytest.raises(NotGenerated, match="Unknown is not supported"):
        getattr(LlvmGenerator(), method)(Unknown("it", []))


def test_a_generated_loop_computes() -> None:
    request = loop_of(2)
    generated = LlvmGenerator().generate(request)
    x = np.array([1.0, 2.0], np.float32)
    given = [
        x if request.whole.enters[at].outputs[0].dtype == wf.float32 else np.array(0, np.int32)
        for at in generated.input_positions
    ]
    out = [np.empty(shape, dtype.numpy) for dtype, shape in generated.results]
    generated(*given, *out)
    np.testing.assert_allclose(out[-1], x * 1.5**3)
