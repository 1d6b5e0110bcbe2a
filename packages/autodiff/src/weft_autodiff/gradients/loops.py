"""The gradient of a loop: a loop with the same trip count in reverse (paper, section 4.4).

A loop is differentiated as one unit. Its body is walked once, inside the body of a new loop. The
variables of the new loop are the gradients of the forward loop's variables, and a sum for each loop
invariant. Forward values are popped off stacks (`history.py`). The gradients of popped values are
pushed onto stacks in turn, so the same code can differentiate its own result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft_autodiff.gradients.history import History, join_nodes, new_stack, pop
from weft_autodiff.gradients.path import Path
from weft_autodiff.gradients.units import initial_value, push_of
from weft_autodiff.gradients.values import Grad, as_dense, is_trainable, shape_for, zeros_for
from weft_autodiff.gradients.walk import Pushed, Walk
from weft_graph.control_flow.context import ControlFlowContext, WhileContext, current_context
from weft_graph.control_flow.loop import LoopBuilder, fits
from weft_graph.control_flow.tensor_array import TensorArray, rebuild
from weft_graph.ir.builder import out
from weft_graph.ir.indexed_slices import IndexedSlices
from weft_graph.ir.node import Node, Output
from weft_graph.ops import comparison, identity, stack
from weft_tensor import dtypes
from weft_tensor.shape import Dims, merge_dims


def differentiate_loop(
    walk: Walk, loop: WhileContext, outputs: Sequence[Output], path: Path
) -> None:
    """Propagate gradients of a loop's outputs to its inputs.

    Args:
      walk: the backward pass over the level of the loop.
      outputs: outputs of the loop that lead to targets.
      path: the path in that level.
    """
    if not loop.back_prop:
        return
    pushed = [
        (push, handle)
        for push, handle in walk.pushed
        if push.context is not None and push.context.is_inside(loop)
    ]
    for output in outputs:
        handle = walk.total(output)
        if output.dtype is dtypes.resource and isinstance(handle, Output):
            push = push_of(output)
            assert push is not None
            pushed.append((push, handle))
    BackwardLoop(walk, loop, pushed, path).build()


class BackwardLoop:
    """The loop that computes the gradient of another loop.

    Attributes:
      forward: the loop that is differentiated.
      context: the new loop.
    """

    def __init__(
        self, walk: Walk, forward: WhileContext, pushed: Sequence[Pushed], path: Path
    ) -> None:
        self.forward = forward
        self._walk = walk
        self._path = path
        self._pushed = list(pushed)
        self._graph = walk.graph
        self._stacked: list[Node] = []
        count = len(forward.merges)
        self._following = [node.inputs[0] for node in forward.next_values[:count]]
        self._invariants = {
            key: inner_value
            for key, inner_value in forward.invariants.items()
            if is_trainable(key) and path.leads_to(key)
        }
        self._exit_grads = [as_dense(walk.total(e.outputs[0])) for e in forward.exits[:count]]
        self._active = self._active_variables()

    # ------------------------------------------------------------------ activity

    def _parameters(self, positions: Iterable[int]) -> list[Output]:
        """Return the loop variables as the body and the condition read them."""
        forward = self.forward
        return [
            output
            for i in positions
            for output in (forward.switches[i].outputs[1], forward.merges[i].outputs[0])
        ]

    def _body_path(self, targets: Sequence[Output], varied: Iterable[int]) -> Path:
        sources = [*self._parameters(varied), *self._invariants.values()]
        return Path(self._graph, self.forward, targets, sources, self._stops())

    def _stops(self) -> set[Output]:
        interval = range(len(self.forward.merges))
        return {*self._parameters(interval), *self.forward.invariants.values()}

    def _active_variables(self) -> list[int]:
        """Return the variables that depend on sources and affect outputs with gradients."""
        forward = self.forward
        indices = [i for i, m in enumerate(forward.merges) if is_trainable(m.outputs[0])]
        varied = {i for i in indices if self._path.leads_to(initial_value(forward.merges[i]))}
        while True:
            path = self._body_path([self._following[i] for i in indices], varied)
            added = {i for i in indices if path.leads_to(self._following[i])} - varied
            if not added:
                break
            varied |= added
        useful = {i for i in indices if self._exit_grads[i] is not None}
        pushed = [push.inputs[1] for push, _ in self._pushed if push.context is forward]
        while True:
            path = self._body_path([*[self._following[i] for i in useful], *pushed], varied)
            added = {
                i for i in indices if any(path.meets(o) for o in self._parameters([i]))
            } - useful
            if not added:
                break
            useful |= added
        return sorted(varied & useful)

    # ------------------------------------------------------------------ building

    def build(self) -> None:
        """Build the loop and propagate its results."""
        if not self._active and not self._invariants:
            return
        forward, graph = self.forward, self._graph
        self._history = History(forward, is_repeated=_runs_again(forward, current_context(graph)))
        starts = [self._start(i) for i in self._active]
        context = self.context = WhileContext(
            graph,
            graph.unique_name("while_context"),
            current_context(graph),
            forward.parallel_iterations,
            forward.back_prop,
            forward.swap_memory,
        )
        context.forward = forward
        context.recall = lambda inner, output: self._history.recall(inner, output, self._stacked)
        self._builder = LoopBuilder(context)
        with context.open():
            counter = self._builder.variable(self._history.count, ())
            variables = [
                self._builder.variable(start, forward.merges[i].outputs[0].dims)
                for start, i in zip(starts, self._active, strict=True)
            ]
            self._builder.condition(
                comparison.greater_equal(self._builder.merged(counter), 1, name="b_count_more")
            )
            sums = self._body(variables)
            with graph.control_dependencies(join_nodes(self._stacked)):
                num_left = self._builder.inside(counter) - 1
            self._close(num_left, sums)
            results = [self._builder.leave(i) for i in range(len(context.merges))]
        self._history.close()
        self._flow_on(results, variables, sums)

    def _start(self, position: int) -> Output:
        grad = self._exit_grads[position]
        exit_value = self.forward.exits[position].outputs[0]
        return zeros_for(exit_value) if grad is None else grad

    def _body(self, variables: Sequence[int]) -> list[_Sum]:
        """Walk the body backward; return its sums and the next values of all variables."""
        forward = self.forward
        walk = self._walk.inner(forward, self, self._pushed)
        for i, position in zip(self._active, variables, strict=True):
            walk.receive(self._following[i], self._builder.inside(position))
        sources = [*self._parameters(self._active), *self._invariants.values()]
        walk.back([self._following[i] for i in self._active], sources, self._stops())
        self._next = [self._next_grad(walk, i) for i in self._active]
        sums = []
        for key, inner_value in self._invariants.items():
            total = walk.total(inner_value)
            if total is not None:
                sums.append(_Sum(self, key, total))
        return sums

    def _next_grad(self, walk: Walk, position: int) -> Output:
        parts = [as_dense(walk.total(o)) for o in self._parameters([position])]
        present = [part for part in parts if part is not None]
        dims = self.forward.merges[position].outputs[0].dims
        if not present:
            return _set_static_shape(zeros_for(self.forward.switches[position].outputs[1]), dims)
        grad = present[0] if len(present) == 1 else out("AddN", [present])
        return _set_static_shape(grad, dims)

    def _close(self, num_left: Output, sums: Sequence[_Sum]) -> None:
        following = [num_left, *self._next]
        for total in sums:
            following += total.following
        for position, value in enumerate(following):
            self._builder.close(position, value)

    def _flow_on(
        self, results: Sequence[Output], variables: Sequence[int], sums: Sequence[_Sum]
    ) -> None:
        for i, position in zip(self._active, variables, strict=True):
            self._walk.receive(initial_value(self.forward.merges[i]), results[position])
        for total in sums:
            self._walk.receive(total.output, total.result(results))

    # ------------------------------------------------------------------ sums and stacks

    def variable(self, initial: Output, dims: Dims) -> int:
        """Add a variable to the new loop while its body is being built."""
        with self.context.open():
            return self._builder.variable(initial, dims)

    def inside(self, position: int) -> Output:
        """Return a variable as the body reads it."""
        return self._builder.inside(position)

    def left(self) -> Output:
        """Return the number of remaining iterations, including this one: int32, rank 0."""
        return self._builder.inside(0)

    def pop(self, handle: Output, like: Output) -> Output:
        """Return this iteration's gradient of a value that the forward loop pushed."""
        context = current_context(self._graph)
        assert context is not None
        popped = pop(context, handle, like)
        self._stacked.append(popped.node)
        return popped

    def push(self, grad: Output) -> Output:
        """Push a gradient for the gradient loop of the pushing loop; return its stack."""
        handle = new_stack(self.context, grad, "b_acc")
        with self._graph.control_dependencies([self._builder.inside(0).node]):
            pushed = stack.stack_push_v2(handle, grad, self.forward.swap_memory)
        self._stacked.append(pushed.node)
        return handle


class _Sum:
    """The gradient of a loop invariant, summed over all iterations.

    Dense gradients are added. Slices are collected and concatenated after the loop. The gradient
    stack of a stack is passed on when it is complete.

    Attributes:
      output: the value whose gradient it is, outside of the forward loop.
      following: the next values of its loop variables.
    """

    def __init__(self, loop: BackwardLoop, output: Output, total: Grad) -> None:
        self.output = output
        self._total = total
        self.following: list[Output] = []
        self._positions: list[int] = []
        self._arrays: list[TensorArray] = []
        if isinstance(total, IndexedSlices):
            self._collect(loop, total)
        elif total.dtype is not dtypes.resource:
            self._add(loop, total)

    def _add(self, loop: BackwardLoop, total: Output) -> None:
        with loop.context.outside():
            zeros = zeros_for(self.output)
        dims = zeros.dims
        position = loop.variable(zeros, dims)
        self._positions = [position]
        self.following = [_set_static_shape(loop.inside(position) + total, dims)]

    def _collect(self, loop: BackwardLoop, total: IndexedSlices) -> None:
        for part in (total.values, total.indices):
            inner = None if part.dims is None else part.dims[1:]
            with loop.context.outside():
                count = loop.context.merges[0].inputs[0].node.inputs[0]
                array = TensorArray(
                    part.dtype,
                    size=count,
                    element_shape=None if inner is None else [None, *inner],
                    infer_shape=False,
                )
            position = loop.variable(array.flow, ())
            array = _with_flow(array, loop.inside(position)).write(loop.left() - 1, part)
            self._arrays.append(array)
            self._positions.append(position)
            self.following.append(array.flow)

    def result(self, results: Sequence[Output]) -> Grad:
        """Return the sum as computed by the loop."""
        total = self._total
        if isinstance(total, IndexedSlices):
            values, indices = [
                _with_flow(array, results[position]).concat()
                for array, position in zip(self._arrays, self._positions, strict=True)
            ]
            return IndexedSlices(values, indices, shape_for(self.output))
        if self._positions:
            return results[self._positions[0]]
        with total.graph.control_dependencies([results[0].node]):
            return identity.identity(total)


def _runs_again(forward: WhileContext, context: ControlFlowContext | None) -> bool:
    """Return True if a loop in `context` runs several times per run of the forward loop."""
    flow_contexts: list[ControlFlowContext] = []
    outer = forward.outer
    while outer is not None:
        flow_contexts.append(outer)
        outer = outer.outer
    while context is not None and context not in flow_contexts:
        if isinstance(context, WhileContext) and context.forward not in flow_contexts:
            return True
        context = context.outer
    return False


def _with_flow(array: TensorArray, flow: Output) -> TensorArray:
    return rebuild(array, flow)


def _set_static_shape(value: Output, dims: Dims) -> Output:
    """Return `value` with the static shape of its variable."""
    if fits(value.dims, dims):
        return value
    shaped = identity.identity(value)
    shaped.dims = merge_dims(value.dims, dims)
    return shaped
