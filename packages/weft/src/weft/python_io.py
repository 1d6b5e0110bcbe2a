"""`wf.python_io`: record files, read and written outside of the graph."""

from weft import _lazy
from weft_io.records.options import *
from weft_io.records.python_io import *
from weft_io.records.tfrecord import *

_lazy.hint(__name__)
