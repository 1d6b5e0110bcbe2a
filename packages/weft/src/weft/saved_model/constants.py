"""`wf.saved_model.constants`: names of files and collections."""

from weft import _lazy
from weft_io.saved_model.constants import *

_lazy.hint(__name__)
