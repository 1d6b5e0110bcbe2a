"""Lazily loaded names of `weft.nn`."""

from weft_graph.nn.approximate import approx_max_k as approx_max_k, approx_min_k as approx_min_k
from weft_graph.nn.average_loss import *
from weft_graph.nn.ctc import *
from weft_graph.nn.general_convolution import *
from weft_graph.ops.ctc import *
from weft_graph.ops.fractional_pool import *
from weft_graph.ops.morphology import *
from weft_graph.ops.quantized import *
