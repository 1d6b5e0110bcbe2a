"""`wf.saved_model.main_op`."""

from weft_io.saved_model.main_op import *
