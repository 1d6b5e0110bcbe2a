"""`wf.nn.rnn_cell`: recurrent cells."""

from weft import _lazy
from weft_graph.rnn.cell.base import *
from weft_graph.rnn.cell.basic import *
from weft_graph.rnn.cell.lstm import *
from weft_graph.rnn.cell.multi import *
from weft_graph.rnn.cell.wrappers import *

_lazy.hint(__name__)
