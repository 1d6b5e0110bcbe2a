"""`wf.saved_model.utils`."""

from weft_io.saved_model.utils import *
