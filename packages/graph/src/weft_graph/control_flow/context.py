"""Contexts: the branch of a conditional or the body of a loop to which new nodes are added.

While a context is open, it maps the inputs of nodes that `Graph.add_node` creates. A value from
outside enters through a Switch or an Enter, created once per value. A node without inputs waits for
the context's pivot, so that it runs once per run of the context. The shared value of a variable
that is updated before or inside the context is read again (`reads.py`).

The graph keeps its contexts (`Node.context`), so that passes can recover the functional form: a
loop's variables with their initial and next values, and a conditional's predicate and branches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import cast

from weft_graph.ir.builder import constant
from weft_graph.ir.graph import Graph
from weft_graph.ir.node import Context, Node, Output
from weft_graph.ir.op_def import traits_of
from weft_graph.ir.scopes import check_visible
from weft_graph.ir.traits import Role
from weft_graph.ops import control_flow as primitives
from weft_graph.variables import reads
from weft_graph.variables.reads import SharedValue
from weft_tensor import errors

Recall = Callable[["ControlFlowContext", Output], "Output | None"]


class ControlFlowContext(Context):
    """A part of a graph that runs conditionally or repeatedly.

    Attributes:
      graph: the graph of the context.
      name: unique within the graph; for a loop the name of its frame.
      pivot: the node that nodes without inputs wait for.
      forward: for a context of a gradient, the context whose gradient it computes.
      recall: in a context of a gradient, the function that returns saved forward values; else None.
    """

    outer: ControlFlowContext | None

    def __init__(
        self, graph: Graph, name: str, outer: ControlFlowContext | None, register: bool = True
    ) -> None:
        if register:
            graph.contexts[name] = self
        self.graph = graph
        self.name = name
        self.outer = outer
        self.pivot: Node | None = None
        self.forward: ControlFlowContext | None = None
        self.recall: Recall | None = None
        self._captured: dict[Output, Output] = {}

    @property
    def captures(self) -> dict[Output, Output]:
        """Mapping from outer values to their counterparts inside."""
        return dict(self._captured)

    @property
    def loop(self) -> WhileContext | None:
        """The innermost loop that is or contains the context."""
        context: ControlFlowContext | None = self
        while context is not None and not isinstance(context, WhileContext):
            context = context.outer
        return context

    # ------------------------------------------------------------------ new nodes

    @contextmanager
    def open(self) -> Iterator[None]:
        """Add nodes created inside the block to the context."""
        with self.graph.scopes.inside(self):
            yield

    @contextmanager
    def outside(self, prefix: str | None = None) -> Iterator[None]:
        """Add nodes created inside the block to the enclosing context, without scopes."""
        scopes = self.graph.scopes
        saved_scopes = (
            scopes.context,
            scopes.controls,
            scopes.devices,
            scopes.colocations,
            scopes.name_prefix,
        )
        scopes.context, scopes.controls = self.outer, []
        scopes.devices, scopes.colocations = [], []
        if prefix is not None:
            scopes.name_prefix = prefix
        try:
            yield
        finally:
            (
                scopes.context,
                scopes.controls,
                scopes.devices,
                scopes.colocations,
                scopes.name_prefix,
            ) = saved_scopes

    def admit(
        self, op: str, name: str, inputs: tuple[Output, ...], controls: tuple[Node, ...]
    ) -> tuple[tuple[Output, ...], tuple[Node, ...], ControlFlowContext]:
        """See the base class.

        The shape of a forward value is computed in the forward context, because saving the shape
        takes less memory than saving the value.
        """
        if self.loop is not None and traits_of(op).tells_shape:
            context = context_of(inputs[0])
            if context is not None and _is_forward_of(context, self):
                return inputs, (), context
        scopes = self.graph.scopes
        saved_prefix = scopes.name_prefix
        scopes.name_prefix = name + "/"
        try:
            inner_inputs = tuple([self.capture(source) for source in inputs])
            waits = tuple(dict.fromkeys([self.capture_control(node) for node in controls]))
        finally:
            scopes.name_prefix = saved_prefix
        if (
            self.pivot is not None
            and self._is_free(inner_inputs)
            and not any([self._decides(node) for node in waits])
        ):
            waits = (*waits, self.pivot)
        return inner_inputs, waits, self

    def capture(self, output: Output) -> Output:
        """Return the counterpart of `output` inside the context.

        Raises: InvalidArgumentError: it is in a loop that does not contain this context.
        """
        context = context_of(output)
        if context is self:
            return output
        captured = self._captured.get(output)
        if captured is not None:
            return captured
        if context is not None and context.is_inside(self):
            check_visible(output, self)
            return output
        if self.recall is not None:
            captured = self.recall(self, output)
        elif self.forward is None:
            captured = self._refresh_read(output)
        if captured is None:
            captured = self._import_value(self._to_enclosing(output))
        self._captured[output] = captured
        return captured

    def capture_control(self, node: Node) -> Node:
        """Return a node inside that runs after `node`."""
        home = home_of(node)
        if home is self or (home is not None and home.is_inside(self)):
            return node
        return self._import_control(node)

    def _to_enclosing(self, output: Output) -> Output:
        """Return the counterpart of `output` in the enclosing context."""
        if self.outer is not None:
            return self.outer.capture(output)
        check_visible(output, None)
        return output

    def _refresh_read(self, output: Output) -> Output | None:
        """Return the current value if `output` is an outdated read of a variable, else None."""
        shared_value = reads.shared_value(output)
        return None if shared_value is None else self._current_read(shared_value)

    def _read_in_context(self, shared_value: SharedValue) -> Output:
        """Return a variable's value at the start of the context; in a loop, of each iteration."""
        with self.open():
            return shared_value.read()

    def _current_read(self, shared_value: SharedValue) -> Output | None:
        """Return a read of a variable inside the context; None to use the shared value."""
        raise NotImplementedError

    def _is_free(self, inputs: Sequence[Output]) -> bool:
        """Return True if a node with these inputs would run independently of this context."""
        raise NotImplementedError

    def _decides(self, node: Node) -> bool:
        """Return True if a node runs only when this context runs."""
        home = home_of(node)
        return home is not None and home.is_inside(self) and not is_constant_enter(node)

    def _import_value(self, value: Output) -> Output:
        raise NotImplementedError

    def _import_control(self, node: Node) -> Node:
        raise NotImplementedError


class Conditional:
    """A predicate and the two branches it chooses between.

    Attributes:
      pred: bool, rank 0, in the enclosing context.
      branches: [branch for False, branch for True].
    """

    def __init__(self, pred: Output) -> None:
        self.pred = pred
        self.branches: list[CondContext] = []


class CondContext(ControlFlowContext):
    """One branch of a conditional.

    Attributes:
      conditional: the predicate and both branches.
      branch: the value of the predicate for which it runs.
      results: its results, one for each output of the conditional; set when it is complete.
    """

    def __init__(
        self,
        graph: Graph,
        name: str,
        outer: ControlFlowContext | None,
        conditional: Conditional,
        branch: bool,
        register: bool = True,
    ) -> None:
        super().__init__(graph, name, outer, register)
        self.conditional = conditional
        self.taken = branch
        self.results: tuple[Output, ...] = ()
        conditional.branches.append(self)

    def _current_read(self, shared_value: SharedValue) -> Output | None:
        earlier = shared_value.updates_inside(self.outer)
        late = reads.filter_following([self.conditional.pred.node], earlier)
        return self._read_in_context(shared_value) if late else None

    def _is_free(self, inputs: Sequence[Output]) -> bool:
        return not inputs

    def capture(self, output: Output) -> Output:
        """Return the counterpart of `output`; for a Switch of the forward branch, of its data.

        Data in another branch is not used, because its value is lost in later iterations of a loop.
        """
        node = output.node
        forward = self.forward
        if forward is not None and node.context is forward and _is_capture(node):
            data = node.inputs[0]
            if forward.is_inside(context_of(data)):
                return self.capture(data)
        return super().capture(output)

    def _import_value(self, value: Output) -> Output:
        captured = self._captured.get(value)
        if captured is not None:
            return captured
        self._check_not_in_other_branch(value)
        with self.outside(self.graph.scopes.name_prefix):
            sides = primitives.switch(value, self.conditional.pred)
        node = sides[0].node
        node.context = self
        for side in sides:
            self.graph.prevent_feeding(side)
        captured = self._captured[value] = sides[self.taken]
        return captured

    def _check_not_in_other_branch(self, value: Output) -> None:
        """Reject a value of the other branch, which does not run when this one does."""
        for branch in self.conditional.branches:
            if branch.taken is not self.taken and is_inside(value, branch):
                raise errors.InvalidArgumentError(
                    f"{value.name!r} is in the branch of the conditional {branch.name!r} for "
                    f"{branch.taken}, but has no value in the branch for {self.taken}: compute it "
                    "before the conditional, or in each branch",
                    line=value.node.line or None,
                )

    def _import_control(self, node: Node) -> Node:
        if self.outer is not None:
            return self.outer.capture_control(node)
        check_visible(node, None)
        return node


class WhileContext(ControlFlowContext):
    """The frame of a loop: its condition and its body.

    Attributes:
      parallel_iterations: number of iterations that may run at the same time.
      back_prop: True if gradients may flow through the loop.
      swap_memory: True if saved forward values may be stored on the host.
      maximum_iterations: bound on the number of iterations, in the enclosing context, or None.
      merges, switches, exits, next_values: lists with one item for each loop variable.
      invariants: values from outside that stay the same, and the Enter of each.
    """

    repeats = True

    def __init__(
        self,
        graph: Graph,
        name: str,
        outer: ControlFlowContext | None,
        parallel_iterations: int = 10,
        back_prop: bool = True,
        swap_memory: bool = False,
        maximum_iterations: Output | None = None,
        register: bool = True,
    ) -> None:
        super().__init__(graph, name, outer, register)
        self.parallel_iterations = parallel_iterations
        self.back_prop = back_prop
        self.swap_memory = swap_memory
        self.maximum_iterations = maximum_iterations
        self.merges: list[Node] = []
        self.switches: list[Node] = []
        self.exits: list[Node] = []
        self.next_values: list[Node] = []
        self.cond: Output | None = None
        self._controls: dict[Node, Node] = {}

    def home_of(self, node: Node) -> ControlFlowContext | None:
        """Return the context of a node's outputs: for an Exit of the loop, the enclosing one."""
        leaves = node.role is Role.EXIT and node in self.exits
        return self.outer if leaves else self

    @property
    def invariants(self) -> dict[Output, Output]:
        """Mapping from loop invariants to their counterparts inside."""
        return {
            inner_value.node.inputs[0]: inner_value
            for inner_value in self._captured.values()
            if inner_value.node.context is self and is_constant_enter(inner_value.node)
        }

    def enter(self, value: Output, constant: bool = False, controls: Sequence[Node] = ()) -> Output:
        """Import a value of the enclosing context into the frame, after its control inputs."""
        graph = self.graph
        with self.outside(graph.scopes.name_prefix), graph.control_dependencies(controls):
            inner_value = primitives.enter(value, self.name, constant, self.parallel_iterations)
        inner_value.node.context = self
        self.graph.prevent_feeding(inner_value)
        return inner_value

    def read_what_changes(self) -> None:
        """In the complete loop, read the variables that it updates in each iteration.

        The condition reads them at the start of the iteration. The body reads them when the
        condition is known; the condition may wait for the updates of the previous iteration.
        """
        for value, inner_value in list(self._captured.items()):
            shared_value = reads.shared_value(value)
            if shared_value is None or not is_constant_enter(inner_value.node):
                continue
            if shared_value.updates_inside(self):
                del self._captured[value]  # what is added later reads in the body, too
                self._read_anew(inner_value, shared_value)

    def _read_anew(self, inner_value: Output, shared_value: SharedValue) -> None:
        """Replace a value that was read from a variable outside by a new read for its users."""
        assert self.cond is not None
        users, decision, body = inner_value.consumers(), self.cond.node.index, self.pivot
        in_condition = [node for node in users if node.index < decision]
        in_body = [node for node in users if node.index > decision]
        for pivot, readers in ((self.merges[0], in_condition), (body, in_body)):
            if readers:
                self.pivot = pivot
                value_inside = self._read_in_context(shared_value)
                for node in readers:
                    self._replace(node, inner_value, value_inside)
        self.pivot = body

    def _replace(self, node: Node, old: Output, new: Output) -> None:
        for position, source in enumerate(node.inputs):
            if source is old:
                reason = "variable that its loop updates"
                self.graph.replace_input(node, position, new, reason=reason)

    def _current_read(self, shared_value: SharedValue) -> Output | None:
        if shared_value.updates_inside(self):
            return self._read_in_context(shared_value)
        enters = [merge.inputs[0].node for merge in self.merges]
        starts = [node for e in enters for node in (e.inputs[0].node, *e.controls)]
        late = reads.filter_following(starts, shared_value.updates_inside(self.outer))
        if not late:
            return None
        with self.outside(self.graph.scopes.name_prefix), self.graph.control_dependencies(late):
            value_before_update = shared_value.read()
        return self._import_value(value_before_update)

    def _is_free(self, inputs: Sequence[Output]) -> bool:
        return all([is_constant_enter(source.node) for source in inputs])

    def _import_value(self, value: Output) -> Output:
        entered = self._captured.get(value)
        if entered is None:
            entered = self._captured[value] = self.enter(value, constant=True)
        return entered

    def _import_control(self, node: Node) -> Node:
        entered = self._controls.get(node)
        if entered is None:
            with self.outside(self.graph.scopes.name_prefix):
                capture_control = (
                    self.outer.capture_control(node) if self.outer is not None else node
                )
                check_visible(capture_control, self.outer)
                with self.graph.control_dependencies([capture_control]):
                    token = constant(True, name="after")
            entered = self._controls[node] = self.enter(token, constant=True).node
        return entered


# ------------------------------------------------------------------------------ questions


def home_of(node: Node) -> ControlFlowContext | None:
    """Return the context of a node's outputs: for an Exit, the one that encloses its loop."""
    home = None if node.context is None else node.context.home_of(node)
    return cast("ControlFlowContext | None", home)


def innermost(node: Node) -> ControlFlowContext | None:
    """Return the innermost context of a node."""
    return cast("ControlFlowContext | None", node.context)


def contexts_in(graph: Graph) -> Mapping[str, ControlFlowContext]:
    """Return the contexts of a graph by name, outer ones first."""
    return cast("Mapping[str, ControlFlowContext]", graph.contexts)


def context_of(output: Output) -> ControlFlowContext | None:
    """Return the context of a value."""
    return home_of(output.node)


def is_inside(output: Output, context: ControlFlowContext) -> bool:
    """Return True if a value is in a context or one nested in it."""
    home = context_of(output)
    return home is not None and home.is_inside(context)


def is_constant_enter(node: Node) -> bool:
    """Return True if a node is the Enter of a loop invariant, in the loop's context.

    Loops inside a context that were built from primitives or imported have no separate context.
    """
    return (
        node.role is Role.ENTER
        and node.attrs["is_constant"]
        and (node.context is None or node.context.name == node.attrs["frame_name"])
    )


def _is_capture(node: Node) -> bool:
    """Return True if a node of a branch is the Switch that captures a value."""
    return node.role is Role.SWITCH


def _is_forward_of(flow_context: ControlFlowContext, context: ControlFlowContext) -> bool:
    enclosing: ControlFlowContext | None = context
    while enclosing is not None:
        if enclosing.forward is flow_context:
            return True
        enclosing = enclosing.outer
    return False


def current_context(graph: Graph) -> ControlFlowContext | None:
    """Return the context to which new nodes of a graph are added."""
    return cast("ControlFlowContext | None", graph.scopes.context)
