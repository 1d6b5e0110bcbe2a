"""`wf.strings`: strings."""

from weft_graph.ops.strings import *
