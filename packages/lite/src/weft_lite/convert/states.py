"""State inside a model: an output of one invocation becomes an input of the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from weft_graph.graph_util import tensor_named
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Output
from weft_graph.messages.graph_def import graph_to_def
from weft_graph.messages.import_graph_def import import_graph_def
from weft_graph.ops.identity import identity
from weft_graph.variables.base import Variable
from weft_lite.convert.lowered import Array
from weft_lite.convert.sources import Source, copy_lines
from weft_tensor import errors
from weft_tensor.shape import format_dims


def keep_states(
    source: Source, states: Mapping[str, str], initial: Mapping[str, Any] | None = None
) -> Source:
    """Return a source in which variables replace pairs of inputs and outputs.

    Args:
      states: the output that gives the next value of an input, by the input's name.
      initial: first values by the names of these inputs; zeros by default.
    Raises:
      NotFoundError: there is no such input or output, or a first value is not that of a state.
      InvalidArgumentError: an input and its output differ in type or shape, or have an open size;
        an output is the next value of two inputs; no output remains; a first value does not fit.
    """
    initial = initial or {}
    _check_names("states has the inputs", states, source.inputs)
    _check_names("states has the outputs", states.values(), source.outputs)
    _check_names("initial has", initial, states)
    if len(set(states.values())) < len(states):
        raise errors.InvalidArgumentError(f"two inputs have the same next value: {dict(states)}")
    if len(states) == len(source.outputs):
        raise errors.InvalidArgumentError(
            f"all outputs are states: {sorted(source.outputs)}; at least one must not be a state"
        )
    values = {
        name: _first_value(name, source.inputs[name], source.outputs[following], initial.get(name))
        for name, following in states.items()
    }
    return _with_variables(source, states, values)


def _check_names(label: str, names: Any, known: Any) -> None:
    if unknown := sorted(set(names) - set(known)):
        raise errors.NotFoundError(f"{label} {unknown}; there are {sorted(known)}")


def _first_value(name: str, now: Output, following: Output, value: Any) -> Array:
    """Return the first value of a state, after checking its type and shape."""
    dims = now.dims
    if dims is None or None in dims:
        raise errors.InvalidArgumentError(
            f"state {name!r} has shape {format_dims(dims)}: its sizes must be known; pass "
            f"shapes={{{name!r}: [...]}} or --shape {name}=..."
        )
    if now.dtype != following.dtype or following.dims != dims:
        raise errors.InvalidArgumentError(
            f"state {name!r} is {now.dtype.name} {format_dims(dims)}, but its next value "
            f"{following.name} is {following.dtype.name} {format_dims(following.dims)}; both must "
            "be equal"
        )
    dtype = np.dtype(now.dtype.as_numpy_dtype)
    if value is None:
        return np.zeros(dims, dtype)
    array = np.asarray(value)
    if array.shape != dims or not np.can_cast(array.dtype, dtype, "same_kind"):
        raise errors.InvalidArgumentError(
            f"the first value of state {name!r} is {array.dtype} {format_dims(array.shape)}, but "
            f"the state is {now.dtype.name} {format_dims(dims)}"
        )
    return array.astype(dtype)


def _with_variables(source: Source, states: Mapping[str, str], values: dict[str, Array]) -> Source:
    """Return a copy of the graph that reads states from variables, and then updates these."""
    definition = graph_to_def(source.graph)
    replaced = {source.inputs[name].node.name for name in states}
    remaining_nodes = [node for node in definition.node if node.name not in replaced]
    del definition.node[:]
    definition.node.extend(remaining_nodes)
    graph = Graph()
    result = Source(graph, {}, {}, dict(source.variables))
    variables = {}
    with graph.as_default():
        for name, value in values.items():
            node = source.inputs[name].node.name
            variables[name] = Variable(value, trainable=False, name=node, use_resource=True)
            result.variables[node] = value
            result.initializers.append(variables[name].initializer)
        reads = {source.inputs[k].name: v.read_value() for k, v in variables.items()}
        import_graph_def(definition, input_map=reads, name="")
        copy_lines(source.graph, graph)

        def find(output: Output) -> Output:
            return reads.get(output.name) or tensor_named(graph, output.name)

        with graph.control_dependencies(list(reads.values())):
            updates = [
                variables[name].assign(find(source.outputs[following]), read_value=False)
                for name, following in states.items()
            ]
        result.inputs = {k: find(v) for k, v in source.inputs.items() if k not in states}
        with graph.control_dependencies(updates):
            result.outputs = {
                key: identity(find(output), name=f"{output.node.name}/result")
                for key, output in source.outputs.items()
                if key not in states.values()
            }
    names = [node.name for node in source.initializers]
    result.initializers += [node for node in map(graph.find_node, names) if node is not None]
    return result
