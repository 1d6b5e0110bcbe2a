"""`wf.saved_model.loader`: the loader of SavedModels."""

from weft import _lazy
from weft_io.saved_model.loader import *

_lazy.hint(__name__)
