"""`wf.nn.experimental`: dropout by random numbers of choice."""

from weft import _lazy
from weft_graph.nn.experimental import *

_lazy.hint(__name__)
