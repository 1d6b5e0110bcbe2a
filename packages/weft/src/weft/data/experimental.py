"""`wf.data.experimental`: features of input pipelines that may still change."""

import typing as _typing

from weft_io.data.experimental import *
from weft_io.streams.prefetching import *

if _typing.TYPE_CHECKING:
    from weft.data._experimental_late import *
else:
    from weft import _lazy

    __getattr__, __dir__ = _lazy.attach(__name__, "weft.data._experimental_late")
