"""`wf.saved_model.main_op`: ops that run after loading."""

from weft import _lazy
from weft_io.saved_model.main_op import *

_lazy.hint(__name__)
