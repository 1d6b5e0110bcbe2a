"""Import of MetaGraphs, with savers of their variables."""

from __future__ import annotations

__all__ = ["import_meta_graph"]

from collections.abc import Collection
from typing import Any

from weft_graph.ir.default_graph import get_default_graph
from weft_io.meta_graphs.scoped_import import (
    ImportedGraph,
    import_scoped_meta_graph,
)
from weft_io.saving.saveables import all_saveable_objects
from weft_io.saving.saver import Saver


def import_meta_graph(
    meta_graph_or_file: Any,
    clear_devices: bool = False,
    import_scope: str | None = None,
    *,
    allowed_ops: Collection[str] | None = None,
    **kwargs: Any,
) -> Any:
    """Add the graph and the collections of a `MetaGraphDef` to the default graph.

    Args:
      meta_graph_or_file: the message, or a file with one, binary or text.
      clear_devices: omit its device requests.
      import_scope: name scope of the imported nodes.
      allowed_ops: the allowed op types, also in functions, such as `wf.safe_ops()` for an untrusted
        graph; all by default. If they exclude the ops of the saver, its nodes are omitted, and the
        result is a new saver for the same variables.
      **kwargs: as for `import_scoped_meta_graph`.
    Returns: a saver that uses the imported nodes; if the message has no `saver_def`, a new saver of
      all variables, or None if there are no variables. With `return_elements`, the saver and the
      list of elements.
    Raises: as `import_scoped_meta_graph`.

    Examples:
      >>> with wf.Graph().as_default():
      ...     x = wf.Variable(1.0, name="x")
      ...     meta = wf.train.export_meta_graph()
      >>> saver = wf.train.import_meta_graph(meta)
      >>> [variable.name for variable in wf.global_variables()]
      ['x:0']
    """
    result = import_scoped_meta_graph(
        meta_graph_or_file,
        clear_devices=clear_devices,
        import_scope=import_scope,
        allowed_ops=allowed_ops,
        **kwargs,
    )
    saver = saver_of(result, import_scope)
    return saver if kwargs.get("return_elements") is None else (saver, result.elements)


def saver_of(imported_graph: ImportedGraph, import_scope: str | None = None) -> Any:
    """Return a saver that uses imported nodes, or a new one; None if there are no variables."""
    if imported_graph.saver_def is not None:
        return Saver.from_proto(imported_graph.saver_def, imported_graph.scope or None)
    if imported_graph.restorable:
        return Saver(imported_graph.restorable)
    if all_saveable_objects(get_default_graph(), import_scope):
        return Saver()
    return None
