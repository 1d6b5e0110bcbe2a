"""`wf.saved_model.constants`."""

from weft import _lazy
from weft_io.saved_model.constants import *

_lazy.hint(__name__)
