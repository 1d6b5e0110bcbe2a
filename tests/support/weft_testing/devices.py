"""The conformance table on another device than the CPU."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

import weft as wf
from weft_autodiff.gradients.backprop import gradients
from weft_autodiff.registry import gradient_of, not_differentiable
from weft_exec.kernels.registry import kernels_of
from weft_graph.ir.builder import constant_of, create, out
from weft_graph.ir.node import Node, Output
from weft_tensor import dtypes
from weft_testing.cases import Array, Case

DIFFERENTIATED = ("float32", "complex128")


class CaseGraph:
    """Nodes of one case for all its element types, with gradients for some."""

    def __init__(self) -> None:
        self.feeds: dict[Output, Any] = {}
        self.nodes: list[Node] = []
        self.fetches: list[Output] = []

    def add(self, case: Case, dtype: str) -> None:
        """Add the case for one element type."""
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
            self._differentiate(node, [flat[i] for i in case.varied()])

    def _differentiate(self, node: Node, xs: list[Output]) -> None:
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


def build(case: Case) -> tuple[wf.Graph, CaseGraph]:
    """The graph of a case."""
    with wf.Graph().as_default() as graph:
        wf.set_random_seed(zlib.crc32(case.name.encode()))
        made = CaseGraph()
        for dtype in case.dtypes:
            made.add(case, dtype)
    return graph, made


def pin(graph: wf.Graph, device_type: str) -> list[Node]:
    """Ask for a device wherever it has a kernel of its own."""
    pinned = [
        node
        for node in graph.nodes
        if any(entry.accepts(node) for entry in kernels_of(node.type, device_type))
    ]
    for node in pinned:
        node.device = f"/device:{device_type}:0"
    return pinned


def unfolded(**options: Any) -> wf.ConfigProto:
    """A configuration that folds no constants, which happens on the host."""
    proto = wf.ConfigProto(**options)
    proto.graph_options.optimizer_options.opt_level = -1
    return proto


def compare(
    case: Case, output: Output, got: Any, want: Any, tolerance: dict[str, tuple[float, float]]
) -> None:
    """Raise AssertionError unless a value is that of the CPU, up to rounding."""
    assert got.dtype == want.dtype and got.shape == want.shape, output
    limits = tolerance.get(output.dtype.name)
    if limits is None:
        if got.tobytes() == want.tobytes():
            return
        np.testing.assert_array_equal(got, want, err_msg=repr(output))
        return
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(
        got.astype(wide), want.astype(wide), *limits, equal_nan=True, err_msg=repr(output)
    )
