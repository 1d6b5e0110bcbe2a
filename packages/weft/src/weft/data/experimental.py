"""`wf.data.experimental`: what may still change in input pipelines."""

from weft import _lazy
from weft_io.data.experimental import *
from weft_io.streams.prefetching import *

_lazy.hint(__name__)
