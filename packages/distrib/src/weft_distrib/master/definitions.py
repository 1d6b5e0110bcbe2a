"""Nodes and functions that clients define: a GraphDef, with constants as separate values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from weft_distrib.master.type_inference import infer_attributes
from weft_exec.resources.rendezvous import DEAD
from weft_graph import proto
from weft_graph.functions.body import FunctionGraph
from weft_graph.functions.function import Function
from weft_graph.functions.trace import trace
from weft_graph.ir import builder
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.graph import Graph, device_string
from weft_graph.ir.node import Node, Output
from weft_graph.ir.node_checks import check_name
from weft_graph.ir.op_def import registered_ops, traits_of
from weft_graph.ir.traits import Role
from weft_graph.messages.attr_value import attr_from_proto
from weft_graph.messages.import_graph_def import add_graph_def
from weft_graph.messages.shared_memory import read_after_updates
from weft_graph.messages.tensor_proto import Budget
from weft_tensor import errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims, as_dims

_CLASS: Final = "_class"
_LOCATION: Final = b"loc:@"


@contextmanager
def transaction(graph: Graph) -> Iterator[None]:
    """If a block raises, remove the nodes and functions that it has added.

    Errors do not show a line of the program, which is in another process.
    """
    functions = graph.functions.copy()
    is_complete = False
    try:
        with graph.undo_on_error("failed definition"), graph.as_default():
            yield
        is_complete = True
    except errors.OpError as error:
        error.line = None  # one of this server's own
        raise
    finally:
        if not is_complete:
            graph.functions = functions


class _Constant(NamedTuple):
    name: str
    value: np.ndarray
    device: str
    dtype: str


class Definition:
    """Nodes that a client defines.

    Args:
      values: a GraphDef as uint8, then the value of each constant.
      constants: the names of the constants, which are not in the GraphDef.
      devices: the requested device of each constant; empty if there are no requests.
      types: the name of the element type of each constant; empty to use the types of the values,
        which cannot represent quantized types.
    Raises:
      DataLossError: the first value is not a GraphDef.
      InvalidArgumentError: the numbers of constants, values, devices and types differ.
    """

    def __init__(
        self,
        values: Sequence[Any],
        constants: Sequence[str],
        devices: Sequence[str] = (),
        types: Sequence[str] = (),
    ) -> None:
        count = len(constants)
        if len(values) != 1 + count:
            raise errors.InvalidArgumentError(
                f"a definition must have a GraphDef and {count} constants, got {len(values)} values"
            )
        for texts, label in ((devices, "devices"), (types, "types")):
            if texts and len(texts) != count:
                raise errors.InvalidArgumentError(
                    f"a definition with {count} constants must have {count} {label}, got "
                    f"{len(texts)}"
                )
        self._graph_def = _parse(values[0])
        empty = [""] * count
        self._constants = [
            _Constant(name, _constant_value(name, value), device, dtype)
            for name, value, device, dtype in zip(
                constants, values[1:], devices or empty, types or empty, strict=True
            )
        ]

    def take_placeholders(self, names: Sequence[str]) -> list[tuple[str, DType, Dims]]:
        """Remove placeholders; return their names, element types and static shapes.

        Raises: InvalidArgumentError: a name is repeated, or is not that of a Placeholder.
        """
        nodes = {
            node.name: node
            for node in self._graph_def.node
            if traits_of(node.op).role is Role.PLACEHOLDER
        }
        placeholders = []
        for name in names:
            node = nodes.pop(name, None)
            if node is None:
                raise errors.InvalidArgumentError(
                    f"the input {name!r} of a function must be a Placeholder of its body"
                )
            dtype = attr_from_proto(node.attr["dtype"], "type", f"dtype of {name}", Budget())
            dims: Dims = None
            if "shape" in node.attr:
                shape = attr_from_proto(node.attr["shape"], "shape", f"shape of {name}", Budget())
                dims = as_dims(shape)
            placeholders.append((name, dtype, dims))
            self._graph_def.node.remove(node)
        return placeholders

    def add_to(self, graph: Graph, inputs: Mapping[str, Output] | None = None) -> None:
        """Add the nodes to the default graph; if an error occurs, some may have been added.

        Inputs that the definition does not contain are looked up in the graph.

        Args:
          inputs: outputs to use in place of nodes with these names.
        Raises:
          AlreadyExistsError: the graph has a node with the same name, or a function is named like
            an op.
          OpError: see `import_graph_def`.
        """
        graph_def, inputs = self._graph_def, inputs or {}
        _check_function_names(function.signature.name for function in graph_def.library.function)
        for node_def in graph_def.node:
            if graph.find_node(node_def.name) is not None or node_def.name in inputs:
                raise _name_taken_error(node_def.name)
        known_nodes: dict[str, Node] = {output: value.node for output, value in inputs.items()}
        for constant in self._constants:
            known_nodes[constant.name] = _add_constant(graph, constant)
        external = _external_inputs(graph_def, graph, known_nodes, inputs)
        infer_attributes(graph_def, external, graph.functions)
        groups = _take_external_groups(graph_def, graph, known_nodes)
        importer = add_graph_def(graph_def, external, "")
        for name, parsed in importer.nodes.items():
            if parsed.node is not None and parsed.node.name != name:
                raise _name_taken_error(name)
        for name, members in groups.items():
            _colocate(graph.get_operation_by_name(name), members)
        read_after_updates(importer.new_nodes)
        for node in importer.new_nodes:
            node.clear_line()


def _parse(value: Any) -> proto.GraphDef:
    if getattr(value, "dtype", None) != np.uint8 or value.ndim != 1:
        raise errors.DataLossError("the first value of a definition must be a GraphDef as uint8")
    try:
        return proto.GraphDef.FromString(value.tobytes())
    except DecodeError as error:
        raise errors.DataLossError(f"a definition is not a GraphDef: {error}") from error


def _constant_value(name: str, value: Any) -> np.ndarray:
    if value is DEAD:
        raise errors.InvalidArgumentError(f"the constant {name!r} has no value")
    array = np.asarray(value)
    array.flags.writeable = False
    return array


def _add_constant(graph: Graph, constant: _Constant) -> Node:
    name, value, device, dtype = constant
    check_name(name)
    if graph.find_node(name) is not None:
        raise _name_taken_error(name)
    stored = "string" if value.dtype.hasobject else value.dtype
    node = builder.create("Const", (), {"value": value, "dtype": dtype or stored}, name + "/")
    if device:
        node.device = device_string(device)
    node.clear_line()
    return node


def _name_taken_error(name: str) -> errors.AlreadyExistsError:
    return errors.AlreadyExistsError(f"the graph already has a node named {name!r}", node=name)


def _check_function_names(names: Iterable[str]) -> None:
    """Raise AlreadyExistsError if an op has one of the names: its nodes would call the function."""
    for name in sorted(set(registered_ops()).intersection(names)):
        raise errors.AlreadyExistsError(
            f"a function cannot be named {name!r}, which is the name of an op: rename the function"
        )


def _external_inputs(
    graph_def: proto.GraphDef,
    graph: Graph,
    known_nodes: Mapping[str, Node],
    inputs: Mapping[str, Output],
) -> dict[str, Any]:
    """Return the nodes of the graph that a GraphDef uses as inputs, as an input map."""
    defined = {node.name for node in graph_def.node}
    external: dict[str, Any] = {}
    for node_def in graph_def.node:
        for text in node_def.input:
            is_control = text.startswith("^")
            name, _, port = text.removeprefix("^").partition(":")
            key = text if is_control else f"{name}:{port or 0}"
            if name in defined or key in external:
                continue
            node = known_nodes.get(name) or graph.find_node(name)
            index = int(port) if port.isdecimal() and len(port) < 10 else -1 if port else 0
            if node is None or (not is_control and not 0 <= index < len(node.outputs)):
                raise errors.NotFoundError(
                    _missing_input_message(text, node), op=node_def.op, node=node_def.name
                )
            if is_control:
                external[key] = node
            else:
                external[key] = inputs[name] if name in inputs else node.outputs[index]
    return external


def _missing_input_message(text: str, node: Node | None) -> str:
    if node is None:
        return f"the input {text!r} does not exist: the graph has no node of this name"
    return f"the input {text!r} does not exist: {node.name!r} has {len(node.outputs)} outputs"


def _take_external_groups(
    graph_def: proto.GraphDef, graph: Graph, known_nodes: Mapping[str, Node]
) -> dict[str, list[Node]]:
    """Remove colocation with existing nodes of the graph, and return it by node name."""
    defined = {node.name for node in graph_def.node}
    groups: dict[str, list[Node]] = {}
    for node_def in graph_def.node:
        if _CLASS not in node_def.attr:
            continue
        requests = node_def.attr[_CLASS].list.s
        remaining = []
        for request in requests:
            name = request.removeprefix(_LOCATION).decode(errors="replace")
            node = None if name in defined else known_nodes.get(name) or graph.find_node(name)
            if node is None:
                remaining.append(request)
            else:
                groups.setdefault(node_def.name, []).append(node)
        if len(remaining) < len(requests):
            requests[:] = remaining
            if not remaining:
                del node_def.attr[_CLASS]
    return groups


def _colocate(node: Node, members: Sequence[Node]) -> None:
    names = dict.fromkeys([*node.attrs.get(_CLASS, ()), *(f"loc:@{p.name}" for p in members)])
    node.attrs[_CLASS] = tuple(names)
    node.device = members[0].device or node.device


def define_function(
    graph: Graph,
    name: str,
    body: Definition,
    inputs: Sequence[str],
    outputs: Sequence[str],
    output_names: Sequence[str] = (),
) -> Function:
    """Add a function to the library of a graph.

    Args:
      body: the nodes of the function; they cannot use nodes of the graph.
      inputs: the names of the placeholders in `body`, in the order of the arguments.
      outputs: the names of the outputs of `body`.
      output_names: the names of the results.
    Raises:
      InvalidArgumentError: an input is not a Placeholder, or a name is unknown.
      AlreadyExistsError: the library has another function with that name, or an op has it.
    """
    if output_names and len(output_names) != len(outputs):
        raise errors.InvalidArgumentError(
            f"the function {name!r} has {len(outputs)} results, but {len(output_names)} names "
            "for them"
        )
    placeholders = body.take_placeholders(inputs)

    def arguments(inner: FunctionGraph) -> tuple[list[Any], dict[str, Any]]:
        return [
            inner.add_input(dtype, dims, argument.rpartition("/")[2])
            for argument, dtype, dims in placeholders
        ], {}

    def build(*arguments: Output) -> list[Output]:
        inner = arguments[0].graph if arguments else get_default_graph()
        mapped = dict(zip(inputs, arguments, strict=True))
        body.add_to(inner, mapped)
        results = []
        for output in outputs:
            node, _, port = output.partition(":")
            is_argument = node in mapped and port in ("", "0")
            result = mapped[node] if is_argument else inner.as_graph_element(f"{node}:{port or 0}")
            assert isinstance(result, Output)
            results.append(result)
        return results

    check_name(name)
    _check_function_names([name])
    if name in graph.functions:
        raise errors.AlreadyExistsError(f"the graph already has a function named {name!r}")
    function, _ = trace(
        build, arguments, name, graph, ordered=True, output_names=list(output_names)
    )
    graph.functions.add(function)
    return function
