"""Names of `weft.nn` that load with the first of them."""

from weft_graph.nn.ctc import *
from weft_graph.ops.ctc import *
