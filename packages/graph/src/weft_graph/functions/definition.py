"""Definitions of functions: bodies with inputs and outputs, and the analysis of their effects."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Self

from weft_graph.functions import state
from weft_graph.functions.body import FunctionGraph
from weft_graph.ir.func_attr import NameAttrs
from weft_graph.ir.message_conversions import to_message
from weft_graph.ir.node import Node, Output
from weft_graph.ir.step_graph import reachable, sort_nodes
from weft_graph.ir.traits import Role
from weft_tensor import errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims


def scope_name(function: str) -> str:
    """Return a function's name changed to a valid name of a node or scope."""
    return re.sub("^[^A-Za-z0-9.]+", "", function) or "function"


class Declaration:
    """The signature of a function whose body may not exist yet: enough to call it.

    Attributes:
      name: name in the library.
      input_types, output_types: element types.
      stateful: True if calls must not be merged or pruned.
      results: the number of outputs.
    """

    def __init__(
        self,
        name: str,
        input_types: Sequence[DType],
        output_types: Sequence[DType],
        stateful: bool = False,
    ) -> None:
        self.name = name
        self.input_types = list(input_types)
        self.output_types = list(output_types)
        self.stateful = stateful
        self.results = len(self.output_types)


class FunctionDefinition:
    """A named, immutable subgraph.

    Args:
      name: name in the library.
      graph: the body; no nodes may be added to it.
      inputs: the arguments, outputs of nodes without inputs; captured values come last.
      outputs: the results, followed by the values that a call saves for its gradient.
      effects: nodes that every call runs, even if its results are unused.
      results: how many of the outputs are results.
      captured: the outer values of the last inputs; None if they are unknown, as in a function read
        from a file.
      attrs: attributes of the function: `_noinline` keeps its calls.
      gradient_name: name of the gradient function, if the program specified one.
      python_gradient: Python function that builds the gradient, if the program specified one.
    Attributes:
      description: docstring of its Python function.
      gradients: gradient functions of calls; set by weft_autodiff.
    """

    def __init__(
        self,
        name: str,
        graph: FunctionGraph,
        inputs: Sequence[Output],
        outputs: Sequence[Output],
        effects: Sequence[Node] = (),
        *,
        results: int | None = None,
        captured: Sequence[Output] | None = (),
        captured_count: int | None = None,
        input_names: Sequence[str] = (),
        output_names: Sequence[str] = (),
        attrs: dict[str, Any] | None = None,
        gradient_name: str | None = None,
        python_gradient: Any = None,
    ) -> None:
        self.name = name
        self.graph = graph
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.effects = tuple(effects)
        self.results = len(self.outputs) if results is None else results
        self.captured = None if captured is None else tuple(captured)
        self.captured_count = len(captured or ()) if captured_count is None else captured_count
        self.input_names = tuple(input_names) or tuple(i.node.name for i in self.inputs)
        self.output_names = tuple(output_names)
        self.attrs = dict(attrs or {})
        self.gradient_name = gradient_name
        self.python_gradient = python_gradient
        self.gradients: dict[Any, Any] = {}
        self.description = ""
        self._callees: dict[str | None, list[Self]] = {}
        self._recursive: bool | None = None
        graph.finalize()

    @property
    def input_types(self) -> list[DType]:
        """The element types of the inputs."""
        return [output.dtype for output in self.inputs]

    @property
    def output_types(self) -> list[DType]:
        """The element types of the outputs; references count as values."""
        return [output.dtype.base_dtype for output in self.outputs]

    @property
    def output_dims(self) -> list[Dims]:
        """The static shapes of the outputs."""
        return [output.dims for output in self.outputs]

    # ------------------------------------------------------------------ what it does

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that outputs and effects need, except inputs; sources before users."""
        roots = [output.node for output in self.outputs]
        members = reachable([*roots, *self.effects], set(self.inputs))
        arguments = {output.node for output in self.inputs}
        return tuple(sort_nodes(members - arguments, set(self.inputs)))

    @cached_property
    def stateful(self) -> bool:
        """True if calls may not be merged, or removed when unused."""
        return any(
            (node.op_def.stateful and not state.is_private(node)) or state.only_reads(node)
            for node in self.nodes
        )

    @cached_property
    def updates(self) -> frozenset[int]:
        """The indices of the inputs whose state it changes."""
        changed_inputs: dict[FunctionDefinition, frozenset[int]] = {}
        unknown: list[FunctionDefinition] = []
        for function in (self, *self.callees()):
            if "updates" in function.__dict__:
                changed_inputs[function] = function.updates
            else:
                unknown.append(function)
        unknown.reverse()  # mostly what is called before what calls it
        changed = True
        while changed:  # until calls in circles add nothing more
            changed = False
            for function in unknown:
                updates = function._updates_with(changed_inputs)
                changed |= updates != changed_inputs.get(function)
                changed_inputs[function] = updates
        return changed_inputs[self]

    def _updates_with(
        self, changed_inputs: dict[FunctionDefinition, frozenset[int]]
    ) -> frozenset[int]:
        """Return `updates`, using known results of the functions that it calls."""
        positions = {output: i for i, output in enumerate(self.inputs)}
        updates: set[int] = set()
        for node in self.nodes:
            if state.has_effect(node):
                function = state.callee(node)
                changed = state.resources(node)
                if function is not None:
                    inner = changed_inputs.get(function, frozenset())
                    changed = [state.origin(node.inputs[i]) for i in inner]
                updates.update(positions[source] for source in changed if source in positions)
        return frozenset(updates)

    @cached_property
    def reads_only(self) -> bool:
        """True if the function does not change state; it may read it."""
        return all(function._is_read_only for function in (self, *self.callees()))

    @cached_property
    def _is_read_only(self) -> bool:
        """True if its own nodes do not change state; its calls are not considered."""
        return all(
            not state.has_effect(node)
            and (not state.returns_state(node) or state.only_reads(node) or node.role is Role.CALL)
            for node in self.nodes
        )

    def calls(self) -> Iterator[Node]:
        """Return the calls in its body."""
        return (node for node in self.nodes if node.role is Role.CALL)

    def called_names(self) -> list[str]:
        """Return the names of all functions that nodes of its body refer to."""
        names = self._names_in_body
        if self.gradient_name is None or self.gradient_name in names:
            return list(names)
        return [*names, self.gradient_name]

    @cached_property
    def _names_in_body(self) -> tuple[str, ...]:
        names: dict[str, None] = {}
        for node in self.nodes:
            for value in node.attrs.values():
                for item in value if isinstance(value, tuple) else (value,):
                    if isinstance(item, NameAttrs):
                        names[item.name] = None
        return tuple(names)

    def callees(self) -> list[Self]:
        """Return the functions that it calls, directly or indirectly; itself only if recursive."""
        if self.gradient_name in self._callees:
            return self._callees[self.gradient_name]
        by_name, missing = self._collect_reachable()
        result = list(by_name.values())
        if not missing:  # what is only declared may turn out to call more
            self._callees[self.gradient_name] = result
        return result

    def _collect_reachable(self) -> tuple[dict[str, Self], set[str]]:
        """Return the functions reachable through calls by name, and the names only declared.

        The closure of a callee is reused; walking it again would be quadratic in the depth.
        """
        library = self.graph.functions
        by_name: dict[str, Self] = {}
        missing: set[str] = set()
        pending = self.called_names()
        while pending:
            name = pending.pop()
            if name in by_name:
                continue
            if name not in library:
                missing.add(name)
                continue
            function = by_name[name] = library[name]
            gradient_callees = function._callees.get(function.gradient_name)
            if gradient_callees is None:
                pending.extend(function.called_names())
            else:
                by_name.update(
                    [
                        (callee_function.name, callee_function)
                        for callee_function in gradient_callees
                    ]
                )
        return by_name, missing

    @property
    def is_recursive(self) -> bool:
        """True if it calls itself, directly or indirectly."""
        if self._recursive is not None:
            return self._recursive
        by_name, missing = self._collect_reachable()
        recursive = self.name in by_name or self.name in missing
        if recursive or not missing:
            self._recursive = recursive
        return recursive

    # ------------------------------------------------------------------ calls of it

    def check_call(self, inputs: Sequence[DType], results: Sequence[DType]) -> None:
        """Check that a call matches the signature.

        Raises:
          InvalidArgumentError: the number of inputs or outputs differs.
          InvalidTypeError: element types differ.
        """
        for label, actual, expected in (
            ("inputs", inputs, self.input_types),
            ("outputs", results, self.output_types),
        ):
            names = [dtype.base_dtype.name for dtype in expected]
            if len(actual) != len(expected):
                raise errors.InvalidArgumentError(
                    f"the function {self.name!r} has {len(expected)} {label} ({', '.join(names)}), "
                    f"the call has {len(actual)}"
                )
            for i, (actual_type, expected_type) in enumerate(zip(actual, expected, strict=True)):
                if actual_type.base_dtype is not expected_type.base_dtype:
                    raise errors.InvalidTypeError(
                        f"the function {self.name!r} requires its {label} to be "
                        f"{', '.join(names)}; in the call, number {i} is "
                        f"{actual_type.base_dtype.name}"
                    )

    # ------------------------------------------------------------------ durable form

    @cached_property
    def definition(self) -> Any:
        """The function as a `FunctionDef` message."""
        return to_message("FunctionDef", self)

    def __repr__(self) -> str:
        inputs = ", ".join(dtype.name for dtype in self.input_types)
        outputs = ", ".join(dtype.name for dtype in self.output_types[: self.results])
        return f"<weft.Function {self.name!r} ({inputs}) -> ({outputs})>"
