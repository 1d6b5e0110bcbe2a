"""`wf.resource_loader`: files beside a program."""

from weft import _lazy
from weft_io.files.resource_loader import *

_lazy.hint(__name__)
