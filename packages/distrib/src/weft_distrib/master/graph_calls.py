"""Calls of clients about a session's graph: definitions, gradients, shapes and functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from weft_autodiff.gradients.backprop import gradients
from weft_distrib.master.definitions import Definition, define_function, transaction
from weft_distrib.master.sessions import MasterSession
from weft_distrib.protocol import messages
from weft_distrib.protocol.tables import decode, encode
from weft_distrib.wire import methods
from weft_graph import proto
from weft_graph.ir.builder import convert_to_tensor
from weft_graph.ir.graph import Graph
from weft_graph.ir.indexed_slices import IndexedSlices
from weft_graph.ir.node import Output
from weft_tensor import errors

CallResult = tuple[Sequence[Any], bytes]
"""The values and the metadata of a reply."""

FindSession = Callable[[int], MasterSession]
"""Returns the open session with a number to the connection that opened it, or raises."""

IsWanted = Callable[[], bool]
"""Function that returns True while the client waits for the reply."""


def _define(
    find: FindSession, meta: bytes, values: Sequence[Any], is_wanted: IsWanted
) -> CallResult:
    request = decode(messages.Define, meta)
    session = find(request.session)
    definition = Definition(values, request.constants, request.devices, request.types)
    with _define_once(session, request, is_wanted) as graph:
        if graph is not None:
            definition.add_to(graph)
    return (), b""


@contextmanager
def _define_once(
    session: MasterSession,
    request: messages.Define | messages.DefineFunction | messages.Differentiate,
    is_wanted: IsWanted,
) -> Iterator[Graph | None]:
    """Let the block add a definition, all or nothing; yields None if the graph has it already.

    A client whose deadline passed does not know whether its definition was added, and repeats it.
    """
    with session.edit_graph(request.timeout, is_wanted) as graph:
        if request.number and request.number <= session.last_definition:
            yield None
            return
        with transaction(graph):
            yield graph
        session.last_definition = request.number or session.last_definition


def _define_function(
    find: FindSession, meta: bytes, values: Sequence[Any], is_wanted: IsWanted
) -> CallResult:
    request = decode(messages.DefineFunction, meta)
    session = find(request.session)
    body = Definition(values, request.constants, (), request.types)
    with _define_once(session, request, is_wanted) as graph:
        if graph is not None:
            define_function(
                graph, request.name, body, request.inputs, request.outputs, request.results
            )
    return (), b""


def _differentiate(
    find: FindSession, meta: bytes, values: Sequence[Any], is_wanted: IsWanted
) -> CallResult:
    request = decode(messages.Differentiate, meta)
    session = find(request.session)
    with _define_once(session, request, is_wanted) as graph:
        if graph is not None:
            session.last_gradients = _add_gradients(graph, request)
        return session.last_gradients


def _add_gradients(graph: Graph, request: messages.Differentiate) -> CallResult:
    count = len(graph.nodes)
    ys, xs, grad_ys = (
        [_output(graph, name) for name in names]
        for names in (request.ys, request.xs, request.grad_ys)
    )
    reply = messages.Gradients()
    for gradient in gradients(ys, xs, grad_ys or None, request.scope or "gradients"):
        _add_gradient(reply, gradient, request.dense)
    added = graph.nodes[count:]
    for node in added:
        node.clear_line()
    values = []
    if request.nodes:
        values.append(_as_array(graph.as_graph_def(from_version=count)))
    if request.names:
        values.append(np.array([node.name.encode() for node in added], object))
    return values, encode(reply)


def _add_gradient(reply: messages.Gradients, gradient: Any, dense: bool) -> None:
    if gradient is not None and dense:
        gradient = convert_to_tensor(gradient)
    value, indices, shape = gradient, None, None
    if isinstance(gradient, IndexedSlices):
        value, indices, shape = gradient.values, gradient.indices, gradient.dense_shape
    reply.values.append("" if value is None else value.name)
    reply.indices.append("" if indices is None else indices.name)
    reply.shapes.append("" if shape is None else shape.name)


def _shapes(
    find: FindSession, meta: bytes, values: Sequence[Any], is_wanted: IsWanted
) -> CallResult:
    request = decode(messages.Names, meta)
    with find(request.session).edit_graph(request.timeout, is_wanted) as graph:
        return describe_outputs([_output(graph, name) for name in request.names]), b""


def describe_outputs(outputs: Sequence[Output]) -> list[np.ndarray]:
    """Return the element types, ranks and sizes of outputs, as three vectors.

    Returns: DataTypes; ranks, where -1 is unknown; and the sizes of all outputs of known rank, one
      output after another, where -1 is unknown.
    """
    all_dims = [output.dims for output in outputs]
    types = [output.dtype.base_dtype.as_datatype_enum for output in outputs]
    ranks = [-1 if dims is None else len(dims) for dims in all_dims]
    sizes = [-1 if size is None else size for dims in all_dims for size in dims or ()]
    return [np.array(types, np.int32), np.array(ranks, np.int32), np.array(sizes, np.int64)]


def _functions(
    find: FindSession, meta: bytes, values: Sequence[Any], is_wanted: IsWanted
) -> CallResult:
    request = decode(messages.Names, meta)
    with find(request.session).edit_graph(request.timeout, is_wanted) as graph:
        if not request.names:
            return (), encode(messages.Names(request.session, sorted(graph.functions)))
        selected = Graph()
        for name in request.names:
            selected.functions.add(graph.functions[name])
        library = selected.as_graph_def()
        return [_as_array(library)], encode(messages.Names(request.session, list(request.names)))


def _output(graph: Graph, name: str) -> Output:
    output = graph.as_graph_element(name, allow_operation=False)
    assert isinstance(output, Output)
    return output


def _as_array(message: proto.GraphDef) -> np.ndarray:
    try:
        return np.frombuffer(message.SerializeToString(), np.uint8)
    except ValueError as error:  # of protobuf: 2 GiB or more
        raise errors.ResourceExhaustedError(f"the reply is too large: {error}") from error


GraphCall = Callable[[FindSession, bytes, Sequence[Any], IsWanted], CallResult]

GRAPH_CALLS: Final[dict[int, GraphCall]] = {
    methods.DEFINE: _define,
    methods.DEFINE_FUNCTION: _define_function,
    methods.DIFFERENTIATE: _differentiate,
    methods.SHAPES: _shapes,
    methods.FUNCTIONS: _functions,
}
"""Handlers by method. Each runs on a separate thread, because it may wait."""
