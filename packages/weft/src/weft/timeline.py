"""`wf.timeline`: a traced step as a picture; in TensorFlow `tensorflow.python.client.timeline`."""

from weft import _lazy
from weft_exec.profiling.timeline import *

_lazy.hint(__name__)
