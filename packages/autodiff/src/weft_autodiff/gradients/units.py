"""Units of differentiation: a node, a loop, or a conditional with both of its branches."""

from __future__ import annotations

from weft_graph.control_flow.context import (
    CondContext,
    Conditional,
    ControlFlowContext,
    WhileContext,
    innermost,
    is_constant_enter,
)
from weft_graph.ir.node import Node, Output
from weft_graph.ir.traits import Role
from weft_tensor import errors

Unit = Node | WhileContext | Conditional
Level = ControlFlowContext | None


def unit_of(output: Output, level: Level) -> Unit:
    """Return the unit that produces an output, seen from a branch or loop body, or None.

    The handle of a stack counts as an output of the loop that pushes onto it: the gradients of
    popped values flow back along it.
    """
    node = output.node
    if node.role is Role.STACK:
        push = push_of(output)
        node = node if push is None else push
    elif node.context is None:
        return conditional_of(node) or node if node.role is Role.MERGE else node
    common_level = _common_level(innermost(node), level)
    if node.role is Role.EXIT and node.context is not None and node.context.outer is common_level:
        assert isinstance(node.context, WhileContext)
        return node.context
    if node.role is Role.MERGE and node.context is common_level:
        return conditional_of(node) or node
    inner = node.context
    while inner is not None and inner.outer is not common_level:
        inner = inner.outer
    if inner is None or node.context is common_level:
        return node
    if isinstance(inner, WhileContext):
        return inner
    assert isinstance(inner, CondContext)
    return inner.conditional


def _common_level(context: ControlFlowContext | None, level: Level) -> Level:
    """Return the innermost context that contains both contexts."""
    enclosing = level
    while enclosing is not None and (context is None or not context.is_inside(enclosing)):
        enclosing = enclosing.outer
    return enclosing


def conditional_of(merge: Node) -> Conditional | None:
    """Return the conditional that a Merge belongs to, or None."""
    context = merge.inputs[0].node.context
    if isinstance(context, CondContext) and merge.inputs[0] in context.results:
        return context.conditional
    return None


def inputs_of(unit: Unit) -> list[Output]:
    """Return the values from outside that a unit reads."""
    if isinstance(unit, Node):
        return list(unit.inputs)
    if isinstance(unit, WhileContext):
        return [initial_value(merge) for merge in unit.merges] + list(unit.invariants)
    inputs: dict[Output, None] = {}
    for branch in unit.branches:
        inputs.update(dict.fromkeys(captured_values(branch)))
    return list(inputs)


def initial_value(merge: Node) -> Output:
    """Return the initial value of a loop variable, in the enclosing context."""
    return merge.inputs[0].node.inputs[0]


def captured_values(branch: CondContext) -> dict[Output, Output]:
    """Return the outer values that a branch captures, with their counterparts in it."""
    return {
        inner_value.node.inputs[0]: inner_value
        for inner_value in branch.captures.values()
        if inner_value.node.context is branch and inner_value.node.role is Role.SWITCH
    }


def push_of(handle: Output) -> Node | None:
    """Return the push onto a stack, which may be in a loop or a branch of one."""
    stack = [handle]
    while stack:
        output = stack.pop()
        for user in output.consumers():
            if user.role is Role.PUSH and user.inputs[0] is output:
                return user
            if is_constant_enter(user):
                stack.append(user.outputs[0])
            elif user.role is Role.SWITCH:
                stack.extend(user.outputs)
    return None


def manual_loop_error(node: Node) -> errors.UnimplementedError:
    """Return the error for a loop without a context, which its gradient requires."""
    return errors.UnimplementedError(
        f"the gradient of {node.name!r} requires control flow that was built by cond or "
        "while_loop; its ops were created individually or imported from a GraphDef, which does "
        "not record this structure (a MetaGraph does)",
        op=node.type,
        node=node.name,
        line=node.line or None,
    )
