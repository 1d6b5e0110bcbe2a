"""Tables of a model, collected in one walk over all its nodes before they are translated."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto

from weft_io.onnx import functions
from weft_io.onnx.model import normalize_domain, opsets, subgraphs
from weft_io.onnx.registry import import_rule
from weft_tensor import errors

Op = tuple[str, str]
"""Domain and type of an op or a function; "" is the standard domain."""


@dataclass
class Extent:
    """The size of a function, or of a node of the main graph with its subgraphs.

    Attributes:
      num_nodes: the number of nodes.
      calls: the model's functions that these nodes call.
    """

    num_nodes: int = 0
    calls: list[Op] = field(default_factory=list)


class _Visit(NamedTuple):
    """A visited node.

    Attributes:
      node: the node.
      op: its op.
      graphs: the graphs in its attributes.
      position: the index of the node in the body, or of the node of the body that it is nested in.
      is_nested: True in a subgraph.
    """

    node: NodeProto
    op: Op
    graphs: Sequence[GraphProto]
    position: int
    is_nested: bool


class Survey:
    """Tables of one model.

    Attributes:
      versions: the versions of domains that the main graph uses.
      functions: the functions of the model.
      bodies: the main graph, the functions, and the subgraphs of both.
      num_nodes: the number of nodes of all bodies.
      positions: by op of the standard domain, the indices of its nodes in the main graph.
      nodes: by op type, the nodes of the main graph and its subgraphs.
      producers: by name, the index of the node of the main graph that computes a value.
      num_uses: by name, the number of uses of a value; being a result counts as two.
      extents: by name, the extents of functions.
      node_extents: by index, the extents of nodes of the main graph with subgraphs or calls.
      unknown_ops: ops without a rule or a definition, each with the names of its nodes.

    Raises: InvalidArgumentError: a name is not UTF-8, or a domain has two versions.
    """

    def __init__(self, model: ModelProto) -> None:
        for item in model.opset_import:
            _check_name(item.domain)
        self.versions = opsets(model.opset_import, "the model")
        self.functions: Mapping[Op, FunctionProto] = {
            (normalize_domain(item.domain), item.name): item for item in model.functions
        }
        self.bodies: list[GraphProto | FunctionProto] = []
        self.num_nodes = 0
        self.positions: defaultdict[str, list[int]] = defaultdict(list)
        self.nodes: defaultdict[str, list[NodeProto]] = defaultdict(list)
        self.producers: dict[str, int] = {}
        self.num_uses: Counter[str] = Counter()
        self.extents: defaultdict[Op, Extent] = defaultdict(Extent)
        self.node_extents: defaultdict[int, Extent] = defaultdict(Extent)
        self.unknown_ops: dict[str, list[str]] = {}
        self._visit_main(model.graph)
        for key, function in self.functions.items():
            self._visit_function(key, function)

    def _visit_main(self, graph: GraphProto) -> None:
        num_uses = self.num_uses
        for output in graph.output:
            num_uses[output.name] += 2
        for node, op, graphs, index, is_nested in self._walk(graph, self.versions):
            self.nodes[node.op_type].append(node)
            for name in node.input:
                num_uses[name] += 1
            for inner in graphs:
                for output in inner.output:
                    num_uses[output.name] += 2
            if not is_nested:
                for name in node.output:
                    self.producers[name] = index
                if not op[0]:
                    self.positions[node.op_type].append(index)
            if graphs or is_nested or op in self.functions:
                self._extend(self.node_extents[index], op)

    def _visit_function(self, key: Op, function: FunctionProto) -> None:
        extent = self.extents[key]
        versions = opsets(function.opset_import, f"function {function.name!r}")
        for visit in self._walk(function, versions):
            self._extend(extent, visit.op)

    def _walk(
        self, body: GraphProto | FunctionProto, versions: Mapping[str, int]
    ) -> Iterator[_Visit]:
        """Yield the nodes of a body and its subgraphs, with their names checked."""
        pending: list[tuple[GraphProto | FunctionProto, int | None]] = [(body, None)]
        while pending:
            graph, outer = pending.pop()
            self.bodies.append(graph)
            _check_names(graph)
            for position, node in enumerate(graph.node):
                _check_node_names(node)
                op = normalize_domain(node.domain), node.op_type
                self._note_unknown(op, node, versions)
                graphs = subgraphs(node)
                index = position if outer is None else outer
                pending += [(inner, index) for inner in graphs]
                self.num_nodes += 1
                yield _Visit(node, op, graphs, index, outer is not None)

    def _extend(self, extent: Extent, op: Op) -> None:
        extent.num_nodes += 1
        if op in self.functions:
            extent.calls.append(op)

    def _note_unknown(self, op: Op, node: NodeProto, versions: Mapping[str, int]) -> None:
        if op in self.functions or import_rule(*op) is not None:
            return
        domain, kind = op
        if not functions.is_defined(domain, kind, versions.get(domain, 1)):
            name = f"{domain}.{kind}" if domain else kind
            self.unknown_ops.setdefault(name, []).append(node.name or ", ".join(node.output))


def _check_names(body: GraphProto | FunctionProto) -> None:
    """Check the names in a body, except node names."""
    _check_name(body.name)
    if isinstance(body, GraphProto):
        for value in (*body.input, *body.output):
            _check_name(value.name)
        for tensor in body.initializer:
            _check_name(tensor.name)
    else:
        for name in (body.domain, *body.input, *body.output):
            _check_name(name)


def _check_node_names(node: NodeProto) -> None:
    for name in (node.name, node.op_type, node.domain, *node.input, *node.output):
        _check_name(name)
    for attribute in node.attribute:
        _check_name(attribute.name)
        _check_name(attribute.ref_attr_name)


def _check_name(name: Any) -> None:
    """Raise InvalidArgumentError for a name that is not UTF-8, which protobuf returns as bytes."""
    if not isinstance(name, str):
        raise errors.InvalidArgumentError(f"the model: the name {name!r} is not UTF-8")
