"""`wf.compat`: text and bytes, number types, and `v1`, the compatible API of TensorFlow 1."""

import weft as v1
from weft import _lazy
from weft_tensor.shape import dimension_at_index, dimension_value
from weft_tensor.text import (
    as_bytes,
    as_str,
    as_str_any,
    as_text,
    bytes_or_text_types,
    complex_types,
    integral_types,
    path_to_str,
    real_types,
)

__all__ = [
    "as_bytes",
    "as_str",
    "as_str_any",
    "as_text",
    "bytes_or_text_types",
    "complex_types",
    "dimension_at_index",
    "dimension_value",
    "integral_types",
    "path_to_str",
    "real_types",
    "v1",
]

_lazy.hint(__name__)
