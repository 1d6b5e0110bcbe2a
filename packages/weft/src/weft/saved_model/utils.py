"""`wf.saved_model.utils`."""

from weft import _lazy
from weft_io.saved_model.utils import *

_lazy.hint(__name__)
