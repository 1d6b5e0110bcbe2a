"""The runtime of this process: the thread pool, the arena, and the functions that enter programs.

See `weft_compiler.codegen.runtime`. Helper threads start when a program first uses them; all
sessions share them.
"""

from __future__ import annotations

import atexit
import ctypes
import os
from typing import Final

from weft_compiler.codegen import runtime
from weft_compiler.codegen.targets import host
from weft_compiler.native.linking import Library, call_once
from weft_compiler.native.shared_objects import load_shared

_PROCEDURE: Final = ctypes.CFUNCTYPE(None)


@call_once
def library() -> Library:
    """Return the machine code of the runtime, which stays loaded until the process ends."""
    text = runtime.text(host())
    loaded = load_shared("runtime", text, host(), lambda image: Library(image, runtime.EXPORTS))
    reset = _PROCEDURE(loaded.address(runtime.RESET_THREADS))
    reset()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=reset)  # threads are not forked
    # Threads end before their code is unloaded.
    atexit.register(_PROCEDURE(loaded.address(runtime.STOP_THREADS)))
    return loaded


def imports() -> dict[str, int]:
    """Return the addresses of the runtime functions that programs call."""
    return {name: library().address(name) for name in (runtime.PARALLEL_FOR, runtime.RUN_SEQUENCE)}
