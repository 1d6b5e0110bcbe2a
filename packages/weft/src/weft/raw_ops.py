"""`wf.raw_ops`: every op by its own name, its inputs and attributes by theirs."""

from weft_graph.raw_ops import *
