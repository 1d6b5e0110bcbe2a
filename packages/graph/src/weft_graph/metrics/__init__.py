"""The public `metrics` namespace: values accumulated over many runs in local variables."""

from weft_graph.metrics.base import *
from weft_graph.metrics.classes import *
from weft_graph.metrics.counts import *
from weft_graph.metrics.curves import *
