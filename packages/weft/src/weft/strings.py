"""`wf.strings`: strings."""

from weft import _lazy
from weft_graph.ops.string_conversion import *
from weft_graph.ops.string_rows import *
from weft_graph.ops.strings import *
from weft_graph.ops.unicode import *

_lazy.hint(__name__)
