"""A row of the conformance table as one graph, which any backend can run."""

from __future__ import annotations

import zlib
from typing import Any

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
    """A graph with the nodes of one case for all its element types.

    Attributes:
      graph: of these nodes alone.
      nodes: one for each element type.
      feeds: the inputs' values.
      fetches: the nodes' outputs, then gradients.
    """

    def __init__(self, case: Case) -> None:
        self.case = case
        self.graph = wf.Graph()
        self.feeds: dict[Output, Any] = {}
        self.nodes: list[Node] = []
        self.fetches: list[Output] = []
        self._inputs: list[list[Output]] = []
        with self.graph.as_default():
            wf.set_random_seed(zlib.crc32(case.name.encode()))
            for dtype in case.dtypes:
                self._add(dtype)

    def _add(self, dtype: str) -> None:
        case = self.case
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
        self._inputs.append([flat[i] for i in case.varied()])

    def differentiate(self) -> None:
        """Add the gradients by the inputs, for the element types in `DIFFERENTIATED`."""
        if self.case.grad is False:
            return
        with self.graph.as_default():
            for dtype, node, xs in zip(self.case.dtypes, self.nodes, self._inputs, strict=True):
                if dtype not in DIFFERENTIATED or gradient_of(node).function is not_differentiable:
                    continue
                ys = [y for y in node.outputs if y.dtype.is_floating or y.dtype.is_complex]
                found = [grad for grad in gradients(ys, xs) if grad is not None]
                self.fetches.extend([wf.convert_to_tensor(grad) for grad in found])

    def _feed(self, array: Array) -> Output:
        element = dtypes.string if array.dtype.kind == "O" else dtypes.from_numpy(array.dtype)
        value = out("TestInput", (), {"dtype": element, "shape": array.shape})
        self.feeds[value] = array
        return value


def pin(graph: wf.Graph, device_type: str) -> list[Node]:
    """Request a device for all nodes that have a kernel for it."""
    pinned = []
    for node in graph.nodes:
        node.device = ""
        if any(entry.accepts(node) for entry in kernels_of(node.type, device_type)):
            node.device = f"/device:{device_type}:0"
            pinned.append(node)
    return pinned


def unfolded(**options: Any) -> wf.ConfigProto:
    """Return a config without constant folding, which happens on the host."""
    proto = wf.ConfigProto(**options)
    proto.graph_options.optimizer_options.opt_level = -1
    return proto
