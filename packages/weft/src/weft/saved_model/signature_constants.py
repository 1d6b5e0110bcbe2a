"""`wf.saved_model.signature_constants`."""

from weft import _lazy
from weft_io.saved_model.signature_constants import *

_lazy.hint(__name__)
