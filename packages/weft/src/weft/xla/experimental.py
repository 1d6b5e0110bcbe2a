"""`wf.xla.experimental`: selection of the nodes to compile."""

from weft import _lazy
from weft_graph.ir.jit_scope import *

_lazy.hint(__name__)
