"""`wf.saved_model.signature_def_utils`."""

from weft_io.saved_model.signature_def_utils import *
