"""The public function that converts values to tensors."""

from __future__ import annotations

__all__ = ["convert_to_tensor"]

from typing import Any

from weft_graph.ir import builder
from weft_graph.ir.composite import AppliesOps
from weft_graph.ir.node import Output
from weft_tensor import errors


def convert_to_tensor(
    value: Any,
    dtype: Any = None,
    name: str | None = None,
    preferred_dtype: Any = None,
    dtype_hint: Any = None,
) -> Output:
    """Convert `value` to an output: itself, a constant, a stack of outputs, or via a converter.

    Args:
      value: an output, a variable, a number, a string, a nested list of these, or an array.
      dtype: element type; defaults to that of the value.
      name: name of the constant, if one is created.
      preferred_dtype: element type to use if possible when `dtype` is None; `dtype_hint` is its
        newer name.
    Raises: InvalidTypeError: the value cannot be converted to `dtype` or to any tensor (ragged
      tensors cannot).

    Examples:
      >>> wf.convert_to_tensor([1.0, wf.constant(2.0)])
      <weft.Tensor 'Pack:0' shape=[2] dtype=float32>
    """
    converted = builder.convert_to_tensor(value, dtype, name, preferred_dtype, dtype_hint)
    if isinstance(converted, AppliesOps):
        raise errors.InvalidTypeError(f"{converted!r} is not a tensor; convert it with to_tensor()")
    return converted
