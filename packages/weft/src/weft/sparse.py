"""`wf.sparse`: sparse tensors."""

from __future__ import annotations

from weft_graph.indexed_slices import SparseTensor as SparseTensor
from weft_graph.ops.arithmetic import add as add
from weft_graph.ops.arithmetic import maximum as maximum
from weft_graph.ops.arithmetic import minimum as minimum
from weft_graph.ops.array import expand_dims as expand_dims
from weft_graph.ops.array import placeholder as placeholder
from weft_graph.ops.array import reshape as reshape
from weft_graph.ops.diagonals import eye as eye
from weft_graph.ops.join import concat as concat
from weft_graph.ops.join import split as split
from weft_graph.ops.layout import transpose as transpose
from weft_graph.ops.matmul import cross as cross
from weft_graph.ops.matmul import matmul as matmul
from weft_graph.ops.nn import softmax as softmax
from weft_graph.ops.reduction import reduce_max as reduce_max
from weft_graph.ops.reduction import reduce_sum as reduce_sum
from weft_graph.ops.segments import segment_mean as segment_mean
from weft_graph.ops.segments import segment_sum as segment_sum
from weft_graph.ops.sequence import bincount as bincount
from weft_graph.ops.slicing import slice as slice
