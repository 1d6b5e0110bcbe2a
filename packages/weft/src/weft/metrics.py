"""`wf.metrics`: values accumulated over many runs."""

from weft import _lazy
from weft_graph.metrics.base import *
from weft_graph.metrics.classes import *
from weft_graph.metrics.counts import *
from weft_graph.metrics.curves import *
from weft_graph.metrics.top_k import *

_lazy.hint(__name__)
