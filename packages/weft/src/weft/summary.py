"""`wf.summary`: summaries for TensorBoard."""

import typing as _typing

from weft_io.ops.summary import *
from weft_io.summary.writer import *
from weft_io.summary.writer_cache import *

if _typing.TYPE_CHECKING:
    from weft._summary_messages import *
else:
    from weft import _lazy

    __getattr__, __dir__ = _lazy.attach(__name__, "weft._summary_messages")
