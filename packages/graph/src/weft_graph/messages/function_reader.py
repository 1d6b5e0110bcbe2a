"""Functions from `FunctionDef` messages, which are untrusted and fully checked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from weft_graph import proto
from weft_graph.control_flow.records import ContextRecord, restore
from weft_graph.functions import state
from weft_graph.functions.body import FunctionGraph
from weft_graph.functions.function import Function
from weft_graph.functions.ordering import ends_of_effects
from weft_graph.ir import thread_stacks
from weft_graph.ir.library import LazyFunction, Library
from weft_graph.ir.node import Node, Output
from weft_graph.ir.node_checks import MAX_OUTPUTS, check_name
from weft_graph.ir.op_def import lookup_op
from weft_graph.ir.op_signature import REQUIRED
from weft_graph.messages.attr_value import attr_from_proto, shape_from_proto
from weft_graph.messages.function_imports import FUNCTIONAL, prepare_graph_def
from weft_graph.messages.function_writer import CAPTURED, CONTEXTS, RESULTS, SHAPES, ports
from weft_graph.messages.graph_def import GRADIENT
from weft_graph.messages.node_reader import add_all, refuse_unknown_ops
from weft_graph.messages.tensor_proto import Budget, dtype_from_proto
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dims

_OWN_ATTRS: Final = frozenset({RESULTS, CAPTURED, CONTEXTS, GRADIENT})
_TENSOR = re.compile(r"(?P<node>[^:^]+)(?::(?P<arg>[A-Za-z][A-Za-z0-9_]*):(?P<place>[0-9]{1,9}))?")


def function_from_def(definition: proto.FunctionDef, library: Library) -> Function:
    """Return the function defined by a message.

    Args:
      library: library of the functions that it may call.
    Raises:
      NotFoundError: op types are not declared.
      InvalidArgumentError: another error; the message names the function and the node.
    """
    name = definition.signature.name
    try:
        return _Reader(definition, library).read()
    except errors.OpError as error:
        counterpart = error.copy()
        counterpart.message = f"the function {name!r}: {error.message}"
        counterpart.args = (counterpart.message,)
        raise counterpart from error.__cause__


def lazy_functions(library: proto.FunctionDefLibrary) -> dict[str, LazyFunction]:
    """Return the functions of a `FunctionDefLibrary` by name, their gradients among the attributes.

    Raises: InvalidArgumentError: names are missing or repeated, or gradients are ambiguous.
    """
    definitions: dict[str, proto.FunctionDef] = {}
    for definition in library.function:
        name = definition.signature.name
        if not name:
            raise errors.InvalidArgumentError("a function of the library has no name")
        if name in definitions:
            raise errors.InvalidArgumentError(f"the function {name!r} is defined twice")
        copy = definitions[name] = type(definition)()
        copy.CopyFrom(definition)
    for gradient in library.gradient:
        name = gradient.function_name
        if name not in definitions:
            raise errors.InvalidArgumentError(
                f"the library has a gradient of {name!r}, which is not in the library"
            )
        gradient_attr = definitions[name].attr[GRADIENT]
        if gradient_attr.s and gradient_attr.s != gradient.gradient_func.encode():
            raise errors.InvalidArgumentError(f"the function {name!r} has two gradients")
        gradient_attr.s = gradient.gradient_func.encode()
    return {
        name: LazyFunction(definition, function_from_def)
        for name, definition in definitions.items()
    }


class _Reader:
    def __init__(self, definition: proto.FunctionDef, library: Library) -> None:
        self._definition = definition
        self._library = library
        self._graph = FunctionGraph(definition.signature.name, None)
        self._graph.functions = library
        self._budget = Budget(size=definition.ByteSize())
        self._arguments: dict[str, Output] = {}
        self._ports: dict[str, dict[tuple[str, int], int]] = {}
        self._nodes: dict[str, Node] = {}

    def read(self) -> Function:
        """Return the function."""
        definition, graph = self._definition, self._graph
        self._check_signature()
        attrs = self._attrs()
        with thread_stacks.building_body(graph):
            self._add_arguments()
            self._add_nodes()
            self._add_contexts(attrs.get(CONTEXTS, ""))
            effects = self._effects()
            self._graph.infer_handles()
        outputs = [self._output(arg) for arg in definition.signature.output_arg]
        inputs = list(self._arguments.values())
        captured = attrs.get(CAPTURED, 0)
        results = attrs.get(RESULTS, len(outputs))
        for label, number, limit in (
            (CAPTURED, captured, len(inputs)),
            (RESULTS, results, len(outputs)),
        ):
            if not isinstance(number, int) or not 0 <= number <= limit:
                raise errors.InvalidArgumentError(f"{label} must be 0 to {limit}, got {number!r}")
        function = Function(
            definition.signature.name,
            graph,
            inputs,
            outputs,
            effects,
            results=results,
            captured=None if captured else (),
            captured_count=captured,
            input_names=list(self._arguments),
            output_names=[arg.name for arg in definition.signature.output_arg],
            attrs={key: value for key, value in attrs.items() if key not in _OWN_ATTRS},
            gradient_name=attrs.get(GRADIENT),
        )
        function.__dict__["definition"] = definition
        return function

    # ------------------------------------------------------------------ signature

    def _check_signature(self) -> None:
        signature = self._definition.signature
        for arg in (*signature.input_arg, *signature.output_arg):
            if arg.type_attr or arg.number_attr or arg.type_list_attr:
                raise errors.UnimplementedError(
                    f"the type of {arg.name!r} depends on attributes of the call"
                )
        for label, args in (("inputs", signature.input_arg), ("outputs", signature.output_arg)):
            names = [arg.name for arg in args]
            if len(set(names)) != len(names):
                raise errors.InvalidArgumentError(f"two of its {label} have one name: {names}")
        declared, returned = {arg.name for arg in signature.output_arg}, set(self._definition.ret)
        if declared != returned:
            raise errors.InvalidArgumentError(
                f"its outputs are {sorted(declared)}, but values are given for {sorted(returned)}"
            )
        controls, effects = set(signature.control_output), set(self._definition.control_ret)
        if controls != effects:
            raise errors.InvalidArgumentError(
                f"its control outputs are {sorted(controls)}, but nodes are given for "
                f"{sorted(effects)}"
            )

    def _attrs(self) -> dict[str, Any]:
        kinds = {RESULTS: "int", CAPTURED: "int", CONTEXTS: "string", GRADIENT: "string"}
        return {
            key: attr_from_proto(value, kinds.get(key), f"attribute {key}", self._budget)
            for key, value in sorted(self._definition.attr.items())
        }

    def _add_arguments(self) -> None:
        node_names = {node.name for node in self._definition.node_def}
        for i, arg in enumerate(self._definition.signature.input_arg):
            check_name(arg.name)
            if arg.name in node_names:
                raise errors.InvalidArgumentError(f"the input {arg.name!r} has the name of a node")
            location = f"input {arg.name!r}"
            dtype = dtype_from_proto(arg.type, location)
            attrs: dict[str, Any] = {"dtype": dtype, "shape": self._argument_dims(i, location)}
            op = "Placeholder"
            handles = list(arg.handle_data)
            is_variable = dtype is dtypes.resource and len(handles) == 1
            if is_variable:
                op = "VarHandleOp"
                attrs = {
                    "dtype": dtype_from_proto(handles[0].dtype, location),
                    "shape": shape_from_proto(handles[0].shape, location),
                    "shared_name": arg.name,
                }
            elif arg.is_ref:
                op, attrs["shared_name"] = "VariableV2", arg.name
                if handles:
                    attrs["shape"] = shape_from_proto(handles[0].shape, location)
            output = self._graph._argument(op, attrs, arg.name, attrs["shape"])
            if is_variable:
                output.dims = ()
            self._arguments[arg.name] = output

    def _argument_dims(self, position: int, location: str) -> Dims:
        if position not in self._definition.arg_attr:
            return None
        arg_attrs = self._definition.arg_attr[position].attr
        if SHAPES not in arg_attrs or not arg_attrs[SHAPES].list.shape:
            return None
        return shape_from_proto(arg_attrs[SHAPES].list.shape[0], location)

    # ------------------------------------------------------------------ nodes

    def _add_nodes(self) -> None:
        message = proto.GraphDef()
        message.node.extend(self._definition.node_def)
        self._check_nodes(message)
        calls = self._results_of_calls(message)
        message = prepare_graph_def(message, self._library)
        refuse_unknown_ops(message, self._library)
        self._ports = {
            node.name: {
                port: i for i, port in enumerate(calls.get(node.name) or self._ports_of(node))
            }
            for node in message.node
        }
        values: dict[str, Any] = {}
        for name, output in self._arguments.items():
            values[f"{name}:0"] = output
            values[f"^{name}"] = output.node
        for node in message.node:
            inputs = [self._to_graph_name(text, node.name) for text in node.input]
            del node.input[:]
            node.input.extend(inputs)
            self._part_from_arguments(node)
        self._nodes = add_all(self._graph, message, values)

    def _results_of_calls(self, message: proto.GraphDef) -> dict[str, list[tuple[str, int]]]:
        """Return the outputs of nodes whose op type is a function, by the names of its results."""
        library = self._library
        return {
            node.name: [(arg.name, 0) for arg in library.definition(node.op).signature.output_arg]
            for node in message.node
            if node.op in library and node.op not in FUNCTIONAL
        }

    def _check_nodes(self, message: proto.GraphDef) -> None:
        """Reject invalid names before they are looked up."""
        names: set[str] = set()
        for node in message.node:
            check_name(node.name)
            if node.name in names:
                raise errors.InvalidArgumentError(
                    f"the name {node.name!r} is not unique", op=node.op, node=node.name
                )
            names.add(node.name)

    def _part_from_arguments(self, node: proto.NodeDef) -> None:
        """Drop colocation requests with arguments, which have no device."""
        if "_class" not in node.attr:
            return
        groups = [
            group
            for group in node.attr["_class"].list.s
            if group.decode(errors="replace").removeprefix("loc:@") not in self._arguments
        ]
        del node.attr["_class"]
        if groups:
            node.attr["_class"].list.s.extend(groups)

    def _ports_of(self, node: proto.NodeDef) -> list[tuple[str, int]]:
        """Return the outputs of a node by their names in functions."""
        try:
            op_def = lookup_op(node.op)
        except errors.NotFoundError:
            return []
        attrs: dict[str, Any] = {}
        for arg in op_def.outputs:
            for key in (arg.number_attr, arg.list_attr):
                if key is None:
                    continue
                attr = op_def.attrs[key]
                location = f"attribute {key} of {node.name}"
                if key in node.attr:
                    value = attr_from_proto(node.attr[key], attr.type, location, self._budget)
                else:
                    value = () if attr.default is REQUIRED else attr.default
                if isinstance(value, int) and not 0 <= value <= MAX_OUTPUTS:
                    raise errors.InvalidArgumentError(
                        f"{location}: the number of outputs must be from 0 to {MAX_OUTPUTS}, got "
                        f"{value}"
                    )
                attrs[key] = value
        if any(
            arg.number_attr is not None and not attrs[arg.number_attr] for arg in op_def.outputs
        ):
            attrs = {key: value or 0 for key, value in attrs.items()}
        return ports(op_def, attrs)

    def _to_graph_name(self, text: str, user: str) -> str:
        """Return the name of an input in graph notation, node:port."""
        if text.startswith("^"):
            if text[1:] not in self._ports and text[1:] not in self._arguments:
                raise _dangling_input_error(text, user)
            return text
        match = _TENSOR.fullmatch(text)
        name = match["node"] if match is not None else ""
        if match is not None and name in self._arguments and match["place"] in (None, "0"):
            return f"{name}:0"
        ports = self._ports.get(name)
        if match is None or ports is None:
            raise _dangling_input_error(text, user)
        if match["arg"] is None:
            if len(ports) != 1:
                raise _dangling_input_error(text, user)
            return f"{name}:0"
        port = ports.get((match["arg"], int(match["place"])))
        if port is None:
            raise _dangling_input_error(text, user)
        return f"{name}:{port}"

    def _output(self, arg: Any) -> Output:
        """Return the value of a result."""
        text = self._to_graph_name(self._definition.ret[arg.name], f"output {arg.name}")
        name, _, port = text.rpartition(":")
        output = self._arguments.get(name)
        if output is None:
            output = self._nodes[name].outputs[int(port)]
        if output.dtype.base_dtype is not dtype_from_proto(arg.type, f"output {arg.name!r}"):
            raise errors.InvalidTypeError(
                f"its output {arg.name!r} is declared with another type than {output!r} has"
            )
        return output

    def _effects(self) -> list[Node]:
        """Return the nodes that every call runs; TensorFlow's list also has pure reads."""
        listed = [self._node(name) for name in self._definition.control_ret.values()]
        if not listed:
            return ends_of_effects(self._graph)
        effects = state.Effects()
        return list(dict.fromkeys([node for node in listed if effects.reach(node)]))

    def _node(self, name: str) -> Node:
        node = self._nodes.get(name)
        if node is None:
            raise errors.InvalidArgumentError(f"its control output {name!r} is not a node")
        return node

    # ------------------------------------------------------------------ contexts

    def _add_contexts(self, text: Any) -> None:
        if not text:
            return
        try:
            rows = json.loads(text)
        except (ValueError, RecursionError) as cause:
            raise errors.InvalidArgumentError(f"{CONTEXTS} is damaged: {cause}") from cause
        if not isinstance(rows, list):
            raise errors.InvalidArgumentError(f"{CONTEXTS} must be a list, got {rows!r}")
        records = [self._record(row) for row in rows]
        nodes = self._graph.nodes
        restore(self._graph, records, nodes.__getitem__)

    def _record(self, row: Any) -> ContextRecord:
        def index_of(name: Any) -> int:
            if name == "":
                return -1
            place_node = self._nodes.get(name) if isinstance(name, str) else None
            if place_node is None and isinstance(name, str) and name in self._arguments:
                place_node = self._arguments[name].node
            if place_node is None:
                raise errors.InvalidArgumentError(f"{CONTEXTS} names {name!r}, which is not a node")
            return place_node.index

        def port(key: str) -> tuple[int, int]:
            value = _field(row, key, list)
            if len(value) != 2 or type(value[1]) is not int:
                raise errors.InvalidArgumentError(f"{CONTEXTS}: {key} must be a tensor")
            return index_of(value[0]), value[1]

        return ContextRecord(
            _field(row, "name", str),
            _field(row, "kind", int),
            outer=_field(row, "outer", str),
            forward=_field(row, "forward", str),
            partner=_field(row, "partner", str),
            pivot=index_of(_field(row, "pivot", str)),
            pred=port("pred"),
            maximum=port("maximum"),
            parallel_iterations=_field(row, "parallel_iterations", int),
            back_prop=_field(row, "back_prop", bool),
            swap_memory=_field(row, "swap_memory", bool),
            variables=_positions(_field(row, "variables", list), index_of),
            members=_positions(_field(row, "members", list), index_of),
        )


def _positions(names: Sequence[Any], index_of: Any) -> list[int]:
    positions = [index_of(name) for name in names]
    if -1 in positions:
        raise errors.InvalidArgumentError(f"{CONTEXTS} does not name a node")
    return positions


def _field(row: Any, key: str, kind: type) -> Any:
    value = row.get(key) if isinstance(row, dict) else None
    if type(value) is not kind:
        raise errors.InvalidArgumentError(
            f"{CONTEXTS}: {key} must be of type {kind.__name__}, got {value!r}"
        )
    return value


def _dangling_input_error(text: str, user: str) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(
        f"{user!r} takes {text!r}, which is neither an input of the function nor an output of a "
        "node",
        node=user,
    )


def names_of(functions: Iterable[Any]) -> set[str]:
    """Return the names of functions."""
    return {function.signature.name for function in functions}
