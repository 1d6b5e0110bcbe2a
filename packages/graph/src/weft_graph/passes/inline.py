"""Inlining: replacing calls by the bodies of their functions.

The copies of a body's nodes are named `call/node`. A call waits for all of its inputs, and its
results wait for its side effects and control inputs. The copies get control inputs to preserve this
order: for example, a node without inputs that is called in a branch must stay in that branch. After
inlining, common-subexpression elimination can merge values that a gradient recomputes with the
forward values.

`inlining_policy.py` decides which calls are inlined. A function may be marked as equivalent to an
op: the call is replaced by the op if it has a kernel, else by the body.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft_graph.functions.function import Function
from weft_graph.functions.state import is_handle, is_private
from weft_graph.functions.substitutes import HasKernel, op_instead_of
from weft_graph.ir.deep_stack import deeper
from weft_graph.ir.device_spec import parse
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import lookup_op
from weft_graph.ir.op_signature import OpDef
from weft_graph.ir.step_graph import StepGraph, reachable, sort_nodes
from weft_graph.ir.traits import Role
from weft_graph.passes.flow import Flow, has_control_flow, is_free
from weft_graph.passes.inlining_policy import InliningPolicy, Waits
from weft_tensor import errors


def inline_calls(
    step: StepGraph, controls: Waits | None = None, has_kernel: HasKernel | None = None
) -> int:
    """Replace calls by the bodies of their functions.

    Args:
      controls: predicate of the nodes that may have control inputs; none by default.
      has_kernel: predicate of the implementing ops of functions that can run; none by default.
    Returns: the number of replaced calls.
    Raises:
      NotFoundError: a function is not in the library.
      InvalidArgumentError: a call does not match its function.
    """
    calls = [node for node in step.graph.nodes if node.role is Role.CALL]
    if not calls:
        return 0
    keeping = InliningPolicy([function_of(call) for call in calls], controls or (lambda _: False))
    return _Inliner(step, keeping, has_kernel or (lambda _: False)).run()


def function_of(call: Node) -> Function:
    """Return the function that a node calls.

    Raises: NotFoundError: it is not in the library.
    """
    try:
        function: Function = call.graph.functions[call.attrs["f"].name]
        function.check_call(
            [source.dtype for source in call.inputs], [output.dtype for output in call.outputs]
        )
    except errors.OpError as error:
        raise error.with_context(
            op=call.type, node=call.name, line=call.line or None
        ) from error.__cause__
    return function


class _Anchor:
    """A node that runs exactly when a call does, found or created at the first use."""

    def __init__(self, make: Callable[[], Node]) -> None:
        self._make = make
        self._node: Node | None = None

    def node(self) -> Node:
        """Return the node."""
        if self._node is None:
            self._node = self._make()
        return self._node


class _Scope:
    """The destination of the copies of some nodes.

    Attributes:
      prefix: prefix of the names of the copies.
      values: the copies of outputs; for results of calls, the outputs that replace them.
      ends: for each node, the copies that must finish for it to be finished.
      anchor: a node that runs exactly when the call does; None outside of branches and loops.
      waits: control inputs of the call.
      full: outputs that are alive exactly when the call runs.
      device, colocation: device and colocation requests of the call.
    """

    def __init__(self, prefix: str = "", anchor: _Anchor | None = None) -> None:
        self.prefix = prefix
        self.anchor = anchor
        self.values: dict[Output, Output] = {}
        self.ends: dict[Node, tuple[Node, ...]] = {}
        self.waits: tuple[Node, ...] = ()
        self.full: set[Output] = set()
        self.device = ""
        self.colocation: tuple[str, ...] = ()

    def ends_of(self, nodes: Iterable[Node]) -> list[Node]:
        """Return the copies that must finish for all of `nodes` to be finished."""
        return [end for node in nodes for end in self.ends.get(node, ())]


class _Part:
    """The part of a body that one call needs.

    Attributes:
      nodes: sources before users.
      flow: their frames and guards, or None without control flow.
      used: for each call among them, its used outputs.
      waited: nodes that other nodes wait for.
    """

    def __init__(
        self, nodes: Sequence[Node], arguments: Sequence[Node], results: Iterable[Output]
    ) -> None:
        self.nodes = nodes
        self.flow = Flow([*arguments, *nodes]) if has_control_flow(nodes) else None
        self.used: dict[Node, set[int]] = {node: set() for node in nodes if node.role is Role.CALL}
        self.waited: set[Node] = set()
        for output in (*results, *[source for node in nodes for source in node.inputs]):
            if output.node in self.used:
                self.used[output.node].add(output.index)
        for node in nodes:
            self.waited.update(node.controls)

    def is_at_the_top(self, node: Node) -> bool:
        """Return True if a node runs exactly once per run of the body."""
        flow = self.flow
        if flow is None:
            return True
        frame = flow.frame[node]
        if node.role is Role.ENTER:
            assert frame.parent is not None
            frame = frame.parent
        return frame is flow.root and not flow.guard(node)

    def is_in_frame(self, node: Node) -> bool:
        """Return True if a node is in a loop of the body."""
        return self.flow is not None and self.flow.frame[node] is not self.flow.root


class _Inliner:
    def __init__(self, step: StepGraph, keeping: InliningPolicy, has_kernel: HasKernel) -> None:
        self._step = step
        self._has_kernel = has_kernel
        self._keeping = keeping
        self._graph = Graph()
        self._graph.functions = step.graph.functions
        self._graph.origins = step.graph.origins
        self._used_names = {node.name for node in step.graph.nodes}
        self._parts: dict[tuple[Function, frozenset[int]], _Part] = {}
        self._count = 0

    def run(self) -> int:
        """Rebuild the step's graph; return the number of replaced calls."""
        step = self._step
        part = _Part(step.graph.nodes, (), step.fetches)
        part.waited.update(step.targets)
        scope = _Scope()
        self._emit(part, scope)
        step.feeds = [scope.values[feed] for feed in step.feeds]
        step._fetches = [scope.values[output] for output in step.fetches]
        step.targets = list(dict.fromkeys(scope.ends_of(step.targets)))
        step.graph = self._graph
        self._drop_unused()
        step.changes["inline"] += self._count
        return self._count

    def _drop_unused(self) -> None:
        step = self._step
        live = reachable([output.node for output in step.fetches] + step.targets)
        live.update(feed.node for feed in step.feeds)
        dead = [node for node in self._graph.nodes if node not in live]
        if dead:
            self._graph.remove_nodes(dead, reason="inline")

    def _emit(self, part: _Part, scope: _Scope) -> None:
        """Copy nodes, replacing calls by bodies."""
        for node in part.nodes:
            if node.role is Role.CALL:
                self._call(node, part, scope)
            else:
                self._copy(node, part, scope)
        for node in part.nodes:
            if node.role is Role.MERGE:
                self._close_loops(node, scope)

    def _close_loops(self, node: Node, scope: _Scope) -> None:
        """Connect the back edges of a copied Merge, replacing placeholders."""
        counterpart = scope.values[node.outputs[0]].node
        for i, source in enumerate(node.inputs):
            if counterpart.inputs[i] is not scope.values[source]:
                self._graph.replace_input(counterpart, i, scope.values[source], reason="inline")

    # ------------------------------------------------------------------ single nodes

    def _copy(
        self,
        node: Node,
        part: _Part,
        scope: _Scope,
        extra_attrs: dict[str, Any] | None = None,
        instead: tuple[OpDef, dict[str, Any]] | None = None,
    ) -> None:
        """Copy a node, optionally with more attributes or another op."""
        inputs = _inputs(node, scope)
        controls = scope.ends_of(node.controls)
        attrs, device = node.attrs, node.device
        if scope.prefix:
            controls += self._ties(node, part, scope, inputs, controls)
            attrs = _attrs(node, scope)
            device = _device(node, scope)
        if extra_attrs is not None:
            attrs = {**attrs, **extra_attrs}
        op_def = node.op_def
        if instead is not None:
            op_def, attrs = instead
        name = node.name if not scope.prefix else self._name(scope.prefix + node.name)
        counterpart = self._add(node, op_def, name, inputs, attrs, controls)
        counterpart.device = device
        if node.forward is not None:
            counterpart.forward = next(iter(scope.ends.get(node.forward, ())), None)
        scope.values.update(zip(node.outputs, counterpart.outputs, strict=True))
        scope.ends[node] = (counterpart,)

    def _add(
        self,
        template: Node,
        op_def: OpDef,
        name: str,
        inputs: tuple[Output, ...],
        attrs: dict[str, Any],
        controls: Sequence[Node],
    ) -> Node:
        types = [output.dtype for output in template.outputs]
        shapes = [output.dims for output in template.outputs]
        counterpart = self._graph.add_derived(template, op_def, name, inputs, attrs, types, shapes)
        if controls:
            self._graph.set_control_inputs(counterpart, controls, reason="inline")
        return counterpart

    def _name(self, base_name: str) -> str:
        name, number = base_name, 0
        while name in self._used_names:
            number += 1
            name = f"{base_name}_{number}"
        self._used_names.add(name)
        return name

    def _ties(
        self,
        node: Node,
        part: _Part,
        scope: _Scope,
        inputs: Sequence[Output],
        controls: Sequence[Node],
    ) -> list[Node]:
        """Return the additional control inputs of a copied body node."""
        ties: list[Node] = []
        top = part.is_at_the_top(node)
        if scope.waits and _is_tied(node, top, part.is_in_frame(node)):
            ties += scope.waits
        if scope.anchor is None or not top or (node.role is Role.CONSTANT and not controls):
            return ties
        scope.full.update(node.outputs)
        if node.role is not Role.MERGE and node.role is not Role.EXIT:
            tied = any(source in scope.full for source in inputs)
            tied = tied or any(not scope.full.isdisjoint(c.outputs) for c in controls)
            if not tied:
                ties.append(scope.anchor.node())
        return ties

    # ------------------------------------------------------------------ calls

    def _call(self, call: Node, part: _Part, scope: _Scope) -> None:
        function = function_of(call)
        used = part.used[call]
        is_waited = call in part.waited
        substitute = op_instead_of(function, self._has_kernel)
        if substitute is not None:
            self._copy(call, part, scope, instead=substitute)
            return
        if self._keeping.keeps(function):
            call_attrs = {"_used": tuple(sorted(used)), "_reads_only": not function.effects}
            self._copy(call, part, scope, call_attrs)
            return
        self._count += 1
        if is_waited:
            used = {*used, *range(function.results)}
        inner = self._enter(call, function, part, scope)
        inner.values = dict(
            zip(function.inputs, [scope.values[s] for s in call.inputs], strict=True)
        )
        inner.ends = {arg.node: (value.node,) for arg, value in inner.values.items()}
        body = self._part(function, frozenset(used))
        deeper(self._emit, body, inner)
        effects = inner.ends_of(function.effects)
        for i in sorted(used):
            scope.values[call.outputs[i]] = self._result(call, i, function, inner, effects)
        if scope.anchor is not None and part.is_at_the_top(call):
            scope.full.update(call.outputs)
        if is_waited:
            scope.ends[call] = (self._end(call, used, scope, inner, effects),)

    def _part(self, function: Function, used: frozenset[int]) -> _Part:
        part = self._parts.get((function, used))
        if part is None:
            results = [function.outputs[i] for i in sorted(used)]
            arguments = [output.node for output in function.inputs]
            stops = set(function.inputs)
            members = reachable([o.node for o in results] + list(function.effects), stops)
            nodes = sort_nodes(members.difference(arguments), stops)
            part = self._parts[function, used] = _Part(nodes, arguments, results)
        return part

    def _enter(self, call: Node, function: Function, part: _Part, scope: _Scope) -> _Scope:
        """Return the scope of a call's body."""
        routed = scope.anchor is not None or not part.is_at_the_top(call)
        full, ties = self._guard_inputs(call, part, scope) if routed else ([], [])
        values = [scope.values[source] for source in call.inputs]
        ends = scope.ends_of(call.controls)
        if function.stateful:  # what it reads may be updated by what its arguments wait for
            ends += [v.node for v in dict.fromkeys(values) if _needs_running_node(v)]
        if not part.is_in_frame(call):  # else what enters the frame has waited
            ends += [w for w in scope.waits if w not in ends]
        inner = _Scope(scope.prefix + call.name + "/")
        inner.waits = tuple(ends)
        if routed:
            inner.full.update(full)
            name = inner.prefix + "anchor"
            inner.anchor = _Anchor(lambda: self._anchor(call, name, full, ties, values, ends))
        inner.device = _device(call, scope)
        inner.colocation = _colocation(call, scope)
        return inner

    def _guard_inputs(
        self, call: Node, part: _Part, scope: _Scope
    ) -> tuple[list[Output], list[Node]]:
        """Return the data and control inputs of a call that are alive exactly when it runs."""
        flow = part.flow
        if flow is None or part.is_at_the_top(call):
            full = [scope.values[s] for s in call.inputs if scope.values[s] in scope.full]
            ties = [
                end
                for end in scope.ends_of(call.controls)
                if not scope.full.isdisjoint(end.outputs)
            ]
            return full, ties
        guard, frame = flow.guard(call), flow.frame[call]
        full = [
            scope.values[source]
            for source in call.inputs
            if flow.output_guard(source) == guard
            and flow.frame[source.node] is frame
            and not is_free(source.node)
        ]
        ties = []
        for control in call.controls:
            if flow.frame[control] is frame and flow.guard(control) == guard:
                ties += scope.ends.get(control, ())
        return full, ties

    def _anchor(
        self,
        call: Node,
        name: str,
        full: Sequence[Output],
        ties: Sequence[Node],
        values: Sequence[Output],
        nodes: Sequence[Node],
    ) -> Node:
        if ties:
            return ties[0]
        for value in full:
            if value.node.role is not Role.SWITCH:
                return value.node
        if full:
            return self._identity(call, name, full[0], ()).node
        copies = [
            self._identity(call, f"{name}_{i}", value, ()).node
            for i, value in enumerate(values)
            if not is_free(value.node)
        ]
        node = self._graph.add_derived(call, lookup_op("NoOp"), self._name(name))
        self._graph.set_control_inputs(node, [*copies, *nodes], reason="inline")
        return node

    def _identity(self, call: Node, name: str, value: Output, controls: Sequence[Node]) -> Output:
        dtype = value.dtype.base_dtype
        identity = lookup_op("Identity")
        node = self._graph.add_derived(
            call, identity, self._name(name), (value,), {"T": dtype}, (dtype,), (value.dims,)
        )
        if controls:
            self._graph.set_control_inputs(node, controls, reason="inline")
        return node.outputs[0]

    def _result(
        self, call: Node, i: int, function: Function, inner: _Scope, effects: Sequence[Node]
    ) -> Output:
        value = inner.values[function.outputs[i]]
        controls = [*effects, *inner.waits]
        if inner.anchor is not None and value not in inner.full:
            controls.append(inner.anchor.node())
        if not controls:
            return value
        result = self._identity(call, f"{inner.prefix}output_{i}", value, controls)
        result.node.device = inner.device
        inner.full.add(result)
        return result

    def _end(
        self,
        call: Node,
        used: Iterable[int],
        scope: _Scope,
        inner: _Scope,
        effects: Sequence[Node],
    ) -> Node:
        """Return a node that finishes with a call, for nodes that wait for the call."""
        nodes: list[Node] = [*effects, *inner.waits]
        for i in sorted(used):
            value = scope.values[call.outputs[i]]
            if value.node.role is Role.SWITCH or value.node.role is Role.ENTER:
                value = self._identity(call, f"{inner.prefix}output_{i}", value, ())
            nodes.append(value.node)
        if inner.anchor is not None:
            nodes.append(inner.anchor.node())
        name = scope.prefix + call.name
        name = name if not scope.prefix else self._name(name)
        node = self._graph.add_derived(call, lookup_op("NoOp"), name)
        node.device = inner.device
        self._graph.set_control_inputs(node, nodes, reason="inline")
        return node


# ------------------------------------------------------------------------------- helpers


def _inputs(node: Node, scope: _Scope) -> tuple[Output, ...]:
    """Return the copies of a node's inputs; placeholders for back edges not yet copied."""
    values = scope.values
    if node.role is not Role.MERGE:
        return tuple([values[source] for source in node.inputs])
    forward_value = next(values[source] for source in node.inputs if source in values)
    return tuple([values.get(source, forward_value) for source in node.inputs])


def _needs_running_node(value: Output) -> bool:
    """Return True if a value is available only after a node has run."""
    ready = value.node.role in (Role.CONSTANT, Role.ARGUMENT)
    return bool(value.node.controls) or not (ready or is_handle(value))


def _is_tied(node: Node, top: bool, in_frame: bool) -> bool:
    """Return True if a node must wait for its call's control inputs; results always do."""
    if node.role is Role.ENTER:
        return top
    if in_frame:
        return False
    if top and not node.inputs and not node.controls:
        return node.role is not Role.CONSTANT
    if node.op_def.stateful:
        return not is_private(node)
    return any(source.dtype.is_ref for source in node.inputs)


def _attrs(node: Node, scope: _Scope) -> dict[str, Any]:
    attrs = node.attrs
    if "frame_name" in attrs:
        attrs = {**attrs, "frame_name": scope.prefix + attrs["frame_name"]}
    if attrs.get("seed") or attrs.get("seed2"):  # each call has a stream of its own
        attrs = {**attrs, "seed2": _mix_seed(attrs["seed2"], scope.prefix)}
    colocation = _colocation(node, scope)
    if colocation or "_class" in attrs:
        attrs = {**attrs, "_class": tuple([f"loc:@{name}" for name in colocation])}
    return attrs


def _mix_seed(seed: int, call: str) -> int:
    """Return a nonzero 63-bit seed for a call."""
    digest = hashlib.blake2b(f"{seed} {call}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1 or 1


def _colocation(node: Node, scope: _Scope) -> tuple[str, ...]:
    """Return the colocation requests of a node, or those of the call if it has none."""
    if "_class" not in node.attrs:
        return scope.colocation
    if not scope.prefix:
        return node.colocation
    locations = []
    for name in node.colocation:
        colocated = node.graph.find_node(name)
        replacement = (
            None
            if colocated is None or not colocated.outputs
            else scope.values.get(colocated.outputs[0])
        )
        if replacement is None:
            locations.append(scope.prefix + name)
        elif replacement.node.role is not Role.ARGUMENT:  # feeds have no device yet
            locations.append(replacement.node.name)
    return tuple(locations)


def _device(node: Node, scope: _Scope) -> str:
    """Return the device request of a node, with missing parts from the call."""
    if not scope.device or not node.device:
        return node.device or scope.device
    return parse(scope.device).merge(parse(node.device)).to_string()
