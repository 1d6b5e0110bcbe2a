"""Import of the graph and the collections of a `MetaGraphDef`."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from weft_graph import proto
from weft_graph.ir.default_graph import get_default_graph
from weft_io.files.message_files import read_message
from weft_io.meta_graphs.collections import CollectionReader
from weft_io.meta_graphs.export import UNBOUND_INPUTS
from weft_tensor import errors

if TYPE_CHECKING:
    from weft_graph import proto
    from weft_graph.ir.graph import Graph
    from weft_graph.ir.node import Node, Output
    from weft_graph.variables.base import Variable


class ImportedGraph(NamedTuple):
    """The result of importing a `MetaGraphDef`.

    Attributes:
      variables: the global variables by their names in the message.
      elements: the requested `return_elements`.
      scope: its name scope, without a closing slash; "" for none.
      saver_def: its saver, if it has one.
      restorable: variables by their names in checkpoints, if nodes of savers were omitted.
    """

    variables: dict[str, Variable]
    elements: list[Node | Output]
    scope: str
    saver_def: proto.SaverDef | None
    restorable: dict[str, Any]


def import_scoped_meta_graph(
    meta_graph_or_file: Any,
    clear_devices: bool = False,
    graph: Graph | None = None,
    import_scope: str | None = None,
    input_map: Mapping[str, Any] | None = None,
    unbound_inputs_col_name: str | None = UNBOUND_INPUTS,
    restore_collections_predicate: Callable[[str], bool] = lambda name: True,
    return_elements: Sequence[str] | None = None,
    *,
    allowed_ops: Collection[str] | None = None,
) -> ImportedGraph:
    """Add the graph and the collections of a `MetaGraphDef` to a graph.

    Args:
      meta_graph_or_file: the message, or a file with one, binary or text.
      clear_devices: ignore its device requests.
      graph: the default graph by default.
      import_scope: name scope of the imported nodes.
      input_map: tensors that replace inputs, as for `import_graph_def`.
      unbound_inputs_col_name: the collection that names inputs which `input_map` must have; None to
        skip the check.
      restore_collections_predicate: returns True for the names of collections to import.
      return_elements: names in the message of operations and tensors to return.
      allowed_ops: as for `import_graph_def`. Saver nodes with other ops are omitted if nothing else
        uses them, and collections may refer only to imported nodes.
    Raises:
      PermissionDeniedError: as for `import_graph_def`, or a reference leads to a node outside the
        message. The graph is unchanged.
      NotFoundError: the file does not exist, or the graph uses undeclared ops.
      DataLossError: the file does not contain a MetaGraphDef.
      InvalidArgumentError: the graph or its collections are inconsistent, or names that collections
        refer to are taken and there is no `import_scope`. The graph is unchanged.
    """
    from weft_graph.messages.import_graph_def import add_graph_def
    from weft_graph.messages.shared_memory import read_after_updates
    from weft_io.meta_graphs import graph_def_edits
    from weft_io.meta_graphs.foreign_savers import remove_foreign_savers, var_list_by_key

    message, keys = remove_foreign_savers(as_meta_graph(meta_graph_or_file), allowed_ops)
    selected = graph or get_default_graph()
    _check_unbound(message, unbound_inputs_col_name, input_map or {})
    graph_def = message.graph_def
    if clear_devices:
        graph_def = graph_def_edits.copy_graph_def(graph_def)
        graph_def_edits.clear_devices(graph_def)
    names = [node.name for node in graph_def.node]
    with selected.as_default(), selected.functions.add_entries({}), _undo_on_failure(selected):
        scope = _scope(selected, import_scope)
        importer = add_graph_def(
            graph_def,
            input_map=input_map,
            name=f"{scope}/" if scope else "",
            producer_op_list=message.meta_info_def.stripped_op_list,
            allowed_ops=allowed_ops,
        )
        result = {name: importer.element(name) for name in names}
        elements = [importer.element(name) for name in return_elements or ()]
        reader = CollectionReader(selected, scope, result, closed=allowed_ops is not None)
        saver_def = message.saver_def if message.HasField("saver_def") else None
        if saver_def is not None:
            reader.check(saver_def, "the saver")
        for key, signature in message.signature_def.items() if allowed_ops is not None else ():
            for text in graph_def_edits.signature_names(signature):
                reader.check_name(text, f"the signature {key!r}")
        for key in sorted(message.collection_def):
            if key != unbound_inputs_col_name and restore_collections_predicate(key):
                reader.read(key, message.collection_def[key])
        variables = reader.variables()
        restorable = var_list_by_key(keys, variables, result)
        reader.add()
        read_after_updates(importer.new_nodes)
    return ImportedGraph(variables, elements, scope, saver_def, restorable)


def read_meta_graph_file(filename: str) -> proto.MetaGraphDef:
    """Read the `MetaGraphDef` in a file, binary or text.

    Raises:
      NotFoundError: the file does not exist.
      DataLossError: it does not contain a MetaGraphDef.
    """
    return read_message(filename, proto.MetaGraphDef)


def as_meta_graph(meta_graph_or_file: Any) -> proto.MetaGraphDef:
    """Return a `MetaGraphDef`, from itself or from the path of a file."""
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
    inputs = {_input(name) for name in input_map}
    expected = [value.decode() for value in message.collection_def[collection].bytes_list.value]
    missing = [name for name in expected if _input(name) not in inputs]
    if missing:
        raise errors.InvalidArgumentError(
            "the graph has inputs that are not part of it; map them in input_map: "
            f"{', '.join(missing)}"
        )


def _input(name: str | bytes) -> str:
    text = name.decode() if isinstance(name, bytes) else name
    return text if ":" in text or text.startswith("^") else f"{text}:0"


@contextmanager
def _undo_on_failure(graph: Graph) -> Iterator[None]:
    """Return a context that removes all added nodes if the block raises."""
    count = len(graph.nodes)
    contexts, has_contexts = dict(graph.contexts), graph.has_contexts
    try:
        yield
    except BaseException:  # because a partial import must be removed after any failure
        graph.remove_nodes(graph.nodes[count:], reason="failed import")
        graph.contexts, graph.has_contexts = contexts, has_contexts
        raise
