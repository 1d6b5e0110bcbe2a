"""`wf.saved_model.builder`: the writer of SavedModels."""

from weft import _lazy
from weft_io.saved_model.builder import SavedModelBuilder as SavedModelBuilder

_lazy.hint(__name__)
