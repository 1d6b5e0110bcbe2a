"""MetaGraphs with the savers of their variables."""

from __future__ import annotations

__all__ = ["import_meta_graph"]

from typing import TYPE_CHECKING, Any

from weft_graph.ir.default_graph import get_default_graph
from weft_io.meta_graphs.scoped_import import (
    ImportedGraph,
    as_meta_graph,
    import_scoped_meta_graph,
)
from weft_io.saving.saveables import all_saveable_objects
from weft_io.saving.saver import Saver

if TYPE_CHECKING:
    from weft_graph import proto


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
      all variables, or None when there are no variables. With `return_elements`, the saver
      and the list of elements.
    Raises: as `import_scoped_meta_graph`.

    Examples:
      >>> with wf.Graph().as_default():
      ...     x = wf.Variable(1.0, name="x")
      ...     meta = wf.train.export_meta_graph()
      >>> saver = wf.train.import_meta_graph(meta)
      >>> [variable.name for variable in wf.global_variables()]
      ['x:0']
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
    if message.HasField("saver_def"):
        return Saver.from_proto(message.saver_def, found.scope or None)
    if all_saveable_objects(get_default_graph(), import_scope):
        return Saver()
    return None
