"""What is converted: a graph, what is given and computed by name, and what keeps its value."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from weft_exec.session.session import Session
from weft_graph import proto
from weft_graph.freezing import convert_variables_to_constants
from weft_graph.graph_util import tensor_named
from weft_graph.ir.builder import convert_to_tensor, create
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role
from weft_graph.messages.graph_def import graph_to_def
from weft_graph.messages.import_graph_def import import_graph_def
from weft_lite.convert.lowered import Array
from weft_tensor import errors


@dataclass
class Source:
    """A graph to convert.

    Attributes:
      inputs, outputs: by the names that the file's signature has for them.
      variables: what keeps its value between invocations, and what it holds at first.
      initializers: give these variables their first values.
    """

    graph: Graph
    inputs: dict[str, Output]
    outputs: dict[str, Output]
    variables: dict[str, Array] = field(default_factory=dict)
    initializers: list[Node] = field(default_factory=list)

    def session(self) -> Session:
        """A session in which the variables have their first values."""
        made = Session(graph=self.graph)
        if self.initializers:
            made.run(self.initializers)
        return made


def named(tensors: Iterable[Any]) -> dict[str, Output]:
    """Tensors by the names of their nodes; of a node's later outputs with the port."""
    found: dict[str, Output] = {}
    for tensor in tensors:
        name = tensor.node.name if tensor.index == 0 else tensor.name
        base, count = name, 1
        while name in found:
            name, count = f"{base}_{count}", count + 1
        found[name] = tensor
    return found


def of_session(
    session: Any,
    inputs: Mapping[str, Output],
    outputs: Mapping[str, Output],
    variables: Collection[Any] = (),
) -> Source:
    """What a session's graph computes, with its variables as constants but for `variables`.

    Raises:
      FailedPreconditionError: a variable has no value.
      NotFoundError: there is no such variable.
    """
    kept = {v if isinstance(v, str) else v.op.name for v in variables}
    values = _values(session, kept)
    ends = [*outputs.values(), *inputs.values()]
    with session.graph.as_default():
        definition = graph_to_def(session.graph)
    nodes = list(dict.fromkeys(output.node.name for output in ends))
    frozen = convert_variables_to_constants(
        session, definition, nodes, variable_names_blacklist=kept
    )
    source = of_definition(
        frozen,
        {key: output.name for key, output in inputs.items()},
        {key: output.name for key, output in outputs.items()},
    )
    _give_first_values(source, values)
    return source


def _values(session: Any, names: Collection[str]) -> dict[str, Array]:
    with session.graph.as_default():
        known = {
            variable.op.name: variable
            for key in ("variables", "local_variables")
            for variable in session.graph.get_collection(key)
        }
    unknown = set(names) - known.keys()
    if unknown:
        raise errors.NotFoundError(
            f"the graph has no variables {sorted(unknown)}; it has {sorted(known)}"
        )
    return {name: np.asarray(session.run(known[name])) for name in names}


def _give_first_values(source: Source, values: Mapping[str, Array]) -> None:
    for name, value in values.items():
        node = source.graph.find_node(name)
        if node is None:
            continue  # nothing that is computed uses it
        if node.role is not Role.VARIABLE:
            raise errors.InvalidArgumentError(f"{name} is no variable, but {node.type}")
        op = "Assign" if node.outputs[0].dtype.is_ref else "AssignVariableOp"
        with source.graph.as_default():
            made = create(op, [node.outputs[0], convert_to_tensor(value)], None, f"{name}/first")
        source.variables[name] = value
        source.initializers.append(made)


def of_definition(
    definition: proto.GraphDef, inputs: Mapping[str, str], outputs: Mapping[str, str]
) -> Source:
    """A frozen graph, with the names of the tensors that are given and computed.

    Raises:
      NotFoundError: there is no such tensor.
      InvalidArgumentError: the graph has variables, or contradicts itself.
    """
    graph = imported(definition)
    return Source(
        graph,
        {key: tensor_named(graph, name) for key, name in inputs.items()},
        {key: tensor_named(graph, name) for key, name in outputs.items()},
    )


def imported(definition: proto.GraphDef) -> Graph:
    """The graph that a GraphDef describes.

    Raises: InvalidArgumentError: it contradicts itself.
    """
    graph = Graph()
    with graph.as_default():
        import_graph_def(definition, name="")
    return graph


def read_definition(frozen: Any) -> proto.GraphDef:
    """A GraphDef as it is, from its bytes, or from a file.

    Raises:
      FileNotFoundError: there is no such file.
      DataLossError: there is no GraphDef in it.
    """
    if isinstance(frozen, proto.GraphDef):
        return frozen
    where = "what was given"
    if isinstance(frozen, str | os.PathLike):
        where = os.fspath(frozen)
        frozen = Path(where).read_bytes()
    definition = proto.GraphDef()
    try:
        definition.ParseFromString(frozen)
    except DecodeError as error:
        raise errors.DataLossError(f"{where} holds no GraphDef: {error}") from error
    return definition


def of_frozen_graph(frozen: Any, inputs: Sequence[str], outputs: Sequence[str]) -> Source:
    """As `of_definition`, from a GraphDef, its bytes, or a file."""
    definition = read_definition(frozen)
    source = of_definition(definition, {n: n for n in inputs}, {n: n for n in outputs})
    held = [node.name for node in source.graph.nodes if node.role is Role.VARIABLE]
    if held:
        raise errors.InvalidArgumentError(
            f"the graph is not frozen: it has the variables {held[:5]}; convert it from a session, "
            "a checkpoint or a SavedModel"
        )
    return source


def of_saved_model(path: Any, key: str, tags: Iterable[str], variables: Collection[Any]) -> Source:
    """A signature of a SavedModel.

    Raises: NotFoundError: there is no SavedModel, no graph with the tags, or no such signature.
    """
    from weft_io.saved_model.loader import load

    with Graph().as_default() as graph, Session(graph=graph) as session:
        message = load(session, list(tags), path)
        if key not in message.signature_def:
            raise errors.NotFoundError(
                f"the SavedModel has no signature {key!r}; it has {sorted(message.signature_def)}"
            )
        signature = message.signature_def[key]
        inputs, outputs = (
            {name: graph.get_tensor_by_name(info.name) for name, info in sorted(part.items())}
            for part in (signature.inputs, signature.outputs)
        )
        return of_session(session, inputs, outputs, variables)


def of_checkpoint(
    prefix: str, inputs: Sequence[str], outputs: Sequence[str], variables: Collection[Any]
) -> Source:
    """The graph beside a checkpoint (`prefix.meta`), with the values that it has.

    Raises: NotFoundError: there is no such checkpoint, or no such tensor.
    """
    from weft_io.saving.meta_graph import import_meta_graph

    with Graph().as_default() as graph, Session(graph=graph) as session:
        saver = import_meta_graph(f"{prefix}.meta")
        if saver is None:
            raise errors.NotFoundError(f"{prefix}.meta has no variables to restore")
        saver.restore(session, prefix)

        given = {name: tensor_named(graph, name) for name in inputs}
        computed = {name: tensor_named(graph, name) for name in outputs}
        return of_session(session, given, computed, variables)


def of_onnx(model: Any) -> Source:
    """An ONNX model."""
    from weft_io.onnx.importer import import_model

    with Graph().as_default() as graph:
        made = import_model(model)
    return Source(graph, dict(made.inputs), dict(made.outputs))
