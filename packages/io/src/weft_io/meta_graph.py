"""A graph with its collections and its saver as a `MetaGraphDef`, the file beside a checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weft_graph import stacks
from weft_graph.node import Node, Output
from weft_io.checkpoint import files
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_graph import proto
    from weft_graph.graph import Graph

_log = logging.getLogger("weft")


def export_meta_graph(
    filename: str | None = None,
    meta_info_def: Any = None,
    graph_def: Any = None,
    saver_def: Any = None,
    collection_list: Sequence[str] | None = None,
    as_text: bool = False,
    graph: Graph | None = None,
    clear_devices: bool = False,
    strip_default_attrs: bool = False,
) -> proto.MetaGraphDef:
    """The graph as a `MetaGraphDef`, written to `filename` if there is one.

    Args:
      filename: written atomically.
      meta_info_def: a `MetaInfoDef` to start from.
      graph_def: the graph's `GraphDef`, if it is at hand.
      saver_def: how to save and restore it.
      collection_list: names of the collections to put in; all by default. What has no form in a
        message is left out, with a remark in the log.
      as_text: write protobuf's text format.
      graph: the default graph by default.
      clear_devices: leave out device requests.
      strip_default_attrs: leave out attributes that have their default values.
    Raises: InvalidArgumentError: the graph has no form in a GraphDef, or takes 2 GiB or more.
    """
    from weft_graph import proto

    chosen = graph or stacks.get_default_graph()
    message = proto.MetaGraphDef()
    if meta_info_def is not None:
        message.meta_info_def.CopyFrom(meta_info_def)
    message.graph_def.CopyFrom(
        chosen.as_graph_def(add_shapes=True) if graph_def is None else graph_def
    )
    if clear_devices:
        for node in message.graph_def.node:
            node.ClearField("device")
    if strip_default_attrs:
        _strip_defaults(message.graph_def)
        message.meta_info_def.stripped_default_attrs = True
    if saver_def is not None:
        message.saver_def.CopyFrom(saver_def)
    keys = chosen.get_all_collection_keys() if collection_list is None else collection_list
    for key in keys:
        if isinstance(key, str):
            _add_collection(message, key, chosen.get_collection(key))
    if filename is not None:
        _write(filename, message, as_text)
    return message


def _write(filename: str, message: proto.MetaGraphDef, as_text: bool) -> None:
    if as_text:
        from google.protobuf import text_format

        untyped: Any = message
        data = text_format.MessageToString(untyped).encode()
    else:
        data = message.SerializeToString()
    with files.reported(f"writing {filename}"):
        files.write_atomically(filename, data)


def _strip_defaults(graph_def: proto.GraphDef) -> None:
    from weft_graph.attr_value import attr_to_proto
    from weft_graph.op_def import REQUIRED, lookup_op

    for node in graph_def.node:
        for name, attr in lookup_op(node.op).attrs.items():
            if attr.default is REQUIRED or name not in node.attr:
                continue
            if node.attr[name] == attr_to_proto(attr.default, attr.type, {}):
                del node.attr[name]


def _add_collection(message: proto.MetaGraphDef, key: str, items: Sequence[Any]) -> None:
    """Put one collection in, in the form that all its items share."""
    if not items or key.startswith("_"):
        return
    try:
        kind, values = _converted(items)
    except (errors.OpError, NotImplementedError, TypeError) as cause:
        _log.info("the collection %r is not in the exported graph: %s", key, cause)
        return
    getattr(message.collection_def[key], kind).value.extend(values)


def _converted(items: Sequence[Any]) -> tuple[str, list[Any]]:
    if all(hasattr(item, "to_proto") for item in items):
        messages = [item.to_proto() for item in items]
        return "bytes_list", [m.SerializeToString() for m in messages if m is not None]
    if all(isinstance(item, Node | Output) for item in items):
        return "node_list", [item.name for item in items]
    if all(isinstance(item, str | bytes) for item in items):
        return "bytes_list", [i.encode() if isinstance(i, str) else i for i in items]
    if all(isinstance(item, bool | int) for item in items):
        return "int64_list", [int(item) for item in items]
    if all(isinstance(item, float) for item in items):
        return "float_list", list(items)
    kinds = ", ".join(sorted({type(item).__name__ for item in items}))
    raise errors.InvalidTypeError(f"there is no message for a list of {kinds}")
