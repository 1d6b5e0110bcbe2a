"""`wf.saved_model.signature_constants`: names of methods, inputs and outputs."""

from weft import _lazy
from weft_io.saved_model.signature_constants import *

_lazy.hint(__name__)
