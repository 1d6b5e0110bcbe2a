"""`wf.strings`: strings."""

import typing as _typing

from weft_graph.ops.string_conversion import *
from weft_graph.ops.string_rows import *
from weft_graph.ops.strings import *
from weft_graph.ops.unicode import *

if _typing.TYPE_CHECKING:
    from weft._ragged_strings import *
else:
    from weft import _lazy

    __getattr__, __dir__ = _lazy.attach(__name__, "weft._ragged_strings")
