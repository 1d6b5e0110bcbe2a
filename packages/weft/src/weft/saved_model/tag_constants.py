"""`wf.saved_model.tag_constants`."""

from weft import _lazy
from weft_io.saved_model.tag_constants import *

_lazy.hint(__name__)
