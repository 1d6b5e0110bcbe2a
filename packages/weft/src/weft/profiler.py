"""`wf.profiler`: time, memory and parameters of a graph."""

from weft import _lazy
from weft_exec.profiling.context import *
from weft_exec.profiling.options import *
from weft_exec.profiling.profile import *

_lazy.hint(__name__)
