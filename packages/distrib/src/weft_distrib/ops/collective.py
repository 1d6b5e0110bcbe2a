"""Collective ops: nodes on several devices, sessions or graphs that compute one result together.

The members of a group are `group_size` devices. Each has a node with the same group key and
instance key, in one graph or in several. The n-th run of each member takes part in the same
operation.
"""

from __future__ import annotations

__all__ = ["all_gather", "all_reduce", "broadcast_receive", "broadcast_send"]

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import convert_to_tensor, out
from weft_graph.ir.node import Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import State, Traits
from weft_graph.ops.shape_rules import same_shape
from weft_tensor import dtypes, errors
from weft_tensor.shape import Dims, TensorShape

_KEYS = {"group_size": "int >= 1", "group_key": "int", "instance_key": "int"}
_HOW = {
    "communication_hint": "{'auto', 'ring', 'tree', 'ordered', 'nccl'} = 'auto'",
    "timeout_seconds": "float = 0",
}
_ANY_TYPE = "{realnumbertype, complex, bool}"


def _collective(differentiable: bool = False) -> Traits:
    return Traits(
        state=State.WRITES, asynchronous=True, numbered=True, differentiable=differentiable
    )


def _reduce_shape(node: NodeSpec) -> Sequence[Dims]:
    kind = node.inputs[0].dtype.base_dtype
    if kind.is_complex and node.attrs["merge_op"] in ("Min", "Max"):
        raise errors.InvalidArgumentError(
            f"complex numbers have no order: merge_op must be Add or Mul for {kind.name}, got "
            f"{node.attrs['merge_op']}"
        )
    return same_shape(node)


def _declared_shape(node: NodeSpec) -> Sequence[Dims]:
    return (node.attrs["shape"],)


register_op(
    "CollectiveReduce",
    ("input: T",),
    ("data: T",),
    {
        "T": "{realnumbertype, complex}",
        **_KEYS,
        "merge_op": "{'Min', 'Max', 'Mul', 'Add'}",
        "final_op": "{'Id', 'Div'}",
        "subdiv_offsets": "list(int)",
        "wait_for": "list(int) = []",
        **_HOW,
    },
    _reduce_shape,
    traits=_collective(differentiable=True),
    doc="Return the tensors of all members of a group, merged element by element.",
)
register_op(
    "CollectiveGather",
    ("input: T",),
    ("data: T",),
    {"T": _ANY_TYPE, **_KEYS, "shape": "shape", **_HOW},
    _declared_shape,
    traits=_collective(),
    doc="Return the tensors of all members of a group, concatenated along the first axis.",
)
register_op(
    "CollectiveBcastSend",
    ("input: T",),
    ("data: T",),
    {"T": _ANY_TYPE, **_KEYS, "shape": "shape", **_HOW},
    _declared_shape,
    traits=_collective(),
    doc="Send a tensor to all other members of a group.",
)
register_op(
    "CollectiveBcastRecv",
    (),
    ("data: T",),
    {"T": _ANY_TYPE, **_KEYS, "shape": "shape", **_HOW},
    _declared_shape,
    traits=_collective(),
    doc="Receive the tensor that one member sends to all members of its group.",
)


def all_reduce(
    t: Any,
    group_size: int,
    group_key: int,
    instance_key: int,
    merge_op: str = "Add",
    final_op: str = "Id",
    communication_hint: str = "auto",
    timeout: float = 0,
    name: str | None = None,
) -> Output:
    """Merge the tensors of all members of a group element by element.

    The members are `group_size` devices. Each has a node with these keys, in the same graph or in
    the graphs of several sessions on the same cluster. They are ordered by name.

    Args:
      t: a number of any type, with the same type and shape in all members; Min and Max do not
        support complex numbers.
      group_size: the number of members, at least 1.
      group_key: identifies the group.
      instance_key: identifies this operation within the group.
      merge_op: "Add", "Mul", "Min" or "Max".
      final_op: "Id", or "Div" to divide by `group_size`; integers are rounded towards zero.
      communication_hint: "ring"; "tree"; "ordered" to merge in the order of the members, bit for
        bit; "nccl" to communicate between GPUs by NCCL; or "auto". "auto" means "ordered" if a
        member is deterministic, else "nccl" if all members are GPUs, else a choice by size.
      timeout: the seconds to wait for other members; 0 for no limit after all members have joined.
      name: name of the node.
    Returns: type and shape of `t`; the same bits in all members.
    Raises:
      InvalidArgumentError: an argument is invalid.
      DeadlineExceededError, UnavailableError, AbortedError: during a step, a member did not join,
        was lost, or aborted; the message names it.

    Examples:
      >>> sums = []
      >>> for i in range(2):
      ...     with wf.device(f"/cpu:{i}"):
      ...         sums.append(weft_distrib.all_reduce(wf.constant([1.0, i]), 2, 1, 1))
      >>> with wf.Session(config=wf.ConfigProto(device_count={"CPU": 2})) as session:
      ...     session.run(sums)
      [array([2., 1.], dtype=float32), array([2., 1.], dtype=float32)]
    """
    attrs = {"merge_op": merge_op, "final_op": final_op, "subdiv_offsets": ()}
    attrs |= _attrs(group_size, group_key, instance_key, communication_hint, timeout)
    return out("CollectiveReduce", [t], attrs, name)


def all_gather(
    t: Any,
    group_size: int,
    group_key: int,
    instance_key: int,
    communication_hint: str = "auto",
    timeout: float = 0,
    name: str | None = None,
) -> Output:
    """Concatenate the tensors of all members of a group along the first axis.

    Args:
      t: a number or bool of shape (N, ...), with the same type and shape in all members.
      group_size, group_key, instance_key, communication_hint, timeout, name: as for `all_reduce`.
    Returns: dtype of `t`, shape (N * group_size, ...).
    Raises: the errors of `all_reduce`; InvalidArgumentError: `t` has rank 0.

    Examples:
      >>> rows = []
      >>> for i in range(2):
      ...     with wf.device(f"/cpu:{i}"):
      ...         rows.append(weft_distrib.all_gather(wf.constant([i]), 2, 1, 1))
      >>> with wf.Session(config=wf.ConfigProto(device_count={"CPU": 2})) as session:
      ...     session.run(rows)[0]
      array([0, 1], dtype=int32)
    """
    t = convert_to_tensor(t)
    dims = t.dims
    if dims is not None and not dims:
        raise errors.InvalidArgumentError("all_gather needs a tensor of rank 1 or more, got rank 0")
    size = None if dims is None or dims[0] is None else dims[0] * group_size
    shape = None if dims is None else (size, *dims[1:])
    attrs = _attrs(group_size, group_key, instance_key, communication_hint, timeout)
    return out("CollectiveGather", [t], {"shape": TensorShape(shape), **attrs}, name)


def broadcast_send(
    t: Any,
    group_size: int,
    group_key: int,
    instance_key: int,
    communication_hint: str = "auto",
    timeout: float = 0,
    name: str | None = None,
) -> Output:
    """Send a tensor to all other members of a group, which run `broadcast_receive`.

    Args:
      t: a number or bool.
      group_size, group_key, instance_key, communication_hint, timeout, name: as for `all_reduce`.
    Returns: `t`.
    Raises: the errors of `all_reduce`.

    Examples:
      >>> with wf.device("/cpu:0"):
      ...     sent = weft_distrib.broadcast_send(wf.constant([3, 4]), 2, 1, 1)
      >>> with wf.device("/cpu:1"):
      ...     got = weft_distrib.broadcast_receive([2], wf.int32, 2, 1, 1)
      >>> with wf.Session(config=wf.ConfigProto(device_count={"CPU": 2})) as session:
      ...     session.run([sent, got])[1]
      array([3, 4], dtype=int32)
    """
    t = convert_to_tensor(t)
    attrs = _attrs(group_size, group_key, instance_key, communication_hint, timeout)
    return out("CollectiveBcastSend", [t], {"shape": t.shape, **attrs}, name)


def broadcast_receive(
    shape: Any,
    dtype: Any,
    group_size: int,
    group_key: int,
    instance_key: int,
    communication_hint: str = "auto",
    timeout: float = 0,
    name: str | None = None,
) -> Output:
    """Receive the tensor of the member that runs `broadcast_send`.

    Args:
      shape: the shape of the tensor; sizes may be unknown.
      dtype: the element type of the tensor.
      group_size, group_key, instance_key, communication_hint, timeout, name: as for `all_reduce`.
    Returns: the received tensor.
    Raises: the errors of `all_reduce`.

    Examples:
      See `broadcast_send`.
    """
    attrs = _attrs(group_size, group_key, instance_key, communication_hint, timeout)
    kind = {"T": dtypes.as_dtype(dtype), "shape": TensorShape(shape)}
    return out("CollectiveBcastRecv", [], {**kind, **attrs}, name)


def _attrs(size: int, group: int, instance: int, hint: str, timeout: float) -> dict[str, Any]:
    return {
        "group_size": size,
        "group_key": group,
        "instance_key": instance,
        "communication_hint": hint,
        "timeout_seconds": timeout,
    }
