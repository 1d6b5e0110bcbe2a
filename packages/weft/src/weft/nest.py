"""`wf.nest`: nested structures of tensors."""

from weft_graph.ir.nest import *
