"""Tracing of Python functions to bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft_graph.control_flow.context import context_of
from weft_graph.control_flow.structure import rebuild_leaf
from weft_graph.control_flow.tensor_array import TensorArray
from weft_graph.functions import saved_values
from weft_graph.functions.body import FunctionGraph
from weft_graph.functions.call import unsupported_call_reason
from weft_graph.functions.function import Function
from weft_graph.functions.ordering import ends_of_effects, order_effects
from weft_graph.ir import builder, nest, thread_stacks
from weft_graph.ir.composite import CompositeTensor
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.ops import identity
from weft_tensor import errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims

Arguments = Callable[[FunctionGraph], tuple[Sequence[Any], dict[str, Any]]]
"""Creates the arguments of a body; returns the arguments of the Python function."""

Package = Callable[[Sequence[Output], Node], Any]
"""Converts the results of a call, and a node that finishes with it, to the caller's result."""


def parts_of(leaf: Any) -> list[Output]:
    """Return the outputs of an argument or a result."""
    if isinstance(leaf, TensorArray):
        return [leaf.handle, leaf.flow]
    if isinstance(leaf, CompositeTensor):
        return list(leaf.parts)
    return [builder.convert_to_tensor(leaf)]


def rebuilt(leaf: Any, parts: Sequence[Output]) -> Any:
    """Return a leaf like `leaf` with other outputs."""
    if not isinstance(leaf, TensorArray):
        return rebuild_leaf(leaf, parts)
    array = TensorArray(leaf.dtype, handle=parts[0], flow=parts[1], infer_shape=False)
    array._shared.dims = leaf._shared.dims
    array._dynamic_size = leaf._dynamic_size
    return array


def trace(
    python_function: Callable[..., Any],
    arguments: Arguments,
    name: str,
    outer: Graph,
    *,
    ordered: bool = True,
    save: bool = True,
    output_names: Sequence[str] = (),
    attrs: dict[str, Any] | None = None,
) -> tuple[Function, Package]:
    """Build the body of a Python function.

    Args:
      arguments: creates the arguments.
      name: unique name of the function.
      outer: the enclosing graph.
      ordered: run side effects in program order.
      save: let calls also return the values that their gradient needs.
    Returns: the function, and a converter of its results to the Python function's structure.
    Raises:
      InvalidTypeError: the function returns a value that is not a tensor.
      InvalidArgumentError: the function returns a value inside a loop or branch, or is recursive
        and uses outer values.
    """
    graph = FunctionGraph(name, outer)
    with thread_stacks.building_body(graph):
        positional, by_keyword = arguments(graph)
        num_declared = len(graph.inputs)
        result = python_function(*positional, **by_keyword)
        outputs, nodes, package = _results(graph, result)
        if ordered:
            order_effects(graph)
        effects = list(dict.fromkeys([*ends_of_effects(graph), *nodes]))
        graph.take_values()
        graph.infer_handles()
    outputs = [graph.instead.get(output, output) for output in outputs]
    inputs = [*graph.inputs[:num_declared], *graph.captures.values()]
    function = Function(
        name,
        graph,
        inputs,
        outputs,
        effects,
        captured=list(graph.captures),
        output_names=output_names,
        attrs=attrs,
    )
    if captured := list(graph.captures):
        _check_recursion(function, captured)
    if save:
        save_state(function)
    return function, package


def _check_recursion(function: Function, captured: Sequence[Output]) -> None:
    """Reject a recursive function that captures outer values."""
    for call in function.calls():
        if call.attrs["f"].name == function.name:
            names = ", ".join(repr(value.name) for value in captured[:5])
            raise errors.InvalidArgumentError(
                f"the recursive function {function.name!r} uses {names} from outside; declare "
                "them and pass them as arguments, a variable as its handle",
                op=call.type,
                node=call.name,
                line=call.line or None,
            )


def save_state(function: Function) -> None:
    """Extend a new function with outputs for the values that its gradient cannot recompute."""
    if unsupported_call_reason(function) or function.is_recursive:
        return
    graph = function.graph
    graph._finalized = False
    with thread_stacks.building_body(graph):
        saved_places = saved_values.output_positions(function.outputs)
        saved_outputs = [
            saved_values.export_value(value)
            for value in saved_values.values_from_state(function.nodes)
            if value not in saved_places
        ]
    graph.finalize()
    function.outputs = (*function.outputs, *saved_outputs)
    function.__dict__.pop("nodes", None)


# -------------------------------------------------------------------------------- results


def _results(graph: FunctionGraph, result: Any) -> tuple[list[Output], list[Node], Package]:
    leaves = nest.flatten(result)
    outputs: list[Output] = []
    nodes: list[Node] = []
    counts: list[int | None] = []
    for leaf in leaves:
        if leaf is None:
            counts.append(0)
        elif isinstance(leaf, Node):
            counts.append(None)
            nodes.append(leaf)
        else:
            parts = [_result(graph, part) for part in _result_parts(graph, leaf)]
            counts.append(len(parts))
            outputs += parts

    def package(values: Sequence[Output], call: Node) -> Any:
        remaining = list(values)
        result_leaves: list[Any] = []
        for leaf, count in zip(leaves, counts, strict=True):
            if not count:
                result_leaves.append(call if count is None else None)
                continue
            result_leaves.append(rebuilt(leaf, remaining[:count]))
            del remaining[:count]
        return nest.pack_sequence_as(result, result_leaves)

    return outputs, nodes, package


def _result_parts(graph: FunctionGraph, leaf: Any) -> list[Output]:
    try:
        return [graph.capture(part) for part in parts_of(leaf)]
    except (errors.InvalidTypeError, errors.InvalidArgumentError) as error:
        raise type(error)(
            f"the function {graph.name!r} must return tensors, nodes or None, got {leaf!r}: "
            f"{error.message}"
        ) from error


def _result(graph: FunctionGraph, output: Output) -> Output:
    """Return a result, copied if it is an argument or a reference."""
    if context_of(output) is not None:
        raise errors.InvalidArgumentError(
            f"the function {graph.name!r} returns {output!r}, which is inside a branch or a "
            "loop; return it from that branch or loop"
        )
    if output in graph.inputs or output.dtype.is_ref or output in graph.captures.values():
        return identity.identity(output)
    return output


def placeholders(graph: FunctionGraph, leaves: Sequence[Any], names: Sequence[str]) -> list[Any]:
    """Create arguments for the tensor-like leaves; other leaves are unchanged.

    Args:
      leaves: `ArgumentSpec`s, and values that are not tensors.
    """
    return [
        leaf.placeholder(graph, name) if isinstance(leaf, ArgumentSpec) else leaf
        for leaf, name in zip(leaves, names, strict=True)
    ]


class ArgumentSpec:
    """The element type and shape of an argument, or of its components.

    Attributes:
      leaf: the original value, if it is a composite.
      parts: element type and shape of each part.
    """

    __slots__ = ("leaf", "parts")

    def __init__(self, parts: Sequence[tuple[DType, Dims]], leaf: Any = None) -> None:
        self.parts = tuple(parts)
        self.leaf = leaf

    @classmethod
    def of(cls, leaf: Any) -> ArgumentSpec:
        """Return the spec of a value that consists of outputs."""
        composite = isinstance(leaf, TensorArray | CompositeTensor)
        parts = [(part.dtype.base_dtype, part.dims) for part in parts_of(leaf)]
        return cls(parts, leaf if composite else None)

    @property
    def key(self) -> Any:
        """A key that is equal for equal specs."""
        kind = None if self.leaf is None else type(self.leaf)
        extra: tuple[Any, ...] = ()
        if isinstance(self.leaf, TensorArray):
            extra = (self.leaf.dtype, self.leaf._shared.dims, self.leaf._dynamic_size)
        return kind, self.parts, extra

    def placeholder(self, graph: FunctionGraph, name: str) -> Any:
        """Create the argument in a body."""
        values = [graph.add_input(dtype, dims, name) for dtype, dims in self.parts]
        return values[0] if self.leaf is None else rebuilt(self.leaf, values)
