"""Barriers: tables of elements whose components are inserted separately."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import create, out
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import CREATES, READS, WAITS, WRITES
from weft_graph.ops.shape_rules import (
    constant_int,
    fixed_shape,
    merge_size,
    scalar,
    with_rank,
    with_rank_at_least,
)
from weft_tensor import errors
from weft_tensor.shape import Dims

_HANDLE = "handle: Ref(string)"


def _insert_shape(node: NodeSpec) -> Sequence[Dims]:
    (keys,) = with_rank(node.inputs[1].dims, 1, "keys")
    values = with_rank_at_least(node.inputs[2].dims, 1, "values")
    if values is not None:
        merge_size(keys, values[0], "the number of keys and of values")
    return ()


def _take_shape(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[1].dims, 0, "num_elements")
    count = constant_int(node.inputs[1])
    if count is not None and count < 0:
        raise errors.InvalidArgumentError(f"num_elements must not be negative, got {count}")
    count = None if node.attrs["allow_small_batch"] else count
    barrier = node.inputs[0].node
    shapes: Sequence[Dims] = barrier.attrs["shapes"] if barrier.type == "Barrier" else ()
    components = [None if dims is None else (count, *dims) for dims in shapes]
    components = components or [None] * len(node.attrs["component_types"])
    return [(count,), (count,), *components]


register_op(
    "Barrier",
    (),
    (_HANDLE,),
    {
        "component_types": "list(type) >= 1",
        "shapes": "list(shape) = []",
        "capacity": "int = -1",
        "container": "string = ''",
        "shared_name": "string = ''",
    },
    fixed_shape((2,)),
    traits=CREATES,
    doc="Elements by key, which leave when all their components are there.",
)
register_op(
    "BarrierInsertMany",
    (_HANDLE, "keys: string", "values: T"),
    (),
    {"T": "type", "component_index": "int"},
    _insert_shape,
    traits=WRITES,
    doc="Give the elements of several keys one component.",
)
register_op(
    "BarrierTakeMany",
    (_HANDLE, "num_elements: int32"),
    ("indices: int64", "keys: string", "values: component_types"),
    {
        "component_types": "list(type) >= 1",
        "allow_small_batch": "bool = false",
        "wait_for_incomplete": "bool = false",
        "timeout_ms": "int = -1",
    },
    _take_shape,
    traits=WAITS,
    doc="Wait for so many complete elements, and take them.",
)
register_op(
    "BarrierClose",
    (_HANDLE,),
    (),
    {"cancel_pending_enqueues": "bool = false"},
    fixed_shape(),
    traits=WRITES,
    doc="Accept no new keys.",
)
for _op, _doc in (
    ("BarrierReadySize", "The number of complete elements."),
    ("BarrierIncompleteSize", "The number of elements that lack a component."),
):
    register_op(_op, (_HANDLE,), ("size: int32",), shape=scalar, traits=READS, doc=_doc)


def barrier(
    component_types: Sequence[Any],
    shapes: Sequence[Any] = (),
    shared_name: str | None = None,
    name: str | None = None,
) -> Output:
    """Return the reference of a barrier.

    Args:
      component_types: element type of each component.
      shapes: static shape of each component; empty for any shape.
      shared_name: the name it is shared under; the node's by default.
    """
    attrs = {
        "component_types": tuple(component_types),
        "shapes": tuple(shapes),
        "shared_name": shared_name or "",
    }
    return out("Barrier", (), attrs, name)


def barrier_insert_many(
    handle: Any, component_index: int, keys: Any, values: Any, name: str | None = None
) -> Node:
    """Add one component to several elements.

    Args:
      component_index: index of the component.
      keys: string, shape (n,).
      values: the component's type, shape (n, S).
    """
    attrs = {"component_index": component_index}
    return create("BarrierInsertMany", [handle, keys, values], attrs, name)


def barrier_take_many(
    handle: Any,
    num_elements: Any,
    component_types: Sequence[Any],
    allow_small_batch: bool = False,
    timeout_ms: int = -1,
    name: str | None = None,
) -> tuple[Output, ...]:
    """Wait for complete elements and remove them.

    Args:
      num_elements: int32, shape (): number of elements.
      component_types: element types of the components.
      allow_small_batch: True if a closed barrier may return fewer.
      timeout_ms: maximum wait in milliseconds; -1 for the duration of the step.
    Returns: indices int64 (n,), keys string (n,), then a batch per component.
    """
    attrs = {
        "component_types": tuple(component_types),
        "allow_small_batch": allow_small_batch,
        "timeout_ms": timeout_ms,
    }
    return create("BarrierTakeMany", [handle, num_elements], attrs, name).outputs


def barrier_close(
    handle: Any, cancel_pending_enqueues: bool = False, name: str | None = None
) -> Node:
    """Close a barrier: reject new keys.

    Args:
      cancel_pending_enqueues: drop incomplete elements.
    """
    attrs = {"cancel_pending_enqueues": cancel_pending_enqueues}
    return create("BarrierClose", [handle], attrs, name)


def barrier_ready_size(handle: Any, name: str | None = None) -> Output:
    """Return the number of complete elements: int32, shape ()."""
    return out("BarrierReadySize", [handle], None, name)


def barrier_incomplete_size(handle: Any, name: str | None = None) -> Output:
    """Return the number of elements that lack a component: int32, shape ()."""
    return out("BarrierIncompleteSize", [handle], None, name)
