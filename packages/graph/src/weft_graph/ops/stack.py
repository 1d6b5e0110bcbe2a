"""Stacks, whose lifetime is one step: a loop saves values on them for its gradient loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import create, out
from weft_graph.ir.costs import free
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import Role, State, Traits
from weft_graph.ops.shape_rules import with_rank
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims


def producer(handle: Output) -> Node:
    """Return the node that created `handle`, if it can be traced."""
    node = handle.node
    for _ in range(64):
        if not (node.traits.identity or node.traits.routes) or not node.inputs:
            break
        node = node.inputs[0].node
    return node


# --------------------------------------------------------------------------- shape rules


def check_element(handle: Output, dtype: DType) -> None:
    """Check a pushed or popped value against the stack, if the stack is known.

    Raises: InvalidTypeError: the element type of the stack is not `dtype`, or it is not a stack.
    """
    node = producer(handle)
    if node.role in (Role.TENSOR_ARRAY, Role.VARIABLE):
        raise errors.InvalidTypeError(f"requires the handle of a stack, got that of {node!r}")
    if node.role is Role.STACK and node.attrs["elem_type"] is not dtype:
        raise errors.InvalidTypeError(
            f"the stack {node.name!r} holds {node.attrs['elem_type'].name}, "
            f"but it is used as {dtype.name}"
        )


def _stack_shape(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[0].dims, 0, "max_size")
    return ((),)


def _push_shape(node: NodeSpec) -> Sequence[Dims]:
    handle, element = node.inputs
    check_element(handle, node.attrs["T"])
    return (element.dims,)


def _pop_shape(node: NodeSpec) -> Sequence[Dims]:
    check_element(node.inputs[0], node.attrs["elem_type"])
    return (None,)


# --------------------------------------------------------------------------- declarations

register_op(
    "StackV2",
    ("max_size: int32",),
    ("handle: resource",),
    {"elem_type": "type", "stack_name": "string = ''"},
    _stack_shape,
    traits=Traits(state=State.STEP, role=Role.STACK, differentiable=False),
    doc="A new stack, which exists as long as its handle.",
)
register_op(
    "StackPushV2",
    ("handle: resource", "elem: T"),
    ("output: T",),
    {"T": "type", "swap_memory": "bool = false"},
    _push_shape,
    traits=Traits(state=State.STEP, role=Role.PUSH, cost=free),
    doc="Pushes a value onto a stack, and returns the value.",
)
register_op(
    "StackPopV2",
    ("handle: resource",),
    ("elem: elem_type",),
    {"elem_type": "type"},
    _pop_shape,
    traits=Traits(state=State.STEP, role=Role.POP, differentiable=False, cost=free),
    doc="Pops the last value of a stack.",
)
register_op(
    "StackCloseV2",
    ("handle: resource",),
    (),
    traits=Traits(state=State.STEP, differentiable=False),
    doc="Releases the contents of a stack.",
)

register_op(
    "StackCopy",
    ("handle: resource",),
    ("copy: resource",),
    {"elem_type": "type"},
    lambda node: ((),),
    traits=Traits(state=State.STEP),
    doc="A new stack with the current contents of another one.",
)

# --------------------------------------------------------------------------- functions


def stack_v2(
    max_size: Any, elem_type: Any, stack_name: str = "", name: str | None = None
) -> Output:
    """Create a new stack each time it runs.

    Args:
      max_size: int32, rank 0: largest number of values; negative for no limit.
      elem_type: element type of the values; their shapes may differ.
      stack_name: name in messages; the node's name by default.
    Returns: the handle: resource, shape ().
    """
    attrs = {"elem_type": dtypes.as_dtype(elem_type).base_dtype, "stack_name": stack_name}
    return out("StackV2", [max_size], attrs, name)


def stack_push_v2(
    handle: Any, elem: Any, swap_memory: bool = False, name: str | None = None
) -> Output:
    """Push a value onto a stack.

    Args:
      handle: handle from `stack_v2`.
      elem: the value, of the stack's element type and any shape; it is not copied.
      swap_memory: store a large GPU value in host memory.
    Returns: `elem`, after the push.
    Raises:
      InvalidTypeError: the stack has another element type.
      InvalidArgumentError: (at run time) the stack is full.
    """
    return out("StackPushV2", [handle, elem], {"swap_memory": swap_memory}, name)


def stack_pop_v2(handle: Any, elem_type: Any, name: str | None = None) -> Output:
    """Pop the last value of a stack.

    Args:
      handle: handle from `stack_v2`.
      elem_type: the stack's element type.
    Raises:
      InvalidTypeError: the stack has another element type.
      InvalidArgumentError: (at run time) the stack is empty.
    """
    attrs = {"elem_type": dtypes.as_dtype(elem_type).base_dtype}
    return out("StackPopV2", [handle], attrs, name)


def stack_copy(handle: Any, elem_type: Any, name: str | None = None) -> Output:
    """Return a new stack with the current contents of another; values are not copied."""
    return out("StackCopy", [handle], {"elem_type": dtypes.as_dtype(elem_type).base_dtype}, name)


def stack_close_v2(handle: Any, name: str | None = None) -> Node:
    """Release the contents of a stack."""
    return create("StackCloseV2", [handle], None, name)
