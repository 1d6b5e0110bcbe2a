"""The conformance table on a simulated accelerator: all ops with the values of the CPU."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
import weft_accelerator
from weft_testing.cases import Array, Case, load_cases

import weft as wf
from weft_autodiff.backprop import gradients
from weft_autodiff.registry import gradient_of, not_differentiable
from weft_exec.kernels.registry import find_kernel, kernels_of, registered_kernels
from weft_graph.builder import constant_of, create, out
from weft_graph.node import Node, Output
from weft_tensor import dtypes

ACCEL = "/device:ACCEL:0"
DIFFERENTIATED = ("float32", "complex128")


@pytest.fixture(scope="module", autouse=True)
def _hardware() -> None:
    weft_accelerator.plug_in(1)
    with wf.Session(config=config()):
        pass  # the first session registers the kernels


def config() -> wf.ConfigProto:
    proto = wf.ConfigProto(device_count={"ACCEL": 1})
    proto.graph_options.optimizer_options.opt_level = -1  # else constants are folded on the host
    return proto


class _Graph:
    """Nodes of one case for all its element types."""

    def __init__(self) -> None:
        self.feeds: dict[Output, Any] = {}
        self.nodes: list[Node] = []
        self.fetches: list[Output] = []

    def add(self, case: Case, dtype: str) -> None:
        constant = iter(case.is_constant())
        flat: list[Output] = []

        def place(array: Array) -> Output:
            value = constant_of(array.copy()) if next(constant) else self._feed(array)
            prepare = case.prepare.get(len(flat))
            flat.append(value)
            return value if prepare is None else prepare(value)

        arguments = [
            [place(a) for a in x] if isinstance(x, list) else place(x) for x in case.arrays(dtype)
        ]
        attrs = dict(case.attrs)
        if dtype and case.type_attr in case.op_def.attrs:
            attrs[case.type_attr] = dtypes.as_dtype(dtype)
        node = create(case.op, arguments, attrs)
        self.nodes.append(node)
        self.fetches.extend(node.outputs)
        if dtype in DIFFERENTIATED and case.grad is not False:
            self._differentiate(case, node, [flat[i] for i in case.varied()])

    def _differentiate(self, case: Case, node: Node, xs: list[Output]) -> None:
        if gradient_of(node).function is not_differentiable:
            return
        ys = [y for y in node.outputs if y.dtype.is_floating or y.dtype.is_complex]
        found = [grad for grad in gradients(ys, xs) if grad is not None]
        self.fetches.extend([wf.convert_to_tensor(grad) for grad in found])

    def _feed(self, array: Array) -> Output:
        element = dtypes.string if array.dtype.kind == "O" else dtypes.from_numpy(array.dtype)
        value = out("TestInput", (), {"dtype": element, "shape": array.shape})
        self.feeds[value] = array
        return value


def build(case: Case) -> tuple[wf.Graph, _Graph]:
    with wf.Graph().as_default() as graph:
        wf.set_random_seed(zlib.crc32(case.name.encode()))
        made = _Graph()
        for dtype in case.dtypes:
            made.add(case, dtype)
    return graph, made


def pin(graph: wf.Graph) -> list[Node]:
    """Ask for the accelerator wherever it has a kernel of its own."""
    pinned = [node for node in graph.nodes if _own_kernel(node)]
    for node in pinned:
        node.device = ACCEL
    return pinned


def _own_kernel(node: Node) -> bool:
    return any(kernel.accepts(node) for kernel in kernels_of(node.type, "ACCEL"))


def _rows() -> list[Any]:
    return [
        pytest.param(case, id=f"{family}-{case.name}")
        for family, cases in load_cases().items()
        for case in cases
    ]


@pytest.mark.parametrize("case", _rows())
def test_an_op_has_the_values_of_the_cpu(case: Case) -> None:
    graph, made = build(case)
    with wf.Session(graph=graph) as session:
        wanted = session.run(made.fetches, made.feeds)
    graph, made = build(case)
    pinned = pin(graph)
    if not any(node in made.nodes for node in pinned):
        return  # of the host alone: strings, functions, and what has no kernel by itself
    hardware = weft_accelerator.accelerator()
    before = hardware.kernels
    with wf.Session(graph=graph, config=config()) as session:
        results = session.run(made.fetches, made.feeds)
    assert hardware.kernels - before >= len([node for node in made.nodes if node in pinned])
    for output, got, want in zip(made.fetches, results, wanted, strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape, output
        if case.expected is not None and got.tobytes() != want.tobytes():
            np.testing.assert_array_equal(got, want, err_msg=repr(output))


def test_most_ops_run_on_the_accelerator() -> None:
    have = registered_kernels()
    own = {op for op, device in have if device == "ACCEL"}
    assert len(own) > 350
    assert {"StrangerHypot", "MatMul", "Conv2D", "ApplyAdam", "VarHandleOp"} <= own
    stays = {"StringJoin", "QueueDequeueV2", "SaveV2", "PyFunc", "StackPushV2", "If", "MutexV2"}
    assert not stays & own


def test_strings_have_no_kernel_there() -> None:
    text, number = wf.constant(["a"]), wf.constant([1.0])
    assert find_kernel(wf.equal(text, text).op, "ACCEL") is None
    assert find_kernel(wf.equal(number, number).op, "ACCEL") is not None
