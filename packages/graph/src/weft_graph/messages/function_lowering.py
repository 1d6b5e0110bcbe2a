"""Lowering of TensorFlow's functional conditionals and loops to `cond` and `while_loop`.

TensorFlow's functions contain `If`, `Case` and `While` nodes, whose branches, conditions and bodies
are functions. An import converts each of them to a call of a function with the same inputs and
outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft_graph.control_flow.conditional import cond, switch_case
from weft_graph.control_flow.loop import while_loop
from weft_graph.functions.body import FunctionGraph
from weft_graph.functions.call import add_call
from weft_graph.functions.function import Function
from weft_graph.functions.ordering import ends_of_effects
from weft_graph.ir import thread_stacks
from weft_graph.ir.library import Library
from weft_graph.ir.node import Output
from weft_graph.ops import array, comparison, identity, shapes
from weft_graph.ops.control_flow import broader_dims
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType


def lowered(library: Library, op: str, attrs: dict[str, Any]) -> Function:
    """Return the function that implements a functional conditional or loop, built at first use.

    Args:
      op: op type.
      attrs: attributes of the node.
    Raises:
      NotFoundError: a branch is not in the library.
      InvalidArgumentError, InvalidTypeError: the functions do not match each other.
    """
    kind = op.removeprefix("Stateless")
    names = _names(kind, attrs)
    key = (kind, tuple(names), tuple(attrs.get("Tin", ())), attrs.get("Tcond"))
    function: Function | None = library.lowered.get(key)
    if function is None:
        functions = [library[name] for name in names]
        with library.reserve_name("_".join([*names, kind.lower()])) as name:
            function = _build(library, name, kind, functions, attrs)
        library.add(function)
        library.lowered[key] = function
    return function


def _names(kind: str, attrs: dict[str, Any]) -> list[str]:
    if kind == "If":
        return [attrs["then_branch"].name, attrs["else_branch"].name]
    if kind == "While":
        return [attrs["cond"].name, attrs["body"].name]
    return [branch.name for branch in attrs["branches"]]


def _build(
    library: Library, name: str, kind: str, functions: Sequence[Function], attrs: dict[str, Any]
) -> Function:
    graph = FunctionGraph(name, None)
    graph.functions = library
    with thread_stacks.building_body(graph):
        first: list[Output] = []
        if kind == "If":
            first = [graph.add_input(attrs["Tcond"], None, "cond")]
        elif kind == "Case":
            first = [graph.add_input(dtypes.int32, (), "branch_index")]
        template = functions[-1]
        values = [
            graph.add_input_like(argument, argument.node.name.rpartition("/")[2])
            for argument in template.inputs
        ]
        if kind == "While":
            outputs = _loop(functions[0], functions[1], values, attrs)
        else:
            outputs = _choice(kind, first[0], functions, values)
        effects = ends_of_effects(graph)
    inputs = [*first, *values]
    return Function(name, graph, inputs, outputs, effects)


# --------------------------------------------------------------------------- conditionals


def _choice(
    kind: str, selector: Output, functions: Sequence[Function], values: Sequence[Output]
) -> list[Output]:
    for function in functions[1:]:
        function.check_call(functions[0].input_types, functions[0].output_types)
    branches = [_branch(function, values) for function in functions]
    if kind == "Case":
        results = switch_case(selector, branches)
        results = results if isinstance(results, list | tuple) else [results]
    else:
        results = cond(_truth(selector), branches[0], branches[1], strict=True)
    return list(results)[: len(functions[0].output_types)]


def _branch(function: Function, values: Sequence[Output]) -> Callable[[], list[Any]]:
    def branch() -> list[Any]:
        node, results = add_call(function, values)
        return list(results) or [node]

    return branch


def _truth(value: Output) -> Output:
    """Convert a value to a predicate: a number is true if not zero, others if not empty."""
    if value.dtype is dtypes.bool_ and value.dims == ():
        return value
    if value.dims == () and value.dtype is not dtypes.string:
        return comparison.not_equal(value, array.zeros((), value.dtype))
    if value.dtype is dtypes.bool_:
        return identity.identity(value)
    return comparison.not_equal(shapes.size(value), 0)


# ---------------------------------------------------------------------------------- loops


def _loop(
    test: Function, body: Function, values: Sequence[Output], attrs: dict[str, Any]
) -> list[Output]:
    """Build a loop over the changing values; loop invariants stay outside."""
    types: list[DType] = [value.dtype.base_dtype for value in values]
    body.check_call(types, types)
    test.check_call(types, [dtypes.bool_])
    changing = [i for i in range(len(values)) if not _passes_through(body, i)]
    dims = [broader_dims(values[i].dims, body.outputs[i].dims) for i in changing]

    def full(variables: Sequence[Output]) -> list[Output]:
        all_values = list(values)
        for i, variable in zip(changing, variables, strict=True):
            all_values[i] = variable
        return all_values

    def call_condition(*variables: Output) -> Output:
        return add_call(test, full(variables))[1][0]

    def call_body(*variables: Output) -> list[Output]:
        results = add_call(body, full(variables))[1]
        return [results[i] for i in changing]

    if not changing:
        raise errors.InvalidArgumentError(
            f"the body {body.name!r} of a loop does not change any loop variable, so the loop "
            "would never end"
        )
    results = while_loop(
        call_condition,
        call_body,
        [values[i] for i in changing],
        shape_invariants=list(dims),
        parallel_iterations=max(1, attrs.get("parallel_iterations", 10)),
        return_same_structure=True,
    )
    return full(results)


def _passes_through(body: Function, position: int) -> bool:
    output = body.outputs[position]
    while output.node.traits.identity and not output.node.controls:
        output = output.node.inputs[0]
    return output is body.inputs[position]
