"""Tracing of Python functions to functions of the pipeline's graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from weft_graph.functions.body import FunctionGraph
from weft_graph.functions.trace import trace
from weft_graph.ir.default_graph import get_default_graph
from weft_graph.ir.func_attr import NameAttrs
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import reachable, sort_nodes
from weft_io.data import specs
from weft_tensor import errors
from weft_tensor.arguments import check_function as checked


class TracedFunction:
    """A function of the graph's library.

    Attributes:
      attr: the attribute that refers to it in nodes.
      captured: outside values, which are its last arguments.
      result: the structure of tensors that the Python function returned, inside the body.
    """

    def __init__(self, attr: NameAttrs, captured: list[Output], result: Any) -> None:
        self.attr = attr
        self.captured = captured
        self.result = result

    @property
    def form(self) -> Any:
        """The form of the result."""
        return specs.form_of(self.result)


def trace_function(
    function: Callable[..., Any], form: Any, outer: Graph, kind: str
) -> TracedFunction:
    """Trace a Python function to a function of the graph.

    Args:
      function: called with the tensors of an element; a tuple is passed as several arguments.
      form: the form of the elements.
      outer: the graph of the pipeline.
      kind: its purpose, for its name.
    Raises: InvalidTypeError: it cannot be called with an element, or does not return tensors.
    """
    results: list[Any] = []
    checked(function, f"the function given to Dataset.{kind}()")

    def body(*arguments: Any) -> list[Output]:
        result = checked(function, f"the function given to Dataset.{kind}()", len(arguments))(
            *arguments
        )
        if result is None:
            raise errors.InvalidTypeError(
                f"Unsupported return value from function passed to Dataset.{kind}(): None"
            )
        if isinstance(result, list):  # several tensors are meant, not one of them stacked
            result = tuple(result)
        results.append(specs.convert_structure(result))
        return specs.components(results[0])

    def arguments(graph: FunctionGraph) -> tuple[list[Any], dict[str, Any]]:
        outputs = [graph.add_input(part.dtype, part.dims, "arg") for part in specs.parts(form)]
        element = specs.rebuild_structure(form, outputs)
        return (list(element) if type(element) is tuple else [element]), {}

    with outer.functions.reserve_name(f"Dataset_{kind}") as name:
        result, _ = trace(body, arguments, name, outer, save=False)
        outer.functions.add(result)
    return TracedFunction(NameAttrs(name), result.captured_inputs, results[0])


def enclosing_graph(dataset: Output) -> Graph:
    """Return the graph for nodes that use a dataset: its own, or the traced function's.

    A function body whose outer graphs include the dataset's graph can use the dataset.
    """
    current = get_default_graph()
    if isinstance(current, FunctionGraph) and current.is_inside(dataset.graph):
        return current
    return dataset.graph


def factory_of(dataset: Output) -> NameAttrs:
    """Return a function without arguments that recreates a dataset by copying its nodes.

    Raises: InvalidArgumentError: it needs a placeholder or a variable, which a copy cannot use.
    """
    outer = dataset.graph
    nodes = sort_nodes(reachable([dataset.node]))
    _check_copied(nodes)

    def body() -> list[Output]:
        graph = get_default_graph()
        copies: dict[Output, Output] = {}
        for node in nodes:
            inputs = tuple([copies[source] for source in node.inputs])
            counterpart = graph.add_copy(
                node, graph.unique_name(node.name), inputs, dict(node.attrs)
            )
            copies.update(zip(node.outputs, counterpart.outputs, strict=True))
        return [copies[dataset]]

    with outer.functions.reserve_name("Dataset_factory") as name:
        result, _ = trace(body, lambda graph: ((), {}), name, outer, ordered=False, save=False)
        outer.functions.add(result)
    return NameAttrs(name)


def _check_copied(nodes: Iterable[Node]) -> None:
    for node in nodes:
        handles = any(output.dtype.is_ref for output in node.outputs)
        resource = any(output.dtype.name == "resource" for output in node.outputs)
        if node.type.startswith("Placeholder") or handles or resource:
            raise errors.InvalidArgumentError(
                "Failed to create a one-shot iterator for a dataset. `Dataset.make_one_shot_"
                f"iterator()` does not support datasets that use placeholders or variables, got "
                f"{node.name!r} ({node.type}). Use `Dataset.make_initializable_iterator()`."
            )
