"""`wf.queue`: queues, accumulators and staging areas."""

from weft import _lazy
from weft_io.queues.barrier import *
from weft_io.queues.queue import *
from weft_io.queues.queue import FIFOQueue as FIFOQueue
from weft_io.queues.staging import *

_lazy.hint(__name__)
