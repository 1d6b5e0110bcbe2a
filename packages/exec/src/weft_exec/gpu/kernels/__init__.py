"""The kernels of GPUs, one family per module, over CuPy's functions."""

from __future__ import annotations

import importlib
import threading
from typing import Final

_FAMILIES: Final = (
    "elementwise",
    "reduction",
    "layout",
    "gather",
    "nn",
    "conv",
    "pool",
    "normalization",
    "random",
    "state",
    "linalg",
)
_lock = threading.Lock()


def register_all() -> None:
    """Import all families, which registers them; sessions without GPUs do without."""
    with _lock:
        for family in _FAMILIES:
            importlib.import_module(f"weft_exec.gpu.kernels.{family}")
