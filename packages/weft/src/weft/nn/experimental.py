"""`wf.nn.experimental`: dropout with a choice of random generator."""

from weft import _lazy
from weft_graph.nn.experimental import *

_lazy.hint(__name__)
