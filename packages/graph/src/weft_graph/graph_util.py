"""Functions over GraphDefs: subgraphs, and removal of training nodes."""

from __future__ import annotations

__all__ = [
    "extract_sub_graph",
    "must_run_on_cpu",
    "remove_training_nodes",
    "tensor_shape_from_node_def_name",
]

from collections.abc import Mapping, Sequence
from typing import Any, Final

from weft_graph import proto
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role
from weft_tensor import dtypes, errors
from weft_tensor.shape import TensorShape

_VARIABLES: Final = frozenset({"Variable", "VariableV2", "VarHandleOp"})
_TYPES_ON_CPU: Final = {
    "Const": ("dtype", dtypes.string),
    "DynamicStitch": ("T", dtypes.int32),
    "Cast": ("SrcT", dtypes.int32),
}
_TRANSPARENT: Final = frozenset({"CheckNumerics", "Identity"})


def source_of(name: str) -> str:
    """Return the node name in an input of a `NodeDef`: "a" for "^a", "a:1" and "a"."""
    return name.removeprefix("^").partition(":")[0]


def must_run_on_cpu(node: Any, pin_variables_on_cpu: bool = False) -> bool:
    """Return True if TensorFlow's GPUs lack a kernel of a node; device functions use it.

    weft does not need it: nodes without a GPU kernel are placed on the CPU.

    Args:
      node: a node, or its `NodeDef`.
      pin_variables_on_cpu: return True for variables too.

    Examples:
      >>> wf.graph_util.must_run_on_cpu(wf.constant("a").op)
      True
      >>> wf.graph_util.must_run_on_cpu(wf.constant(1.0).op)
      False
    """
    node_def = node.node_def if isinstance(node, Node) else node
    if node_def.op in _VARIABLES:
        return pin_variables_on_cpu
    attr = _TYPES_ON_CPU.get(node_def.op)
    return attr is not None and node_def.attr[attr[0]].type == attr[1].as_datatype_enum


def extract_sub_graph(graph_def: proto.GraphDef, dest_nodes: Sequence[str]) -> proto.GraphDef:
    """Return the nodes that `dest_nodes` need, in the order of `graph_def`, with its library.

    Colocation requests with other nodes are dropped.

    Args:
      graph_def: a GraphDef.
      dest_nodes: names of nodes.
    Raises:
      InvalidTypeError: `dest_nodes` is not a list of names.
      NotFoundError: the graph has no such node.

    Examples:
      >>> x = wf.constant(1.0, name="x")
      >>> y = wf.constant(2.0, name="y")
      >>> part = wf.graph_util.extract_sub_graph(wf.get_default_graph().as_graph_def(), ["x"])
      >>> [node.name for node in part.node]
      ['x']
    """
    if isinstance(dest_nodes, str | bytes):
        raise errors.InvalidTypeError(f"dest_nodes must be a list of names, got {dest_nodes!r}")
    by_name = {node.name: node for node in graph_def.node}
    names: set[str] = set()
    pending = list(dest_nodes)
    while pending:
        name = pending.pop()
        if name in names:
            continue
        if name not in by_name:
            raise errors.UnknownNameError(f"the graph has no node named {name!r}")
        names.add(name)
        pending.extend(source_of(text) for text in by_name[name].input)
    result = empty_like(graph_def)
    result.node.extend([node for node in graph_def.node if node.name in names])
    _drop_colocation_with_missing(result, names)
    return result


def _drop_colocation_with_missing(graph_def: proto.GraphDef, names: set[str]) -> None:
    """Remove colocation requests with missing nodes, which an import would reject."""
    for node in graph_def.node:
        if "_class" in node.attr:
            groups = node.attr["_class"].list.s
            groups_kept = [
                group for group in groups if group.decode().removeprefix("loc:@") in names
            ]
            if not groups_kept:
                del node.attr["_class"]
            elif len(groups_kept) < len(groups):
                groups[:] = groups_kept


def empty_like(graph_def: proto.GraphDef) -> proto.GraphDef:
    """Return a graph without nodes, of the same versions and with the same library."""
    result = proto.GraphDef()
    result.versions.CopyFrom(graph_def.versions)
    result.library.CopyFrom(graph_def.library)
    return result


def remove_training_nodes(
    input_graph: proto.GraphDef, protected_nodes: Sequence[str] | None = None
) -> proto.GraphDef:
    """Return the graph without Identity and CheckNumerics nodes, which return their input.

    Nodes with control edges and `protected_nodes` stay.

    Args:
      input_graph: a `GraphDef`; it is not modified.
      protected_nodes: names of nodes to keep.
    Returns: a new `GraphDef`.
    Raises: InvalidArgumentError: the nodes form a cycle.

    Examples:
      >>> x = wf.placeholder(wf.float32, name="x")
      >>> y = wf.square(wf.identity(x, name="copy"), name="y")
      >>> small = wf.graph_util.remove_training_nodes(wf.get_default_graph().as_graph_def())
      >>> [node.name for node in small.node]
      ['x', 'y']
    """
    protected = set(protected_nodes or ())
    for node in input_graph.node:
        controls = [text for text in node.input if text.startswith("^")]
        protected.update(source_of(text) for text in controls)
        if controls:
            protected.add(node.name)
    replacements = {
        node.name: node.input[0]
        for node in input_graph.node
        if node.op in _TRANSPARENT and node.name not in protected
    }
    result = empty_like(input_graph)
    for node in input_graph.node:
        if node.name not in replacements:
            copy = result.node.add()
            copy.CopyFrom(node)
            del copy.input[:]
            copy.input.extend([_resolve_replacement(text, replacements) for text in node.input])
    return result


def _resolve_replacement(name: str, replacements: Mapping[str, str]) -> str:
    for _ in range(len(replacements) + 1):  # a cycle of identities is malformed, but must not hang
        if name.startswith("^") or source_of(name) not in replacements:
            return name
        name = replacements[source_of(name)]
    raise errors.InvalidArgumentError(f"the nodes from {name!r} on form a cycle")


def tensor_shape_from_node_def_name(graph: Graph, input_name: str) -> TensorShape:
    """Return the static shape of a tensor named as in a `NodeDef`; ":0" may be omitted.

    Args:
      graph: a Graph.
      input_name: "node", "node:output".
    Returns: a TensorShape.
    Raises: NotFoundError: there is no such tensor.

    Examples:
      >>> x = wf.zeros([2, 3], name="x")
      >>> wf.graph_util.tensor_shape_from_node_def_name(x.graph, "x")
      TensorShape([Dimension(2), Dimension(3)])
    """
    name = input_name if ":" in input_name else f"{input_name}:0"
    return graph.get_tensor_by_name(name).get_shape()


def graph_ends(graph: Graph) -> tuple[list[str], list[str]]:
    """Return the names of a graph's placeholders without a default, and of its unused nodes."""
    nodes = graph.get_operations()
    placeholders = [n.name for n in nodes if n.role is Role.PLACEHOLDER and not n.inputs]
    last = [n.name for n in nodes if n.outputs and not n.consumers and n.role is not Role.CONSTANT]
    return placeholders, last


def tensor_named(graph: Graph, name: str) -> Output:
    """Return a tensor by its name, or the first output of a node by the node's name.

    Raises: NotFoundError: there is none.
    """
    text = name if ":" in name else f"{name}:0"
    try:
        output: Output = graph.get_tensor_by_name(text)
    except (KeyError, ValueError) as error:
        raise errors.NotFoundError(f"the graph has no tensor {text!r}") from error
    return output
