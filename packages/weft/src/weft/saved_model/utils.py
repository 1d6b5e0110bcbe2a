"""`wf.saved_model.utils`: descriptions of tensors in signatures."""

from weft import _lazy
from weft_io.saved_model.utils import *

_lazy.hint(__name__)
