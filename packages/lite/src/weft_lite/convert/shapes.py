"""Inference of the largest shapes, on a copy of the graph with its loops cut open.

Inputs have their largest shapes. A loop variable has its initial shape; one that grows needs its
own bound. A shape that depends on values is determined by a run on zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from weft_graph import proto
from weft_graph.ir.constant_value import constant_value
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import StepGraph, is_back_edge
from weft_graph.ir.traits import Role
from weft_graph.messages.graph_def import graph_to_def
from weft_graph.messages.import_graph_def import import_graph_def
from weft_graph.ops.stack import producer
from weft_lite.convert.errors import NotInLiteError

Shape = tuple[int, ...]
Measure = Callable[[Output], Shape]

_PASSING = {Role.ENTER, Role.EXIT, Role.NEXT_ITERATION, Role.LOOP_COND, Role.SWITCH}
_ROUNDS = 32
"""Maximum number of rounds; each finds the elements of a TensorArray, or the result of a run."""


MAX_FOLDED_ELEMENTS: Final = 1024
"""Maximum number of elements of a constant whose value may determine a shape."""


def _to_static_shape(dims: Sequence[int | None] | None) -> Shape | None:
    """Return fully known dims as a shape, otherwise None."""
    if dims is None or None in dims:
        return None
    return tuple(int(size) for size in dims if size is not None)


class Shapes:
    """Shapes of the outputs of a step, with open sizes at their bound.

    Args:
      step: the graph; `bounds` has the shapes of its feeds.
      bounds: a shape for each feed, and for some nodes by name.
      measure: function that determines the shape of an output outside of loops by a run on zeros.
    """

    def __init__(
        self, step: StepGraph, bounds: Sequence[Shape], named: Mapping[str, Shape], measure: Measure
    ) -> None:
        self._step = step
        self._measure = measure
        self._pins: dict[str, Shape] = {
            feed.name: bound for feed, bound in zip(step.feeds, bounds, strict=True)
        }
        self._names = {node.name: f"n{i}" for i, node in enumerate(step.graph.nodes)}
        self.named = named
        for node in step.graph.nodes:
            if node.name in named and node.role is not Role.TENSOR_ARRAY:
                self._pins[f"{node.name}:0"] = named[node.name]
        self._elements: dict[str, Shape] = {}
        self._copy: Graph | None = None
        if any(node.role is Role.TENSOR_ARRAY for node in step.graph.nodes):
            for _ in range(_ROUNDS):
                if not self._infer_elements():
                    break
                self._copy = None

    def __call__(self, output: Output) -> Shape:
        """Return the shape of an output.

        Raises: NotInLiteError: it is unknown, and a run on zeros does not determine it.
        """
        if output.name in self._pins:
            return self._pins[output.name]
        result = _to_static_shape(output.dims)
        if result is None:
            result = _to_static_shape(self._counterpart(output).dims)
        if result is None:
            result = self._pins[output.name] = self._measure(output)
            self._copy = None
        return result

    def value(self, output: Output) -> Any:
        """Return the value of an output at the largest sizes if shapes determine it, or None."""
        return constant_value(self._counterpart(output))

    def element(self, array: Node) -> Shape:
        """Return the shape of the elements of a TensorArray.

        Raises: NotInLiteError: no value of known shape is written to it.
        """
        if array.name not in self._elements:
            raise NotInLiteError("the shape of its elements is unknown: pass element_shape")
        return self._elements[array.name]

    def _counterpart(self, output: Output) -> Output:
        """Return the output of the copied graph that corresponds to an output."""
        if self._copy is None:
            self._copy = self._copy_graph()
        node = self._copy.get_operation_by_name(self._names[output.node.name])
        return node.outputs[0 if output.node.role is Role.SWITCH else output.index]

    def _infer_elements(self) -> bool:
        """Infer the shapes of array elements from written values; return True if one is new."""
        before = len(self._elements)
        for node in self._step.graph.nodes:
            if node.role is Role.TENSOR_ARRAY:
                self._note(node, node.attrs["element_shape"])
            elif node.type in ("TensorArrayWriteV3", "TensorArrayScatterV3", "TensorArraySplitV3"):
                array, dims = producer(node.inputs[0]), self._counterpart(node.inputs[-2]).dims
                if node.type == "TensorArraySplitV3":
                    dims = self._counterpart(node.inputs[1]).dims
                    lengths = self.value(node.inputs[2])
                    if dims and lengths is not None and lengths.size:
                        dims = (int(lengths.max()), *dims[1:])
                elif node.type == "TensorArrayScatterV3":
                    dims = dims and dims[1:]
                self._note(array, dims)
        return len(self._elements) > before

    def _note(self, array: Node, dims: Sequence[int | None] | None) -> None:
        """Record the shape of an array's elements, if it is fully known."""
        result = _to_static_shape(dims)
        if array.name not in self._elements and result is not None:
            self._elements[array.name] = result

    # ------------------------------------------------------------------ the twin

    def _copy_graph(self) -> Graph:
        """Copy the graph with its loops cut open, and placeholders for known shapes."""
        definition = graph_to_def(self._step.graph)
        nodes = {node.name: node for node in self._step.graph.nodes}
        graph_def = proto.GraphDef(versions=definition.versions, library=definition.library)
        for item in definition.node:
            self._add(graph_def, item, nodes[item.name])
        for i, (name, shape) in enumerate(self._pins.items()):
            source = name.rpartition(":")[0]
            output = nodes[source].outputs[int(name.rpartition(":")[2])]
            self._placeholder(graph_def, f"p{i}", output, shape)
        graph = Graph()
        with graph.as_default():
            import_graph_def(graph_def, name="")
        return graph

    def _placeholder(
        self, graph_def: proto.GraphDef, name: str, output: Output, shape: Shape
    ) -> None:
        """Add a placeholder of a shape to a GraphDef."""
        pin = graph_def.node.add(name=name, op="Placeholder")
        pin.attr["dtype"].type = output.dtype.base_dtype.as_datatype_enum
        pin.attr["shape"].shape.SetInParent()  # a shape without sizes is one
        for size in shape:
            pin.attr["shape"].shape.dim.add().size = size

    def _add(self, graph_def: proto.GraphDef, definition: proto.NodeDef, node: Node) -> None:
        """Add the copy of a node to a GraphDef."""
        name = self._names[node.name]
        if node.role is Role.ARGUMENT:
            self._placeholder(graph_def, name, node.outputs[0], self._pins[node.outputs[0].name])
            return
        if node.role is Role.CONSTANT and np.size(node.attrs["value"]) > MAX_FOLDED_ELEMENTS:
            self._placeholder(graph_def, name, node.outputs[0], np.shape(node.attrs["value"]))
            return
        copy = graph_def.node.add()
        copy.CopyFrom(definition)
        copy.name = name
        copy.attr.pop("_class", None)
        inputs = [self._reference(input_) for input_ in node.inputs]
        del copy.input[:]
        if node.role is Role.MERGE:
            inputs = [
                input_
                for input_, source in zip(inputs, node.inputs, strict=True)
                if not is_back_edge(node, source)
            ]
        varies = node.role is Role.MERGE and len(inputs) == 1  # a loop variable: its value changes
        if varies or node.role in _PASSING:
            copy.op, inputs = "PreventGradient" if varies else "Identity", inputs[:1]
            kind = node.inputs[0].dtype.base_dtype.as_datatype_enum
            copy.ClearField("attr")
            copy.attr["T"].type = kind
        if node.role is Role.TENSOR_ARRAY and node.name in self._elements:
            shape = copy.attr["element_shape"].shape
            shape.Clear()
            shape.SetInParent()
            for size in self._elements[node.name]:
                shape.dim.add().size = size
        copy.input.extend(inputs)

    def _reference(self, source: Output) -> str:
        """Return a copy of an input reference, without control inputs and Switch ports."""
        if source.name in self._pins:
            return f"p{list(self._pins).index(source.name)}"
        index = 0 if source.node.role is Role.SWITCH else source.index
        return f"{self._names[source.node.name]}:{index}"


def shape_change_error(name: str, first: Shape, following: Shape) -> NotInLiteError:
    """Return the error for a loop variable whose shape changes in an iteration."""
    return NotInLiteError(
        f"an iteration of the loop changes shape {list(first)} to {list(following)}: pass the "
        f"largest shape as bounds={{{name!r}: [...]}}"
    )
