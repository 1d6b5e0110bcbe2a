"""Conversion of the items of collections to messages in a `MetaGraphDef`, and back.

The modules of this package register weft's collections; modules of other packages are found through
the entry-point group `weft_graph.collections`. Items of unregistered collections are written if
they have a `to_proto`, and read as bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from weft_graph.ir.graph import Graph
from weft_graph.ir.registry import Registry

FromProtos = Callable[[Sequence[Any], "str | None"], Sequence[Any]]
OfGraph = Callable[["Graph"], Sequence[Any]]


class ItemFunctions(NamedTuple):
    """Conversion functions for the items of one collection.

    Each item has a method `to_proto(export_scope=None)`.

    Attributes:
      message: name of the message that `to_proto` returns, in `weft_graph.proto`; None to skip the
        items.
      from_protos: `from_protos(messages, import_scope)` returns the items, whose nodes are in the
        default graph under that name scope; None items are skipped.
      of_graph: function that returns the items if they are stored elsewhere in the graph; None if
        they are in the collection.
    """

    message: str
    from_protos: FromProtos
    of_graph: OfGraph | None = None


_registry: Registry[ItemFunctions] = Registry(
    "collection", "weft_graph.messages.collection_items", "weft_graph.collections"
)


def register_collection(
    name: str, message: str, from_protos: FromProtos, of_graph: OfGraph | None = None
) -> None:
    """Register the conversion of a collection's items; arguments as in `ItemFunctions`.

    Raises: AlreadyExistsError: the collection is registered already.
    """
    _registry.register(name, ItemFunctions(message, from_protos, of_graph))


def convert_each(from_proto: Callable[..., Any]) -> FromProtos:
    """Return a `from_protos` that converts each message separately."""

    def from_protos(messages: Sequence[Any], import_scope: str | None) -> list[Any]:
        return [from_proto(message, import_scope=import_scope) for message in messages]

    return from_protos


def item_functions(name: str) -> ItemFunctions | None:
    """Return the conversion functions of a collection, or None."""
    return _registry.get(name)


def computed_collections() -> dict[str, OfGraph]:
    """Return the collections whose items are stored elsewhere in a graph, with their `of_graph`."""
    names = _registry.keys()
    functions = {name: _registry.lookup(name).of_graph for name in names}
    return {name: of_graph for name, of_graph in functions.items() if of_graph is not None}
