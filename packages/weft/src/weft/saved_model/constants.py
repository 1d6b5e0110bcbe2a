"""`wf.saved_model.constants`."""

from weft_io.saved_model.constants import *
