"""`wf.sparse`: sparse tensors."""

from weft import _lazy
from weft_graph.ir.indexed_slices import SparseTensor as SparseTensor
from weft_graph.ops import segments as _segments, sparse as _sparse
from weft_graph.ops.sparse import from_dense as from_dense

segment_mean = _segments.sparse_segment_mean
segment_sqrt_n = _segments.sparse_segment_sqrt_n
segment_sum = _segments.sparse_segment_sum
matmul = _sparse.sparse_tensor_dense_matmul
placeholder = _sparse.sparse_placeholder
retain = _sparse.sparse_retain
sparse_dense_matmul = _sparse.sparse_tensor_dense_matmul
to_dense = _sparse.sparse_tensor_to_dense

_lazy.hint(__name__)
