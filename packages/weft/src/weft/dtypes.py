"""`wf.dtypes`: element types."""

from weft import _lazy
from weft_graph.ops.casting import cast as cast, complex as complex, saturate_cast as saturate_cast
from weft_graph.ops.string_conversion import as_string as as_string
from weft_tensor import dtypes as _dtypes
from weft_tensor.dtypes import *

bool = _dtypes.bool_

_lazy.hint(__name__)
