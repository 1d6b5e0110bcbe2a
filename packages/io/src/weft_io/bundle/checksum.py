"""CRC-32C, plain and masked as TensorFlow stores it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from google_crc32c import extend

_MASK: Final = 0xA282EAD8


def crc32c(data: Any, crc: int = 0) -> int:
    """Return the CRC-32C of a buffer without copying it, continuing from `crc`."""
    value: int = extend(crc, np.frombuffer(data, np.uint8))
    return value


def mask_crc(crc: int) -> int:
    """Mask a CRC for storage, as TensorFlow does for data that may contain its own CRC."""
    return (((crc >> 15) | (crc << 17)) + _MASK) & 0xFFFFFFFF
