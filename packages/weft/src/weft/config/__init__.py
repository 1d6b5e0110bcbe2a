"""`wf.config`: the devices of this process."""

from weft import _lazy
from weft.config import experimental as experimental

_lazy.hint(__name__)
