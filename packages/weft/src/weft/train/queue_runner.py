"""`wf.train.queue_runner`: queue runners."""

from weft import _lazy as _lazy
from weft_io.coordination.queue_runner import *

_lazy.hint(__name__)
