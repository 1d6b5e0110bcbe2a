"""`wf.nn`: neural networks."""

from weft import _lazy
from weft.nn import rnn_cell as rnn_cell
from weft_graph.nn.namespace import *
from weft_graph.rnn.dynamic import *
from weft_graph.rnn.static import *

_lazy.hint(__name__)
