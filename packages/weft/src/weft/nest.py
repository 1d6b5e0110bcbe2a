"""`wf.nest`: nested structures of tensors."""

from weft import _lazy
from weft_graph.ir.nest import *

_lazy.hint(__name__)
