"""`wf.gfile`: files by their names, local or URLs."""

from weft import _lazy
from weft_io.files.former_gfile import *

_lazy.hint(__name__)
