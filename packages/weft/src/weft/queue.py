"""`wf.queue`: queues, and what waits as they do."""

from weft_io.queues.barrier import Barrier as Barrier
from weft_io.queues.queue_ops import (
    FIFOQueue as FIFOQueue,
    PaddingFIFOQueue as PaddingFIFOQueue,
    PriorityQueue as PriorityQueue,
    QueueBase as QueueBase,
    RandomShuffleQueue as RandomShuffleQueue,
)
from weft_io.queues.staging import MapStagingArea as MapStagingArea, StagingArea as StagingArea
