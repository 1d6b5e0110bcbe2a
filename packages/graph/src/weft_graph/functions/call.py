"""Calls of functions: call nodes, or the inlined body where necessary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft_graph.control_flow.context import current_context
from weft_graph.functions import saved_values, state
from weft_graph.functions.body import FunctionGraph
from weft_graph.functions.copying import BodyCopy
from weft_graph.functions.definition import Declaration, FunctionDefinition, scope_name
from weft_graph.ir import builder, thread_stacks
from weft_graph.ir.default_graph import get_default_graph, graph_for
from weft_graph.ir.func_attr import NameAttrs
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.ir.scopes import check_visible
from weft_graph.ir.traits import Role
from weft_graph.ops import identity
from weft_graph.variables import reads
from weft_tensor import errors
from weft_tensor.shape import compatible_dims, format_dims


def add_call(
    function: FunctionDefinition, args: Sequence[Any], name: str | None = None
) -> tuple[Node, list[Output]]:
    """Call a function in the graph of its arguments, or in the default graph if it has none.

    Returns: a node that finishes with the call, and the results.
    Raises: as `call_function`.
    """
    graph = next(
        (graph_for(arg) for arg in args if isinstance(arg, Output)),
        get_default_graph(),
    )
    with graph.as_default():
        return _add_call(graph, function, args, name)


def _add_call(
    graph: Graph, function: FunctionDefinition, args: Sequence[Any], name: str | None
) -> tuple[Node, list[Output]]:
    code, line = builder.user_line()
    try:
        graph.functions.add(function)
        inputs = _arguments(function, args)
        inputs += _import_captures(function, graph, inputs)
        function.check_call([value.dtype for value in inputs], function.output_types)
        _check_shapes(function, inputs)
    except errors.OpError as error:
        raise error.with_context(
            op=call_op(function),
            node=builder.requested_name(scope_name(function.name), name),
            line=builder.format_line(code, line),
        ) from error.__cause__
    with graph.control_dependencies(_call_controls(function, graph)):
        if must_be_inlined(function, graph):
            return inline_call(function, inputs, name)
        return call_node(function, inputs, name)


def call_op(function: FunctionDefinition | Declaration) -> str:
    """Return the op type of the function's calls."""
    return "StatefulPartitionedCall" if function.stateful else "PartitionedCall"


def call_node(
    function: FunctionDefinition | Declaration, inputs: Sequence[Output], name: str | None = None
) -> tuple[Node, list[Output]]:
    """Return a node that calls a function, and its results."""
    graph = inputs[0].graph if inputs else get_default_graph()
    attrs: dict[str, Any] = {
        "Tin": [dtype.base_dtype for dtype in function.input_types],
        "Tout": function.output_types,
        "f": NameAttrs(function.name),
    }
    if isinstance(function, Declaration) or function.is_recursive:
        attrs["_disable_call_shape_inference"] = True  # TensorFlow's would never end
    override = graph.scopes.overrides.get(function.name)
    if override is not None:
        attrs["_gradient_op_type"] = override
    node = builder.create(
        call_op(function), [list(inputs)], attrs, name or scope_name(function.name)
    )
    return node, list(node.outputs[: function.results])


# ---------------------------------------------------------------------------- arguments


def _arguments(function: FunctionDefinition, args: Sequence[Any]) -> list[Output]:
    num_declared = len(function.inputs) - function.captured_count
    if len(args) not in (num_declared, len(function.inputs)):
        names = ", ".join(function.input_names[:num_declared])
        raise errors.InvalidArgumentError(
            f"the function {function.name!r} takes {num_declared} arguments ({names}), "
            f"got {len(args)}"
        )
    return [
        _argument(function, i, value, parameter)
        for i, (value, parameter) in enumerate(zip(args, function.inputs, strict=False))
    ]


def _argument(function: FunctionDefinition, position: int, value: Any, parameter: Output) -> Output:
    if parameter.dtype.is_ref:
        output = builder.output_of(value, True)
        if output is not None and output.dtype is parameter.dtype:
            return graph_for(output).capture(output)
    try:
        return builder.convert_to_tensor(value, parameter.dtype.base_dtype)
    except errors.OpError as error:
        raise type(error)(
            f"argument {function.input_names[position]} of the function {function.name!r}: "
            f"{error.message}"
        ) from error


def _check_shapes(function: FunctionDefinition, inputs: Sequence[Output]) -> None:
    for i, (value, parameter) in enumerate(zip(inputs, function.inputs, strict=True)):
        if not state.is_handle(parameter) and not compatible_dims(value.dims, parameter.dims):
            raise errors.InvalidArgumentError(
                f"argument {function.input_names[i]} of the function {function.name!r} must have "
                f"shape {format_dims(parameter.dims)}, got {format_dims(value.dims)}"
            )


def _import_captures(
    function: FunctionDefinition, graph: Graph, inputs: Sequence[Output]
) -> list[Output]:
    """Return a function's captured values as seen from this graph."""
    count = len(function.inputs) - len(inputs)
    if not count:
        return []
    if function.captured is not None:
        captured = list(function.captured)
        ordered = any(scope.nodes for scope in graph.scopes.controls)
        captured = [_current_value(value, inputs, ordered) for value in captured]
        return (
            [graph.capture(value) for value in captured]
            if thread_stacks.tracing_depth()
            else captured
        )
    for node in reversed(graph.nodes):
        if node.role is Role.CALL and node.attrs["f"].name == function.name:
            return list(node.inputs[-count:])
    raise errors.InvalidArgumentError(
        f"the function {function.name!r} captured {count} values that do not exist in this graph: "
        f"pass them after the arguments ({', '.join(function.input_names[-count:])})"
    )


def _current_value(value: Output, inputs: Sequence[Output], ordered: bool) -> Output:
    """Return a captured value; a variable is read when the call's inputs are ready.

    Args:
      ordered: True if the call also has control inputs.
    """
    variable = reads.reference_of(value)
    if variable is None:
        return value
    earlier = reads.updates_inside(variable, current_context(value.graph))
    late = reads.filter_following([source.node for source in inputs], earlier)
    if not ordered and not late:
        return value
    with get_default_graph().control_dependencies(late):
        return reads.read(variable)


def can_be_called_in(function: FunctionDefinition, graph: Graph) -> bool:
    """Return True if all captures of a function are visible in the current context."""
    body_graph = graph if isinstance(graph, FunctionGraph) else None
    for value in function.captured or ():
        home = value.graph
        if home is not graph and not (body_graph is not None and body_graph.is_inside(home)):
            return False
        try:
            check_visible(value, current_context(home))
        except errors.InvalidArgumentError:
            return False
    return True


def _call_controls(function: FunctionDefinition, graph: Graph) -> list[Node]:
    """Return the control inputs of a call that its body captured."""
    return list(function.graph.control_captures) if function.captured is not None else []


# ------------------------------------------------------------------------- bodies in place


def must_be_inlined(function: FunctionDefinition, graph: Graph) -> bool:
    """Return True if calls must be inlined because a call node would have no gradient."""
    if function.python_gradient is not None or function.gradient_name is not None:
        return False
    overrides = graph.scopes.overrides
    if function.name in overrides or call_op(function) in overrides:
        return False
    return bool(unsupported_call_reason(function)) and not function.is_recursive


def unsupported_call_reason(function: FunctionDefinition) -> str:
    """Return why the gradient of a call node could not be computed from its ports, or ""."""
    values = list(saved_values.values_from_state(function.nodes))
    for value in values:
        if not saved_values.is_single(value):
            return f"{value.node.name!r} ({value.node.type}) has one value per iteration"
    outside = state.find_external_use(function.nodes, function.inputs)
    if outside is not None:
        return f"{outside.name!r} ({outside.type}) uses an argument of the function"
    for value in values:
        if len(state.saved_outputs(value.node)) < len(value.node.outputs):
            return f"{value.node.name!r} ({value.node.type}) returns both handles and values"
    return ""


def inline_call(
    function: FunctionDefinition, inputs: Sequence[Output], name: str | None = None
) -> tuple[Node, list[Output]]:
    """Inline the body of a call; return a node that finishes with it, and the results."""
    graph = inputs[0].graph if inputs else get_default_graph()
    with graph.as_default(), graph.name_scope(name or scope_name(function.name)) as scope:
        copy = BodyCopy(graph, function, inputs, scope)
        effects = [copy.nodes[node] for node in function.effects]
        values = [copy.outputs[output] for output in function.outputs[: function.results]]
        with graph.control_dependencies(effects):
            results = [identity.identity(value) for value in values]
            with graph.control_dependencies([result.node for result in results]):
                end = builder.create("NoOp", (), None, "end")
    return end, results
