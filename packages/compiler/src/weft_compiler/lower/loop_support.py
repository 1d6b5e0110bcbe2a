"""Checks, independent of shapes, that a loop can be compiled."""

from __future__ import annotations

from itertools import pairwise

from weft_compiler.lower.complex_numbers import is_complex
from weft_compiler.lower.region import (
    is_computable,
    reads_state,
    unsupported_reason,
)
from weft_compiler.lower.registry import (
    kernel_preference_reason,
    known_operands,
    rule_of,
    update_of,
)
from weft_compiler.lower.unique_rows import updates_of_rows
from weft_graph.ir.node import Node
from weft_graph.ir.traits import Role
from weft_graph.passes.flow import only_waits
from weft_graph.passes.whole_loops import (
    USES,
    LoopStorage,
    Use,
    WholeLoop,
    gradient_source,
    passes_variable,
    reads_rows,
    updated_references,
)
from weft_tensor import dtypes

_ROUTED = frozenset({Role.SWITCH, Role.MERGE, Role.LOOP_COND, Role.CONSTANT, Role.TRIGGER})


def unsupported_loop_reason(loop: WholeLoop) -> str:
    """Return why a loop cannot be lowered for any shapes, or ""."""
    frame = loop.loop.frame
    for merge in frame.merges:
        dtype = merge.outputs[0].dtype
        if dtype.is_ref or not is_computable(dtype):
            return f"its variable {merge.name!r} has type {dtype.name}"
    for node in loop.nodes:
        reason = _unsupported_body_reason(loop, node)
        if reason:
            return f"node {node.name!r}: {reason}"
    variables = [loop.enters[position].inputs[0] for position in (*loop.reads, *loop.updates)]
    if any(variables.count(loop.enters[position].inputs[0]) > 1 for position in loop.updates):
        return "it receives the same variable twice"
    for tensor_list in loop.kept:
        other_nodes = [
            item
            for item in loop.kept
            if item.store == tensor_list.store and item is not tensor_list
        ]
        if other_nodes or (tensor_list.use is Use.READ and len(tensor_list.nodes) > 1):
            name = tensor_list.nodes[0].name
            return f"{name!r} is not the only operation on its TensorArray or stack"
        if tensor_list.use in (Use.PUSH, Use.POP) and not _is_stack_discipline(loop, tensor_list):
            return (
                f"{tensor_list.nodes[-1].name!r} is not in the loop for which its stack is created"
            )
    return ""


def _is_stack_discipline(loop: WholeLoop, storage: LoopStorage) -> bool:
    """Return True if a stack and the stacks on it are used one loop level at a time.

    The outermost stack must be used in this loop, and each additional one in the next inner loop.
    The handle of a stack that is created in a branch must be pushed in that branch, so that each
    handle matches the values that were pushed since the previous handle.
    """
    flow = loop.flow
    frames = [flow.frame[node] for node in storage.nodes]
    makes = {push: key for key, push in loop.stacks.items()}
    result = [(node, makes[node]) for node in storage.nodes if node in makes]
    return (
        frames[0] is loop.loop.frame
        and all(inner.parent is outer for outer, inner in pairwise(frames))
        and all(
            flow.frame[stack] is flow.frame[push] and flow.guard(stack) == flow.guard(push)
            for push, stack in result
        )
    )


def _unsupported_body_reason(loop: WholeLoop, node: Node) -> str:
    if node.role in _ROUTED or only_waits(node) or node in loop.stacks:
        return ""
    if node.type in USES:
        return _unsupported_list_reason(loop, node)
    if gradient_source(node) or passes_variable(node) or _reads(loop, node):
        return ""
    if updated_references(node):
        return _unsupported_update_reason(loop, node)
    if is_complex(node):
        return "it has complex values"
    traits = node.op_def.traits
    has_state = traits.stateful and not (traits.random and rule_of(node.type) is not None)
    if has_state or not node.outputs or not node.inputs:
        return "it has state"
    if any(
        source.dtype.is_ref and loop.variable_at(source) not in loop.reads | loop.updates
        for source in node.inputs
    ):
        return "it reads a variable"
    return "" if updates_of_rows(node) else unsupported_reason(node) or _unknown_value_reason(node)


def _unsupported_list_reason(loop: WholeLoop, node: Node) -> str:
    """Return why a TensorArray or stack operation cannot be lowered, or ""."""
    if not any(node in tensor_list.nodes for tensor_list in loop.kept):
        return "its TensorArray or stack is unknown"
    handles = node.outputs[0].dtype is dtypes.resource
    known_value = all(is_computable(v.dtype) for v in (*node.inputs[1:], *node.outputs))
    return (
        "" if handles or known_value else f"it stores values of type {node.outputs[0].dtype.name}"
    )


def _reads(loop: WholeLoop, node: Node) -> bool:
    """Return True if the node reads a variable that the loop reads or updates."""
    reads = reads_state(node) or (reads_rows(node) and is_computable(node.outputs[0].dtype))
    return reads and (
        loop.variable_read_by(node) is not None
        or loop.variable_at(node.inputs[0]) in loop.reads | loop.updates
    )


def _unsupported_update_reason(loop: WholeLoop, node: Node) -> str:
    """Return why a node that changes variables cannot be lowered, or ""."""
    update = update_of(node.type)
    if update is None:
        return "it has state"
    indices = [loop.variable_at(source) for source in updated_references(node)]
    if None in indices or len(updated_references(node)) != update.states:
        return "the variable that it updates is unknown"
    each_once = any(updates_of_rows(source.node) for source in node.inputs)
    per_iteration = update.rows is not None and update.states > 1 and not each_once
    if len(set(indices)) < len(indices) or per_iteration:
        return "it updates several variables together"
    return unsupported_reason(node) or kernel_preference_reason(node)


def _unknown_value_reason(node: Node) -> str:
    """Return the reason if lowering needs the value of an operand that is not constant, or ""."""
    for position in known_operands(node):
        source = node.inputs[position].node
        while source.role in (Role.ENTER, Role.SWITCH) or source.op_def.traits.identity:
            source = source.inputs[0].node
        if source.role is not Role.CONSTANT and source.op_def.value_rule is None:
            return f"operand {position} must be known at compile time"
    return ""
