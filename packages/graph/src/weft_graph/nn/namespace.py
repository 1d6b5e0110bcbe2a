"""The names of `nn` in this package, in a separate module to hide submodules."""

from weft_graph.nn.activation import *
from weft_graph.nn.convolution import *
from weft_graph.nn.cross_entropy import *
from weft_graph.nn.embedding import *
from weft_graph.nn.sampling import *
from weft_graph.nn.statistics import *
from weft_graph.ops.candidates import *
from weft_graph.ops.candidates import compute_accidental_hits as compute_accidental_hits
from weft_graph.ops.conv import *
from weft_graph.ops.elementary import log_sigmoid as log_sigmoid, sigmoid as sigmoid
from weft_graph.ops.nn import *
from weft_graph.ops.normalization import *
from weft_graph.ops.pool import *
from weft_graph.ops.search import in_top_k as in_top_k, top_k as top_k
from weft_graph.ops.space_to_batch import (
    batch_to_space as batch_to_space,
    depth_to_space as depth_to_space,
    space_to_batch as space_to_batch,
    space_to_depth as space_to_depth,
)
from weft_graph.ops.trigonometry import tanh as tanh
