"""Kernels of queues; waiting kernels are asynchronous and block no thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft_exec.kernels.registry import KernelFunction, kernel
from weft_exec.resources.resources import CompletionCallback
from weft_io.resources.chunks import ChunkStore, PaddingStore
from weft_io.resources.element_order import PriorityStore, ShufflingStore
from weft_io.resources.handles import allocator, deadline_in, holder, resource_of
from weft_io.resources.queue import UNBOUNDED, Queue, Store
from weft_io.resources.values import Unpacked, keeper, number_of
from weft_tensor import dtypes, errors
from weft_tensor.dtypes import DType
from weft_tensor.shape import Dims, format_dims, is_fully_defined

if TYPE_CHECKING:
    from weft_exec.devices.device import Device
    from weft_exec.kernels.context import StepContext
    from weft_graph.ir.node import Node

# --------------------------------------------------------------------------- holders

Parts = tuple[tuple[DType, ...], tuple[Dims, ...]]


def _parts(node: Node) -> Parts:
    """Return the element types and shapes of the components of a node's queue."""
    types, shapes = tuple(node.attrs["component_types"]), tuple(node.attrs["shapes"])
    if shapes and len(shapes) != len(types):
        raise errors.InvalidArgumentError(
            f"a queue with {len(types)} components must have one shape per component or "
            f"none, got {len(shapes)}"
        )
    if node.type != "PaddingFIFOQueueV2" and not all([is_fully_defined(dims) for dims in shapes]):
        raise errors.InvalidArgumentError(
            f"the shapes of a {node.type.removesuffix('V2')}'s components must be fully defined, "
            f"got {_texts(shapes)}"
        )
    if node.type == "PriorityQueueV2":
        shapes = ((), *(shapes or [None] * len(types)))
        types = (dtypes.int64, *types)
    return types, shapes


def _queue(node: Node, device: Device, store: Callable[[Parts], Store]) -> KernelFunction:
    types, shapes = parts = _parts(node)
    flavour = node.type.removesuffix("V2")
    capacity, minimum = node.attrs["capacity"], node.attrs.get("min_after_dequeue", 0)
    seeds = node.attrs.get("seed", 0), node.attrs.get("seed2", 0)

    def make(name: str) -> Queue:
        return Queue(name, flavour, types, shapes, capacity, store(parts), minimum, seeds)

    def check(queue: Queue) -> None:
        limit = UNBOUNDED if capacity < 0 else capacity
        prefix = f"Shared queue {queue.name!r} has"
        if queue.flavour != flavour:
            raise errors.InvalidArgumentError(
                f"{queue.name!r} is a {queue.flavour}, but a {flavour} is required"
            )
        for label, actual, expected in (
            ("capacity", queue.capacity, limit),
            ("min_after_dequeue", queue.min_after_dequeue, minimum),
            ("seeds", queue.seeds, queue.seeds if seeds == (0, 0) else seeds),
            ("component types", _names(queue.types), _names(types)),
            ("component shapes", _texts(queue.shapes), _texts(shapes)),
        ):
            if actual != expected:
                raise errors.InvalidArgumentError(
                    f"{prefix} {label} {actual} but requested {label} was {expected}"
                )

    return holder(node, device, Queue, make, check)


def _names(types: Sequence[DType]) -> str:
    return ", ".join([dtype.name for dtype in types])


def _texts(shapes: Sequence[Dims]) -> str:
    return f"[{', '.join([format_dims(dims) for dims in shapes])}]"


@kernel("FIFOQueueV2")
def _fifo(node: Node, device: Device) -> KernelFunction:
    return _queue(node, device, lambda parts: ChunkStore(*parts))


@kernel("PaddingFIFOQueueV2")
def _padding_fifo(node: Node, device: Device) -> KernelFunction:
    for dims in node.attrs["shapes"] or (None,):
        if dims is None:
            raise errors.InvalidArgumentError(
                "a PaddingFIFOQueue requires the rank of every component, got shapes "
                + _texts(node.attrs["shapes"])
            )
    return _queue(node, device, lambda parts: PaddingStore(*parts))


@kernel("RandomShuffleQueueV2")
def _random_shuffle(node: Node, device: Device) -> KernelFunction:
    seeds = node.attrs["seed"], node.attrs["seed2"]
    capacity, minimum = node.attrs["capacity"], node.attrs["min_after_dequeue"]
    if minimum < 0 or 0 <= capacity <= minimum:
        raise errors.InvalidArgumentError(
            f"min_after_dequeue {minimum} must be >= 0 and < capacity {capacity}"
        )
    return _queue(node, device, lambda parts: ShufflingStore(*parts, seeds))


@kernel("PriorityQueueV2")
def _priority(node: Node, device: Device) -> KernelFunction:
    return _queue(node, device, lambda parts: PriorityStore(*parts))


# --------------------------------------------------------------------------- operations


def _check_types(queue: Queue, types: tuple[DType, ...]) -> None:
    if queue.types != types:
        raise errors.InvalidArgumentError(
            f"{queue.flavour} {queue.name!r} holds components of types {_names(queue.types)}, "
            f"got {_names(types)}"
        )


@kernel("QueueEnqueueV2", "QueueEnqueueManyV2")
def _enqueue(node: Node, device: Device) -> KernelFunction:
    types = tuple(node.attrs["Tcomponents"])
    timeout: int = node.attrs["timeout_ms"]
    is_many = node.type == "QueueEnqueueManyV2"
    keep = keeper(node, 1)

    def run(ctx: StepContext, inputs: Sequence[Any], completion: CompletionCallback) -> None:
        queue = resource_of(inputs[0], Queue)
        _check_types(queue, types)
        enqueue_many = queue.enqueue_many if is_many else queue.enqueue
        enqueue_many(keep(inputs), completion, ctx.cancellation, deadline_in(timeout))

    return run


@kernel("QueueDequeueV2")
def _dequeue(node: Node, device: Device) -> KernelFunction:
    types = tuple(node.attrs["component_types"])
    timeout: int = node.attrs["timeout_ms"]
    single = len(types) == 1

    def run(ctx: StepContext, inputs: Sequence[Any], completion: CompletionCallback) -> None:
        queue = resource_of(inputs[0], Queue)
        _check_types(queue, types)
        expected = Unpacked(completion) if single else completion
        queue.dequeue(expected, ctx.cancellation, deadline_in(timeout))

    return run


@kernel("QueueDequeueManyV2", "QueueDequeueUpToV2")
def _dequeue_many(node: Node, device: Device) -> KernelFunction:
    types = tuple(node.attrs["component_types"])
    timeout: int = node.attrs["timeout_ms"]
    single = len(types) == 1
    up_to = node.type == "QueueDequeueUpToV2"
    empty = allocator(device)

    def run(ctx: StepContext, inputs: Sequence[Any], completion: CompletionCallback) -> None:
        queue = resource_of(inputs[0], Queue)
        _check_types(queue, types)
        queue.dequeue_many(
            number_of(inputs[1], "the number of elements"),
            empty,
            Unpacked(completion) if single else completion,
            ctx.cancellation,
            deadline_in(timeout),
            up_to=up_to,
        )

    return run


@kernel("QueueCloseV2")
def _close(node: Node, device: Device) -> KernelFunction:
    cancel: bool = node.attrs["cancel_pending_enqueues"]

    def run(ctx: StepContext, inputs: Sequence[Any], completion: CompletionCallback) -> None:
        resource_of(inputs[0], Queue).close_queue(cancel, completion, ctx.cancellation)

    return run


@kernel("QueueIsClosedV2")
def _is_closed(node: Node, device: Device) -> KernelFunction:
    return lambda handle: np.bool_(resource_of(handle, Queue).is_closed)


@kernel("QueueSizeV2")
def _size(node: Node, device: Device) -> KernelFunction:
    return lambda handle: np.int32(resource_of(handle, Queue).size())
