"""Graphs as messages: the part that some nodes need, variables frozen, training nodes left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from weft_graph import proto
from weft_graph.tensor_proto import array_to_proto
from weft_tensor import dtypes, errors
from weft_tensor.shape import TensorShape

if TYPE_CHECKING:
    from weft_graph.graph import Graph

_REFERENCES: Final = frozenset({"Variable", "VariableV2"})
_HANDLE: Final = "VarHandleOp"
_CARRIERS: Final = frozenset({"Enter", "Identity", "Switch"})
_TRANSPARENT: Final = frozenset({"CheckNumerics", "Identity"})


def _source(name: str) -> str:
    """The node that an input of a `NodeDef` comes from: "^a", "a:1" and "a" are all "a"."""
    return name.removeprefix("^").partition(":")[0]


def extract_sub_graph(graph_def: proto.GraphDef, dest_nodes: Sequence[str]) -> proto.GraphDef:
    """The nodes that `dest_nodes` need, in the order of `graph_def`, with its library.

    Raises:
      InvalidTypeError: `dest_nodes` is no list of names.
      NotFoundError: the graph has no such node.
    """
    if isinstance(dest_nodes, str | bytes):
        raise errors.InvalidTypeError(f"dest_nodes must be a list of names, got {dest_nodes!r}")
    by_name = {node.name: node for node in graph_def.node}
    needed: set[str] = set()
    pending = list(dest_nodes)
    while pending:
        name = pending.pop()
        if name in needed:
            continue
        if name not in by_name:
            raise errors.NotFoundError(f"the graph has no node named {name!r}")
        needed.add(name)
        pending.extend(_source(text) for text in by_name[name].input)
    result = _empty_like(graph_def)
    result.node.extend([node for node in graph_def.node if node.name in needed])
    return result


def _empty_like(graph_def: proto.GraphDef) -> proto.GraphDef:
    result = proto.GraphDef()
    result.versions.CopyFrom(graph_def.versions)
    result.library.CopyFrom(graph_def.library)
    return result


# ---------------------------------------------------------------------- freezing variables


def convert_variables_to_constants(
    sess: Any,
    input_graph_def: proto.GraphDef,
    output_node_names: Sequence[str],
    variable_names_whitelist: Iterable[str] | None = None,
    variable_names_blacklist: Iterable[str] | None = None,
) -> proto.GraphDef:
    """The part of a graph that some nodes need, with constants where it has variables.

    Args:
      sess: a session that has initialised the variables.
      input_graph_def: its graph.
      output_node_names: what to keep.
      variable_names_whitelist: the variables to freeze; all by default.
      variable_names_blacklist: variables not to freeze.
    Raises:
      NotFoundError: the graph has no such output.
      FailedPreconditionError: a variable has no value.
      UnimplementedError: a node uses a variable's handle for more than its value.
    """
    part = extract_sub_graph(input_graph_def, output_node_names)
    frozen = _to_freeze(part, variable_names_whitelist, variable_names_blacklist)
    results = sess.run([_reader(sess.graph, node) for node in frozen.values()])
    values = dict(zip(frozen, results, strict=True))
    handles = {name: n.attr["dtype"].type for name, n in frozen.items() if n.op == _HANDLE}
    carriers = _carriers(part, frozen)
    handles.update({name: handles[origin] for name, origin in carriers.items()})
    result = _empty_like(part)
    for node in part.node:
        if node.name in frozen:
            result.node.append(_constant(node, values[node.name]))
        elif node.name in carriers:
            carrier = result.node.add()
            carrier.CopyFrom(node)
            carrier.attr["T"].type = handles[node.name]
        elif node.input and _source(node.input[0]) in handles:
            result.node.extend(_use_of_constant(node, handles))
        else:
            result.node.append(node)
    return result


def _carriers(graph_def: proto.GraphDef, frozen: Mapping[str, proto.NodeDef]) -> dict[str, str]:
    """The nodes that bring a frozen variable's handle into a branch or a loop, and which it is."""
    users: dict[str, list[str]] = {}
    for node in graph_def.node:
        if node.op in _CARRIERS and node.input:
            users.setdefault(_source(node.input[0]), []).append(node.name)
    found: dict[str, str] = {}
    for variable, definition in frozen.items():
        following = [variable] if definition.op == _HANDLE else []
        while following:
            for name in users.get(following.pop(), ()):
                if name not in found:
                    found[name] = variable
                    following.append(name)
    return found


def _to_freeze(
    graph_def: proto.GraphDef, wanted: Iterable[str] | None, refused: Iterable[str] | None
) -> dict[str, proto.NodeDef]:
    left_out = frozenset(refused or ())
    chosen = None if wanted is None else frozenset(wanted)
    return {
        node.name: node
        for node in graph_def.node
        if (node.op in _REFERENCES or node.op == _HANDLE)
        and node.name not in left_out
        and (chosen is None or node.name in chosen)
    }


def _reader(graph: Graph, node: proto.NodeDef) -> str:
    """The tensor that has the variable's value."""
    if node.op != _HANDLE:
        return f"{node.name}:0"
    for user in graph.get_tensor_by_name(f"{node.name}:0").consumers():
        if user.type == "ReadVariableOp":
            return f"{user.name}:0"
    raise errors.NotFoundError(f"the graph has no node that reads the variable {node.name!r}")


def _constant(variable: proto.NodeDef, value: Any) -> proto.NodeDef:
    kind = dtypes.as_dtype(variable.attr["dtype"].type)
    result = proto.NodeDef(name=variable.name, op="Const", device=variable.device)
    result.attr["dtype"].type = kind.as_datatype_enum
    result.attr["value"].tensor.CopyFrom(array_to_proto(value, kind))
    return result


def _use_of_constant(node: proto.NodeDef, handles: Mapping[str, int]) -> list[proto.NodeDef]:
    """What takes the place of a node that read a variable through its handle."""
    dtype = handles[_source(node.input[0])]
    new = proto.NodeDef(name=node.name, device=node.device, input=node.input)
    if node.op == "ReadVariableOp":
        new.op = "Identity"
        new.attr["T"].type = dtype
        return [new]
    if node.op != "ResourceGather":
        raise errors.UnimplementedError(
            "a frozen variable can only be read and gathered from", op=node.op, node=node.name
        )
    axis = proto.NodeDef(name=f"{node.name}/axis", op="Const", device=node.device)
    new.op = "GatherV2"
    new.input.insert(2, axis.name)
    new.attr["Tparams"].type = dtype
    new.attr["Tindices"].CopyFrom(node.attr["Tindices"])
    new.attr["batch_dims"].i = node.attr["batch_dims"].i
    axis_type = dtypes.int32.as_datatype_enum
    new.attr["Taxis"].type = axis.attr["dtype"].type = axis_type
    axis.attr["value"].tensor.dtype = axis_type
    axis.attr["value"].tensor.tensor_shape.SetInParent()
    axis.attr["value"].tensor.int_val.append(node.attr["batch_dims"].i)
    return [axis, new]


# ---------------------------------------------------------------------------- shortening


def remove_training_nodes(
    input_graph: proto.GraphDef, protected_nodes: Sequence[str] | None = None
) -> proto.GraphDef:
    """The graph without the nodes that only hand their input on: Identity and CheckNumerics.

    Nodes with control edges stay, and so do `protected_nodes`.
    """
    kept = set(protected_nodes or ())
    for node in input_graph.node:
        controls = [text for text in node.input if text.startswith("^")]
        kept.update(_source(text) for text in controls)
        if controls:
            kept.add(node.name)
    instead = {
        node.name: node.input[0]
        for node in input_graph.node
        if node.op in _TRANSPARENT and node.name not in kept
    }
    result = _empty_like(input_graph)
    for node in input_graph.node:
        if node.name not in instead:
            copy = result.node.add()
            copy.CopyFrom(node)
            del copy.input[:]
            copy.input.extend([_followed(text, instead) for text in node.input])
    return result


def _followed(name: str, instead: Mapping[str, str]) -> str:
    for _ in range(len(instead) + 1):  # a cycle of identities is malformed, but must not hang
        if name.startswith("^") or _source(name) not in instead:
            return name
        name = instead[_source(name)]
    raise errors.InvalidArgumentError(f"the nodes from {name!r} on form a cycle")


def tensor_shape_from_node_def_name(graph: Graph, input_name: str) -> TensorShape:
    """The static shape of a tensor named as in a `NodeDef`, where ":0" may be left out."""
    name = input_name if ":" in input_name else f"{input_name}:0"
    return graph.get_tensor_by_name(name).get_shape()
