"""`wf.raw_ops`: one function for every op, with the op's own names of inputs and attributes."""

from weft_graph.raw_ops import *
