"""Ops of queues, which steps enqueue to, dequeue from and wait for (paper, section 4.6).

Programs use the classes of `weft_io.queues.queue`; this module creates their nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft_graph.ir.builder import create, out
from weft_graph.ir.node import Node, Output
from weft_graph.ir.op_def import NodeSpec, register_op
from weft_graph.ir.traits import CREATES, READS, WAITS
from weft_graph.ops.shape_rules import constant_int, scalar, with_rank
from weft_tensor import errors
from weft_tensor.shape import Dims

# --------------------------------------------------------------------------- declarations

_HOLDERS = ("FIFOQueueV2", "PaddingFIFOQueueV2", "PriorityQueueV2", "RandomShuffleQueueV2")
_RESOURCE_ATTRS = {"container": "string = ''", "shared_name": "string = ''"}
_LIMITS = {"capacity": "int = -1"}


def _no_outputs(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[0].dims, 0, "the queue's handle")
    return ()


def _component_shapes(handle: Output) -> Sequence[Dims] | None:
    """Return the shapes of a queue's components, if the handle's node is the queue itself."""
    node = handle.node
    if node.type not in _HOLDERS or not node.attrs["shapes"]:
        return None
    shapes: tuple[Dims, ...] = node.attrs["shapes"]
    return ((), *shapes) if node.type == "PriorityQueueV2" else shapes


def _dequeue_shape(node: NodeSpec) -> Sequence[Dims]:
    shapes = _component_shapes(node.inputs[0])
    return [None] * len(node.attrs["component_types"]) if shapes is None else shapes


def _batch_shape(node: NodeSpec) -> Sequence[Dims]:
    with_rank(node.inputs[1].dims, 0, "the number of elements")
    count = constant_int(node.inputs[1])
    if count is not None and count < 0:
        raise errors.InvalidArgumentError(
            f"the number of elements must not be negative, got {count}"
        )
    return [None if dims is None else (count, *dims) for dims in _dequeue_shape(node)]


def _up_to_shape(node: NodeSpec) -> Sequence[Dims]:
    return [None if dims is None else (None, *dims[1:]) for dims in _batch_shape(node)]


for _op, _doc in (
    ("FIFOQueueV2", "A queue whose elements leave in the order they came in."),
    ("PaddingFIFOQueueV2", "A FIFO queue that pads the elements of a batch to one size."),
):
    register_op(
        _op,
        (),
        ("handle: resource",),
        {
            "component_types": "list(type) >= 1",
            "shapes": "list(shape) = []",
            **_LIMITS,
            **_RESOURCE_ATTRS,
        },
        scalar,
        traits=CREATES,
        doc=_doc,
    )
register_op(
    "RandomShuffleQueueV2",
    (),
    ("handle: resource",),
    {
        "component_types": "list(type) >= 1",
        "shapes": "list(shape) = []",
        **_LIMITS,
        "min_after_dequeue": "int = 0",
        "seed": "int = 0",
        "seed2": "int = 0",
        **_RESOURCE_ATTRS,
    },
    scalar,
    traits=CREATES,
    doc="A queue whose elements leave in a random order.",
)
register_op(
    "PriorityQueueV2",
    (),
    ("handle: resource",),
    {"component_types": "list(type) = []", "shapes": "list(shape)", **_LIMITS, **_RESOURCE_ATTRS},
    scalar,
    traits=CREATES,
    doc="A queue whose elements leave lowest first; an int64 before the components says which.",
)
for _op, _doc in (
    ("QueueEnqueueV2", "Put one element in; wait for space."),
    ("QueueEnqueueManyV2", "Put the rows of a batch in; wait for space."),
):
    register_op(
        _op,
        ("handle: resource", "components: Tcomponents"),
        (),
        {"Tcomponents": "list(type) >= 1", "timeout_ms": "int = -1"},
        _no_outputs,
        traits=WAITS,
        doc=_doc,
    )
register_op(
    "QueueDequeueV2",
    ("handle: resource",),
    ("components: component_types",),
    {"component_types": "list(type) >= 1", "timeout_ms": "int = -1"},
    _dequeue_shape,
    traits=WAITS,
    doc="Take one element out; wait for one.",
)
for _op, _rule, _doc in (
    ("QueueDequeueManyV2", _batch_shape, "Take n elements out as a batch; wait for them."),
    ("QueueDequeueUpToV2", _up_to_shape, "The same; fewer when the queue is closed."),
):
    register_op(
        _op,
        ("handle: resource", "n: int32"),
        ("components: component_types",),
        {"component_types": "list(type) >= 1", "timeout_ms": "int = -1"},
        _rule,
        traits=WAITS,
        doc=_doc,
    )
register_op(
    "QueueCloseV2",
    ("handle: resource",),
    (),
    {"cancel_pending_enqueues": "bool = false"},
    _no_outputs,
    traits=WAITS,
    doc="Let nothing more in.",
)
register_op(
    "QueueIsClosedV2",
    ("handle: resource",),
    ("is_closed: bool",),
    shape=scalar,
    traits=READS,
    doc="Whether the queue is closed.",
)
register_op(
    "QueueSizeV2",
    ("handle: resource",),
    ("size: int32",),
    shape=scalar,
    traits=READS,
    doc="The number of elements in the queue.",
)

# --------------------------------------------------------------------------- functions


def fifo_queue(
    component_types: Sequence[Any],
    shapes: Sequence[Any] = (),
    capacity: int = -1,
    shared_name: str | None = None,
    name: str | None = None,
    *,
    padding: bool = False,
) -> Output:
    """Create a FIFO queue and return its handle.

    Args:
      component_types: element type of each component.
      shapes: static shape of each component; empty for any shape.
      capacity: maximum number of elements; unbounded if negative.
      shared_name: the name it is shared under; the node's by default.
      padding: allow partially known shapes, and pad batches.
    """
    attrs = _attrs(component_types, shapes, capacity, shared_name)
    return out("PaddingFIFOQueueV2" if padding else "FIFOQueueV2", (), attrs, name)


def random_shuffle_queue(
    component_types: Sequence[Any],
    shapes: Sequence[Any] = (),
    capacity: int = -1,
    min_after_dequeue: int = 0,
    seeds: tuple[int, int] = (0, 0),
    shared_name: str | None = None,
    name: str | None = None,
) -> Output:
    """Create a queue with random order and return its handle.

    Args:
      component_types, shapes, capacity, shared_name: as for `fifo_queue`.
      min_after_dequeue: number of elements that stay in an open queue for randomness.
      seeds: seeds of the random order; (0, 0) for a different order in each session.
    """
    attrs = _attrs(component_types, shapes, capacity, shared_name)
    attrs |= {"min_after_dequeue": min_after_dequeue, "seed": seeds[0], "seed2": seeds[1]}
    return out("RandomShuffleQueueV2", (), attrs, name)


def priority_queue(
    component_types: Sequence[Any],
    shapes: Sequence[Any] = (),
    capacity: int = -1,
    shared_name: str | None = None,
    name: str | None = None,
) -> Output:
    """Create a queue ordered by an int64 priority, the first component; return its handle.

    Args:
      component_types, shapes: types and shapes of the components other than the priority.
      capacity, shared_name: as for `fifo_queue`.
    """
    attrs = _attrs(component_types, shapes, capacity, shared_name)
    return out("PriorityQueueV2", (), attrs, name)


def _attrs(
    types: Sequence[Any], shapes: Sequence[Any], capacity: int, shared_name: str | None
) -> dict[str, Any]:
    return {
        "component_types": tuple(types),
        "shapes": tuple(shapes),
        "capacity": capacity,
        "shared_name": shared_name or "",
    }


def queue_enqueue(
    handle: Any, components: Sequence[Any], timeout_ms: int = -1, name: str | None = None
) -> Node:
    """Enqueue one element.

    Args:
      components: one tensor per component.
      timeout_ms: maximum wait in milliseconds; -1 for the duration of the step.
    """
    return create("QueueEnqueueV2", [handle, list(components)], {"timeout_ms": timeout_ms}, name)


def queue_enqueue_many(
    handle: Any, components: Sequence[Any], timeout_ms: int = -1, name: str | None = None
) -> Node:
    """Enqueue the rows of a batch.

    Args:
      components: one tensor per component, with equal sizes of the first axis.
      timeout_ms: as for `queue_enqueue`.
    """
    attrs = {"timeout_ms": timeout_ms}
    return create("QueueEnqueueManyV2", [handle, list(components)], attrs, name)


def queue_dequeue(
    handle: Any, component_types: Sequence[Any], timeout_ms: int = -1, name: str | None = None
) -> tuple[Output, ...]:
    """Dequeue one element; return an output per component."""
    attrs = {"component_types": tuple(component_types), "timeout_ms": timeout_ms}
    return create("QueueDequeueV2", [handle], attrs, name).outputs


def queue_dequeue_many(
    handle: Any,
    n: Any,
    component_types: Sequence[Any],
    timeout_ms: int = -1,
    name: str | None = None,
    *,
    up_to: bool = False,
) -> tuple[Output, ...]:
    """Dequeue elements as a batch; return an output per component, with a new first axis.

    Args:
      n: int32, shape (): the number of elements.
      component_types: element types of the components.
      timeout_ms: as for `queue_enqueue`.
      up_to: True if fewer elements are returned when the queue is closed.
    """
    attrs = {"component_types": tuple(component_types), "timeout_ms": timeout_ms}
    op = "QueueDequeueUpToV2" if up_to else "QueueDequeueManyV2"
    return create(op, [handle, n], attrs, name).outputs


def queue_close(
    handle: Any, cancel_pending_enqueues: bool = False, name: str | None = None
) -> Node:
    """Close a queue to new elements.

    Args:
      cancel_pending_enqueues: True if waiting enqueues fail; otherwise they complete first.
    """
    attrs = {"cancel_pending_enqueues": cancel_pending_enqueues}
    return create("QueueCloseV2", [handle], attrs, name)


def queue_is_closed(handle: Any, name: str | None = None) -> Output:
    """Return True if the queue is closed: bool, shape ()."""
    return out("QueueIsClosedV2", [handle], None, name)


def queue_size(handle: Any, name: str | None = None) -> Output:
    """Return the number of elements in the queue: int32, shape ()."""
    return out("QueueSizeV2", [handle], None, name)
