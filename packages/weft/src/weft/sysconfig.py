"""`wf.sysconfig`: build information of the library."""

from weft import _lazy
from weft_exec.build_info import *

_lazy.hint(__name__)
