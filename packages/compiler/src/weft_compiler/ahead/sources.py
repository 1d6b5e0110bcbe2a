"""Reading of saved models as graphs without variables.

This module reads graphs. Packages that read other kinds of files register a reader function in the
entry-point group `weft_compiler.models`, named after the kind. Its parameters are the path, names
of inputs and outputs,
a signature or None, and tags. It returns the inputs and the outputs of a graph by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path

from google.protobuf.message import DecodeError

from weft_graph import proto
from weft_graph.graph_util import graph_ends, tensor_named
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Output
from weft_graph.messages.import_graph_def import import_graph_def
from weft_graph.serialize.reader import read_graph
from weft_tensor import errors

Ends = tuple[dict[str, Output], dict[str, Output]]
Reader = Callable[[Path, Sequence[str], Sequence[str], str | None, Sequence[str]], Ends]


def read_model(
    path: Path,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    signature: str | None = None,
    tags: Sequence[str] = (),
) -> Ends:
    """Return the inputs and outputs of a saved model, by name.

    Args:
      path: a file, a directory, or the prefix of a checkpoint.
      inputs, outputs: names of tensors; by default, for a graph, all placeholders without a default
        and all nodes without consumers.
      signature, tags: signature and tags of a SavedModel; by default those for serving.
    Raises:
      NotFoundError: there is no such file or tensor.
      DataLossError: the file does not contain a graph.
      InvalidArgumentError: an argument does not apply to the kind of file.
      UnimplementedError: no installed package reads such files.
    """
    kind = kind_of(path)
    if kind != "graph":
        return _reader(kind)(path, inputs, outputs, signature, tags)
    if signature or tags:
        raise errors.InvalidArgumentError(
            f"{path} is a graph, and graphs have no signatures or tags: omit --signature and --tags"
        )
    graph = _graph(path)
    default_inputs, computed = graph_ends(graph)
    return (
        {name: tensor_named(graph, name) for name in inputs or default_inputs},
        {name: tensor_named(graph, name) for name in outputs or computed},
    )


def kind_of(path: Path) -> str:
    """Determine the kind of a saved model from its name and the files next to it.

    Raises: NotFoundError: there is no such file.
    """
    if path.is_dir():
        return "saved_model"
    if not path.exists():
        if Path(f"{path}.meta").exists():
            return "checkpoint"
        raise errors.NotFoundError(f"file not found: {path}")
    return {".onnx": "onnx", ".weftlite": "weftlite"}.get(path.suffix, "graph")


def _reader(kind: str) -> Reader:
    for entry in entry_points(group="weft_compiler.models", name=kind):
        reader: Reader = entry.load()
        return reader
    raise errors.UnimplementedError(
        f"no installed package reads a {kind}: pip install 'weftml-lite[convert]'"
    )


def _graph(path: Path) -> Graph:
    if path.suffix == ".weft":
        with open(path, "rb") as file:
            return read_graph(file)
    definition = proto.GraphDef()
    try:
        definition.ParseFromString(path.read_bytes())
    except DecodeError as error:
        raise errors.DataLossError(f"{path} is not a GraphDef: {error}") from error
    graph = Graph()
    with graph.as_default():
        import_graph_def(definition, name="")
    return graph
