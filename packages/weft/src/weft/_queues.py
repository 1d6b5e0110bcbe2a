"""Lazily loaded names of `weft`: queues, accumulators, critical sections."""

from weft_io.coordination.critical_section import *
from weft_io.queues.accumulator import *
from weft_io.queues.queue import *
from weft_io.queues.queue import FIFOQueue as FIFOQueue
