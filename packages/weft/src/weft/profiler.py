"""`wf.profiler`: where the time, the memory and the parameters of a graph are."""

from weft import _lazy
from weft_exec.profiling.options import *
from weft_exec.profiling.profile import *

_lazy.hint(__name__)
