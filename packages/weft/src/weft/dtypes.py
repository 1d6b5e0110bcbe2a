"""`wf.dtypes`: element types."""

from __future__ import annotations

from weft_graph.ops.casting import cast as cast
from weft_graph.ops.casting import complex as complex
from weft_graph.ops.casting import saturate_cast as saturate_cast
from weft_graph.ops.strings import as_string as as_string
from weft_tensor.dtypes import DType as DType
from weft_tensor.dtypes import QUANTIZED_DTYPES as QUANTIZED_DTYPES
from weft_tensor.dtypes import as_dtype as as_dtype
from weft_tensor.dtypes import bfloat16 as bfloat16
from weft_tensor.dtypes import bool_ as bool
from weft_tensor.dtypes import complex128 as complex128
from weft_tensor.dtypes import complex64 as complex64
from weft_tensor.dtypes import double as double
from weft_tensor.dtypes import float16 as float16
from weft_tensor.dtypes import float32 as float32
from weft_tensor.dtypes import float64 as float64
from weft_tensor.dtypes import half as half
from weft_tensor.dtypes import int16 as int16
from weft_tensor.dtypes import int32 as int32
from weft_tensor.dtypes import int64 as int64
from weft_tensor.dtypes import int8 as int8
from weft_tensor.dtypes import qint16 as qint16
from weft_tensor.dtypes import qint32 as qint32
from weft_tensor.dtypes import qint8 as qint8
from weft_tensor.dtypes import quint16 as quint16
from weft_tensor.dtypes import quint8 as quint8
from weft_tensor.dtypes import resource as resource
from weft_tensor.dtypes import string as string
from weft_tensor.dtypes import uint16 as uint16
from weft_tensor.dtypes import uint32 as uint32
from weft_tensor.dtypes import uint64 as uint64
from weft_tensor.dtypes import uint8 as uint8
from weft_tensor.dtypes import variant as variant
