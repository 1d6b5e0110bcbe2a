"""`wf.errors`: error classes and codes."""

from weft import _lazy
from weft_tensor.errors import *

_lazy.hint(__name__)
