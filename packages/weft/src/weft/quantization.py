"""`wf.quantization`: numbers as integers that stand for them."""

from weft import _lazy
from weft_graph.ops.quantization import *

_lazy.hint(__name__)
