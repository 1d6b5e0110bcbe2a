"""`wf.resource_loader`: files next to a program's modules."""

from weft import _lazy
from weft_io.files.resource_loader import *

_lazy.hint(__name__)
