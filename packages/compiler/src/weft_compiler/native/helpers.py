"""The helper threads of this process: see `weft_compiler.codegen.threads`.

They start when a program first requests them, and serve all sessions.
"""

from __future__ import annotations

import atexit
import ctypes
import os
from typing import Final

from weft_compiler.codegen import threads
from weft_compiler.codegen.targets import host
from weft_compiler.native.linking import Library, once
from weft_compiler.native.shared_objects import load_shared

_PROCEDURE: Final = ctypes.CFUNCTYPE(None)


@once
def library() -> Library:
    """Return their machine code, which is loaded until the process ends."""
    text = threads.text(host())
    made = load_shared("threads", text, host(), lambda image: Library(image, threads.EXPORTS))
    reset = _PROCEDURE(made.address(threads.RESET))
    reset()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=reset)  # threads are not forked
    atexit.register(_PROCEDURE(made.address(threads.STOP)))  # before their code is unloaded
    return made


def imports() -> dict[str, int]:
    """Return the addresses of the functions that programs call."""
    return {name: library().address(name) for name in (threads.SHARE, threads.BEGIN, threads.END)}
