"""`wf.saved_model.builder`."""

from weft_io.saved_model.builder import SavedModelBuilder as SavedModelBuilder
