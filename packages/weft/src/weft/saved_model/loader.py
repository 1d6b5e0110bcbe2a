"""`wf.saved_model.loader`."""

from weft_io.saved_model.loader import *
