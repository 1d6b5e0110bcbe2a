"""Saved forward values of a loop for the loop of its gradient: stacks, and an iteration count.

The forward loop gets a counter and pushes, as new nodes; the old ones are not changed.
Pushes of one iteration come before those of the next, and before the count is known outside.
"""

from __future__ import annotations

from weft_graph.control_flow.context import (
    ControlFlowContext,
    WhileContext,
    context_of,
    is_constant_enter,
)
from weft_graph.control_flow.loop import LoopBuilder
from weft_graph.ir.builder import constant, constant_of
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role
from weft_graph.ops import control_flow as primitives, stack
from weft_tensor import dtypes


class History:
    """The values of one forward loop that one gradient needs.

    Args:
      loop: the forward loop.
      again: whether the gradient's loop may run several times for one run of the forward one.
    Attributes:
      count: how many iterations it ran, where it was entered: int32, rank 0.
    """

    def __init__(self, loop: WhileContext, again: bool = False) -> None:
        self.loop = loop
        self.again = again
        self._copies: dict[Output, Output] = {}
        self._stacks: dict[Output, Output] = {}
        self._pushes: list[Node] = []
        self._builder = LoopBuilder(loop)
        with loop.outside():
            zero = constant(0, dtypes.int32, name="f_count")
        with loop.open():
            self._position = self._builder.variable(zero, ())
            self.count = self._builder.leave(self._position)

    def close(self) -> None:
        """Finish the counter; nothing can be kept after this."""
        with self.loop.open():
            with self.loop.graph.control_dependencies(waiting_for(self._pushes)):
                following = self._builder.inside(self._position) + 1
            self._builder.close(self._position, following)

    def recall(
        self, context: ControlFlowContext, output: Output, pops: list[Node]
    ) -> Output | None:
        """Return the counterpart of a forward value in a context of the gradient, or None.

        Args:
          context: the gradient of the very branch or body that `output` is in.
          pops: takes note of what is taken off a stack.
        """
        home = context_of(output)
        if home is None or home is not context.forward:
            return None
        node = output.node
        if home is self.loop and is_constant_enter(node):
            return context.capture(node.inputs[0])
        if node.role is Role.CONSTANT:
            with context.open():
                return constant_of(node.attrs["value"], node.attrs["dtype"], name=_last(node.name))
        handle = self._stack(output)
        if self.again:
            handle = self._copy(context, handle, output)
        with context.open():
            popped = pop(context, handle, output)
        pops.append(popped.node)
        return popped

    def _copy(self, context: ControlFlowContext, handle: Output, like: Output) -> Output:
        """Return a copy of a stack, made each time that the loop of the gradient is entered."""
        copied = self._copies.get(handle)
        if copied is None:
            backward = context.loop
            assert backward is not None
            with backward.outside(), self.loop.graph.control_dependencies([self.count.node]):
                copied = self._copies[handle] = stack.stack_copy(handle, like.dtype)
        return copied

    def _stack(self, output: Output) -> Output:
        """Return the stack on which the values of an output are kept."""
        handle = self._stacks.get(output)
        if handle is None:
            loop = self.loop
            context = context_of(output)
            assert context is not None
            handle = self._stacks[output] = new_stack(loop, output, "f_acc")
            with context.open():
                node = self._builder.inside(self._position).node
                with loop.graph.control_dependencies([node]):
                    pushed = stack.stack_push_v2(handle, output, loop.swap_memory)
            self._pushes.append(pushed.node)
        return handle


def new_stack(loop: WhileContext, like: Output, name: str) -> Output:
    """Return a new stack for values such as `like`, made each time that a loop is entered."""
    with loop.outside():
        return stack.stack_v2(constant(-1, dtypes.int32), like.dtype.base_dtype, name=name)


def pop(context: ControlFlowContext, handle: Output, like: Output) -> Output:
    """Pop a value from a stack in the current context."""
    value = stack.stack_pop_v2(context.capture(handle), like.dtype.base_dtype)
    value.dims = like.dims
    return value


def waiting_for(nodes: list[Node]) -> list[Node]:
    """Return nodes that run after all `nodes` have finished or are dead, as in untaken branches."""
    if all(isinstance(node.context, WhileContext) for node in nodes):
        return nodes
    graph = nodes[0].graph
    with graph.control_dependencies(nodes):
        return [primitives.control_trigger()]


def _last(name: str) -> str:
    return name.rpartition("/")[2]
