"""Conversion between `VariantTensorDataProto` and variants that are plain data.

Ragged tensors and tensors have the format of TensorFlow 2.2 and later. Other variants, such as
datasets and optionals, are not portable: TensorFlow writes only the name of their type, or data
that only its own kernels can read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from weft_graph import proto
from weft_graph.ir.variants import RaggedVariant, TensorVariant
from weft_tensor import errors

Array = np.ndarray[Any, Any]

_RAGGED: Final = "RaggedTensorVariant"
_TENSOR: Final = "tensorflow::Tensor"
_READABLE: Final = f"ragged tensors ({_RAGGED}) and tensors ({_TENSOR})"


def variant_to_proto(
    variant: Any, write: Callable[[Array], proto.TensorProto]
) -> proto.VariantTensorDataProto:
    """Return the message of one variant.

    Args:
      variant: an element of a tensor of variants.
      write: function that converts an array to a message.
    Raises: InvalidTypeError: it is neither a ragged tensor nor a tensor.
    """
    if isinstance(variant, RaggedVariant):
        name, arrays = _RAGGED, [*variant.splits, variant.values]
    elif isinstance(variant, TensorVariant):
        name, arrays = _TENSOR, [variant.array]
    else:
        raise errors.InvalidTypeError(
            f"a variant that is a {type(variant).__name__} cannot be written into a TensorProto; "
            f"supported are {_READABLE}"
        )
    return proto.VariantTensorDataProto(type_name=name, tensors=[write(a) for a in arrays])


def variant_from_proto(
    message: proto.VariantTensorDataProto, location: str, read: Callable[[proto.TensorProto], Array]
) -> RaggedVariant | TensorVariant:
    """Return the variant of one message.

    Args:
      location: description of the message to read, for error messages.
      read: function that converts a message to an array.
    Raises:
      InvalidTypeError: variants of its type, or nested variants, cannot be read.
      InvalidArgumentError: its tensors do not match its type.
    """
    if message.type_name not in (_RAGGED, _TENSOR):
        raise errors.InvalidTypeError(
            f"{location}: a variant of type {message.type_name or '(none)'!r} cannot be read; "
            f"supported are {_READABLE}"
        )
    if any(tensor.dtype == proto.DT_VARIANT for tensor in message.tensors):
        raise errors.InvalidTypeError(f"{location}: nested variants are not supported")
    arrays = [read(tensor) for tensor in message.tensors]
    if message.type_name == _RAGGED and arrays:
        *splits, values = arrays
        _check_levels(splits, values, location)
        return RaggedVariant(splits, values)
    if len(arrays) != 1:
        raise errors.InvalidArgumentError(
            f"{location}: a variant of type {message.type_name!r} needs a tensor, got {len(arrays)}"
        )
    return TensorVariant(arrays[0])


def _check_levels(splits: list[Array], values: Array, location: str) -> None:
    """Check that row splits match each other and the values.

    Raises: InvalidArgumentError: they do not match.
    """
    counts = [*[inner.size - 1 for inner in splits[1:]], len(values) if values.ndim else 0]
    for level, count in zip(splits, counts, strict=False):  # without splits a count is left over
        rows = level.ndim == 1 and level.size > 0 and level.dtype in (np.int32, np.int64)
        if not rows or level[0] != 0 or level[-1] != count or (np.diff(level) < 0).any():
            raise errors.InvalidArgumentError(
                f"{location}: row splits of a ragged tensor must be int32 or int64 and rise from 0 "
                f"to the {count} rows inside, got {level!r}"
            )
