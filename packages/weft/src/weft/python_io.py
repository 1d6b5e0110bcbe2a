"""`wf.python_io`: records in files, outside of the graph."""

from weft_io.records.options import *
from weft_io.records.python_io import *
from weft_io.records.tfrecord import *
