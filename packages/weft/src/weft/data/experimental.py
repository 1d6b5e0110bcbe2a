"""`wf.data.experimental`: what may still change in input pipelines."""

from weft_io.data.experimental import *
from weft_io.streams.prefetching import *
