"""The ONNX graph under construction: values, nodes and subgraphs, before they are named."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, ValueInfoProto, helper

from weft_graph.ir.node import Output
from weft_io.onnx.element_types import onnx_type
from weft_tensor import dtypes
from weft_tensor.dtypes import DType

_MAX_INLINE_BYTES = 64
"""Maximum size in bytes of constants that are written once if they are equal."""


@dataclass(eq=False)
class Value:
    """A tensor of the ONNX model.

    Attributes:
      dtype: its element type.
      name: "" until the model is written or the corresponding output of the graph is known.
      array: the contents of a constant.
      untransposed: for a transposed value, the original value and the permutation.
      wide: the same integers as int64.
      sequence: True if it is a sequence of such tensors.
      rows: the tensor whose rows make up a sequence, until the sequence itself is needed.
      filling: the writes to an array so far, if they are known.
      dims: the shape, for inputs and outputs of subgraphs and for rows.
      producer: the node that computes it.
    """

    dtype: DType
    name: str = ""
    array: np.ndarray[Any, Any] | None = None
    untransposed: tuple[Value, tuple[int, ...]] | None = None
    wide: Value | None = None
    sequence: bool = False
    rows: Value | None = None
    filling: Filling | None = None
    dims: Sequence[int | None] | None = None
    producer: ExportedNode | None = None


@dataclass(frozen=True)
class Filling:
    """The writes to an array of zeros, whose elements have the same shape.

    Attributes:
      count: number of elements; None if the array grows.
      dims: the shape of its elements.
      writes: positions and elements, in the order of the writes.
    """

    count: Value | None
    dims: Sequence[int | None] | None
    writes: tuple[tuple[Value, Value], ...] = ()

    def with_write(self, index: Value, element: Value) -> Filling:
        """Return a copy with one more write."""
        return replace(self, writes=(*self.writes, (index, element)))


@dataclass(eq=False)
class ExportedNode:
    """An ONNX node, with values instead of names."""

    op: str
    inputs: Sequence[Value | None]
    outputs: list[Value]
    attributes: Mapping[str, Any]
    name: str

    def __post_init__(self) -> None:
        for output in self.outputs:
            output.producer = self

    def subgraphs(self) -> list[Subgraph]:
        """Return the graphs in the attributes."""
        return [item for item in self.attributes.values() if isinstance(item, Subgraph)]


@dataclass(eq=False)
class Subgraph:
    """A branch or loop body, which uses values of the enclosing graphs by name."""

    name: str
    nodes: list[ExportedNode] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    transposed: dict[tuple[Value, tuple[int, ...]], Value] = field(default_factory=dict)


@dataclass
class Body:
    """The ONNX nodes added so far, in order.

    Attributes:
      opset: the version of the standard ops.
      nodes: the nodes that rules added; unused ones are removed at the end.
      values: the values of the outputs of the graph.
    """

    opset: int
    nodes: list[ExportedNode] = field(default_factory=list)
    values: dict[Output, Value] = field(default_factory=dict)
    constants: dict[tuple[str, tuple[int, ...], bytes], Value] = field(default_factory=dict)
    transposed: MutableMapping[tuple[Value, tuple[int, ...]], Value] = field(default_factory=dict)

    @contextmanager
    def in_subgraph(self, graph: Subgraph) -> Iterator[None]:
        """Return a context that adds nodes to a subgraph; its values are local."""
        nodes, transposed = self.nodes, self.transposed
        self.nodes, self.transposed = graph.nodes, ChainMap(graph.transposed, transposed)
        try:
            yield
        finally:
            self.nodes, self.transposed = nodes, transposed

    def constant(self, value: Any, dtype: DType | None = None) -> Value:
        """Return a constant; small constants with the same type and elements are shared."""
        array = np.asarray(value, None if dtype is None else dtype.numpy)
        kind = dtypes.string if array.dtype.kind in "OSU" else dtypes.from_numpy(array.dtype)
        if array.nbytes > _MAX_INLINE_BYTES or kind is dtypes.string:
            return Value(kind, array=array)
        key = (kind.name, array.shape, array.tobytes())
        return self.constants.setdefault(key, Value(kind, array=array))

    def live(self, results: Sequence[Value]) -> list[ExportedNode]:
        """Return the nodes that the results need."""
        return _live(self.nodes, set(results))


def _live(nodes: Sequence[ExportedNode], needed: set[Value]) -> list[ExportedNode]:
    """Return the nodes that `needed` values require, and add their inputs to `needed`."""
    live = []
    for node in reversed(nodes):
        if any(item in needed for item in node.outputs):
            needed.update(item for item in node.inputs if item is not None)
            for graph in node.subgraphs():
                needed.update(graph.outputs)
                graph.nodes = _live(graph.nodes, needed)
            live.append(node)
    return live[::-1]


def as_sequence(body: Body, value: Value, name: str) -> Value:
    """Convert a value to a real sequence, if it is represented by the tensor of its rows."""
    if value.rows is None:
        return value
    result = Value(value.dtype, sequence=True)
    attributes = {"axis": 0, "keepdims": 0}
    body.nodes.append(ExportedNode("SplitToSequence", [value.rows], [result], attributes, name))
    return result


def to_proto(node: ExportedNode) -> NodeProto:
    """Convert a node to a message, when all values have names."""
    inputs = ["" if item is None else item.name for item in node.inputs]
    while inputs and not inputs[-1]:
        inputs.pop()
    names = [item.name for item in node.outputs]
    attributes: dict[str, Any] = {
        name: _graph(value, names[0]) if isinstance(value, Subgraph) else value
        for name, value in node.attributes.items()
    }
    return helper.make_node(node.op, inputs, names, name=names[0], **attributes)


def _graph(graph: Subgraph, owner: str) -> GraphProto:
    nodes = [to_proto(node) for node in graph.nodes]
    inputs, outputs = ([_info(value) for value in ends] for ends in (graph.inputs, graph.outputs))
    return helper.make_graph(nodes, f"{owner}/{graph.name}", inputs, outputs)


def _info(value: Value) -> ValueInfoProto:
    kind = onnx_type(value.dtype)
    if value.sequence:
        return helper.make_tensor_sequence_value_info(value.name, kind, None)
    return helper.make_tensor_value_info(value.name, kind, value.dims)


def num_bytes(value: Value) -> int:
    """Return the size of a constant in the file in bytes."""
    if value.array is None:
        return 0
    if value.array.dtype.kind == "O":
        return sum(len(item) for item in value.array.flat)
    return int(value.array.nbytes)
