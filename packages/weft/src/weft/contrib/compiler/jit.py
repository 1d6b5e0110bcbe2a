"""`wf.contrib.compiler.jit`: selection of the nodes to compile."""

from weft import _lazy
from weft_contrib.compiler import *

_lazy.hint(__name__)
