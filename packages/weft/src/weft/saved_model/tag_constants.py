"""`wf.saved_model.tag_constants`."""

from weft_io.saved_model.tag_constants import *
