"""Lazily loaded names of `weft`: functions of sparse tensors."""

from weft_graph.ops.sets import edit_distance as edit_distance
from weft_graph.ops.sparse_math import *
from weft_graph.ops.sparse_shapes import *
