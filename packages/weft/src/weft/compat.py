"""`wf.compat`: text and bytes."""

from __future__ import annotations

from weft_tensor.shape import dimension_at_index as dimension_at_index
from weft_tensor.shape import dimension_value as dimension_value
