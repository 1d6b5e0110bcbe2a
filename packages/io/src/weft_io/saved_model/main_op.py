"""The main op of SavedModels, which runs after loading."""

from __future__ import annotations

__all__ = ["main_op", "main_op_with_restore"]

from typing import Any

from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.node import Node
from weft_graph.ops.control import group
from weft_graph.variables.reference import (
    global_variables_initializer,
    local_variables_initializer,
    tables_initializer,
)


def main_op() -> Node:
    """Return a node that initializes all variables, including local ones, and tables.

    Examples:
      >>> seen = wf.Variable(0, collections=[wf.GraphKeys.LOCAL_VARIABLES])
      >>> start = wf.saved_model.main_op.main_op()
      >>> with wf.Session() as session:
      ...     session.run(start)
      ...     session.run(seen)
      np.int32(0)
    """
    return group(
        global_variables_initializer(), local_variables_initializer(), tables_initializer()
    )


def main_op_with_restore(restore_op_name: Any) -> Node:
    """Return a node that runs `main_op`, and then another node.

    Args:
      restore_op_name: the other node, or its name.
    Raises: NotFoundError: the default graph has no node of that name.

    Examples:
      >>> vocabulary = wf.Variable(["none"], name="vocabulary")
      >>> fill = wf.assign(vocabulary, ["filled"], name="fill")
      >>> start = wf.saved_model.main_op_with_restore("fill")
      >>> with wf.Session() as session:
      ...     session.run(start)
      ...     session.run(vocabulary)
      array([b'filled'], dtype=object)
    """
    graph = get_default_graph()
    restore = graph.as_graph_element(restore_op_name)
    with graph.control_dependencies([main_op()]):
        return group(restore)
