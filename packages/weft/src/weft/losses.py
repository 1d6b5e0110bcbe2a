"""`wf.losses`: functions to minimise."""

from weft_graph.losses import *
