"""A graph with its collections and its saver as a `MetaGraphDef`, the file beside a checkpoint."""

from __future__ import annotations

__all__ = ["export_meta_graph", "import_meta_graph"]

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from weft_graph.ir import stacks
from weft_io.files.message_files import read_message, write_message
from weft_tensor import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft_graph import proto
    from weft_graph.ir.graph import Graph
    from weft_graph.ir.node import Node, Output
    from weft_graph.variables.base import Variable

_log = logging.getLogger("weft")

_UNBOUND = "unbound_inputs"


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
    """The graph as a `MetaGraphDef`, written to `filename` if there is one.

    It has TensorFlow's ops alone: those that only weft has are replaced by what means the same.

    Args:
      filename: written atomically.
      meta_info_def: a `MetaInfoDef` to start from.
      graph_def: the graph's `GraphDef`, if it is at hand.
      saver_def: how to save and restore it.
      collection_list: names of the collections to put in; all by default. What has no form in a
        message is left out, with a remark in the log.
      as_text: write protobuf's text format.
      graph: the default graph by default.
      export_scope: only the nodes under this name scope, with names relative to it. Inputs from
        outside are called "$unbound_inputs_<name>" and are listed in the collection
        "unbound_inputs": an import must map them.
      clear_devices: leave out device requests.
      clear_extraneous_savers: leave out the nodes of savers other than that of `saver_def`.
      strip_default_attrs: leave out attributes that have their default values.
      save_debug_info: accepted for compatibility: nodes carry their lines in weft's own files.
    Raises: InvalidArgumentError: the graph has no form in a GraphDef, or takes 2 GiB or more.
    """
    from weft_graph import proto
    from weft_graph.messages.op_def_proto import stripped_op_list
    from weft_io.graphs import graph_def_parts
    from weft_io.graphs.collections import add_collections
    from weft_io.graphs.tensorflow_ops import use_tensorflow_ops
    from weft_io.saving import saver_builder

    del save_debug_info
    chosen = graph or stacks.get_default_graph()
    scope = export_scope.rstrip("/") + "/" if export_scope else ""
    message = proto.MetaGraphDef()
    if meta_info_def is not None:
        message.meta_info_def.CopyFrom(meta_info_def)
    message.graph_def.CopyFrom(
        chosen.as_graph_def(add_shapes=True) if graph_def is None else graph_def
    )
    use_tensorflow_ops(message.graph_def)
    if clear_extraneous_savers:
        graph_def_parts.remove_savers(message.graph_def, saver_def)
    if scope:
        unbound = graph_def_parts.cut_scope(message.graph_def, scope)
        if unbound:
            names = message.collection_def[_UNBOUND].bytes_list.value
            names.extend(name.encode() for name in unbound)
    if clear_devices:
        graph_def_parts.clear_devices(message.graph_def)
    if not message.meta_info_def.HasField("stripped_op_list"):
        message.meta_info_def.stripped_op_list.CopyFrom(stripped_op_list(message.graph_def))
    if strip_default_attrs:
        graph_def_parts.strip_defaults(message.graph_def)
        message.meta_info_def.stripped_default_attrs = True
    if saver_def is not None:
        own = saver_builder.renamed(saver_def, lambda name: name.removeprefix(scope), scope)
        if own is not None:
            message.saver_def.CopyFrom(own)
    add_collections(message, chosen, collection_list, scope)
    if filename is not None:
        write_message(filename, message, as_text)
    return message


# --------------------------------------------------------------------------- importing


class ImportedGraph(NamedTuple):
    """What importing a `MetaGraphDef` made.

    Attributes:
      variables: the global variables by their names in the message.
      elements: those that `return_elements` asked for.
      scope: the name scope that it is under, without a closing slash; "" for none.
    """

    variables: dict[str, Variable]
    elements: list[Node | Output]
    scope: str


def import_meta_graph(
    meta_graph_or_file: Any,
    clear_devices: bool = False,
    import_scope: str | None = None,
    **kwargs: Any,
) -> Any:
    """Add the graph and the collections of a `MetaGraphDef` to the default graph.

    Args:
      meta_graph_or_file: the message, or a file with one, binary or text.
      clear_devices: leave out its device requests.
      import_scope: name scope to put it under.
      **kwargs: as of `import_scoped_meta_graph`.
    Returns: a saver over the imported nodes; without a `saver_def` in the message, a new one of
      all variables, or None when there are no variables. With `return_elements`, a pair of that
      and the list of elements.
    Raises: as `import_scoped_meta_graph`.
    """
    message = as_meta_graph(meta_graph_or_file)
    found = import_scoped_meta_graph(
        message, clear_devices=clear_devices, import_scope=import_scope, **kwargs
    )
    saver = saver_of(message, found, import_scope)
    return saver if kwargs.get("return_elements") is None else (saver, found.elements)


def saver_of(
    message: proto.MetaGraphDef, found: ImportedGraph, import_scope: str | None = None
) -> Any:
    """A saver over imported nodes, or a new one of all variables; None where there are none."""
    from weft_io.saving.saveables import all_saveable_objects
    from weft_io.saving.saver import Saver

    if message.HasField("saver_def"):
        return Saver.from_proto(message.saver_def, found.scope or None)
    if all_saveable_objects(stacks.get_default_graph(), import_scope):
        return Saver()
    return None


def import_scoped_meta_graph(
    meta_graph_or_file: Any,
    clear_devices: bool = False,
    graph: Graph | None = None,
    import_scope: str | None = None,
    input_map: Mapping[str, Any] | None = None,
    unbound_inputs_col_name: str | None = _UNBOUND,
    restore_collections_predicate: Callable[[str], bool] = lambda name: True,
    return_elements: Sequence[str] | None = None,
) -> ImportedGraph:
    """Add the graph and the collections of a `MetaGraphDef` to a graph.

    Args:
      meta_graph_or_file: the message, or a file with one, binary or text.
      clear_devices: leave out its device requests.
      graph: the default graph by default.
      import_scope: name scope to put it under.
      input_map: tensors in place of inputs, as of `import_graph_def`.
      unbound_inputs_col_name: the collection that names inputs which `input_map` must have; None
        does not ask.
      restore_collections_predicate: by name, which collections to take over.
      return_elements: names in the message of operations and tensors to return.
    Raises:
      NotFoundError: there is no such file, or it uses ops that are not declared.
      DataLossError: the file holds no MetaGraphDef.
      InvalidArgumentError: the graph or its collections contradict themselves; names that they
        refer to are taken and there is no `import_scope`. The graph is unchanged then.
    """
    from weft_graph.messages.import_graph_def import import_graph_def
    from weft_io.graphs import graph_def_parts
    from weft_io.graphs.collections import CollectionReader

    message = as_meta_graph(meta_graph_or_file)
    chosen = graph or stacks.get_default_graph()
    _check_unbound(message, unbound_inputs_col_name, input_map or {})
    graph_def = message.graph_def
    if clear_devices:
        graph_def = graph_def_parts.copied(graph_def)
        graph_def_parts.clear_devices(graph_def)
    names = [node.name for node in graph_def.node]
    with chosen.as_default(), _undone(chosen):
        scope = _scope(chosen, import_scope)
        elements = import_graph_def(
            graph_def,
            input_map=input_map,
            return_elements=[*names, *(return_elements or ())],
            name=f"{scope}/" if scope else "",
            producer_op_list=message.meta_info_def.stripped_op_list,
        )
        assert elements is not None
        made = dict(zip(names, elements, strict=False))
        reader = CollectionReader(chosen, scope, made)
        if message.HasField("saver_def"):
            reader.check(message.saver_def, "the saver")
        for key in sorted(message.collection_def):
            if key != unbound_inputs_col_name and restore_collections_predicate(key):
                reader.read(key, message.collection_def[key])
        reader.add()
    return ImportedGraph(reader.variables(), elements[len(names) :], scope)


def read_meta_graph_file(filename: str) -> proto.MetaGraphDef:
    """The `MetaGraphDef` in a file, binary or text.

    Raises:
      NotFoundError: there is no such file.
      DataLossError: it holds no MetaGraphDef.
    """
    from weft_graph import proto

    return read_message(filename, proto.MetaGraphDef)


def as_meta_graph(meta_graph_or_file: Any) -> proto.MetaGraphDef:
    """A `MetaGraphDef` that is given as such, or as the path of a file."""
    from weft_graph import proto

    if isinstance(meta_graph_or_file, proto.MetaGraphDef):
        return meta_graph_or_file
    if isinstance(meta_graph_or_file, str | bytes | os.PathLike):
        return read_meta_graph_file(os.fsdecode(meta_graph_or_file))
    raise errors.InvalidTypeError(
        f"a MetaGraphDef or the path of a file is required, got {meta_graph_or_file!r}"
    )


def _scope(graph: Graph, import_scope: str | None) -> str:
    if not import_scope:
        return graph.get_name_scope()
    if import_scope.endswith("/"):
        return import_scope.rstrip("/")
    return graph.unique_name(import_scope)


def _check_unbound(
    message: proto.MetaGraphDef, collection: str | None, input_map: Mapping[str, Any]
) -> None:
    if collection is None or collection not in message.collection_def:
        return
    given = {_input(name) for name in input_map}
    wanted = [value.decode() for value in message.collection_def[collection].bytes_list.value]
    missing = [name for name in wanted if _input(name) not in given]
    if missing:
        raise errors.InvalidArgumentError(
            f"the graph has inputs from outside, which input_map must have: {', '.join(missing)}"
        )


def _input(name: str | bytes) -> str:
    text = name.decode() if isinstance(name, bytes) else name
    return text if ":" in text or text.startswith("^") else f"{text}:0"


@contextmanager
def _undone(graph: Graph) -> Iterator[None]:
    """Take back the nodes that were added, if the block fails."""
    count = len(graph.nodes)
    contexts, has_contexts = dict(graph.contexts), graph.has_contexts
    try:
        yield
    except BaseException:  # because half an import may not stay, whatever stopped it
        graph.remove_nodes(graph.nodes[count:], reason="failed import")
        graph.contexts, graph.has_contexts = contexts, has_contexts
        raise
