"""The sources of a conversion: a frozen graph with named inputs, outputs and variables.

Every source goes through `weft_graph.freezing.specialize_graph`: calls of functions are inlined,
placeholders that are not inputs become constants, and conditionals that depend on them are folded.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from weft_exec.session.feeds import arrays_by_tensor
from weft_exec.session.session import Session
from weft_graph import proto
from weft_graph.freezing import convert_variables_to_constants, specialize_graph
from weft_graph.graph_util import tensor_named
from weft_graph.ir.builder import convert_to_tensor, create
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role
from weft_graph.messages.attr_value import shape_to_proto
from weft_graph.messages.graph_def import graph_to_def
from weft_graph.messages.import_graph_def import import_graph_def
from weft_lite.convert.lowered import Array
from weft_lite.convert.scalars import find_rule
from weft_tensor import errors
from weft_tensor.shape import as_dims, format_dims, merge_dims


@dataclass
class Source:
    """A graph to convert.

    Attributes:
      inputs, outputs: by their names in the file's signature.
      variables: initial values of variables that keep their value between invocations, by name.
      initializers: nodes that initialize these variables.
    """

    graph: Graph
    inputs: dict[str, Output]
    outputs: dict[str, Output]
    variables: dict[str, Array] = field(default_factory=dict)
    initializers: list[Node] = field(default_factory=list)

    def session(self) -> Session:
        """Return a session in which the variables are initialized."""
        session = Session(graph=self.graph)
        if self.initializers:
            session.run(self.initializers)
        return session


def name_tensors(tensors: Iterable[Any]) -> dict[str, Output]:
    """Return tensors by the names of their nodes, with the port for outputs after the first."""
    outputs: dict[str, Output] = {}
    for tensor in tensors:
        name = tensor.node.name if tensor.index == 0 else tensor.name
        base, count = name, 1
        while name in outputs:
            name, count = f"{base}_{count}", count + 1
        outputs[name] = tensor
    return outputs


def source_of_session(
    session: Any,
    inputs: Mapping[str, Output],
    outputs: Mapping[str, Output],
    variables: Collection[Any] = (),
    values: Mapping[Any, Any] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Source:
    """Return the source of a session's graph; all other variables become constants.

    Args:
      values, shapes: as for `specialize`.
    Raises:
      FailedPreconditionError: a variable has no value.
      NotFoundError: a variable, or a tensor named in `values`, does not exist.
    """
    kept_names = {v if isinstance(v, str) else v.op.name for v in variables}
    first_values = _values(session, kept_names)
    part = specialize(session.graph, inputs, outputs, values, shapes)
    ends = [*part.outputs.values(), *part.inputs.values()]
    nodes = list(dict.fromkeys(output.node.name for output in ends))
    definition = graph_to_def(part.graph)
    frozen = convert_variables_to_constants(
        session, definition, nodes, variable_names_blacklist=kept_names
    )
    source = _imported_source(
        frozen,
        {key: output.name for key, output in part.inputs.items()},
        {key: output.name for key, output in part.outputs.items()},
        part.graph,
    )
    _set_initial_values(source, first_values)
    return source


def specialize(
    graph: Graph,
    inputs: Mapping[str, Output],
    outputs: Mapping[str, Output],
    values: Mapping[Any, Any] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Source:
    """Return the part of a graph between inputs and outputs, with other placeholders as constants.

    Args:
      values: values by tensor, by the name of a tensor, or by the name of an input, which is then
        not an input of the file. Placeholders without a value have their defaults.
      shapes: shapes of inputs by name; sizes that follow from them are known at conversion.
    Raises:
      NotFoundError: a tensor or an input does not exist.
      InvalidArgumentError: a value does not match its tensor, or an output is in a branch that is
        not taken.
      InvalidTypeError: a value has a wrong type.
    """
    bound = arrays_by_tensor(values or {}, graph, inputs)
    open_inputs = {name: tensor for name, tensor in inputs.items() if tensor not in bound}
    fed, fetched = specialize_graph(
        list(open_inputs.values()),
        list(outputs.values()),
        bound,
        lambda op: find_rule(op) is not None,
    )
    (part,) = {tensor.graph for tensor in fetched}
    source = Source(
        part,
        dict(zip(open_inputs, fed, strict=True)),
        dict(zip(outputs, fetched, strict=True)),
    )
    return _set_shapes(source, shapes) if shapes else source


def _set_shapes(source: Source, shapes: Mapping[str, Sequence[int]]) -> Source:
    """Return the graph with new static shapes of inputs and of dependent values."""
    if unknown := sorted(shapes.keys() - source.inputs.keys()):
        raise errors.NotFoundError(
            f"shapes has names that are not inputs: {unknown}; the inputs are "
            f"{sorted(source.inputs)}"
        )
    definition = graph_to_def(source.graph)
    nodes = {node.name: node for node in definition.node}
    for name, shape in shapes.items():
        tensor = source.inputs[name]
        try:
            dims = merge_dims(tensor.dims, as_dims(shape))
        except errors.OpError as error:
            raise errors.InvalidArgumentError(
                f"input {name!r} has shape {format_dims(tensor.dims)} in the graph, which "
                f"{list(shape)} does not match"
            ) from error
        nodes[tensor.node.name].attr["shape"].shape.CopyFrom(shape_to_proto(dims))
    return _imported_source(
        definition,
        {name: tensor.name for name, tensor in source.inputs.items()},
        {name: tensor.name for name, tensor in source.outputs.items()},
        source.graph,
    )


def _values(session: Any, names: Collection[str]) -> dict[str, Array]:
    """Return the current values of variables."""
    with session.graph.as_default():
        variables = {
            variable.op.name: variable
            for key in ("variables", "local_variables")
            for variable in session.graph.get_collection(key)
        }
    unknown = set(names) - variables.keys()
    if unknown:
        raise errors.NotFoundError(
            f"the graph has no variables {sorted(unknown)}; it has {sorted(variables)}"
        )
    return {name: np.asarray(session.run(variables[name])) for name in names}


def _set_initial_values(source: Source, values: Mapping[str, Array]) -> None:
    """Add ops that initialize the variables of a source."""
    for name, value in values.items():
        node = source.graph.find_node(name)
        if node is None:
            continue  # nothing that is computed uses it
        if node.role is not Role.VARIABLE:
            raise errors.InvalidArgumentError(f"{name} is not a variable but {node.type}")
        op = "Assign" if node.outputs[0].dtype.is_ref else "AssignVariableOp"
        with source.graph.as_default():
            result = create(op, [node.outputs[0], convert_to_tensor(value)], None, f"{name}/first")
        source.variables[name] = value
        source.initializers.append(result)


def _imported_source(
    definition: proto.GraphDef,
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
    origin: Graph | None = None,
) -> Source:
    """Import a graph; return the names of its input and output tensors, too.

    Args:
      origin: the original graph of the message, whose source lines errors show.
    Raises:
      NotFoundError: a tensor does not exist.
      InvalidArgumentError: the graph is inconsistent.
    """
    graph = import_definition(definition)
    if origin is None:
        _clear_lines(graph)
    else:
        copy_lines(origin, graph)
    return Source(
        graph,
        {key: tensor_named(graph, name) for key, name in inputs.items()},
        {key: tensor_named(graph, name) for key, name in outputs.items()},
    )


def copy_lines(origin: Graph, graph: Graph) -> None:
    """Copy the source lines of the original nodes, which errors show."""
    for node in graph.nodes:
        original = origin.find_node(node.name)
        if original is not None:
            node.copy_line(original)


def _clear_lines(graph: Graph) -> None:
    """Remove the source lines of imported nodes, which would be those of the import."""
    for node in graph.nodes:
        node.clear_line()


def import_definition(definition: proto.GraphDef) -> Graph:
    """Import a GraphDef as a new graph.

    Raises: InvalidArgumentError: it is inconsistent.
    """
    graph = Graph()
    with graph.as_default():
        import_graph_def(definition, name="")
    return graph


def read_definition(frozen: Any) -> proto.GraphDef:
    """Return the GraphDef in a message, in bytes, or in a file.

    Raises:
      FileNotFoundError: the file does not exist.
      DataLossError: it does not contain a GraphDef.
    """
    if isinstance(frozen, proto.GraphDef):
        return frozen
    origin = "what was given"
    if isinstance(frozen, str | os.PathLike):
        origin = os.fspath(frozen)
        frozen = Path(origin).read_bytes()
    definition = proto.GraphDef()
    try:
        definition.ParseFromString(frozen)
    except DecodeError as error:
        raise errors.DataLossError(f"{origin} is not a GraphDef: {error}") from error
    return definition


def source_of_frozen_graph(
    frozen: Any,
    inputs: Sequence[str],
    outputs: Sequence[str],
    values: Mapping[Any, Any] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Source:
    """Return the source of a GraphDef: a message, its bytes, or a file.

    Args:
      values, shapes: as for `specialize`.
    Raises:
      NotFoundError: a tensor does not exist.
      InvalidArgumentError: the graph has variables, or is inconsistent.
    """
    definition = read_definition(frozen)
    original = _imported_source(definition, {n: n for n in inputs}, {n: n for n in outputs})
    source = specialize(original.graph, original.inputs, original.outputs, values, shapes)
    variable_names = [node.name for node in source.graph.nodes if node.role is Role.VARIABLE]
    if variable_names:
        raise errors.InvalidArgumentError(
            f"the graph is not frozen: it has variables, such as {variable_names[:5]}; convert "
            "it from a session, "
            "a checkpoint or a SavedModel"
        )
    return source


def source_of_saved_model(
    path: Any,
    key: str,
    tags: Iterable[str],
    variables: Collection[Any],
    values: Mapping[Any, Any] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Source:
    """Return the source of a signature of a SavedModel.

    Args:
      values, shapes: as for `specialize`.
    Raises: NotFoundError: the SavedModel, a graph with the tags, or the signature does not exist.
    """
    from weft_io.saved_model.loader import load

    with Graph().as_default() as graph, Session(graph=graph) as session:
        message = load(session, list(tags), path)
        if key not in message.signature_def:
            raise errors.NotFoundError(
                f"the SavedModel has no signature {key!r}; it has {sorted(message.signature_def)}"
            )
        _clear_lines(graph)
        signature = message.signature_def[key]
        inputs, outputs = (
            {name: graph.get_tensor_by_name(info.name) for name, info in sorted(part.items())}
            for part in (signature.inputs, signature.outputs)
        )
        return source_of_session(session, inputs, outputs, variables, values, shapes)


def source_of_checkpoint(
    prefix: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    variables: Collection[Any],
    values: Mapping[Any, Any] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Source:
    """Return the source of a checkpoint with its graph file.

    Args:
      values, shapes: as for `specialize`.
    Raises: NotFoundError: the checkpoint or a tensor does not exist.
    """
    from weft_io.saving.meta_graph import import_meta_graph

    with Graph().as_default() as graph, Session(graph=graph) as session:
        saver = import_meta_graph(f"{prefix}.meta")
        if saver is None:
            raise errors.NotFoundError(f"{prefix}.meta has no variables to restore")
        saver.restore(session, prefix)
        _clear_lines(graph)
        input_tensors = {name: tensor_named(graph, name) for name in inputs}
        computed = {name: tensor_named(graph, name) for name in outputs}
        return source_of_session(session, input_tensors, computed, variables, values, shapes)


def source_of_onnx(
    model: Any,
    values: Mapping[Any, Any] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Source:
    """Return the source of an ONNX model.

    Args:
      values, shapes: by the names of inputs, as for `specialize`.
    """
    from weft_io.onnx.importer import import_model

    values = values or {}
    with Graph().as_default() as graph:
        result = import_model(model, inputs=values, shapes=shapes)
    _clear_lines(graph)
    inputs = {name: tensor for name, tensor in result.inputs.items() if name not in values}
    return specialize(graph, inputs, result.outputs)
