"""Edits of `GraphDef`s when they are written to or read from a `MetaGraphDef`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from weft_graph import proto
from weft_graph.ir.op_def import lookup_op, traits_of
from weft_graph.ir.op_signature import REQUIRED
from weft_graph.ir.traits import Role
from weft_graph.messages.attr_value import attr_to_proto
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_graph.ir.op_signature import OpDef

SAVES: Final = frozenset({"SaveV2", "Save", "SaveSlices", "MergeV2Checkpoints"})
RESTORES: Final = frozenset({"RestoreV2", "Restore", "RestoreSlice"})
_UNBOUND: Final = "$unbound_inputs_"


def copy_graph_def(graph_def: proto.GraphDef) -> proto.GraphDef:
    """Return a copy of a message."""
    copy = proto.GraphDef()
    copy.CopyFrom(graph_def)
    return copy


def set_nodes(graph_def: proto.GraphDef, nodes: Iterable[proto.NodeDef]) -> None:
    """Replace the nodes; `nodes` may include existing ones."""
    result = proto.GraphDef(node=nodes)  # copies: a node that is removed may not be used any more
    del graph_def.node[:]
    graph_def.node.MergeFrom(result.node)


def clear_devices(graph_def: proto.GraphDef) -> None:
    """Remove device requests."""
    for node in graph_def.node:
        node.ClearField("device")


# --------------------------------------------------------------------------- default values


def strip_defaults(graph_def: proto.GraphDef) -> None:
    """Remove attributes that have their default values, so that older readers accept them.

    Attributes for the type of an input stay, because some readers have no default for them.
    """
    functions = {function.signature.name for function in graph_def.library.function}
    defaults = {op: _defaults(lookup_op(op)) for op in {n.op for n in graph_def.node} - functions}
    for node in graph_def.node:
        for name, default in defaults.get(node.op, {}).items():
            if name in node.attr and node.attr[name] == default:
                del node.attr[name]


def restore_defaults(graph_def: proto.GraphDef) -> None:
    """Add the attributes that `strip_defaults` removed; unregistered ops are unchanged."""
    op_defs = {}
    for op in {node.op for node in graph_def.node}:
        with suppress(errors.NotFoundError):
            op_defs[op] = _defaults(lookup_op(op))
    for node in graph_def.node:
        for name, default in op_defs.get(node.op, {}).items():
            if name not in node.attr:
                node.attr[name].CopyFrom(default)


def _defaults(op_def: OpDef) -> dict[str, proto.AttrValue]:
    used = {arg.type_attr or arg.list_attr for arg in op_def.inputs}
    return {
        name: attr_to_proto(attr.default, attr.type, {})
        for name, attr in op_def.attrs.items()
        if attr.default is not REQUIRED and name not in used
    }


# --------------------------------------------------------------------------- a name scope


def cut_scope(graph_def: proto.GraphDef, scope: str) -> list[str]:
    """Keep only the nodes under a name scope, with names relative to it.

    Args:
      scope: the scope with its closing slash.
    Returns: the sorted new names of inputs from outside.
    """
    unbound: set[str] = set()
    scope_nodes = [node for node in graph_def.node if node.name.startswith(scope)]
    for node in scope_nodes:
        node.name = node.name.removeprefix(scope)
        node.input[:] = [_relative(name, scope, unbound) for name in node.input]
        if "_class" in node.attr:
            _cut_colocation(node.attr["_class"], scope)
        frame = node.attr["frame_name"].s if "frame_name" in node.attr else b""
        if frame.startswith(scope.encode()):
            node.attr["frame_name"].s = frame.removeprefix(scope.encode())
    set_nodes(graph_def, scope_nodes)
    return sorted(unbound)


def _relative(name: str, scope: str, unbound: set[str]) -> str:
    mark, bare = ("^", name[1:]) if name.startswith("^") else ("", name)
    if bare.startswith(scope):
        return mark + bare.removeprefix(scope)
    outside = f"{mark}{_UNBOUND}{bare}"
    unbound.add(outside)
    return outside


def _cut_colocation(attr: proto.AttrValue, scope: str) -> None:
    prefix = f"loc:@{scope}".encode()
    scope_groups = [b"loc:@" + s.removeprefix(prefix) for s in attr.list.s if s.startswith(prefix)]
    attr.list.SetInParent()
    attr.list.s[:] = scope_groups


# --------------------------------------------------------------------------- signatures


def signature_names(signature: proto.SignatureDef) -> Iterator[str]:
    """Yield the names of tensors in a signature."""
    waiting = [*signature.inputs.values(), *signature.outputs.values()]
    while waiting:
        info = waiting.pop()
        sparse = info.coo_sparse
        names = (sparse.values_tensor_name, sparse.indices_tensor_name)
        yield from filter(None, (info.name, *names, sparse.dense_shape_tensor_name))
        waiting += info.composite_tensor.components


# --------------------------------------------------------------------------- other savers


def remove_savers(graph_def: proto.GraphDef, remaining: proto.SaverDef | None) -> None:
    """Remove the nodes that save and restore, and the nodes that only they use.

    Args:
      remaining: the saver to keep, or None.
    """
    nodes = {node.name: node for node in graph_def.node}
    inputs = {name: {node_of(text) for text in node.input} for name, node in nodes.items()}
    users: dict[str, set[str]] = {name: set() for name in nodes}
    for name, sources in inputs.items():
        for source in sources & nodes.keys():
            users[source].add(name)
    roots = [] if remaining is None else [remaining.save_tensor_name, remaining.restore_op_name]
    needed = find_reachable([node_of(name) for name in roots], inputs)
    begin = [name for name, node in nodes.items() if node.op in SAVES | RESTORES]
    removed = find_reachable(begin, users) - needed
    waiting = [source for name in removed for source in inputs[name]]
    while waiting:
        name = waiting.pop()
        if name in removed or name in needed or traits_of(nodes[name].op).role is Role.VARIABLE:
            continue
        if users[name] <= removed:
            removed.add(name)
            waiting += inputs[name]
    set_nodes(graph_def, [node for node in graph_def.node if node.name not in removed])


def node_of(text: str) -> str:
    """Return the node name in the name of an input or a tensor."""
    return text.removeprefix("^").partition(":")[0]


def find_reachable(begin: Iterable[str], edges: dict[str, set[str]]) -> set[str]:
    """Return the nodes that are reachable from `begin` along edges."""
    names: set[str] = set()
    waiting = list(begin)
    while waiting:
        name = waiting.pop()
        if name not in names and name in edges:
            names.add(name)
            waiting += edges[name]
    return names
