"""`wf.config.threading`: default numbers of threads of sessions."""

from weft import _lazy
from weft_exec.settings import *

_lazy.hint(__name__)
