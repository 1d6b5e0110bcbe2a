"""Handles of values that a session stores between steps."""

from __future__ import annotations

from typing import Any

from weft_graph.ir.builder import convert_to_tensor, create
from weft_graph.ir.default_graph import device, get_default_graph
from weft_graph.ir.device_spec import DeviceParts, parse
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import register_op
from weft_graph.ir.traits import Role, State, Traits
from weft_graph.ops.array import placeholder
from weft_tensor import dtypes

__all__ = ["delete_session_tensor", "get_session_handle", "get_session_tensor"]

register_op(
    "GetSessionHandle",
    ("value: T",),
    ("handle: string",),
    {"T": "type"},
    shape=lambda node: [()],
    traits=Traits(state=State.WRITES, role=Role.KEEP, local_handle=True, differentiable=False),
    doc="Stores a value in the session, and returns its handle.",
)
register_op(
    "GetSessionTensor",
    ("handle: string",),
    ("value: dtype",),
    {"dtype": "type"},
    shape=lambda node: [None],
    traits=Traits(state=State.READS, differentiable=False),
    doc="A value stored in the session.",
)
register_op(
    "DeleteSessionTensor",
    ("handle: string",),
    traits=Traits(state=State.WRITES, differentiable=False),
    doc="Deletes a value stored in the session.",
)


def get_session_handle(data: Any, name: str | None = None) -> Output:
    """Store a value in the session instead of fetching it.

    The fetched result is a `TensorHandle`. Its `handle` is the name by which `get_session_tensor`
    finds the value in later steps, and its `eval()` returns the value. It may be fed in place of
    the value. The value is deleted with the last handle, by `handle.delete()`, or with the session.

    Args:
      data: a tensor of any type and shape.
    Returns: an output whose value is the handle, rank 0.

    Examples:
      >>> session = wf.Session()
      >>> handle = session.run(wf.get_session_handle(wf.constant([1.0, 2.0]) * 3.0))
      >>> handle.eval()
      array([3., 6.], dtype=float32)
      >>> holder, value = wf.get_session_tensor(handle.handle, wf.float32)
      >>> session.run(wf.reduce_sum(value), {holder: handle.handle})
      np.float32(9.0)
    """
    value = convert_to_tensor(data)
    with get_default_graph().colocate_with(value):
        return create("GetSessionHandle", [value], {}, name).outputs[0]


def get_session_tensor(handle: Any, dtype: Any, name: str | None = None) -> tuple[Output, Output]:
    """Return a stored value by its handle, which is fed.

    Args:
      handle: one of the handles to be fed; it determines the task that reads the value.
      dtype: element type of the value.
    Returns: the placeholder of the handle, and the value, of unknown shape.
    Raises (at run time): InvalidArgumentError: the session has no such value, or its type differs.

    Examples:
      >>> session = wf.Session()
      >>> handle = session.run(wf.get_session_handle(wf.constant(4)))
      >>> holder, value = wf.get_session_tensor(handle.handle, wf.int32)
      >>> session.run(value + 1, {holder: handle.handle})
      np.int32(5)
    """
    with device(_keeper(handle)):
        holder = placeholder(dtypes.string, [])
        tensor_node = create("GetSessionTensor", [holder], {"dtype": dtypes.as_dtype(dtype)}, name)
    return holder, tensor_node.outputs[0]


def delete_session_tensor(handle: Any, name: str | None = None) -> tuple[Output, Node]:
    """Return a node that deletes a stored value by its handle, which is fed.

    Args:
      handle: one of the handles to be fed; it determines the task that deletes the value.
    Returns: the placeholder of the handle, and the node.
    Raises (at run time): InvalidArgumentError: the session has no such value.

    Examples:
      >>> session = wf.Session()
      >>> handle = session.run(wf.get_session_handle(wf.constant(4)))
      >>> holder, deleter = wf.delete_session_tensor(handle.handle)
      >>> session.run(deleter, {holder: handle.handle})
    """
    with device(_keeper(handle)):
        holder = placeholder(dtypes.string, [])
        return holder, create("DeleteSessionTensor", [holder], {}, name)


def _keeper(handle: Any) -> str | None:
    """Return the task of the device at the end of a handle, or None if it has no device."""
    text = handle.decode() if isinstance(handle, bytes) else str(handle)
    _, _, keeper = text.rpartition(";")
    return DeviceParts(*parse(keeper)[:3]).to_string() if keeper.startswith("/job:") else None
