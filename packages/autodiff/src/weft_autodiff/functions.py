"""Functions that compute the gradients of calls of other functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from weft_autodiff.backprop import gradients
from weft_autodiff.registry import Gradient, gradient_of, register_in_graph
from weft_autodiff.values import Grad, as_dense, is_trainable, zeros_for
from weft_graph import builder, stacks
from weft_graph.functions import saved, state
from weft_graph.functions.body import FunctionGraph
from weft_graph.functions.copying import BodyCopy
from weft_graph.functions.function import Function
from weft_graph.graph import Graph
from weft_graph.indexed_slices import IndexedSlices
from weft_graph.node import Node, Output
from weft_graph.ops import identity
from weft_graph.ops.control_flow import ROUTING
from weft_graph.passes.step_graph import reachable
from weft_tensor import errors

Kind = str
"""What flows back into an output: "" for nothing, "dense" or "sparse"."""


class Source(NamedTuple):
    """Where an input of a gradient's function comes from.

    Attributes:
      what: "input" or "output" of the call, "grad", "values" and "indices" of what flows back into
        an output, or "captured".
      place: which.
      value: what was captured.
    """

    what: str
    place: int
    value: Output | None = None

    def of(self, op: Node, grads: Sequence[Grad | None], graph: Graph) -> Output:
        """The input, for one call."""
        if self.what == "input":
            return op.inputs[self.place]
        if self.what == "output":
            return op.outputs[self.place]
        if self.what == "captured":
            assert self.value is not None
            return graph.capture(self.value) if stacks.tracing() else self.value
        grad = grads[self.place]
        if self.what == "grad":
            dense = as_dense(grad)
            assert dense is not None
            return dense
        assert isinstance(grad, IndexedSlices)
        return grad.values if self.what == "values" else grad.indices


class GradientFunction:
    """A function that computes the gradient of calls of another one.

    Attributes:
      function: the function.
      takes: where its inputs come from.
      gives: for each input of the call, Output, IndexedSlices, or None where nothing flows back.
    """

    def __init__(
        self, function: Function, takes: Sequence[Source], gives: Sequence[Any]
    ) -> None:
        self.function = function
        self.takes = tuple(takes)
        self.gives = tuple(gives)


def kinds_of(op: Node, grads: Sequence[Grad | None]) -> tuple[Kind, ...]:
    """What flows back into each output of a call."""
    return tuple(
        "" if grad is None or not is_trainable(output)
        else "sparse" if isinstance(grad, IndexedSlices) else "dense"
        for output, grad in zip(op.outputs, grads, strict=True)
    )


def gradient_function(function: Function, kinds: tuple[Kind, ...]) -> GradientFunction:
    """The gradient of calls into whose outputs such gradients flow back; built once."""
    found = function.gradients.get(kinds)
    if found is None:
        found = _Builder(function, kinds).build()
        function.gradients[kinds] = found
    return found  # type: ignore[no-any-return]


class _Builder:
    """Builds one gradient's function: a copy of the body, and what flows back through it."""

    def __init__(self, function: Function, kinds: tuple[Kind, ...]) -> None:
        self._function = function
        self._kinds = kinds
        outer = function.graph.outer
        with function.graph.functions.reserved(f"{function.name}_grad") as name:
            self._name = name
        self._graph = FunctionGraph(name, outer)
        self._graph.functions = function.graph.functions
        self._takes: list[Source] = []

    def build(self) -> GradientFunction:
        """The gradient's function, added to the library."""
        function, graph = self._function, self._graph
        with stacks.building_body(graph):
            arguments = [
                self._input(like, "input", i) for i, like in enumerate(function.inputs)
            ]
            self._known = self._saved_inputs()
            starts = [self._start(i, kind) for i, kind in enumerate(self._kinds)]
            copies = self._copy(arguments)
            ys = [copies.outputs[output] for output in function.outputs]
            pairs = [(y, start) for y, start in zip(ys, starts, strict=True) if start is not None]
            graph.sources[function.graph] = copies.outputs
            grads = gradients([y for y, _ in pairs], arguments, [s for _, s in pairs])
            results, gives = self._results(arguments, grads)
        return self._finish(results, gives)

    # ------------------------------------------------------------------ inputs

    def _input(self, like: Output, what: str, place: int) -> Output:
        self._takes.append(Source(what, place))
        return self._graph.add_input_like(like, like.node.name.rpartition("/")[2])

    def _saved_inputs(self) -> dict[Output, Output]:
        """For values that come from state, the inputs that give them."""
        function = self._function
        places = saved.places_of(function.outputs)
        found: dict[Output, Output] = {}
        for value in saved.values_from_state(function.graph.nodes):
            if value in places:
                self._takes.append(Source("output", places[value]))
                name = value.node.name.rpartition("/")[2]
                given = self._graph.add_input(value.dtype.base_dtype, value.dims, name)
                found[value] = given
        return found

    def _start(self, place: int, kind: Kind) -> Grad | None:
        like = self._function.outputs[place]
        dtype, dims = like.dtype.base_dtype, like.dims
        if not kind:
            return None
        add = self._graph.add_input
        if kind == "dense":
            self._takes.append(Source("grad", place))
            return add(dtype, dims, f"grad_{place}")
        self._takes += [Source("values", place), Source("indices", place)]
        inner = None if dims is None else (None, *dims[1:])
        from weft_tensor import dtypes

        return IndexedSlices(
            add(dtype, inner, f"grad_{place}_values"),
            add(dtypes.int64, (None,), f"grad_{place}_indices"),
        )
