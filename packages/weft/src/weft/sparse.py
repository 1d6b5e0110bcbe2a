"""`wf.sparse`: sparse tensors."""

import typing as _typing

from weft_graph.ir.indexed_slices import SparseTensor as SparseTensor
from weft_graph.ops import (
    segments as _segments,
    sparse as _sparse,
    sparse_math as _sparse_math,
    sparse_shapes as _sparse_shapes,
)
from weft_graph.ops.sparse import from_dense as from_dense
from weft_graph.ops.sparse_cross import (
    bincount as bincount,
    cross as cross,
    cross_hashed as cross_hashed,
)
from weft_graph.ops.sparse_shapes import expand_dims as expand_dims, eye as eye

add = _sparse_math.sparse_add
maximum = _sparse_math.sparse_maximum
minimum = _sparse_math.sparse_minimum
reduce_max = _sparse_math.sparse_reduce_max
reduce_max_sparse = _sparse_math.sparse_reduce_max_sparse
reduce_sum = _sparse_math.sparse_reduce_sum
reduce_sum_sparse = _sparse_math.sparse_reduce_sum_sparse
reorder = _sparse.sparse_reorder
softmax = _sparse_math.sparse_softmax
concat = _sparse_shapes.sparse_concat
fill_empty_rows = _sparse_shapes.sparse_fill_empty_rows
mask = _sparse_shapes.sparse_mask
merge = _sparse_shapes.sparse_merge
reset_shape = _sparse_shapes.sparse_reset_shape
reshape = _sparse_shapes.sparse_reshape
slice = _sparse_shapes.sparse_slice
split = _sparse_shapes.sparse_split
to_indicator = _sparse_shapes.sparse_to_indicator
transpose = _sparse_shapes.sparse_transpose
segment_mean = _segments.sparse_segment_mean
segment_sqrt_n = _segments.sparse_segment_sqrt_n
segment_sum = _segments.sparse_segment_sum
matmul = _sparse.sparse_tensor_dense_matmul
placeholder = _sparse.sparse_placeholder
retain = _sparse.sparse_retain
sparse_dense_matmul = _sparse.sparse_tensor_dense_matmul
to_dense = _sparse.sparse_tensor_to_dense

if _typing.TYPE_CHECKING:
    from weft._sparse_late import *
else:
    from weft import _lazy

    __getattr__, __dir__ = _lazy.attach(__name__, "weft._sparse_late")
