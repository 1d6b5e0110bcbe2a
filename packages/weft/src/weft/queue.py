"""`wf.queue`: queues, and what waits as they do."""

from weft_io.barrier import Barrier as Barrier
from weft_io.queue_ops import (
    FIFOQueue as FIFOQueue,
    PaddingFIFOQueue as PaddingFIFOQueue,
    PriorityQueue as PriorityQueue,
    QueueBase as QueueBase,
    RandomShuffleQueue as RandomShuffleQueue,
)
from weft_io.staging import MapStagingArea as MapStagingArea, StagingArea as StagingArea
