"""`wf.config.threading`: how many threads sessions have by default."""

from weft import _lazy
from weft_exec.settings import *

_lazy.hint(__name__)
