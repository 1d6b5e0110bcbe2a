"""`wf.io.gfile`: files by their names, local or URLs."""

from weft import _lazy
from weft_io.files.gfile import *

_lazy.hint(__name__)
