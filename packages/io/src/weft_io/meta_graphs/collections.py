"""Conversion of a graph's collections to `CollectionDef`s and back."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft_graph import proto
from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.node import Node, Output
from weft_graph.messages.collection_items import (
    ItemFunctions,
    computed_collections,
    item_functions,
)
from weft_graph.variables.base import Variable
from weft_io.files.message_files import is_any
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_graph import proto
    from weft_graph.ir.graph import Graph

_log = logging.getLogger("weft")


# --------------------------------------------------------------------------- to messages


def add_collections(
    message: proto.MetaGraphDef, graph: Graph, names: Sequence[str] | None, scope: str
) -> None:
    """Add the collections of a graph to a message.

    SAVEABLE_OBJECTS is left out, because the nodes of the saver represent it.

    Args:
      names: the
        collections; None for all.
      scope: restricts to objects in this name scope, with relative names; "" for all.
    """
    computed = computed_collections()
    keys = graph.get_all_collection_keys()
    for name in dict.fromkeys([*keys, *computed]) if names is None else names:
        if not isinstance(name, str):
            _log.info("the collection %r was not exported: it has no name", name)
        elif not name.startswith("__") and name != GraphKeys.SAVEABLE_OBJECTS:
            of_graph = computed.get(name)
            items = graph.get_collection(name) if of_graph is None else of_graph(graph)
            _add(message, name, items, scope)


def _add(message: proto.MetaGraphDef, name: str, items: Sequence[Any], scope: str) -> None:
    """Add one collection, in a form that all its items support."""
    if not items:
        return
    try:
        kind, values = _convert(name, items, scope)
    except (errors.OpError, NotImplementedError, TypeError) as cause:
        _log.info("the collection %r was not exported: %s", name, cause)
        return
    getattr(message.collection_def[name], kind).value.extend(values)


def _convert(collection: str, items: Sequence[Any], scope: str) -> tuple[str, list[Any]]:
    if all(is_any(item) for item in items):
        return "any_list", list(items)
    elements = all(isinstance(item, Node | Output | Variable) for item in items)
    if elements and item_functions(collection) is None:
        names_in_scope = [item.name for item in items if item.name.startswith(scope)]
        return "node_list", [name.removeprefix(scope) for name in names_in_scope]
    if all(hasattr(item, "to_proto") for item in items):
        messages = [item.to_proto(scope or None) for item in items]
        return "bytes_list", [m.SerializeToString() for m in messages if m is not None]
    if all(isinstance(item, str | bytes) for item in items):
        return "bytes_list", [i.encode() if isinstance(i, str) else i for i in items]
    if all(isinstance(item, bool | int) for item in items):
        return "int64_list", [int(item) for item in items]
    if all(isinstance(item, float) for item in items):
        return "float_list", list(items)
    kinds = ", ".join(sorted({type(item).__name__ for item in items}))
    raise errors.InvalidTypeError(f"a list of {kinds} has no message type")


# --------------------------------------------------------------------------- from messages


class CollectionReader:
    """Restores the items of collections whose nodes were just imported.

    Args:
      scope: the name scope that the nodes are under, without a closing slash; "" for none.
      nodes: the new nodes by their names in the message.
      closed: reject references to nodes that existed before the import.
    """

    def __init__(
        self, graph: Graph, scope: str, nodes: Mapping[str, Any], closed: bool = False
    ) -> None:
        self._graph = graph
        self._scope = scope
        self._prefix = f"{scope}/" if scope else ""
        own_names = {node.name for node in nodes.values()}
        self._outside_names = {node.name for node in graph.nodes} - own_names if closed else set()
        self._renamed = {name for name, node in nodes.items() if node.name != self._prefix + name}
        self._items: list[tuple[str, Any]] = []
        self._items_by_bytes: dict[tuple[str, bytes], Any] = {}

    def read(self, name: str, message: proto.CollectionDef) -> None:
        """Restore the items of one collection.

        Raises:
          InvalidArgumentError: an item refers to a node that was renamed because its name was
            taken.
          PermissionDeniedError: an item refers to an older node, and `closed` is set.
          NotFoundError: an item refers to a missing node.
          DataLossError: an item is not a message of the expected kind.
        """
        kind = message.WhichOneof("kind")
        if kind is None:
            return
        values = getattr(message, kind).value
        location = f"the collection {name!r}"
        if kind == "node_list":
            values = [self._element(value, location) for value in values]
        elif kind == "bytes_list":
            functions = item_functions(name)
            if functions is not None:
                values = self._objects(functions, values, location)
        self._items += [(name, value) for value in values if value is not None]

    def _element(self, name: str, location: str) -> Node | Output:
        self.check_name(name, location)
        return self._graph.as_graph_element(self._prefix + name)

    def _objects(
        self, functions: ItemFunctions, values: Sequence[bytes], location: str
    ) -> list[Any]:
        """Restore one object per message, since a variable can be in several collections."""
        keys = [(functions.message, data) for data in values]
        new = [key for key in dict.fromkeys(keys) if key not in self._items_by_bytes]
        messages = [self._message(*key, location) for key in new]
        protos = functions.from_protos(messages, self._scope or None)
        self._items_by_bytes.update(zip(new, protos, strict=True))
        return [self._items_by_bytes[key] for key in keys]

    def _message(self, name: str, data: bytes, location: str) -> Any:
        from google.protobuf.message import DecodeError

        try:
            message = getattr(proto, name).FromString(data)
        except DecodeError as cause:
            raise errors.DataLossError(f"an item of {location} is not a {name}: {cause}") from cause
        self.check(message, location)
        return message

    def check(self, message: Any, location: str) -> None:
        """Check that a message does not name renamed nodes or nodes that it must not name.

        Raises: InvalidArgumentError, PermissionDeniedError: it does so.
        """
        if self._renamed or self._outside_names:
            for text in _strings(message):
                self.check_name(text, location)

    def check_name(self, text: str, location: str) -> None:
        """Check the node name or tensor name in a text."""
        name = text.removeprefix("^").partition(":")[0]
        if name in self._renamed:
            raise errors.InvalidArgumentError(
                f"{location} refers to {name!r}, which already exists in the graph; pass an "
                "import_scope, or import into a new graph"
            )
        if self._prefix + name in self._outside_names:
            raise errors.PermissionDeniedError(
                f"{location} names {self._prefix + name!r}, a node of the importing graph; with "
                "allowed_ops only its own nodes may be named"
            )

    def add(self) -> None:
        """Add all items to their collections."""
        for name, item in self._items:
            self._graph.add_to_collection(name, item)

    def variables(self) -> dict[str, Any]:
        """Return the global variables among the items, by their names in the message."""
        return {
            item.name.removeprefix(self._prefix): item
            for name, item in self._items
            if name == GraphKeys.GLOBAL_VARIABLES
        }


def _strings(message: Any) -> Iterator[str]:
    """Yield the values of all string fields in a message."""
    for field, value in message.ListFields():
        nested = field.message_type
        if nested is not None and nested.GetOptions().map_entry:
            yield from (text for pair in value.items() for text in pair if isinstance(text, str))
            continue
        for item in (
            value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        ):
            if isinstance(item, str):
                yield item
            elif nested is not None:
                yield from _strings(item)
