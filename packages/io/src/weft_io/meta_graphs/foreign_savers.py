"""Removal of the file-accessing saver nodes from untrusted graphs.

Nearly every graph with variables has savers, whose nodes access files chosen by the graph's author.
Nodes used only by a saver are removed, and a new saver for the same variables and names replaces
it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from weft_graph import proto
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.op_def import traits_of
from weft_graph.ir.traits import Role
from weft_graph.messages.tensor_proto import make_ndarray
from weft_io.meta_graphs.graph_def_edits import (
    RESTORES,
    SAVES,
    find_reachable,
    node_of,
    set_nodes,
    signature_names,
)
from weft_tensor import errors

_JOINING: Final = frozenset({"ExpandDims", "NoOp", "Pack"})
"""Ops that combine savers of parts."""

_NAMES: Final = 1
"""The index of the input with the tensor names, by restoring op."""


class GraphWithoutSavers(NamedTuple):
    """A graph without saver nodes.

    Attributes:
      message: the graph itself if nothing was removed; else a copy.
      keys: the checkpoint names of restored variables, by the names of the variables' nodes.
    """

    message: proto.MetaGraphDef
    keys: dict[str, str]


def remove_foreign_savers(
    message: proto.MetaGraphDef, allowed_ops: Collection[str] | None
) -> GraphWithoutSavers:
    """Remove the nodes that save and restore variables, unless their ops are allowed.

    Nodes that others use or refer to, and nodes that restore other state, stay; they are rejected
    later.
    """
    if allowed_ops is None:
        return GraphWithoutSavers(message, {})
    cut, keys = _Nodes(message, allowed_ops).cut()
    if not cut:
        return GraphWithoutSavers(message, {})
    copy = proto.MetaGraphDef()
    copy.CopyFrom(message)
    set_nodes(copy.graph_def, [node for node in copy.graph_def.node if node.name not in cut])
    copy.ClearField("saver_def")
    copy.collection_def.pop(GraphKeys.SAVERS, None)
    return GraphWithoutSavers(copy, keys)


class _Nodes:
    def __init__(self, message: proto.MetaGraphDef, allowed_ops: Collection[str]) -> None:
        self._message = message
        self._touching = (SAVES | RESTORES) - set(allowed_ops)
        self._nodes = {node.name: node for node in message.graph_def.node}
        self._inputs = {
            name: {node_of(text) for text in node.input} for name, node in self._nodes.items()
        }
        self._users: dict[str, set[str]] = {name: set() for name in self._nodes}
        for name, sources in self._inputs.items():
            for source in sources & self._nodes.keys():
                self._users[source].add(name)

    def cut(self) -> tuple[set[str], dict[str, str]]:
        """Return the nodes used only by savers, and the checkpoint names of their variables."""
        touching = {name for name, node in self._nodes.items() if node.op in self._touching}
        users = find_reachable(touching, self._users)
        foreign = users & _select_named(self._message)
        foreign |= {name for name in users if not self._is_of_a_saver(name)}
        keys: dict[str, str] = {}
        for name in touching & find_reachable([node_of(self._restore_op())], self._inputs):
            if self._nodes[name].op in RESTORES:
                result = self._restore(self._nodes[name])
                foreign |= {name} if result is None else set()
                keys |= result or {}
        return find_reachable(touching - find_reachable(foreign, self._inputs), self._users), keys

    def _is_of_a_saver(self, name: str) -> bool:
        op = self._nodes[name].op
        traits = traits_of(op)
        passes = traits.identity or traits.reshapes or traits.role is Role.ASSIGN
        return passes or op in _JOINING or op in self._touching

    def _restore_op(self) -> str:
        return self._message.saver_def.restore_op_name

    def _restore(self, node: proto.NodeDef) -> dict[str, str] | None:
        """Return the variables that a restoring node restores, by name; None for other nodes."""
        names = self._nodes.get(node_of(node.input[_NAMES])) if len(node.input) > _NAMES else None
        if names is None or traits_of(names.op).role is not Role.CONSTANT:
            return None
        keys = make_ndarray(names.attr["value"].tensor).reshape(-1).tolist()
        result: dict[str, str] = {}
        for port, key in enumerate(keys):
            variables = self._find_assigned_variables(f"{node.name}:{port}" if port else node.name)
            text = _text(key)
            if variables is None or text is None:
                return None
            result |= dict.fromkeys(variables, text)
        return result

    def _find_assigned_variables(self, text: str) -> set[str] | None:
        """Return the variables that a tensor is assigned to; None if it has other uses."""
        variables: set[str] = set()
        waiting = [text]
        for tensor in waiting:  # which grows
            for name in self._users[node_of(tensor)]:
                user = self._nodes[name]
                positions = [i for i, item in enumerate(user.input) if _is_same_node(tensor, item)]
                if not positions:
                    continue  # it uses another output, or only waits
                traits, first = traits_of(user.op), node_of(user.input[0])
                if positions == [1] and traits.role is Role.ASSIGN and self._is_variable(first):
                    variables.add(first)
                elif positions == [0] and (traits.identity or traits.reshapes):
                    waiting += [name] if name not in waiting else []
                else:
                    return None
        return variables

    def _is_variable(self, name: str) -> bool:
        return name in self._nodes and traits_of(self._nodes[name].op).role is Role.VARIABLE


def _text(key: Any) -> str | None:
    try:
        return key.decode() if isinstance(key, bytes) else None
    except UnicodeDecodeError:
        return None


def _is_same_node(a: str, b: str) -> bool:
    return a.removesuffix(":0") == b.removesuffix(":0")


def _select_named(message: proto.MetaGraphDef) -> set[str]:
    """Return the nodes that collections and signatures refer to."""
    names = {
        node_of(name)
        for collection in message.collection_def.values()
        for name in collection.node_list.value
    }
    for signature in message.signature_def.values():
        names |= {node_of(name) for name in signature_names(signature)}
    return names


def var_list_by_key(
    keys: Mapping[str, str], variables: Mapping[str, Any], nodes: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the `var_list` of a saver for the variables of `Limited.keys`.

    Args:
      variables: the created variables, by their names in the message.
      nodes: the created nodes, by their names in the message.
    Raises: InvalidArgumentError: two variables are restored from the same tensor, which no valid
      saver does.
    """
    result: dict[str, Any] = {}
    for name, key in keys.items():
        variable = variables.get(f"{name}:0")
        part = None if variable is None else variable._get_save_slice_info()
        if part is not None and isinstance(result.setdefault(key, []), list):
            result[key].append(variable)
        elif key in result:
            raise errors.InvalidArgumentError(
                f"{name!r} and another variable are both restored from the tensor {key!r}"
            )
        else:
            result[key] = nodes[name].outputs[0] if variable is None else variable
    return result
