"""`wf.xla`: hints about compilation."""

from weft import _lazy
from weft.xla import experimental as experimental

_lazy.hint(__name__)
