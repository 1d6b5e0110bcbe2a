"""`wf.timeline`: timelines of traced steps, as in `tensorflow.python.client.timeline`."""

from weft import _lazy
from weft_exec.profiling.timeline import *

_lazy.hint(__name__)
