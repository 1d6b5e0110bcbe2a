"""The runtime as a shared library, loaded by ctypes.

A wheel contains the library. In a checkout it is built at the first use, and again when a source
changes, in `packages/lite/build`. Modules that devices import do not use `typing`, `collections` or
`pathlib`, which would make the import 50 % slower.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import (
    POINTER,
    c_char_p,
    c_float,
    c_int,
    c_int32,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)

from weft_lite.errors import BY_CODE, LiteError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_RANK = 8


class Error(ctypes.Structure):
    """The C struct `wl_error`."""

    _fields_ = [("status", c_int), ("text", ctypes.c_char * 384)]


class Config(ctypes.Structure):
    """The C struct `wl_config`."""

    _fields_ = [
        ("tasks", ctypes.c_uint),
        ("parallel", c_void_p),
        ("context", c_void_p),
        ("work_limit", c_uint64),
        ("watch", c_void_p),
        ("watch_context", c_void_p),
    ]


class Info(ctypes.Structure):
    """The C struct `wl_info`."""

    _fields_ = [
        ("name", c_char_p),
        ("dtype", ctypes.c_uint8),
        ("storage", ctypes.c_uint8),
        ("layout", ctypes.c_uint8),
        ("rank", ctypes.c_uint8),
        ("dims", c_int32 * MAX_RANK),
        ("declared", c_int32 * MAX_RANK),
        ("bytes", c_size_t),
        ("scales", POINTER(c_float)),
        ("zero_points", POINTER(c_int32)),
        ("scale_count", c_uint32),
        ("zero_point_count", c_uint32),
        ("axis", c_int32),
    ]


class OpInfo(ctypes.Structure):
    """The C struct `wl_op_info`."""

    _fields_ = [("kind", c_char_p), ("name", c_char_p)]


Watch = ctypes.CFUNCTYPE(None, c_void_p, c_uint32, c_int)
"""The type of the callback of `wl_watch`."""

FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "wl_query": (c_int, [c_void_p, c_size_t, c_void_p, c_void_p, c_void_p]),
    "wl_open": (c_int, [c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_void_p, c_void_p]),
    "wl_verify_weights": (c_int, [c_void_p, c_size_t, c_void_p]),
    "wl_tensor_count": (c_uint32, [c_void_p]),
    "wl_op_count": (c_uint32, [c_void_p]),
    "wl_input_count": (c_uint32, [c_void_p]),
    "wl_output_count": (c_uint32, [c_void_p]),
    "wl_input": (c_uint32, [c_void_p, c_uint32]),
    "wl_output": (c_uint32, [c_void_p, c_uint32]),
    "wl_tensor_info": (c_int, [c_void_p, c_uint32, c_void_p]),
    "wl_describe_op": (c_int, [c_void_p, c_uint32, c_void_p]),
    "wl_data": (c_void_p, [c_void_p, c_uint32]),
    "wl_resize": (c_int, [c_void_p, c_uint32, c_uint32, c_void_p, c_void_p]),
    "wl_plan": (c_int, [c_void_p, c_void_p]),
    "wl_invoke": (c_int, [c_void_p, c_void_p]),
    "wl_watch": (None, [c_void_p, c_void_p, c_void_p]),
    "wl_op_tensors": (c_uint32, [c_void_p, c_uint32, c_int, c_void_p, c_uint32]),
    "wl_reset_variables": (None, [c_void_p]),
    "wl_checkpoint_bytes": (c_size_t, [c_void_p]),
    "wl_save_checkpoint": (c_int, [c_void_p, c_void_p, c_size_t, c_void_p]),
    "wl_restore_checkpoint": (c_int, [c_void_p, c_void_p, c_size_t, c_void_p]),
    "wl_signature_count": (c_uint32, [c_void_p]),
    "wl_signature_key": (c_char_p, [c_void_p, c_uint32]),
    "wl_binding_count": (c_uint32, [c_void_p, c_uint32, c_int]),
    "wl_binding": (c_char_p, [c_void_p, c_uint32, c_int, c_uint32, c_void_p]),
    "wl_scratch_needed": (c_size_t, [c_void_p]),
    "wl_arena_bytes": (c_size_t, [c_void_p]),
    "wl_kernel_name": (c_char_p, [c_uint32, c_void_p, c_void_p]),
    "wl_format_version": (c_uint32, []),
    "wl_instruction_set": (c_char_p, []),
    "wl_use_instruction_set": (c_char_p, [c_void_p, c_uint32]),
    "wl_pool_create": (c_void_p, [ctypes.c_uint]),
    "wl_pool_destroy": (None, [c_void_p]),
    "wl_pool_threads": (ctypes.c_uint, [c_void_p]),
    "wl_pool_run": (None, [c_void_p, c_void_p, c_void_p, ctypes.c_uint]),
}


_loaded: list[Any] = []


def load() -> Any:
    """Load the library, and declare the types of its functions.

    Raises:
      FileNotFoundError: there is no C compiler, in a checkout.
      RuntimeError: the compiler failed.
    """
    if not _loaded:
        library = ctypes.CDLL(os.environ.get("WEFT_LITE_LIBRARY") or _path())
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
        _loaded.append(library)
    return _loaded[0]


def _path() -> str:
    """Return the path of the library; in a checkout, build it if necessary."""
    dirname = os.path.dirname(os.path.abspath(__file__))
    for name in ("libweft_lite.so", "libweft_lite.dylib", "weft_lite.dll"):
        path = os.path.join(dirname, name)
        if os.path.exists(path):
            return path
    from weft_lite.compiling import build_checkout

    return str(build_checkout())


def check(status: int, error: Error) -> None:
    """Raise the error of a status, unless it is success."""
    if status:
        raise BY_CODE.get(status, LiteError)(error.text.decode("utf-8", "replace"))


__all__ = ["Config", "Error", "Info", "OpInfo", "Watch", "check", "load"]
