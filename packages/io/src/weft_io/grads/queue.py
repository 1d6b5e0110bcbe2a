"""No gradient flows through a queue: what comes out was put in by another step."""

from __future__ import annotations

from weft_autodiff.registry import NotDifferentiable

for _op in (
    "FIFOQueueV2",
    "PaddingFIFOQueueV2",
    "PriorityQueueV2",
    "QueueCloseV2",
    "QueueDequeueManyV2",
    "QueueDequeueUpToV2",
    "QueueDequeueV2",
    "QueueEnqueueManyV2",
    "QueueEnqueueV2",
    "QueueIsClosedV2",
    "QueueSizeV2",
    "RandomShuffleQueueV2",
):
    NotDifferentiable(_op)
