"""`wf.porting`: find where a port departs from the model that it was ported from."""

from weft import _lazy
from weft_io.porting import *

_lazy.hint(__name__)
