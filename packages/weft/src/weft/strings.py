"""`wf.strings`: strings."""

from weft_graph.ops.string_conversion import *
from weft_graph.ops.strings import *
