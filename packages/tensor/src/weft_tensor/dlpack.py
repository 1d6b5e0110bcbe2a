"""DLPack export and import, including bfloat16, which NumPy's own exchange rejects.

NumPy sees bfloat16 as two plain bytes. It is passed through NumPy's exchange as uint16, and the
type code in the capsule's descriptor is then changed in place (layout of dlpack.h, versions 0 and
1).
"""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np

from weft_tensor.errors import InvalidArgumentError, InvalidTypeError

CPU = 1
_UINT, _BFLOAT = 1, 4
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

# Offsets of DLTensor inside the managed structures, and of its type descriptor, with 64-bit
# pointers: data pointer 8, device 8, ndim 4, then code and bits (uint8), lanes (uint16).
_MANAGED_AT = {b"dltensor": 0, b"dltensor_versioned": 32}
_TYPE_AT = 20


def to_capsule(array: np.ndarray[Any, Any], **options: Any) -> Any:
    """Return a DLPack capsule over the memory of `array`.

    Args:
      array: numeric or bool; bfloat16 works too.
      options: `stream`, `max_version`, `dl_device`, `copy`, as defined by the protocol.
    Raises:
      BufferError: the array has strings, or an option of the consumer cannot be met.
    """
    if array.dtype.hasobject:
        raise BufferError("DLPack has no strings; exchange offsets and bytes instead")
    # NumPy 2.0 has only `stream`; the others are passed where they say something
    requests = {key: value for key, value in options.items() if value is not None}
    if array.dtype != _BFLOAT16:
        return array.__dlpack__(**requests)
    capsule = array.view(np.uint16).__dlpack__(**requests)
    _retype(capsule, _UINT, _BFLOAT)
    return capsule


def from_capsule(source: Any) -> np.ndarray[Any, Any]:
    """Return an array over the memory of an object that supports DLPack, without copying.

    Args:
      source: a tensor of PyTorch, JAX, CuPy, NumPy, ... in CPU memory.
    Raises:
      InvalidTypeError: it does not support DLPack, or its element type is unknown here.
      InvalidArgumentError: it is in another device's memory.
    """
    if not (hasattr(source, "__dlpack__") and hasattr(source, "__dlpack_device__")):
        raise InvalidTypeError(f"expected an object with __dlpack__, got {type(source).__name__!r}")
    kind, number = source.__dlpack_device__()
    if int(kind) != CPU:
        raise InvalidArgumentError(
            f"expected a tensor in CPU memory, got DLPack device type {int(kind)}, number {number}"
        )
    relay = _Relay(source)
    try:
        array = np.from_dlpack(relay)
    except (BufferError, RuntimeError, TypeError) as error:
        raise InvalidTypeError(f"the DLPack tensor cannot be imported: {error}") from error
    return array.view(_BFLOAT16) if relay.is_bfloat16 else array


class _Relay:
    """Adapter that passes NumPy's request to the producer and presents bfloat16 as uint16."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self.is_bfloat16 = False

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, number = self._source.__dlpack_device__()
        return int(kind), int(number)

    def __dlpack__(self, **options: Any) -> Any:
        try:
            capsule = self._source.__dlpack__(**options)
        except TypeError:  # a producer from before the options
            capsule = self._source.__dlpack__()
        self.is_bfloat16 = _retype(capsule, _BFLOAT, _UINT)
        return capsule


def _retype(capsule: Any, old: int, new: int) -> bool:
    """Replace the 16-bit type code `old` in a capsule's descriptor; return False if it differs."""
    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype = ctypes.c_void_p
    get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    name = get_name(capsule)
    if name not in _MANAGED_AT or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    managed = get_pointer(capsule, name)
    code = (ctypes.c_uint8 * 2).from_address(managed + _MANAGED_AT[name] + _TYPE_AT)
    if code[0] != old or code[1] != 16:
        return False
    code[0] = new
    return True
