"""`wf.quantization`: real numbers represented by integers."""

from weft import _lazy
from weft_graph.ops.quantization import *

_lazy.hint(__name__)
