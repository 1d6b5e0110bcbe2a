"""`wf.xla.experimental`: which nodes are compiled."""

from weft import _lazy
from weft_graph.ir.jit_scope import *

_lazy.hint(__name__)
