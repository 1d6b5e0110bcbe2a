"""Writing of a graph to a file as a `GraphDef`."""

from __future__ import annotations

__all__ = ["write_graph"]

import os
from typing import TYPE_CHECKING, Any

from weft_graph.ir.graph import Graph
from weft_io.files import paths
from weft_tensor import errors
from weft_tensor.os_errors import convert_os_errors

if TYPE_CHECKING:
    from weft_graph import proto


def write_graph(
    graph_or_graph_def: Graph | proto.GraphDef, logdir: str, name: str, as_text: bool = True
) -> str:
    r"""Write a graph as a `GraphDef`, atomically.

    Args:
      graph_or_graph_def: a graph or a message.
      logdir: directory, created if it does not exist, or a URL that fsspec knows.
      name: file name within it.
      as_text: write protobuf's text format.
    Returns: the path.
    Raises: InvalidArgumentError: a node cannot be represented in a GraphDef, or the message has 2
      GiB or more;
      InvalidTypeError: the argument is neither a graph nor a message;
      AlreadyExistsError: `logdir` is a file.

    Examples:
      >>> x = wf.constant(1.0, name="x")
      >>> path = wf.io.write_graph(wf.get_default_graph(), "models", "graph.pbtxt")
      >>> wf.gfile.GFile(path).readline()
      'node {\n'
    """
    from google.protobuf.message import Message

    message: Any = graph_or_graph_def
    if isinstance(graph_or_graph_def, Graph):
        message = graph_or_graph_def.as_graph_def()
    if not isinstance(message, Message):
        raise errors.InvalidTypeError(
            f"write_graph requires a Graph or a GraphDef, got {message!r}"
        )
    path = os.path.join(paths.as_path(logdir), name)
    if as_text:
        from google.protobuf import text_format

        data = text_format.MessageToString(message).encode()
    else:
        data = message.SerializeToString()
    with convert_os_errors("writing", path):
        paths.storage_of(path).make_directory(os.path.dirname(path) or ".")
        paths.write_atomically(path, data)
    return path
