"""`wf.saved_model.signature_constants`."""

from weft_io.saved_model.signature_constants import *
