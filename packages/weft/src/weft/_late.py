"""Names of `weft` that load when the first of them is used: queues, readers, files, the version."""

from weft.logging import get_logger as get_logger
from weft.version import (
    GRAPH_DEF_VERSION_MIN_CONSUMER as GRAPH_DEF_VERSION_MIN_CONSUMER,
    GRAPH_DEF_VERSION_MIN_PRODUCER as GRAPH_DEF_VERSION_MIN_PRODUCER,
    VERSION as VERSION,
    __version__ as __version__,
)
from weft_io.coordination.critical_section import *
from weft_io.input.parsing import *
from weft_io.input.readers import *
from weft_io.ops.files import *
from weft_io.ops.parsing import *
from weft_io.queues.accumulator import *
from weft_io.queues.queue import *
from weft_io.queues.queue import FIFOQueue as FIFOQueue
