"""Replacement of ops that only weft has by TensorFlow's ops, in a `GraphDef`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft_graph import proto
from weft_io.meta_graphs.graph_def_edits import set_nodes

_DROPPED: Final = frozenset({"HoldForSave"})
"""Ops that matter only within their own process; their outputs are not used."""


def use_tensorflow_ops(graph_def: proto.GraphDef) -> None:
    """Replace nodes of weft's own ops, keeping their names and the meaning of outputs."""
    if not any(node.op in _REPLACEMENTS or node.op in _DROPPED for node in graph_def.node):
        return
    names = {node.name for node in graph_def.node}
    node_defs: list[proto.NodeDef] = []
    for node in graph_def.node:
        if node.op in _REPLACEMENTS:
            node_defs += _Conditional(node, names).nodes()
        elif node.op not in _DROPPED:
            node_defs.append(node)
    set_nodes(graph_def, node_defs)


class _Conditional:
    """The nodes for "the variable's value, or a default if it has none": a Merge of two Switches.

    Args:
      node: an InitializedValue or ResourceInitializedValue.
      names: the names in use; new names are added.
    """

    def __init__(self, node: proto.NodeDef, names: set[str]) -> None:
        self._node = node
        self._names = names
        self._variable, self._initial = node.input[0], node.input[1]
        self._controls = list(node.input)[2:]
        self._new_nodes: list[proto.NodeDef] = []

    def nodes(self) -> list[proto.NodeDef]:
        """Return the nodes; the last one takes the name of the replaced node."""
        self._merge(*_REPLACEMENTS[self._node.op](self))
        return self._new_nodes

    def add_reference_read(self) -> tuple[list[str], proto.AttrValue]:
        """Add the nodes that read a reference variable."""
        kind = self._node.attr["T"]
        is_initialized = self._add("IsVariableInitialized", [self._variable], {"dtype": kind})
        switch = self._add("RefSwitch", [self._variable, is_initialized], {"T": kind})
        read = self._add("Identity", [f"{switch}:1"], {"T": kind})
        initial_branch = self._add("Switch", [self._initial, is_initialized], {"T": kind})
        return [initial_branch, read], kind

    def add_resource_read(self) -> tuple[list[str], proto.AttrValue]:
        """Add the nodes that read a resource variable."""
        kind = self._node.attr["dtype"]
        handle = proto.AttrValue(type=proto.DT_RESOURCE)
        is_initialized = self._add("VarIsInitializedOp", [self._variable], {})
        switch = self._add("Switch", [self._variable, is_initialized], {"T": handle})
        read = self._add("ReadVariableOp", [f"{switch}:1"], {"dtype": kind})
        initial_branch = self._add("Switch", [self._initial, is_initialized], {"T": kind})
        return [initial_branch, read], kind

    def _add(self, op: str, inputs: list[str], attrs: dict[str, proto.AttrValue]) -> str:
        name = f"{self._node.name}/{op}"
        while name in self._names:
            name += "_"
        self._names.add(name)
        node = proto.NodeDef(name=name, op=op, device=self._node.device)
        node.input.extend([*inputs, *self._controls])
        for key, value in attrs.items():
            node.attr[key].CopyFrom(value)
        if "_class" in self._node.attr:
            node.attr["_class"].CopyFrom(self._node.attr["_class"])
        self._new_nodes.append(node)
        return name

    def _merge(self, inputs: list[str], kind: proto.AttrValue) -> None:
        node = proto.NodeDef(name=self._node.name, op="Merge", device=self._node.device)
        node.input.extend(inputs)
        node.attr["T"].CopyFrom(kind)
        node.attr["N"].i = len(inputs)
        if "_output_shapes" in self._node.attr:
            shapes = self._node.attr["_output_shapes"].list.shape
            node.attr["_output_shapes"].list.shape.extend([shapes[0], proto.TensorShapeProto()])
        self._new_nodes.append(node)


_REPLACEMENTS: Final[dict[str, Callable[[_Conditional], tuple[list[str], proto.AttrValue]]]] = {
    "InitializedValue": _Conditional.add_reference_read,
    "ResourceInitializedValue": _Conditional.add_resource_read,
}
