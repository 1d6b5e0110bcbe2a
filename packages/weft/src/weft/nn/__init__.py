"""`wf.nn`: neural networks."""

from weft.nn import rnn_cell as rnn_cell
from weft_graph.nn.namespace import *
from weft_graph.rnn.dynamic import *
from weft_graph.rnn.static import *
