"""Library functions that compute the gradients of function calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from weft_autodiff.gradients.application import apply_gradient
from weft_autodiff.gradients.backprop import gradients
from weft_autodiff.gradients.values import (
    Grad,
    as_dense,
    is_trainable,
    shape_for,
    zeros_for,
)
from weft_autodiff.registry import Gradient, register_in_graph
from weft_graph.control_flow.context import innermost
from weft_graph.functions import saved_values, state
from weft_graph.functions.body import FunctionGraph, is_variable
from weft_graph.functions.copying import BodyCopy
from weft_graph.functions.definition import Declaration, scope_name
from weft_graph.functions.function import Function
from weft_graph.functions.trace import save_state
from weft_graph.ir import builder, thread_stacks
from weft_graph.ir.deep_stack import deeper
from weft_graph.ir.graph import Graph
from weft_graph.ir.indexed_slices import IndexedSlices
from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import reachable
from weft_graph.ir.traits import Role
from weft_graph.ops import identity
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType

Kind = str
"""Form of an output's gradient: "" for none, "dense", or the index type of slices."""


class Source(NamedTuple):
    """The origin of an input of a gradient function.

    Attributes:
      kind: "input" or "output" of the call; "grad", "values" or "indices" of an output's gradient;
        or "captured".
      position: the position among the inputs, outputs, gradients or captures.
      value: the captured value.
    """

    kind: str
    position: int
    value: Output | None = None

    def of(self, op: Node, grads: Sequence[Grad | None], graph: Graph) -> Output:
        """Return the input, for one call."""
        if self.kind == "input":
            return op.inputs[self.position]
        if self.kind == "output":
            return op.outputs[self.position]
        if self.kind == "captured":
            assert self.value is not None
            return graph.capture(self.value) if thread_stacks.tracing_depth() else self.value
        grad = grads[self.position]
        if self.kind == "grad":
            dense = as_dense(grad)
            assert dense is not None
            return dense
        assert isinstance(grad, IndexedSlices)
        return grad.values if self.kind == "values" else grad.indices


class GradientFunction:
    """A function that computes the gradient of calls of another function.

    Attributes:
      function: the function.
      sources: the origins of its inputs.
      output_kinds: for each input of the call, Output, IndexedSlices, or None if it has no
        gradient.
    """

    def __init__(
        self, function: Function, sources: Sequence[Source], output_kinds: Sequence[Any]
    ) -> None:
        self.function = function
        self.takes = tuple(sources)
        self.gives = tuple(output_kinds)


def kinds_of(op: Node, grads: Sequence[Grad | None]) -> tuple[Kind, ...]:
    """Return the form of the gradient of each output of a call."""
    return tuple([_kind(output, grad) for output, grad in zip(op.outputs, grads, strict=True)])


def _kind(output: Output, grad: Grad | None) -> Kind:
    if grad is None or not is_trainable(output):
        return ""
    return grad.indices.dtype.name if isinstance(grad, IndexedSlices) else "dense"


def gradient_function(function: Function, kinds: tuple[Kind, ...]) -> GradientFunction:
    """Return the gradient function of calls for given kinds of output gradients, cached."""
    gradient: GradientFunction | None = function.gradients.get(kinds)
    if gradient is None:
        library = function.graph.functions
        with library.reserve_name(f"{function.name}_grad") as name:
            try:
                gradient = deeper(_Builder(function, kinds, name).build)
            finally:
                function.gradients.pop(kinds, None)
        library.add(gradient.function)
        function.gradients[kinds] = gradient
    return gradient


class _Builder:
    """Builder of one gradient function: a copy of the body and its backward pass."""

    def __init__(self, function: Function, kinds: tuple[Kind, ...], name: str) -> None:
        self._function = function
        self._kinds = kinds
        self._graph = FunctionGraph(name, function.graph.outer)
        self._graph.functions = function.graph.functions
        self._sources: list[Source] = []
        self._recomputed: list[Node] = []
        self._pending: _Pending | None = None

    def build(self) -> GradientFunction:
        """Return the gradient function."""
        function, graph = self._function, self._graph
        with thread_stacks.building_body(graph):
            arguments = [self._input(argument, i) for i, argument in enumerate(function.inputs)]
            self._saved = self._saved_inputs()
            output_starts = [self._start(i, kind) for i, kind in enumerate(self._kinds)]
            self._await_recursion()
            copies = self._copy(arguments)
            graph.sources[function.graph] = copies.outputs
            pairs = [
                (copies.outputs[output], start)
                for output, start in zip(function.outputs, output_starts, strict=True)
                if start is not None
            ]
            ys = [y for y, _ in pairs]
            starts = [_with_shape(start, y) for y, start in pairs]
            grads = gradients(ys, arguments, starts, name=scope_name(graph.name))
            results, output_kinds = self._results(arguments, grads)
        self._take_from_inputs(copies)
        return self._finish([self._resolve(result) for result in results], output_kinds)

    # ------------------------------------------------------------------ inputs

    def _input(self, argument: Output, index: int) -> Output:
        self._sources.append(Source("input", index))
        return self._graph.add_input_like(argument, _last_component(argument.node.name))

    def _saved_inputs(self) -> dict[Output, Output]:
        """Return the inputs that provide values read from state, by value."""
        function = self._function
        positions = saved_values.output_positions(function.outputs)
        inputs: dict[Output, Output] = {}
        for value in saved_values.values_from_state(function.graph.nodes):
            if value in positions:
                self._sources.append(Source("output", positions[value]))
                dtype = value.dtype.base_dtype
                inputs[value] = self._graph.add_input(
                    dtype, value.dims, _last_component(value.node.name)
                )
        return inputs

    def _start(self, index: int, kind: Kind) -> Grad | None:
        """Return the gradient of an output as inputs of the function."""
        output = self._function.outputs[index]
        dtype, dims = output.dtype.base_dtype, output.dims
        if not kind:
            return None
        add = self._graph.add_input
        if kind == "dense":
            self._sources.append(Source("grad", index))
            return add(dtype, dims, f"grad_{index}")
        self._sources += [Source("values", index), Source("indices", index)]
        rows = None if dims is None else (None, *dims[1:])
        return IndexedSlices(
            add(dtype, rows, f"grad_{index}_values"),
            add(dtypes.as_dtype(kind), (None,), f"grad_{index}_indices"),
        )

    def _await_recursion(self) -> None:
        """Declare the gradient of a recursive function, so that it can call itself."""
        function = self._function
        if not function.is_recursive:
            return
        output_kinds = [Output if _may_give(argument) else None for argument in function.inputs]
        types = [
            _type_of(argument)
            for argument, kind in zip(function.inputs, output_kinds, strict=True)
            if kind is not None
        ]
        argument_types = [argument.dtype for argument in self._graph.inputs]
        declared = Declaration(self._graph.name, argument_types, types, function.stateful)
        self._pending = _Pending(declared, self._sources, output_kinds)
        function.gradients[self._kinds] = self._pending

    # ------------------------------------------------------------------ the body once more

    def _copy(self, arguments: Sequence[Output]) -> BodyCopy:
        function = self._function
        effects = state.Effects()
        copies = BodyCopy(
            self._graph,
            function,
            arguments,
            stand=self._stand_in,
            keeps=lambda _, control: not (state.returns_state(control) or effects.reach(control)),
        )
        for node in function.graph.nodes:
            counterpart = copies.nodes.get(node)
            level = None if counterpart is None else innermost(counterpart)
            if counterpart is not None and level is not None and self._is_known(node):
                with level.open():
                    outputs = self._make_identities(node, counterpart.inputs)
                for output, saved_output in zip(node.outputs, outputs, strict=True):
                    self._graph.replace_uses(copies.outputs[output], saved_output, reason="given")
                    copies.outputs[output] = saved_output
        return copies

    def _is_known(self, node: Node) -> bool:
        return bool(node.outputs) and all(output in self._saved for output in node.outputs)

    def _stand_in(self, node: Node, inputs: Sequence[Output]) -> Sequence[Output] | None:
        return self._make_identities(node, inputs) if self._is_known(node) else None

    def _make_identities(self, node: Node, inputs: Sequence[Output]) -> Sequence[Output]:
        """Return identities of a node's saved values, differentiated by the node's own gradient.

        The identities have the node's inputs as their inputs, because that gradient leads to them.
        They are removed when all gradients are built.
        """
        values = [self._saved[output] for output in node.outputs]
        name = self._graph.unique_name("Given")
        count = len(values)

        def backward(op: Node, *grads: Grad | None, needed: Sequence[bool]) -> list[Any]:
            counterpart = Node(
                op.graph, node.name, node.op_def, op.inputs[count:], (), node.attrs, "", None, 0
            )
            counterpart.outputs = op.inputs[:count]
            counterpart.context = op.context
            return [None] * count + list(apply_gradient(counterpart, grads[:count], needed[count:]))

        register_in_graph(self._graph, name, Gradient(backward, True, True, True))
        with self._graph.gradient_override_map({"IdentityN": name}):
            stand_in = builder.create("IdentityN", [[*values, *inputs]], None, node.name)
        self._recomputed.append(stand_in)
        return stand_in.outputs[:count]

    def _take_from_inputs(self, copies: BodyCopy) -> None:
        """Replace the identities of saved values by the values themselves."""
        outputs: dict[Output, Output] = {}
        for stand_in in self._recomputed:
            for output, value in zip(stand_in.outputs, stand_in.inputs, strict=True):
                self._graph.replace_uses(output, value, reason="given")
                outputs[output] = value
        self._replacements = outputs
        for output, copy in copies.outputs.items():
            copies.outputs[output] = self._resolve(copy)

    def _resolve(self, output: Output) -> Output:
        while output in self._replacements:
            output = self._replacements[output]
        return output

    # ------------------------------------------------------------------ results

    def _results(
        self, arguments: Sequence[Output], grads: Sequence[Grad | None]
    ) -> tuple[list[Output], list[Any]]:
        """Return the outputs of the function, and the form of each gradient."""
        pending = self._pending
        if pending is not None and pending.used:
            for x, grad, kind in zip(arguments, grads, pending.gives, strict=True):
                if kind is None and grad is not None:
                    raise errors.UnimplementedError(
                        f"the gradient of the recursive function {self._function.name!r} for "
                        f"{x!r} cannot be computed, since the variable of the handle is unknown"
                    )
            dense = [
                None if kind is None else zeros_for(x) if grad is None else as_dense(grad)
                for x, grad, kind in zip(arguments, grads, pending.gives, strict=True)
            ]
            return [value for value in dense if value is not None], list(pending.gives)
        results: list[Output] = []
        output_kinds: list[Any] = []
        for grad in grads:
            if grad is None:
                output_kinds.append(None)
            elif isinstance(grad, IndexedSlices):
                output_kinds.append(IndexedSlices)
                results += [grad.values, grad.indices]
            else:
                output_kinds.append(Output)
                results.append(grad)
        return results, output_kinds

    def _finish(self, results: Sequence[Output], output_kinds: Sequence[Any]) -> GradientFunction:
        graph, pending = self._graph, self._pending
        with thread_stacks.building_body(graph):
            inputs = set(graph.inputs)
            outputs = [identity.identity(r) if r in inputs else r for r in results]
        captured = list(graph.captures)
        sources = [*self._sources, *[Source("captured", 0, value) for value in captured]]
        used = reachable([output.node for output in outputs])
        pairs = list(zip(graph.inputs, sources, strict=True))
        if pending is not None and pending.used:
            if captured:
                raise errors.UnimplementedError(
                    f"the gradient of the recursive function {self._function.name!r} captures "
                    f"values that the function itself does not: {captured}"
                )
        else:
            pairs = [pair for pair in pairs if pair[0].node in used]
        gradient = Function(graph.name, graph, [argument for argument, _ in pairs], outputs)
        self._refuse_repetition(gradient)
        save_state(gradient)
        return GradientFunction(gradient, [take for _, take in pairs], output_kinds)

    def _refuse_repetition(self, gradient: Function) -> None:
        graph = self._graph
        changed = {graph.inputs[i] for i in self._function.updates}
        for node in gradient.nodes:
            if node.role is Role.CALL and node.attrs["f"].name == gradient.name:
                continue
            if state.has_effect(node) or (
                state.returns_state(node)
                and not (state.is_repeatable(node) and changed.isdisjoint(state.resources(node)))
            ):
                raise errors.UnimplementedError(
                    f"the gradient of the function {self._function.name!r} would run "
                    f"{node.name!r} ({node.type}) a second time, with other results; its calls "
                    "do not return its first results, since the function "
                    + ("is recursive" if self._function.is_recursive else "was read from a file"),
                    op=node.type,
                    node=node.name,
                    line=node.line or None,
                )


class _Pending:
    """The gradient of a recursive function while it is built.

    Attributes:
      used: True if it calls itself.
    """

    def __init__(
        self, function: Declaration, sources: Sequence[Source], output_kinds: Sequence[Any]
    ) -> None:
        self._function = function
        self.takes = tuple(sources)
        self.gives = tuple(output_kinds)
        self.used = False

    @property
    def function(self) -> Declaration:
        """Return the declaration and mark it as used."""
        self.used = True
        return self._function


def _with_shape(start: Grad, like: Output) -> Grad:
    if isinstance(start, IndexedSlices):
        return IndexedSlices(start.values, start.indices, shape_for(like))
    return start


def _may_give(like: Output) -> bool:
    return is_trainable(like) and (like.dtype is not dtypes.resource or is_variable(like))


def _type_of(like: Output) -> DType:
    if like.dtype is dtypes.resource:
        return like.node.attrs["dtype"]  # type: ignore[no-any-return]
    return like.dtype.base_dtype


def _last_component(name: str) -> str:
    return name.rpartition("/")[2]
