"""`wf.saved_model.tag_constants`: usual tags of graphs."""

from weft import _lazy
from weft_io.saved_model.tag_constants import *

_lazy.hint(__name__)
