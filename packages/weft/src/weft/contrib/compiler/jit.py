"""`wf.contrib.compiler.jit`: which nodes are compiled."""

from weft import _lazy
from weft_contrib.compiler import *

_lazy.hint(__name__)
