"""Files converted back to graphs compute the same as the runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from weft_testing import lite
from weft_testing.case_graph import CaseGraph
from weft_testing.cases import Case, load_cases

import weft as wf
from weft_lite.convert.graphs import graph_of
from weft_tensor import errors

CASES = [case for cases in load_cases().values() for case in cases]


def compared(case: Case) -> int:
    """Return the number of nodes of a case whose results equal those of the runtime."""
    made, count = CaseGraph(case), 0
    if not lite.takes(made):
        return 0
    for node in filter(lite.has_types, made.nodes):
        try:
            content, fed = lite.converted(made, node)
            source = graph_of(content)
        except errors.UnimplementedError:
            continue
        feeds = dict(zip(source.inputs.values(), fed, strict=True))
        with wf.Session(graph=source.graph) as session:
            results = session.run(list(source.outputs.values()), feeds)
        for got, want in zip(results, lite.run(content, fed), strict=True):
            agree(got, want)
        count += 1
    return count


def agree(got: Any, want: Any) -> None:
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    limit = 2e-3 if want.dtype == np.float16 else 2e-5
    wide = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_allclose(*wide, rtol=limit, atol=1e-5)


@pytest.mark.parametrize(
    ("step", "fewest"), [pytest.param(11, 100), pytest.param(1, 2000, marks=pytest.mark.long)]
)
def test_ops_of_files_compute_what_the_runtime_does(step: int, fewest: int) -> None:
    assert sum(map(compared, CASES[::step])) >= fewest


@pytest.mark.parametrize("weights", ["float32", "int8"])
@pytest.mark.parametrize("cell", [wf.nn.rnn_cell.LSTMCell, wf.nn.rnn_cell.GRUCell])
def test_cells_compute_what_the_runtime_does(cell: Any, weights: str) -> None:
    """Widths that are not multiples of four, which determine the layout of bytes."""
    value = np.random.default_rng(0).standard_normal((1, 3, 5)).astype("f")
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [1, 3, 5], name="x")
        outputs, _ = wf.nn.static_rnn(cell(6), wf.unstack(x, axis=1), dtype=wf.float32)
        y = wf.identity(outputs[-1], name="y")
        session.run(wf.global_variables_initializer())
        converter = wf.lite.Converter.from_session(session, [x], [y])
        options: Any = {"calibration": [{"x": value}]} if weights == "int8" else {}
        content = converter.convert(**options, limit=1.0)
    source = graph_of(content)
    with wf.Session(graph=source.graph) as session:
        (got,) = session.run(list(source.outputs.values()), {source.inputs["x"]: value})
    want = lite.run(content, [value])[0]
    np.testing.assert_allclose(got, want, atol=1e-6)


def test_products_of_bytes_with_scales_that_come_with_them() -> None:
    draw = np.random.default_rng(0)

    def weights(*shape: int) -> Any:
        return wf.constant(draw.standard_normal(shape).astype("f"))

    value = draw.standard_normal((3, 6, 6, 3)).astype("f")
    value[1] = 0
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [3, 6, 6, 3], name="x")
        h = wf.nn.relu(wf.nn.conv2d(x, weights(3, 3, 3, 20), 1, "SAME") + weights(20))
        h = wf.nn.depthwise_conv2d(h, weights(5, 5, 20, 1), [1, 2, 2, 1], "SAME")
        y = wf.identity(wf.reshape(h, [3, 180]) @ weights(180, 19), name="y")
        content = wf.lite.Converter.from_session(session, [x], [y]).convert(
            weights="dynamic", limit=1.0
        )
    source = graph_of(content)
    assert {"Conv2DInteger", "DepthwiseConv2dInteger", "MatMulInteger"} <= {
        node.type for node in source.graph.get_operations()
    }
    with wf.Session(graph=source.graph) as session:
        (got,) = session.run(list(source.outputs.values()), {source.inputs["x"]: value})
    agree(got, lite.run(content, [value])[0])


@pytest.mark.parametrize("weights", ["float16", "int8"])
def test_weights_that_an_op_makes_floats_of(weights: str) -> None:
    draw = np.random.default_rng(0)
    value = draw.standard_normal((1, 6, 6, 3)).astype("f")
    with wf.Graph().as_default(), wf.Session() as session:
        x = wf.placeholder(wf.float32, [1, 6, 6, 3], name="x")
        h = wf.nn.conv2d(x, wf.constant(draw.standard_normal((3, 3, 3, 20)).astype("f")), 1, "SAME")
        dense = wf.constant(draw.standard_normal((720, 19)).astype("f"))
        y = wf.identity(wf.reshape(h, [1, 720]) @ dense, name="y")
        content = wf.lite.Converter.from_session(session, [x], [y]).convert(weights=weights)
    source = graph_of(content)
    with wf.Session(graph=source.graph) as session:
        (got,) = session.run(list(source.outputs.values()), {source.inputs["x"]: value})
    agree(got, lite.run(content, [value])[0])
