"""`wf.manip`: rearrangement of tensors."""

from weft import _lazy
from weft_graph.ops.gather import gather_nd as gather_nd, scatter_nd as scatter_nd
from weft_graph.ops.join import tile as tile
from weft_graph.ops.permutation import reverse as reverse, roll as roll
from weft_graph.ops.shapes import reshape as reshape
from weft_graph.ops.space_to_batch import (
    batch_to_space_nd as batch_to_space_nd,
    space_to_batch_nd as space_to_batch_nd,
)

_lazy.hint(__name__)
