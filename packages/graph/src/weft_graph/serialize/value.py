"""Serialization of values for other processes, as bytes of a `TensorProto`."""

from __future__ import annotations

from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from weft_graph import proto
from weft_graph.messages.tensor_proto import Budget, array_from_proto, array_to_proto
from weft_tensor import dtypes, errors


def value_to_bytes(value: Any) -> bytes:
    """Serialize a value in a step's slots, or a fed or fetched value.

    Args:
      value: an array, a number or bytes.
    Raises: InvalidArgumentError: it is local to its process, such as a handle, or has 2 GiB or
      more.
    """
    if not isinstance(value, np.ndarray | np.generic | bytes | bool | int | float | complex):
        raise _unsendable_error(value)
    array = np.array(value, object) if isinstance(value, bytes) else np.asarray(value)
    text = array.dtype.kind == "O"
    if text and not all(isinstance(item, bytes) for item in array.flat):
        raise _unsendable_error(next(item for item in array.flat if not isinstance(item, bytes)))
    dtype = dtypes.string if text else dtypes.as_dtype(array.dtype)
    return array_to_proto(array, dtype).SerializeToString()


def value_from_bytes(data: bytes) -> Any:
    """Deserialize a value written by `value_to_bytes`, in the form for kernels.

    Args:
      data: bytes, which are untrusted. Memory use is bounded by their size.
    Returns: an array, which may be a read-only view of `data`; for rank 0 a NumPy scalar, except
      for strings.
    Raises: OpError: the bytes are not a valid tensor.
    """
    try:
        tensor = proto.TensorProto.FromString(data)
    except DecodeError as error:
        raise errors.DataLossError(f"{len(data)} bytes are not a tensor: {error}") from error
    if tensor.dtype == proto.DT_VARIANT:
        raise errors.InvalidTypeError("variants cannot be sent between processes")
    array = array_from_proto(tensor, "the value", Budget(0))
    return array if array.ndim or array.dtype.kind == "O" else array[()]


def _unsendable_error(value: Any) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(f"{value!r} cannot leave its process")
