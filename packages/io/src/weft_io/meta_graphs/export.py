"""Export of a graph with its collections and its saver as a `MetaGraphDef`."""

from __future__ import annotations

from weft_graph import proto

__all__ = ["export_meta_graph"]

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from weft_graph.ir.collections_keys import GraphKeys
from weft_graph.ir.default_graph import get_default_graph
from weft_io.files.message_files import write_message
from weft_io.meta_graphs.collections import add_collections

if TYPE_CHECKING:
    from weft_graph import proto
    from weft_graph.ir.graph import Graph

UNBOUND_INPUTS: Final = "unbound_inputs"
"""The collection that lists the inputs from outside the exported scope."""


def export_meta_graph(
    filename: str | None = None,
    meta_info_def: Any = None,
    graph_def: Any = None,
    saver_def: Any = None,
    collection_list: Sequence[str] | None = None,
    as_text: bool = False,
    graph: Graph | None = None,
    export_scope: str | None = None,
    clear_devices: bool = False,
    clear_extraneous_savers: bool = False,
    strip_default_attrs: bool = False,
    save_debug_info: bool = False,
) -> proto.MetaGraphDef:
    """Return the graph as a `MetaGraphDef`, and write it to `filename` if that is set.

    Ops that only weft has are replaced by equivalent TensorFlow ops.

    Args:
      filename: path of the
        file, which is written atomically.
      meta_info_def: a `MetaInfoDef` to start from.
      graph_def: the graph's `GraphDef`, if it exists already.
      saver_def: the `SaverDef` to include.
      collection_list: names of the collections to include; all by default. Items that cannot be
        represented in a message are left out, which is logged.
      as_text: write protobuf's text format.
      graph: the default graph by default.
      export_scope: export only the nodes under this name scope, with names relative to it. Inputs
        from outside are called "$unbound_inputs_<name>" and are listed in the collection
        "unbound_inputs": an import must map them.
      clear_devices: omit device requests.
      clear_extraneous_savers: omit the nodes of all savers except the saver of `saver_def`.
      strip_default_attrs: omit attributes that have their default values.
      save_debug_info: accepted and ignored.
    Raises: InvalidArgumentError: a node cannot be represented in a GraphDef, or the message has 2
      GiB or more.

    Examples:
      >>> x = wf.Variable(1.0, name="x")
      >>> meta = wf.train.export_meta_graph()
      >>> len(meta.graph_def.node) > 0
      True
    """
    from weft_graph.messages.graph_def import fill_graph_def
    from weft_graph.messages.op_def_proto import stripped_op_list
    from weft_io.meta_graphs import graph_def_edits
    from weft_io.meta_graphs.tensorflow_ops import use_tensorflow_ops

    del save_debug_info
    selected = graph or get_default_graph()
    scope = export_scope.rstrip("/") + "/" if export_scope else ""
    message = proto.MetaGraphDef()
    if meta_info_def is not None:
        message.meta_info_def.CopyFrom(meta_info_def)
    if graph_def is None:
        fill_graph_def(message.graph_def, selected, add_shapes=True)
    else:
        message.graph_def.CopyFrom(graph_def)
    use_tensorflow_ops(message.graph_def)
    if clear_extraneous_savers:
        graph_def_edits.remove_savers(message.graph_def, saver_def)
    if scope:
        _cut_scope(message, scope)
    if clear_devices:
        graph_def_edits.clear_devices(message.graph_def)
    if not message.meta_info_def.HasField("stripped_op_list"):
        message.meta_info_def.stripped_op_list.CopyFrom(stripped_op_list(message.graph_def))
    if strip_default_attrs:
        graph_def_edits.strip_defaults(message.graph_def)
        message.meta_info_def.stripped_default_attrs = True
    if saver_def is not None:
        renamed = rename_saver(saver_def, lambda name: name.removeprefix(scope), scope)
        if renamed is not None:
            message.saver_def.CopyFrom(renamed)
    add_collections(message, selected, collection_list, scope)
    if clear_extraneous_savers:
        _remove_savers(message)
    if filename is not None:
        write_message(filename, message, as_text)
    return message


def _cut_scope(message: proto.MetaGraphDef, scope: str) -> None:
    """Keep only the nodes under a name scope, and record their inputs from outside."""
    from weft_io.meta_graphs import graph_def_edits

    unbound = graph_def_edits.cut_scope(message.graph_def, scope)
    if unbound:
        names = message.collection_def[UNBOUND_INPUTS].bytes_list.value
        names.extend(name.encode() for name in unbound)


def _remove_savers(message: proto.MetaGraphDef) -> None:
    """Remove all savers from the collection except the one whose nodes exist."""
    name = message.saver_def.save_tensor_name
    for key in {GraphKeys.SAVERS} & set(message.collection_def):
        values = message.collection_def[key].bytes_list.value
        remaining = [v for v in values if proto.SaverDef.FromString(v).save_tensor_name == name]
        if remaining:
            values[:] = remaining
        else:
            del message.collection_def[key]


def rename_saver(
    message: proto.SaverDef, rename: Callable[[str], str], required: str = ""
) -> proto.SaverDef | None:
    """Return a renamed copy; None unless all names begin with `required`."""
    copy = proto.SaverDef()
    copy.CopyFrom(message)
    for field in ("filename_tensor_name", "save_tensor_name", "restore_op_name"):
        name = getattr(message, field)
        if not name.startswith(required):
            return None
        setattr(copy, field, rename(name))
    return copy
