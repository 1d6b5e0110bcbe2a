"""Saved forward values of a loop for its gradient loop: stacks and an iteration count.

A counter and pushes are added to the forward loop as new nodes; its other nodes do not change. The
pushes of one iteration finish before those of the next, and before the count leaves the loop.
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
      again: True if the gradient loop may run several times per run of the forward loop.
    Attributes:
      count: the number of iterations, in the context around the loop: int32, rank 0.
    """

    def __init__(self, loop: WhileContext, is_repeated: bool = False) -> None:
        self.loop = loop
        self.is_repeated = is_repeated
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
        """Finish the counter; no value can be saved after this."""
        with self.loop.open():
            with self.loop.graph.control_dependencies(join_nodes(self._pushes)):
                following = self._builder.inside(self._position) + 1
            self._builder.close(self._position, following)

    def recall(
        self, context: ControlFlowContext, output: Output, pops: list[Node]
    ) -> Output | None:
        """Return the counterpart of a forward value in a context of the gradient, or None.

        Args:
          context: the gradient context of the branch or body that contains `output`.
          pops: records the values that are popped.
        """
        home = context_of(output)
        if home is None or home is not context.forward:
            return None
        node = output.node
        if home is self.loop and is_constant_enter(node):
            return context.capture(node.inputs[0])
        if node.role is Role.CONSTANT:
            with context.open():
                return constant_of(
                    node.attrs["value"], node.attrs["dtype"], name=_last_component(node.name)
                )
        handle = self._make_stack(output)
        if self.is_repeated:
            handle = self._copy(context, handle, output)
        with context.open():
            popped = pop(context, handle, output)
        pops.append(popped.node)
        return popped

    def _copy(self, context: ControlFlowContext, handle: Output, like: Output) -> Output:
        """Return a copy of a stack; each run of the gradient loop makes its own copy."""
        copied = self._copies.get(handle)
        if copied is None:
            backward = context.loop
            assert backward is not None
            with backward.outside(), self.loop.graph.control_dependencies([self.count.node]):
                copied = self._copies[handle] = stack.stack_copy(handle, like.dtype)
        return copied

    def _make_stack(self, output: Output) -> Output:
        """Return the stack that saves the values of an output."""
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
    """Return a stack for values such as `like`; each run of the loop creates its own."""
    with loop.outside():
        return stack.stack_v2(constant(-1, dtypes.int32), like.dtype.base_dtype, name=name)


def pop(context: ControlFlowContext, handle: Output, like: Output) -> Output:
    """Pop a value from a stack in the current context."""
    value = stack.stack_pop_v2(context.capture(handle), like.dtype.base_dtype)
    value.dims = like.dims
    return value


def join_nodes(nodes: list[Node]) -> list[Node]:
    """Return nodes that run after all `nodes` have finished or are dead, as in untaken branches."""
    if all(isinstance(node.context, WhileContext) for node in nodes):
        return nodes
    graph = nodes[0].graph
    with graph.control_dependencies(nodes):
        return [primitives.control_trigger()]


def _last_component(name: str) -> str:
    return name.rpartition("/")[2]
