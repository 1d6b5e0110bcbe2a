"""`wf.gfile`: files by path or URL."""

from weft import _lazy
from weft_io.files.deprecated_gfile import *

_lazy.hint(__name__)
